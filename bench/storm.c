/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm - how long looks and a free lock take beside many requests of another user
 *
 *   storm MOUNT CGROUP
 *
 * MOUNT has the stores `mine`, and `theirs`, which everybody may write. A child that is another
 * user asks with as many threads as there are requests outstanding; it is in the control group
 * CGROUP, which holds it to half of one processor, so that the scheduler is not measured.
 * The floor is the same without the storm. Needs root.
 */
#include <gmsfs_abi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "bench.h"

#define STORM_UID   65534
#define MEASURE_US  3e6
#define SETTLE_US   1500000u
#define MAX_SAMPLES (1u << 16)
#define PAUSE_US    1000u
#define STACK_BYTES 65536u
#define LEAST_US    2000.0 /* p99 may be so much, however quick it is alone */

static const char *mount;

/* ---- the storm --------------------------------------------------------------------------- */

static void *ask_locks(void *argument)
{
    char path[4096];

    (void)argument;
    snprintf(path, sizeof path, "%s/theirs/ctl", mount);
    int ctl = bench_call(path, open(path, O_RDWR | O_CLOEXEC));
    for (;;) {
        struct gmsfs_ioc_acquire wanted = {.mode = GMSFS_MODE_RW};
        ioctl(ctl, GMSFS_IOC_ACQUIRE, &wanted); /* in vain: another handle has it */
    }
    return NULL;
}

static void *open_texts(void *argument)
{
    char path[4096], text[64];

    (void)argument;
    snprintf(path, sizeof path, "%s/device", mount);
    for (;;) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && read(fd, text, sizeof text) >= 0)
            close(fd);
    }
    return NULL;
}

static const struct {
    const char *name;
    void *(*run)(void *argument);
    unsigned threads;
} STORMS[] = {
    {"600 requests for locks", ask_locks, 600},
    {"1,900 opens of `device`", open_texts, 1900},
};

static void hold_their_lock(void)
{
    struct gmsfs_ioc_acquire wanted = {.mode = GMSFS_MODE_RW, .timeout_ms = 5000};
    char path[4096];

    snprintf(path, sizeof path, "%s/theirs/ctl", mount);
    int ctl = bench_call(path, open(path, O_RDWR | O_CLOEXEC));
    bench_call("acquire", ioctl(ctl, GMSFS_IOC_ACQUIRE, &wanted));
}

static _Noreturn void be_a_storm(size_t which)
{
    pthread_attr_t attributes;
    pthread_t thread;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench_call("setuid", setresuid(STORM_UID, STORM_UID, STORM_UID));
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* setuid has made it forget */
    hold_their_lock();
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (unsigned i = 0; i < STORMS[which].threads; i++)
        bench_check("thread", -pthread_create(&thread, &attributes, STORMS[which].run, NULL));
    for (;;)
        pause();
}

/* Else half of the time no processor is left to the others. */
static void stay_on_one_processor(void)
{
    cpu_set_t usable, one;
    int first = 0;

    bench_call("affinity", sched_getaffinity(0, sizeof usable, &usable));
    while (!CPU_ISSET(first, &usable))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    bench_call("affinity", sched_setaffinity(0, sizeof one, &one));
}

/* In the group before it is another user. */
static pid_t begin_storm(size_t which, const char *group)
{
    char path[4096], pid[32];

    pid_t child = bench_call("fork", fork());
    if (child != 0)
        return child;
    snprintf(path, sizeof path, "%s/cgroup.procs", group);
    int size = snprintf(pid, sizeof pid, "%d", getpid());
    int fd = bench_call(path, open(path, O_WRONLY | O_CLOEXEC));
    bench_call(path, (int)write(fd, pid, (size_t)size));
    close(fd);
    stay_on_one_processor();
    be_a_storm(which);
}

/* ---- the measured requests --------------------------------------------------------------- */

static void look(void)
{
    char path[4096], text[64];

    snprintf(path, sizeof path, "%s/mine/state", mount);
    int fd = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));
    bench_call(path, (int)read(fd, text, sizeof text));
    close(fd);
}

static void lock(void)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/mine/lock", mount);
    close(bench_call(path, open(path, O_RDWR | O_CLOEXEC)));
}

static const struct {
    const char *name;
    void (*run)(void);
} PROBES[] = {{"read of `state`", look}, {"a free lock", lock}};

enum {
    PROBE_COUNT = sizeof PROBES / sizeof PROBES[0],
};

static double measure(void (*run)(void))
{
    static double samples[MAX_SAMPLES];
    double until_us = bench_now_us() + MEASURE_US;
    size_t count = 0;

    while (bench_now_us() < until_us && count < MAX_SAMPLES) {
        double start_us = bench_now_us();
        run();
        samples[count++] = bench_now_us() - start_us;
        usleep(PAUSE_US);
    }
    qsort(samples, count, sizeof *samples, bench_compare);
    return samples[(size_t)((double)(count - 1) * 0.99)];
}

static void print_row(const char *probe, const char *storm, double us, double quiet_us)
{
    char label[128], ours[32], floor[32], ratio[32], limit[32];
    double bound_us = 5 * quiet_us > LEAST_US ? 5 * quiet_us : LEAST_US;

    snprintf(label, sizeof label, "%s, p99, beside %s", probe, storm);
    bench_time_text(ours, sizeof ours, us);
    bench_time_text(floor, sizeof floor, quiet_us);
    snprintf(ratio, sizeof ratio, "%.2f", us / quiet_us);
    bench_time_text(limit, sizeof limit, bound_us);
    bench_print(label, ours, floor, ratio, limit, us <= bound_us);
}

int main(int argc, char **argv)
{
    double quiet_us[PROBE_COUNT];

    if (argc != 3) {
        fputs("usage: storm MOUNT CGROUP\n", stderr);
        return 2;
    }
    mount = argv[1];
    for (size_t i = 0; i < PROBE_COUNT; i++)
        quiet_us[i] = measure(PROBES[i].run);
    for (size_t which = 0; which < sizeof STORMS / sizeof STORMS[0]; which++) {
        pid_t child = begin_storm(which, argv[2]);
        usleep(SETTLE_US);
        for (size_t i = 0; i < PROBE_COUNT; i++)
            print_row(PROBES[i].name, STORMS[which].name, measure(PROBES[i].run), quiet_us[i]);
        kill(child, SIGKILL);
        bench_call("wait", waitpid(child, NULL, 0));
    }
    return 0;
}
