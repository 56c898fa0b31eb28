/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/gpu.h"

#include "base/clock.h"
#include "vmm/memfd.h"

#include "base/log.h"
#include "vmm/copier_client.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOOK_AGAIN_MS 200

/* ---- spools --------------------------------------------------------------------------------- */

/* On helper threads. A spool is a memfd that only this thread writes to while its bytes are copied
 * from host memory to the GPU. */

#define WINDOW_BYTES (UINT64_C(64) << 20)

/* Copies the first `size_bytes` of the spool to piece->made, which exists. The bytes behind are
 * zero, as the driver made them. */
static int spool_upload(struct copier_client *copier, struct vmm_piece *piece, uint64_t size_bytes)
{
    struct copier_piece to = {
        .serial = piece->made.serial,
        .bytes = piece->made.aligned_bytes,
        .fd = piece->made.fd,
    };
    int error = 0;

    while (error == 0 && piece->made.clean_bytes < size_bytes) {
        uint64_t at = piece->made.clean_bytes;
        uint64_t start = at - at % WINDOW_BYTES;
        uint64_t end = size_bytes - start < WINDOW_BYTES ? size_bytes : start + WINDOW_BYTES;
        char *map =
            mmap(NULL, end - start, PROT_READ, MAP_SHARED | MAP_NORESERVE, piece->fd, (off_t)start);

        if (map == MAP_FAILED)
            return -errno;
        madvise(map, end - start,
                MADV_DONTFORK); /* in another process it would outlive the piece */
        error = copier_client_write(copier, &to, map + (at - start), end - at, at);
        munmap(map, end - start);
        if (error == 0)
            piece->made.clean_bytes = end;
    }
    return error;
}

struct gpu {
    const struct gpu_driver *driver;
    void *context;                /* of the driver */
    struct monitor *monitor;      /* NULL: there is no library to ask */
    _Atomic uint64_t next_serial; /* of pieces */
    struct copier_client *copier;
    struct vmm_device spools; /* host memory; no state: not opened */
};

/* ---- pieces -------------------------------------------------------------------------------- */

/* Checks a single "no device" of the driver: the management library decides, and if it is silent,
 * the driver when asked again. */
static int look_again(const struct vmm_device *device, uint64_t bytes, int *fd)
{
    struct gpu *gpu = device->state;
    enum monitor_word word = gpu->monitor ? monitor_look(gpu->monitor) : MONITOR_SILENT;
    char why[VMM_WHY_BYTES] = "the driver says twice that there is no device";
    int error = -ENODEV;

    if (word != MONITOR_GONE) {
        clock_pause_ms(LOOK_AGAIN_MS);
        error = gpu->driver->create(gpu->context, bytes, fd);
    }
    if (word == MONITOR_GONE)
        snprintf(why, sizeof(why), "%s says that the GPU is lost", gpu->driver->source->name);
    if (error == -ENODEV && word != MONITOR_THERE)
        health_report_lost(device->health, why);
    return error;
}

static int create_surely(struct vmm_device *device, uint64_t bytes, int *fd)
{
    struct gpu *gpu = device->state;
    int error = gpu->driver->create(gpu->context, bytes, fd);

    /* the caller decides by the memory that other processes hold */
    if (error == -ENOMEM && gpu->monitor)
        monitor_refresh(gpu->monitor);
    return error == -ENODEV ? look_again(device, bytes, fd) : error;
}

static uint64_t take_serial(struct gpu *gpu)
{
    return atomic_fetch_add(&gpu->next_serial, 1) + 1;
}

/* Readers get the same descriptor: the driver imports none as read-only. */
int gpu_create(struct vmm_device *device, uint64_t aligned_bytes, bool seal,
               struct vmm_piece *piece)
{
    struct gpu *gpu = device->state;
    int fd, error;

    if (!seal)
        return vmm_backend_host.create(&gpu->spools, aligned_bytes, seal, piece);
    error = create_surely(device, aligned_bytes, &fd);
    if (error < 0)
        return error;
    piece->fd = piece->fd_readonly = fd;
    piece->serial = take_serial(gpu);
    return 0;
}

int gpu_adopt(struct vmm_device *device, struct vmm_piece *piece)
{
    struct gpu *gpu = device->state;

    /* a spool that is no file any more has become the device's memory */
    if (!piece->sealed && memfd_is_file(piece->fd))
        return vmm_backend_host.adopt(&gpu->spools, piece);
    piece->sealed = true;
    piece->serial = take_serial(gpu);
    return 0;
}

