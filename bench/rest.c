/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rest - the cost of an idle daemon: wakeups in 10 s, private memory
 *
 *   rest KEEPER LABEL
 *
 * Measures the keeper and its worker: voluntary context switches of each thread, and the Private_*
 * lines of smaps_rollup.
 */
#include <dirent.h>

#include "bench.h"

#define SETTLE_S         3
#define WATCH_S          10
#define LIMIT_PRIVATE_KB 8192
#define MOST_THREADS     256

/* Returns the sum of the lines that begin with `key`. */
static uint64_t sum_lines(FILE *file, const char *key)
{
    char line[256];
    uint64_t sum = 0;

    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) == 0)
            sum += strtoull(strchr(line, ':') + 1, NULL, 10);
    }
    return sum;
}

struct thread {
    uint64_t id, wakeups;
};

struct threads {
    struct thread list[MOST_THREADS];
    size_t count;
};

/* Appends the threads of a process; one that ends meanwhile is left out. */
static void read_threads(uint64_t pid, struct threads *threads)
{
    char path[320];
    struct dirent *entry;

    snprintf(path, sizeof path, "/proc/%llu/task", (unsigned long long)pid);
    DIR *tasks = opendir(path);
    if (!tasks)
        bench_die(path, errno);
    while ((entry = readdir(tasks))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%llu/task/%s/status", (unsigned long long)pid,
                 entry->d_name);
        FILE *file = fopen(path, "re");
        if (!file)
            continue;
        if (threads->count == MOST_THREADS)
            bench_die("threads", E2BIG);
        threads->list[threads->count++] = (struct thread){
            .id = bench_number(entry->d_name),
            .wakeups = sum_lines(file, "voluntary_ctxt_switches:"),
        };
        fclose(file);
    }
    closedir(tasks);
}

static const struct thread *find_thread(const struct threads *threads, uint64_t id)
{
    for (size_t i = 0; i < threads->count; i++) {
        if (threads->list[i].id == id)
            return &threads->list[i];
    }
    return NULL;
}

/* Counts the wake-ups between two looks, thread by thread. A thread that began or ended meanwhile
 * counts as one at least. */
static uint64_t count_wakeups(const struct threads *before, const struct threads *after)
{
    uint64_t count = 0;

    for (size_t i = 0; i < after->count; i++) {
        const struct thread *now = &after->list[i], *then = find_thread(before, now->id);
        count += then ? now->wakeups - then->wakeups : now->wakeups + 1;
    }
    for (size_t i = 0; i < before->count; i++)
        count += !find_thread(after, before->list[i].id);
    return count;
}

static uint64_t count_private_kb(uint64_t pid)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%llu/smaps_rollup", (unsigned long long)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        bench_die(path, errno);
    uint64_t sum = sum_lines(file, "Private_");
    fclose(file);
    return sum;
}

static uint64_t find_worker(uint64_t keeper)
{
    unsigned long long worker = 0;
    char path[96];

    snprintf(path, sizeof path, "/proc/%llu/task/%llu/children", (unsigned long long)keeper,
             (unsigned long long)keeper);
    FILE *file = fopen(path, "re");
    if (!file || fscanf(file, "%llu", &worker) != 1)
        bench_die("the keeper has no worker", ESRCH);
    fclose(file);
    return worker;
}

int main(int argc, char **argv)
{
    static struct threads before, after;
    uint64_t keeper, worker, wakeups, private_kb;
    char label[128], value[32], limit[32];

    if (argc != 3) {
        fputs("usage: rest KEEPER LABEL\n", stderr);
        return 2;
    }
    keeper = bench_number(argv[1]);
    worker = find_worker(keeper);
    sleep(SETTLE_S);
    read_threads(keeper, &before);
    read_threads(worker, &before);
    sleep(WATCH_S);
    read_threads(keeper, &after);
    read_threads(worker, &after);
    wakeups = count_wakeups(&before, &after);
    private_kb = count_private_kb(keeper) + count_private_kb(worker);
    fprintf(stderr, "bench: private memory: keeper %llu KiB, worker %llu KiB\n",
            (unsigned long long)count_private_kb(keeper),
            (unsigned long long)count_private_kb(worker));
    snprintf(label, sizeof label, "at rest, %s: wakeups in %d s", argv[2], WATCH_S);
    snprintf(value, sizeof value, "%llu", (unsigned long long)wakeups);
    bench_print(label, value, "-", value, "0", wakeups == 0);
    snprintf(label, sizeof label, "at rest, %s: private memory", argv[2]);
    snprintf(value, sizeof value, "%.1f MiB", (double)private_kb / 1024);
    snprintf(limit, sizeof limit, "<= %d", LIMIT_PRIVATE_KB / 1024);
    bench_print(label, value, "-", "-", limit, private_kb <= LIMIT_PRIVATE_KB);
    return 0;
}
