/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmm_internal - the device, its account and its tiers, shared by vmm.c, tier.c and move.c
 */
#ifndef GMSFS_VMM_VMM_INTERNAL_H
#define GMSFS_VMM_VMM_INTERNAL_H

#include "vmm/backends.h"
#include "vmm/vmm_backend.h"

#include <stdatomic.h>

struct vmm {
    const struct backend *kind;
    const struct vmm_backend *backend;
    struct vmm_device device;
    struct health health;
    struct measurement measurement;
    _Atomic uint64_t aside_bytes;                 /* of the device */
    struct vmm_device beside[VMM_TIER_COUNT];     /* tiers; state NULL: no such tier */
    _Atomic uint64_t taken_bytes[VMM_TIER_COUNT]; /* in use; of the device, set aside too */
    _Atomic uint64_t next_serial;                 /* of pieces in host memory beside the device */
};

extern const struct vmm_piece vmm_no_piece;

/* tier.c */
int vmm_open_beside(struct vmm *vmm, const char *root, const struct vmm_options *options, char *why,
                    size_t why_bytes);
void vmm_close_beside(struct vmm *vmm);
const struct vmm_backend *vmm_backend_of(const struct vmm *vmm, const struct vmm_piece *piece);
struct vmm_device *vmm_device_of(struct vmm *vmm, const struct vmm_piece *piece);

#endif
