/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/vmm.h"

#include "vmm/backends.h"
#include "vmm/memfd.h"
#include "vmm/vmm_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct vmm_piece vmm_no_piece = {.fd = -1, .fd_readonly = -1};

/* ---- opening ------------------------------------------------------------------------------- */

static const struct backend *find_backend(const char *name, char *why, size_t why_bytes)
{
    const struct backend *found = backends_find(name);
    char known[BACKENDS_TEXT_BYTES];

    if (!found)
        snprintf(why, why_bytes, "backend=%s: there is no such backend; use %s", name,
                 backends_list(known));
    return found;
}

void vmm_prepare(const struct vmm_options *options)
{
    if (options->host_bytes > 0 && !options->host_hugepage_bytes)
        memfd_prepare_huge();
}

bool vmm_is_asleep(const struct vmm_options *options)
{
    const struct backend *kind = backends_find(options->backend);

    return kind && kind->functions->is_asleep && kind->functions->is_asleep();
}

void vmm_wake(const struct vmm_options *options)
{
    const struct backend *kind = backends_find(options->backend);

    if (kind && kind->functions->wake)
        kind->functions->wake();
}

/* Returns true if the description is of a device of this kind. */
static bool fits(const struct vmm_description *description, const struct backend *kind)
{
    uint64_t granularity = description->granularity_bytes;

    return strncmp(description->backend, kind->name, sizeof(description->backend)) == 0 &&
           granularity > 0 && (granularity & (granularity - 1)) == 0 &&
           description->total_bytes >= granularity && description->total_bytes % granularity == 0;
}

/* Copies the description; makes sure that its texts end. */
static void fill_device(struct vmm_device *device, const struct vmm_description *from)
{
    snprintf(device->name, sizeof(device->name), "%.63s", from->name);
    memcpy(device->uuid, from->uuid, sizeof(device->uuid));
    snprintf(device->pci_id, sizeof(device->pci_id), "%.15s", from->pci_id);
    snprintf(device->version_name, sizeof(device->version_name), "%.15s", from->version_name);
    snprintf(device->version, sizeof(device->version), "%.15s", from->version);
    device->granularity_bytes = from->granularity_bytes;
    device->total_bytes = from->total_bytes;
    device->physical_bytes = from->physical_bytes;
    device->create_threads = from->create_threads;
    device->free_threads = from->free_threads;
    device->flags = from->flags;
}

static int open_backend(struct vmm *vmm, const char *root, const struct vmm_options *options,
                        const struct vmm_description *description, char *why, size_t why_bytes)
{
    if (!description || !vmm->backend->reopen || !fits(description, vmm->kind))
        return vmm->backend->open(root, options, &vmm->device, why, why_bytes);
    fill_device(&vmm->device, description);
    return vmm->backend->reopen(root, options, &vmm->device, why, why_bytes);
}

static int open_under(const char *root, const struct vmm_options *options,
                      const struct vmm_description *description, struct vmm **vmm, char *why,
                      size_t why_bytes)
{
    struct vmm *made;

    if (why_bytes)
        why[0] = '\0';
    const struct backend *kind = find_backend(options->backend, why, why_bytes);
    if (!kind)
        return -EINVAL;
    made = calloc(1, sizeof(*made));
    if (!made) {
        snprintf(why, why_bytes, "device %s: out of memory", kind->name);
        return -ENOMEM;
    }
    made->kind = kind;
    made->backend = kind->functions;
    health_init(&made->health);
    made->device.health = &made->health;
    measurement_init(&made->measurement);
    made->device.measurement = &made->measurement;
    int error = open_backend(made, root, options, description, why, why_bytes);
    if (error == 0) {
        error = vmm_open_beside(made, root, options, why, why_bytes);
        if (error < 0)
            made->backend->close(&made->device);
    }
    if (error < 0) {
        measurement_destroy(&made->measurement);
        health_destroy(&made->health);
        free(made);
        return error;
    }
    assert(made->device.total_bytes >= made->device.granularity_bytes);
    assert(made->device.total_bytes % made->device.granularity_bytes == 0);
    *vmm = made;
    return 0;
}

