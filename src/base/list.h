/* SPDX-License-Identifier: Apache-2.0 */
/* list - items that are chained by their member `next`, short enough to be walked. Pure. */
#ifndef GMSFS_BASE_LIST_H
#define GMSFS_BASE_LIST_H

/* Both walk; the item is evaluated more than once. */
#define LIST_APPEND(first, item)                 \
    do {                                         \
        __typeof__(&(first)) list_at = &(first); \
        while (*list_at)                         \
            list_at = &(*list_at)->next;         \
        (item)->next = NULL;                     \
        *list_at = (item);                       \
    } while (0)

/* Harmless where it is not in the list. */
#define LIST_REMOVE(first, item)                 \
    do {                                         \
        __typeof__(&(first)) list_at = &(first); \
        while (*list_at && *list_at != (item))   \
            list_at = &(*list_at)->next;         \
        if (*list_at)                            \
            *list_at = (item)->next;             \
    } while (0)

#endif
