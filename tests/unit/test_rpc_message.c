/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of GMS's protocols: each to its golden frame and back, in whatever spelling a client
 * may use, and nothing else.
 */
#include "tap.h"

#include "message_again.h"
#include "message_golden.h"
#include "meta/unpack.h"
#include "rpc/message_table.h"

#include <errno.h>
#include <stdlib.h>

#define FRAME_BYTES 1024u
#define MAX_PAIRS   16u

static uint8_t hex_digit(char digit)
{
    return (uint8_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

static size_t read_hex(const char *hex, uint8_t frame[FRAME_BYTES])
{
    size_t size = strlen(hex) / 2;

    require(size <= FRAME_BYTES);
    for (size_t i = 0; i < size; i++)
        frame[i] = (uint8_t)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    return size;
}

/* Of a copy of exactly this size, so that the sanitizer sees any read beyond it. */
static int decode_copy(enum message_protocol protocol, const void *payload, size_t bytes)
{
    uint8_t *copy = malloc(bytes ? bytes : 1);
    struct message message;

    require(copy != NULL);
    memcpy(copy, payload, bytes);
    int error = message_decode(protocol, copy, bytes, &message);
    free(copy);
    return error;
}

static void check_frame(const struct message_buffer *buffer, const struct golden *golden)
{
    uint8_t frame[FRAME_BYTES];
    size_t size = read_hex(golden->hex, frame);

    if (!check_bytes(buffer->bytes + buffer->begin_bytes, buffer->size_bytes - buffer->begin_bytes,
                     frame, size))
        fprintf(stderr, "# golden %zu\n", (size_t)(golden - goldens));
}

/* Decodes what is to say the same as the golden frame. */
static void expect_golden(const void *payload, size_t bytes, const struct golden *golden)
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

static struct piece take_piece(struct unpack *unpack)
{
    struct piece piece = {.at = unpack->at};

    require(unpack_skip(unpack) == 0);
    piece.bytes = (size_t)(unpack->at - piece.at);
    return piece;
}

static void take_apart(const struct golden *golden, struct taken *taken)
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

static bool is_key(struct piece key, const char *name)
{
    return key.bytes == 1 + strlen(name) && memcmp(key.at + 1, name, key.bytes - 1) == 0;
}

/* A payload that a test writes. */
struct text {
    uint8_t bytes[4 * FRAME_BYTES];
    size_t size;
};

static void append(struct text *text, const void *bytes, size_t size)
{
    require(text->size + size <= sizeof text->bytes);
    if (size)
        memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
}

#define APPEND(text, literal) append((text), (literal), sizeof(literal) - 1)

/* The widest head of a map. */
static void append_map(struct text *text, size_t count)
{
    const uint8_t head[] = {0xdf, 0, 0, 0, (uint8_t)count};

    append(text, head, sizeof head);
}

static void append_pair(struct text *text, const struct taken *taken, size_t pair)
{
    append(text, taken->keys[pair].at, taken->keys[pair].bytes);
    append(text, taken->values[pair].at, taken->values[pair].bytes);
}

/* A map of fixed strings: {"type": tag, and what is given}. */
static int decode_type(enum message_protocol protocol, const char *tag, size_t pairs,
                       const void *rest, size_t rest_bytes, struct message *message)
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

static bool is_text(struct message_text text, const char *expected)
{
    return text.at && text.bytes == strlen(expected) && memcmp(text.at, expected, text.bytes) == 0;
}

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

/* ---- wrong values ------------------------------------------------------------------------ */

static bool may_be_nil(const struct golden *golden, struct piece key)
{
    static const char *const names[] = {"timeout_ms", "granted_lock_type", "expected_identity"};
    enum message_type type = golden->message.type;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (is_key(key, names[i]))
            return true;
    }
    if (type == MESSAGE_METADATA_GET_RESPONSE)
        return !is_key(key, "found") && !is_key(key, "type");
    return (type == MESSAGE_LIST_ALLOCATIONS_REQUEST && is_key(key, "tag")) ||
           (type == MESSAGE_CHECKPOINT_STATE_RESPONSE && is_key(key, "token"));
}

static char kind_of(struct piece value)
{
    struct unpack unpack = {value.at, value.at + value.bytes};
    const uint8_t *bin;
    uint64_t magnitude;
    uint32_t count;
    size_t bytes;
    bool flag;

    if (unpack_int(&unpack, &magnitude, &flag) == 0)
        return 'i';
    if (unpack_bool(&unpack, &flag) == 0)
        return 'b';
    if (unpack_bin(&unpack, &bin, &bytes) == 0)
        return 'v';
    if (unpack_array(&unpack, &count) == 0)
        return 'a';
    return unpack_nil(&unpack) ? '0' : 's';
}

TAP_TEST(a_value_of_another_kind_is_refused)
{
    static const struct {
        char kind;
        const char *bytes;
        size_t size;
    } others[] = {{'i', "\x01", 1},
                  {'b', "\xc3", 1},
                  {'v', "\xc4\x01v", 3},
                  {'0', "\xc0", 1},
                  {'f', "\xcb\0\0\0\0\0\0\0\0", 9},
                  {'f', "\xca\0\0\0\0", 5},
                  {'m', "\x80", 1},
                  {'e', "\xd4\x01\x00", 3},
                  {'A', "\x91\x91\xc0", 3},
                  {'s', "\xa1\xff", 2},
                  {'S', "\xa3\xed\xa0\x80", 4}};

    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        struct taken taken;

        take_apart(&goldens[i], &taken);
        for (size_t wrong = 0; wrong < taken.count; wrong++) {
            char kind = kind_of(taken.values[wrong]);
            for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
                struct piece key = taken.keys[wrong];
                bool good = kind == others[k].kind && kind != 's';
                if (others[k].kind == '0')
                    good = may_be_nil(&goldens[i], key);
                else if (kind == '0')
                    continue; /* which kind it would be is not to be seen */
                struct text text = {.size = 0};
                append_map(&text, taken.count);
                for (size_t pair = 0; pair < taken.count; pair++) {
                    if (pair != wrong)
                        append_pair(&text, &taken, pair);
                }
                append(&text, key.at, key.bytes);
                append(&text, others[k].bytes, others[k].size);
                if (!check_int(decode_copy(goldens[i].protocol, text.bytes, text.size),
                               good ? 0 : -EINVAL))
                    fprintf(stderr, "# golden %zu, %.*s, %zu\n", i, (int)key.bytes - 1, key.at + 1,
                            k);
            }
        }
    }
}

