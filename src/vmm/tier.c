/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier - memory beside the device, and the accounts of all tiers
 *
 * The host tier uses the backend for host memory, for any kind of device; the disk tier is disk.c.
 * Each has an account of its own. Their pieces are read without a driver.
 */
#include "vmm/tier.h"

#include "vmm/vmm_internal.h"

#include <assert.h>
#include <errno.h>
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

    host.granularity_bytes = unit_bytes > host.hugepage_bytes ? unit_bytes : host.hugepage_bytes;
    int error = open_tier(vmm, VMM_TIER_HOST, root, &host, reason, sizeof(reason));
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

/* ---- account ------------------------------------------------------------------------------- */

bool vmm_has_tier(const struct vmm *vmm, enum vmm_tier tier)
{
    return tier == VMM_TIER_DEVICE || (tier < VMM_TIER_COUNT && vmm->beside[tier].state);
}

static const struct vmm_device *get_device(const struct vmm *vmm, enum vmm_tier tier)
{
    return tier == VMM_TIER_DEVICE ? &vmm->device : &vmm->beside[tier];
}

uint64_t vmm_get_total_in(const struct vmm *vmm, enum vmm_tier tier)
{
    return get_device(vmm, tier)->total_bytes;
}

uint64_t vmm_get_free_in(const struct vmm *vmm, enum vmm_tier tier)
{
    return get_device(vmm, tier)->total_bytes - atomic_load(&vmm->taken_bytes[tier]);
}

uint64_t vmm_align(const struct vmm *vmm, uint64_t size_bytes)
{
    uint64_t mask = vmm->device.granularity_bytes - 1;

    return size_bytes > UINT64_MAX - mask ? 0 : (size_bytes + mask) & ~mask;
}

/* Rounds up to the device's unit first: a copy has all bytes of the original. */
uint64_t vmm_align_in(const struct vmm *vmm, enum vmm_tier tier, uint64_t size_bytes)
{
    uint64_t aligned_bytes = vmm_align(vmm, size_bytes);
    uint64_t mask = get_device(vmm, tier)->granularity_bytes - 1;

    return aligned_bytes > UINT64_MAX - mask ? 0 : (aligned_bytes + mask) & ~mask;
}

int vmm_reserve_in(struct vmm *vmm, enum vmm_tier tier, uint64_t bytes)
{
    uint64_t taken = atomic_load(&vmm->taken_bytes[tier]);
    uint64_t total_bytes = get_device(vmm, tier)->total_bytes;

    do {
        assert(taken <= total_bytes);
        if (bytes > total_bytes - taken)
            return -ENOMEM;
    } while (!atomic_compare_exchange_weak(&vmm->taken_bytes[tier], &taken, taken + bytes));
    return 0;
}

void vmm_unreserve_in(struct vmm *vmm, enum vmm_tier tier, uint64_t bytes)
{
    uint64_t taken = atomic_fetch_sub(&vmm->taken_bytes[tier], bytes);

    assert(taken >= bytes);
    (void)taken;
}
