/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of GMS's protocols as they are written: numbers and lengths, long lists, the most that
 * fits.
 */
#include "message_pieces.h"

/* ---- integers and lengths ---------------------------------------------------------------- */

TAP_TEST(integers_keep_their_whole_range_and_are_written_short)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *text;
    } integers[] = {{"\xd3\x80\0\0\0\0\0\0\0", 9, "-9223372036854775808"},
                    {"\xd3\xff\xff\xff\xff\x7f\xff\xff\xff", 9, "-2147483649"},
                    {"\xd2\x80\0\0\0", 5, "-2147483648"},
                    {"\xd1\x80\0", 3, "-32768"},
                    {"\xd1\xff\x7f", 3, "-129"},
                    {"\xd0\x80", 2, "-128"},
                    {"\xd0\xdf", 2, "-33"},
                    {"\xe0", 1, "-32"},
                    {"\xff", 1, "-1"},
                    {"\x00", 1, "0"},
                    {"\x7f", 1, "127"},
                    {"\xcc\x80", 2, "128"},
                    {"\xcd\x01\0", 3, "256"},
                    {"\xce\0\1\0\0", 5, "65536"},
                    {"\xcf\0\0\0\1\0\0\0\0", 9, "4294967296"},
                    {"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 9, "18446744073709551615"}};
    struct message_integer before = {0};

    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
        char digits[MESSAGE_INTEGER_TEXT_BYTES];
        struct text rest = {.size = 0};
        struct message_buffer buffer = {0};
        struct message message;

        APPEND(&rest, "\xa4size");
        append(&rest, integers[i].bytes, integers[i].size);
        require(decode_type(MESSAGE_V0, "allocate_request", 1, rest.bytes, rest.size, &message) ==
                0);
        check_str(message_integer_format(message.size, digits), integers[i].text);
        require(message_encode(&buffer, MESSAGE_V0, &message) == 0);
        check(memmem(buffer.bytes, buffer.size_bytes, rest.bytes, rest.size) != NULL);
        message_buffer_free(&buffer);
        if (i > 0) {
            check(message_integer_compare(before, message.size) < 0);
            check(message_integer_compare(message.size, before) > 0);
        }
        check_int(message_integer_compare(message.size, message.size), 0);
        before = message.size;
    }
    check_str(message_integer_format((struct message_integer){0}, (char[24]){0}), "nil");
}

static int payload_bytes(enum message_protocol protocol, uint32_t length)
{
    const uint8_t header[] = {(uint8_t)(length >> 24), (uint8_t)(length >> 16),
                              (uint8_t)(length >> 8), (uint8_t)length};
    size_t bytes = 0;
    int error = message_payload_bytes(protocol, header, &bytes);

    check_int(bytes, error == 0 ? (int64_t)length : 0);
    return error;
}

TAP_TEST(a_request_has_a_length_within_its_protocols_bounds)
{
    for (int protocol = MESSAGE_V0; protocol <= MESSAGE_V1; protocol++) {
        uint32_t most = protocol == MESSAGE_V1 ? 1048576 : 16777216;
        check_int(payload_bytes(protocol, 0), -EINVAL);
        check_int(payload_bytes(protocol, 1), 0);
        check_int(payload_bytes(protocol, 0x10203), 0);
        check_int(payload_bytes(protocol, most), 0);
        check_int(payload_bytes(protocol, most + 1), -EMSGSIZE);
        check_int(payload_bytes(protocol, UINT32_MAX), -EMSGSIZE);
    }
}

/* ---- encoding ---------------------------------------------------------------------------- */

