/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader STORE - maps a published layout without a copy, and says where every tensor is
 *
 * cc reader.c $(pkg-config --cflags --libs gmsfs) -o reader
 */
#include <gmsfs.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int r, const char *step)
{
    if (r < 0) {
        fprintf(stderr, "reader: %s: %s\n", step, strerror(-r));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    struct gmsfs_mapping *mappings;
    struct gmsfs_layout *layout;
    gmsfs_t *store;
    size_t count;

    if (argc != 2) {
        fprintf(stderr, "usage: reader STORE\n");
        return 2;
    }
    must(gmsfs_open(argv[1], &store), argv[1]);
    must(gmsfs_connect(store, GMSFS_MODE_RO, GMSFS_TIMEOUT_FOREVER), "RO lock");
    must(gmsfs_attach_all(store, GMSFS_ACCESS_READ, &mappings, &count), "attach");
    must(gmsfs_read_layout(store, &layout), "layout");
    for (size_t i = 0; i < layout->entry_count; i++) {
        const struct gmsfs_layout_entry *entry = &layout->entries[i];
        if (entry->rank == GMSFS_SLOT_NONE)
            continue;
        const unsigned char *tensor = mappings[entry->rank].ptr;
        tensor += entry->offset;
        printf("%s at %p, first byte 0x%02x\n", entry->key, (const void *)tensor, *tensor);
    }

    /* Sleep: the lock and the memory go, the addresses stay. Wake up: the same bytes, there. */
    must(gmsfs_unmap_all_vas(store, 0), "sleep");
    must(gmsfs_remap_all_vas(store, 10000, 1), "wake up");
    printf("%zu allocations, %llu bytes\n", count, (unsigned long long)gmsfs_total_bytes(store));

    free(mappings);
    gmsfs_free_layout(layout);
    gmsfs_close(store);
    return 0;
}
