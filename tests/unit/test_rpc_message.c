/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of GMS's protocols: each to its golden frame and back, in every spelling of clients.
 */
#include "message_pieces.h"

/* ---- golden frames ----------------------------------------------------------------------- */

TAP_TEST(every_golden_frame_decodes_and_encodes_to_itself)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        uint8_t frame[FRAME_BYTES];
        size_t size = read_hex(goldens[i].hex, frame);
        size_t payload_bytes = 0;

        check_int(message_payload_bytes(goldens[i].protocol, frame, &payload_bytes), 0);
        check_int(payload_bytes, (int64_t)(size - MESSAGE_HEADER_BYTES));
        expect_golden(frame + MESSAGE_HEADER_BYTES, payload_bytes, &goldens[i]);
    }
}

TAP_TEST(every_golden_message_encodes_to_its_frame)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        struct message_buffer buffer = {0};

        check_int(message_begin(&buffer, goldens[i].protocol, &goldens[i].message), 0);
        for (uint32_t k = 0; k < goldens[i].item_count; k++)
            check_int(message_add_item(&buffer, &goldens[i].items[k]), 0);
        check_int(message_end(&buffer), 0);
        check_frame(&buffer, &goldens[i]);
        message_buffer_free(&buffer);
    }
}

static bool has_golden(enum message_protocol protocol, const struct message_row *row)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        if (goldens[i].protocol == protocol && goldens[i].message.type == row->type &&
            goldens[i].message.is_older == row->is_older)
            return true;
    }
    return false;
}

TAP_TEST(every_message_of_both_protocols_has_a_golden_frame)
{
    size_t found[2] = {0, 0};

    for (int type = 1; type <= MESSAGE_CHECKPOINT_STATE_RESPONSE; type++) {
        for (int protocol = 0; protocol <= MESSAGE_V1; protocol++) {
            for (int older = 0; older <= 1; older++) {
                const struct message_row *row = message_find_type(protocol, type, older);
                if (!row || row->is_older != older ||
                    message_find_tag(protocol, row->tag, strlen(row->tag)) != row)
                    continue;
                if (!check(has_golden(protocol, row)))
                    fprintf(stderr, "# V%d %s\n", protocol, row->tag);
                found[protocol]++;
            }
        }
    }
    check_int(found[MESSAGE_V0], 40); /* 17 pairs, error_response, and 5 of older clients */
    check_int(found[MESSAGE_V1], 19);
}

/* ---- spellings --------------------------------------------------------------------------- */

TAP_TEST(a_frame_that_is_cut_or_longer_is_refused)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        uint8_t frame[FRAME_BYTES + 1];
        size_t bytes = read_hex(goldens[i].hex, frame) - MESSAGE_HEADER_BYTES;
        const uint8_t *payload = frame + MESSAGE_HEADER_BYTES;

        for (size_t cut = 0; cut < bytes; cut++)
            check_int(decode_copy(goldens[i].protocol, payload, cut), -EINVAL);
        frame[MESSAGE_HEADER_BYTES + bytes] = 0xc0;
        check_int(decode_copy(goldens[i].protocol, payload, bytes + 1), -EINVAL);
    }
}

TAP_TEST(keys_come_in_any_order)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        struct text text = {.size = 0};
        struct taken taken;

        take_apart(&goldens[i], &taken);
        append_map(&text, taken.count);
        for (size_t pair = taken.count; pair-- > 0;)
            append_pair(&text, &taken, pair);
        expect_golden(text.bytes, text.size, &goldens[i]);
    }
}

TAP_TEST(a_key_may_be_repeated)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        struct taken taken;

        take_apart(&goldens[i], &taken);
        for (size_t repeated = 0; repeated < taken.count; repeated++) {
            struct text text = {.size = 0};
            append_map(&text, taken.count + 1);
            append_pair(&text, &taken, repeated);
            for (size_t pair = 0; pair < taken.count; pair++)
                append_pair(&text, &taken, pair);
            expect_golden(text.bytes, text.size, &goldens[i]);
        }
    }
}

