/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/wire_proto.h"

#include <errno.h>

#define MAX_NUMBER ((1u << 29) - 1)

struct wire_proto wire_proto_begin(struct wire_text message)
{
    const uint8_t *at = (const uint8_t *)message.at;

    return (struct wire_proto){at, message.bytes ? at + message.bytes : at};
}

static int take_varint(struct wire_proto *proto, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 70 && proto->at != proto->end; shift += 7) {
        uint8_t byte = *proto->at++;
        if (shift == 63 && byte > 1)
            return -EPROTO;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return 0;
    }
    return -EPROTO;
}

static int take_fixed(struct wire_proto *proto, size_t bytes, uint64_t *value)
{
    if ((size_t)(proto->end - proto->at) < bytes)
        return -EPROTO;
    *value = 0;
    for (size_t i = 0; i < bytes; i++)
        *value |= (uint64_t)proto->at[i] << 8 * i;
    proto->at += bytes;
    return 0;
}

static int take_bytes(struct wire_proto *proto, struct wire_text *text)
{
    uint64_t bytes;
    int error = take_varint(proto, &bytes);

    if (error)
        return error;
    if (bytes > (uint64_t)(proto->end - proto->at))
        return -EPROTO;
    *text = (struct wire_text){(const char *)proto->at, bytes};
    proto->at += bytes;
    return 0;
}

int wire_proto_next(struct wire_proto *proto, struct wire_field *field)
{
    uint64_t tag;

    *field = (struct wire_field){0};
    if (proto->at == proto->end)
        return 0;
    int error = take_varint(proto, &tag);
    if (error || tag >> 3 == 0 || tag >> 3 > MAX_NUMBER)
        return -EPROTO;
    field->number = (uint32_t)(tag >> 3);
    field->type = (enum wire_proto_type)(tag & 7);
    switch (field->type) {
    case WIRE_PROTO_VARINT:
        error = take_varint(proto, &field->value);
        break;
    case WIRE_PROTO_FIXED64:
        error = take_fixed(proto, 8, &field->value);
        break;
    case WIRE_PROTO_FIXED32:
        error = take_fixed(proto, 4, &field->value);
        break;
    case WIRE_PROTO_BYTES:
        error = take_bytes(proto, &field->text);
        break;
    default:
        error = -EPROTO;
    }
    return error ? error : 1;
}

int wire_proto_next_packed(struct wire_proto *proto, uint64_t *value)
{
    if (proto->at == proto->end)
        return 0;
    int error = take_varint(proto, value);
    return error ? error : 1;
}

void wire_proto_put_varint(struct wire_buffer *buffer, uint64_t value)
{
    uint8_t bytes[10];
    size_t size = 0;

    for (; value >= 0x80; value >>= 7)
        bytes[size++] = (uint8_t)(value | 0x80);
    bytes[size++] = (uint8_t)value;
    wire_put(buffer, bytes, size);
}

void wire_proto_put_uint(struct wire_buffer *buffer, uint32_t number, uint64_t value)
{
    if (value == 0)
        return;
    wire_proto_put_varint(buffer, (uint64_t)number << 3 | WIRE_PROTO_VARINT);
    wire_proto_put_varint(buffer, value);
}

void wire_proto_put_message(struct wire_buffer *buffer, uint32_t number, struct wire_text message)
{
    wire_proto_put_varint(buffer, (uint64_t)number << 3 | WIRE_PROTO_BYTES);
    wire_proto_put_varint(buffer, message.bytes);
    wire_put_text(buffer, message);
}

void wire_proto_put_text(struct wire_buffer *buffer, uint32_t number, struct wire_text text)
{
    if (text.bytes > 0)
        wire_proto_put_message(buffer, number, text);
}
