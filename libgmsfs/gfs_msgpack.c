/* SPDX-License-Identifier: Apache-2.0 */
#include "gfs_msgpack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum msgpack_tag {
    TAG_FIXMAP = 0x80,
    TAG_FIXARRAY = 0x90,
    TAG_FIXSTR = 0xa0,
    TAG_NIL = 0xc0,
    TAG_BIN8 = 0xc4, /* 16 and 32 follow; so below */
    TAG_UINT8 = 0xcc,
    TAG_UINT64 = 0xcf,
    TAG_STR8 = 0xd9,
    TAG_ARRAY16 = 0xdc,
    TAG_MAP16 = 0xde,
};

/* ---- reading ------------------------------------------------------------------------------ */

static int read_number(struct gfs_reader *reader, size_t size_bytes, uint64_t *value)
{
    uint64_t number = 0;

    if ((size_t)(reader->end - reader->at) < size_bytes)
        return -EPROTO;
    for (size_t i = 0; i < size_bytes; i++)
        number = number << 8 | *reader->at++;
    *value = number;
    return 0;
}

/* A length: in the tag's low bits (`fix`, 0: there is no such form), or in 1, 2, 4 bytes behind
 * one of the tags from `first`, of which the shortest has `first_bytes`. */
static int read_length(struct gfs_reader *reader, unsigned fix, unsigned fix_bits, unsigned first,
                       size_t first_bytes, uint64_t *length)
{
    unsigned tag, mask = (1u << fix_bits) - 1;

    if (reader->at == reader->end)
        return -EPROTO;
    tag = *reader->at;
    if (fix && (tag & ~mask) == fix) {
        reader->at++;
        *length = tag & mask;
        return 0;
    }
    for (size_t bytes = first_bytes; bytes <= 4; bytes *= 2, first++) {
        if (tag != first)
            continue;
        reader->at++;
        return read_number(reader, bytes, length);
    }
    return -EPROTO;
}

/* Every element has a byte at least, so a count beyond the rest is a lie. */
static int read_count(struct gfs_reader *reader, unsigned fix, unsigned first, uint32_t *count)
{
    uint64_t length;

    if (read_length(reader, fix, 4, first, 2, &length) ||
        length > (uint64_t)(reader->end - reader->at))
        return -EPROTO;
    *count = (uint32_t)length;
    return 0;
}

static int read_bytes(struct gfs_reader *reader, unsigned fix, unsigned first,
                      const uint8_t **bytes, size_t *size_bytes)
{
    uint64_t length;

    if (read_length(reader, fix, 5, first, 1, &length) ||
        length > (uint64_t)(reader->end - reader->at))
        return -EPROTO;
    *bytes = reader->at;
    *size_bytes = length;
    reader->at += length;
    return 0;
}

int gfs_read_array(struct gfs_reader *reader, uint32_t *count)
{
    return read_count(reader, TAG_FIXARRAY, TAG_ARRAY16, count);
}

int gfs_read_map(struct gfs_reader *reader, uint32_t *count)
{
    return read_count(reader, TAG_FIXMAP, TAG_MAP16, count);
}

int gfs_read_uint(struct gfs_reader *reader, uint64_t *value)
{
    unsigned tag;

    if (reader->at == reader->end)
        return -EPROTO;
    tag = *reader->at;
    if (tag >= TAG_FIXMAP && (tag < TAG_UINT8 || tag > TAG_UINT64))
        return -EPROTO;
    reader->at++;
    if (tag >= TAG_FIXMAP)
        return read_number(reader, (size_t)1 << (tag - TAG_UINT8), value);
    *value = tag;
    return 0;
}

int gfs_read_text(struct gfs_reader *reader, const char **text, size_t *size_bytes)
{
    const uint8_t *bytes;
    int error = read_bytes(reader, TAG_FIXSTR, TAG_STR8, &bytes, size_bytes);

    if (!error)
        *text = (const char *)bytes;
    return error;
}