TAP_TEST(a_field_that_must_have_a_value_is_asked_for)
{
    struct message_buffer buffer = {0};
    struct message message = {.type = MESSAGE_ERROR_RESPONSE};

    check_int(message_encode(&buffer, MESSAGE_V0, &message), -EINVAL);
    check_int(message_encode(&buffer, MESSAGE_V1, &message), -EINVAL);
    message = (struct message){.type = MESSAGE_GET_ALLOCATION_STATE_RESPONSE};
    check_int(message_encode(&buffer, MESSAGE_V0, &message), -EINVAL);
    message = (struct message){.type = MESSAGE_HANDSHAKE_REQUEST, .lock_type = MESSAGE_RW_DATA};
    check_int(message_encode(&buffer, MESSAGE_V0, &message), -EINVAL);
    message = (struct message){.type = MESSAGE_SUCCESS_RESPONSE};
    check_int(message_encode(&buffer, MESSAGE_V0, &message), -EINVAL);
    check_int(buffer.size_bytes, 0);
    check_int(message_encode(&buffer, MESSAGE_V1, &message), 0);
    check_int(buffer.size_bytes, 4 + 0x17);
    message_buffer_free(&buffer);
}

TAP_TEST(frames_follow_each_other_and_a_failed_one_leaves_no_trace)
{
    const struct message good = {.type = MESSAGE_COMMIT_RESPONSE, .success = true};
    const struct message bad = {.type = MESSAGE_ERROR_RESPONSE};
    const struct message list = {.type = MESSAGE_METADATA_LIST_RESPONSE};
    const struct message allocations = {.type = MESSAGE_LIST_ALLOCATIONS_RESPONSE};
    const struct message key = {.key = message_text("key")};
    struct message_buffer buffer = {0};
    uint8_t first[64];

    require(message_encode(&buffer, MESSAGE_V0, &good) == 0);
    size_t size = buffer.size_bytes;
    require(size <= sizeof first);
    memcpy(first, buffer.bytes, size);
    check_int(message_encode(&buffer, MESSAGE_V0, &bad), -EINVAL);
    check_int(buffer.size_bytes, (int64_t)size);
    check_int(message_begin(&buffer, MESSAGE_V0, &list), 0);
    check_int(message_add_item(&buffer, &bad), -EINVAL); /* no key */
    check_int(message_add_item(&buffer, &key), -EINVAL);
    check_int(message_end(&buffer), -EINVAL);
    check_int(message_begin(&buffer, MESSAGE_V0, &good), 0);
    check_int(message_add_item(&buffer, &key), -EINVAL); /* no list */
    check_int(message_end(&buffer), -EINVAL);
    check_int(message_begin(&buffer, MESSAGE_V0, &allocations), 0);
    check_int(message_add_texts(&buffer, &key.key, 1), -EINVAL); /* its items are maps */
    check_int(message_end(&buffer), -EINVAL);
    check_int(message_add_texts(&buffer, &key.key, 1), -EINVAL); /* no frame was begun */
    check_int(buffer.begin_bytes, 0);
    check_int(buffer.size_bytes, (int64_t)size);
    require(message_encode(&buffer, MESSAGE_V0, &good) == 0);
    check_int(buffer.size_bytes, (int64_t)(2 * size));
    check_bytes(buffer.bytes, size, first, size);
    check_bytes(buffer.bytes + size, size, first, size);
    message_buffer_free(&buffer);
    check(buffer.bytes == NULL && buffer.size_bytes == 0);
}

TAP_TEST(a_list_has_tens_of_thousands_of_items)
{
    const struct message answer = {.type = MESSAGE_LIST_ALLOCATIONS_RESPONSE};
    struct message_buffer buffer = {0};
    struct message message, item = {.allocation_id = message_text("6f1c2d3e"),
                                    .size = message_integer(1),
                                    .aligned_size = message_integer(2),
                                    .tag = message_text("weights")};
    uint64_t count = 70000, next = 0;
    size_t bytes;

    require(message_begin(&buffer, MESSAGE_V0, &answer) == 0);
    for (uint64_t i = 0; i < count; i++) {
        item.layout_slot = message_integer(i);
        require(message_add_item(&buffer, &item) == 0);
    }
    require(message_end(&buffer) == 0);
    const uint8_t *frame = buffer.bytes + buffer.begin_bytes;
    require(message_payload_bytes(MESSAGE_V0, frame, &bytes) == 0);
    check_int(bytes, (int64_t)(buffer.size_bytes - buffer.begin_bytes) - 4);
    require(message_decode(MESSAGE_V0, frame + 4, bytes, &message) == 0);
    check_int(message.list.count, (int64_t)count);
    while (message_next_item(&message.list, &item))
        next += item.layout_slot.magnitude == next;
    check_int(next, (int64_t)count);
    message_buffer_free(&buffer);
}

