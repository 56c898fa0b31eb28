/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array - arrays that grow, and the place of something in a sorted one
 *
 * Pure, and all of it is here, so the library has it too. An array is a pointer, the number of
 * items that it has and the number that it has room for; its user frees the pointer.
 */
#ifndef GMSFS_BASE_ARRAY_H
#define GMSFS_BASE_ARRAY_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARRAY_FIRST_BYTES 128u /* or four items */

/* For ARRAY_RESERVE: `items` points at the array's pointer. */
static inline int array_reserve(void *items, size_t *room, size_t count, size_t item_bytes)
{
    size_t first = ARRAY_FIRST_BYTES / item_bytes, wanted = *room ? *room : first > 4 ? first : 4;
    void *array, *grown;

    if (count <= *room)
        return 0;
    if (count > SIZE_MAX / 2 / item_bytes)
        return -ENOMEM;
    while (wanted < count)
        wanted *= 2;
    memcpy(&array, items, sizeof(array));
    grown = realloc(array, wanted * item_bytes);
    if (!grown)
        return -ENOMEM;
    memcpy(items, &grown, sizeof(grown));
    *room = wanted;
    return 0;
}

/* Makes room for `count` items in all; the room doubles, so growing one by one stays cheap. 0, or
 * -ENOMEM, and the array is as it was. */
#define ARRAY_RESERVE(items, room, count) \
    array_reserve(&(items), &(room), count, sizeof((items)[0]))

/*
 * Sets `at` to the first index from `at` to `end` of which `is_before`, an expression of `at`, is
 * false; to `end` if it is true of all. The array is sorted: `is_before` is true up to one place.
 */
#define ARRAY_SEARCH(at, end, is_before)                                                       \
    for (size_t low_ = (at), high_ = (end); (at) = low_ + (high_ - low_) / 2, low_ < high_;) { \
        if (is_before)                                                                         \
            low_ = (at) + 1;                                                                   \
        else                                                                                   \
            high_ = (at);                                                                      \
    }

#endif
