/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/copier_client_internal.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES  2u /* with a copier, and with the one after it */
#define SPARED 6u /* further ones, where a copier had to go for the sake of somebody else */

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* ---- one piece of bytes -------------------------------------------------------------------- */

/* A request for at most a block, to its end; its block stays held, also after a failure. */
static int move_block(struct cuda_bytes *bytes, const struct cuda_bytes_piece *piece,
                      unsigned place, struct copier_request request, char *why)
{
    unsigned slot;
    int rc = slot_take(bytes, piece, &slot, why);

    if (rc == 0) {
        request.slot = slot;
        rc = place_send(bytes, place, request, -1);
    }
    return rc < 0 ? rc : place_wait(bytes, place, why);
}

/* What it was told failed: another copier may succeed, for some errors spoil all that follows. */
static void tell(struct cuda_bytes *bytes, const struct copier_request *request, int rc,
                 const char *why)
{
    const char *doing = request->act == COPIER_GET ? "read" : "write";

    if (!complaints_may_log(&bytes->complaints))
        return;
    if (rc == -ETIMEDOUT)
        log_error("%s: cannot %s: the copier (process %d) did not answer for %u s and is killed; "
                  "the driver hangs: see nvidia-smi and dmesg",
                  bytes->name, doing, bytes->pid, bytes_hang_ms() / 1000);
    else
        log_error("%s: cannot %s %llu bytes at %llu of an allocation: %s", bytes->name, doing,
                  (unsigned long long)request->bytes, (unsigned long long)request->offset,
                  rc == -EPIPE
                      ? "one copier after the other ends; nvidia-smi and dmesg may tell why"
                      : why);
}

/* Once, by the copier of `attempt`. After success the place holds the block. */
static int try_move(struct cuda_bytes *bytes, const struct cuda_bytes_piece *piece,
                    const struct copier_request *request, const void *from, unsigned *place,
                    unsigned *attempt, char *why)
{
    int rc = place_take(bytes, 0, COPIER_BLOCKS, place);

    *attempt = bytes->attempts;
    if (rc < 0)
        return rc;
    if (from) { /* nobody else has the block: not under the mutex */
        pthread_mutex_unlock(&bytes->mutex);
        memcpy(block_of(bytes, *place), from, request->bytes);
        pthread_mutex_lock(&bytes->mutex);
        *attempt = bytes->attempts;
    }
    rc = move_block(bytes, piece, *place, *request, why);
    if (rc < 0)
        place_drop(bytes, *place);
    return rc;
}

/* What fails spoils the context for all that follows, perhaps: the copier is replaced. Who loses a
 * copier to bytes of others tries again, and does not fail with them. */
static int move(struct cuda_bytes *bytes, const struct cuda_bytes_piece *piece,
                struct copier_request request, const void *from, unsigned *place)
{
    char why[COPIER_WHY_BYTES] = "";
    unsigned tries = TRIES, spared = SPARED, attempt = 0;
    bool alone;
    int rc = 0, needed;

    while (tries > 0) {
        alone = suspect_is(bytes, piece->serial);
        suspect_enter(bytes, alone);
        needed = copier_need(bytes);
        rc = needed;
        if (rc == 0)
            rc = try_move(bytes, piece, &request, from, place, &attempt, why);
        suspect_leave(bytes, alone);
        if (rc == 0 || needed < 0)
            return rc;
        if (rc == -ETIMEDOUT)
            break;
        if (rc == -EPIPE && bytes->blamed == attempt && spared > 0) {
            spared--;
            continue;
        }
        tries--;
        if (rc == -EPIPE)
            continue;
        suspect_note(bytes, piece->serial);
        if (bytes->attempts == attempt) {
            bytes->blamed = attempt;
            copier_retire(bytes);
        }
    }
    tell(bytes, &request, rc, why);
    return rc == -ENODEV || rc == -ENOMEM ? rc : -EIO;
}

/* ---- what the backend calls ---------------------------------------------------------------- */

/* Out of what was, or is being, fetched for this reader. -ENOENT: that is nothing; -ETIMEDOUT */
static int lend_ahead(struct cuda_bytes *bytes, const struct cuda_bytes_piece *piece,
                      const struct vmm_span *span, struct vmm_loan *loan)
{
    unsigned place = 0;
    int rc;

    while ((rc = ahead_lend(bytes, piece, span, loan, &place)) == -EAGAIN) {
        bytes->places[place].holders++;
        rc = place_wait(bytes, place, NULL);
        place_drop(bytes, place);
        if (rc == -ETIMEDOUT)
            break;
    }
    return rc;
}

int cuda_bytes_lend(struct cuda_bytes *bytes, const struct cuda_bytes_piece *piece,
                    const struct vmm_span *span, struct vmm_loan *loan)
{
    struct copier_request get = {
        .act = COPIER_GET,
        .offset = span->offset,
        .bytes = span->bytes < COPIER_BLOCK_BYTES ? span->bytes : COPIER_BLOCK_BYTES,
    };
    unsigned place;
    int rc;

    pthread_mutex_lock(&bytes->mutex);
    rc = lend_ahead(bytes, piece, span, loan);
    if (rc == -ETIMEDOUT) {
        tell(bytes, &get, rc, NULL);
        rc = -EIO;
    } else if (rc < 0) {
        rc = move(bytes, piece, get, NULL, &place);
        if (rc == 0) {
            *loan = (struct vmm_loan){.count = 1};
            loan->parts[0].at = block_of(bytes, place);
            loan->parts[0].bytes = get.bytes;
            loan->parts[0].place = place;
            ahead_note(bytes, piece, span, get.bytes);
        }
    }
    pthread_mutex_unlock(&bytes->mutex);
    return rc;
}

