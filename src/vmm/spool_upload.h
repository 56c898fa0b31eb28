/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_spool - bytes of a spool, on their way from host memory to the GPU's
 *
 * For src/vmm/cuda.c, on helper threads. The spool is a memfd that nobody else writes to meanwhile.
 */
#ifndef GMSFS_VMM_CUDA_SPOOL_H
#define GMSFS_VMM_CUDA_SPOOL_H

#include "vmm/copier_client.h"

/* Brings piece->made, which exists, up to date with the first `size_bytes` of the spool. What lies
 * beyond is as the driver made it: zero. */
int cuda_spool_copy(struct cuda_bytes *bytes, struct vmm_piece *piece, uint64_t size_bytes);

#endif