void gpu_release(struct vmm_device *device, const struct vmm_piece *piece)
{
    const struct gpu *gpu = device->state;

    if (piece->sealed)
        copier_client_forget(gpu->copier, piece->serial);
    if (piece->made.exists) {
        copier_client_forget(gpu->copier, piece->made.serial);
        close(piece->made.fd);
    }
}

/* ---- bytes --------------------------------------------------------------------------------- */

static struct copier_piece describe_piece(const struct vmm_piece *piece)
{
    return (struct copier_piece){
        .serial = piece->serial, .bytes = piece->aligned_bytes, .fd = piece->fd};
}

int gpu_lend(struct vmm_device *device, const struct vmm_piece *piece, const struct vmm_span *span,
             struct vmm_loan *loan)
{
    const struct gpu *gpu = device->state;
    struct copier_piece known = describe_piece(piece);

    if (!piece->sealed)
        return -EOPNOTSUPP;
    return copier_client_lend(gpu->copier, &known, span, loan);
}

int gpu_lend_now(struct vmm_device *device, const struct vmm_piece *piece,
                 const struct vmm_span *span, struct vmm_loan *loan)
{
    const struct gpu *gpu = device->state;
    struct copier_piece known = describe_piece(piece);

    if (!piece->sealed)
        return -EAGAIN;
    return copier_client_lend_now(gpu->copier, &known, span, loan);
}

void gpu_end_loan(struct vmm_device *device, struct vmm_loan *loan)
{
    const struct gpu *gpu = device->state;

    copier_client_end_loan(gpu->copier, loan);
}

void gpu_end_reader(struct vmm_device *device, uint64_t reader)
{
    const struct gpu *gpu = device->state;

    copier_client_end_reader(gpu->copier, reader);
}

void gpu_rest(struct vmm_device *device)
{
    const struct gpu *gpu = device->state;

    copier_client_rest(gpu->copier);
}

int gpu_read(struct vmm_device *device, const struct vmm_piece *piece, void *to, size_t bytes,
             uint64_t offset)
{
    struct gpu *gpu = device->state;
    struct vmm_loan loan;
    char *at = to;
    int error = 0;

    if (!piece->sealed)
        return vmm_backend_host.read(&gpu->spools, piece, to, bytes, offset);
    while (error == 0 && bytes > 0) {
        struct vmm_span span = {.offset = offset, .bytes = bytes};

        error = gpu_lend(device, piece, &span, &loan);
        if (error < 0)
            break;
        memcpy(at, loan.parts[0].at, loan.parts[0].bytes);
        at += loan.parts[0].bytes;
        offset += loan.parts[0].bytes;
        bytes -= loan.parts[0].bytes;
        gpu_end_loan(device, &loan);
    }
    return error;
}

int gpu_write(struct vmm_device *device, struct vmm_piece *piece, const void *from, size_t bytes,
              uint64_t offset)
{
    struct gpu *gpu = device->state;
    struct copier_piece known = describe_piece(piece);

    if (piece->sealed)
        return copier_client_write(gpu->copier, &known, from, bytes, offset);
    if (offset < piece->made.clean_bytes)
        piece->made.clean_bytes = offset;
    return vmm_backend_host.write(&gpu->spools, piece, from, bytes, offset);
}

int gpu_move(struct vmm_device *device, const struct vmm_piece *piece,
             const struct vmm_piece *other, bool out, uint64_t offset, uint64_t bytes)
{
    struct gpu *gpu = device->state;
    struct copier_piece known = describe_piece(piece);
    struct copier_file file = {.serial = other->serial, .fd = other->fd};

    return copier_client_move(gpu->copier, &known, &file, out, offset, bytes);
}

void gpu_forget(struct vmm_device *device, const struct vmm_piece *other)
{
    const struct gpu *gpu = device->state;

    copier_client_forget_file(gpu->copier, other->serial);
}

/* ---- spools -------------------------------------------------------------------------------- */

int gpu_grow(struct vmm_device *device, const struct vmm_piece *piece, uint64_t aligned_bytes)
{
    struct gpu *gpu = device->state;

    return vmm_backend_host.grow(&gpu->spools, piece, aligned_bytes);
}

static void drop_made(const struct gpu *gpu, struct vmm_piece *piece)
{
    copier_client_forget(gpu->copier, piece->made.serial);
    close(piece->made.fd);
    piece->made.exists = false;
}