/* A frame of so many keys behind another one. */
static void check_counted(uint32_t count, const char *count_hex)
{
    static const char before_count[] = "\x82\xa4type\xb6metadata_list_response\xa4keys";
    const struct message small = {.type = MESSAGE_COMMIT_RESPONSE, .success = true};
    const struct message list = {.type = MESSAGE_METADATA_LIST_RESPONSE};
    const struct message_text keys[3] = {message_text("a"), message_text("b"), message_text("")};
    struct message_buffer buffer = {0}, alone = {0};
    uint8_t head[FRAME_BYTES];
    size_t head_bytes = read_hex(count_hex, head), item_bytes = 0;

    require(message_encode(&alone, MESSAGE_V0, &small) == 0);
    require(message_encode(&buffer, MESSAGE_V0, &small) == 0);
    require(message_begin(&buffer, MESSAGE_V0, &list) == 0);
    for (uint32_t i = 0; i < count; i++) {
        require(message_add_texts(&buffer, &keys[i % 3], 1) == 0);
        item_bytes += 1 + keys[i % 3].bytes;
    }
    require(message_end(&buffer) == 0);
    const uint8_t *at = buffer.bytes + buffer.begin_bytes;
    check_bytes(at, alone.size_bytes, alone.bytes, alone.size_bytes);
    at += alone.size_bytes;
    size_t frame_bytes = buffer.size_bytes - buffer.begin_bytes - alone.size_bytes;
    check_int(frame_bytes, (int64_t)(4 + sizeof before_count - 1 + head_bytes + item_bytes));
    check_int(at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3], (int64_t)frame_bytes - 4);
    at += 4;
    check_bytes(at, sizeof before_count - 1, before_count, sizeof before_count - 1);
    check_bytes(at + sizeof before_count - 1, head_bytes, head, head_bytes);
    check_int(decode_copy(MESSAGE_V0, at, frame_bytes - 4), 0);
    message_buffer_free(&buffer);
    message_buffer_free(&alone);
}

TAP_TEST(how_many_items_there_are_is_written_in_its_shortest_form)
{
    check_counted(0, "90");
    check_counted(1, "91");
    check_counted(15, "9f");
    check_counted(16, "dc0010");
    check_counted(65535, "dcffff");
    check_counted(65536, "dd00010000");
}

TAP_TEST(texts_of_a_list_have_the_shortest_heads)
{
    const struct message list = {.type = MESSAGE_METADATA_LIST_RESPONSE};
    static const size_t lengths[] = {0, 1, 31, 32, 255, 256, 65535, 65536};
    enum {
        COUNT = sizeof lengths / sizeof lengths[0]
    };
    struct message_text keys[COUNT];
    struct message_buffer buffer = {0};
    struct message message, item;
    auto_free char *text = malloc(65536);
    size_t head_bytes = 4 + 35, bytes = 0; /* of the frame */

    require(text != NULL);
    memset(text, 'k', 65536);
    for (size_t i = 0; i < COUNT; i++) {
        keys[i] = (struct message_text){text, lengths[i]};
        bytes += lengths[i];
    }
    require(message_begin(&buffer, MESSAGE_V0, &list) == 0);
    require(message_add_texts(&buffer, keys, COUNT) == 0);
    require(message_end(&buffer) == 0);
    const uint8_t *frame = buffer.bytes + buffer.begin_bytes;
    check_int(buffer.size_bytes - buffer.begin_bytes,
              (int64_t)(head_bytes + 3 * 1 + 2 * 2 + 2 * 3 + 5 + bytes));
    require(message_decode(MESSAGE_V0, frame + 4, buffer.size_bytes - buffer.begin_bytes - 4,
                           &message) == 0);
    for (size_t i = 0; i < COUNT; i++) {
        require(message_next_item(&message.list, &item));
        check_int(item.key.bytes, (int64_t)lengths[i]);
    }
    check(!message_next_item(&message.list, &item));
    message_buffer_free(&buffer);
}