int gfs_read_binary(struct gfs_reader *reader, const uint8_t **bytes, size_t *size_bytes)
{
    return read_bytes(reader, 0, TAG_BIN8, bytes, size_bytes);
}

int gfs_read_nil(struct gfs_reader *reader)
{
    if (reader->at == reader->end || *reader->at != TAG_NIL)
        return 0;
    reader->at++;
    return 1;
}

/* ---- writing ------------------------------------------------------------------------------ */

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
    uint8_t *grown;

    if (writer->drain && !writer->bytes)
        room = writer->drain_bytes;
    if (size_bytes > SIZE_MAX / 4 - writer->size_bytes)
        return -ENOMEM;
    while (room < writer->size_bytes + size_bytes)
        room *= 2;
    if (room == writer->room_bytes)
        return 0;
    grown = realloc(writer->bytes, room);
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
    uint8_t *place;

    if (size_bytes > writer->room_bytes - writer->size_bytes && !write_more(writer, size_bytes))
        return NULL;
    place = writer->bytes + writer->size_bytes;
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

/* Writes a tag that is a whole item, the most frequent case. */
static inline void write_tag(struct gfs_writer *writer, unsigned tag)
{
    uint8_t *place = write_room(writer, 1);

    if (place)
        *place = (uint8_t)tag;
}

static void write_number(struct gfs_writer *writer, unsigned tag, uint64_t value, size_t size_bytes)
{
    uint8_t *place = write_room(writer, 1 + size_bytes);

    if (!place)
        return;
    *place++ = (uint8_t)tag;
    while (size_bytes)
        *place++ = (uint8_t)(value >> 8 * --size_bytes);
}

/* The tag of the shortest form that holds `value` in 1, 2, 4 or 8 bytes, `first` being that of
 * the first form, which has `first_bytes`. */
static void write_shortest(struct gfs_writer *writer, unsigned first, size_t first_bytes,
                           uint64_t value)
{
    size_t size_bytes = first_bytes;
    uint8_t *place;

    if (value <= UINT8_MAX && first_bytes == 1) { /* nearly always */
        place = write_room(writer, 2);
        if (place) {
            place[0] = (uint8_t)first;
            place[1] = (uint8_t)value;
        }
        return;
    }

    while (size_bytes < 8 && value >> 8 * size_bytes) {
        size_bytes *= 2;
        first++;
    }
    write_number(writer, first, value, size_bytes);
}

void gfs_write_array(struct gfs_writer *writer, uint32_t count)
{
    if (count < 16)
        write_tag(writer, TAG_FIXARRAY | count);
    else
        write_shortest(writer, TAG_ARRAY16, 2, count);
}

void gfs_write_map(struct gfs_writer *writer, uint32_t count)
{
    if (count < 16)
        write_tag(writer, TAG_FIXMAP | count);
    else
        write_shortest(writer, TAG_MAP16, 2, count);
}

void gfs_write_uint(struct gfs_writer *writer, uint64_t value)
{
    if (value < 128)
        write_tag(writer, (unsigned)value);
    else
        write_shortest(writer, TAG_UINT8, 1, value);
}

void gfs_write_text(struct gfs_writer *writer, const char *text, size_t size_bytes)
{
    if (size_bytes > UINT32_MAX)
        write_fail(writer, -ENOMEM);
    else if (size_bytes < 32)
        write_tag(writer, TAG_FIXSTR | (unsigned)size_bytes);
    else
        write_shortest(writer, TAG_STR8, 1, size_bytes);
    write_raw(writer, text, size_bytes);
}

void gfs_write_binary(struct gfs_writer *writer, const void *bytes, size_t size_bytes)
{
    if (size_bytes > UINT32_MAX)
        write_fail(writer, -ENOMEM);
    else
        write_shortest(writer, TAG_BIN8, 1, size_bytes);
    write_raw(writer, bytes, size_bytes);
}

void gfs_write_nil(struct gfs_writer *writer)
{
    write_tag(writer, TAG_NIL);
}