int vmm_open_under(const char *root, const struct vmm_options *options, struct vmm **vmm, char *why,
                   size_t why_bytes)
{
    return open_under(root, options, NULL, vmm, why, why_bytes);
}

int vmm_open(const struct vmm_options *options, struct vmm **vmm, char *why, size_t why_bytes)
{
    return open_under("", options, NULL, vmm, why, why_bytes);
}

int vmm_reopen(const struct vmm_options *options, const struct vmm_description *description,
               struct vmm **vmm, char *why, size_t why_bytes)
{
    return open_under("", options, description, vmm, why, why_bytes);
}

void vmm_describe(const struct vmm *vmm, struct vmm_description *description)
{
    const struct vmm_device *device = &vmm->device;

    *description = (struct vmm_description){
        .granularity_bytes = device->granularity_bytes,
        .total_bytes = device->total_bytes,
        .physical_bytes = device->physical_bytes,
        .create_threads = device->create_threads,
        .free_threads = device->free_threads,
        .flags = device->flags,
    };
    snprintf(description->backend, sizeof(description->backend), "%s", vmm->kind->name);
    memcpy(description->name, device->name, sizeof(description->name));
    memcpy(description->uuid, device->uuid, sizeof(description->uuid));
    memcpy(description->pci_id, device->pci_id, sizeof(description->pci_id));
    memcpy(description->version_name, device->version_name, sizeof(description->version_name));
    memcpy(description->version, device->version, sizeof(description->version));
}

void vmm_close(struct vmm *vmm)
{
    if (!vmm)
        return;
    vmm->backend->close(&vmm->device);
    vmm_close_beside(vmm);
    measurement_destroy(&vmm->measurement);
    health_destroy(&vmm->health);
    free(vmm);
}

/* The account includes pieces that are still being made, so for moments it may exceed the device's
 * count. */
static void get_others(const struct vmm *vmm, struct vmm_info *info)
{
    info->knows_others = measurement_get(&vmm->measurement, &info->free_bytes);
    if (!info->knows_others) {
        info->free_bytes = 0;
        return;
    }
    uint64_t held_bytes = vmm->device.physical_bytes - info->free_bytes;
    if (info->free_bytes > vmm->device.physical_bytes || held_bytes < info->used_bytes)
        held_bytes = info->used_bytes;
    info->other_bytes = held_bytes - info->used_bytes;
}

void vmm_get_info(const struct vmm *vmm, struct vmm_info *info)
{
    memset(info, 0, sizeof(*info));
    snprintf(info->backend, sizeof(info->backend), "%s", vmm->kind->name);
    info->memory = vmm->kind->memory;
    memcpy(info->name, vmm->device.name, sizeof(info->name));
    memcpy(info->uuid, vmm->device.uuid, sizeof(info->uuid));
    info->granularity_bytes = vmm->device.granularity_bytes;
    info->total_bytes = vmm->device.total_bytes;
    info->host_total_bytes = vmm->beside[VMM_TIER_HOST].total_bytes;
    info->host_used_bytes = atomic_load(&vmm->taken_bytes[VMM_TIER_HOST]);
    info->spill_total_bytes = vmm->beside[VMM_TIER_DISK].total_bytes;
    info->spill_used_bytes = atomic_load(&vmm->taken_bytes[VMM_TIER_DISK]);
    info->aside_bytes = atomic_load(&vmm->aside_bytes);
    info->used_bytes = atomic_load(&vmm->taken_bytes[VMM_TIER_DEVICE]) - info->aside_bytes;
    memcpy(info->pci_id, vmm->device.pci_id, sizeof(info->pci_id));
    memcpy(info->version_name, vmm->device.version_name, sizeof(info->version_name));
    memcpy(info->version, vmm->device.version, sizeof(info->version));
    info->create_threads = vmm->device.create_threads;
    info->free_threads = vmm->device.free_threads;
    get_others(vmm, info);
}

