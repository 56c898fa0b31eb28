/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rest - the cost of an idle daemon: wakeups in 10 s, private memory
 *
 *   rest KEEPER LABEL
 *
 * Measures the keeper and its worker: voluntary context switches of all threads, and the Private_*
 * lines of smaps_rollup.
 */
#include <dirent.h>

#include "bench.h"

#define SETTLE_S         3
#define WATCH_S          10
#define LIMIT_PRIVATE_KB 8192

/* Returns the sum of the lines of a file of /proc that begin with `key`. */
static uint64_t sum_lines(const char *path, const char *key)
{
    FILE *file = fopen(path, "re");
    char line[256];
    uint64_t sum = 0;

    if (!file)
        bench_die(path, errno);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) == 0)
            sum += strtoull(strchr(line, ':') + 1, NULL, 10);
    }
    fclose(file);
    return sum;
}

static uint64_t count_wakeups(uint64_t pid)
{
    char path[320];
    struct dirent *entry;
    uint64_t sum = 0;

    snprintf(path, sizeof path, "/proc/%llu/task", (unsigned long long)pid);
    DIR *tasks = opendir(path);
    while (tasks && (entry = readdir(tasks))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%llu/task/%s/status", (unsigned long long)pid,
                 entry->d_name);
        sum += sum_lines(path, "voluntary_ctxt_switches:");
    }
    if (tasks)
        closedir(tasks);
    return sum;
}

static uint64_t count_private_kb(uint64_t pid)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%llu/smaps_rollup", (unsigned long long)pid);
    return sum_lines(path, "Private_");
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
    uint64_t keeper, worker, wakeups, private_kb;
    char label[128], value[32], limit[32];

    if (argc != 3) {
        fputs("usage: rest KEEPER LABEL\n", stderr);
        return 2;
    }
    keeper = bench_number(argv[1]);
    worker = find_worker(keeper);
    sleep(SETTLE_S);
    wakeups = count_wakeups(keeper) + count_wakeups(worker);
    sleep(WATCH_S);
    wakeups = count_wakeups(keeper) + count_wakeups(worker) - wakeups;
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
