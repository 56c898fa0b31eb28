/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_proto - the wire format of protobuf, field by field
 *
 * Pure. For the few messages that the front end knows (wire_grpc.c). Skips unknown fields; refuses
 * groups, which no client sends. Allocates nothing, does not recurse.
 */
#ifndef GMSFS_TRITON_WIRE_PROTO_H
#define GMSFS_TRITON_WIRE_PROTO_H

#include "triton/wire_text.h"

enum wire_proto_type {
    WIRE_PROTO_VARINT = 0,
    WIRE_PROTO_FIXED64 = 1,
    WIRE_PROTO_BYTES = 2,
    WIRE_PROTO_FIXED32 = 5,
};

struct wire_proto {
    const uint8_t *at, *end;
};

struct wire_field {
    uint32_t number;
    enum wire_proto_type type;
    uint64_t value;        /* VARINT; FIXED as bits */
    struct wire_text text; /* BYTES */
};

struct wire_proto wire_proto_begin(struct wire_text message);
/* 1: `field` is the next field; 0: there is none; -EPROTO */
int wire_proto_next(struct wire_proto *proto, struct wire_field *field);

/* Reads the next number of a packed field. 1, 0, -EPROTO */
int wire_proto_next_packed(struct wire_proto *proto, uint64_t *value);

/* Leave out zeros and empty texts, as proto3 does. */
void wire_proto_put_uint(struct wire_buffer *buffer, uint32_t number, uint64_t value);
void wire_proto_put_text(struct wire_buffer *buffer, uint32_t number, struct wire_text text);
/* Writes an empty message too, for repeated fields. */
void wire_proto_put_message(struct wire_buffer *buffer, uint32_t number, struct wire_text message);
void wire_proto_put_varint(struct wire_buffer *buffer, uint64_t value);

#endif
