/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda - memory of a GPU: created by the driver, exported once, held as the descriptor
 *
 * The driver's handle is released as soon as the descriptor is there; from then on the memory is
 * the descriptor's, as on the host. Nothing here makes a context or maps memory of the device: the
 * process is charged none of it. So bytes are moved by another process (copier_client.h). The
 * driver clears memory that it hands to another process; `make gpu-check` looks. A spool is host
 * memory, made by the host's backend, until it is sealed.
 */
#include "vmm/cuda_internal.h"

#include "base/log.h"
#include "base/size.h"
#include "vmm/spool_upload.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_AGAIN_MS 200

/* ---- pieces -------------------------------------------------------------------------------- */

/* The driver's error is the log's; the client learns what it can act on. */
static int fail(struct cuda *cuda, const char *call, enum drv_result result, uint64_t bytes)
{
    char why[256], size[SIZE_TEXT_BYTES];
    int rc = drv_explain(cuda->driver, call, result, why, sizeof(why));

    if (rc == -ENOMEM)
        return rc;
    if (complaints_may_log(&cuda->complaints))
        log_error("device cuda: %s, for %s", why, size_format(bytes, size));
    return rc == -ENODEV ? rc : -EIO;
}

/* The driver does not say that descriptors have run out. */
static int why_no_descriptor(int rc)
{
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);

    if (fd < 0)
        return errno == EMFILE ? -EMFILE : rc;
    close(fd);
    return rc;
}

static int create_in_turn(struct cuda *cuda, uint64_t bytes, int *fd)
{
    const struct drv *driver = cuda->driver;
    drv_memory memory;
    enum drv_result result;
    int rc = 0;

    patience_begin(cuda->patience, "cuMemCreate");
    result = driver->cuMemCreate(&memory, bytes, &cuda->prop, 0);
    if (result != DRV_SUCCESS)
        return fail(cuda, "cuMemCreate", result, bytes);
    patience_begin(cuda->patience, "cuMemExportToShareableHandle");
    result = driver->cuMemExportToShareableHandle(fd, memory, DRV_HANDLE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != DRV_SUCCESS)
        rc = why_no_descriptor(fail(cuda, "cuMemExportToShareableHandle", result, bytes));
    patience_begin(cuda->patience, "cuMemRelease");
    result = driver->cuMemRelease(memory);
    if (result != DRV_SUCCESS) /* it would stay until this process ends */
        fail(cuda, "cuMemRelease", result, bytes);
    if (rc == 0)
        fcntl(*fd, F_SETFD, FD_CLOEXEC);
    return rc;
}

int cuda_create_memory(struct cuda *cuda, uint64_t bytes, int *fd)
{
    int rc;

    pthread_mutex_lock(&cuda->turn);
    rc = create_in_turn(cuda, bytes, fd);
    patience_end(cuda->patience);
    pthread_mutex_unlock(&cuda->turn);
    return rc;
}

/* One call that says "no device" proves nothing: NVML has the word, and where it has none, the
 * driver when asked again. */
static int look_again(const struct vmm_device *device, uint64_t bytes, int *fd)
{
    struct cuda *cuda = device->state;
    enum cuda_watch_word word = cuda->watch ? cuda_watch_look(cuda->watch) : CUDA_WATCH_SILENT;
    int rc = -ENODEV;

    if (word != CUDA_WATCH_GONE) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_MS * 1000000L}, NULL);
        rc = cuda_create_memory(cuda, bytes, fd);
    }
    if (rc == -ENODEV && word != CUDA_WATCH_THERE)
        health_report_lost(device->health, word == CUDA_WATCH_GONE
                                               ? "NVML says that the GPU is lost"
                                               : "the driver says twice that there is no device");
    return rc;
}

static int create_surely(struct vmm_device *device, uint64_t bytes, int *fd)
{
    int rc = cuda_create_memory(device->state, bytes, fd);

    return rc == -ENODEV ? look_again(device, bytes, fd) : rc;
}

static uint64_t take_serial(struct cuda *cuda)
{
    return atomic_fetch_add(&cuda->next_serial, 1) + 1;
}

/* Readers get the same descriptor: there is none that the driver would import read-only. */
static int cuda_create(struct vmm_device *device, uint64_t aligned_bytes, bool seal,
                       struct vmm_piece *piece)
{
    struct cuda *cuda = device->state;
    int fd, rc;

    if (!seal)
        return vmm_backend_host.create(&cuda->spools, aligned_bytes, seal, piece);
    rc = create_surely(device, aligned_bytes, &fd);
    if (rc < 0)
        return rc;
    piece->fd = piece->fd_readonly = fd;
    piece->serial = take_serial(cuda);
    return 0;
}

static void cuda_release(struct vmm_device *device, const struct vmm_piece *piece)
{
    const struct cuda *cuda = device->state;

    if (piece->sealed)
        copier_client_forget(cuda->copier, piece->serial);
    if (piece->made.exists) {
        copier_client_forget(cuda->copier, piece->made.serial);
        close(piece->made.fd);
    }
}

/* ---- bytes --------------------------------------------------------------------------------- */