bool vmm_measure(struct vmm *vmm)
{
    if (!vmm->backend->measure)
        return false;
    if (!measurement_begin(&vmm->measurement) || vmm->backend->measure(&vmm->device) == 0)
        return true;
    measurement_abandon(&vmm->measurement);
    return false;
}

void vmm_on_measurement(struct vmm *vmm, void (*call)(void *context), void *context)
{
    measurement_listen(&vmm->measurement, call, context);
}

void vmm_on_health(struct vmm *vmm, void (*call)(void *context), void *context)
{
    health_listen(&vmm->health, call, context);
}

bool vmm_take_health(struct vmm *vmm, struct vmm_health *news)
{
    return health_take(&vmm->health, news);
}

/* ---- account ------------------------------------------------------------------------------- */

int vmm_reserve(struct vmm *vmm, uint64_t bytes)
{
    assert(bytes % vmm->device.granularity_bytes == 0);
    return vmm_reserve_in(vmm, VMM_TIER_DEVICE, bytes);
}

void vmm_unreserve(struct vmm *vmm, uint64_t bytes)
{
    assert(bytes % vmm->device.granularity_bytes == 0);
    vmm_unreserve_in(vmm, VMM_TIER_DEVICE, bytes);
}

int vmm_set_aside(struct vmm *vmm, uint64_t bytes)
{
    uint64_t before = atomic_load(&vmm->aside_bytes);
    int error = 0;

    if (bytes > before)
        error = vmm_reserve(vmm, bytes - before);
    else if (bytes < before)
        vmm_unreserve(vmm, before - bytes);
    if (error == 0)
        atomic_store(&vmm->aside_bytes, bytes);
    return error;
}

uint64_t vmm_get_aside(const struct vmm *vmm)
{
    return atomic_load(&vmm->aside_bytes);
}

uint64_t vmm_get_free(const struct vmm *vmm)
{
    return vmm_get_free_in(vmm, VMM_TIER_DEVICE);
}

/* ---- pieces -------------------------------------------------------------------------------- */

/* `bytes`: of its memory. */
static int create(struct vmm *vmm, uint64_t size_bytes, uint64_t bytes, bool seal,
                  struct vmm_piece *piece)
{
    *piece = vmm_no_piece;
    /* beyond off_t, hence beyond any device */
    if (bytes < size_bytes || bytes > INT64_MAX)
        return -ENOMEM;
    int error = vmm->backend->create(&vmm->device, bytes, seal, piece);
    if (error < 0)
        return error;
    assert(piece->fd >= 0);
    piece->size_bytes = size_bytes;
    piece->aligned_bytes = bytes;
    piece->sealed = seal;
    return 0;
}

int vmm_create(struct vmm *vmm, uint64_t size_bytes, bool seal, struct vmm_piece *piece)
{
    *piece = vmm_no_piece;
    if (seal && size_bytes == 0)
        return -EINVAL;
    return create(vmm, size_bytes, vmm_align(vmm, size_bytes), seal, piece);
}

int vmm_create_exact(struct vmm *vmm, uint64_t size_bytes, struct vmm_piece *piece)
{
    if (!vmm->device.ends_anywhere || size_bytes == 0)
        return vmm_create(vmm, size_bytes, true, piece);
    return create(vmm, size_bytes, size_bytes, true, piece);
}

int vmm_create_untrimmed(struct vmm *vmm, uint64_t size_bytes, struct vmm_piece *piece)
{
    int error = vmm_create(vmm, size_bytes, !vmm->device.ends_anywhere, piece);

    piece->sealed = error == 0;
    return error;
}

int vmm_trim(struct vmm *vmm, struct vmm_piece *piece, uint64_t size_bytes)
{
    if (piece->fd < 0 || !piece->sealed || piece->tier != VMM_TIER_DEVICE || size_bytes == 0 ||
        size_bytes > piece->aligned_bytes)
        return -EINVAL;
    if (!vmm->device.ends_anywhere)
        return 0;
    int error = vmm->backend->trim(&vmm->device, piece, &size_bytes);
    if (error == 0)
        piece->aligned_bytes = size_bytes;
    return error;
}

