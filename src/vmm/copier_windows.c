/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_slots - which pieces the copier has mapped
 *
 * Importing and mapping a piece takes 100 us, so it stays mapped until another one needs its slot,
 * it is freed, or the copier goes. The copier does as it is told: all choices are made here.
 */
#include "vmm/copier_client_internal.h"

#include <errno.h>

int slot_find(const struct cuda_bytes *bytes, uint64_t serial)
{
    for (unsigned i = 0; i < COPIER_SLOTS; i++)
        if (bytes->slots[i].state != SLOT_FREE && bytes->slots[i].serial == serial)
            return (int)i;
    return -1;
}

/* A free one, else the one that was not used for the longest time; -1: all are in use. */
static int choose(const struct cuda_bytes *bytes)
{
    int best = -1;

    for (unsigned i = 0; i < COPIER_SLOTS; i++) {
        const struct slot *slot = &bytes->slots[i];

        if (slot->state == SLOT_FREE)
            return (int)i;
        if (slot->state == SLOT_MAPPED && slot->users == 0 &&
            (best < 0 || slot->last_used < bytes->slots[best].last_used))
            best = (int)i;
    }
    return best;
}

/* A request that moves nothing, to its end. */
static int ask(struct cuda_bytes *bytes, const struct copier_request *request, int fd, char *why)
{
    unsigned place;
    int rc = place_take(bytes, COPIER_BLOCKS, COPIER_CONTROLS, &place);

    if (rc < 0)
        return rc;
    rc = place_send(bytes, place, *request, fd);
    if (rc == 0)
        rc = place_wait(bytes, place, why);
    place_drop(bytes, place);
    return rc;
}

static bool is_ours(const struct cuda_bytes *bytes, unsigned index, unsigned attempt,
                    uint64_t serial)
{
    const struct slot *slot = &bytes->slots[index];

    return bytes->attempts == attempt && slot->state == SLOT_CHANGING && slot->serial == serial;
}

/* Maps the piece where another one may be mapped. A copier that goes meanwhile clears the slot. */
static int exchange(struct cuda_bytes *bytes, unsigned index, const struct cuda_bytes_piece *piece,
                    char *why)
{
    struct copier_request unmap = {.act = COPIER_UNMAP, .slot = index};
    struct copier_request map = {.act = COPIER_MAP, .slot = index, .bytes = piece->bytes};
    struct slot *slot = &bytes->slots[index];
    bool was_mapped = slot->state == SLOT_MAPPED;
    unsigned attempt = bytes->attempts;
    int rc = 0;

    *slot = (struct slot){
        .state = SLOT_CHANGING,
        .serial = piece->serial,
        .leaving = was_mapped ? slot->serial : 0,
    };
    if (was_mapped) {
        rc = ask(bytes, &unmap, -1, why);
        if (!is_ours(bytes, index, attempt, piece->serial))
            return -EPIPE;
        if (rc < 0) { /* what it still holds goes with it */
            copier_retire(bytes);
            return -EPIPE;
        }
        slot->leaving = 0;
        pthread_cond_broadcast(&bytes->changed);
    }
    rc = ask(bytes, &map, piece->fd, why);
    if (!is_ours(bytes, index, attempt, piece->serial))
        return -EPIPE;
    slot->state = rc == 0 ? SLOT_MAPPED : SLOT_FREE;
    pthread_cond_broadcast(&bytes->changed);
    return rc;
}

int slot_take(struct cuda_bytes *bytes, const struct cuda_bytes_piece *piece, unsigned *taken,
              char *why)
{
    unsigned attempt = bytes->attempts;
    int index, rc;

    for (;;) {
        if (bytes->state != COPIER_UP || bytes->attempts != attempt)
            return -EPIPE;
        index = slot_find(bytes, piece->serial);
        if (index >= 0 && bytes->slots[index].state == SLOT_MAPPED)
            break;
        if (index < 0 && (index = choose(bytes)) >= 0) {
            rc = exchange(bytes, (unsigned)index, piece, why);
            if (rc < 0)
                return rc;
            break;
        }
        /* Somebody maps it just now, or all are in use: both are over soon. */
        pthread_cond_wait(&bytes->changed, &bytes->mutex);
    }
    bytes->slots[index].last_used = ++bytes->uses;
    *taken = (unsigned)index;
    return 0;
}

void slot_drop(struct cuda_bytes *bytes, unsigned slot)
{
    if (bytes->slots[slot].users > 0 && --bytes->slots[slot].users == 0)
        pthread_cond_broadcast(&bytes->changed);
}

/* Requests of the piece that nobody waits for: they were to be read ahead. */
static int await_users(struct cuda_bytes *bytes, unsigned index)
{
    int rc = 0;

    for (unsigned i = 0; i < COPIER_BLOCKS && rc != -ETIMEDOUT; i++) {
        struct place *place = &bytes->places[i];

        if (!place->pending || place->slot != (int)index)
            continue;
        place->holders++;
        rc = place_wait(bytes, i, NULL);
        place_drop(bytes, i);
    }
    return rc == -ETIMEDOUT ? rc : 0;
}

/* Another one takes its place just now. */
static bool is_leaving(const struct cuda_bytes *bytes, uint64_t serial)
{
    for (unsigned i = 0; i < COPIER_SLOTS; i++)
        if (bytes->slots[i].state == SLOT_CHANGING && bytes->slots[i].leaving == serial)
            return true;
    return false;
}

static int unmap(struct cuda_bytes *bytes, unsigned index, unsigned attempt)
{
    struct copier_request request = {.act = COPIER_UNMAP, .slot = index};
    uint64_t serial = bytes->slots[index].serial;
    int rc = await_users(bytes, index);

    if (bytes->attempts != attempt || slot_find(bytes, serial) != (int)index)
        return 0; /* its copier is gone */
    if (rc < 0)
        return rc;
    bytes->slots[index].state = SLOT_CHANGING;
    rc = ask(bytes, &request, -1, NULL);
    if (rc == 0 && is_ours(bytes, index, attempt, serial)) {
        bytes->slots[index] = (struct slot){0};
        pthread_cond_broadcast(&bytes->changed);
    }
    return rc;
}

void slot_forget(struct cuda_bytes *bytes, uint64_t serial)
{
    unsigned attempt = bytes->attempts;
    int index, rc;

    while (bytes->state == COPIER_UP && is_leaving(bytes, serial))
        pthread_cond_wait(&bytes->changed, &bytes->mutex);
    if (is_leaving(bytes, serial)) { /* its copier goes, or cannot even be killed */
        copier_await_end(bytes, attempt);
        return;
    }
    index = slot_find(bytes, serial);
    if (index < 0)
        return;
    rc = unmap(bytes, (unsigned)index, attempt);
    if (rc == 0)
        return;
    /* Whatever it is that fails: its end frees the memory. */
    if (bytes->attempts == attempt)
        copier_retire(bytes);
    copier_await_end(bytes, attempt);
}

void slots_clear(struct cuda_bytes *bytes)
{
    for (unsigned i = 0; i < COPIER_SLOTS; i++)
        bytes->slots[i] = (struct slot){0};
    pthread_cond_broadcast(&bytes->changed);
}