int gpu_settle(struct vmm_device *device, struct vmm_piece *piece, uint64_t size_bytes,
               uint64_t aligned_bytes)
{
    struct gpu *gpu = device->state;
    int error = 0;

    if (piece->made.exists && piece->made.aligned_bytes != aligned_bytes)
        drop_made(gpu, piece);
    if (!piece->made.exists) {
        error = create_surely(device, aligned_bytes, &piece->made.fd);
        if (error < 0)
            return error;
        piece->made.exists = true;
        piece->made.serial = take_serial(gpu);
        piece->made.aligned_bytes = aligned_bytes;
        piece->made.clean_bytes = 0;
    }
    return spool_upload(gpu->copier, piece, size_bytes);
}

int gpu_seal(struct vmm_device *device, struct vmm_piece *piece, uint64_t size_bytes,
             uint64_t aligned_bytes)
{
    int error = gpu_settle(device, piece, size_bytes, aligned_bytes);

    if (error < 0)
        return error;
    piece->former_count = 2;
    piece->former[0] = piece->fd;
    piece->former[1] = piece->fd_readonly;
    piece->fd = piece->fd_readonly = piece->made.fd;
    piece->serial = piece->made.serial;
    piece->made.exists = false;
    return 0;
}

int gpu_measure(struct vmm_device *device)
{
    struct gpu *gpu = device->state;

    return gpu->monitor ? monitor_measure(gpu->monitor) : -EOPNOTSUPP;
}

/* ---- opening ------------------------------------------------------------------------------- */

static void start_monitor(struct gpu *gpu, const struct vmm_device *device, bool is_late)
{
    char why[256];

    if (!gpu->driver->source)
        return;
    if (monitor_new(gpu->driver->source, gpu->driver->name, device->uuid, device->health,
                    device->measurement, is_late, &gpu->monitor, why, sizeof(why)) < 0)
        log_info(
            "device %s: the memory that other processes hold and the GPU's errors are unknown: %s",
            gpu->driver->name, why);
}

static int open_copier(struct gpu *gpu, const struct vmm_options *options,
                       const struct vmm_device *device, char *why, size_t why_bytes)
{
    struct copier_client_options copier = {
        .driver = gpu->driver->name,
        .tool = gpu->driver->tool,
        .pci_id = device->pci_id,
        .idle_ms = options->copier_idle_ms,
        .stays = options->host_bytes > 0,
    };

    memcpy(copier.uuid, device->uuid, sizeof(copier.uuid));
    int error = copier_client_new(&copier, &gpu->copier);
    if (error < 0)
        snprintf(why, why_bytes,
                 "device %s: cannot prepare to move its bytes: %s; it needs memfd_create(2) and "
                 "free descriptors",
                 gpu->driver->name, strerror(-error));
    return error;
}

static void gpu_free(struct gpu *gpu)
{
    monitor_free(gpu->monitor);
    copier_client_free(gpu->copier);
    if (gpu->spools.state)
        vmm_backend_host.close(&gpu->spools);
    free(gpu);
}

int gpu_open(const char *root, const struct vmm_options *options, const struct gpu_driver *driver,
             void *context, bool is_late, struct vmm_device *device, char *why, size_t why_bytes)
{
    struct vmm_options spools = {
        .size_bytes = device->total_bytes,
        .granularity_bytes = device->granularity_bytes,
    };
    struct gpu *gpu = calloc(1, sizeof(*gpu));

    if (!gpu) {
        snprintf(why, why_bytes, "device %s: out of memory", driver->name);
        return -ENOMEM;
    }
    gpu->driver = driver;
    gpu->context = context;
    int error = open_copier(gpu, options, device, why, why_bytes);
    if (error == 0)
        error = vmm_backend_host.open(root, &spools, &gpu->spools, why, why_bytes);
    if (error < 0) {
        gpu_free(gpu);
        return error;
    }
    if (options->host_bytes > 0)
        copier_client_start(gpu->copier);
    start_monitor(gpu, device, is_late);
    device->state = gpu;
    return 0;
}

void gpu_close(struct vmm_device *device)
{
    struct gpu *gpu = device->state;
    const struct gpu_driver *driver = gpu->driver;
    void *context = gpu->context;

    gpu_free(gpu);
    driver->close(context);
    device->state = NULL;
}
