/* SPDX-License-Identifier: Apache-2.0 */
/* move - pieces of any tier, and bytes from one tier to another */
#include "vmm/tier.h"

#include "base/scope.h"
#include "vmm/vmm_internal.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define BOUNCE_BYTES (UINT64_C(4) << 20)  /* between device and disk */
#define DIRECT_BYTES (UINT64_C(64) << 10) /* shorter moves go through the page cache */

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
    const struct vmm_backend *backend = vmm_tier_backends[tier];
    if (backend->create_bare)
        error = backend->create_bare(&vmm->beside[tier], aligned_bytes, piece);
    else
        error = backend->create(&vmm->beside[tier], aligned_bytes, true, piece);
    if (error < 0)
        return error;
    piece->size_bytes = size_bytes;
    piece->aligned_bytes = aligned_bytes;
    piece->tier = tier;
    piece->sealed = true;
    if (tier == VMM_TIER_HOST)
        piece->serial = atomic_fetch_add(&vmm->next_serial, 1) + 1;
    return 0;
}

int vmm_adopt(struct vmm *vmm, enum vmm_tier tier, const struct vmm_kept *kept, uint64_t size_bytes,
              uint64_t aligned_bytes, bool sealed, struct vmm_piece *piece)
{
    int error = 0;

    *piece = vmm_no_piece;
    if (!vmm_has_tier(vmm, tier))
        return -EOPNOTSUPP;
    *piece =
        (struct vmm_piece){.fd = kept->fd,
                           .fd_readonly = kept->fd_readonly >= 0 ? kept->fd_readonly : kept->fd,
                           .size_bytes = size_bytes,
                           .aligned_bytes = aligned_bytes,
                           .tier = tier,
                           .sealed = sealed};
    if (tier == VMM_TIER_HOST)
        piece->serial = atomic_fetch_add(&vmm->next_serial, 1) + 1;
    if (tier == VMM_TIER_DEVICE && vmm->backend->adopt)
        error = vmm->backend->adopt(&vmm->device, piece);
    if (error)
        *piece = vmm_no_piece;
    return error;
}

int vmm_populate(struct vmm *vmm, const struct vmm_piece *piece, uint64_t offset, uint64_t bytes)
{
    const struct vmm_backend *backend = vmm_backend_of(vmm, piece);

    if (!piece->sealed || bytes > piece->aligned_bytes || offset > piece->aligned_bytes - bytes)
        return -EINVAL;
    if (piece->tier == VMM_TIER_DEVICE || !backend->populate || bytes == 0)
        return 0;
    return backend->populate(vmm_device_of(vmm, piece), piece, offset, bytes);
}

/* The begin and length of a mapping of these bytes. */
struct window {
    uint64_t start;
    size_t length;
};

static struct window frame(const struct vmm *vmm, uint64_t offset, uint64_t bytes)
{
    uint64_t mask = vmm->beside[VMM_TIER_HOST].granularity_bytes - 1;
    uint64_t start = offset & ~mask;

    return (struct window){.start = start, .length = (offset + bytes - start + mask) & ~mask};
}

/* Moves through a mapping of the host tier's side: the other side reads into it or writes from
 * it. */
static int move_mapped(struct vmm *vmm, const struct vmm_piece *from, struct vmm_piece *to,
                       uint64_t offset, uint64_t bytes)
{
    bool to_host = to->tier == VMM_TIER_HOST;
    const struct vmm_piece *mapped = to_host ? to : from;
    struct window window = frame(vmm, offset, bytes);
    uint8_t *map = mmap(NULL, window.length, to_host ? PROT_READ | PROT_WRITE : PROT_READ,
                        MAP_SHARED, mapped->fd, (off_t)window.start);
    int error;

    if (map == MAP_FAILED)
        return -errno;
    madvise(map, window.length, MADV_DONTFORK); /* in another process it would outlive the piece */
    if (to_host)
        error = vmm_read(vmm, from, map + (offset - window.start), bytes, offset);
    else
        error = vmm_write(vmm, to, map + (offset - window.start), bytes, offset);
    munmap(map, window.length);
    return error;
}

