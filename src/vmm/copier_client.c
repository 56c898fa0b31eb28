/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/copier_client_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "vmm/memfd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- quarantine: pieces with recently failed requests --------------------------------------- */

/*
 * A request that fails costs all others the copier. So a piece with a failed request has the copier
 * alone from then on: repeated reads of it harm no other piece.
 */
#define QUARANTINE_MS 60000u
#define LOOK_AGAIN_MS 10u /* for requests without a waiting thread */

static bool quarantine_has(const struct copier_client *client, uint64_t serial)
{
    for (unsigned i = 0; i < QUARANTINE_PIECES; i++)
        if (client->quarantine[i].serial == serial &&
            client->quarantine[i].until_ms > clock_now_ms())
            return true;
    return false;
}

static void quarantine_add(struct copier_client *client, uint64_t serial)
{
    unsigned at = 0;

    for (unsigned i = 0; i < QUARANTINE_PIECES && client->quarantine[at].serial != serial; i++)
        if (client->quarantine[i].serial == serial ||
            client->quarantine[i].until_ms < client->quarantine[at].until_ms)
            at = i;
    client->quarantine[at].serial = serial;
    client->quarantine[at].until_ms = clock_now_ms() + QUARANTINE_MS;
}

/* Begins a request: waits while another one has the copier alone; if `alone`, until there is no
 * other one. */
static void quarantine_enter(struct copier_client *client, bool alone)
{
    uint64_t until_ms = clock_now_ms() + copier_client_hang_ms();

    while (client->alone)
        pthread_cond_wait(&client->changed, &client->mutex);
    client->alone = alone;
    while (alone && (client->movers > 0 || ring_is_pending(client)) && clock_now_ms() < until_ms)
        copier_client_wait_ms(client, LOOK_AGAIN_MS);
    client->movers++;
}

static void quarantine_leave(struct copier_client *client, bool alone)
{
    client->movers--;
    if (alone)
        client->alone = false;
    if (alone || client->movers == 0)
        pthread_cond_broadcast(&client->changed);
}

#define TRIES  2u /* with a copier, and with the next one */
#define SPARED 6u /* further tries, if a copier was replaced because of another piece */

/* ---- one piece of bytes -------------------------------------------------------------------- */

/* The work of one request. */
struct transfer {
    struct copier_request request; /* entry, sequence and window are set later */
    const void *from;              /* PUT: the bytes */
    int file;                      /* MOVE: the other side; else -1 */
};

/* Carries out a request to its end; its entry stays held, also after a failure. */
static int move_block(struct copier_client *client, const struct copier_piece *piece,
                      unsigned entry, const struct transfer *transfer, char *why)
{
    struct copier_request request = transfer->request;
    unsigned window;
    int error = window_take(client, piece, &window, why);

    if (error == 0) {
        request.window = window;
        error = ring_submit(client, entry, request, transfer->file);
    }
    return error < 0 ? error : ring_wait(client, entry, why);
}

/* Logs a failed transfer. */
static void tell(struct copier_client *client, const struct copier_request *request, int error,
                 const char *why)
{
    bool reads = request->act == COPIER_GET || request->act == COPIER_MOVE_OUT;
    const char *doing = reads ? "read" : "write";
    char died[COPIER_WHY_BYTES];

    if (!complaints_may_log(&client->complaints))
        return;
    snprintf(died, sizeof(died), "one copier after the other ends; %s and dmesg may tell why",
             client->options.tool);
    if (error == -ETIMEDOUT)
        log_error("%s: cannot %s: the copier (process %d) did not answer for %u s and is killed; "
                  "the driver hangs: see %s and dmesg",
                  client->name, doing, client->pid, copier_client_hang_ms() / 1000,
                  client->options.tool);
    else
        log_error("%s: cannot %s %llu bytes at %llu of an allocation: %s", client->name, doing,
                  (unsigned long long)request->bytes, (unsigned long long)request->offset,
                  error == -EPIPE ? died : why);
}

/* Tries once, with the copier of `attempt`. After success the entry holds the block. */
static int try_move(struct copier_client *client, const struct copier_piece *piece,
                    const struct transfer *transfer, unsigned *entry, unsigned *attempt, char *why)
{
    bool is_move = transfer->file >= 0;
    int error = ring_take(client, is_move ? COPIER_FIRST_MOVE : 0,
                          is_move ? COPIER_MOVES : COPIER_BLOCKS, entry);

    *attempt = client->attempts;
    if (error < 0)
        return error;
    if (transfer->from) {
        /* the block belongs to this thread: not under the mutex */
        pthread_mutex_unlock(&client->mutex);
        memcpy(ring_block(client, *entry), transfer->from, transfer->request.bytes);
        pthread_mutex_lock(&client->mutex);
        *attempt = client->attempts;
    }
    error = move_block(client, piece, *entry, transfer, why);
    if (error < 0)
        ring_release(client, *entry);
    return error;
}

