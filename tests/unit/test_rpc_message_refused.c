/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that are no message of GMS's protocols, and messages that only older or newer clients send.
 */
#include "message_pieces.h"

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

/* Encodes an answer to the decoded request, and decodes its tag. */
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
