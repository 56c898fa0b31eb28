/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metadata - put and read the metadata of a store as a whole, against the same msgpack in a file
 *
 *   metadata STORE FILE ENTRIES      FILE, on tmpfs, is written
 *
 * The floor reads the file into memory and decodes it with msgpack-c. The time of one pass of
 * our own reader into an array of entries is printed beside the table.
 */
#include <msgpack.h>
#include <sys/stat.h>

#include "entries.h"
#include "pack/unpack.h"

#define ALLOCATIONS      64
#define ALLOCATION_BYTES (2u << 20)

static uint8_t *read_file(const char *path, size_t room, size_t *bytes)
{
    int fd = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));
    uint8_t *data = malloc(room);
    ssize_t got;

    if (!data)
        bench_die(path, ENOMEM);
    *bytes = 0;
    while ((got = read(fd, data + *bytes, room - *bytes)) > 0)
        *bytes += (size_t)got;
    if (got < 0)
        bench_die(path, errno);
    close(fd);
    return data;
}

static void copy_layout(const char *store, const char *to)
{
    char path[4096];
    uint8_t *data;
    size_t bytes;
    FILE *file = fopen(to, "we");

    snprintf(path, sizeof path, "%s/layout", store);
    data = read_file(path, (size_t)256 << 20, &bytes);
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file))
        bench_die(to, errno);
    free(data);
}

/* {"v", "allocations": [[size, aligned, tag]...], "metadata": [[key, rank, offset, value]...]} */
static size_t decode(const uint8_t *data, size_t bytes, struct gmsfs_layout_entry **out)
{
    struct unpack unpack = {.at = data, .end = data + bytes};
    struct gmsfs_layout_entry *entries;
    uint64_t number;
    uint32_t count;
    const char *text;
    const uint8_t *value;
    size_t text_bytes;
    int bad = unpack_map(&unpack, &count) | unpack_str(&unpack, &text, &text_bytes) |
              unpack_uint(&unpack, &number) | unpack_str(&unpack, &text, &text_bytes) |
              unpack_array(&unpack, &count);

    for (uint32_t left = bad ? 0 : count; left; left--)
        bad |= unpack_array(&unpack, &count) | unpack_uint(&unpack, &number) |
               unpack_uint(&unpack, &number) | unpack_str(&unpack, &text, &text_bytes);
    bad |= unpack_str(&unpack, &text, &text_bytes) | unpack_array(&unpack, &count);
    entries = bad ? NULL : calloc(count + 1, sizeof *entries);
    if (!entries)
        bench_die("the file is no layout", EPROTO);
    for (uint32_t i = 0; i < count; i++) {
        struct gmsfs_layout_entry *entry = entries + i;
        uint32_t fields;
        bad |= unpack_array(&unpack, &fields) | unpack_str(&unpack, &entry->key, &entry->key_bytes);
        if (!unpack_nil(&unpack))
            bad |= unpack_uint(&unpack, &entry->rank);
        bad |=
            unpack_uint(&unpack, &entry->offset) | unpack_bin(&unpack, &value, &entry->value_bytes);
        entry->value = value;
    }
    if (bad)
        bench_die("the file is no layout", EPROTO);
    *out = entries;
    return count;
}

static size_t decode_by_library(const uint8_t *data, size_t bytes)
{
    msgpack_unpacked document;
    size_t offset = 0, count = 0;

    msgpack_unpacked_init(&document);
    if (msgpack_unpack_next(&document, (const char *)data, bytes, &offset) ==
        MSGPACK_UNPACK_SUCCESS)
        count = document.data.via.map.ptr[2].val.via.array.size;
    msgpack_unpacked_destroy(&document);
    return count;
}

static double time_floor(const char *path, size_t expected, int by_library)
{
    struct gmsfs_layout_entry *entries = NULL;
    double start_us = bench_now_us(), took_us;
    struct stat status;
    uint8_t *data;
    size_t bytes, count;

    bench_call(path, stat(path, &status));
    data = read_file(path, (size_t)status.st_size + 1, &bytes);
    count = by_library ? decode_by_library(data, bytes) : decode(data, bytes, &entries);
    took_us = bench_now_us() - start_us;
    if (count != expected)
        bench_die("the file has other entries", EPROTO);
    free(entries);
    free(data);
    return took_us;
}

static double time_put(gmsfs_t *store, size_t count)
{
    struct gmsfs_metadata *entries;
    double start_us, took_us;
    uint64_t first;

    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RW, 5000));
    bench_check("clear", gmsfs_clear_all_handles(store));
    bench_check("allocate", gmsfs_allocate_handles(store, ALLOCATIONS, ALLOCATION_BYTES, "weights",
                                                   NULL, 0, &first));
    entries = entries_make(count, first, ALLOCATIONS);
    start_us = bench_now_us();
    bench_check("put", gmsfs_metadata_put_many(store, entries, count, NULL));
    took_us = bench_now_us() - start_us;
    entries_free(entries, count);
    bench_check("commit", gmsfs_commit(store, 0, NULL));
    return took_us;
}

static double time_read(gmsfs_t *store, size_t expected)
{
    struct gmsfs_layout *layout;
    double start_us = bench_now_us(), took_us;

    bench_check("read layout", gmsfs_read_layout(store, &layout));
    took_us = bench_now_us() - start_us;
    if (layout->entry_count != expected)
        bench_die("the layout has other entries", EPROTO);
    gmsfs_free_layout(layout);
    return took_us;
}

int main(int argc, char **argv)
{
    double put_us[BENCH_ROUNDS], read_us[BENCH_ROUNDS], floor_us[BENCH_ROUNDS];
    double library_us[BENCH_ROUNDS];
    char label[96];
    gmsfs_t *store;
    size_t count;

    if (argc != 4) {
        fputs("usage: metadata STORE FILE ENTRIES\n", stderr);
        return 2;
    }
    count = bench_number(argv[3]);
    bench_check(argv[1], gmsfs_open(argv[1], &store));
    time_put(store, count);
    copy_layout(argv[1], argv[2]);
    time_floor(argv[2], count, 0);
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        put_us[round] = time_put(store, count);
        floor_us[round] = time_floor(argv[2], count, 0);
        library_us[round] = time_floor(argv[2], count, 1);
        read_us[round] = time_read(store, count);
    }
    fprintf(stderr, "bench: the file in one pass of our own reader: %.2f ms\n",
            bench_median(floor_us) / 1e3);
    snprintf(label, sizeof label, "read %zu entries / msgpack-c, a file on tmpfs", count);
    bench_row(label, bench_median(read_us), bench_median(library_us), 1.5, BENCH_AT_MOST);
    snprintf(label, sizeof label, "put %zu entries in bulk / the same", count);
    bench_row(label, bench_median(put_us), bench_median(library_us), 4, BENCH_AT_MOST);
    gmsfs_close(store);
    return 0;
}
