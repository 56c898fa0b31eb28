/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/copier_client_internal.h"

#include "base/log.h"
#include "vmm/memfd.h"

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

/* ---- one piece of bytes -------------------------------------------------------------------- */

/* A request for at most a block, to its end; its block stays held, also after a failure. */
static int move_block(struct copier_client *client, const struct copier_piece *piece,
                      unsigned entry, struct copier_request request, char *why)
{
    unsigned window;
    int rc = window_take(client, piece, &window, why);

    if (rc == 0) {
        request.window = window;
        rc = ring_submit(client, entry, request, -1);
    }
    return rc < 0 ? rc : ring_wait(client, entry, why);
}

/* What it was told failed: another copier may succeed, for some errors spoil all that follows. */
static void tell(struct copier_client *client, const struct copier_request *request, int rc,
                 const char *why)
{
    const char *doing = request->act == COPIER_GET ? "read" : "write";
    char died[COPIER_WHY_BYTES];

    if (!complaints_may_log(&client->complaints))
        return;
    snprintf(died, sizeof(died), "one copier after the other ends; %s and dmesg may tell why",
             client->options.tool);
    if (rc == -ETIMEDOUT)
        log_error("%s: cannot %s: the copier (process %d) did not answer for %u s and is killed; "
                  "the driver hangs: see %s and dmesg",
                  client->name, doing, client->pid, copier_client_hang_ms() / 1000,
                  client->options.tool);
    else
        log_error("%s: cannot %s %llu bytes at %llu of an allocation: %s", client->name, doing,
                  (unsigned long long)request->bytes, (unsigned long long)request->offset,
                  rc == -EPIPE ? died : why);
}

/* Once, by the copier of `attempt`. After success the entry holds the block. */
static int try_move(struct copier_client *client, const struct copier_piece *piece,
                    const struct copier_request *request, const void *from, unsigned *entry,
                    unsigned *attempt, char *why)
{
    int rc = ring_take(client, 0, COPIER_BLOCKS, entry);

    *attempt = client->attempts;
    if (rc < 0)
        return rc;
    if (from) { /* nobody else has the block: not under the mutex */
        pthread_mutex_unlock(&client->mutex);
        memcpy(ring_block(client, *entry), from, request->bytes);
        pthread_mutex_lock(&client->mutex);
        *attempt = client->attempts;
    }
    rc = move_block(client, piece, *entry, *request, why);
    if (rc < 0)
        ring_release(client, *entry);
    return rc;
}

/* What fails spoils the context for all that follows, perhaps: the copier is replaced. Who loses a
 * copier to bytes of others tries again, and does not fail with them. */
static int move(struct copier_client *client, const struct copier_piece *piece,
                struct copier_request request, const void *from, unsigned *entry)
{
    char why[COPIER_WHY_BYTES] = "";
    unsigned tries = TRIES, spared = SPARED, attempt = 0;
    bool alone;
    int rc = 0, needed;

    while (tries > 0) {
        alone = quarantine_has(client, piece->serial);
        quarantine_enter(client, alone);
        needed = copier_process_need(client);
        rc = needed;
        if (rc == 0)
            rc = try_move(client, piece, &request, from, entry, &attempt, why);
        quarantine_leave(client, alone);
        if (rc == 0 || needed < 0)
            return rc;
        if (rc == -ETIMEDOUT)
            break;
        if (rc == -EPIPE && client->blamed == attempt && spared > 0) {
            spared--;
            continue;
        }
        tries--;
        if (rc == -EPIPE)
            continue;
        quarantine_add(client, piece->serial);
        if (client->attempts == attempt) {
            client->blamed = attempt;
            copier_process_retire(client);
        }
    }
    tell(client, &request, rc, why);
    return rc == -ENODEV || rc == -ENOMEM ? rc : -EIO;
}

/* ---- what the backend calls ---------------------------------------------------------------- */

/* Out of what was, or is being, fetched for this reader. -ENOENT: that is nothing; -ETIMEDOUT */
static int lend_ahead(struct copier_client *client, const struct copier_piece *piece,
                      const struct vmm_span *span, struct vmm_loan *loan)
{
    unsigned entry = 0;
    int rc;

    while ((rc = readahead_lend(client, piece, span, loan, &entry)) == -EAGAIN) {
        client->entries[entry].holders++;
        rc = ring_wait(client, entry, NULL);
        ring_release(client, entry);
        if (rc == -ETIMEDOUT)
            break;
    }
    return rc;
}

