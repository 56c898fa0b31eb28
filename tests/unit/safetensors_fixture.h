/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_fixture - safetensors files for the tests of their reader
 *
 * For tests/unit/test_safetensors*.c, which include it after tap.h. Writes any header with any
 * amount of data, valid or not; a failing write ends the test.
 */
#ifndef GMSFS_TESTS_UNIT_SAFETENSORS_FIXTURE_H
#define GMSFS_TESTS_UNIT_SAFETENSORS_FIXTURE_H

#include <endian.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/safetensors.h"
#include "tap.h"

#define TENSOR(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static struct failure error;
static char path[64]; /* of the file that new_file made last */
static struct source *source;

static void put(int fd, const void *bytes, size_t size_bytes, off_t offset)
{
    require(pwrite(fd, bytes, size_bytes, offset) == (ssize_t)size_bytes);
}

/* Writes header length, header and data_bytes of data. */
static void fill(int fd, const char *header, size_t data_bytes)
{
    uint64_t length = htole64(strlen(header));

    put(fd, &length, sizeof(length), 0);
    put(fd, header, strlen(header), sizeof(length));
    require(ftruncate(fd, (off_t)(sizeof(length) + strlen(header) + data_bytes)) == 0);
}

/* Opens them from a new source; a model of the one before must be closed. */
static int open_places(const char *const *names, size_t count, struct model **model)
{
    source_close(source);
    source = source_open();
    require(source);
    return safetensors_open(source, names, count, model, &error);
}

static int open_path(const char *name, struct model **model)
{
    return open_places(&name, 1, model);
}

/* Makes a file without a directory entry, readable at `path` as long as it is open. */
__attribute__((unused)) static int new_file(void)
{
    int fd = memfd_create("safetensors", MFD_CLOEXEC);

    require(fd >= 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return fd;
}

/* Opens a file with that header and so much data. */
__attribute__((unused)) static int open_text(const char *header, size_t data_bytes,
                                             struct model **model)
{
    int fd = new_file();

    fill(fd, header, data_bytes);
    int err = open_path(path, model);
    close(fd);
    return err;
}

#endif