TAP_TEST(what_is_no_map_with_keys_that_are_texts_is_refused)
{
    static const char *const payloads[] = {"",
                                           "\xc0",
                                           "\x01",
                                           "\x90",
                                           "\x92\xa4type\xae"
                                           "commit_request",
                                           "\x80",
                                           "\x81\xc4\x04type\xae"
                                           "commit_request",
                                           "\x82\xa4type\xae"
                                           "commit_request\x01\x01",
                                           "\x82\x01\x01\xa4type\xae"
                                           "commit_request",
                                           "\x82\xa4type\xae"
                                           "commit_request\xc0\x01",
                                           "\x82\xa4type\xae"
                                           "commit_request\xc4\x01x\x01",
                                           "\xdf\xff\xff\xff\xff\xa4type"};

    for (size_t i = 0; i < sizeof payloads / sizeof payloads[0]; i++)
        check_int(decode_copy(MESSAGE_V0, payloads[i], strlen(payloads[i])), -EINVAL);
}

TAP_TEST(the_tag_is_a_known_text_that_every_type_repeats)
{
    struct message message;

#define COMMIT \
    "\xae"     \
    "commit_request"
    check_int(DECODE(MESSAGE_V0, "commit_request", 1, "\xa4type" COMMIT, &message), 0);
    check_int(DECODE(MESSAGE_V0, "commit_request", 1,
                     "\xa4type\xaf"
                     "commit_response",
                     &message),
              -EINVAL);
    check_int(DECODE(MESSAGE_V0, "commit_request", 1, "\xa4type\x01", &message), -EINVAL);
    check_int(DECODE(MESSAGE_V0, "commit", 0, "", &message), -EINVAL);
    check_int(DECODE(MESSAGE_V0, "commit", 1, "\xa4type" COMMIT, &message), -EINVAL);
    check_int(DECODE(MESSAGE_V0, "", 0, "", &message), -EINVAL);
    check_int(DECODE(MESSAGE_V0, "abort_request", 0, "", &message), -EINVAL);
    check_int(DECODE(MESSAGE_V1, "get_runtime_state_request", 0, "", &message), -EINVAL);
    check_int(decode_copy(MESSAGE_V0,
                          "\x81\xa4type\xc4\x0e"
                          "commit_request",
                          22),
              -EINVAL);
}

