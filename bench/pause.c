/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pause - a client's wait when the worker is killed, against the least possible time
 *
 *   pause KEEPER STORE LABEL
 *
 * The time from the kill until a read of `state`, begun at the kill, is answered. The floor is the
 * sum of the necessary steps, done bare on the same state: a process with as many descriptors (two
 * for each piece of memory: for writers and for readers) ends and its parent is told, a new child
 * inherits the descriptors, and the journal is replayed. Needs root: it looks into the keeper's
 * files.
 */
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>

#include "bench.h"
#include "daemon/replay.h"
#include "worker.h"

#define KILLS        100
#define MAX_PIECES   8192
#define GRANULARITY  65536u
#define BETWEEN_US   50000u /* the client that is measured is no recovery's second one */
#define MEDIAN_LIMIT 3.0
#define WORST_LIMIT  10.0

static struct {
    int pieces[2 * MAX_PIECES]; /* each has a descriptor for writers and one for readers */
    size_t count;
    struct journal_files journal;
} kept = {.journal = {-1, {-1, -1}, {-1, -1}}};

/* ---- the keeper's descriptors -------------------------------------------------------------- */

static int compare_numbers(const void *left, const void *right)
{
    return *(const int *)left - *(const int *)right;
}

static void take_file(const char *path, const char *name)
{
    int *into = NULL;

    if (strncmp(name, "/memfd:gmsfs", 12) == 0 && kept.count < 2 * MAX_PIECES)
        into = &kept.pieces[kept.count++];
    else if (strncmp(name, "/memfd:journal-transactions", 27) == 0)
        into = &kept.journal.transactions[kept.journal.transactions[0] >= 0];
    else if (strncmp(name, "/memfd:journal-snapshot", 23) == 0)
        into = &kept.journal.snapshots[kept.journal.snapshots[0] >= 0];
    else if (strncmp(name, "/memfd:journal", 14) == 0)
        into = &kept.journal.head;
    if (into)
        *into = bench_call(path, open(path, O_RDWR | O_CLOEXEC));
}

/* In the order of their numbers, as the keeper has made them. */
static void open_files_of(pid_t keeper)
{
    static int numbers[4 * MAX_PIECES];
    size_t count = 0;
    char path[64], name[256];
    struct dirent *entry;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)keeper);
    DIR *stream = opendir(path);
    if (!stream)
        bench_die(path, errno);
    while ((entry = readdir(stream)) && count < sizeof numbers / sizeof numbers[0])
        if (entry->d_name[0] != '.')
            numbers[count++] = atoi(entry->d_name);
    closedir(stream);
    qsort(numbers, count, sizeof numbers[0], compare_numbers);
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)keeper, numbers[i]);
        ssize_t got = readlink(path, name, sizeof name - 1);
        name[got > 0 ? got : 0] = '\0';
        take_file(path, name);
    }
}

/* ---- the floor ----------------------------------------------------------------------------- */

/* A child, which has all descriptors by that, and says so when it runs. */
static pid_t start_holder(int *told)
{
    int ends[2];

    bench_call("pipe2", pipe2(ends, O_CLOEXEC));
    pid_t child = bench_call("fork", fork());
    if (child == 0) {
        bench_call("write", (int)write(ends[1], "", 1));
        for (;;)
            pause();
    }
    close(ends[1]);
    *told = ends[0];
    return child;
}

static void wait_for_holder(int told)
{
    char byte;

    if (read(told, &byte, 1) != 1)
        bench_die("a child of the floor has ended", EPIPE);
    close(told);
}

static double time_end_and_begin(void)
{
    int told;
    pid_t child = start_holder(&told);

    wait_for_holder(told);
    double start_us = bench_now_us();
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    child = start_holder(&told);
    wait_for_holder(told);
    double took_us = bench_now_us() - start_us;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return took_us;
}

static double time_replay(void)
{
    struct journal *journal;
    struct core *core;
    struct failure failure;

    double start_us = bench_now_us();
    bench_check("journal_open", journal_open(&kept.journal, &journal, &failure));
    if (replay_journal(journal, &core, &failure)) {
        fprintf(stderr, "bench: %s\n", failure.text);
        exit(2);
    }
    double took_us = bench_now_us() - start_us;
    core_free(core);
    journal_close(journal);
    return took_us;
}

/* ---- ours ---------------------------------------------------------------------------------- */

static double time_pause(pid_t keeper, const char *path)
{
    char text[64];
    pid_t worker = worker_of(keeper);
    int fd = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));

    double start_us = bench_now_us();
    kill(worker, SIGKILL);
    bench_call("read", (int)pread(fd, text, sizeof text, 0));
    double took_us = bench_now_us() - start_us;
    close(fd);
    return took_us;
}

static double median_of(double times_us[KILLS])
{
    qsort(times_us, KILLS, sizeof *times_us, bench_compare);
    return times_us[KILLS / 2];
}

int main(int argc, char **argv)
{
    double ends_us[KILLS], replays_us[KILLS], pauses_us[KILLS];
    char path[4096], label[128];

    if (argc != 4) {
        fputs("usage: pause KEEPER STORE LABEL\n", stderr);
        return 2;
    }
    pid_t keeper = (pid_t)bench_number(argv[1]);
    snprintf(path, sizeof path, "%s/state", argv[2]);
    bench_raise_descriptors();
    open_files_of(keeper);
    for (int i = 0; i < KILLS; i++) {
        ends_us[i] = time_end_and_begin();
        replays_us[i] = time_replay();
        pauses_us[i] = time_pause(keeper, path);
        usleep(BETWEEN_US);
    }
    double end_us = median_of(ends_us), replay_us = median_of(replays_us);
    double floor_us = end_us + replay_us;
    fprintf(stderr, "bench: of the floor: end and beginning %.2f ms, replay %.2f ms\n",
            end_us / 1e3, replay_us / 1e3);
    snprintf(label, sizeof label, "pause by a kill, %s: median of %d", argv[3], KILLS);
    bench_row(label, median_of(pauses_us), floor_us, MEDIAN_LIMIT, BENCH_AT_MOST);
    snprintf(label, sizeof label, "pause by a kill, %s: worst of %d", argv[3], KILLS);
    bench_row(label, pauses_us[KILLS - 1], floor_us, WORST_LIMIT, BENCH_AT_MOST);
    return 0;
}
