/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message_pieces - payloads of golden frames taken apart, and put together otherwise
 *
 * For the test_rpc_message files.
 */
#ifndef GMSFS_TESTS_UNIT_MESSAGE_PIECES_H
#define GMSFS_TESTS_UNIT_MESSAGE_PIECES_H

#include "tap.h"

#include "message_again.h"
#include "message_golden.h"
#include "pack/unpack.h"
#include "rpc/message_table.h"

#include <errno.h>
#include <stdlib.h>

#define FRAME_BYTES 1024u
#define MAX_PAIRS   16u

static uint8_t hex_digit(char digit)
{
    return (uint8_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

__attribute__((unused)) static size_t read_hex(const char *hex, uint8_t frame[FRAME_BYTES])
{
    size_t size = strlen(hex) / 2;

    require(size <= FRAME_BYTES);
    for (size_t i = 0; i < size; i++)
        frame[i] = (uint8_t)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    return size;
}

/* Decodes a copy of exactly this size, so that the sanitizer sees any read beyond it. */
__attribute__((unused)) static int decode_copy(enum message_protocol protocol, const void *payload,
                                               size_t bytes)
{
    uint8_t *copy = malloc(bytes ? bytes : 1);
    struct message message;

    require(copy != NULL);
    memcpy(copy, payload, bytes);
    int error = message_decode(protocol, copy, bytes, &message);
    free(copy);
    return error;
}

__attribute__((unused)) static void check_frame(const struct message_buffer *buffer,
                                                const struct golden *golden)
{
    uint8_t frame[FRAME_BYTES];
    size_t size = read_hex(golden->hex, frame);

    if (!check_bytes(buffer->bytes + buffer->begin_bytes, buffer->size_bytes - buffer->begin_bytes,
                     frame, size))
        fprintf(stderr, "# golden %zu\n", (size_t)(golden - goldens));
}

/* Decodes a frame that must mean the same as the golden frame. */
__attribute__((unused)) static void expect_golden(const void *payload, size_t bytes,
                                                  const struct golden *golden)
{
    struct message_buffer buffer = {0};
    struct message message;

    if (check_int(message_decode(golden->protocol, payload, bytes, &message), 0)) {
        check_int(message.type, golden->message.type);
        check_int(message.is_older, golden->message.is_older);
        check_int(message.list.count, golden->item_count);
        check_int(encode_again(&buffer, golden->protocol, &message), 0);
        check_frame(&buffer, golden);
    }
    message_buffer_free(&buffer);
}

/* ---- payloads in pieces ------------------------------------------------------------------ */

struct piece {
    const uint8_t *at;
    size_t bytes;
};

/* A payload of a golden frame as its pairs of keys and values. */
struct taken {
    uint8_t frame[FRAME_BYTES];
    size_t count;
    struct piece keys[MAX_PAIRS], values[MAX_PAIRS];
};

__attribute__((unused)) static struct piece take_piece(struct unpack *unpack)
{
    struct piece piece = {.at = unpack->at};

    require(unpack_skip(unpack) == 0);
    piece.bytes = (size_t)(unpack->at - piece.at);
    return piece;
}

__attribute__((unused)) static void take_apart(const struct golden *golden, struct taken *taken)
{
    size_t size = read_hex(golden->hex, taken->frame);
    struct unpack unpack = {taken->frame + MESSAGE_HEADER_BYTES, taken->frame + size};
    uint32_t count;

    require(unpack_map(&unpack, &count) == 0 && count <= MAX_PAIRS);
    taken->count = count;
    for (uint32_t i = 0; i < count; i++) {
        taken->keys[i] = take_piece(&unpack);
        taken->values[i] = take_piece(&unpack);
    }
    require(unpack_left(&unpack) == 0);
}

__attribute__((unused)) static bool is_key(struct piece key, const char *name)
{
    return key.bytes == 1 + strlen(name) && memcmp(key.at + 1, name, key.bytes - 1) == 0;
}

/* A payload that a test writes. */
struct text {
    uint8_t bytes[4 * FRAME_BYTES];
    size_t size;
};

__attribute__((unused)) static void append(struct text *text, const void *bytes, size_t size)
{
    require(text->size + size <= sizeof text->bytes);
    if (size)
        memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
}

#define APPEND(text, literal) append((text), (literal), sizeof(literal) - 1)

/* The widest head of a map. */
__attribute__((unused)) static void append_map(struct text *text, size_t count)
{
    const uint8_t head[] = {0xdf, 0, 0, 0, (uint8_t)count};

    append(text, head, sizeof head);
}

__attribute__((unused)) static void append_pair(struct text *text, const struct taken *taken,
                                                size_t pair)
{
    append(text, taken->keys[pair].at, taken->keys[pair].bytes);
    append(text, taken->values[pair].at, taken->values[pair].bytes);
}

/* Writes a map of fixed strings: {"type": tag, and the given pairs}. */
__attribute__((unused)) static int decode_type(enum message_protocol protocol, const char *tag,
                                               size_t pairs, const void *rest, size_t rest_bytes,
                                               struct message *message)
{
    static struct text text; /* which the message points into */
    const uint8_t length[] = {0xd9, (uint8_t)strlen(tag)};

    text.size = 0;
    append_map(&text, 1 + pairs);
    APPEND(&text, "\xa4type");
    append(&text, length, sizeof length);
    append(&text, tag, strlen(tag));
    append(&text, rest, rest_bytes);
    return message_decode(protocol, text.bytes, text.size, message);
}

#define DECODE(protocol, tag, pairs, rest, message) \
    decode_type((protocol), (tag), (pairs), (rest), sizeof(rest) - 1, (message))

__attribute__((unused)) static bool is_text(struct message_text text, const char *expected)
{
    return text.at && text.bytes == strlen(expected) && memcmp(text.at, expected, text.bytes) == 0;
}

#endif
