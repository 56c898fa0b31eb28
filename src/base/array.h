/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array - growing arrays, and binary search in sorted ones
 *
 * Pure and header-only, so that the library can use it. An array is a pointer, a count of items and
 * a room (capacity in items); its user frees the pointer.
 */
#ifndef GMSFS_BASE_ARRAY_H
#define GMSFS_BASE_ARRAY_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARRAY_FIRST_BYTES 128u /* first allocation, or four items if that is more */

/* Implements ARRAY_RESERVE; `items` is the address of the array's pointer. */
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

/* Makes room for `count` items in total; the room doubles, so that growing one by one stays cheap.
 * 0, or -ENOMEM with the array unchanged. */
#define ARRAY_RESERVE(items, room, count) \
    array_reserve(&(items), &(room), count, sizeof((items)[0]))

/*
 * Sets `at` to the first index in [at, end) for which `is_before`, an expression of `at`, is false;
 * to `end` if there is none. The array is sorted: `is_before` is true up to one index and false
 * from there on.
 */
#define ARRAY_SEARCH(at, end, is_before)                                                       \
    for (size_t low_ = (at), high_ = (end); (at) = low_ + (high_ - low_) / 2, low_ < high_;) { \
        if (is_before)                                                                         \
            low_ = (at) + 1;                                                                   \
        else                                                                                   \
            high_ = (at);                                                                      \
    }

#endif
