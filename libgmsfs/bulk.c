/* SPDX-License-Identifier: Apache-2.0 */
#include "bulk.h"

#include "base/array.h"
#include "base/scope.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

#define BULK_VERSION 1
/* A request of the kernel takes 256 pages, and these bytes may begin anywhere in a page. */
#define BULK_PIECE_BYTES ((1u << 20) - 4096)

#define BULK_TRIES 8 /* few: no document is to be the end of one worker after the other */

/* Returns the lowest index with a slot at or above this one. */
static size_t bulk_rank(const uint64_t *slots, size_t count, uint64_t slot)
{
    size_t at = 0;

    if (count && slot - slots[0] < count && slots[slot - slots[0]] == slot)
        return (size_t)(slot - slots[0]); /* there is no gap before it */
    ARRAY_SEARCH(at, count, slots[at] < slot);
    return at;
}

int gfs_bulk_encode(struct gfs_writer *writer, const struct gmsfs_metadata *entries, size_t count,
                    const uint64_t *slots, size_t slot_count, size_t *culprit)
{
    if (count > UINT32_MAX)
        return -ENOSPC;
    gfs_write_map(writer, 2);
    gfs_write_text(writer, "v", 1);
    gfs_write_uint(writer, BULK_VERSION);
    gfs_write_text(writer, "metadata", strlen("metadata"));
    gfs_write_array(writer, (uint32_t)count);
    for (size_t i = 0; i < count; i++) {
        size_t rank = bulk_rank(slots, slot_count, entries[i].slot);
        int bound = entries[i].slot != GMSFS_SLOT_NONE;
        if (bound && (rank == slot_count || slots[rank] != entries[i].slot)) {
            *culprit = i;
            return -EINVAL; /* as the mount says for METADATA_PUT */
        }
        gfs_write_array(writer, 4);
        gfs_write_text(writer, entries[i].key, strlen(entries[i].key));
        if (bound)
            gfs_write_uint(writer, rank);
        else
            gfs_write_nil(writer);
        gfs_write_uint(writer, entries[i].offset);
        gfs_write_binary(writer, entries[i].value, entries[i].value_bytes);
    }
    return writer->failed;
}

/* Ranks are asked for only where an entry is bound. */
static int bulk_slots(struct gmsfs_store *handle, const struct gmsfs_metadata *entries,
                      size_t count, uint64_t **slots, size_t *slot_count)
{
    struct gmsfs_handle_info *list = NULL;
    uint64_t bound = GMSFS_SLOT_NONE, first = 0, row = 0;
    int error;

    for (size_t i = 0; i < count && bound == GMSFS_SLOT_NONE; i++)
        bound = entries[i].slot;
    *slots = NULL;
    *slot_count = 0;
    if (bound == GMSFS_SLOT_NONE)
        return 0;
    if (!gfs_list_in_a_row(handle, &first, &row)) {
        error = gfs_list(handle, &list, slot_count);
        if (error)
            return error;
        row = *slot_count;
    }
    *slot_count = row;
    *slots = calloc(row + 1, sizeof **slots);
    for (size_t i = 0; *slots && i < *slot_count; i++)
        (*slots)[i] = list ? list[i].slot : first + i;
    free(list);
    return *slots ? 0 : -ENOMEM;
}

/* The writer's `drain`. */
static int bulk_write(void *context, const uint8_t *bytes, size_t size_bytes)
{
    struct gmsfs_store *handle = context;
    ssize_t written;

    while (size_bytes) {
        written = write(handle->ctl_fd, bytes, size_bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return written < 0 ? gfs_file_error(errno) : -EIO;
        bytes += written;
        size_bytes -= (size_t)written;
    }
    return 0;
}

/* -ENOMEM may have been the kernel's want of memory, and the document still lies there. Where it
 * does not, the second APPLY finds none. */
static int bulk_apply(struct gmsfs_store *handle, struct gmsfs_ioc_apply *apply, size_t count)
{
    int error = gfs_ioctl(handle, GMSFS_IOC_APPLY, apply);

    if (error != -ENOMEM)
        return error;
    error = gfs_ioctl(handle, GMSFS_IOC_APPLY, apply);
    return !error && apply->error == -EINVAL && apply->culprit >= count ? -ENOMEM : error;
}

/* Sends bytes while it encodes others, so never more than a piece of the document is in memory.
 * APPLY discards the gathered bytes also after a failure: half a document is invalid. */
static int bulk_send(struct gmsfs_store *handle, const struct gmsfs_metadata *entries, size_t count,
                     const uint64_t *slots, size_t slot_count, size_t *culprit)
{
    struct gfs_writer writer = {
        .drain = bulk_write, .context = handle, .drain_bytes = BULK_PIECE_BYTES};
    struct gmsfs_ioc_apply apply = {0};
    int sent = gfs_bulk_encode(&writer, entries, count, slots, slot_count, culprit);

    if (!sent)
        sent = gfs_write_end(&writer);
    free(writer.bytes);
    int error = bulk_apply(handle, &apply, count);
    if (sent)
        return sent;
    if (!error && apply.error) {
        error = apply.error < 0 ? apply.error : -EPROTO;
        if (apply.culprit < count)
            *culprit = (size_t)apply.culprit;
    }
    return error;
}

/* The written document may be lost with the daemon's worker before it is applied: then EIO, and it
 * is sent again, as setting an entry twice is the same as once. */
int gfs_bulk_put(struct gmsfs_store *handle, const struct gmsfs_metadata *entries, size_t count,
                 size_t *culprit)
{
    SCOPED_FREE uint64_t *slots = NULL;
    size_t slot_count;
    unsigned tries = 0;

    if (count == 0)
        return 0;
    int error = bulk_slots(handle, entries, count, &slots, &slot_count);
    do {
        if (!error || error == -EIO)
            error = bulk_send(handle, entries, count, slots, slot_count, culprit);
    } while (error == -EIO && ++tries < BULK_TRIES && !gfs_wait_is_cancelled(handle));
    return error;
}
