/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier - what is beside the device, as vmm.c, tier.c and move.c know it
 *
 * Nobody else includes this. A tier is one more backend with an account of its own: host memory is
 * the host's, the disk's is here.
 */
#ifndef GMSFS_VMM_TIER_H
#define GMSFS_VMM_TIER_H

#include "vmm/vmm_backend.h"

#define DISK_BLOCK_BYTES 4096u /* no file system asks for more */

extern const struct vmm_backend vmm_backend_disk;
extern const struct vmm_backend *const vmm_tier_backends[VMM_TIER_COUNT]; /* the device has none */

#endif
