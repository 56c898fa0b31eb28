/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_lease - the bytes of a CUDA region, read and written through the helper that has its memory
 * open
 *
 * For the process that serves clients, on the threads of workers.h: these calls block until the
 * helper answers, at most for the socket's timeout. `lease` is one end of a socket pair
 * (cuda_message.h), used by one thread at a time. 0; -EPIPE: the helper is gone; -ETIMEDOUT: the
 * helper does not answer; -ESTALE: the memory no longer opens; or the driver's error.
 */
#ifndef GMSFS_TRITON_CUDA_LEASE_H
#define GMSFS_TRITON_CUDA_LEASE_H

#include <stddef.h>
#include <stdint.h>

int cuda_lease_read(int lease, uint64_t offset, void *bytes, size_t size_bytes);
int cuda_lease_write(int lease, uint64_t offset, const void *bytes, size_t size_bytes);

#endif
