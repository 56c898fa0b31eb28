/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach - map a whole layout with libgmsfs, against the same in C without gmsfs
 *
 *   attach STORE FLOOR_FILE COUNT BYTES
 *
 * STORE has COUNT allocations of BYTES. The floor: an empty ioctl on FLOOR_FILE, then COUNT memfds
 * of a server process over a socket, 253 a message, each mapped and closed. Ours is a fresh handle
 * that holds the lock; finding and reaching `.fds` is part of it.
 */
#include <gmsfs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "descriptors.h"

static _Noreturn void serve(int peer, size_t count, uint64_t bytes)
{
    int *fds = calloc(count, sizeof *fds);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!fds)
        bench_die("serve", ENOMEM);
    for (size_t i = 0; i < count; i++) {
        fds[i] = bench_call("memfd_create", memfd_create("floor", MFD_CLOEXEC));
        bench_call("ftruncate", ftruncate(fds[i], (off_t)bytes));
    }
    descriptors_serve(peer, fds, count);
}

static double attach_floor(int file, int server, void **maps, size_t count, uint64_t bytes)
{
    struct gmsfs_ioc_export request = {0};
    int fds[GMSFS_BATCH_MAX];
    double start_us = bench_now_us(), took_us;

    bench_call("ioctl", ioctl(file, GMSFS_IOC_EXPORT, &request));
    bench_call("request", (int)write(server, "", 1));
    for (size_t done = 0; done < count;) {
        size_t got = descriptors_receive(server, fds);
        for (size_t i = 0; i < got; i++) {
            maps[done] = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fds[i], 0);
            if (maps[done++] == MAP_FAILED)
                bench_die("mmap", errno);
            close(fds[i]);
        }
    }
    took_us = bench_now_us() - start_us;
    for (size_t i = 0; i < count; i++)
        munmap(maps[i], bytes);
    return took_us;
}

static double attach_ours(const char *path, size_t count)
{
    double start_us, took_us;
    size_t mapped;
    gmsfs_t *store;

    bench_check(path, gmsfs_open(path, &store));
    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RO, 5000));
    start_us = bench_now_us();
    bench_check("attach", gmsfs_attach_all(store, GMSFS_ACCESS_READ, NULL, &mapped));
    took_us = bench_now_us() - start_us;
    if (mapped != count)
        bench_die("attach: another number of allocations", EPROTO);
    gmsfs_close(store);
    return took_us;
}

int main(int argc, char **argv)
{
    double ours_us[BENCH_ROUNDS], floor_us[BENCH_ROUNDS];
    int pair[2], file;
    size_t count;
    uint64_t bytes;
    void **maps;
    char label[96];

    if (argc != 5) {
        fputs("usage: attach STORE FLOOR_FILE COUNT BYTES\n", stderr);
        return 2;
    }
    count = bench_number(argv[3]);
    bytes = bench_number(argv[4]);
    maps = calloc(count, sizeof *maps);
    bench_raise_descriptors();
    bench_call("socketpair", socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
    if (!maps)
        bench_die("attach", ENOMEM);
    if (bench_call("fork", fork()) == 0) {
        close(pair[1]);
        serve(pair[0], count, bytes);
    }
    close(pair[0]);
    file = bench_call(argv[2], open(argv[2], O_RDWR | O_CLOEXEC));
    attach_floor(file, pair[1], maps, count, bytes); /* the server is ready, all code was run */
    attach_ours(argv[1], count);
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        floor_us[round] = attach_floor(file, pair[1], maps, count, bytes);
        ours_us[round] = attach_ours(argv[1], count);
    }
    snprintf(label, sizeof label, "attach %zu x %llu KiB / ioctl+descriptors+mmap", count,
             (unsigned long long)bytes >> 10);
    bench_row(label, bench_median(ours_us), bench_median(floor_us), 1.2, BENCH_AT_MOST);
    close(pair[1]);
    wait(NULL);
    free(maps);
    return 0;
}