int copier_client_lend(struct copier_client *client, const struct copier_piece *piece,
                       const struct vmm_span *span, struct vmm_loan *loan)
{
    struct copier_request get = {
        .act = COPIER_GET,
        .offset = span->offset,
        .bytes = span->bytes < COPIER_BLOCK_BYTES ? span->bytes : COPIER_BLOCK_BYTES,
    };
    unsigned entry;
    int rc;

    pthread_mutex_lock(&client->mutex);
    rc = lend_ahead(client, piece, span, loan);
    if (rc == -ETIMEDOUT) {
        tell(client, &get, rc, NULL);
        rc = -EIO;
    } else if (rc < 0) {
        rc = move(client, piece, get, NULL, &entry);
        if (rc == 0) {
            *loan = (struct vmm_loan){.count = 1};
            loan->parts[0].at = ring_block(client, entry);
            loan->parts[0].bytes = get.bytes;
            loan->parts[0].entry = entry;
            readahead_note(client, piece, span, get.bytes);
        }
    }
    pthread_mutex_unlock(&client->mutex);
    return rc;
}

int copier_client_lend_now(struct copier_client *client, const struct copier_piece *piece,
                           const struct vmm_span *span, struct vmm_loan *loan)
{
    unsigned entry;
    int rc;

    if (!span->reader || pthread_mutex_trylock(&client->mutex) != 0)
        return -EAGAIN;
    rc = readahead_lend(client, piece, span, loan, &entry);
    pthread_mutex_unlock(&client->mutex);
    return rc == 0 ? 0 : -EAGAIN;
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
    pthread_mutex_lock(&client->mutex);
    readahead_drop_reader(client, reader);
    pthread_mutex_unlock(&client->mutex);
}

int copier_client_write(struct copier_client *client, const struct copier_piece *piece,
                        const void *from, size_t count, uint64_t offset)
{
    const char *at = from;
    unsigned entry;
    int rc = 0;

    while (rc == 0 && count > 0) {
        struct copier_request put = {
            .act = COPIER_PUT,
            .offset = offset,
            .bytes = count < COPIER_BLOCK_BYTES ? count : COPIER_BLOCK_BYTES,
        };

        pthread_mutex_lock(&client->mutex);
        rc = move(client, piece, put, at, &entry);
        if (rc == 0)
            ring_release(client, entry);
        pthread_mutex_unlock(&client->mutex);
        at += put.bytes;
        offset += put.bytes;
        count -= put.bytes;
    }
    return rc;
}

void copier_client_forget(struct copier_client *client, uint64_t serial)
{
    pthread_mutex_lock(&client->mutex);
    readahead_drop_piece(client, serial);
    window_forget(client, serial);
    pthread_mutex_unlock(&client->mutex);
}

/* ---- beginning and end --------------------------------------------------------------------- */

/* Its pages are there only while a copier is. It cannot be made smaller behind our back. */
static int make_ring(struct copier_client *client)
{
    int fd = memfd_make("gmsfs-ring", 0), rc;
    void *at;

    client->ring_fd = fd;
    if (fd < 0)
        return fd;
    if (ftruncate(fd, (off_t)COPIER_SHARED_BYTES) < 0)
        return -errno;
    rc = memfd_seal(fd);
    if (rc == 0)
        rc = memfd_close_to_others(fd);
    if (rc < 0)
        return rc;
    at = mmap(NULL, COPIER_SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    client->shared = at;
    client->shared->magic = COPIER_MAGIC;
    memcpy(client->shared->uuid, client->options.uuid, sizeof(client->shared->uuid));
    snprintf(client->shared->driver, sizeof(client->shared->driver), "%s", client->options.driver);
    return 0;
}

static void init_lock(struct copier_client *client)
{
    pthread_condattr_t clock;

    pthread_mutex_init(&client->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&client->changed, &clock);
    pthread_condattr_destroy(&clock);
}

int copier_client_new(const struct copier_client_options *options, struct copier_client **made)
{
    struct copier_client *client = calloc(1, sizeof(*client));
    int rc;

    if (!client)
        return -ENOMEM;
    client->options = *options;
    client->ring_fd = client->socket = -1;
    snprintf(client->name, sizeof(client->name), "device %s (%s)", options->driver,
             options->pci_id);
    for (unsigned i = 0; i < COPIER_ENTRIES; i++)
        client->entries[i].window = -1;
    init_lock(client);
    complaints_init(&client->complaints, client->name, "failures of GPU memory's bytes");
    rc = make_ring(client);
    if (rc < 0)
        copier_client_free(client);
    else
        *made = client;
    return rc;
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
