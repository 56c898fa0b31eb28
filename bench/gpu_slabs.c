/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_slabs - many small tensors in GPU memory as an engine makes them: pieces of slabs
 *
 *   gpu_slabs STORE FLOOR_FILE COUNT BYTES
 *
 * A writer makes COUNT mappings of BYTES with gmsfs_create_mapping, an entry for each, and commits;
 * the library chooses how large each slab is. Ours is timed until a reader has the address of every
 * mapping: the lock, all slabs mapped, the metadata read, every entry looked up; then waking. The
 * floor is the bare calls (gpu.h) for as many slabs of their mean size and 1 us for each mapping.
 */
#include <gmsfs.h>

#include "gpu.h"

#define GRANULE_BYTES (UINT64_C(2) << 20)

static void name_of(char key[64], size_t number)
{
    snprintf(key, 64, "model.layers.%zu.mlp.experts.%zu.weight", number / 64, number % 64);
}

/* The device memory under the mappings. */
struct slabs {
    size_t count;
    uint64_t bytes; /* of all of them */
};

static struct slabs fill(const char *path, size_t count, uint64_t bytes)
{
    struct gmsfs_info info;
    gmsfs_t *store;

    bench_check(path, gmsfs_open(path, &store));
    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RW, 5000));
    bench_check("clear", gmsfs_clear_all_handles(store));
    for (size_t i = 0; i < count; i++) {
        struct gmsfs_metadata entry = {.value = "{}", .value_bytes = 2};
        char key[64];
        void *at;
        name_of(key, i);
        entry.key = key;
        bench_check("create_mapping",
                    gmsfs_create_mapping(store, bytes, "weights", &entry.slot, &at));
        bench_check("resolve", gmsfs_resolve(store, at, NULL, &entry.offset));
        bench_check("put", gmsfs_metadata_put(store, &entry));
    }
    bench_check("commit", gmsfs_commit(store, GMSFS_COMMIT_STAY, NULL));
    bench_check("get_info", gmsfs_get_info(store, &info));
    gmsfs_close(store);
    return (struct slabs){.count = info.allocations, .bytes = info.total_bytes};
}

/* In a process of its own: the floor's server is forked from this one, and the driver does not
 * survive a fork. */
static struct slabs fill_apart(const char *path, size_t count, uint64_t bytes)
{
    struct slabs slabs;
    int ends[2];

    bench_call("pipe", pipe(ends));
    if (bench_call("fork", fork()) == 0) {
        slabs = fill(path, count, bytes);
        _exit(write(ends[1], &slabs, sizeof slabs) == (ssize_t)sizeof slabs ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], &slabs, sizeof slabs) != (ssize_t)sizeof slabs || slabs.count == 0)
        bench_die("the store was not filled", EPROTO);
    close(ends[0]);
    wait(NULL);
    return slabs;
}

/* The address of every entry, as an engine needs them. */
static void find_all(gmsfs_t *store, const struct gmsfs_mapping *maps, size_t slabs, size_t count)
{
    struct gmsfs_layout *layout;
    uintptr_t sum = 0;

    bench_check("layout", gmsfs_read_layout(store, &layout));
    if (layout->entry_count != count)
        bench_die("another number of entries", EPROTO);
    for (size_t i = 0; i < count; i++) {
        const struct gmsfs_layout_entry *entry = &layout->entries[i];
        if (entry->rank >= slabs)
            bench_die("an entry outside of the slabs", EPROTO);
        sum += (uintptr_t)maps[entry->rank].ptr + entry->offset;
    }
    if (!sum)
        bench_die("no addresses", EPROTO);
    gmsfs_free_layout(layout);
}

static void our_round(const char *path, size_t slabs, size_t count, struct gpu_rounds *rounds,
                      int round)
{
    struct gmsfs_mapping *maps;
    gmsfs_t *store;
    double start_us;
    size_t mapped;

    bench_check(path, gmsfs_open(path, &store));
    start_us = bench_now_us();
    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RO, 5000));
    bench_check("attach", gmsfs_attach_all(store, GMSFS_ACCESS_READ, &maps, &mapped));
    find_all(store, maps, slabs, count);
    rounds->attach_us[round] = bench_now_us() - start_us;
    if (mapped != slabs)
        bench_die("attach: another number of slabs", EPROTO);
    free(maps);
    bench_check("unmap_all_vas", gmsfs_unmap_all_vas(store, 0));
    start_us = bench_now_us();
    bench_check("remap_all_vas", gmsfs_remap_all_vas(store, 5000, 0));
    rounds->wake_us[round] = bench_now_us() - start_us;
    gmsfs_close(store);
}

static void row(const char *label, size_t count, size_t slabs, const double ours_us[BENCH_ROUNDS],
                const double floor_us[BENCH_ROUNDS])
{
    char text[96];

    snprintf(text, sizeof text, "%s %zu mappings / %zu slabs bare + 1 us each", label, count,
             slabs);
    bench_row(text, bench_median(ours_us), bench_median(floor_us) * 1.3 + (double)count, 1.0,
              BENCH_AT_MOST);
}

int main(int argc, char **argv)
{
    struct gpu_rounds ours, bare, unused;
    struct gpu_floor floor;
    struct slabs slabs;
    uint64_t slab_bytes;
    struct gpu gpu;
    size_t count;

    if (argc != 5) {
        fputs("usage: gpu_slabs STORE FLOOR_FILE COUNT BYTES\n", stderr);
        return 2;
    }
    count = bench_number(argv[3]);
    slabs = fill_apart(argv[1], count, bench_number(argv[4]));
    slab_bytes = (slabs.bytes / slabs.count + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES;
    gpu_floor_start(&floor, argv[2], slabs.count, slab_bytes);
    gpu_open(&gpu);
    gpu_enter_context(&gpu);

    gpu_floor_round(&gpu, &floor, &unused, 0);
    our_round(argv[1], slabs.count, count, &unused, 0);
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        gpu_floor_round(&gpu, &floor, &bare, round);
        our_round(argv[1], slabs.count, count, &ours, round);
    }
    row("attach", count, slabs.count, ours.attach_us, bare.attach_us);
    row("wake", count, slabs.count, ours.wake_us, bare.wake_us);
    gpu_floor_end(&floor);
    return 0;
}
