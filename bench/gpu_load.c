/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_load - `gmsfs load` of a file in the page cache to a GPU, against the machine's floor
 *
 *   gpu_load GMSFS STORE MODEL OTHERS
 *   gpu_load one STORE MODEL ROUNDS    prints the time of each copy, in microseconds
 *   gpu_load look STORE MODEL ROUNDS   the same, and the calls it made
 *
 * Ours is the time from the first byte read to the last byte on the device, as the command measures
 * it, of two loads of a process. The first goes into untouched memory, and its time includes the
 * pinning of its ring that was not done while the context and the store's memory were made; the
 * second goes into the same memory as the floor's copies. The floor is the slower of two: all bytes
 * read into pinned memory by the best of 4 to 16 threads, and as many bytes copied to the device
 * from pinned memory in one large copy. The times of rings of several shapes by bare calls are
 * printed beside the table, and the best of them in it.
 * OTHERS MODEL is a program that prints "NAME MICROSECONDS" for each loader that it finds, or NAME
 * and a word that says why there is no time.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "bench.h"
#include "cli/load.h"
#include "cli/store_open.h"
#include "gpu.h"
#include "gpu_ring.h"
#include "trace.h"

#define READ_BYTES    ((size_t)4 << 20)
#define COPY_BYTES    ((size_t)1 << 30)
#define THREADS_MAX   16
#define THREADS_LEAST 4 /* fewer are never best where there is a GPU */
#define THREAD_KINDS  3 /* 4, 8, 16 */
#define TEXT_BYTES    256

/* ---- ours ---------------------------------------------------------------------------------- */

static void load_or_die(const char *label, int status)
{
    if (status == CLI_OK)
        return;
    fprintf(stderr, "bench: load: %s failed\n", label);
    exit(2);
}

/* One process that loads again and again into the same memory: its first load pins the ring, and
 * is the first to touch the memory. */
static int load_rounds(const char *store, const char *model, int rounds, int look)
{
    const struct drv *drv;
    struct load load = {.store = store,
                        .files = &model,
                        .file_count = 1,
                        .timeout_ms = CLI_FOREVER,
                        .quiet = true,
                        .staging = staging_new(),
                        .source = source_open()};

    load_or_die("plan", load_plan(&load));
    load_or_die("open", store_open(store, &load.handle) ? CLI_FAILURE : CLI_OK);
    load_or_die("space", load_check_space(&load));
    bench_check("connect", gmsfs_connect(load.handle, GMSFS_MODE_RW, CLI_FOREVER));
    staging_expect(load.staging, load.threads, load.model->tensor_bytes);
    load_or_die("clear", load_clear(&load));
    load_prepare_source(&load, 1);
    bench_check("driver", drv_open(&drv, NULL, 0));
    if (look)
        trace_begin(drv);
    load_or_die("memory", load_map_memory(&load, 1));
    if (look)
        fprintf(stderr, "bench: copying begins after %.0f us\n", bench_now_us() - trace.begun_us);
    for (int i = 0; i < rounds; i++) {
        if (look && i > 0)
            trace_begin(drv);
        load_or_die("copy", load_fill_memory(&load, 1));
        if (look)
            trace_end(i ? "ring pinned" : "its memory, and the first of a process");
        printf("%" PRIu64 "\n", load.copied_us);
    }
    bench_check("abort", gmsfs_abort(load.handle, NULL));
    staging_free(load.staging);
    load_free(&load);
    source_close(load.source);
    return 0;
}

/* In a process of its own. */
static void time_ours(const char *self, const char *store, const char *model, double *first_us,
                      double *next_us)
{
    char command[4096];
    FILE *output;

    snprintf(command, sizeof command, "'%s' one '%s' '%s' 2", self, store, model);
    output = popen(command, "r");
    if (!output || fscanf(output, "%lf %lf", first_us, next_us) != 2 || pclose(output) != 0)
        bench_die("gpu_load one", EIO);
}

static void look_at_ours(const char *self, const char *store, const char *model)
{
    char command[4096];

    snprintf(command, sizeof command, "'%s' look '%s' '%s' 2 >/dev/null", self, store, model);
    if (system(command) != 0)
        bench_die("gpu_load look", EIO);
}

/* Prints the times by the ring's shape. Returns the best one. */
static double look_at_rings(const char *model)
{
    struct gpu_ring ring;
    double best_us;

    gpu_ring_start(&ring, 0, model);
    gpu_ring_time_copies(&ring, 1);
    fprintf(stderr, "bench: bare pinned copies %.1f ms\n", gpu_ring_time_copies(&ring, 1) / 1e3);
    gpu_ring_choose(&ring, 1, &best_us);
    gpu_ring_end(&ring);
    return best_us;
}

static double time_command(const char *gmsfs, const char *store, const char *model)
{
    char command[4096];
    double start_us = bench_now_us();

    snprintf(command, sizeof command, "'%s' load -q '%s' '%s'", gmsfs, store, model);
    if (system(command) != 0)
        bench_die("gmsfs load", EIO);
    return bench_now_us() - start_us;
}

/* ---- the floor ----------------------------------------------------------------------------- */

struct reading {
    int fd;
    size_t bytes;
    char *pinned; /* READ_BYTES for each thread */
    atomic_size_t next;
    atomic_int threads; /* started */
};

static void *read_some(void *context)
{
    struct reading *reading = context;
    char *to = reading->pinned + READ_BYTES * (size_t)atomic_fetch_add(&reading->threads, 1);
    size_t at;

    while ((at = READ_BYTES * atomic_fetch_add(&reading->next, 1)) < reading->bytes) {
        size_t left = reading->bytes - at < READ_BYTES ? reading->bytes - at : READ_BYTES;
        while (left > 0) {
            ssize_t got = pread(reading->fd, to, left, (off_t)at);
            if (got <= 0)
                bench_die("read", errno);
            at += (size_t)got;
            left -= (size_t)got;
        }
    }
    return NULL;
}

