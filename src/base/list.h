/* SPDX-License-Identifier: Apache-2.0 */
/* list - short lists, linked by the items' member `next`. Pure. */
#ifndef GMSFS_BASE_LIST_H
#define GMSFS_BASE_LIST_H

/* Both walk the list, and evaluate `item` more than once. */
#define LIST_APPEND(first, item)                 \
    do {                                         \
        __typeof__(&(first)) list_at = &(first); \
        while (*list_at)                         \
            list_at = &(*list_at)->next;         \
        (item)->next = NULL;                     \
        *list_at = (item);                       \
    } while (0)

/* Does nothing if the item is not in the list. */
#define LIST_REMOVE(first, item)                 \
    do {                                         \
        __typeof__(&(first)) list_at = &(first); \
        while (*list_at && *list_at != (item))   \
            list_at = &(*list_at)->next;         \
        if (*list_at)                            \
            *list_at = (item)->next;             \
    } while (0)

#endif
