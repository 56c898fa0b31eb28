/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library_regions - the step of `library` on regions; only library.c includes it
 *
 * It begins without regions, so that the remains of an earlier try make no difference.
 */
#ifndef GMSFS_TESTS_FAULT_LIBRARY_REGIONS_H
#define GMSFS_TESTS_FAULT_LIBRARY_REGIONS_H

#include <fcntl.h>
#include <sys/mman.h>

/* Makes an object of 4096 bytes, for all of them. */
static int region_object(void)
{
    static int fd = -1;

    if (fd >= 0)
        return fd;
    fd = memfd_create("object", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 4096) < 0)
        tool_die("no object: %s", strerror(errno));
    return fd;
}

static void object_made(struct scene *scene)
{
    (void)scene;
    region_object();
}

static int use_region(gmsfs_regions_t *regions, const char *name)
{
    gmsfs_region_t *region = NULL;
    char bytes[16];
    void *ptr;
    int result = gmsfs_region_open(regions, GMSFS_REGION_SELF, name, &region, NULL);

    if (!result)
        result = gmsfs_region_read(region, 0, bytes, sizeof bytes, NULL);
    if (!result)
        result = gmsfs_region_map(region, GMSFS_ACCESS_READ, &ptr);
    gmsfs_region_close(region);
    return result;
}

static int register_and_use(gmsfs_regions_t *regions)
{
    const struct gmsfs_region_request wish = {.kind = GMSFS_REGION_SYSTEM,
                                              .uid = GMSFS_REGION_SELF,
                                              .name = "r",
                                              .key = "/key",
                                              .fd = region_object(),
                                              .offset = 64,
                                              .byte_size = 100};
    struct gmsfs_region_info *list = NULL;
    size_t count;
    int result = gmsfs_region_unregister_all(regions, GMSFS_REGION_SELF, GMSFS_REGION_ANY, NULL);

    if (!result)
        result = gmsfs_region_register(regions, &wish, NULL);
    if (!result)
        result = use_region(regions, "r");
    if (!result)
        result = gmsfs_region_list(regions, GMSFS_REGION_SELF, GMSFS_REGION_ANY, &list, &count);
    gmsfs_region_list_free(list);
    if (!result)
        result = gmsfs_region_unregister(regions, GMSFS_REGION_SELF, GMSFS_REGION_ANY, "r");
    return result;
}

static int do_regions(struct scene *scene)
{
    gmsfs_regions_t *regions = NULL;
    char path[4096];
    int result;

    (void)scene;
    snprintf(path, sizeof path, "%s/..", store);
    result = gmsfs_regions_open(path, &regions);
    if (!result)
        result = register_and_use(regions);
    gmsfs_regions_close(regions);
    return result;
}

#endif
