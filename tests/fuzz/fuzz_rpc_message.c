/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message of GMS's protocols; the first byte is the protocol: odd for V1. A decoded one points
 * into its payload and, written by us, is a frame that decodes and encodes to itself.
 */
#include "fuzz.h"

#include "../unit/message_again.h"
#include "base/clean.h"

#include <errno.h>

static const uint8_t *payload;
static size_t payload_size;

static void check_place(struct message_text text)
{
    const uint8_t *at = text.at;

    if (!at) {
        must(text.bytes == 0);
        return;
    }
    /* else a default */
    if (at < payload || at > payload + payload_size)
        must(fuzz_same(at, text.bytes, "default", 7) || text.bytes == 0);
    else
        must(text.bytes <= (size_t)(payload + payload_size - at));
}

static void check_fields(const struct message *message)
{
    const struct message_text texts[] = {message->allocation_id,
                                         message->tag,
                                         message->key,
                                         message->prefix,
                                         message->token,
                                         message->error,
                                         message->state,
                                         message->kind,
                                         message->server_nonce,
                                         message->gpu_uuid,
                                         message->memory_layout_hash};
    const struct message_integer integers[] = {
        message->timeout_ms,      message->size,          message->aligned_size,
        message->layout_slot,     message->offset_bytes,  message->allocation_count,
        message->total_bytes,     message->cleared_count, message->ro_session_count,
        message->waiting_writers, message->code};
    char digits[MESSAGE_INTEGER_TEXT_BYTES];

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        check_place(texts[i]);
        must(!texts[i].at || clean_is_utf8(texts[i].at, texts[i].bytes));
    }
    check_place(message->value);
    must(!message->server_nonce.at == !message->gpu_uuid.at ||
         message->type == MESSAGE_HANDSHAKE_RESPONSE);
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
        must(!integers[i].is_negative || integers[i].magnitude > 0);
        must(!integers[i].is_negative || integers[i].magnitude <= UINT64_C(1) << 63);
        must(message_integer_compare(integers[i], integers[i]) == 0);
        must(fuzz_is_line(message_integer_format(integers[i], digits)));
    }
}

static void check_items(struct message_list list)
{
    uint32_t count = list.count;
    struct message item;

    must(count <= payload_size);
    while (message_next_item(&list, &item)) {
        must(item.type == 0 && item.list.count == 0);
        check_fields(&item);
        count--;
    }
    must(count == 0 && list.at == list.end);
}

static bool same_text(struct message_text a, struct message_text b)
{
    return !a.at == !b.at && fuzz_same(a.at, a.bytes, b.at, b.bytes);
}

/* Compares the fields: equal bytes of two frames do not prove that they were parsed alike. */
static void check_same(const struct message *a, const struct message *b)
{
    must(a->type == b->type && a->lock_type == b->lock_type);
    must(a->is_older == b->is_older || a->lock_type == MESSAGE_RW_OR_RO); /* auto */
    must(a->process_fence == b->process_fence && a->list.count == b->list.count);
    must(same_text(a->tag, b->tag) && same_text(a->allocation_id, b->allocation_id));
    must(same_text(a->key, b->key) && same_text(a->value, b->value));
    must(same_text(a->server_nonce, b->server_nonce) && same_text(a->token, b->token));
    must(a->timeout_ms.is_given == b->timeout_ms.is_given);
    must(message_integer_compare(a->timeout_ms, b->timeout_ms) == 0);
    must(message_integer_compare(a->size, b->size) == 0);
    must(message_integer_compare(a->offset_bytes, b->offset_bytes) == 0);
}

static void check_again(enum message_protocol protocol, const struct message *message)
{
    struct message_buffer buffer = {0};
    struct message again;

    must(encode_again(&buffer, protocol, message) == 0);
    size_t size = buffer.size_bytes - buffer.begin_bytes, bytes = 0;
    must(message_payload_bytes(protocol, buffer.bytes + buffer.begin_bytes, &bytes) == 0);
    must(bytes == size - MESSAGE_HEADER_BYTES);
    /* From a copy, because the buffer moves when the second frame comes. */
    uint8_t *copy = malloc(bytes);
    must(copy != NULL);
    memcpy(copy, buffer.bytes + buffer.begin_bytes + MESSAGE_HEADER_BYTES, bytes);
    must(message_decode(protocol, copy, bytes, &again) == 0);
    check_same(message, &again);
    must(encode_again(&buffer, protocol, &again) == 0);
    must(buffer.size_bytes - buffer.begin_bytes == 2 * size);
    const uint8_t *first = buffer.bytes + buffer.begin_bytes;
    must(memcmp(first, first + size, size) == 0);
    message_buffer_free(&buffer);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct message message;

    if (size == 0)
        return 0;
    enum message_protocol protocol = data[0] & 1 ? MESSAGE_V1 : MESSAGE_V0;
    payload = data + 1;
    payload_size = size - 1;
    int error = message_decode(protocol, payload, payload_size, &message);
    must(error == 0 || error == -EINVAL);
    if (error < 0)
        return 0;
    must(message_get_name(protocol, &message) != NULL);
    check_fields(&message);
    check_items(message.list);
    check_again(protocol, &message);
    return 0;
}