/* Moves between device and disk. Files are not mapped, because a failing disk would be a signal. */
static int move_bounced(struct vmm *vmm, const struct vmm_piece *from, struct vmm_piece *to,
                        uint64_t offset, uint64_t bytes)
{
    uint64_t most = bytes < BOUNCE_BYTES ? bytes : BOUNCE_BYTES;
    SCOPED_FREE uint8_t *buffer = aligned_alloc(
        DISK_BLOCK_BYTES, (most + DISK_BLOCK_BYTES) & ~(uint64_t)(DISK_BLOCK_BYTES - 1));
    int error = buffer ? 0 : -ENOMEM;

    for (uint64_t done = 0; error == 0 && done < bytes;) {
        uint64_t part = bytes - done < most ? bytes - done : most;

        error = vmm_read(vmm, from, buffer, part, offset + done);
        if (error == 0)
            error = vmm_write(vmm, to, buffer, part, offset + done);
        done += part;
    }
    return error;
}

static int move_bytes(struct vmm *vmm, const struct vmm_piece *from, struct vmm_piece *to,
                      uint64_t offset, uint64_t bytes)
{
    if (vmm->backend->move && from->tier == VMM_TIER_DEVICE)
        return vmm->backend->move(&vmm->device, from, to, true, offset, bytes);
    if (vmm->backend->move && to->tier == VMM_TIER_DEVICE)
        return vmm->backend->move(&vmm->device, to, from, false, offset, bytes);
    if (from->tier == VMM_TIER_HOST || to->tier == VMM_TIER_HOST)
        return move_mapped(vmm, from, to, offset, bytes);
    return move_bounced(vmm, from, to, offset, bytes);
}

/* Moves with a descriptor of the disk's side that bypasses the page cache, if possible. */
static int move_direct(struct vmm *vmm, const struct vmm_piece *from, const struct vmm_piece *to,
                       uint64_t offset, uint64_t bytes)
{
    struct vmm_piece source = *from, target = *to;
    struct vmm_piece *disk = from->tier == VMM_TIER_DISK ? &source : &target;
    const struct vmm_backend *backend = vmm_tier_backends[VMM_TIER_DISK];
    int fd = backend->open_direct(&vmm->beside[VMM_TIER_DISK], disk), error;

    if (fd >= 0)
        disk->fd = fd;
    error = move_bytes(vmm, &source, &target, offset, bytes);
    if (fd >= 0)
        close(fd);
    return error;
}

int vmm_move(struct vmm *vmm, const struct vmm_piece *from, struct vmm_piece *to, uint64_t offset,
             uint64_t bytes)
{
    if (from->tier == to->tier || !from->sealed || !to->sealed)
        return -EINVAL;
    if (bytes > from->aligned_bytes || offset > from->aligned_bytes - bytes ||
        bytes > to->aligned_bytes || offset > to->aligned_bytes - bytes)
        return -EINVAL;
    if ((from->tier == VMM_TIER_DISK || to->tier == VMM_TIER_DISK) && bytes >= DIRECT_BYTES)
        return move_direct(vmm, from, to, offset, bytes);
    int error = move_bytes(vmm, from, to, offset, bytes);
    /* for a file in memory, no room means no memory */
    return error == -ENOSPC && to->tier == VMM_TIER_HOST ? -ENOMEM : error;
}

int vmm_sync(struct vmm *vmm, const struct vmm_piece *piece)
{
    const struct vmm_backend *backend = vmm_backend_of(vmm, piece);

    return backend->sync ? backend->sync(vmm_device_of(vmm, piece), piece) : 0;
}

int vmm_probe(struct vmm *vmm, const struct vmm_piece *piece, uint64_t offset, uint64_t bytes)
{
    const struct vmm_backend *backend = vmm_backend_of(vmm, piece);

    if (bytes > piece->aligned_bytes || offset > piece->aligned_bytes - bytes ||
        offset % VMM_PROBE_BYTES != 0 || bytes % VMM_PROBE_BYTES != 0)
        return -EINVAL;
    return backend->probe ? backend->probe(vmm_device_of(vmm, piece), piece, offset, bytes) : 0;
}
