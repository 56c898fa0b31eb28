/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier - host memory beside the device, and bytes from one to the other
 *
 * The host tier is the backend for host memory once more, whatever the device is, with an account
 * of its own. Its pieces are sealed memfds as any other: they are read without a driver.
 */
#include "vmm/vmm_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#define WHY_BYTES 256

int vmm_open_host(struct vmm *vmm, const char *root, const struct vmm_options *options, char *why,
                  size_t why_bytes)
{
    uint64_t unit_bytes = vmm->device.granularity_bytes;
    struct vmm_options host = {.size_bytes = options->host_bytes,
                               .hugepage_bytes = options->host_hugepage_bytes};
    char reason[WHY_BYTES] = "";
    int error;

    host.granularity_bytes = unit_bytes > host.hugepage_bytes ? unit_bytes : host.hugepage_bytes;
    vmm->host.health = &vmm->health;
    vmm->host.measurement = &vmm->measurement;
    error = vmm_backend_host.open(root, &host, &vmm->host, reason, sizeof(reason));
    if (error < 0)
        snprintf(why, why_bytes, "host tier (host_size=, host_hugepages=): %s", reason);
    return error;
}

void vmm_close_host(struct vmm *vmm)
{
    if (vmm->host.state)
        vmm_backend_host.close(&vmm->host);
}

const struct vmm_backend *vmm_backend_of(const struct vmm *vmm, const struct vmm_piece *piece)
{
    return piece->tier == VMM_TIER_HOST ? &vmm_backend_host : vmm->backend;
}

struct vmm_device *vmm_device_of(struct vmm *vmm, const struct vmm_piece *piece)
{
    return piece->tier == VMM_TIER_HOST ? &vmm->host : &vmm->device;
}

/* ---- account ------------------------------------------------------------------------------- */

bool vmm_has_tier(const struct vmm *vmm, enum vmm_tier tier)
{
    return tier == VMM_TIER_DEVICE || (tier == VMM_TIER_HOST && vmm->host.state);
}

static const struct vmm_device *get_device(const struct vmm *vmm, enum vmm_tier tier)
{
    return tier == VMM_TIER_HOST ? &vmm->host : &vmm->device;
}

uint64_t vmm_get_total_in(const struct vmm *vmm, enum vmm_tier tier)
{
    return get_device(vmm, tier)->total_bytes;
}

/* Of what the device's unit is, first: a copy has all that the original has. */
uint64_t vmm_align_in(const struct vmm *vmm, enum vmm_tier tier, uint64_t size_bytes)
{
    uint64_t aligned_bytes = vmm_align(vmm, size_bytes);
    uint64_t mask = get_device(vmm, tier)->granularity_bytes - 1;

    return aligned_bytes > UINT64_MAX - mask ? 0 : (aligned_bytes + mask) & ~mask;
}

int vmm_reserve_in(struct vmm *vmm, enum vmm_tier tier, uint64_t bytes)
{
    uint64_t taken = atomic_load(&vmm->host_taken_bytes);

    if (tier == VMM_TIER_DEVICE)
        return vmm_reserve(vmm, bytes);
    do {
        if (bytes > vmm->host.total_bytes - taken)
            return -ENOMEM;
    } while (!atomic_compare_exchange_weak(&vmm->host_taken_bytes, &taken, taken + bytes));
    return 0;
}

void vmm_unreserve_in(struct vmm *vmm, enum vmm_tier tier, uint64_t bytes)
{
    uint64_t taken;

    if (tier == VMM_TIER_DEVICE) {
        vmm_unreserve(vmm, bytes);
        return;
    }
    taken = atomic_fetch_sub(&vmm->host_taken_bytes, bytes);
    assert(taken >= bytes);
    (void)taken;
}

/* ---- pieces -------------------------------------------------------------------------------- */

int vmm_create_in(struct vmm *vmm, enum vmm_tier tier, uint64_t size_bytes, struct vmm_piece *piece)
{
    uint64_t aligned_bytes = vmm_align_in(vmm, tier, size_bytes);
    int error;

    if (tier == VMM_TIER_DEVICE)
        return vmm_create(vmm, size_bytes, true, piece);
    *piece = vmm_no_piece;
    if (!vmm_has_tier(vmm, tier))
        return -EOPNOTSUPP;
    if (size_bytes == 0)
        return -EINVAL;
    if (aligned_bytes < size_bytes || aligned_bytes > INT64_MAX)
        return -ENOMEM;
    error = vmm_backend_host.create(&vmm->host, aligned_bytes, true, piece);
    if (error < 0)
        return error;
    piece->size_bytes = size_bytes;
    piece->aligned_bytes = aligned_bytes;
    piece->tier = tier;
    piece->sealed = true;
    return 0;
}

/* Where a mapping of these bytes begins, and how long it is. */
struct window {
    uint64_t start;
    size_t length;
};

static struct window frame(const struct vmm *vmm, uint64_t offset, uint64_t bytes)
{
    uint64_t mask = vmm->host.granularity_bytes - 1;
    uint64_t start = offset & ~mask;

    return (struct window){.start = start, .length = (offset + bytes - start + mask) & ~mask};
}

/* By the device itself, or through a mapping of the host tier's side: the other side reads into it
 * or writes from it. */
int vmm_move(struct vmm *vmm, const struct vmm_piece *from, struct vmm_piece *to, uint64_t offset,
             uint64_t bytes)
{
    bool to_host = to->tier == VMM_TIER_HOST;
    const struct vmm_piece *mapped = to_host ? to : from;
    const struct vmm_piece *device_side = to_host ? from : to;
    struct window window = frame(vmm, offset, bytes);
    uint8_t *map;
    int error;

    if (mapped->tier != VMM_TIER_HOST || !from->sealed || !to->sealed)
        return -EINVAL;
    if (bytes > from->aligned_bytes || offset > from->aligned_bytes - bytes ||
        bytes > to->aligned_bytes || offset > to->aligned_bytes - bytes)
        return -EINVAL;
    if (device_side->tier == VMM_TIER_DEVICE && vmm->backend->move)
        return vmm->backend->move(&vmm->device, device_side, mapped->fd, to_host, offset, bytes);
    map = mmap(NULL, window.length, to_host ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
               mapped->fd, (off_t)window.start);
    if (map == MAP_FAILED)
        return -errno;
    if (to_host)
        error = vmm_read(vmm, from, map + (offset - window.start), bytes, offset);
    else
        error = vmm_write(vmm, to, map + (offset - window.start), bytes, offset);
    munmap(map, window.length);
    return error;
}
