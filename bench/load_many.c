/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_many - `gmsfs load` of very many small tensors, against the necessary steps
 *
 *   load_many GMSFS MOUNT MODEL COUNT      MODEL is written: COUNT tensors of 4 KiB
 *
 * Ours is the command from start to exit. The floor, in one thread and after one another: reading
 * the file into memory, parsing its header, and putting as many entries into another store. The
 * header is parsed as `gmsfs load` does it; the time of jansson for it is printed beside the table.
 */
#include <inttypes.h>
#include <jansson.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/failure.h"
#include "entries.h"
#include "model/open.h"

#define TENSOR_BYTES     4096u
#define ALLOCATIONS      64
#define ALLOCATION_BYTES (2u << 20)
#define HEADER_ROOM      160u /* of one tensor */
#define LIMIT            1.5

static void write_model(const char *path, size_t count)
{
    static const char zeros[TENSOR_BYTES];
    size_t room = count * HEADER_ROOM + 64, length = 0;
    char *header = malloc(room);
    FILE *file = fopen(path, "we");
    uint64_t header_bytes;

    if (!header || !file)
        bench_die(path, header ? errno : ENOMEM);
    for (size_t i = 0; i < count; i++)
        length += (size_t)snprintf(header + length, room - length,
                                   "%c\"layers.%06zu.weight\":{\"dtype\":\"F32\",\"shape\":[1024],"
                                   "\"data_offsets\":[%zu,%zu]}",
                                   i ? ',' : '{', i, i * TENSOR_BYTES, (i + 1) * TENSOR_BYTES);
    header[length++] = '}';
    while (length % 8)
        header[length++] = ' ';
    header_bytes = length;
    fwrite(&header_bytes, sizeof header_bytes, 1, file);
    fwrite(header, 1, length, file);
    for (size_t i = 0; i < count; i++)
        fwrite(zeros, 1, sizeof zeros, file);
    if (ferror(file) || fclose(file))
        bench_die(path, errno);
    free(header);
}

static double time_ours(const char *gmsfs, const char *store, const char *model)
{
    double start_us = bench_now_us();
    int status = 0;
    pid_t child = bench_call("fork", fork());

    if (child == 0) {
        execl(gmsfs, "gmsfs", "load", "-q", store, model, (char *)NULL);
        _exit(127);
    }
    bench_call("wait", waitpid(child, &status, 0));
    if (status)
        bench_die("gmsfs load failed", EIO);
    return bench_now_us() - start_us;
}

static void read_all(const char *path)
{
    int fd = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));
    size_t done = 0, bytes;
    struct stat status;
    ssize_t got;
    char *data;

    bench_call(path, fstat(fd, &status));
    bytes = (size_t)status.st_size;
    data = malloc(bytes);
    if (!data)
        bench_die(path, ENOMEM);
    while (done < bytes && (got = read(fd, data + done, bytes - done)) > 0)
        done += (size_t)got;
    if (done < bytes)
        bench_die(path, errno);
    free(data);
    close(fd);
}

/* The header alone, by a parser that is not ours. */
static double time_jansson(const char *path, size_t count)
{
    int fd = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));
    double start_us = bench_now_us(), took_us;
    uint64_t bytes;
    char *text;
    json_t *header;

    if (pread(fd, &bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        bench_die(path, ENODATA);
    text = malloc(bytes);
    if (!text || pread(fd, text, bytes, sizeof bytes) != (ssize_t)bytes)
        bench_die(path, ENODATA);
    header = json_loadb(text, bytes, 0, NULL);
    took_us = bench_now_us() - start_us;
    if (json_object_size(header) != count)
        bench_die("the header has another number of tensors", EPROTO);
    json_decref(header);
    free(text);
    close(fd);
    return took_us;
}

/* parse_us: the header's part of the time, in microseconds. */
static double time_floor(const char *path, gmsfs_t *store, size_t count, double *parse_us)
{
    struct gmsfs_metadata *entries;
    struct source *source = source_open();
    struct failure failure;
    struct model *model;
    double start_us, parse_start_us, took_us;
    uint64_t first;

    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RW, 5000));
    bench_check("clear", gmsfs_clear_all_handles(store));
    bench_check("allocate", gmsfs_allocate_handles(store, ALLOCATIONS, ALLOCATION_BYTES, "weights",
                                                   NULL, 0, &first));
    entries = entries_make(count, first, ALLOCATIONS);
    start_us = bench_now_us();
    read_all(path);
    parse_start_us = bench_now_us();
    if (!source || model_open(source, &path, 1, &model, &failure) != 0)
        bench_die(failure.text, EINVAL);
    *parse_us = bench_now_us() - parse_start_us;
    bench_check("put", gmsfs_metadata_put_many(store, entries, count, NULL));
    took_us = bench_now_us() - start_us;
    if (model->tensor_count != count)
        bench_die("the model has another number of tensors", EPROTO);
    safetensors_close(model);
    source_close(source);
    entries_free(entries, count);
    bench_check("abort", gmsfs_abort(store, NULL));
    return took_us;
}

int main(int argc, char **argv)
{
    double ours_us[BENCH_ROUNDS], floor_us[BENCH_ROUNDS];
    double parse_us[BENCH_ROUNDS], jansson_us[BENCH_ROUNDS];
    char path[4096], label[96];
    gmsfs_t *store;
    size_t count;

    if (argc != 5) {
        fputs("usage: load_many GMSFS MOUNT MODEL COUNT\n", stderr);
        return 2;
    }
    count = bench_number(argv[4]);
    write_model(argv[3], count);
    snprintf(path, sizeof path, "%s/floor", argv[2]);
    bench_call(path, mkdir(path, 0755));
    bench_check(path, gmsfs_open(path, &store));
    snprintf(path, sizeof path, "%s/many", argv[2]);
    time_ours(argv[1], path, argv[3]);
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        ours_us[round] = time_ours(argv[1], path, argv[3]);
        floor_us[round] = time_floor(argv[3], store, count, &parse_us[round]);
        jansson_us[round] = time_jansson(argv[3], count);
    }
    fprintf(stderr, "bench: the header: ours %.1f ms, jansson %.1f\n", bench_median(parse_us) / 1e3,
            bench_median(jansson_us) / 1e3);
    snprintf(label, sizeof label, "load %zu tensors of 4 KiB / read, parse, put", count);
    bench_row(label, bench_median(ours_us), bench_median(floor_us), LIMIT, BENCH_AT_MOST);
    gmsfs_close(store);
    bench_call(path, rmdir(path));
    snprintf(path, sizeof path, "%s/floor", argv[2]);
    bench_call(path, rmdir(path));
    return 0;
}
