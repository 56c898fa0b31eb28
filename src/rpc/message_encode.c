/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields into frames. A frame is written behind the whole ones of its buffer, which grow by it only
 * at its end. msgpack-c writes every number and length in its shortest form.
 */
#include "rpc/message_table.h"

#include <errno.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM_BYTES 512u

static size_t most_payload_bytes(enum message_protocol protocol)
{
    return protocol == MESSAGE_V1 ? MESSAGE_V1_MAX_BYTES : UINT32_MAX;
}

static int make_room(struct message_buffer *buffer, size_t bytes)
{
    size_t room = buffer->room_bytes ? buffer->room_bytes : FIRST_ROOM_BYTES;
    uint8_t *moved;

    if (bytes <= buffer->room_bytes - buffer->used_bytes)
        return 0;
    while (room - buffer->used_bytes < bytes) {
        if (room > SIZE_MAX / 2)
            return -ENOMEM;
        room *= 2;
    }
    moved = realloc(buffer->bytes, room);
    if (!moved)
        return -ENOMEM;
    buffer->bytes = moved;
    buffer->room_bytes = room;
    return 0;
}

/* msgpack's write function, which can only say that it failed: the buffer keeps why. */
static int buffer_write(void *data, const char *bytes, size_t size)
{
    struct message_buffer *buffer = data;
    size_t frame_bytes = buffer->used_bytes - buffer->size_bytes;

    if (buffer->error == 0 &&
        size > MESSAGE_HEADER_BYTES + most_payload_bytes(buffer->protocol) - frame_bytes)
        buffer->error = -EMSGSIZE;
    if (buffer->error == 0)
        buffer->error = make_room(buffer, size);
    if (buffer->error < 0)
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
    /* That of -2^63 would not fit into an int64_t. */
    return msgpack_pack_int64(packer, -(int64_t)(integer.magnitude - 1) - 1);
}

static int pack_identity(msgpack_packer *packer, const struct message *message)
{
    int failed = msgpack_pack_array(packer, 2);

    failed |= pack_text(packer, message->server_nonce);
    return failed | pack_text(packer, message->gpu_uuid);
}

/* Whether a field that is not nil by itself has no value; a bool always has one. */
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

static int pack_value(msgpack_packer *packer, const struct message_field *field,
                      const struct message *message, uint32_t item_count)
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
    return msgpack_pack_array(packer, item_count);
}

static int pack_field(msgpack_packer *packer, const struct message_field *field,
                      const struct message *message, uint32_t item_count)
{
    struct message defaults = {0};

    if (!is_absent(field, message))
        return pack_value(packer, field, message, item_count);
    if (message_is_nil_good(field))
        return msgpack_pack_nil(packer);
    message_set_absent(field, &defaults);
    if (is_absent(field, &defaults))
        return -EINVAL;
    return pack_value(packer, field, &defaults, item_count);
}

static bool is_written(const struct message_field *field, const struct message *message)
{
    return field->absent != FIELD_LATER || *(const bool *)((const char *)message + field->offset);
}

/* The error is the buffer's. */
static int pack_row(struct message_buffer *buffer, const struct message_row *row,
                    const struct message *message, uint32_t item_count)
{
    msgpack_packer packer;
    size_t count = row->tag != NULL;
    int failed = 0;

    msgpack_packer_init(&packer, buffer, buffer_write);
    for (const struct message_field *field = row->fields; field->name; field++)
        count += is_written(field, message);
    if (!row->is_bare)
        failed |= msgpack_pack_map(&packer, count);
    if (row->tag)
        failed |= pack_name(&packer, "type") | pack_name(&packer, row->tag);
    for (const struct message_field *field = row->fields; field->name && !failed; field++) {
        if (!is_written(field, message))
            continue;
        if (!row->is_bare)
            failed |= pack_name(&packer, field->name);
        failed |= pack_field(&packer, field, message, item_count);
    }
    if (failed && buffer->error == 0)
        buffer->error = -EINVAL;
    return buffer->error;
}

int message_begin(struct message_buffer *buffer, enum message_protocol protocol,
                  const struct message *message, uint32_t item_count)
{
    static const char no_length[MESSAGE_HEADER_BYTES];
    const struct message_row *row = message_find_type(protocol, message->type, message->is_older);

    buffer->used_bytes = buffer->size_bytes;
    buffer->protocol = protocol;
    buffer->items_left = item_count;
    buffer->item = row ? row->item : NULL;
    buffer->error = row && (row->item || item_count == 0) ? 0 : -EINVAL;
    if (buffer->error < 0 || buffer_write(buffer, no_length, sizeof no_length) < 0)
        return buffer->error;
    return pack_row(buffer, row, message, item_count);
}

int message_add_item(struct message_buffer *buffer, const struct message *item)
{
    if (buffer->error == 0 && buffer->items_left == 0)
        buffer->error = -EINVAL;
    if (buffer->error < 0)
        return buffer->error;
    buffer->items_left--;
    return pack_row(buffer, buffer->item, item, 0);
}

int message_end(struct message_buffer *buffer)
{
    size_t payload_bytes = buffer->used_bytes - buffer->size_bytes - MESSAGE_HEADER_BYTES;

    if (buffer->error == 0 && buffer->items_left > 0)
        buffer->error = -EINVAL;
    if (buffer->error < 0)
        return buffer->error;
    for (unsigned i = 0; i < MESSAGE_HEADER_BYTES; i++)
        buffer->bytes[buffer->size_bytes + i] =
            (uint8_t)(payload_bytes >> 8 * (MESSAGE_HEADER_BYTES - 1 - i));
    buffer->size_bytes = buffer->used_bytes;
    return 0;
}

int message_encode(struct message_buffer *buffer, enum message_protocol protocol,
                   const struct message *message)
{
    int error = message_begin(buffer, protocol, message, 0);

    return error < 0 ? error : message_end(buffer);
}

void message_buffer_free(struct message_buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct message_buffer){0};
}
