/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_text - texts that point into what a client sent, and a buffer that answers grow in
 *
 * Pure, as all files wire_*: for the front end for Triton clients, its tests and its fuzz targets.
 * A text is bytes with a length, without a terminator, and lives as long as what it points into.
 */
#ifndef GMSFS_TRITON_WIRE_TEXT_H
#define GMSFS_TRITON_WIRE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire_text {
    const char *at;
    size_t bytes;
};

#define WIRE_TEXT(literal) ((struct wire_text){(literal), sizeof(literal) - 1})
/* For "%.*s". */
#define WIRE_SHOW(text) (int)(text).bytes, (text).at

struct wire_text wire_text_of(const char *text); /* NULL: the empty one */
bool wire_text_is(struct wire_text text, const char *other);
bool wire_text_is_same(struct wire_text text, struct wire_text other);
/* Names of headers: ASCII letters in either case are the same. */
bool wire_text_is_header(struct wire_text text, const char *other);
/* The text begins, or ends, with that, which is then cut off. */
bool wire_text_cut_front(struct wire_text *text, const char *front);
bool wire_text_cut_back(struct wire_text *text, const char *back);
bool wire_text_is_utf8(struct wire_text text);
/* Decimal digits and nothing else. -EINVAL, -ERANGE */
int wire_text_number(struct wire_text text, uint64_t *number);

/* %XX becomes the byte, in place; *bytes is what is left. -EINVAL */
int wire_unquote(char *text, size_t *bytes);

/* Grows up to `limit_bytes`; what does not fit, or finds no memory, marks it as failed, and nothing
 * is put in any more. Zeroed but for the limit it is empty. */
struct wire_buffer {
    uint8_t *bytes;
    size_t size, room;
    size_t limit_bytes;
    bool has_failed;
};

void wire_put(struct wire_buffer *buffer, const void *bytes, size_t size);
void wire_put_text(struct wire_buffer *buffer, struct wire_text text);
void wire_print(struct wire_buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* As gRPC wants a message: %XX for all that is not printable ASCII, and for %. */
void wire_put_quoted(struct wire_buffer *buffer, struct wire_text text);
void wire_buffer_free(struct wire_buffer *buffer); /* empty then, with the same limit */

/* RFC 4648, with padding, without anything between. -EINVAL; -EMSGSIZE: it is more than `room`. */
int wire_base64_decode(struct wire_text text, uint8_t *bytes, size_t room, size_t *size);

#endif
