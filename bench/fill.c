/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fill - commit a layout of ALLOCATIONS pieces of BYTES and ENTRIES metadata entries
 *
 *   fill STORE ALLOCATIONS BYTES ENTRIES
 */
#include "entries.h"

int main(int argc, char **argv)
{
    struct gmsfs_metadata *entries;
    uint64_t first, count;
    gmsfs_t *store;

    if (argc != 5) {
        fputs("usage: fill STORE ALLOCATIONS BYTES ENTRIES\n", stderr);
        return 2;
    }
    count = bench_number(argv[4]);
    bench_check(argv[1], gmsfs_open(argv[1], &store));
    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RW, 5000));
    bench_check("allocate",
                gmsfs_allocate_handles(store, (uint32_t)bench_number(argv[2]),
                                       bench_number(argv[3]), "weights", NULL, 0, &first));
    entries = entries_make(count, first, bench_number(argv[2]));
    bench_check("metadata", gmsfs_metadata_put_many(store, entries, count, NULL));
    entries_free(entries, count);
    bench_check("commit", gmsfs_commit(store, 0, NULL));
    gmsfs_close(store);
    return 0;
}
