/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmm_cuda_fixture - one GPU of the fake driver, opened as the daemon opens it
 */
#ifndef GMSFS_TESTS_UNIT_VMM_CUDA_FIXTURE_H
#define GMSFS_TESTS_UNIT_VMM_CUDA_FIXTURE_H

#include "vmm_fixture.h"

#include "fake_cuda.h"

#define MEASURE_TRIES 3000 /* of 10 ms */

__attribute__((unused)) static int open_with(const char *control, struct vmm_options options)
{
    require(fake_cuda_make(control));
    options.backend = "cuda";
    return try_open(options);
}

__attribute__((unused)) static void open_gpu(const char *control)
{
    require(open_with(control, (struct vmm_options){0}) == 0);
}

__attribute__((unused)) static void close_gpu(void)
{
    vmm_close(vmm);
    vmm = NULL;
    fake_cuda_remove();
}

/* The answer to a measurement comes some time later. */
__attribute__((unused)) static struct vmm_info measure_until(uint64_t free_bytes)
{
    struct vmm_info info = {0};

    for (int tries = 0; tries < MEASURE_TRIES; tries++) {
        vmm_measure(vmm);
        vmm_get_info(vmm, &info);
        if (info.knows_others && info.free_bytes == free_bytes)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    check(info.knows_others);
    return info;
}

#define check_free(bytes) check_int(measure_until(bytes).free_bytes, (bytes))

__attribute__((unused)) static bool any_context(void)
{
    DIR *dir = opendir(fake_cuda_dir);
    struct dirent *entry;
    bool found = false;

    require(dir != NULL);
    while ((entry = readdir(dir)))
        found |= strncmp(entry->d_name, "context.", 8) == 0;
    closedir(dir);
    return found;
}

#endif
