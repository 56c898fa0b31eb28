/* SPDX-License-Identifier: Apache-2.0 */
/*
 * beside - the time to read one store's `state` during large requests to another store
 *
 *   beside MOUNT METADATA_MIB ALLOCATIONS BYTES
 *
 * A child commits METADATA_MIB of metadata, and removes that store and one of ALLOCATIONS;
 * meanwhile this process reads. The floor is the same read on an idle mount.
 */
#include <gmsfs.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "bench.h"

#define VALUE_BYTES (64u << 10)
#define MAX_READS   (1u << 20)
#define QUIET_US    2e6

enum phase {
    PHASE_NONE,
    PHASE_COMMIT,
    PHASE_REMOVE,
    PHASE_OVER,
    PHASE_COUNT
};

struct reads {
    double *us;
    size_t count;
};

static _Atomic int *phase; /* shared with the child */

static double read_state(const char *path)
{
    double start_us = bench_now_us();
    char text[64];
    int fd = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));

    bench_call(path, (int)read(fd, text, sizeof text));
    close(fd);
    return bench_now_us() - start_us;
}

static void add_read(struct reads *reads, double us)
{
    if (reads->count < MAX_READS)
        reads->us[reads->count++] = us;
}

static double percentile(struct reads *reads, double part)
{
    if (reads->count == 0)
        bench_die("no read in this phase", ENODATA);
    qsort(reads->us, reads->count, sizeof *reads->us, bench_compare);
    return reads->us[(size_t)((double)(reads->count - 1) * part)];
}

static gmsfs_t *make_store(const char *mount, const char *name)
{
    char path[4096];
    gmsfs_t *store;

    snprintf(path, sizeof path, "%s/%s", mount, name);
    bench_call(path, mkdir(path, 0755));
    bench_check(path, gmsfs_open(path, &store));
    bench_check(path, gmsfs_connect(store, GMSFS_MODE_RW, 60000));
    return store;
}

static void commit_metadata(const char *mount, size_t mib)
{
    size_t count = (mib << 20) / VALUE_BYTES;
    struct gmsfs_metadata *entries = calloc(count, sizeof *entries);
    char *keys = malloc(count * 32), *value = calloc(1, VALUE_BYTES);
    gmsfs_t *store = make_store(mount, "metadata");

    if (!entries || !keys || !value)
        bench_die("entries", ENOMEM);
    for (size_t i = 0; i < count; i++) {
        snprintf(keys + i * 32, 32, "state.%08zu", i);
        entries[i] = (struct gmsfs_metadata){.key = keys + i * 32,
                                             .value = value,
                                             .value_bytes = VALUE_BYTES,
                                             .slot = GMSFS_SLOT_NONE};
    }
    bench_check("metadata", gmsfs_metadata_put_many(store, entries, count, NULL));
    free(entries);
    free(keys);
    free(value);
    atomic_store(phase, PHASE_COMMIT);
    bench_check("commit", gmsfs_commit(store, 0, NULL));
    atomic_store(phase, PHASE_NONE);
    gmsfs_close(store);
}

static uint64_t used_bytes(const char *mount)
{
    static const char name[] = "\"used_bytes\":";
    char path[4096], text[4096];
    const char *found;
    ssize_t bytes;
    int fd;

    snprintf(path, sizeof path, "%s/device", mount);
    fd = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));
    bytes = read(fd, text, sizeof text - 1);
    close(fd);
    text[bytes > 0 ? bytes : 0] = '\0';
    found = strstr(text, name);
    if (!found)
        bench_die(path, EINVAL);
    return strtoull(found + sizeof name - 1, NULL, 10);
}

static void remove_stores(const char *mount, uint32_t allocations, uint64_t bytes)
{
    gmsfs_t *store = make_store(mount, "removed");
    char path[4096];
    uint64_t first;

    bench_check("allocate",
                gmsfs_allocate_handles(store, allocations, bytes, "weights", NULL, 0, &first));
    bench_check("commit", gmsfs_commit(store, 0, NULL));
    gmsfs_close(store);
    atomic_store(phase, PHASE_REMOVE);
    snprintf(path, sizeof path, "%s/metadata", mount);
    bench_call(path, rmdir(path));
    snprintf(path, sizeof path, "%s/removed", mount);
    bench_call(path, rmdir(path));
    while (used_bytes(mount) > 0) /* it is given back after the answer */
        usleep(5000);
    atomic_store(phase, PHASE_NONE);
}

static void be_loud(char **argv)
{
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        commit_metadata(argv[1], bench_number(argv[2]));
        remove_stores(argv[1], (uint32_t)bench_number(argv[3]), bench_number(argv[4]));
    }
    atomic_store(phase, PHASE_OVER);
    _exit(0);
}

static void print_row(const char *label, struct reads *loud, double quiet_us)
{
    double us = percentile(loud, 0.99);
    char ours[32], floor[32], ratio[32];

    bench_time_text(ours, sizeof ours, us);
    bench_time_text(floor, sizeof floor, quiet_us);
    snprintf(ratio, sizeof ratio, "%.2f", us / quiet_us);
    bench_print(label, ours, floor, ratio, "<= 3", us <= 3 * quiet_us);
    bench_time_text(ours, sizeof ours, percentile(loud, 1.0));
    fprintf(stderr, "bench: %s: %zu reads, the slowest %s\n", label, loud->count, ours);
}

int main(int argc, char **argv)
{
    struct reads reads[PHASE_COUNT] = {0}, quiet = {0};
    char path[4096], label[128];
    int now, status;
    double until_us;

    if (argc != 5) {
        fputs("usage: beside MOUNT METADATA_MIB ALLOCATIONS BYTES\n", stderr);
        return 2;
    }
    snprintf(path, sizeof path, "%s/quiet/state", argv[1]);
    phase = mmap(NULL, sizeof *phase, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    quiet.us = malloc(MAX_READS * sizeof(double));
    for (int i = 0; i < PHASE_COUNT; i++)
        reads[i].us = malloc(MAX_READS * sizeof(double));
    if (phase == MAP_FAILED || !quiet.us || !reads[PHASE_COMMIT].us || !reads[PHASE_REMOVE].us)
        bench_die("memory", ENOMEM);
    until_us = bench_now_us() + QUIET_US;
    while (bench_now_us() < until_us)
        add_read(&quiet, read_state(path));
    if (bench_call("fork", fork()) == 0)
        be_loud(argv);
    while ((now = atomic_load(phase)) != PHASE_OVER) {
        double us = read_state(path);
        if (now == PHASE_COMMIT || now == PHASE_REMOVE)
            add_read(&reads[now], us);
        if (now == PHASE_NONE && waitpid(-1, &status, WNOHANG) > 0)
            return 2; /* the child said why */
    }
    bench_call("wait", (int)wait(&status));
    until_us = percentile(&quiet, 0.99);
    snprintf(label, sizeof label, "read of `state`, p99, beside a commit of %s MiB", argv[2]);
    print_row(label, &reads[PHASE_COMMIT], until_us);
    snprintf(label, sizeof label, "read of `state`, p99, beside rmdir of that, and %s pieces",
             argv[3]);
    print_row(label, &reads[PHASE_REMOVE], until_us);
    return 0;
}
