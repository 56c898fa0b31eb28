/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regions_fixture - regions of this user in the mount of GMSFS_TEST_STORE, for their tests
 *
 * A test begins with open_regions, which removes those of an earlier one, and closes its own.
 */
#ifndef GMSFS_TESTS_API_REGIONS_FIXTURE_H
#define GMSFS_TESTS_API_REGIONS_FIXTURE_H

#include <sys/mman.h>

#include "api.h"

#define SELF GMSFS_REGION_SELF

static char mount_path[4096];
/* The reason for this thread's last registration. */
static _Thread_local enum gmsfs_region_reason reason;

__attribute__((unused)) static gmsfs_regions_t *open_regions(void)
{
    gmsfs_regions_t *regions = NULL;

    snprintf(mount_path, sizeof mount_path, "%s/..", store_path());
    require(gmsfs_regions_open(mount_path, &regions) == 0);
    gmsfs_region_unregister_all(regions, SELF, GMSFS_REGION_ANY, NULL);
    return regions;
}

__attribute__((unused)) static int make_object(size_t size)
{
    int fd = memfd_create("client", MFD_CLOEXEC);

    require(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    return fd;
}

__attribute__((unused)) static struct gmsfs_region_request wish_of(const char *name, int fd,
                                                                   uint64_t offset, uint64_t size)
{
    return (struct gmsfs_region_request){.kind = GMSFS_REGION_SYSTEM,
                                         .uid = SELF,
                                         .name = name,
                                         .key = "/some_key",
                                         .fd = fd,
                                         .offset = offset,
                                         .byte_size = size};
}

__attribute__((unused)) static int register_fd(gmsfs_regions_t *regions, const char *name, int fd,
                                               uint64_t offset, uint64_t size)
{
    struct gmsfs_region_request wish = wish_of(name, fd, offset, size);

    return gmsfs_region_register(regions, &wish, &reason);
}

__attribute__((unused)) static struct gmsfs_region_request cuda_wish(const char *name)
{
    static const uint8_t handle[GMSFS_REGION_HANDLE_BYTES] = {1, 2, 3};

    return (struct gmsfs_region_request){.kind = GMSFS_REGION_CUDA,
                                         .uid = SELF,
                                         .name = name,
                                         .fd = -1,
                                         .byte_size = UINT64_MAX - 31,
                                         .device_id = -1,
                                         .raw_handle = handle,
                                         .raw_handle_bytes = sizeof handle};
}

/* Returns the count, or an error. */
__attribute__((unused)) static int count_references(gmsfs_regions_t *regions, const char *name)
{
    struct gmsfs_region_info info;
    int error = gmsfs_region_get(regions, SELF, GMSFS_REGION_ANY, name, &info);

    return error ? error : (int)info.references;
}

/* Describes the one allocation that the store has committed. */
__attribute__((unused)) static struct gmsfs_region_request store_wish(char *key, size_t room)
{
    struct gmsfs_region_request wish = wish_of("w", -1, 0, 10);
    char path[4200];
    const struct dirent *entry;
    DIR *directory;

    snprintf(path, sizeof path, "%s/allocations", store_path());
    directory = opendir(path);
    require(directory != NULL);
    while ((entry = readdir(directory))) {
        if (entry->d_name[0] != '.')
            snprintf(key, room, "%s/%s", strrchr(store_path(), '/') + 1, entry->d_name);
    }
    closedir(directory);
    wish.key = key;
    return wish;
}

#endif
