/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copier_readahead - blocks fetched in advance
 *
 * A sequential reader asks for the next bytes when it has the last ones, and each request would go
 * to the copier and back: four wake-ups. So the copier fetches the bytes that a reader is likely to
 * want next, and the read is answered out of the ring. Only bytes of a layout that cannot change
 * meanwhile are kept that way.
 */
#include "vmm/copier_client_internal.h"

#include "base/clock.h"

#include <errno.h>

#define RUN_LEAST  2u   /* sequential reads after which a reader is expected to continue */
#define GIVE_UP_MS 100u /* a reader that pauses may lose its blocks to another one */

static struct readahead *find(struct copier_client *client, uint64_t reader)
{
    for (unsigned i = 0; i < READAHEAD_READERS; i++)
        if (client->readaheads[i].reader == reader)
            return &client->readaheads[i];
    return NULL;
}

static void drop_first(struct copier_client *client, struct readahead *ahead)
{
    ring_release(client, ahead->blocks[ahead->first].entry);
    ahead->first = (ahead->first + 1) % READAHEAD_BLOCKS;
    ahead->count--;
}

static void readahead_drop(struct copier_client *client, struct readahead *ahead)
{
    while (ahead->count > 0)
        drop_first(client, ahead);
    *ahead = (struct readahead){0};
}

void readahead_drop_reader(struct copier_client *client, uint64_t reader)
{
    struct readahead *ahead = find(client, reader);

    if (ahead)
        readahead_drop(client, ahead);
}

void readahead_drop_piece(struct copier_client *client, uint64_t serial)
{
    for (unsigned i = 0; i < READAHEAD_READERS; i++)
        if (client->readaheads[i].reader && client->readaheads[i].serial == serial)
            readahead_drop(client, &client->readaheads[i]);
}

void readahead_drop_all(struct copier_client *client)
{
    for (unsigned i = 0; i < READAHEAD_READERS; i++)
        readahead_drop(client, &client->readaheads[i]);
}

/* Sends as many requests as there is room for. Failures are found when the blocks are needed. */
static void fetch(struct copier_client *client, struct readahead *ahead)
{
    int window = window_find(client, ahead->serial);
    unsigned entry;

    if (client->alone || window < 0 || client->windows[window].state != WINDOW_MAPPED)
        return;
    while (ahead->count < READAHEAD_BLOCKS && ahead->fetched < ahead->end) {
        uint64_t left = ahead->end - ahead->fetched;
        struct copier_request get = {
            .act = COPIER_GET,
            .window = (uint32_t)window,
            .offset = ahead->fetched,
            .bytes = left < COPIER_BLOCK_BYTES ? left : COPIER_BLOCK_BYTES,
        };
        unsigned last = (ahead->first + ahead->count) % READAHEAD_BLOCKS;

        if (ring_try_take(client, 0, COPIER_BLOCKS, &entry) < 0)
            return;
        if (ring_submit(client, entry, get, -1) < 0) {
            ring_release(client, entry);
            return;
        }
        ahead->blocks[last].entry = entry;
        ahead->blocks[last].offset = get.offset;
        ahead->blocks[last].bytes = get.bytes;
        ahead->count++;
        ahead->fetched += get.bytes;
    }
}

/* Returns a free readahead, or the oldest if its reader has paused. */
static struct readahead *choose(struct copier_client *client, uint64_t now_ms)
{
    struct readahead *oldest = &client->readaheads[0];

    for (unsigned i = 0; i < READAHEAD_READERS; i++) {
        struct readahead *ahead = &client->readaheads[i];

        if (!ahead->reader)
            return ahead;
        if (ahead->last_ms < oldest->last_ms)
            oldest = ahead;
    }
    if (oldest->last_ms + GIVE_UP_MS > now_ms)
        return NULL;
    readahead_drop(client, oldest);
    return oldest;
}

void readahead_note(struct copier_client *client, const struct copier_piece *piece,
                    const struct vmm_span *span, size_t bytes_read)
{
    uint64_t now_ms = clock_now_ms();
    struct readahead *ahead = span->reader ? find(client, span->reader) : NULL;
    unsigned run = 1;

    if (!span->reader)
        return;
    if (ahead && ahead->serial == piece->serial && ahead->next == span->offset)
        run = ahead->run + 1;
    if (ahead)
        readahead_drop(client, ahead);
    else
        ahead = choose(client, now_ms);
    if (!ahead)
        return;
    *ahead = (struct readahead){
        .reader = span->reader,
        .serial = piece->serial,
        .next = span->offset + bytes_read,
        .fetched = span->offset + bytes_read,
        .end = span->end,
        .last_ms = now_ms,
        .run = run,
    };
    if (run >= RUN_LEAST)
        fetch(client, ahead);
}

/* Counts the finished blocks up to `to`: -EAGAIN, -EIO if one is not. */
static int look_at_blocks(struct copier_client *client, const struct readahead *ahead, uint64_t to,
                          unsigned *used, unsigned *entry)
{
    for (*used = 0; *used < ahead->count; ++*used) {
        unsigned at = (ahead->first + *used) % READAHEAD_BLOCKS;

        if (ahead->blocks[at].offset >= to)
            break;
        *entry = ahead->blocks[at].entry;
        int error = ring_poll(client, *entry, NULL);
        if (error < 0)
            return error == -EAGAIN ? error : -EIO;
    }
    return 0;
}

int readahead_lend(struct copier_client *client, const struct copier_piece *piece,
                   const struct vmm_span *span, struct vmm_loan *loan, unsigned *entry)
{
    struct readahead *ahead = span->reader ? find(client, span->reader) : NULL;
    uint64_t at = span->offset, to = span->offset + span->bytes;
    unsigned used;

    if (!ahead || ahead->serial != piece->serial || ahead->next != at || to > ahead->fetched ||
        ahead->count == 0 || ahead->end != span->end)
        return -ENOENT;
    int error = look_at_blocks(client, ahead, to, &used, entry);
    if (error == -EAGAIN)
        return error;
    if (error < 0 || used > VMM_LOAN_PARTS) {
        readahead_drop(client, ahead);
        return -ENOENT;
    }
    *loan = (struct vmm_loan){.count = used};
    for (unsigned i = 0; i < used; i++) {
        unsigned index = (ahead->first + i) % READAHEAD_BLOCKS;
        uint64_t from = at - ahead->blocks[index].offset;
        uint64_t end = ahead->blocks[index].offset + ahead->blocks[index].bytes;

        loan->parts[i].at = (char *)ring_block(client, ahead->blocks[index].entry) + from;
        loan->parts[i].bytes = (end < to ? end : to) - at;
        loan->parts[i].entry = ahead->blocks[index].entry;
        client->entries[loan->parts[i].entry].holders++;
        at += loan->parts[i].bytes;
    }
    ahead->next = to;
    ahead->last_ms = client->last_use_ms = clock_now_ms();
    while (ahead->count > 0 &&
           ahead->blocks[ahead->first].offset + ahead->blocks[ahead->first].bytes <= to)
        drop_first(client, ahead);
    fetch(client, ahead);
    return 0;
}