int cuda_bytes_lend_now(struct cuda_bytes *bytes, const struct cuda_bytes_piece *piece,
                        const struct vmm_span *span, struct vmm_loan *loan)
{
    unsigned place;
    int rc;

    if (!span->reader || pthread_mutex_trylock(&bytes->mutex) != 0)
        return -EAGAIN;
    rc = ahead_lend(bytes, piece, span, loan, &place);
    pthread_mutex_unlock(&bytes->mutex);
    return rc == 0 ? 0 : -EAGAIN;
}

void cuda_bytes_end_loan(struct cuda_bytes *bytes, struct vmm_loan *loan)
{
    pthread_mutex_lock(&bytes->mutex);
    for (unsigned i = 0; i < loan->count; i++)
        place_drop(bytes, loan->parts[i].place);
    pthread_mutex_unlock(&bytes->mutex);
    loan->count = 0;
}

void cuda_bytes_end_reader(struct cuda_bytes *bytes, uint64_t reader)
{
    pthread_mutex_lock(&bytes->mutex);
    aheads_drop_reader(bytes, reader);
    pthread_mutex_unlock(&bytes->mutex);
}

int cuda_bytes_write(struct cuda_bytes *bytes, const struct cuda_bytes_piece *piece,
                     const void *from, size_t count, uint64_t offset)
{
    const char *at = from;
    unsigned place;
    int rc = 0;

    while (rc == 0 && count > 0) {
        struct copier_request put = {
            .act = COPIER_PUT,
            .offset = offset,
            .bytes = count < COPIER_BLOCK_BYTES ? count : COPIER_BLOCK_BYTES,
        };

        pthread_mutex_lock(&bytes->mutex);
        rc = move(bytes, piece, put, at, &place);
        if (rc == 0)
            place_drop(bytes, place);
        pthread_mutex_unlock(&bytes->mutex);
        at += put.bytes;
        offset += put.bytes;
        count -= put.bytes;
    }
    return rc;
}

void cuda_bytes_forget(struct cuda_bytes *bytes, uint64_t serial)
{
    pthread_mutex_lock(&bytes->mutex);
    aheads_drop_piece(bytes, serial);
    slot_forget(bytes, serial);
    pthread_mutex_unlock(&bytes->mutex);
}

/* ---- beginning and end --------------------------------------------------------------------- */

/* Its pages are there only while a copier is. It cannot be made smaller behind our back. */
static int make_ring(struct cuda_bytes *bytes)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create("gmsfs-ring", flags | MFD_NOEXEC_SEAL);
    void *at;

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("gmsfs-ring", flags);
    if (fd < 0)
        return -errno;
    bytes->ring_fd = fd;
    if (ftruncate(fd, (off_t)COPIER_SHARED_BYTES) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 || fchmod(fd, 0) < 0)
        return -errno;
    at = mmap(NULL, COPIER_SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    bytes->shared = at;
    bytes->shared->magic = COPIER_MAGIC;
    memcpy(bytes->shared->uuid, bytes->options.uuid, sizeof(bytes->shared->uuid));
    return 0;
}

static void init_lock(struct cuda_bytes *bytes)
{
    pthread_condattr_t clock;

    pthread_mutex_init(&bytes->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&bytes->changed, &clock);
    pthread_condattr_destroy(&clock);
}

int cuda_bytes_new(const struct cuda_bytes_options *options, struct cuda_bytes **made)
{
    struct cuda_bytes *bytes = calloc(1, sizeof(*bytes));
    int rc;

    if (!bytes)
        return -ENOMEM;
    bytes->options = *options;
    bytes->ring_fd = bytes->socket = -1;
    snprintf(bytes->name, sizeof(bytes->name), "device cuda (%s)", options->pci_id);
    for (unsigned i = 0; i < COPIER_PLACES; i++)
        bytes->places[i].slot = -1;
    init_lock(bytes);
    complaints_init(&bytes->complaints, "failures of GPU memory's bytes");
    rc = make_ring(bytes);
    if (rc < 0)
        cuda_bytes_free(bytes);
    else
        *made = bytes;
    return rc;
}

void cuda_bytes_free(struct cuda_bytes *bytes)
{
    if (!bytes)
        return;
    pthread_mutex_lock(&bytes->mutex);
    bytes->closing = true;
    if (bytes->socket >= 0)
        shutdown(bytes->socket, SHUT_RDWR);
    while (bytes->watched)
        pthread_cond_wait(&bytes->changed, &bytes->mutex);
    pthread_mutex_unlock(&bytes->mutex);
    if (bytes->shared)
        munmap(bytes->shared, COPIER_SHARED_BYTES);
    if (bytes->ring_fd >= 0)
        close(bytes->ring_fd);
    complaints_end(&bytes->complaints);
    pthread_cond_destroy(&bytes->changed);
    pthread_mutex_destroy(&bytes->mutex);
    free(bytes);
}
