/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_cuda - a machine with fake GPUs, for unit tests (tests/fake_cuda/fake.h)
 *
 * fake_cuda_make, then fake_cuda_control as often as needed, fake_cuda_remove at the end. The
 * driver is initialised once a process, so CUDA_VISIBLE_DEVICES and the count of devices are those
 * of its first use; everything else is read again at each call.
 */
#ifndef GMSFS_TESTS_UNIT_FAKE_CUDA_H
#define GMSFS_TESTS_UNIT_FAKE_CUDA_H

#include "fake_root.h"

static char fake_cuda_dir[FAKE_PATH_BYTES];

/* Describes the machine, one `word numbers` a line. */
__attribute__((unused)) static bool fake_cuda_control(const char *text)
{
    return fake_root_put(fake_cuda_dir, "/control", text);
}

__attribute__((unused)) static bool fake_cuda_make(const char *control)
{
    if (!fake_root_make(fake_cuda_dir) || setenv("GMSFS_FAKE_CUDA", fake_cuda_dir, 1) < 0)
        return false;
    return fake_cuda_control(control);
}

__attribute__((unused)) static void fake_cuda_remove(void)
{
    unsetenv("GMSFS_FAKE_CUDA");
    fake_root_remove(fake_cuda_dir);
}

#endif
