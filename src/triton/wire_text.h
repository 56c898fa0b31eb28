/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_text - texts that point into received bytes, and a growing buffer for answers
 *
 * Pure, as all files wire_*: for the front end for Triton clients, its tests and its fuzz targets.
 * A text is a pointer and a length, without a terminator, valid as long as the bytes it points
 * into.
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
/* Compares names of headers: ASCII letters without regard to case. */
bool wire_text_is_header(struct wire_text text, const char *other);
/* If the text begins (or ends) with that string, cuts it off and returns true. */
bool wire_text_cut_front(struct wire_text *text, const char *front);
bool wire_text_cut_back(struct wire_text *text, const char *back);
bool wire_text_is_utf8(struct wire_text text);
/* Accepts decimal digits alone. -EINVAL, -ERANGE */
int wire_text_number(struct wire_text text, uint64_t *number);

/* Replaces %XX by its byte, in place; *bytes shrinks. -EINVAL */
int wire_unquote(char *text, size_t *bytes);

/* Grows up to `limit_bytes`; the first write beyond the limit or without memory sets has_failed,
 * and later writes do nothing. Zeroed but for the limit it is empty. */
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
/* Writes a gRPC status message: %XX for every byte that is not printable ASCII, and for %. */
void wire_put_quoted(struct wire_buffer *buffer, struct wire_text text);
void wire_buffer_free(struct wire_buffer *buffer); /* empty afterwards, with the same limit */

/* RFC 4648, padded, without line breaks. -EINVAL; -EMSGSIZE: more than `room` bytes. */
int wire_base64_decode(struct wire_text text, uint8_t *bytes, size_t room, size_t *size);

#endif
