/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_ahead - blocks fetched before they are asked for
 *
 * Who reads a file from one end to the other asks for the next bytes when it has the last ones, and
 * each of its questions would go to the copier and back: four wake-ups. So the copier fetches what
 * a reader is likely to want next, and the question is answered out of the ring. Only bytes of a
 * layout that cannot change while it is read are kept that way.
 */
#include "vmm/copier_client_internal.h"

#include <errno.h>

#define RUN_LEAST  2u   /* reads in a row make a reader that goes on */
#define GIVE_UP_MS 100u /* a reader that pauses may lose its blocks to another one */

static struct ahead *find(struct cuda_bytes *bytes, uint64_t reader)
{
    for (unsigned i = 0; i < AHEAD_READERS; i++)
        if (bytes->aheads[i].reader == reader)
            return &bytes->aheads[i];
    return NULL;
}

static void drop_first(struct cuda_bytes *bytes, struct ahead *ahead)
{
    place_drop(bytes, ahead->blocks[ahead->first].place);
    ahead->first = (ahead->first + 1) % AHEAD_BLOCKS;
    ahead->count--;
}

void ahead_drop(struct cuda_bytes *bytes, struct ahead *ahead)
{
    while (ahead->count > 0)
        drop_first(bytes, ahead);
    *ahead = (struct ahead){0};
}

void aheads_drop_reader(struct cuda_bytes *bytes, uint64_t reader)
{
    struct ahead *ahead = find(bytes, reader);

    if (ahead)
        ahead_drop(bytes, ahead);
}

void aheads_drop_piece(struct cuda_bytes *bytes, uint64_t serial)
{
    for (unsigned i = 0; i < AHEAD_READERS; i++)
        if (bytes->aheads[i].reader && bytes->aheads[i].serial == serial)
            ahead_drop(bytes, &bytes->aheads[i]);
}

void aheads_drop_all(struct cuda_bytes *bytes)
{
    for (unsigned i = 0; i < AHEAD_READERS; i++)
        ahead_drop(bytes, &bytes->aheads[i]);
}

/* As many requests as there is room for. Whatever fails is found when it is needed. */
static void fetch(struct cuda_bytes *bytes, struct ahead *ahead)
{
    int slot = slot_find(bytes, ahead->serial);
    unsigned place;

    if (bytes->alone || slot < 0 || bytes->slots[slot].state != SLOT_MAPPED)
        return;
    while (ahead->count < AHEAD_BLOCKS && ahead->fetched < ahead->end) {
        uint64_t left = ahead->end - ahead->fetched;
        struct copier_request get = {
            .act = COPIER_GET,
            .slot = (uint32_t)slot,
            .offset = ahead->fetched,
            .bytes = left < COPIER_BLOCK_BYTES ? left : COPIER_BLOCK_BYTES,
        };
        unsigned last = (ahead->first + ahead->count) % AHEAD_BLOCKS;

        if (place_try(bytes, 0, COPIER_BLOCKS, &place) < 0)
            return;
        if (place_send(bytes, place, get, -1) < 0) {
            place_drop(bytes, place);
            return;
        }
        ahead->blocks[last].place = place;
        ahead->blocks[last].offset = get.offset;
        ahead->blocks[last].bytes = get.bytes;
        ahead->count++;
        ahead->fetched += get.bytes;
    }
}

/* One that is free, or whose reader has paused. */
static struct ahead *choose(struct cuda_bytes *bytes, uint64_t now_ms)
{
    struct ahead *oldest = &bytes->aheads[0];

    for (unsigned i = 0; i < AHEAD_READERS; i++) {
        struct ahead *ahead = &bytes->aheads[i];

        if (!ahead->reader)
            return ahead;
        if (ahead->last_ms < oldest->last_ms)
            oldest = ahead;
    }
    if (oldest->last_ms + GIVE_UP_MS > now_ms)
        return NULL;
    ahead_drop(bytes, oldest);
    return oldest;
}

void ahead_note(struct cuda_bytes *bytes, const struct cuda_bytes_piece *piece,
                const struct vmm_span *span, size_t bytes_read)
{
    uint64_t now_ms = bytes_now_ms();
    struct ahead *ahead = span->reader ? find(bytes, span->reader) : NULL;
    unsigned run = 1;

    if (!span->reader)
        return;
    if (ahead && ahead->serial == piece->serial && ahead->next == span->offset)
        run = ahead->run + 1;
    if (ahead)
        ahead_drop(bytes, ahead);
    else
        ahead = choose(bytes, now_ms);
    if (!ahead)
        return;
    *ahead = (struct ahead){
        .reader = span->reader,
        .serial = piece->serial,
        .next = span->offset + bytes_read,
        .fetched = span->offset + bytes_read,
        .end = span->end,
        .last_ms = now_ms,
        .run = run,
    };
    if (run >= RUN_LEAST)
        fetch(bytes, ahead);
}

/* The blocks over [offset, offset + count), which are done: -EAGAIN, -EIO if not. */
static int look_at_blocks(struct cuda_bytes *bytes, const struct ahead *ahead, uint64_t to,
                          unsigned *used, unsigned *place)
{
    for (*used = 0; *used < ahead->count; ++*used) {
        unsigned at = (ahead->first + *used) % AHEAD_BLOCKS;
        int rc;

        if (ahead->blocks[at].offset >= to)
            break;
        *place = ahead->blocks[at].place;
        rc = place_look(bytes, *place, NULL);
        if (rc < 0)
            return rc == -EAGAIN ? rc : -EIO;
    }
    return 0;
}

int ahead_lend(struct cuda_bytes *bytes, const struct cuda_bytes_piece *piece,
               const struct vmm_span *span, struct vmm_loan *loan, unsigned *place)
{
    struct ahead *ahead = span->reader ? find(bytes, span->reader) : NULL;
    uint64_t at = span->offset, to = span->offset + span->bytes;
    unsigned used;
    int rc;

    if (!ahead || ahead->serial != piece->serial || ahead->next != at || to > ahead->fetched ||
        ahead->count == 0 || ahead->end != span->end)
        return -ENOENT;
    rc = look_at_blocks(bytes, ahead, to, &used, place);
    if (rc == -EAGAIN)
        return rc;
    if (rc < 0 || used > VMM_LOAN_PARTS) {
        ahead_drop(bytes, ahead);
        return -ENOENT;
    }
    *loan = (struct vmm_loan){.count = used};
    for (unsigned i = 0; i < used; i++) {
        unsigned index = (ahead->first + i) % AHEAD_BLOCKS;
        uint64_t from = at - ahead->blocks[index].offset;
        uint64_t end = ahead->blocks[index].offset + ahead->blocks[index].bytes;

        loan->parts[i].at = (char *)block_of(bytes, ahead->blocks[index].place) + from;
        loan->parts[i].bytes = (end < to ? end : to) - at;
        loan->parts[i].place = ahead->blocks[index].place;
        bytes->places[loan->parts[i].place].holders++;
        at += loan->parts[i].bytes;
    }
    ahead->next = to;
    ahead->last_ms = bytes->last_use_ms = bytes_now_ms();
    while (ahead->count > 0 &&
           ahead->blocks[ahead->first].offset + ahead->blocks[ahead->first].bytes <= to)
        drop_first(bytes, ahead);
    fetch(bytes, ahead);
    return 0;
}
