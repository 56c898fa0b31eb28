/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_json - reads JSON token by token, and writes it
 *
 * Pure. Exact for integers from -2^63 to 2^64 - 1, which the usual libraries round. The reader
 * takes one document from a buffer that it changes: texts are unescaped in place, so they need no
 * memory of their own. It is strict (RFC 8259, UTF-8), allocates nothing, and does not recurse.
 */
#ifndef GMSFS_TRITON_WIRE_JSON_H
#define GMSFS_TRITON_WIRE_JSON_H

#include "triton/wire_text.h"

#define WIRE_JSON_MAX_DEPTH 32u

enum wire_json_token {
    WIRE_JSON_ERROR, /* `error` says why, `offset` where; repeated by every later call */
    WIRE_JSON_END,   /* of the document; only space follows */
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
    uint32_t arrays;       /* bit N: the value at depth N is an array */
    unsigned wanted;       /* private: tokens that may come next */
    struct wire_text text; /* of the last token; the digits of a number as sent */
    const char *error;
};

void wire_json_begin(struct wire_json *json, char *bytes, size_t size);
enum wire_json_token wire_json_next(struct wire_json *json);
/* Skips the whole value that begins with `token`. False: the value has an error. */
bool wire_json_skip(struct wire_json *json, enum wire_json_token token);

/* Convert the last token, a number. -EINVAL: it has a fraction, an exponent or the wrong sign;
 * -ERANGE */
int wire_json_uint64(const struct wire_json *json, uint64_t *number);
int wire_json_int64(const struct wire_json *json, int64_t *number);

/* Writes a quoted string; each byte that is not UTF-8 becomes U+FFFD. */
void wire_json_put_text(struct wire_buffer *buffer, struct wire_text text);

#endif