TAP_TEST(texts_may_hold_zeros_and_stay_where_they_are)
{
    static const char payload[] = "\x82\xa4type\xb4metadata_get_request\xa3key\xa3"
                                  "a\0b";
    struct message message;

    require(message_decode(MESSAGE_V0, payload, sizeof payload - 1, &message) == 0);
    check_int(message.key.bytes, 3);
    check(message.key.at == payload + sizeof payload - 1 - 3);
}

TAP_TEST(an_identity_is_two_texts)
{
    struct message message;

#define EXPECTED              \
    "\xa9lock_type\xa2rw\xb1" \
    "expected_identity"
    require(DECODE(MESSAGE_V1, "handshake_request", 2, EXPECTED "\xdc\0\2\xa0\xd9\1u", &message) ==
            0);
    check(is_text(message.server_nonce, "") && is_text(message.gpu_uuid, "u"));
    check_int(DECODE(MESSAGE_V1, "handshake_request", 2, EXPECTED "\x91\xa1n", &message), -EINVAL);
    check_int(DECODE(MESSAGE_V1, "handshake_request", 2, EXPECTED "\x93\xa1n\xa1n\xa1n", &message),
              -EINVAL);
    check_int(DECODE(MESSAGE_V1, "handshake_request", 2, EXPECTED "\x92\xa1n\xc0", &message),
              -EINVAL);
    check_int(DECODE(MESSAGE_V1, "handshake_request", 2, EXPECTED "\x92\xa1n\xa1\xff", &message),
              -EINVAL);
    /* The third would be a key. */
    check_int(DECODE(MESSAGE_V1, "handshake_request", 3,
                     EXPECTED "\x93\xa1n\xa1g\xadprocess_fence\xc2", &message),
              -EINVAL);
}

/* ---- locks, older and later clients ------------------------------------------------------ */

static int decode_lock(enum message_protocol protocol, const char *tag, const char *name,
                       struct message *message)
{
    struct text rest = {.size = 0};
    const uint8_t length = (uint8_t)(0xa0 | strlen(name));

    APPEND(&rest, "\xa9lock_type");
    append(&rest, &length, 1);
    append(&rest, name, strlen(name));
    return decode_type(protocol, tag, 1, rest.bytes, rest.size, message);
}

TAP_TEST(only_locks_that_can_be_wanted_are_taken)
{
    static const struct {
        const char *name;
        enum message_lock lock;
    } good[] = {{"rw", MESSAGE_RW},
                {"ro", MESSAGE_RO},
                {"rw_or_ro", MESSAGE_RW_OR_RO},
                {"rw_data_or_rw", MESSAGE_RW_DATA_OR_RW}};
    static const char *const bad[] = {"rw_data", "RW", "", "r", "rwx", "Auto"};
    struct message message;

    for (int protocol = MESSAGE_V0; protocol <= MESSAGE_V1; protocol++) {
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
            check_int(decode_lock(protocol, "handshake_request", good[i].name, &message), 0);
            check_int(message.lock_type, good[i].lock);
            check(!message.is_older);
        }
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
            check_int(decode_lock(protocol, "handshake_request", bad[i], &message), -EINVAL);
    }
    check_int(decode_lock(MESSAGE_V0, "handshake_request", "auto", &message), 0);
    check_int(message.lock_type, MESSAGE_RW_OR_RO);
    check(message.is_older);
    check_int(decode_lock(MESSAGE_V1, "handshake_request", "auto", &message), -EINVAL);
}

/* Encodes an answer to what was decoded and decodes its tag. */
static void expect_answer(const struct message *request, enum message_type type, const char *tag)
{
    const struct message answer = {.type = type,
                                   .is_older = request->is_older,
                                   .allocation_id = message_text("i"),
                                   .size = message_integer(1),
                                   .aligned_size = message_integer(2),
                                   .layout_slot = message_integer(3),
                                   .tag = message_text("t")};
    struct message_buffer buffer = {0};
    const char *text = NULL;
    size_t bytes = 0;
    uint32_t count;

    require(message_encode(&buffer, MESSAGE_V0, &answer) == 0);
    struct unpack unpack = {buffer.bytes + MESSAGE_HEADER_BYTES, buffer.bytes + buffer.size_bytes};
    require(unpack_map(&unpack, &count) == 0 && unpack_skip(&unpack) == 0);
    require(unpack_str(&unpack, &text, &bytes) == 0);
    check_bytes(text, bytes, tag, strlen(tag));
    message_buffer_free(&buffer);
}