TAP_TEST(v1_carries_a_mebibyte_and_no_byte_more)
{
    /* map, "type", its tag, "message", head of its text, "out_of_memory", false */
    size_t rest = 1 + 5 + 15 + 8 + 5 + 14 + 1;
    size_t most = MESSAGE_V1_MAX_BYTES - rest;
    auto_free char *text = malloc(most + 1);
    struct message message = {.type = MESSAGE_ERROR_RESPONSE, .error = {text, most}};
    struct message_buffer buffer = {0};

    require(text != NULL);
    memset(text, 'x', most + 1);
    require(message_encode(&buffer, MESSAGE_V1, &message) == 0);
    check_int(buffer.size_bytes, 4 + 1048576);
    check_int(decode_copy(MESSAGE_V1, buffer.bytes + 4, buffer.size_bytes - 4), 0);
    message.error.bytes++;
    check_int(message_encode(&buffer, MESSAGE_V1, &message), -EMSGSIZE);
    check_int(buffer.size_bytes, 4 + 1048576);
    check_int(message_encode(&buffer, MESSAGE_V0, &message), 0);
    message_buffer_free(&buffer);
}

TAP_TEST(a_v1_list_ends_at_the_item_that_is_too_much)
{
    const struct message answer = {.type = MESSAGE_LIST_ALLOCATIONS_RESPONSE};
    const struct message item = {.allocation_id = message_text("allocation"),
                                 .aligned_size = message_integer(2 << 20)};
    struct message_buffer buffer = {0};
    uint32_t count = 40000, added = 0;

    require(message_begin(&buffer, MESSAGE_V1, &answer) == 0);
    while (added < count && message_add_item(&buffer, &item) == 0)
        added++;
    /* 44 bytes each, 42 before them */
    check_int(added, (1048576 - 42) / 44);
    check_int(message_add_item(&buffer, &item), -EMSGSIZE);
    check_int(message_end(&buffer), -EMSGSIZE);
    check_int(buffer.size_bytes, 0);
    message_buffer_free(&buffer);
}

/* 15 items, whose count takes one byte, to the last byte that the frame may have. */
TAP_TEST(a_v1_list_that_is_full_takes_no_item_that_makes_its_count_longer)
{
    const struct message answer = {.type = MESSAGE_LIST_ALLOCATIONS_RESPONSE};
    const struct message item = {.allocation_id = message_text("allocation"),
                                 .aligned_size = message_integer(2 << 20)};
    /* 45 before them, 44 for each of the others, 38 beside the text of the first */
    size_t most = 1048576 - 45 - 14 * 44 - 38;
    auto_free char *text = malloc(most);
    struct message first = item;
    struct message_buffer buffer = {0};

    require(text != NULL);
    memset(text, 'x', most);
    first.allocation_id = (struct message_text){text, most};
    for (int more = 0; more < 2; more++) {
        require(message_begin(&buffer, MESSAGE_V1, &answer) == 0);
        require(message_add_item(&buffer, &first) == 0);
        for (int i = 0; i < 14; i++)
            require(message_add_item(&buffer, &item) == 0);
        if (more)
            check_int(message_add_item(&buffer, &item), -EMSGSIZE);
        check_int(message_end(&buffer), more ? -EMSGSIZE : 0);
        check_int(buffer.size_bytes - buffer.begin_bytes, 4 + 1048576);
    }
    message_buffer_free(&buffer);
}
