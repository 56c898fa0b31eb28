/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spool_upload - bytes of a spool, on their way from host memory to the GPU's
 *
 * For src/vmm/gpu.c, on helper threads. The spool is a memfd that nobody else writes to meanwhile.
 */
#ifndef GMSFS_VMM_SPOOL_UPLOAD_H
#define GMSFS_VMM_SPOOL_UPLOAD_H

#include "vmm/copier_client.h"

/* Brings piece->made, which exists, up to date with the first `size_bytes` of the spool. What lies
 * beyond is as the driver made it: zero. */
int spool_upload(struct copier_client *copier, struct vmm_piece *piece, uint64_t size_bytes);

#endif
