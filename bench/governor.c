/* SPDX-License-Identifier: Apache-2.0 */
/*
 * governor - from a request for a model that is not on the device to the order that brings it there
 *
 *   governor GMSFS MOUNT DIRECTORY
 *
 * MOUNT has the store `model`, with a layout, and memory beside the device; DIRECTORY is for the
 * engine's metrics. A governor runs all the time. Each request comes at another moment of
 * its rounds, so the longest of them have waited for a whole one. The floor is an interval and the
 * same order by hand, through a shell as the governor gives it.
 */
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "bench.h"

#define INTERVAL_MS 200
#define BOUND_MS    50 /* beyond the interval */
#define REQUESTS    20
#define WAIT_MS     10000
#define US_PER_MS   1000.0

static char conf[4096], metrics[4096], fresh[4100], residency[4096], by_hand[8192];

/* ---- the engine ------------------------------------------------------------------------------ */

static void put(const char *path, const char *text)
{
    int fd = bench_call(path, open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));

    bench_call(path, (int)write(fd, text, strlen(text)));
    close(fd);
}

/* Never seen half-written. */
static void ask(int requests)
{
    char text[128];

    snprintf(text, sizeof text, "vllm:num_requests_waiting{} %d\nvllm:num_requests_running{} 0\n",
             requests);
    put(fresh, text);
    bench_call("rename", rename(fresh, metrics));
}

/* ---- the store ------------------------------------------------------------------------------- */

/* Until its place begins with a word, or, is_order, it is on its way there. */
static void wait_for(const char *place, int is_order)
{
    int fd = bench_call(residency, open(residency, O_RDONLY | O_CLOEXEC));
    char text[256], moving[64];

    snprintf(moving, sizeof moving, "\nmoving %s", place);
    for (;;) {
        struct pollfd change = {.fd = fd, .events = POLLPRI};
        ssize_t got = bench_call(residency, (int)pread(fd, text, sizeof text - 1, 0));

        text[got] = '\0';
        if (strncmp(text, place, strlen(place)) == 0 || (is_order && strstr(text, moving)))
            break;
        if (bench_call("poll", poll(&change, 1, WAIT_MS)) == 0)
            bench_die("the store does not move", ETIMEDOUT);
    }
    close(fd);
}

static void send_away(void)
{
    wait_for("device", 0);
    put(residency, "host");
    wait_for("host", 0);
}

/* ---- the measured request -------------------------------------------------------------------- */

static void pause_us(double us)
{
    const struct timespec pause = {.tv_sec = (time_t)(us / 1e6),
                                   .tv_nsec = (long)(us - (double)(time_t)(us / 1e6) * 1e6) * 1000};

    nanosleep(&pause, NULL);
}

/* Leaves the model without requests for two rounds and the given part of a third; in the first one
 * the governor sees that. */
static double time_request(int turn)
{
    double begin_us;

    pause_us(INTERVAL_MS * US_PER_MS);
    send_away();
    pause_us((1 + (double)turn / REQUESTS) * INTERVAL_MS * US_PER_MS);
    begin_us = bench_now_us();
    ask(3);
    wait_for("device", 1);
    begin_us = bench_now_us() - begin_us;
    ask(0);
    return begin_us;
}

static double time_by_hand(void)
{
    double begin_us, took_us;
    pid_t pid;

    send_away();
    begin_us = bench_now_us();
    pid = bench_call("fork", fork());
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", by_hand, (char *)NULL);
        bench_die("/bin/sh", errno);
    }
    wait_for("device", 1);
    took_us = bench_now_us() - begin_us;
    bench_call("wait", waitpid(pid, NULL, 0));
    return took_us;
}

static pid_t start_governor(const char *gmsfs, const char *mount)
{
    pid_t pid = bench_call("fork", fork());

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(bench_call("/dev/null", open("/dev/null", O_WRONLY)), STDOUT_FILENO);
    execl(gmsfs, gmsfs, "governor", "-c", conf, mount, (char *)NULL);
    bench_die(gmsfs, errno);
}

int main(int argc, char **argv)
{
    double hand_us[BENCH_ROUNDS], worst_us = 0, floor_us;
    char text[8400], label[128];
    pid_t governor;

    if (argc != 4) {
        fputs("usage: governor GMSFS MOUNT DIRECTORY\n", stderr);
        return 2;
    }
    snprintf(conf, sizeof conf, "%s/conf", argv[3]);
    snprintf(metrics, sizeof metrics, "%s/metrics", argv[3]);
    snprintf(fresh, sizeof fresh, "%s.new", metrics);
    snprintf(residency, sizeof residency, "%s/model/residency", argv[2]);
    snprintf(by_hand, sizeof by_hand, "'%s' promote -q '%s/model'", argv[1], argv[2]);
    snprintf(text, sizeof text,
             "interval %dms; cooldown 0\nmodel model store=model metrics='cat %s'\n", INTERVAL_MS,
             metrics);
    put(conf, text);
    ask(0);
    for (int i = 0; i < BENCH_ROUNDS; i++)
        hand_us[i] = time_by_hand();
    governor = start_governor(argv[1], argv[2]);
    for (int i = 0; i < REQUESTS; i++) {
        double us = time_request(i);

        worst_us = us > worst_us ? us : worst_us;
    }
    kill(governor, SIGTERM);
    bench_call("wait", waitpid(governor, NULL, 0));
    floor_us = INTERVAL_MS * US_PER_MS + bench_median(hand_us);
    snprintf(label, sizeof label, "request to promote order, longest of %d / round and order",
             REQUESTS);
    bench_row(label, worst_us, floor_us, (INTERVAL_MS + BOUND_MS) * US_PER_MS / floor_us,
              BENCH_AT_MOST);
    return 0;
}
