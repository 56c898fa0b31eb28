/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_load_several - `gmsfs load --group` of a model to several GPUs at once, against one GPU's
 * load
 *
 *   gpu_load_several GMSFS MODEL STORE STORE...      each STORE on a GPU of its own, emptied at the
 *                                                    end
 *
 * Ours is the time of moving bytes, as the command itself takes it, of MODEL into every STORE at
 * once; it is held against the same of the first STORE alone. What the machine's memory permits is
 * a floor that is measured too: as many bytes as all GPUs get, read from the page cache into
 * buffers by 1 to 64 threads, the best of these. Where that is slower than one GPU's load, it is
 * what the limit is about.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "bench.h"
#include "places.h"

#define READ_BYTES   ((size_t)1 << 20)
#define THREADS_MAX  64
#define THREAD_KINDS 7 /* 1, 2, … 64 */
#define LIMIT        1.1

/* ---- ours ---------------------------------------------------------------------------------- */

/* Of a command that ends with "… X GB/s (…)": as long as these bytes take at that rate. */
static double time_command(const char *command, double bytes)
{
    char line[4096], *found;
    double rate = 0;
    FILE *output = popen(command, "r");

    if (!output)
        bench_die(command, errno);
    while (fgets(line, sizeof line, output)) {
        found = strstr(line, " GB/s");
        while (found && found > line && found[-1] != ' ')
            found--;
        if (found)
            rate = strtod(found, NULL);
    }
    if (pclose(output) != 0 || rate <= 0)
        bench_die("gmsfs load", EIO);
    return bytes / rate / 1e3;
}

static double time_one(const char *gmsfs, const char *model, const char *store, double bytes)
{
    char command[4096];

    snprintf(command, sizeof command, "'%s' load '%s' '%s'", gmsfs, store, model);
    return time_command(command, bytes);
}

static double time_all(const char *gmsfs, const char *model, char **stores, int count, double bytes)
{
    char command[16384];
    size_t length = (size_t)snprintf(command, sizeof command, "'%s' load --group --force", gmsfs);

    for (int i = 0; i < count && length < sizeof command; i++)
        length += (size_t)snprintf(command + length, sizeof command - length, " '%s=%s'", stores[i],
                                   model);
    if (length >= sizeof command)
        bench_die("the command", E2BIG);
    return time_command(command, bytes * count);
}

/* ---- the memory's floor -------------------------------------------------------------------- */

struct reading {
    int fd;
    size_t bytes; /* of the model */
    int times;    /* that it is read */
    atomic_size_t next;
};

static void *read_some(void *context)
{
    struct reading *reading = context;
    size_t pieces = (reading->bytes + READ_BYTES - 1) / READ_BYTES, piece;
    char *to = malloc(READ_BYTES);

    if (!to)
        bench_die("buffer", ENOMEM);
    while ((piece = atomic_fetch_add(&reading->next, 1)) < pieces * (size_t)reading->times)
        if (pread(reading->fd, to, READ_BYTES, (off_t)(piece % pieces * READ_BYTES)) <= 0)
            bench_die("read", errno);
    free(to);
    return NULL;
}

static double time_read(struct reading *reading, int threads)
{
    pthread_t ids[THREADS_MAX];
    double start_us = bench_now_us();

    atomic_store(&reading->next, 0);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, read_some, reading) != 0)
            bench_die("thread", EAGAIN);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    return bench_now_us() - start_us;
}

static double settle_memory(double rounds_us[THREAD_KINDS][BENCH_ROUNDS])
{
    double best_us = bench_median(rounds_us[0]);

    for (int i = 1; i < THREAD_KINDS; i++) {
        double median = bench_median(rounds_us[i]);
        best_us = median < best_us ? median : best_us;
    }
    return best_us;
}

/* ---- the rows ------------------------------------------------------------------------------ */

static void print_rows(int count, size_t bytes, double all_us, double one_us, double memory_us)
{
    double floor_us = memory_us > one_us ? memory_us : one_us;
    char what[96];

    fprintf(stderr, "bench: %d GPUs %.1f ms, one %.1f ms, so many bytes read %.1f ms\n", count,
            all_us / 1e3, one_us / 1e3, memory_us / 1e3);
    snprintf(what, sizeof what, "load %.1f GB to %d GPUs at once / %s", (double)bytes / 1e9, count,
             memory_us > one_us ? "the memory's reads" : "to one");
    bench_row(what, all_us, floor_us, LIMIT, BENCH_AT_MOST);
}

int main(int argc, char **argv)
{
    static double memory_us[THREAD_KINDS][BENCH_ROUNDS];
    double one_us[BENCH_ROUNDS], all_us[BENCH_ROUNDS];
    struct reading reading = {.times = argc - 3};
    char **stores = argv + 3;
    struct stat status;

    if (argc < 5) {
        fputs("usage: gpu_load_several GMSFS MODEL STORE STORE...\n", stderr);
        return 2;
    }
    reading.fd = bench_call(argv[2], open(argv[2], O_RDONLY | O_CLOEXEC));
    bench_call(argv[2], fstat(reading.fd, &status));
    reading.bytes = (size_t)status.st_size;
    time_all(argv[1], argv[2], stores, argc - 3, (double)reading.bytes); /* all was used once */
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        one_us[round] = time_one(argv[1], argv[2], stores[0], (double)reading.bytes);
        all_us[round] = time_all(argv[1], argv[2], stores, argc - 3, (double)reading.bytes);
        for (int i = 0; i < THREAD_KINDS; i++)
            memory_us[i][round] = time_read(&reading, 1 << i);
    }
    print_rows(argc - 3, reading.bytes, bench_median(all_us), bench_median(one_us),
               settle_memory(memory_us));
    for (int i = 0; i < argc - 3; i++)
        places_fill(stores[i], 0, 0);
    return 0;
}