int vmm_grow(struct vmm *vmm, struct vmm_piece *piece, uint64_t aligned_bytes)
{
    if (piece->fd < 0 || piece->sealed || aligned_bytes % vmm->device.granularity_bytes)
        return -EINVAL;
    if (aligned_bytes <= piece->aligned_bytes)
        return 0;
    if (aligned_bytes > INT64_MAX)
        return -ENOMEM;
    int error = vmm->backend->grow(&vmm->device, piece, aligned_bytes);
    if (error == 0)
        piece->aligned_bytes = aligned_bytes;
    return error;
}

bool vmm_can_settle(const struct vmm *vmm)
{
    return vmm->backend->settle != NULL;
}

int vmm_settle(struct vmm *vmm, struct vmm_piece *piece, uint64_t size_bytes)
{
    if (piece->fd < 0 || piece->sealed || size_bytes == 0 || size_bytes > piece->aligned_bytes)
        return -EINVAL;
    if (!vmm->backend->settle)
        return 0;
    return vmm->backend->settle(&vmm->device, piece, size_bytes, vmm_align(vmm, size_bytes));
}

int vmm_seal(struct vmm *vmm, struct vmm_piece *piece, uint64_t size_bytes)
{
    uint64_t aligned_bytes = vmm_align(vmm, size_bytes);

    if (piece->fd < 0 || piece->sealed || size_bytes > piece->aligned_bytes)
        return -EINVAL;
    int error = vmm->backend->seal(&vmm->device, piece, size_bytes, aligned_bytes);
    if (error < 0)
        return error;
    piece->size_bytes = size_bytes;
    piece->aligned_bytes = aligned_bytes;
    piece->sealed = true;
    return 0;
}

bool vmm_can_finish(const struct vmm *vmm)
{
    return vmm->backend->finish != NULL;
}

static int finish(struct vmm *vmm, const struct vmm_piece *piece, bool immutable)
{
    if (piece->fd < 0 || !piece->sealed || piece->tier != VMM_TIER_DEVICE)
        return -EINVAL;
    if (!vmm->backend->finish)
        return immutable ? -EOPNOTSUPP : 0;
    return vmm->backend->finish(&vmm->device, piece, immutable);
}

int vmm_finish(struct vmm *vmm, const struct vmm_piece *piece)
{
    return finish(vmm, piece, false);
}

int vmm_make_immutable(struct vmm *vmm, const struct vmm_piece *piece)
{
    return finish(vmm, piece, true);
}

/* The caller has checked against the size; this guards the memory itself. */
static bool is_inside(const struct vmm_piece *piece, size_t bytes, uint64_t offset)
{
    return piece->fd >= 0 && bytes <= piece->aligned_bytes &&
           offset <= piece->aligned_bytes - bytes;
}

int vmm_read(struct vmm *vmm, const struct vmm_piece *piece, void *to, size_t bytes,
             uint64_t offset)
{
    if (!is_inside(piece, bytes, offset))
        return -EINVAL;
    return vmm_backend_of(vmm, piece)->read(vmm_device_of(vmm, piece), piece, to, bytes, offset);
}

int vmm_write(struct vmm *vmm, struct vmm_piece *piece, const void *from, size_t bytes,
              uint64_t offset)
{
    if (!is_inside(piece, bytes, offset))
        return -EINVAL;
    return vmm_backend_of(vmm, piece)->write(vmm_device_of(vmm, piece), piece, from, bytes, offset);
}

bool vmm_is_held(const struct vmm_piece *piece)
{
    return piece->immutable && memfd_is_held(piece->fd_readonly);
}

bool vmm_tells_holders(const struct vmm *vmm)
{
    return vmm_can_finish(vmm) && memfd_tells_holders();
}