TAP_TEST(of_a_repeated_key_the_last_value_counts_and_all_have_to_be_good)
{
    struct message message;

    require(DECODE(MESSAGE_V0, "allocate_request", 2, "\xa4size\x01\xa4size\x02", &message) == 0);
    check_int(message.size.magnitude, 2);
    check_int(DECODE(MESSAGE_V0, "allocate_request", 2, "\xa4size\xa1x\xa4size\x02", &message),
              -EINVAL);
    check_int(DECODE(MESSAGE_V0, "allocate_request", 2, "\xa4size\x02\xa4size\xa1x", &message),
              -EINVAL);
    require(DECODE(MESSAGE_V0, "list_allocations_request", 2, "\xa3tag\xa1x\xa3tag\xc0",
                   &message) == 0);
    check(message.tag.at == NULL);
    require(DECODE(MESSAGE_V0, "handshake_request", 3,
                   "\xaatimeout_ms\x05\xa9lock_type\xa2rw\xaatimeout_ms\xc0", &message) == 0);
    check(!message.timeout_ms.is_given);
    require(DECODE(MESSAGE_V1, "handshake_request", 3,
                   "\xb1"
                   "expected_identity\x92\xa1n\xa1g\xa9lock_type\xa2rw\xb1"
                   "expected_identity\xc0",
                   &message) == 0);
    check(!message.server_nonce.at && !message.gpu_uuid.at);
    require(DECODE(MESSAGE_V0, "handshake_request", 2,
                   "\xa9lock_type\xa4"
                   "auto\xa9lock_type\xa2rw",
                   &message) == 0);
    check(!message.is_older);
    check_int(
        DECODE(MESSAGE_V0, "metadata_list_response", 2, "\xa4keys\x91\x01\xa4keys\x90", &message),
        -EINVAL);
}

/* By the protocol's tables; the tags of both, where they have the same. */
static bool has_default(const struct golden *golden, struct piece key)
{
    static const char *const defaults[] = {
        "timeout_ms",    "prefix",       "granted_lock_type", "code",        "allocations",
        "keys",          "events",       "layout_committed",  "total_bytes", "expected_identity",
        "process_fence", "out_of_memory"};
    enum message_type type = golden->message.type;

    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        if (is_key(key, defaults[i]))
            return golden->protocol == MESSAGE_V0 || !is_key(key, "allocations");
    }
    if (is_key(key, "tag"))
        return type == MESSAGE_ALLOCATE_REQUEST || type == MESSAGE_LIST_ALLOCATIONS_REQUEST;
    if (is_key(key, "memory_layout_hash"))
        return type != MESSAGE_GET_MEMORY_LAYOUT_HASH_RESPONSE;
    if (is_key(key, "allocation_count"))
        return type == MESSAGE_GET_RUNTIME_STATE_RESPONSE;
    return type == MESSAGE_METADATA_GET_RESPONSE && !is_key(key, "found") && !is_key(key, "type");
}

TAP_TEST(only_what_has_a_default_may_be_missing)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        struct taken taken;

        take_apart(&goldens[i], &taken);
        for (size_t missing = 0; missing < taken.count; missing++) {
            struct text text = {.size = 0};
            append_map(&text, taken.count - 1);
            for (size_t pair = 0; pair < taken.count; pair++) {
                if (pair != missing)
                    append_pair(&text, &taken, pair);
            }
            int expected = has_default(&goldens[i], taken.keys[missing]) ? 0 : -EINVAL;
            if (!check_int(decode_copy(goldens[i].protocol, text.bytes, text.size), expected))
                fprintf(stderr, "# golden %zu without %.*s\n", i,
                        (int)taken.keys[missing].bytes - 1, taken.keys[missing].at + 1);
        }
    }
}

TAP_TEST(what_is_missing_has_its_default)
{
    struct message message;

    require(DECODE(MESSAGE_V0, "allocate_request", 1, "\xa4size\x01", &message) == 0);
    check(is_text(message.tag, "default"));
    require(DECODE(MESSAGE_V0, "list_allocations_request", 0, "", &message) == 0);
    check(message.tag.at == NULL);
    require(DECODE(MESSAGE_V0, "metadata_list_request", 0, "", &message) == 0);
    check(is_text(message.prefix, ""));
    require(DECODE(MESSAGE_V0, "handshake_request", 1, "\xa9lock_type\xa2ro", &message) == 0);
    check(!message.timeout_ms.is_given);
    require(DECODE(MESSAGE_V1, "handshake_request", 1, "\xa9lock_type\xa2ro", &message) == 0);
    check(!message.server_nonce.at && !message.process_fence);
    require(DECODE(MESSAGE_V0, "error_response", 1,
                   "\xa5"
                   "error\xa1x",
                   &message) == 0);
    check(message.code.is_given && message.code.magnitude == 0);
}

