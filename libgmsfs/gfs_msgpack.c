/* SPDX-License-Identifier: Apache-2.0 */
#include "gfs_msgpack.h"

#include "pack/pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Nothing fits from now on, so the way to write_more is the only one that looks for failures. */
static void write_fail(struct gfs_writer *writer, int error)
{
    if (!writer->failed)
        writer->failed = error;
    writer->size_bytes = writer->room_bytes;
}

static void write_drain(struct gfs_writer *writer)
{
    int error = 0;

    if (!writer->failed && writer->size_bytes)
        error = writer->drain(writer->context, writer->bytes, writer->size_bytes);
    if (error)
        write_fail(writer, error);
    if (!writer->failed)
        writer->size_bytes = 0;
}

static int write_grow(struct gfs_writer *writer, size_t size_bytes)
{
    size_t room = writer->room_bytes ? writer->room_bytes : 4096;

    if (writer->drain && !writer->bytes)
        room = writer->drain_bytes;
    if (size_bytes > SIZE_MAX / 4 - writer->size_bytes)
        return -ENOMEM;
    while (room < writer->size_bytes + size_bytes)
        room *= 2;
    if (room == writer->room_bytes)
        return 0;
    uint8_t *grown = realloc(writer->bytes, room);
    if (!grown)
        return -ENOMEM;
    writer->bytes = grown;
    writer->room_bytes = room;
    return 0;
}

/* Whether there is room then. */
static int write_more(struct gfs_writer *writer, size_t size_bytes)
{
    int error = 0;

    if (writer->drain && !writer->failed)
        write_drain(writer);
    if (!writer->failed)
        error = write_grow(writer, size_bytes);
    if (error)
        write_fail(writer, error);
    return !writer->failed;
}

static inline uint8_t *write_room(struct gfs_writer *writer, size_t size_bytes)
{
    if (size_bytes > writer->room_bytes - writer->size_bytes && !write_more(writer, size_bytes))
        return NULL;
    uint8_t *place = writer->bytes + writer->size_bytes;
    writer->size_bytes += size_bytes;
    return place;
}

int gfs_write_end(struct gfs_writer *writer)
{
    write_drain(writer);
    return writer->failed;
}

static void write_raw(struct gfs_writer *writer, const void *bytes, size_t size_bytes)
{
    uint8_t *place = size_bytes ? write_room(writer, size_bytes) : NULL;

    if (place)
        memcpy(place, bytes, size_bytes);
}

/* Returns the place of the next head, with room for the longest; NULL after a failure. */
static inline uint8_t *head_begin(struct gfs_writer *writer)
{
    if (writer->room_bytes - writer->size_bytes < PACK_MAX_BYTES &&
        !write_more(writer, PACK_MAX_BYTES))
        return NULL;
    return writer->bytes + writer->size_bytes;
}

static inline void head_end(struct gfs_writer *writer, const uint8_t *end)
{
    writer->size_bytes = (size_t)(end - writer->bytes);
}

void gfs_write_array(struct gfs_writer *writer, uint32_t count)
{
    uint8_t *place = head_begin(writer);

    if (place)
        head_end(writer, pack_array(place, count));
}

void gfs_write_map(struct gfs_writer *writer, uint32_t count)
{
    uint8_t *place = head_begin(writer);

    if (place)
        head_end(writer, pack_map(place, count));
}

void gfs_write_uint(struct gfs_writer *writer, uint64_t value)
{
    uint8_t *place = head_begin(writer);

    if (place)
        head_end(writer, pack_uint(place, value));
}

static void write_bytes(struct gfs_writer *writer, uint8_t *pack_head(uint8_t *at, size_t size),
                        const void *bytes, size_t size_bytes)
{
    uint8_t *place = head_begin(writer);

    if (size_bytes > UINT32_MAX)
        write_fail(writer, -ENOMEM);
    else if (place)
        head_end(writer, pack_head(place, size_bytes));
    write_raw(writer, bytes, size_bytes);
}

void gfs_write_text(struct gfs_writer *writer, const char *text, size_t size_bytes)
{
    write_bytes(writer, pack_str_head, text, size_bytes);
}

void gfs_write_binary(struct gfs_writer *writer, const void *bytes, size_t size_bytes)
{
    write_bytes(writer, pack_bin_head, bytes, size_bytes);
}

void gfs_write_nil(struct gfs_writer *writer)
{
    uint8_t *place = head_begin(writer);

    if (place)
        head_end(writer, pack_nil(place));
}