int vmm_duplicate(struct vmm *vmm, const struct vmm_piece *piece, bool writable, int *fd)
{
    const struct vmm_backend *backend = vmm_backend_of(vmm, piece);
    int made;

    if (piece->fd < 0 || !piece->sealed)
        return -EINVAL;
    if (backend->duplicate) {
        made = backend->duplicate(vmm_device_of(vmm, piece), piece, writable);
    } else {
        made = fcntl(writable ? piece->fd : piece->fd_readonly, F_DUPFD_CLOEXEC, 0);
        made = made < 0 ? -errno : made;
    }
    if (made < 0)
        return made;
    *fd = made;
    return 0;
}

/* Lends a copy. */
static int lend_copy(struct vmm *vmm, const struct vmm_piece *piece, const struct vmm_span *span,
                     struct vmm_loan *loan)
{
    void *buffer = malloc(span->bytes ? span->bytes : 1);

    if (!buffer)
        return -ENOMEM;
    int error = vmm_backend_of(vmm, piece)
                    ->read(vmm_device_of(vmm, piece), piece, buffer, span->bytes, span->offset);
    if (error < 0) {
        free(buffer);
        return error;
    }
    *loan = (struct vmm_loan){.count = 1, .buffer = buffer};
    loan->parts[0].at = buffer;
    loan->parts[0].bytes = span->bytes;
    return 0;
}

int vmm_lend(struct vmm *vmm, const struct vmm_piece *piece, const struct vmm_span *span,
             struct vmm_loan *loan)
{
    int error = -EOPNOTSUPP;

    if (!is_inside(piece, span->bytes, span->offset))
        return -EINVAL;
    if (vmm->backend->lend && piece->tier == VMM_TIER_DEVICE)
        error = vmm->backend->lend(&vmm->device, piece, span, loan);
    return error == -EOPNOTSUPP ? lend_copy(vmm, piece, span, loan) : error;
}

int vmm_lend_now(struct vmm *vmm, const struct vmm_piece *piece, const struct vmm_span *span,
                 struct vmm_loan *loan)
{
    if (!vmm->backend->lend_now || piece->tier != VMM_TIER_DEVICE ||
        !is_inside(piece, span->bytes, span->offset))
        return -EAGAIN;
    return vmm->backend->lend_now(&vmm->device, piece, span, loan);
}

void vmm_end_loan(struct vmm *vmm, struct vmm_loan *loan)
{
    if (loan->buffer)
        free(loan->buffer);
    else if (loan->count > 0 && vmm->backend->end_loan)
        vmm->backend->end_loan(&vmm->device, loan);
    *loan = (struct vmm_loan){0};
}

void vmm_end_reader(struct vmm *vmm, uint64_t reader)
{
    if (vmm->backend->end_reader)
        vmm->backend->end_reader(&vmm->device, reader);
}

void vmm_rest(struct vmm *vmm)
{
    if (vmm->backend->rest)
        vmm->backend->rest(&vmm->device);
}

bool vmm_can_rest(const struct vmm *vmm)
{
    return vmm->backend->rest != NULL;
}

void vmm_drop_former(struct vmm_piece *piece)
{
    while (piece->former_count > 0)
        close(piece->former[--piece->former_count]);
}

void vmm_destroy(struct vmm *vmm, struct vmm_piece *piece)
{
    const struct vmm_backend *backend = vmm_backend_of(vmm, piece);

    vmm_drop_former(piece);
    if (piece->fd >= 0 && backend->release)
        backend->release(vmm_device_of(vmm, piece), piece);
    if (piece->fd >= 0 && vmm->backend->forget && piece->tier == VMM_TIER_HOST)
        vmm->backend->forget(&vmm->device, piece);
    if (piece->fd_readonly >= 0 && piece->fd_readonly != piece->fd)
        close(piece->fd_readonly);
    if (piece->fd >= 0)
        close(piece->fd);
    *piece = vmm_no_piece;
}
