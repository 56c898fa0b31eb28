/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmm_fixture - one host device and helpers for its tests
 *
 * For tests/unit/test_vmm*.c only. A test opens the device with open_host (real memory) or
 * open_short_host (a made-up machine with little left) and closes it itself.
 */
#ifndef GMSFS_TESTS_UNIT_VMM_FIXTURE_H
#define GMSFS_TESTS_UNIT_VMM_FIXTURE_H

#include "vmm/headroom.h"
#include "vmm/vmm.h"
#include "vmm/vmm_backend.h"

#include "fake_root.h"
#include "tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define GIB         FAKE_GIB
#define MIB         FAKE_MIB
#define KIB         UINT64_C(1024)
#define ERROR_BYTES 512
#define CYCLES      1000
#define THREADS     8
#define SIZE_SEALS  (F_SEAL_SHRINK | F_SEAL_GROW)

__attribute__((unused)) static char root[FAKE_PATH_BYTES];
__attribute__((unused)) static char error[ERROR_BYTES];
__attribute__((unused)) static struct vmm *vmm;

__attribute__((unused)) static int try_open(struct vmm_options options)
{
    int rc = vmm_open(&options, &vmm, error, sizeof(error));

    if (rc < 0)
        vmm = NULL;
    return rc;
}

__attribute__((unused)) static void open_host(uint64_t size_bytes)
{
    require(try_open((struct vmm_options){.backend = "host", .size_bytes = size_bytes}) == 0);
}

/* Opens real memory and allocates a piece; `seal` as vmm_create takes it. */
__attribute__((unused)) static struct vmm_piece open_host_with(uint64_t size_bytes, uint64_t bytes,
                                                               bool seal)
{
    struct vmm_piece piece;

    open_host(size_bytes);
    require(vmm_create(vmm, bytes, seal, &piece) == 0);
    return piece;
}

__attribute__((unused)) static void close_host(struct vmm_piece *piece)
{
    vmm_destroy(vmm, piece);
    vmm_close(vmm);
}

#define auto_piece __attribute__((unused, cleanup(close_host))) struct vmm_piece

/* A machine of 64 GiB of which `left_bytes` may be committed. meminfo's unit is KiB: one more, for
 * the reserve is none of whole KiB. */
__attribute__((unused)) static void open_short_host(uint64_t left_bytes)
{
    struct vmm_options options = {.backend = "host", .size_bytes = 16 * GIB};

    require(fake_root_make(root));
    require(fake_root_put_meminfo(root, 64 * GIB, headroom_reserve(64 * GIB) + KIB + left_bytes));
    require(vmm_open_under(root, &options, &vmm, error, sizeof(error)) == 0);
}

__attribute__((unused)) static void close_short_host(void)
{
    vmm_close(vmm);
    fake_root_remove(root);
}

__attribute__((unused)) static bool skip(bool wanted, const char *why)
{
    if (wanted)
        fprintf(stderr, "# SKIP %s\n", why);
    return wanted;
}

__attribute__((unused)) static int count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    require(dir != NULL);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

__attribute__((unused)) static mode_t mode_of(int fd)
{
    struct stat st = {0};

    check_int(fstat(fd, &st), 0);
    return st.st_mode & 07777;
}

__attribute__((unused)) static uint64_t size_of(int fd)
{
    struct stat st = {0};

    check_int(fstat(fd, &st), 0);
    return (uint64_t)st.st_size;
}

__attribute__((unused)) static uint64_t committed_of(int fd)
{
    struct stat st = {0};

    check_int(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

__attribute__((unused)) static bool all_bytes_are(const struct vmm_piece *piece, uint8_t value,
                                                  uint64_t from, uint64_t to)
{
    static uint8_t part[1 << 16];

    while (from < to) {
        size_t bytes = to - from < sizeof(part) ? to - from : sizeof(part);

        if (!check_int(vmm_read(vmm, piece, part, bytes, from), 0))
            return false;
        for (size_t i = 0; i < bytes; i++)
            if (part[i] != value)
                return false;
        from += bytes;
    }
    return true;
}

__attribute__((unused)) static void fill(struct vmm_piece *piece, uint8_t value, uint64_t from,
                                         uint64_t bytes)
{
    uint8_t *data = malloc(bytes);

    require(data != NULL);
    memset(data, value, bytes);
    check_int(vmm_write(vmm, piece, data, bytes, from), 0);
    free(data);
}

__attribute__((unused)) static void write_and_read_back(struct vmm_piece *piece, uint64_t offset,
                                                        size_t bytes)
{
    uint8_t *out = malloc(bytes), *in = calloc(1, bytes);

    require(out && in);
    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)((offset + i) * 2654435761u >> 13);
    check_int(vmm_write(vmm, piece, out, bytes, offset), 0);
    check_int(vmm_read(vmm, piece, in, bytes, offset), 0);
    check(memcmp(in, out, bytes) == 0);
    free(out);
    free(in);
}

#endif