static double time_read(struct reading *reading, int threads)
{
    pthread_t ids[THREADS_MAX];
    double start_us = bench_now_us();

    atomic_store(&reading->next, 0);
    atomic_store(&reading->threads, 0);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, read_some, reading) != 0)
            bench_die("thread", EAGAIN);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    return bench_now_us() - start_us;
}

static void *pin(const struct gpu *gpu, size_t bytes)
{
    void *pinned;

    gpu_check(gpu, "cuMemHostAlloc", gpu->drv->cuMemHostAlloc(&pinned, bytes, 0));
    memset(pinned, 1, bytes);
    return pinned;
}

/* As many bytes as `bytes`, at the speed of one large copy. */
static double time_copy(const struct gpu *gpu, drv_pointer to, const void *pinned, size_t bytes)
{
    double start_us = bench_now_us();

    gpu_check(gpu, "cuMemcpyHtoD", gpu->drv->cuMemcpyHtoD_v2(to, pinned, COPY_BYTES));
    return (bench_now_us() - start_us) * ((double)bytes / (double)COPY_BYTES);
}

struct floor {
    double read_us[THREAD_KINDS][BENCH_ROUNDS];
    double copy_us[BENCH_ROUNDS];
};

/* The slower of reading (with as many threads as are best) and copying. */
static double settle_floor(const struct floor *floor)
{
    double read_us = bench_median(floor->read_us[0]), copy_us = bench_median(floor->copy_us);
    int threads = THREADS_LEAST;

    for (int i = 1; i < THREAD_KINDS; i++) {
        double median = bench_median(floor->read_us[i]);
        if (median < read_us) {
            read_us = median;
            threads = THREADS_LEAST << i;
        }
    }
    fprintf(stderr, "bench: into pinned memory with %d threads %.1f ms, to the device %.1f ms\n",
            threads, read_us / 1e3, copy_us / 1e3);
    return read_us > copy_us ? read_us : copy_us;
}

/* ---- the rows ------------------------------------------------------------------------------ */

static void open_model(const char *path, struct reading *reading)
{
    struct stat status;

    reading->fd = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));
    bench_call(path, fstat(reading->fd, &status));
    reading->bytes = (size_t)status.st_size;
}

static void compare_others(const char *program, const char *model, double ours_us)
{
    char command[4096], name[TEXT_BYTES], label[TEXT_BYTES + 64], time[32], *end;
    double theirs_us;
    FILE *output;

    snprintf(command, sizeof command, "'%s' '%s'", program, model);
    output = popen(command, "r");
    if (!output)
        bench_die(program, errno);
    while (fscanf(output, "%255s %31s", name, time) == 2) {
        snprintf(label, sizeof label, "  the first of a process / %s", name);
        theirs_us = strtod(time, &end);
        if (*end)
            printf("%-58s %10s %10s %8s %8s  -\n", label, "-", time, "-", "-");
        else
            bench_row(label, ours_us, theirs_us, 1, BENCH_AT_MOST);
        fflush(stdout);
    }
    pclose(output);
}

static void print_rows(size_t bytes, const double *first_us, const double *next_us,
                       const double *command_us, double floor_us, double ring_us)
{
    char label[TEXT_BYTES];

    snprintf(label, sizeof label, "load %.1f GB, page cache, ring pinned (speed)",
             (double)bytes / 1e9);
    bench_row(label, bench_median(next_us), floor_us, 0.97, BENCH_AT_LEAST);
    bench_row("  the first of a process, pinning included (speed)", bench_median(first_us),
              floor_us, 0.92, BENCH_AT_LEAST);
    bench_row_told("  ring pinned / the best bare ring (speed)", bench_median(next_us), ring_us);
    bench_row_told("  the whole command, cuInit and context included", bench_median(command_us),
                   floor_us);
}

static int compare(char **argv)
{
    double first_us[BENCH_ROUNDS], next_us[BENCH_ROUNDS], command_us[BENCH_ROUNDS], ring_us;
    static struct floor floor;
    struct reading reading = {0};
    drv_pointer to;
    struct gpu gpu;
    void *large;

    open_model(argv[3], &reading);
    time_command(argv[1], argv[2], argv[3]); /* into the page cache */
    ring_us = look_at_rings(argv[3]);
    look_at_ours(argv[0], argv[2], argv[3]);
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        time_ours(argv[0], argv[2], argv[3], &first_us[round], &next_us[round]);
        command_us[round] = time_command(argv[1], argv[2], argv[3]);
    }
    gpu_open(&gpu);
    gpu_enter_context(&gpu);
    reading.pinned = pin(&gpu, THREADS_MAX * READ_BYTES);
    large = pin(&gpu, COPY_BYTES);
    gpu_check(&gpu, "cuMemAlloc", gpu.drv->cuMemAlloc_v2(&to, COPY_BYTES));
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        for (int i = 0; i < THREAD_KINDS; i++)
            floor.read_us[i][round] = time_read(&reading, THREADS_LEAST << i);
        floor.copy_us[round] = time_copy(&gpu, to, large, reading.bytes);
    }
    print_rows(reading.bytes, first_us, next_us, command_us, settle_floor(&floor), ring_us);
    compare_others(argv[4], argv[3], bench_median(first_us));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fputs("usage: gpu_load GMSFS STORE MODEL OTHERS\n", stderr);
        return 2;
    }
    if (strcmp(argv[1], "one") == 0 || strcmp(argv[1], "look") == 0)
        return load_rounds(argv[2], argv[3], (int)bench_number(argv[4]), *argv[1] == 'l');
    return compare(argv);
}
