/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench - shared by the programs of `make bench`: a clock, medians, and a row of the table
 *
 * Each program measures ours and the floor in turn, BENCH_ROUNDS times, and prints rows; bench/run
 * prints the head of the table and counts the missed limits.
 */
#ifndef GMSFS_BENCH_H
#define GMSFS_BENCH_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define BENCH_ROUNDS      5
#define BENCH_ROUNDS_MOST 25 /* for times of a few milliseconds, which are easily disturbed */
#define BENCH_UNUSED      __attribute__((unused))

enum bench_sense {
    BENCH_AT_MOST,
    BENCH_AT_LEAST
};

BENCH_UNUSED static _Noreturn void bench_die(const char *label, int error)
{
    fprintf(stderr, "bench: %s: %s\n", label, strerror(error < 0 ? -error : error));
    exit(2);
}

/* Returns a result of a system call that is not negative; ends the program by errno otherwise. */
BENCH_UNUSED static int bench_call(const char *label, int result)
{
    if (result < 0)
        bench_die(label, errno);
    return result;
}

BENCH_UNUSED static void bench_check(const char *label, int result)
{
    if (result < 0)
        bench_die(label, result);
}

/* Puts this process and its later children on processor 0, where bench/run has put the daemons: on
 * which processors the kernel lets two processes take turns makes more of a difference than all
 * that they do. */
BENCH_UNUSED static void bench_share_cpu(void)
{
    cpu_set_t first = {0};

    CPU_SET(0, &first);
    bench_call("affinity", sched_setaffinity(0, sizeof first, &first));
}

BENCH_UNUSED static double bench_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int bench_compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

/* count: BENCH_ROUNDS_MOST at most. */
BENCH_UNUSED static double bench_median_of(const double *rounds, int count)
{
    double sorted[BENCH_ROUNDS_MOST];

    memcpy(sorted, rounds, (size_t)count * sizeof *rounds);
    qsort(sorted, (size_t)count, sizeof *sorted, bench_compare);
    return sorted[count / 2];
}

BENCH_UNUSED static double bench_median(const double rounds[BENCH_ROUNDS])
{
    return bench_median_of(rounds, BENCH_ROUNDS);
}

BENCH_UNUSED static void bench_time_text(char *text, size_t bytes, double us)
{
    if (us >= 1e6)
        snprintf(text, bytes, "%.2f s", us / 1e6);
    else if (us >= 1e3)
        snprintf(text, bytes, "%.2f ms", us / 1e3);
    else
        snprintf(text, bytes, "%.1f us", us);
}

BENCH_UNUSED static void bench_print(const char *label, const char *ours, const char *floor,
                                     const char *value, const char *limit, int ok)
{
    printf("%-58s %10s %10s %8s %8s  %s\n", label, ours, floor, value, limit, ok ? "ok" : "MISSED");
    fflush(stdout);
}

/* Prints a row with the ratio that the limit applies to: of times (at most), or of speeds (at
 * least). */
BENCH_UNUSED static void bench_row(const char *label, double ours_us, double floor_us, double limit,
                                   enum bench_sense sense)
{
    double ratio = sense == BENCH_AT_MOST ? ours_us / floor_us : floor_us / ours_us;
    char ours[32], floor[32], value[32], bound[32];

    bench_time_text(ours, sizeof ours, ours_us);
    bench_time_text(floor, sizeof floor, floor_us);
    snprintf(value, sizeof value, "%.2f", ratio);
    snprintf(bound, sizeof bound, "%s %.4g", sense == BENCH_AT_MOST ? "<=" : ">=", limit);
    bench_print(label, ours, floor, value, bound,
                sense == BENCH_AT_MOST ? ratio <= limit : ratio >= limit);
}

/* Prints a ratio of speeds without a limit. */
BENCH_UNUSED static void bench_row_told(const char *label, double ours_us, double floor_us)
{
    char ours[32], floor[32], value[32];

    bench_time_text(ours, sizeof ours, ours_us);
    bench_time_text(floor, sizeof floor, floor_us);
    snprintf(value, sizeof value, "%.2f", floor_us / ours_us);
    bench_print(label, ours, floor, value, "-", 1);
}

/* Prints a row with a limit on the time itself. */
BENCH_UNUSED static void bench_row_within(const char *label, double ours_us, double limit_us)
{
    char ours[32], bound[32];

    bench_time_text(ours, sizeof ours, ours_us);
    snprintf(bound, sizeof bound, "<= %.4g ms", limit_us / 1e3);
    bench_print(label, ours, "-", "-", bound, ours_us <= limit_us);
}

/* Raises the limit of open files: senders and floors hold thousands of descriptors. */
BENCH_UNUSED static void bench_raise_descriptors(void)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

BENCH_UNUSED static uint64_t bench_number(const char *text)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);

    if (end == text || *end)
        bench_die(text, EINVAL);
    return number;
}

#endif
