/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message_golden - a frame of every message of both protocols, and its meaning
 *
 * For tests of src/rpc/message.h, which include it once. The frames were made by the protocols'
 * rules with Python's msgpack; twenty-two of them the reference implementation wrote as well.
 */
#ifndef GMSFS_TESTS_UNIT_MESSAGE_GOLDEN_H
#define GMSFS_TESTS_UNIT_MESSAGE_GOLDEN_H

#include "rpc/message.h"

struct golden {
    enum message_protocol protocol;
    const char *hex;
    struct message message;
    const struct message *items;
    uint32_t item_count;
};

#define TEXT(text)               \
    {                            \
        (text), sizeof(text) - 1 \
    }
#define INTEGER(value)       \
    {                        \
        (value), false, true \
    }
#define BELOW_ZERO(value)   \
    {                       \
        (value), true, true \
    }

static const struct message golden_items_0[] = {{.allocation_id = TEXT("id"),
                                                 .size = INTEGER(UINT64_C(1)),
                                                 .aligned_size = INTEGER(UINT64_C(2)),
                                                 .tag = TEXT("weights"),
                                                 .layout_slot = INTEGER(UINT64_C(0))}};
static const struct message golden_items_1[] = {
    {.key = TEXT("")}, {.key = TEXT("a")}, {.key = TEXT("bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb")}};
static const struct message golden_items_2[] = {
    {.kind = TEXT("committed"), .allocation_count = INTEGER(UINT64_C(0))}};
static const struct message golden_items_3[] = {
    {.allocation_id = TEXT("a"), .aligned_size = INTEGER(UINT64_C(2097152))}};
