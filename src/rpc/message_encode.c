/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes fields into frames. A frame is written behind the buffer's whole ones, which only include
 * it at its end. msgpack-c writes every number and length in its shortest form. So is the count of
 * a list's items, which is written last: there is room for the longest form before them, and a
 * shorter one moves the bytes before it up.
 */
#include "rpc/message_table.h"

#include "pack/pack.h"

#include <endian.h>
#include <errno.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM_BYTES  512u
#define LONG_ROOM_BYTES   (1u << 20) /* from here on it grows by less, because it is charged */
#define LONGEST_COUNT     5u         /* bytes of the longest count */
#define LONGEST_TEXT_HEAD 5u

static size_t count_bytes(uint32_t count)
{
    if (count < 16)
        return 1;
    return count <= UINT16_MAX ? 3 : LONGEST_COUNT;
}

/* Returns the longest length of the frame, with the room for a longer count. */
static size_t most_frame_bytes(const struct message_buffer *buffer)
{
    size_t most = buffer->protocol == MESSAGE_V1 ? MESSAGE_V1_MAX_BYTES : UINT32_MAX;

    if (buffer->item)
        most += LONGEST_COUNT - count_bytes(buffer->item_count);
    return MESSAGE_HEADER_BYTES + most;
}

static int make_room(struct message_buffer *buffer, size_t bytes)
{
    size_t room = buffer->room_bytes ? buffer->room_bytes : FIRST_ROOM_BYTES;

    if (bytes <= buffer->room_bytes - buffer->used_bytes)
        return 0;
    while (room - buffer->used_bytes < bytes) {
        if (room > SIZE_MAX / 2)
            return -ENOMEM;
        room += room < LONG_ROOM_BYTES ? room : room / 4;
    }
    uint8_t *moved = realloc(buffer->bytes, room);
    if (!moved)
        return -ENOMEM;
    buffer->bytes = moved;
    buffer->room_bytes = room;
    return 0;
}

/* Makes room for this many more bytes of the frame. The buffer keeps the error. */
static int reserve(struct message_buffer *buffer, size_t bytes)
{
    size_t frame_bytes = buffer->used_bytes - buffer->size_bytes;

    if (buffer->error == 0 && frame_bytes + bytes > most_frame_bytes(buffer))
        buffer->error = -EMSGSIZE;
    if (buffer->error == 0)
        buffer->error = make_room(buffer, bytes);
    return buffer->error;
}

/* msgpack's write function, whose failure has no reason: the buffer keeps it. */
static int buffer_write(void *data, const char *bytes, size_t size)
{
    struct message_buffer *buffer = data;

    if (reserve(buffer, size) < 0)
        return -1;
    if (size > 0)
        memcpy(buffer->bytes + buffer->used_bytes, bytes, size);
    buffer->used_bytes += size;
    return 0;
}

static int pack_name(msgpack_packer *packer, const char *name)
{
    return msgpack_pack_str_with_body(packer, name, strlen(name));
}

static int pack_text(msgpack_packer *packer, struct message_text text)
{
    return msgpack_pack_str_with_body(packer, text.at, text.bytes);
}

static int pack_bool(msgpack_packer *packer, bool value)
{
    return value ? msgpack_pack_true(packer) : msgpack_pack_false(packer);
}

static int pack_integer(msgpack_packer *packer, struct message_integer integer)
{
    if (!integer.is_negative)
        return msgpack_pack_uint64(packer, integer.magnitude);
    /* the negation of -2^63 would not fit into an int64_t */
    return msgpack_pack_int64(packer, -(int64_t)(integer.magnitude - 1) - 1);
}

static int pack_identity(msgpack_packer *packer, const struct message *message)
{
    int failed = msgpack_pack_array(packer, 2);

    failed |= pack_text(packer, message->server_nonce);
    return failed | pack_text(packer, message->gpu_uuid);
}

/* Returns true if a field that may be nil has no value; a bool always has one. */
static bool is_absent(const struct message_field *field, const struct message *message)
{
    const char *member = (const char *)message + field->offset;

    switch (field->kind) {
    case FIELD_INTEGER:
        return !((const struct message_integer *)member)->is_given;
    case FIELD_TEXT:
    case FIELD_BYTES:
        return !((const struct message_text *)member)->at;
    case FIELD_WANTED:
    case FIELD_GRANTED:
        return !message_lock_name(field->kind, message->lock_type);
    case FIELD_IDENTITY:
        return !message->server_nonce.at || !message->gpu_uuid.at;
    case FIELD_BOOL:
    case FIELD_LIST:
        break;
    }
    return false;
}

/* Leaves room for the count of a list, which is the last field of its message: the count is written
 * after the items. */
static int pack_no_count(msgpack_packer *packer)
{
    static const char no_count[LONGEST_COUNT];
    struct message_buffer *buffer = packer->data;

    buffer->list_bytes = buffer->used_bytes;
    return buffer_write(buffer, no_count, sizeof no_count);
}

static int pack_value(msgpack_packer *packer, const struct message_field *field,
                      const struct message *message)
{
    const void *member = (const char *)message + field->offset;
    const struct message_text *text = member;

    switch (field->kind) {
    case FIELD_INTEGER:
        return pack_integer(packer, *(const struct message_integer *)member);
    case FIELD_BOOL:
        return pack_bool(packer, *(const bool *)member);
    case FIELD_TEXT:
        return pack_text(packer, *text);
    case FIELD_BYTES:
        return msgpack_pack_bin_with_body(packer, text->at, text->bytes);
    case FIELD_WANTED:
    case FIELD_GRANTED:
        return pack_name(packer, message_lock_name(field->kind, message->lock_type));
    case FIELD_IDENTITY:
        return pack_identity(packer, message);
    case FIELD_LIST:
        break;
    }
    return pack_no_count(packer);
}

