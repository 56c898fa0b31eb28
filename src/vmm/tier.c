/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier - memory beside the device
 *
 * The host tier uses the backend for host memory, for any kind of device; the disk tier is disk.c.
 * Each has an account of its own. Their pieces are read without a driver.
 */
#include "vmm/tier.h"

#include "vmm/vmm_internal.h"

#include <stdio.h>

#define WHY_BYTES 512

const struct vmm_backend *const vmm_tier_backends[VMM_TIER_COUNT] = {
    [VMM_TIER_HOST] = &vmm_backend_host,
    [VMM_TIER_DISK] = &vmm_backend_disk,
};

static int open_tier(struct vmm *vmm, enum vmm_tier tier, const char *root,
                     const struct vmm_options *options, char *why, size_t why_bytes)
{
    struct vmm_device *device = &vmm->beside[tier];

    device->health = &vmm->health;
    device->measurement = &vmm->measurement;
    return vmm_tier_backends[tier]->open(root, options, device, why, why_bytes);
}

static int open_host(struct vmm *vmm, const char *root, const struct vmm_options *options,
                     char *why, size_t why_bytes)
{
    uint64_t unit_bytes = vmm->device.granularity_bytes;
    struct vmm_options host = {.size_bytes = options->host_bytes,
                               .hugepage_bytes = options->host_hugepage_bytes,
                               .is_tier = true};
    char reason[WHY_BYTES] = "";
    int error;

    host.granularity_bytes = unit_bytes > host.hugepage_bytes ? unit_bytes : host.hugepage_bytes;
    error = open_tier(vmm, VMM_TIER_HOST, root, &host, reason, sizeof(reason));
    if (error < 0)
        snprintf(why, why_bytes, "host tier (host_size=, host_hugepages=): %s", reason);
    return error;
}

static int open_disk(struct vmm *vmm, const struct vmm_options *options, char *why,
                     size_t why_bytes)
{
    struct vmm_options disk = *options;

    disk.size_bytes = options->spill_bytes;
    disk.granularity_bytes = vmm->device.granularity_bytes;
    return open_tier(vmm, VMM_TIER_DISK, "", &disk, why, why_bytes);
}

int vmm_open_beside(struct vmm *vmm, const char *root, const struct vmm_options *options, char *why,
                    size_t why_bytes)
{
    int error = 0;

    if (options->host_bytes > 0)
        error = open_host(vmm, root, options, why, why_bytes);
    if (error == 0 && options->spill[0])
        error = open_disk(vmm, options, why, why_bytes);
    if (error < 0)
        vmm_close_beside(vmm);
    return error;
}

void vmm_close_beside(struct vmm *vmm)
{
    for (unsigned tier = 0; tier < VMM_TIER_COUNT; tier++)
        if (vmm->beside[tier].state)
            vmm_tier_backends[tier]->close(&vmm->beside[tier]);
}

const struct vmm_backend *vmm_backend_of(const struct vmm *vmm, const struct vmm_piece *piece)
{
    return piece->tier == VMM_TIER_DEVICE ? vmm->backend : vmm_tier_backends[piece->tier];
}

struct vmm_device *vmm_device_of(struct vmm *vmm, const struct vmm_piece *piece)
{
    return piece->tier == VMM_TIER_DEVICE ? &vmm->device : &vmm->beside[piece->tier];
}
