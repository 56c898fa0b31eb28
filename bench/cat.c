/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cat - cat(1) of an allocation against cat(1) of as many bytes of a file system that has them in
 * its memory
 *
 *   cat FILE FLOOR LABEL
 */
#include <sys/stat.h>
#include <sys/wait.h>

#include "bench.h"

#define LIMIT 0.7

static double time_cat(const char *path)
{
    double start = bench_now_us();
    pid_t pid = bench_call("fork", fork());
    int status;

    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);

        if (null >= 0 && dup2(null, STDOUT_FILENO) >= 0)
            execlp("cat", "cat", path, (char *)NULL);
        _exit(127);
    }
    bench_call("waitpid", waitpid(pid, &status, 0));
    if (status) {
        fprintf(stderr, "bench: cat %s failed\n", path);
        exit(2);
    }
    return bench_now_us() - start;
}

static off_t get_size(const char *path)
{
    struct stat stat_of;

    bench_call(path, stat(path, &stat_of));
    return stat_of.st_size;
}

int main(int argc, char **argv)
{
    double ours[BENCH_ROUNDS], bare[BENCH_ROUNDS];

    if (argc != 4) {
        fputs("usage: cat FILE FLOOR LABEL\n", stderr);
        return 2;
    }
    if (get_size(argv[1]) != get_size(argv[2])) {
        fprintf(stderr, "bench: %s and %s are not of one size\n", argv[1], argv[2]);
        return 2;
    }
    time_cat(argv[1]); /* once outside of the clock: a process may have to start for it */
    time_cat(argv[2]);
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        ours[i] = time_cat(argv[1]);
        bare[i] = time_cat(argv[2]);
    }
    bench_row(argv[3], bench_median(ours), bench_median(bare), LIMIT, BENCH_AT_LEAST);
    return 0;
}