static int pack_default(msgpack_packer *packer, const struct message_field *field)
{
    struct message defaults = {0};

    message_set_absent(field, &defaults);
    return is_absent(field, &defaults) ? -EINVAL : pack_value(packer, field, &defaults);
}

static int pack_field(msgpack_packer *packer, const struct message_field *field,
                      const struct message *message)
{
    if (!is_absent(field, message))
        return pack_value(packer, field, message);
    return message_is_nil_good(field) ? msgpack_pack_nil(packer) : pack_default(packer, field);
}

static bool is_written(const struct message_field *field, const struct message *message)
{
    return field->absent != FIELD_LATER || *(const bool *)((const char *)message + field->offset);
}

/* The buffer keeps the error. */
static int pack_row(struct message_buffer *buffer, const struct message_row *row,
                    const struct message *message)
{
    msgpack_packer packer;
    size_t count = row->tag != NULL;
    int failed = 0;

    msgpack_packer_init(&packer, buffer, buffer_write);
    for (const struct message_field *field = row->fields; field->name; field++)
        count += is_written(field, message);
    failed |= msgpack_pack_map(&packer, count);
    if (row->tag)
        failed |= pack_name(&packer, "type") | pack_name(&packer, row->tag);
    for (const struct message_field *field = row->fields; field->name && !failed; field++) {
        if (!is_written(field, message))
            continue;
        failed |= msgpack_pack_str_with_body(&packer, field->name, field->name_bytes);
        failed |= pack_field(&packer, field, message);
    }
    if (failed && buffer->error == 0)
        buffer->error = -EINVAL;
    return buffer->error;
}

int message_begin(struct message_buffer *buffer, enum message_protocol protocol,
                  const struct message *message)
{
    static const char no_length[MESSAGE_HEADER_BYTES];
    const struct message_row *row = message_find_type(protocol, message->type, message->is_older);

    buffer->used_bytes = buffer->size_bytes;
    buffer->protocol = protocol;
    buffer->item = row ? row->item : NULL;
    buffer->item_count = 0;
    buffer->error = row ? 0 : -EINVAL;
    if (buffer->error < 0 || buffer_write(buffer, no_length, sizeof no_length) < 0)
        return buffer->error;
    return pack_row(buffer, row, message);
}

static int begin_items(struct message_buffer *buffer, bool is_bare, size_t count)
{
    if (buffer->error == 0 && (!buffer->item || buffer->item->is_bare != is_bare ||
                               count > UINT32_MAX - buffer->item_count))
        buffer->error = -EINVAL;
    if (buffer->error == 0)
        buffer->item_count += (uint32_t)count;
    return buffer->error;
}

/* There may be hundreds of thousands of texts: no call and no check of room for each. */
int message_add_texts(struct message_buffer *buffer, const struct message_text *texts, size_t count)
{
    size_t most_bytes = 0;

    for (size_t i = 0; i < count; i++) {
        most_bytes += LONGEST_TEXT_HEAD + texts[i].bytes;
    }
    if (begin_items(buffer, true, count) < 0 || reserve(buffer, most_bytes) < 0)
        return buffer->error;
    uint8_t *at = buffer->bytes + buffer->used_bytes;
    for (size_t i = 0; i < count; i++) {
        at = pack_str_head(at, texts[i].bytes);
        memcpy(at, texts[i].at, texts[i].bytes);
        at += texts[i].bytes;
    }
    buffer->used_bytes = (size_t)(at - buffer->bytes);
    return 0;
}

int message_add_item(struct message_buffer *buffer, const struct message *item)
{
    const struct message_row *row = buffer->item;

    if (row && row->is_bare && buffer->error == 0 && is_absent(row->fields, item))
        buffer->error = -EINVAL;
    if (row && row->is_bare)
        return message_add_texts(
            buffer, (const struct message_text *)((const char *)item + row->fields[0].offset), 1);
    if (begin_items(buffer, false, 1) < 0)
        return buffer->error;
    return pack_row(buffer, row, item);
}

/* Writes the count in its shortest form, before the items. */
static void write_count(struct message_buffer *buffer)
{
    size_t bytes = count_bytes(buffer->item_count), unused = LONGEST_COUNT - bytes;

    pack_array(buffer->bytes + buffer->list_bytes + unused, buffer->item_count);
    if (unused > 0)
        memmove(buffer->bytes + buffer->begin_bytes + unused, buffer->bytes + buffer->begin_bytes,
                buffer->list_bytes - buffer->begin_bytes);
    buffer->begin_bytes += unused;
    buffer->size_bytes += unused;
}

int message_end(struct message_buffer *buffer)
{
    uint32_t payload_bytes;

    if (buffer->error < 0)
        return buffer->error;
    if (buffer->item)
        write_count(buffer);
    payload_bytes =
        htobe32((uint32_t)(buffer->used_bytes - buffer->size_bytes - MESSAGE_HEADER_BYTES));
    memcpy(buffer->bytes + buffer->size_bytes, &payload_bytes, MESSAGE_HEADER_BYTES);
    buffer->size_bytes = buffer->used_bytes;
    buffer->item = NULL;
    return 0;
}

int message_encode(struct message_buffer *buffer, enum message_protocol protocol,
                   const struct message *message)
{
    int error = message_begin(buffer, protocol, message);

    return error < 0 ? error : message_end(buffer);
}

void message_buffer_free(struct message_buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct message_buffer){0};
}
