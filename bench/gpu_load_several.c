/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_load_several - `gmsfs load --group` of a model to several GPUs at once, against one GPU's
 * load
 *
 *   gpu_load_several GMSFS MODEL STORE STORE...      STORE i is on GPU i; all are emptied at the
 * end
 *
 * Ours is the time of moving bytes, as the command itself takes it, of MODEL into every STORE at
 * once; it is compared with the time for the first STORE alone: where the GPUs reach each other,
 * the files are read once, and copy engines pass the bytes on. Printed beside the table is the time
 * that the machine needs to fill all from the host, by a process for each GPU, all at once: bare
 * copies of as many bytes from pinned memory, bare reads of them from the page cache into pinned
 * memory, by the best number of threads, and rings that do both, by bare calls and in their best
 * shape.
 */
#include "command.h"
#include "gpu_ring.h"
#include "places.h"

#define LIMIT 1.15

/* ---- ours ---------------------------------------------------------------------------------- */

static double time_one(const char *gmsfs, const char *model, const char *store, double bytes)
{
    char command[4096];

    snprintf(command, sizeof command, "'%s' load '%s' '%s'", gmsfs, store, model);
    return command_time_us(command, bytes);
}

/* options: of the command, beside those. */
static double time_all(const char *gmsfs, const char *options, const char *model, char **stores,
                       int count, double bytes)
{
    char command[16384];
    size_t length =
        (size_t)snprintf(command, sizeof command, "'%s' load --group --force %s", gmsfs, options);

    for (int i = 0; i < count && length < sizeof command; i++)
        length += (size_t)snprintf(command + length, sizeof command - length, " '%s=%s'", stores[i],
                                   model);
    if (length >= sizeof command)
        bench_die("the command", E2BIG);
    return command_time_us(command, bytes * count);
}

/* Prints the load's times by the number of threads, without a limit. */
static void look_at_threads(const char *gmsfs, const char *model, char **stores, int count,
                            double bytes)
{
    static const int threads[] = {8, 16};

    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        char options[32];
        snprintf(options, sizeof options, "--threads %d", threads[i]);
        fprintf(stderr, "bench: ours to %d GPUs with %d threads each: %.1f ms\n", count, threads[i],
                time_all(gmsfs, options, model, stores, count, bytes) / 1e3);
    }
}

/* ---- the floor ----------------------------------------------------------------------------- */

struct floor {
    double copy_one_us[BENCH_ROUNDS], copy_all_us[BENCH_ROUNDS], read_all_us[BENCH_ROUNDS];
    double ring_all_us[BENCH_ROUNDS];
    unsigned read_threads;
    struct gpu_ring_way all; /* the best ring */
};

static void measure_floor(struct floor *floor, struct gpu_ring *rings, int count, int round)
{
    floor->copy_one_us[round] = gpu_ring_time_copies(rings, 1);
    floor->copy_all_us[round] = gpu_ring_time_copies(rings, count);
    floor->read_all_us[round] = gpu_ring_time_reads(rings, count, &floor->read_threads);
    floor->ring_all_us[round] = gpu_ring_time(rings, count, floor->all);
}

static void print_floor(const struct floor *floor, int count)
{
    fprintf(stderr, "bench: bare pinned copies: to one %.1f ms, to %d at once %.1f\n",
            bench_median(floor->copy_one_us) / 1e3, count, bench_median(floor->copy_all_us) / 1e3);
    fprintf(stderr, "bench: bare reads for %d at once, %u threads each: %.1f ms\n", count,
            floor->read_threads, bench_median(floor->read_all_us) / 1e3);
    gpu_ring_tell("the best bare ring", count, &floor->all, bench_median(floor->ring_all_us));
}

/* ---- the rows ------------------------------------------------------------------------------ */

static void print_rows(const struct floor *floor, int count, size_t bytes, const double *all_us,
                       const double *one_us)
{
    double one = bench_median(one_us), all = bench_median(all_us);
    char label[96];

    fprintf(stderr, "bench: ours to %d GPUs at once %.1f ms, to one %.1f\n", count, all / 1e3,
            one / 1e3);
    print_floor(floor, count);
    snprintf(label, sizeof label, "load --group of one model, %.1f GB, to %d GPUs / to one",
             (double)bytes / 1e9, count);
    bench_row(label, all, one, LIMIT, BENCH_AT_MOST);
}

int main(int argc, char **argv)
{
    static struct floor floor;
    struct gpu_ring rings[GPU_RING_GPUS_MAX];
    double one_us[BENCH_ROUNDS], all_us[BENCH_ROUNDS], bytes, best_us;
    char **stores = argv + 3;
    int count = argc - 3;

    if (count < 2 || count > GPU_RING_GPUS_MAX) {
        fputs("usage: gpu_load_several GMSFS MODEL STORE STORE...\n", stderr);
        return 2;
    }
    for (int i = 0; i < count; i++)
        gpu_ring_start(&rings[i], i, argv[2]);
    bytes = (double)rings[0].bytes;
    time_all(argv[1], "", argv[2], stores, count, bytes); /* all was used once */
    look_at_threads(argv[1], argv[2], stores, count, bytes);
    gpu_ring_time_copies(rings, count);
    floor.all = gpu_ring_choose(rings, count, &best_us);
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        one_us[round] = time_one(argv[1], argv[2], stores[0], bytes);
        all_us[round] = time_all(argv[1], "", argv[2], stores, count, bytes);
        measure_floor(&floor, rings, count, round);
    }
    for (int i = 0; i < count; i++)
        gpu_ring_end(&rings[i]);
    print_rows(&floor, count, rings[0].bytes, all_us, one_us);
    for (int i = 0; i < count; i++)
        places_fill(stores[i], 0, 0);
    return 0;
}
