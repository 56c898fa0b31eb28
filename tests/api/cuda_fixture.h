/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_fixture - a store of the second GPU of the fake driver's machine, for tests of libgmsfs
 */
#ifndef GMSFS_TESTS_API_CUDA_FIXTURE_H
#define GMSFS_TESTS_API_CUDA_FIXTURE_H

#include "cuda/driver.h"

#include "api.h"

#define MACHINE "devices 2\nmemory 1024\n"

static const struct drv *cu;

__attribute__((unused)) static const struct drv *driver(void)
{
    if (!cu)
        require(drv_open(&cu, NULL, 0) == 0);
    return cu;
}

/* Sets the machine's faults from now on, for this process. */
__attribute__((unused)) static void control(const char *faults)
{
    char path[512], fresh[520];
    FILE *file;

    require(getenv("GMSFS_FAKE_CUDA") != NULL);
    snprintf(path, sizeof path, "%s/control", getenv("GMSFS_FAKE_CUDA"));
    snprintf(fresh, sizeof fresh, "%s.fresh", path);
    file = fopen(fresh, "we");
    require(file != NULL);
    fprintf(file, "%s%s", MACHINE, faults);
    require(fclose(file) == 0 && rename(fresh, path) == 0);
}

/* Makes a context of the store's device current until it is popped. */
__attribute__((unused)) static void push_context(void)
{
    struct drv_context *context;

    require(driver()->cuDevicePrimaryCtxRetain(&context, 1) == DRV_SUCCESS);
    require(cu->cuCtxPushCurrent_v2(context) == DRV_SUCCESS);
}

__attribute__((unused)) static void pop_context(void)
{
    struct drv_context *context;

    cu->cuCtxPopCurrent_v2(&context);
    cu->cuDevicePrimaryCtxRelease_v2(1);
}

__attribute__((unused)) static enum drv_result fill(void *ptr, int value, size_t count)
{
    enum drv_result result;

    push_context();
    result = cu->cuMemsetD8_v2((uintptr_t)ptr, (unsigned char)value, count);
    pop_context();
    return result;
}

__attribute__((unused)) static int byte_at(const void *ptr)
{
    unsigned char byte = 0;

    push_context();
    check_int(cu->cuMemcpyDtoH_v2(&byte, (uintptr_t)ptr, 1), DRV_SUCCESS);
    pop_context();
    return byte;
}

/* Counts mappings of device memory in this process. */
__attribute__((unused)) static int count_mapped(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int count = 0;

    while (maps && fgets(line, sizeof line, maps))
        count += strstr(line, "/gpu1/m") != NULL;
    if (maps)
        fclose(maps);
    return count;
}

#endif
