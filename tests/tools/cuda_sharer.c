/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_sharer - a client that touches GPU memory, for the tests
 *
 *   cuda_sharer load STORE COUNT MIB     COUNT allocations, each filled with its own number;
 * commits cuda_sharer check STORE COUNT        maps them read-only and compares; a write must be
 * refused cuda_sharer cycle STORE N            attaches and detaches N times cuda_sharer hold STORE
 * maps all, prints "mapped", and stays until its input ends
 *
 * Descriptors come from libgmsfs; importing and mapping is done here, call by call, so that the
 * daemon is tested without the library's own way. Prints a line and exits with 1 at a wrong result.
 */
#include "cuda/driver.h"
#include "gmsfs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB       (1ull << 20)
#define MAX_COUNT 4096

static const struct drv *cu;
static gmsfs_t *store;

struct mapping {
    drv_pointer address;
    size_t bytes;
};

static struct mapping mappings[MAX_COUNT];
static size_t mapping_count;

__attribute__((noreturn)) static void die(const char *what, const char *why)
{
    printf("%s: %s\n", what, why);
    exit(1);
}

static void must(const char *call, enum drv_result result)
{
    if (result != DRV_SUCCESS)
        die(call, drv_error_name(cu, result));
}

static void must_be_0(const char *what, int rc)
{
    if (rc < 0)
        die(what, strerror(-rc));
}

static void enter_context(void)
{
    struct drv_context *context;
    char error[256];

    if (drv_open(&cu, error, sizeof error) < 0)
        die("driver", error);
    must("cuDevicePrimaryCtxRetain", cu->cuDevicePrimaryCtxRetain(&context, 0));
    must("cuCtxSetCurrent", cu->cuCtxSetCurrent(context));
}

static void map(int fd, size_t bytes, enum drv_access access)
{
    struct drv_access_desc desc = {.location.type = DRV_LOCATION_DEVICE, .flags = access};
    struct mapping *made = &mappings[mapping_count];
    drv_memory memory;

    if (mapping_count == MAX_COUNT)
        die("map", "too many");
    must("cuMemImportFromShareableHandle",
         cu->cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)fd,
                                            DRV_HANDLE_POSIX_FILE_DESCRIPTOR));
    must("cuMemAddressReserve", cu->cuMemAddressReserve(&made->address, bytes, 0, 0, 0));
    must("cuMemMap", cu->cuMemMap(made->address, bytes, 0, memory, 0));
    must("cuMemRelease", cu->cuMemRelease(memory));
    must("cuMemSetAccess", cu->cuMemSetAccess(made->address, bytes, &desc, 1));
    made->bytes = bytes;
    mapping_count++;
}

static void unmap_all(void)
{
    for (; mapping_count > 0; mapping_count--) {
        struct mapping *last = &mappings[mapping_count - 1];

        must("cuMemUnmap", cu->cuMemUnmap(last->address, last->bytes));
        must("cuMemAddressFree", cu->cuMemAddressFree(last->address, last->bytes));
    }
}

static void map_slot(const struct gmsfs_handle_info *info, enum gmsfs_access access)
{
    int fd;

    must_be_0("export", gmsfs_export_handle(store, info->slot, access, &fd));
    map(fd, info->aligned_bytes,
        access == GMSFS_ACCESS_WRITE ? DRV_ACCESS_READWRITE : DRV_ACCESS_READ);
    close(fd);
}

static size_t map_all(enum gmsfs_access access)
{
    struct gmsfs_handle_info *list;
    size_t count;

    must_be_0("list", gmsfs_list_handles(store, NULL, &list, &count));
    for (size_t i = 0; i < count; i++)
        map_slot(&list[i], access);
    free(list);
    return count;
}

static void load(unsigned count, size_t bytes)
{
    must_be_0("connect", gmsfs_connect(store, GMSFS_MODE_RW, 10000));
    must_be_0("allocate", gmsfs_allocate_handles(store, count, bytes, "weights", NULL, 0, NULL));
    map_all(GMSFS_ACCESS_WRITE);
    for (unsigned i = 0; i < mapping_count; i++)
        must("cuMemsetD32", cu->cuMemsetD32_v2(mappings[i].address, i + 1, mappings[i].bytes / 4));
    must("cuCtxSynchronize", cu->cuCtxSynchronize());
    unmap_all();
    must_be_0("commit", gmsfs_commit(store, 0, NULL));
}

static void check_words(drv_pointer from, size_t bytes, unsigned word)
{
    unsigned *words = malloc(bytes);

    if (!words)
        die("check", "no memory");
    must("cuMemcpyDtoH", cu->cuMemcpyDtoH_v2(words, from, bytes));
    for (size_t i = 0; i < bytes / 4; i++)
        if (words[i] != word)
            die("check", "other bytes than were loaded");
    free(words);
}

static void check(unsigned count)
{
    must_be_0("connect", gmsfs_connect(store, GMSFS_MODE_RO, 10000));
    if (map_all(GMSFS_ACCESS_READ) != count)
        die("check", "not as many allocations");
    for (unsigned i = 0; i < mapping_count; i++) {
        check_words(mappings[i].address, mappings[i].bytes, i + 1);
        if (cu->cuMemsetD8_v2(mappings[i].address, 0, 1) == DRV_SUCCESS)
            die("check", "a reader could write");
    }
    unmap_all();
    printf("%u as they were loaded\n", count);
}

static void cycle(unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        must_be_0("connect", gmsfs_connect(store, GMSFS_MODE_RO, 10000));
        map_all(GMSFS_ACCESS_READ);
        unmap_all();
        must_be_0("disconnect", gmsfs_disconnect(store));
    }
}

static void hold(void)
{
    char byte;

    must_be_0("connect", gmsfs_connect(store, GMSFS_MODE_RO, 10000));
    map_all(GMSFS_ACCESS_READ);
    must_be_0("disconnect", gmsfs_disconnect(store));
    puts("mapped");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    unmap_all();
}

int main(int argc, char **argv)
{
    unsigned count = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;

    if (argc < 3)
        die("cuda_sharer", "see the head of its source");
    enter_context();
    must_be_0("open", gmsfs_open(argv[2], &store));
    if (!strcmp(argv[1], "load") && argc == 5)
        load(count, strtoull(argv[4], NULL, 10) * MIB);
    else if (!strcmp(argv[1], "check") && argc == 4)
        check(count);
    else if (!strcmp(argv[1], "cycle") && argc == 4)
        cycle(count);
    else if (!strcmp(argv[1], "hold"))
        hold();
    else
        die("cuda_sharer", "see the head of its source");
    gmsfs_close(store);
    return cu->cuDevicePrimaryCtxRelease_v2(0) == DRV_SUCCESS ? 0 : 1;
}
