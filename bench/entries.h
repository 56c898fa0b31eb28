/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entries - metadata as an engine writes it: a tensor's name, type, shape, and where it lies
 *
 * For fill.c and metadata.c.
 */
#ifndef GMSFS_BENCH_ENTRIES_H
#define GMSFS_BENCH_ENTRIES_H

#include <gmsfs.h>

#include "bench.h"

#define ENTRIES_KEY_BYTES 64

static int entries_compare(const void *left, const void *right)
{
    return strcmp(((const struct gmsfs_metadata *)left)->key,
                  ((const struct gmsfs_metadata *)right)->key);
}

/* In the order of their keys, as the canonical document has them. */
BENCH_UNUSED static struct gmsfs_metadata *entries_make(size_t count, uint64_t first_slot,
                                                        uint64_t slots)
{
    static const char value[] = "{\"dtype\":\"torch.bfloat16\",\"shape\":[4096,14336],"
                                "\"stride\":[14336,1]}";
    struct gmsfs_metadata *entries = calloc(count + 1, sizeof *entries);

    if (!entries)
        bench_die("entries", ENOMEM);
    for (size_t i = 0; i < count; i++) {
        char *key = malloc(ENTRIES_KEY_BYTES);
        if (!key)
            bench_die("entries", ENOMEM);
        snprintf(key, ENTRIES_KEY_BYTES, "model.layers.%zu.mlp.experts.%zu.down_proj.weight",
                 i / 256, i % 256);
        entries[i] = (struct gmsfs_metadata){.key = key,
                                             .value = value,
                                             .value_bytes = sizeof value - 1,
                                             .slot = first_slot + i % slots,
                                             .offset = i / slots % 4096};
    }
    qsort(entries, count, sizeof *entries, entries_compare);
    return entries;
}

BENCH_UNUSED static void entries_free(struct gmsfs_metadata *entries, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free((char *)entries[i].key);
    free(entries);
}

#endif
