/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_lease - the bytes of a CUDA region, through the process that has its memory open
 *
 * For the process that serves clients, on the threads of workers.h: these block until they are
 * answered, for as long as the socket's time says. `lease` is one end of a pair (cuda_message.h),
 * used by one thread at a time. 0; -EPIPE: that process is gone; -ETIMEDOUT: it does not answer;
 * -ESTALE: the memory does not open any more; or what the driver says.
 */
#ifndef GMSFS_TRITON_CUDA_LEASE_H
#define GMSFS_TRITON_CUDA_LEASE_H

#include <stddef.h>
#include <stdint.h>

int cuda_lease_read(int lease, uint64_t offset, void *bytes, size_t size_bytes);
int cuda_lease_write(int lease, uint64_t offset, const void *bytes, size_t size_bytes);

#endif
