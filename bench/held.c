/* SPDX-License-Identifier: Apache-2.0 */
/*
 * held - the cost of root's and a user's requests while other users have used up every bound
 *
 *   held GMSFS HOG MOUNT MODEL
 *
 * MOUNT has the stores `mine`, with a layout, and `hogged`, which everybody may write. The floor is
 * the same before the hogs (tests/tools/hog) came. All share one CPU: on two, an idle processor's
 * wake-up may take ten times as long as a request. For root, which gives each hog a user of its
 * own.
 */
#include <gmsfs.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "bench.h"

#define FIRST_HOG_UID 60000
#define USER_UID      59999
#define REPEATS       100
#define LOADS         3

static const char *const kinds[] = {"files",   "directories", "texts",   "sessions",
                                    "regions", "tickets",     "waiters", "connections"};
enum {
    KIND_COUNT = sizeof kinds / sizeof *kinds
};

static const char *gmsfs, *mount, *model;
static char path[4096];

static const char *in_store(const char *name)
{
    snprintf(path, sizeof path, "%s/mine%s%s", mount, *name ? "/" : "", name);
    return path;
}

/* ---- the measured requests ------------------------------------------------------------------- */

static void lock_and_unlock(void)
{
    close(bench_call("lock", open(in_store("lock"), O_RDWR | O_CLOEXEC)));
}

static void attach(void)
{
    gmsfs_t *store;

    bench_check("open", gmsfs_open(in_store(""), &store));
    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RO, 30000));
    bench_check("attach", gmsfs_attach_all(store, GMSFS_ACCESS_READ, NULL, NULL));
    gmsfs_close(store);
}

static void look(void)
{
    char text[65536];
    int fd = bench_call("info", open(in_store("info"), O_RDONLY | O_CLOEXEC));

    bench_call("info", (int)read(fd, text, sizeof text));
    close(fd);
}

static void load(void)
{
    char command[8192];

    snprintf(command, sizeof command, "'%s' load -q '%s' '%s'", gmsfs, in_store(""), model);
    if (system(command) != 0)
        bench_die(command, EIO);
}

static const struct row {
    const char *label;
    void (*once)(void);
    int repeats;
    uid_t uid;
} rows[] = {
    {"lock+unlock, root", lock_and_unlock, REPEATS, 0},
    {"look, root", look, REPEATS, 0},
    {"attach, another user", attach, REPEATS, USER_UID},
    {"look, another user", look, REPEATS, USER_UID},
    {"load, root", load, LOADS, 0},
};
enum {
    ROW_COUNT = sizeof rows / sizeof *rows
};

static double time_row(const struct row *row)
{
    double us[BENCH_ROUNDS];

    row->once();
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        double start_us = bench_now_us();
        for (int i = 0; i < row->repeats; i++)
            row->once();
        us[round] = (bench_now_us() - start_us) / row->repeats;
    }
    return bench_median(us);
}

/* In a process of that user. */
static double measure(const struct row *row)
{
    double us = 0;
    int result[2], status;

    bench_call("pipe", pipe2(result, O_CLOEXEC));
    if (bench_call("fork", fork()) == 0) {
        bench_call("setgid", setresgid(row->uid, row->uid, row->uid));
        bench_call("setuid", setresuid(row->uid, row->uid, row->uid));
        us = time_row(row);
        _exit(write(result[1], &us, sizeof us) == sizeof us ? 0 : 1);
    }
    close(result[1]);
    if (read(result[0], &us, sizeof us) != sizeof us)
        exit(2); /* the child said why */
    close(result[0]);
    bench_call("wait", (int)wait(&status));
    return us;
}

/* ---- the hogs ------------------------------------------------------------------------------- */

static pid_t start_hog(const char *hog, int kind)
{
    uid_t uid = FIRST_HOG_UID + (uid_t)kind;
    char text[128];
    ssize_t bytes;
    int said[2];
    pid_t pid;

    bench_call("pipe", pipe2(said, O_CLOEXEC));
    pid = bench_call("fork", fork());
    if (pid == 0) {
        bench_call("setgid", setresgid(uid, uid, uid));
        bench_call("setuid", setresuid(uid, uid, uid)); /* which forgets the signal */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(said[1], STDOUT_FILENO);
        execl(hog, hog, mount, "hogged", kinds[kind], (char *)NULL);
        bench_die(hog, errno);
    }
    close(said[1]);
    bytes = read(said[0], text, sizeof text - 1);
    text[bytes > 0 ? bytes : 0] = '\0';
    if (strncmp(text, "full ", 5) != 0)
        bench_die(kinds[kind], EINVAL);
    fprintf(stderr, "bench: held %s: %s", kinds[kind], text);
    return pid;
}

int main(int argc, char **argv)
{
    double quiet_us[ROW_COUNT];
    pid_t hogs[KIND_COUNT];
    char label[128];

    if (argc != 5) {
        fputs("usage: held GMSFS HOG MOUNT MODEL\n", stderr);
        return 2;
    }
    gmsfs = argv[1];
    mount = argv[3];
    model = argv[4];
    bench_share_cpu();
    for (int i = 0; i < ROW_COUNT; i++)
        quiet_us[i] = measure(&rows[i]);
    for (int i = 0; i < KIND_COUNT; i++)
        hogs[i] = start_hog(argv[2], i);
    for (int i = 0; i < ROW_COUNT; i++) {
        snprintf(label, sizeof label, "%s: all bounds held / quiet (one CPU)", rows[i].label);
        bench_row(label, measure(&rows[i]), quiet_us[i], 1.2, BENCH_AT_MOST);
    }
    for (int i = 0; i < KIND_COUNT; i++) {
        kill(hogs[i], SIGKILL);
        waitpid(hogs[i], NULL, 0);
    }
    return 0;
}
