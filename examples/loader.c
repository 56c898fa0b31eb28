/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader STORE FILE - puts a file's bytes into a store as one tensor, and publishes it
 *
 * Ending before the commit publishes nothing.
 * cc loader.c $(pkg-config --cflags --libs gmsfs) -o loader
 */
#include <gmsfs.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int r, const char *step)
{
    if (r < 0) {
        fprintf(stderr, "loader: %s: %s\n", step, strerror(-r));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    gmsfs_t *store;
    uint64_t slot, offset;
    void *memory;
    FILE *file;
    long size_bytes;

    if (argc != 3 || !(file = fopen(argv[2], "rb")) || fseek(file, 0, SEEK_END) ||
        (size_bytes = ftell(file)) <= 0) {
        fprintf(stderr, "usage: loader STORE FILE (not empty)\n");
        return 2;
    }
    rewind(file);

    must(gmsfs_open(argv[1], &store), argv[1]);
    must(gmsfs_connect(store, GMSFS_MODE_RW, 10000), "RW lock");
    must(gmsfs_clear_all_handles(store), "clear");
    must(gmsfs_create_mapping(store, (uint64_t)size_bytes, "weights", NULL, &memory), "allocate");
    must(fread(memory, 1, (size_t)size_bytes, file) == (size_t)size_bytes ? 0 : -EIO, argv[2]);
    fclose(file);
    must(gmsfs_resolve(store, memory, &slot, &offset), "resolve"); /* it may be a piece of a slab */
    must(gmsfs_metadata_put(store, &(struct gmsfs_metadata){.key = "tensor",
                                                            .value = argv[2],
                                                            .value_bytes = strlen(argv[2]),
                                                            .slot = slot,
                                                            .offset = offset}),
         "metadata");
    must(gmsfs_commit(store, 0, NULL), "commit");
    printf("%ld bytes published, generation %llu\n", size_bytes,
           (unsigned long long)gmsfs_generation(store));
    gmsfs_close(store);
    return 0;
}