/* Moves one block. A failure may spoil the context for all later requests, so the copier is
 * replaced. A request that loses its copier to another piece's failure is tried again, instead of
 * failing too. */
static int move(struct copier_client *client, const struct copier_piece *piece,
                const struct transfer *transfer, unsigned *entry)
{
    char why[COPIER_WHY_BYTES] = "";
    unsigned tries = TRIES, spared = SPARED, attempt = 0;
    bool alone;
    int error = 0, needed;

    while (tries > 0) {
        alone = quarantine_has(client, piece->serial);
        quarantine_enter(client, alone);
        needed = copier_process_need(client);
        error = needed;
        if (error == 0)
            error = try_move(client, piece, transfer, entry, &attempt, why);
        quarantine_leave(client, alone);
        if (error == 0 || needed < 0)
            return error;
        if (error == -ETIMEDOUT || error == -ENOSPC)
            break;
        if (error == -EPIPE && client->blamed == attempt && spared > 0) {
            spared--;
            continue;
        }
        tries--;
        if (error == -EPIPE)
            continue;
        quarantine_add(client, piece->serial);
        if (client->attempts == attempt) {
            client->blamed = attempt;
            copier_process_retire(client);
        }
    }
    tell(client, &transfer->request, error, why);
    return error == -ENODEV || error == -ENOMEM || error == -ENOSPC ? error : -EIO;
}

/* ---- functions for the backend -------------------------------------------------------------- */

/* Lends blocks that were, or are being, fetched for this reader. -ENOENT: there are none;
 * -ETIMEDOUT */
static int lend_ahead(struct copier_client *client, const struct copier_piece *piece,
                      const struct vmm_span *span, struct vmm_loan *loan)
{
    unsigned entry = 0;
    int error;

    while ((error = readahead_lend(client, piece, span, loan, &entry)) == -EAGAIN) {
        client->entries[entry].holders++;
        error = ring_wait(client, entry, NULL);
        ring_release(client, entry);
        if (error == -ETIMEDOUT)
            break;
    }
    return error;
}

int copier_client_lend(struct copier_client *client, const struct copier_piece *piece,
                       const struct vmm_span *span, struct vmm_loan *loan)
{
    struct transfer get = {
        .request =
            {
                .act = COPIER_GET,
                .offset = span->offset,
                .bytes = span->bytes < COPIER_BLOCK_BYTES ? span->bytes : COPIER_BLOCK_BYTES,
            },
        .file = -1,
    };
    unsigned entry;

    SCOPED_LOCK(&client->mutex);
    int error = lend_ahead(client, piece, span, loan);
    if (error == -ETIMEDOUT) {
        tell(client, &get.request, error, NULL);
        error = -EIO;
    } else if (error < 0) {
        error = move(client, piece, &get, &entry);
        if (error == 0) {
            *loan = (struct vmm_loan){.count = 1};
            loan->parts[0].at = ring_block(client, entry);
            loan->parts[0].bytes = get.request.bytes;
            loan->parts[0].entry = entry;
            readahead_note(client, piece, span, get.request.bytes);
        }
    }
    return error;
}

int copier_client_lend_now(struct copier_client *client, const struct copier_piece *piece,
                           const struct vmm_span *span, struct vmm_loan *loan)
{
    unsigned entry;

    if (!span->reader || pthread_mutex_trylock(&client->mutex) != 0)
        return -EAGAIN;
    int error = readahead_lend(client, piece, span, loan, &entry);
    pthread_mutex_unlock(&client->mutex);
    return error == 0 ? 0 : -EAGAIN;
}

void copier_client_end_loan(struct copier_client *client, struct vmm_loan *loan)
{
    pthread_mutex_lock(&client->mutex);
    for (unsigned i = 0; i < loan->count; i++)
        ring_release(client, loan->parts[i].entry);
    pthread_mutex_unlock(&client->mutex);
    loan->count = 0;
}

void copier_client_end_reader(struct copier_client *client, uint64_t reader)
{
    SCOPED_LOCK(&client->mutex);
    readahead_drop_reader(client, reader);
}

/* Moves `count` bytes by requests like this one, of at most `most` bytes each. */
static int move_all(struct copier_client *client, const struct copier_piece *piece,
                    struct transfer transfer, uint64_t most, uint64_t count)
{
    struct copier_request *request = &transfer.request;
    unsigned entry;
    int error = 0;

