/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier - the tiers beside the device, for vmm.c, tier.c and move.c alone
 *
 * A tier is one more backend with an account of its own: host memory is the host's, the disk's is
 * here.
 */
#ifndef GMSFS_VMM_TIER_H
#define GMSFS_VMM_TIER_H

#include "vmm/vmm_backend.h"

#define DISK_BLOCK_BYTES 4096u /* the largest block size of any file system */

extern const struct vmm_backend vmm_backend_disk;
extern const struct vmm_backend *const vmm_tier_backends[VMM_TIER_COUNT]; /* none for the device */

#endif
