/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_json - reads JSON token by token, and writes it
 *
 * Pure. Made for what the usual libraries lose: integers from -2^63 to 2^64 - 1 come exactly. The
 * reader takes one document from a buffer that it may change: texts are unescaped where they stand,
 * so they need no memory of their own. It is strict (RFC 8259, UTF-8), allocates nothing, and does
 * not recurse.
 */
#ifndef GMSFS_TRITON_WIRE_JSON_H
#define GMSFS_TRITON_WIRE_JSON_H

#include "triton/wire_text.h"

#define WIRE_JSON_MAX_DEPTH 32u

enum wire_json_token {
    WIRE_JSON_ERROR, /* `error` says why, `offset` where; for ever */
    WIRE_JSON_END,   /* of the document; nothing but space follows */
    WIRE_JSON_OBJECT,
    WIRE_JSON_OBJECT_END,
    WIRE_JSON_ARRAY,
    WIRE_JSON_ARRAY_END,
    WIRE_JSON_KEY,  /* `text` */
    WIRE_JSON_TEXT, /* `text` */
    WIRE_JSON_NUMBER,
    WIRE_JSON_TRUE,
    WIRE_JSON_FALSE,
    WIRE_JSON_NULL,
};

struct wire_json {
    char *bytes;
    size_t size, offset;
    unsigned depth;
    uint32_t arrays;       /* a bit for each depth: it is an array */
    unsigned wanted;       /* the reader's own: what may come next */
    struct wire_text text; /* of the last token; of a number its digits as they were sent */
    const char *error;
};

void wire_json_begin(struct wire_json *json, char *bytes, size_t size);
enum wire_json_token wire_json_next(struct wire_json *json);
/* The value that begins with `token`, all of it, goes. False: an error is in it. */
bool wire_json_skip(struct wire_json *json, enum wire_json_token token);

/* Of the last token, a number. -EINVAL: it has a fraction, an exponent or the wrong sign; -ERANGE
 */
int wire_json_uint64(const struct wire_json *json, uint64_t *number);
int wire_json_int64(const struct wire_json *json, int64_t *number);

/* A string with its quotes; what is not UTF-8 becomes U+FFFD, byte by byte. */
void wire_json_put_text(struct wire_buffer *buffer, struct wire_text text);

#endif
