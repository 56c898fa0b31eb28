/* SPDX-License-Identifier: Apache-2.0 */
/* layout_fixture - layouts with allocations and entries in few words, and looks at them */
#ifndef GMSFS_TESTS_UNIT_LAYOUT_FIXTURE_H
#define GMSFS_TESTS_UNIT_LAYOUT_FIXTURE_H

#include "auto_layout.h"

#include <errno.h>
#include <stdlib.h>

__attribute__((unused)) static uint64_t add(struct layout *layout, uint64_t serial,
                                            const char *name)
{
    uint64_t slot = UINT64_MAX;

    require(layout_add(layout, serial, name, "tag", &slot) == 0);
    return slot;
}

/* `serials` allocations with automatic names: slots 0.., serials 100.. */
__attribute__((unused)) static struct layout *layout_with(size_t allocations)
{
    struct layout *layout = layout_new();

    require(layout != NULL);
    for (size_t i = 0; i < allocations; i++)
        add(layout, 100 + i, NULL);
    return layout;
}

__attribute__((unused)) static struct layout_put make_put(const char *key, uint64_t slot,
                                                          const char *value, uint64_t serial)
{
    return (struct layout_put){
        .key = key,
        .key_bytes = strlen(key),
        .slot = slot,
        .offset = 7,
        .value = value,
        .value_bytes = strlen(value),
        .serial = serial,
    };
}

__attribute__((unused)) static int put(struct layout *layout, const char *key, uint64_t slot,
                                       const char *value, uint64_t serial)
{
    struct layout_put one = make_put(key, slot, value, serial);

    return layout_put(layout, &one);
}

__attribute__((unused)) static const struct layout_entry *find(const struct layout *layout,
                                                               const char *key)
{
    return layout_find_entry(layout, key, strlen(key));
}

/* Finds an entry by going through all before it. */
__attribute__((unused)) static const struct layout_entry *entry_at(const struct layout *layout,
                                                                   size_t index)
{
    struct layout_cursor cursor;

    layout_cursor_first(&cursor, layout);
    while (index-- > 0)
        layout_cursor_next(&cursor);
    return layout_cursor_next(&cursor);
}

__attribute__((unused)) static const struct layout_entry *
entry_from(const struct layout *layout, const char *key, size_t key_bytes)
{
    struct layout_cursor cursor;

    layout_cursor_seek(&cursor, layout, key, key_bytes);
    return layout_cursor_next(&cursor);
}

__attribute__((unused)) static void check_value(const struct layout_entry *entry, const char *value)
{
    if (check(entry != NULL))
        check_bytes(entry->value, entry->value_bytes, value, strlen(value));
}

#endif