/* Appends the value that stands there with every head and number in its widest form. */
static void append_wide(struct text *text, struct unpack *unpack)
{
    const uint8_t *value = unpack->at;
    uint32_t count = 0;
    const char *at;
    size_t bytes;
    uint64_t magnitude;
    bool is_negative;

    if (unpack_map(unpack, &count) == 0) {
        append_map(text, count);
        count *= 2;
    } else if (unpack_array(unpack, &count) == 0) {
        append(text, "\xdd\0\0\0", 4);
        append(text, &(uint8_t){(uint8_t)count}, 1);
    } else if (unpack_str(unpack, &at, &bytes) == 0) {
        append(text, "\xdb\0\0\0", 4);
        append(text, &(uint8_t){(uint8_t)bytes}, 1);
        append(text, at, bytes);
    } else if (unpack_bin(unpack, (const uint8_t **)&at, &bytes) == 0) {
        append(text, "\xc6\0\0\0", 4);
        append(text, &(uint8_t){(uint8_t)bytes}, 1);
        append(text, at, bytes);
    } else if (unpack_int(unpack, &magnitude, &is_negative) == 0 && magnitude < 128) {
        append(text, is_negative ? "\xd3\xff\xff\xff\xff\xff\xff\xff" : "\xd3\0\0\0\0\0\0\0", 8);
        append(text, is_negative ? &(uint8_t){(uint8_t)-magnitude} : &(uint8_t){(uint8_t)magnitude},
               1);
    } else if (unpack->at > value) {
        append(text, is_negative ? "\xd3" : "\xcf", 1);
        for (int shift = 56; shift >= 0; shift -= 8)
            append(text, &(uint8_t){(uint8_t)((is_negative ? -magnitude : magnitude) >> shift)}, 1);
    } else { /* nil and bools have one form */
        append(text, value, 1);
        unpack->at++;
    }
    for (uint32_t i = 0; i < count; i++)
        append_wide(text, unpack);
}

TAP_TEST(heads_lengths_and_numbers_need_not_be_short)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        struct text text = {.size = 0};
        uint8_t frame[FRAME_BYTES];
        size_t size = read_hex(goldens[i].hex, frame);
        struct unpack unpack = {frame + MESSAGE_HEADER_BYTES, frame + size};

        append_wide(&text, &unpack);
        check(text.size > size);
        expect_golden(text.bytes, text.size, &goldens[i]);
    }
}

/* A map, in it an ext, invalid UTF-8 and a key that is a number. */
#define ANYTHING "\x83\xa1\xff\xd4\x05\x00\x01\xca\x01\x01\x01\x01\xc0\x91\x81\xc3\xc4\x01\xff"

TAP_TEST(unknown_keys_are_skipped_in_v0_and_refused_in_v1)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        struct taken taken;

        take_apart(&goldens[i], &taken);
        for (size_t before = 0; before <= taken.count; before++) {
            struct text text = {.size = 0};
            append_map(&text, taken.count + 1);
            for (size_t pair = 0; pair <= taken.count; pair++) {
                if (pair == before)
                    APPEND(&text, "\xa2\xff?" ANYTHING);
                if (pair < taken.count)
                    append_pair(&text, &taken, pair);
            }
            if (goldens[i].protocol == MESSAGE_V0)
                expect_golden(text.bytes, text.size, &goldens[i]);
            else
                check_int(decode_copy(MESSAGE_V1, text.bytes, text.size), -EINVAL);
        }
    }
}

TAP_TEST(unknown_keys_of_items_are_skipped_in_v0_and_refused_in_v1)
{
    struct message message, item;

    require(DECODE(MESSAGE_V0, "get_event_history_response", 1,
                   "\xa6"
                   "events\x91\x83\xa4type\x01\xa1z" ANYTHING "\xa4kind\xa1k",
                   &message) == 0);
    require(message_next_item(&message.list, &item));
    check(is_text(item.kind, "k"));
    check_int(item.allocation_count.magnitude, 0);
    check(!message_next_item(&message.list, &item));
    require(DECODE(MESSAGE_V1, "list_allocations_response", 1,
                   "\xab"
                   "allocations\x91\x82\xad"
                   "allocation_id\xa1i\xac"
                   "aligned_size\x01",
                   &message) == 0);
    check_int(DECODE(MESSAGE_V1, "list_allocations_response", 1,
                     "\xab"
                     "allocations\x91\x83\xad"
                     "allocation_id\xa1i\xac"
                     "aligned_size\x01"
                     "\xa1z\x00",
                     &message),
              -EINVAL);
}

TAP_TEST(the_type_of_a_listed_allocation_is_its_own_or_missing)
{
    struct message message, item;

#define LISTED                           \
    "\xad"                               \
    "allocation_id\xa1i\xa4size\x01\xac" \
    "aligned_size\x02\xa3tag\xa1t\xab"   \
    "layout_slot\x03"
    require(DECODE(MESSAGE_V0, "list_allocations_response", 1,
                   "\xab"
                   "allocations\x91\x85" LISTED,
                   &message) == 0);
    require(message_next_item(&message.list, &item));
    check_int(item.type, 0);
    check(is_text(item.allocation_id, "i") && is_text(item.tag, "t"));
    check_int(item.size.magnitude, 1);
    check_int(item.aligned_size.magnitude, 2);
    check_int(item.layout_slot.magnitude, 3);
    check_int(DECODE(MESSAGE_V0, "list_allocations_response", 1,
                     "\xab"
                     "allocations\x91\x86" LISTED "\xa4type\xaa"
                     "get_failed",
                     &message),
              -EINVAL);
}