static struct copier_piece describe_piece(const struct vmm_piece *piece)
{
    return (struct copier_piece){
        .serial = piece->serial, .bytes = piece->aligned_bytes, .fd = piece->fd};
}

static int cuda_lend(struct vmm_device *device, const struct vmm_piece *piece,
                     const struct vmm_span *span, struct vmm_loan *loan)
{
    const struct cuda *cuda = device->state;
    struct copier_piece known = describe_piece(piece);

    if (!piece->sealed)
        return -EOPNOTSUPP;
    return copier_client_lend(cuda->copier, &known, span, loan);
}

static int cuda_lend_now(struct vmm_device *device, const struct vmm_piece *piece,
                         const struct vmm_span *span, struct vmm_loan *loan)
{
    const struct cuda *cuda = device->state;
    struct copier_piece known = describe_piece(piece);

    if (!piece->sealed)
        return -EAGAIN;
    return copier_client_lend_now(cuda->copier, &known, span, loan);
}

static void cuda_end_loan(struct vmm_device *device, struct vmm_loan *loan)
{
    const struct cuda *cuda = device->state;

    copier_client_end_loan(cuda->copier, loan);
}

static void cuda_end_reader(struct vmm_device *device, uint64_t reader)
{
    const struct cuda *cuda = device->state;

    copier_client_end_reader(cuda->copier, reader);
}

static int cuda_read(struct vmm_device *device, const struct vmm_piece *piece, void *to,
                     size_t bytes, uint64_t offset)
{
    struct cuda *cuda = device->state;
    struct vmm_loan loan;
    char *at = to;
    int rc = 0;

    if (!piece->sealed)
        return vmm_backend_host.read(&cuda->spools, piece, to, bytes, offset);
    while (rc == 0 && bytes > 0) {
        struct vmm_span span = {.offset = offset, .bytes = bytes};

        rc = cuda_lend(device, piece, &span, &loan);
        if (rc < 0)
            break;
        memcpy(at, loan.parts[0].at, loan.parts[0].bytes);
        at += loan.parts[0].bytes;
        offset += loan.parts[0].bytes;
        bytes -= loan.parts[0].bytes;
        cuda_end_loan(device, &loan);
    }
    return rc;
}

static int cuda_write(struct vmm_device *device, struct vmm_piece *piece, const void *from,
                      size_t bytes, uint64_t offset)
{
    struct cuda *cuda = device->state;
    struct copier_piece known = describe_piece(piece);

    if (piece->sealed)
        return copier_client_write(cuda->copier, &known, from, bytes, offset);
    if (offset < piece->made.clean_bytes)
        piece->made.clean_bytes = offset;
    return vmm_backend_host.write(&cuda->spools, piece, from, bytes, offset);
}

/* ---- spools -------------------------------------------------------------------------------- */

static int cuda_grow(struct vmm_device *device, const struct vmm_piece *piece,
                     uint64_t aligned_bytes)
{
    struct cuda *cuda = device->state;

    return vmm_backend_host.grow(&cuda->spools, piece, aligned_bytes);
}

static void drop_made(const struct cuda *cuda, struct vmm_piece *piece)
{
    copier_client_forget(cuda->copier, piece->made.serial);
    close(piece->made.fd);
    piece->made.exists = false;
}

static int cuda_settle(struct vmm_device *device, struct vmm_piece *piece, uint64_t size_bytes,
                       uint64_t aligned_bytes)
{
    struct cuda *cuda = device->state;
    int rc = 0;

    if (piece->made.exists && piece->made.aligned_bytes != aligned_bytes)
        drop_made(cuda, piece);
    if (!piece->made.exists) {
        rc = create_surely(device, aligned_bytes, &piece->made.fd);
        if (rc < 0)
            return rc;
        piece->made.exists = true;
        piece->made.serial = take_serial(cuda);
        piece->made.aligned_bytes = aligned_bytes;
        piece->made.clean_bytes = 0;
    }
    return spool_upload(cuda->copier, piece, size_bytes);
}

static int cuda_seal(struct vmm_device *device, struct vmm_piece *piece, uint64_t size_bytes,
                     uint64_t aligned_bytes)
{
    int rc = cuda_settle(device, piece, size_bytes, aligned_bytes);

    if (rc < 0)
        return rc;
    piece->former_count = 2;
    piece->former[0] = piece->fd;
    piece->former[1] = piece->fd_readonly;
    piece->fd = piece->fd_readonly = piece->made.fd;
    piece->serial = piece->made.serial;
    piece->made.exists = false;
    return 0;
}

static int cuda_measure(struct vmm_device *device, uint64_t *free_bytes)
{
    struct cuda *cuda = device->state;

    return cuda->watch ? cuda_watch_measure(cuda->watch, free_bytes) : -EOPNOTSUPP;
}

const struct vmm_backend vmm_backend_cuda = {
    .open = cuda_open,
    .close = cuda_close,
    .create = cuda_create,
    .grow = cuda_grow,
    .settle = cuda_settle,
    .seal = cuda_seal,
    .read = cuda_read,
    .write = cuda_write,
    .lend = cuda_lend,
    .lend_now = cuda_lend_now,
    .end_loan = cuda_end_loan,
    .end_reader = cuda_end_reader,
    .release = cuda_release,
    .measure = cuda_measure,
};