static const struct golden goldens[] = {
    {.protocol = MESSAGE_V0,
     .hex = "0000003183a474797065b168616e647368616b655f72657175657374a96c6f636b5f74797065a27277"
            "aa74696d656f75745f6d73c0",
     .message = {.type = MESSAGE_HANDSHAKE_REQUEST, .lock_type = MESSAGE_RW}},
    {.protocol = MESSAGE_V0,
     .hex = "0000003383a474797065b168616e647368616b655f72657175657374a96c6f636b5f74797065a2726f"
            "aa74696d656f75745f6d73cd01f4",
     .message = {.type = MESSAGE_HANDSHAKE_REQUEST,
                 .lock_type = MESSAGE_RO,
                 .timeout_ms = INTEGER(UINT64_C(500))}},
    {.protocol = MESSAGE_V0,
     .hex = "0000003783a474797065b168616e647368616b655f72657175657374a96c6f636b5f74797065a87277"
            "5f6f725f726faa74696d656f75745f6d73ff",
     .message = {.type = MESSAGE_HANDSHAKE_REQUEST,
                 .lock_type = MESSAGE_RW_OR_RO,
                 .timeout_ms = BELOW_ZERO(UINT64_C(1))}},
    {.protocol = MESSAGE_V0,
     .hex = "0000003c83a474797065b168616e647368616b655f72657175657374a96c6f636b5f74797065ad7277"
            "5f646174615f6f725f7277aa74696d656f75745f6d7300",
     .message = {.type = MESSAGE_HANDSHAKE_REQUEST,
                 .lock_type = MESSAGE_RW_DATA_OR_RW,
                 .timeout_ms = INTEGER(UINT64_C(0))}},
    {.protocol = MESSAGE_V0,
     .hex = "0000004284a474797065b268616e647368616b655f726573706f6e7365a773756363657373c3a9636f"
            "6d6d6974746564c3b16772616e7465645f6c6f636b5f74797065a2726f",
     .message = {.type = MESSAGE_HANDSHAKE_RESPONSE,
                 .success = true,
                 .committed = true,
                 .lock_type = MESSAGE_RO}},
    {.protocol = MESSAGE_V0,
     .hex = "0000004084a474797065b268616e647368616b655f726573706f6e7365a773756363657373c2a9636f"
            "6d6d6974746564c3b16772616e7465645f6c6f636b5f74797065c0",
     .message = {.type = MESSAGE_HANDSHAKE_RESPONSE, .success = false, .committed = true}},
    {.protocol = MESSAGE_V0,
     .hex = "0000004784a474797065b268616e647368616b655f726573706f6e7365a773756363657373c3a9636f"
            "6d6d6974746564c2b16772616e7465645f6c6f636b5f74797065a772775f64617461",
     .message = {.type = MESSAGE_HANDSHAKE_RESPONSE,
                 .success = true,
                 .committed = false,
                 .lock_type = MESSAGE_RW_DATA}},
    {.protocol = MESSAGE_V0,
     .hex = "0000001581a474797065ae636f6d6d69745f72657175657374",
     .message = {.type = MESSAGE_COMMIT_REQUEST}},
    {.protocol = MESSAGE_V0,
     .hex = "0000001f82a474797065af636f6d6d69745f726573706f6e7365a773756363657373c3",
     .message = {.type = MESSAGE_COMMIT_RESPONSE, .success = true}},
    {.protocol = MESSAGE_V0,
     .hex = "0000001c81a474797065b5636f6d6d69745f6c61796f75745f72657175657374",
     .message = {.type = MESSAGE_COMMIT_LAYOUT_REQUEST}},
    {.protocol = MESSAGE_V0,
     .hex = "0000005684a474797065b6636f6d6d69745f6c61796f75745f726573706f6e7365a773756363657373"
            "c3b26d656d6f72795f6c61796f75745f68617368a26162b16772616e7465645f6c6f636b5f74797065"
            "a772775f64617461",
     .message = {.type = MESSAGE_COMMIT_LAYOUT_RESPONSE,
                 .success = true,
                 .memory_layout_hash = TEXT("ab"),
                 .lock_type = MESSAGE_RW_DATA}},
    {.protocol = MESSAGE_V0,
     .hex = "0000003183a474797065b0616c6c6f636174655f72657175657374a473697a65cf0000000140000000"
            "a3746167a764656661756c74",
     .message = {.type = MESSAGE_ALLOCATE_REQUEST,
                 .size = INTEGER(UINT64_C(5368709120)),
                 .tag = TEXT("default")}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002a83a474797065b0616c6c6f636174655f72657175657374a473697a65d38000000000000000"
            "a3746167a0",
     .message = {.type = MESSAGE_ALLOCATE_REQUEST,
                 .size = BELOW_ZERO(UINT64_C(9223372036854775808)),
                 .tag = TEXT("")}},
    {.protocol = MESSAGE_V0,
     .hex = "0000004f85a474797065b1616c6c6f636174655f726573706f6e7365ad616c6c6f636174696f6e5f69"
            "64a26964a473697a6505ac616c69676e65645f73697a65ce00200000ab6c61796f75745f736c6f74cc"
            "c8",
     .message = {.type = MESSAGE_ALLOCATE_RESPONSE,
                 .allocation_id = TEXT("id"),
                 .size = INTEGER(UINT64_C(5)),
                 .aligned_size = INTEGER(UINT64_C(2097152)),
                 .layout_slot = INTEGER(UINT64_C(200))}},
    {.protocol = MESSAGE_V0,
     .hex = "0000003182a474797065b96578706f72745f616c6c6f636174696f6e5f72657175657374ad616c6c6f"
            "636174696f6e5f6964a26964",
     .message = {.type = MESSAGE_EXPORT_REQUEST, .allocation_id = TEXT("id")}},
    {.protocol = MESSAGE_V0,
     .hex = "0000006586a474797065ba6578706f72745f616c6c6f636174696f6e5f726573706f6e7365ad616c6c"
            "6f636174696f6e5f6964a26964a473697a65cd1000ac616c69676e65645f73697a65ce00200000a374"
            "6167a777656967687473ab6c61796f75745f736c6f7400",
     .message = {.type = MESSAGE_EXPORT_RESPONSE,
                 .allocation_id = TEXT("id"),
                 .size = INTEGER(UINT64_C(4096)),
                 .aligned_size = INTEGER(UINT64_C(2097152)),
                 .tag = TEXT("weights"),
                 .layout_slot = INTEGER(UINT64_C(0))}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002e82a474797065b66765745f616c6c6f636174696f6e5f72657175657374ad616c6c6f636174"
            "696f6e5f6964a26964",
     .message = {.type = MESSAGE_GET_ALLOCATION_REQUEST, .allocation_id = TEXT("id")}},
    {.protocol = MESSAGE_V0,
     .hex = "0000006286a474797065b76765745f616c6c6f636174696f6e5f726573706f6e7365ad616c6c6f6361"
            "74696f6e5f6964a26964a473697a65cd1000ac616c69676e65645f73697a65ce00200000a3746167a7"
            "77656967687473ab6c61796f75745f736c6f7400",
     .message = {.type = MESSAGE_GET_ALLOCATION_RESPONSE,
                 .allocation_id = TEXT("id"),
                 .size = INTEGER(UINT64_C(4096)),
                 .aligned_size = INTEGER(UINT64_C(2097152)),
                 .tag = TEXT("weights"),
                 .layout_slot = INTEGER(UINT64_C(0))}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002482a474797065b86c6973745f616c6c6f636174696f6e735f72657175657374a3746167c0",
     .message = {.type = MESSAGE_LIST_ALLOCATIONS_REQUEST}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002c82a474797065b86c6973745f616c6c6f636174696f6e735f72657175657374a3746167a86b"
            "765f6361636865",
     .message = {.type = MESSAGE_LIST_ALLOCATIONS_REQUEST, .tag = TEXT("kv_cache")}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002d82a474797065b96c6973745f616c6c6f636174696f6e735f726573706f6e7365ab616c6c6f"
            "636174696f6e7390",
     .message = {.type = MESSAGE_LIST_ALLOCATIONS_RESPONSE}},
    {.protocol = MESSAGE_V0,
     .hex = "0000008982a474797065b96c6973745f616c6c6f636174696f6e735f726573706f6e7365ab616c6c6f"
            "636174696f6e739186a474797065b76765745f616c6c6f636174696f6e5f726573706f6e7365ad616c"
            "6c6f636174696f6e5f6964a26964a473697a6501ac616c69676e65645f73697a6502a3746167a77765"
            "6967687473ab6c61796f75745f736c6f7400",
     .message = {.type = MESSAGE_LIST_ALLOCATIONS_RESPONSE},
     .items = golden_items_0,
     .item_count = 1},
    {.protocol = MESSAGE_V0,
     .hex = "0000002f82a474797065b7667265655f616c6c6f636174696f6e5f72657175657374ad616c6c6f6361"
            "74696f6e5f6964a26964",
     .message = {.type = MESSAGE_FREE_REQUEST, .allocation_id = TEXT("id")}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002882a474797065b8667265655f616c6c6f636174696f6e5f726573706f6e7365a77375636365"
            "7373c2",
     .message = {.type = MESSAGE_FREE_RESPONSE, .success = false}},
    {.protocol = MESSAGE_V0,
     .hex = "0000004985a474797065b46d657461646174615f7075745f72657175657374a36b6579a16bad616c6c"
            "6f636174696f6e5f6964a26964ac6f66667365745f627974657300a576616c7565c40176",
     .message = {.type = MESSAGE_METADATA_PUT_REQUEST,
                 .key = TEXT("k"),
                 .allocation_id = TEXT("id"),
                 .offset_bytes = INTEGER(UINT64_C(0)),
                 .value = TEXT("v")}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002582a474797065b56d657461646174615f7075745f726573706f6e7365a773756363657373c3",
     .message = {.type = MESSAGE_METADATA_PUT_RESPONSE, .success = true}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002182a474797065b46d657461646174615f6765745f72657175657374a36b6579a16b",
     .message = {.type = MESSAGE_METADATA_GET_REQUEST, .key = TEXT("k")}},
    {.protocol = MESSAGE_V0,
     .hex = "0000004785a474797065b56d657461646174615f6765745f726573706f6e7365a5666f756e64c2ad61"
            "6c6c6f636174696f6e5f6964c0ac6f66667365745f6279746573c0a576616c7565c0",
     .message = {.type = MESSAGE_METADATA_GET_RESPONSE, .found = false}},
    {.protocol = MESSAGE_V0,
     .hex = "0000005485a474797065b56d657461646174615f6765745f726573706f6e7365a5666f756e64c3ad61"
            "6c6c6f636174696f6e5f6964a26964ac6f66667365745f6279746573cfffffffffffffffffa576616c"
            "7565c4027b7d",
     .message = {.type = MESSAGE_METADATA_GET_RESPONSE,
                 .found = true,
                 .allocation_id = TEXT("id"),
                 .offset_bytes = INTEGER(UINT64_C(18446744073709551615)),
                 .value = TEXT("{}")}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002582a474797065b76d657461646174615f64656c6574655f72657175657374a36b6579a2c3a4",
     .message = {.type = MESSAGE_METADATA_DELETE_REQUEST, .key = TEXT("\xc3\xa4")}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002882a474797065b86d657461646174615f64656c6574655f726573706f6e7365a764656c6574"
            "6564c3",
     .message = {.type = MESSAGE_METADATA_DELETE_RESPONSE, .deleted = true}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002482a474797065b56d657461646174615f6c6973745f72657175657374a6707265666978a0",
     .message = {.type = MESSAGE_METADATA_LIST_REQUEST, .prefix = TEXT("")}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002382a474797065b66d657461646174615f6c6973745f726573706f6e7365a46b65797390",
     .message = {.type = MESSAGE_METADATA_LIST_RESPONSE}},
    {.protocol = MESSAGE_V0,
     .hex = "0000004882a474797065b66d657461646174615f6c6973745f726573706f6e7365a46b65797393a0a1"
            "61d9206262626262626262626262626262626262626262626262626262626262626262",
     .message = {.type = MESSAGE_METADATA_LIST_RESPONSE},
     .items = golden_items_1,
     .item_count = 3},
    {.protocol = MESSAGE_V0,
     .hex = "0000001d81a474797065b66765745f6c6f636b5f73746174655f72657175657374",
     .message = {.type = MESSAGE_GET_LOCK_STATE_REQUEST}},
    {.protocol = MESSAGE_V0,
     .hex = "0000008588a474797065b76765745f6c6f636b5f73746174655f726573706f6e7365a57374617465a2"
            "524fae6861735f72775f73657373696f6ec3b0726f5f73657373696f6e5f636f756e74ce00011170af"
            "77616974696e675f7772697465727303a9636f6d6d6974746564c3a869735f7265616479c3b06c6179"
            "6f75745f636f6d6d6974746564c3",
     .message = {.type = MESSAGE_GET_LOCK_STATE_RESPONSE,
                 .state = TEXT("RO"),
                 .has_rw_session = true,
                 .ro_session_count = INTEGER(UINT64_C(70000)),
                 .waiting_writers = INTEGER(UINT64_C(3)),
                 .committed = true,
                 .is_ready = true,
                 .layout_committed = true}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002381a474797065bc6765745f616c6c6f636174696f6e5f73746174655f72657175657374",
     .message = {.type = MESSAGE_GET_ALLOCATION_STATE_REQUEST}},
    {.protocol = MESSAGE_V0,
     .hex = "0000004783a474797065bd6765745f616c6c6f636174696f6e5f73746174655f726573706f6e7365b0"
            "616c6c6f636174696f6e5f636f756e7403ab746f74616c5f6279746573ce00600000",
     .message = {.type = MESSAGE_GET_ALLOCATION_STATE_RESPONSE,
                 .allocation_count = INTEGER(UINT64_C(3)),
                 .total_bytes = INTEGER(UINT64_C(6291456))}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002581a474797065be6765745f6d656d6f72795f6c61796f75745f686173685f72657175657374",
     .message = {.type = MESSAGE_GET_MEMORY_LAYOUT_HASH_REQUEST}},
    {.protocol = MESSAGE_V0,
     .hex = "0000003a82a474797065bf6765745f6d656d6f72795f6c61796f75745f686173685f726573706f6e73"
            "65b26d656d6f72795f6c61796f75745f68617368a0",
     .message = {.type = MESSAGE_GET_MEMORY_LAYOUT_HASH_RESPONSE, .memory_layout_hash = TEXT("")}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002081a474797065b96765745f72756e74696d655f73746174655f72657175657374",
     .message = {.type = MESSAGE_GET_RUNTIME_STATE_REQUEST}},
    {.protocol = MESSAGE_V0,
     .hex = "000000ad8aa474797065ba6765745f72756e74696d655f73746174655f726573706f6e7365a5737461"
            "7465a5454d505459ae6861735f72775f73657373696f6ec2b0726f5f73657373696f6e5f636f756e74"
            "00af77616974696e675f7772697465727300a9636f6d6d6974746564c2a869735f7265616479c2b061"
            "6c6c6f636174696f6e5f636f756e7400b26d656d6f72795f6c61796f75745f68617368a0b06c61796f"
            "75745f636f6d6d6974746564c2",
     .message = {.type = MESSAGE_GET_RUNTIME_STATE_RESPONSE,
                 .state = TEXT("EMPTY"),
                 .has_rw_session = false,
                 .ro_session_count = INTEGER(UINT64_C(0)),
                 .waiting_writers = INTEGER(UINT64_C(0)),
                 .committed = false,
                 .is_ready = false,
                 .allocation_count = INTEGER(UINT64_C(0)),
                 .memory_layout_hash = TEXT(""),
                 .layout_committed = false}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002081a474797065b96765745f6576656e745f686973746f72795f72657175657374",
     .message = {.type = MESSAGE_GET_EVENT_HISTORY_REQUEST}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002982a474797065ba6765745f6576656e745f686973746f72795f726573706f6e7365a6657665"
            "6e747390",
     .message = {.type = MESSAGE_GET_EVENT_HISTORY_RESPONSE}},
    {.protocol = MESSAGE_V0,
     .hex = "0000004b82a474797065ba6765745f6576656e745f686973746f72795f726573706f6e7365a6657665"
            "6e74739182a46b696e64a9636f6d6d6974746564b0616c6c6f636174696f6e5f636f756e7400",
     .message = {.type = MESSAGE_GET_EVENT_HISTORY_RESPONSE},
     .items = golden_items_2,
     .item_count = 1},
    {.protocol = MESSAGE_V0,
     .hex = "0000003b83a474797065ae6572726f725f726573706f6e7365a56572726f72b9457870656374656420"
            "48616e647368616b6552657175657374a4636f646500",
     .message = {.type = MESSAGE_ERROR_RESPONSE,
                 .error = TEXT("Expected HandshakeRequest"),
                 .code = INTEGER(UINT64_C(0))}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002682a474797065ae6578706f72745f72657175657374ad616c6c6f636174696f6e5f6964a269"
            "64",
     .message = {.type = MESSAGE_EXPORT_REQUEST, .is_older = true, .allocation_id = TEXT("id")}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002482a474797065ac667265655f72657175657374ad616c6c6f636174696f6e5f6964a26964",
     .message = {.type = MESSAGE_FREE_REQUEST, .is_older = true, .allocation_id = TEXT("id")}},
    {.protocol = MESSAGE_V0,
     .hex = "0000001d82a474797065ad667265655f726573706f6e7365a773756363657373c3",
     .message = {.type = MESSAGE_FREE_RESPONSE, .is_older = true, .success = true}},
    {.protocol = MESSAGE_V0,
     .hex = "0000001881a474797065b1636c6561725f616c6c5f72657175657374",
     .message = {.type = MESSAGE_CLEAR_ALL_REQUEST}},
    {.protocol = MESSAGE_V0,
     .hex = "0000002882a474797065b2636c6561725f616c6c5f726573706f6e7365ad636c65617265645f636f75"
            "6e7407",
     .message = {.type = MESSAGE_CLEAR_ALL_RESPONSE, .cleared_count = INTEGER(UINT64_C(7))}},
    {.protocol = MESSAGE_V1,
     .hex = "0000003883a474797065b168616e647368616b655f72657175657374a96c6f636b5f74797065a27277"
            "b165787065637465645f6964656e74697479c0",
     .message = {.type = MESSAGE_HANDSHAKE_REQUEST, .lock_type = MESSAGE_RW}},
    {.protocol = MESSAGE_V1,
     .hex = "0000004083a474797065b168616e647368616b655f72657175657374a96c6f636b5f74797065a2726f"
            "b165787065637465645f6964656e7469747992a16ea54750552d75",
     .message = {.type = MESSAGE_HANDSHAKE_REQUEST,
                 .lock_type = MESSAGE_RO,
                 .server_nonce = TEXT("n"),
                 .gpu_uuid = TEXT("GPU-u")}},
    {.protocol = MESSAGE_V1,
     .hex = "0000005284a474797065b168616e647368616b655f72657175657374a96c6f636b5f74797065ad7277"
            "5f646174615f6f725f7277b165787065637465645f6964656e74697479c0ad70726f636573735f6665"
            "6e6365c3",
     .message = {.type = MESSAGE_HANDSHAKE_REQUEST,
                 .lock_type = MESSAGE_RW_DATA_OR_RW,
                 .process_fence = true}},
    {.protocol = MESSAGE_V1,
     .hex = "0000004484a474797065b268616e647368616b655f726573706f6e7365a96c6f636b5f74797065a272"
            "77ac7365727665725f6e6f6e6365a16ea86770755f75756964a54750552d75",
     .message = {.type = MESSAGE_HANDSHAKE_RESPONSE,
                 .lock_type = MESSAGE_RW,
                 .server_nonce = TEXT("n"),
                 .gpu_uuid = TEXT("GPU-u")}},
    {.protocol = MESSAGE_V1,
     .hex = "0000004483a474797065b0616c6c6f636174655f72657175657374ad616c6c6f636174696f6e5f6964"
            "ac616c6c6f636174696f6e2d31ac616c69676e65645f73697a65ce00200000",
     .message = {.type = MESSAGE_ALLOCATE_REQUEST,
                 .allocation_id = TEXT("allocation-1"),
                 .aligned_size = INTEGER(UINT64_C(2097152))}},
    {.protocol = MESSAGE_V1,
     .hex = "0000002682a474797065ae6578706f72745f72657175657374ad616c6c6f636174696f6e5f6964a269"
            "64",
     .message = {.type = MESSAGE_EXPORT_REQUEST, .allocation_id = TEXT("id")}},
    {.protocol = MESSAGE_V1,
     .hex = "0000001681a474797065af6578706f72745f726573706f6e7365",
     .message = {.type = MESSAGE_EXPORT_RESPONSE}},
    {.protocol = MESSAGE_V1,
     .hex = "0000002482a474797065ac667265655f72657175657374ad616c6c6f636174696f6e5f6964a26964",
     .message = {.type = MESSAGE_FREE_REQUEST, .allocation_id = TEXT("id")}},
    {.protocol = MESSAGE_V1,
     .hex = "0000001f81a474797065b86c6973745f616c6c6f636174696f6e735f72657175657374",
     .message = {.type = MESSAGE_LIST_ALLOCATIONS_REQUEST}},
    {.protocol = MESSAGE_V1,
     .hex = "0000002d82a474797065b96c6973745f616c6c6f636174696f6e735f726573706f6e7365ab616c6c6f"
            "636174696f6e7390",
     .message = {.type = MESSAGE_LIST_ALLOCATIONS_RESPONSE}},
    {.protocol = MESSAGE_V1,
     .hex = "0000005082a474797065b96c6973745f616c6c6f636174696f6e735f726573706f6e7365ab616c6c6f"
            "636174696f6e739182ad616c6c6f636174696f6e5f6964a161ac616c69676e65645f73697a65ce0020"
            "0000",
     .message = {.type = MESSAGE_LIST_ALLOCATIONS_RESPONSE},
     .items = golden_items_3,
     .item_count = 1},
    {.protocol = MESSAGE_V1,
     .hex = "0000001581a474797065ae636f6d6d69745f72657175657374",
     .message = {.type = MESSAGE_COMMIT_REQUEST}},
    {.protocol = MESSAGE_V1,
     .hex = "0000001481a474797065ad61626f72745f72657175657374",
     .message = {.type = MESSAGE_ABORT_REQUEST}},
    {.protocol = MESSAGE_V1,
     .hex = "0000002181a474797065ba707265706172655f636865636b706f696e745f72657175657374",
     .message = {.type = MESSAGE_PREPARE_CHECKPOINT_REQUEST}},
    {.protocol = MESSAGE_V1,
     .hex = "0000002782a474797065b861626f72745f636865636b706f696e745f72657175657374a5746f6b656e"
            "a174",
     .message = {.type = MESSAGE_ABORT_CHECKPOINT_REQUEST, .token = TEXT("t")}},
    {.protocol = MESSAGE_V1,
     .hex = "0000002682a474797065b8636f6d706c6574655f726573746f72655f72657175657374a5746f6b656e"
            "a0",
     .message = {.type = MESSAGE_COMPLETE_RESTORE_REQUEST, .token = TEXT("")}},
    {.protocol = MESSAGE_V1,
     .hex = "0000002381a474797065bc6765745f636865636b706f696e745f73746174655f72657175657374",
     .message = {.type = MESSAGE_GET_CHECKPOINT_STATE_REQUEST}},
    {.protocol = MESSAGE_V1,
     .hex = "0000002181a474797065ba72657461696e5f616c6c6f636174696f6e735f72657175657374",
     .message = {.type = MESSAGE_RETAIN_ALLOCATIONS_REQUEST}},
    {.protocol = MESSAGE_V1,
     .hex = "0000002181a474797065ba72656c656173655f6174746163686d656e745f72657175657374",
     .message = {.type = MESSAGE_RELEASE_ATTACHMENT_REQUEST}},
    {.protocol = MESSAGE_V1,
     .hex = "0000001781a474797065b0737563636573735f726573706f6e7365",
     .message = {.type = MESSAGE_SUCCESS_RESPONSE}},
    {.protocol = MESSAGE_V1,
     .hex = "0000003583a474797065b9636865636b706f696e745f73746174655f726573706f6e7365a573746174"
            "65a773657276696e67a5746f6b656ec0",
     .message = {.type = MESSAGE_CHECKPOINT_STATE_RESPONSE, .state = TEXT("serving")}},
    {.protocol = MESSAGE_V1,
     .hex = "0000003f83a474797065b9636865636b706f696e745f73746174655f726573706f6e7365a573746174"
            "65b0636865636b706f696e745f7265616479a5746f6b656ea174",
     .message = {.type = MESSAGE_CHECKPOINT_STATE_RESPONSE,
                 .state = TEXT("checkpoint_ready"),
                 .token = TEXT("t")}},
    {.protocol = MESSAGE_V1,
     .hex = "0000003183a474797065ae6572726f725f726573706f6e7365a76d657373616765a4626f6f6dad6f75"
            "745f6f665f6d656d6f7279c2",
     .message = {.type = MESSAGE_ERROR_RESPONSE, .error = TEXT("boom"), .out_of_memory = false}},
    {.protocol = MESSAGE_V1,
     .hex = "0000002d83a474797065ae6572726f725f726573706f6e7365a76d657373616765a0ad6f75745f6f66"
            "5f6d656d6f7279c3",
     .message = {.type = MESSAGE_ERROR_RESPONSE, .error = TEXT(""), .out_of_memory = true}},
};

#define GOLDEN_COUNT (sizeof goldens / sizeof goldens[0])

#endif