TAP_TEST(answers_take_the_shape_that_the_request_had)
{
    struct message message;

#define THE_ID \
    "\xad"     \
    "allocation_id\xa1i"
    require(DECODE(MESSAGE_V0, "export_request", 1, THE_ID, &message) == 0);
    check(message.type == MESSAGE_EXPORT_REQUEST && message.is_older);
    expect_answer(&message, MESSAGE_EXPORT_RESPONSE, "get_allocation_response");
    require(DECODE(MESSAGE_V0, "export_allocation_request", 1, THE_ID, &message) == 0);
    check(message.type == MESSAGE_EXPORT_REQUEST && !message.is_older);
    expect_answer(&message, MESSAGE_EXPORT_RESPONSE, "export_allocation_response");
    require(DECODE(MESSAGE_V0, "free_request", 1, THE_ID, &message) == 0);
    check(message.type == MESSAGE_FREE_REQUEST && message.is_older);
    expect_answer(&message, MESSAGE_FREE_RESPONSE, "free_response");
    require(DECODE(MESSAGE_V0, "free_allocation_request", 1, THE_ID, &message) == 0);
    expect_answer(&message, MESSAGE_FREE_RESPONSE, "free_allocation_response");
    require(decode_lock(MESSAGE_V0, "handshake_request", "auto", &message) == 0);
    expect_answer(&message, MESSAGE_HANDSHAKE_RESPONSE, "handshake_response");
}

TAP_TEST(a_later_client_may_say_that_it_sends_no_fence_and_that_it_does)
{
    struct message message;

#define FENCE "\xa9lock_type\xa2rw\xadprocess_fence"
    require(DECODE(MESSAGE_V1, "handshake_request", 2, FENCE "\xc2", &message) == 0);
    check(!message.process_fence);
    require(DECODE(MESSAGE_V1, "handshake_request", 2, FENCE "\xc3", &message) == 0);
    check(message.process_fence);
}

TAP_TEST(errors_name_a_message_after_its_tag)
{
    static const struct {
        const char *tag, *name;
    } names[] = {{"commit_request", "CommitRequest"},
                 {"commit_layout_response", "CommitLayoutResponse"},
                 {"get_memory_layout_hash_request", "GetStateHashRequest"},
                 {"clear_all_request", "ClearAllRequest"}};
    struct message message;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct message_row *row =
            message_find_tag(MESSAGE_V0, names[i].tag, strlen(names[i].tag));
        require(row != NULL);
        message = (struct message){.type = row->type};
        check_str(message_get_name(MESSAGE_V0, &message), names[i].name);
    }
    for (size_t i = 0; i < GOLDEN_COUNT; i++) { /* CamelCase of the tag, but for the hash */
        const struct golden *golden = &goldens[i];
        const char *name = message_get_name(golden->protocol, &golden->message);
        const struct message_row *row =
            message_find_type(golden->protocol, golden->message.type, golden->message.is_older);
        size_t at = 0;
        if (strstr(row->tag, "get_memory_layout_hash"))
            continue;
        for (const char *letter = row->tag; *letter; letter++) {
            bool first = letter == row->tag || letter[-1] == '_';
            if (*letter != '_')
                check_int(name[at++], first ? *letter - 'a' + 'A' : *letter);
        }
        check_int(name[at], 0);
    }
    message = (struct message){.type = MESSAGE_ABORT_REQUEST};
    check(message_get_name(MESSAGE_V0, &message) == NULL);
}

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
    char *text = malloc(65536);
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
    free(text);
}

TAP_TEST(v1_carries_a_mebibyte_and_no_byte_more)
{
    /* map, "type", its tag, "message", head of its text, "out_of_memory", false */
    size_t rest = 1 + 5 + 15 + 8 + 5 + 14 + 1;
    size_t most = MESSAGE_V1_MAX_BYTES - rest;
    char *text = malloc(most + 1);
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
    free(text);
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
    char *text = malloc(most);
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
    free(text);
}