    for (; error == 0 && count > 0; count -= request->bytes) {
        request->bytes = count < most ? count : most;
        pthread_mutex_lock(&client->mutex);
        error = move(client, piece, &transfer, &entry);
        if (error == 0)
            ring_release(client, entry);
        pthread_mutex_unlock(&client->mutex);
        request->offset += request->bytes;
        if (transfer.from)
            transfer.from = (const char *)transfer.from + request->bytes;
    }
    return error;
}

int copier_client_write(struct copier_client *client, const struct copier_piece *piece,
                        const void *from, size_t count, uint64_t offset)
{
    struct transfer put = {
        .request = {.act = COPIER_PUT, .offset = offset}, .from = from, .file = -1};

    return move_all(client, piece, put, COPIER_BLOCK_BYTES, count);
}

int copier_client_move(struct copier_client *client, const struct copier_piece *piece,
                       const struct copier_file *file, bool out, uint64_t offset, uint64_t count)
{
    struct transfer transfer = {.request = {.act = out ? COPIER_MOVE_OUT : COPIER_MOVE_IN,
                                            .offset = offset,
                                            .file = file->serial},
                                .file = file->fd};

    return move_all(client, piece, transfer, COPIER_MOVE_BYTES, count);
}

void copier_client_rest(struct copier_client *client)
{
    SCOPED_LOCK(&client->mutex);
    windows_rest(client);
}

void copier_client_forget(struct copier_client *client, uint64_t serial)
{
    SCOPED_LOCK(&client->mutex);
    readahead_drop_piece(client, serial);
    window_forget(client, serial);
}

void copier_client_forget_file(struct copier_client *client, uint64_t serial)
{
    SCOPED_LOCK(&client->mutex);
    file_forget(client, serial);
}

/* ---- beginning and end --------------------------------------------------------------------- */

/* Makes the ring; it has pages only while there is a copier, and cannot be shrunk by it. */
static int make_ring(struct copier_client *client)
{
    int fd = memfd_make("gmsfs-ring", 0), error;

    client->ring_fd = fd;
    if (fd < 0)
        return fd;
    if (ftruncate(fd, (off_t)COPIER_SHARED_BYTES) < 0)
        return -errno;
    error = memfd_seal(fd);
    if (error == 0)
        error = memfd_close_to_others(fd);
    if (error < 0)
        return error;
    void *at = mmap(NULL, COPIER_SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    madvise(at, COPIER_SHARED_BYTES, MADV_DONTFORK);
    client->shared = at;
    client->shared->magic = COPIER_MAGIC;
    memcpy(client->shared->uuid, client->options.uuid, sizeof(client->shared->uuid));
    snprintf(client->shared->driver, sizeof(client->shared->driver), "%s", client->options.driver);
    return 0;
}

int copier_client_new(const struct copier_client_options *options, struct copier_client **made)
{
    struct copier_client *client = calloc(1, sizeof(*client));

    if (!client)
        return -ENOMEM;
    client->options = *options;
    client->ring_fd = client->socket = -1;
    snprintf(client->name, sizeof(client->name), "device %s (%s)", options->driver,
             options->pci_id);
    for (unsigned i = 0; i < COPIER_ENTRIES; i++)
        client->entries[i].window = -1;
    pthread_mutex_init(&client->mutex, NULL);
    thread_init_condition(&client->changed);
    complaints_init(&client->complaints, client->name, "failures of GPU memory's bytes");
    int error = make_ring(client);
    if (error < 0)
        copier_client_free(client);
    else
        *made = client;
    return error;
}

void copier_client_start(struct copier_client *client)
{
    SCOPED_LOCK(&client->mutex);
    if (client->state == COPIER_DOWN && copier_process_start(client) < 0)
        log_warning("%s: no thread to start the copier; it is started when it is needed",
                    client->name);
}

void copier_client_free(struct copier_client *client)
{
    if (!client)
        return;
    pthread_mutex_lock(&client->mutex);
    client->closing = true;
    if (client->socket >= 0)
        shutdown(client->socket, SHUT_RDWR);
    while (client->watched)
        pthread_cond_wait(&client->changed, &client->mutex);
    pthread_mutex_unlock(&client->mutex);
    if (client->shared)
        munmap(client->shared, COPIER_SHARED_BYTES);
    if (client->ring_fd >= 0)
        close(client->ring_fd);
    complaints_end(&client->complaints);
    pthread_cond_destroy(&client->changed);
    pthread_mutex_destroy(&client->mutex);
    free(client);
}
