/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/message_table.h"

#include <string.h>

#define MEMBER(kind, absent, member) kind, absent, offsetof(struct message, member)

#define REQUIRED(kind, name)                              \
    {                                                     \
#name, MEMBER(FIELD_##kind, FIELD_REQUIRED, name) \
    }
#define OR_NIL(kind, name)                              \
    {                                                   \
#name, MEMBER(FIELD_##kind, FIELD_OR_NIL, name) \
    }
#define OR_ZERO(kind, name)                              \
    {                                                    \
#name, MEMBER(FIELD_##kind, FIELD_OR_ZERO, name) \
    }
#define LIST(name, absent)                      \
    {                                           \
#name, MEMBER(FIELD_LIST, absent, list) \
    }
#define GRANTED_LOCK_TYPE                                                   \
    {                                                                       \
        "granted_lock_type", MEMBER(FIELD_GRANTED, FIELD_OR_NIL, lock_type) \
    }
#define PLAIN(tag, name, type)                         \
    {                                                  \
        tag, name, MESSAGE_##type, false, false, NULL, \
        {                                              \
            {                                          \
                0                                      \
            }                                          \
        }                                              \
    }
#define OLDER(tag, name, type, ...)                   \
    {                                                 \
        tag, name, MESSAGE_##type, true, false, NULL, \
        {                                             \
            __VA_ARGS__                               \
        }                                             \
    }
#define ROW(tag, name, type, ...)                      \
    {                                                  \
        tag, name, MESSAGE_##type, false, false, NULL, \
        {                                              \
            __VA_ARGS__                                \
        }                                              \
    }
#define LISTING(tag, name, type, item, ...)            \
    {                                                  \
        tag, name, MESSAGE_##type, false, false, item, \
        {                                              \
            __VA_ARGS__                                \
        }                                              \
    }

#define ALLOCATION_ID REQUIRED(TEXT, allocation_id)
#define ALLOCATION                                                                                \
    ALLOCATION_ID, REQUIRED(INTEGER, size), REQUIRED(INTEGER, aligned_size), REQUIRED(TEXT, tag), \
        REQUIRED(INTEGER, layout_slot)
#define LOCK_STATE                                                                              \
    REQUIRED(TEXT, state), REQUIRED(BOOL, has_rw_session), REQUIRED(INTEGER, ro_session_count), \
        REQUIRED(INTEGER, waiting_writers), REQUIRED(BOOL, committed), REQUIRED(BOOL, is_ready)

static const struct message_row v0_allocation =
    ROW("get_allocation_response", "GetAllocationResponse", GET_ALLOCATION_RESPONSE, ALLOCATION);
static const struct message_row v0_key = {.is_bare = true, .fields = {REQUIRED(TEXT, key)}};
static const struct message_row v0_event = {
    .fields = {REQUIRED(TEXT, kind), OR_ZERO(INTEGER, allocation_count)}};
static const struct message_row v1_allocation = {
    .fields = {ALLOCATION_ID, REQUIRED(INTEGER, aligned_size)}};

static const struct message_row v0_rows[] = {
    ROW("handshake_request", "HandshakeRequest", HANDSHAKE_REQUEST, REQUIRED(WANTED, lock_type),
        OR_NIL(INTEGER, timeout_ms)),
    ROW("handshake_response", "HandshakeResponse", HANDSHAKE_RESPONSE, REQUIRED(BOOL, success),
        REQUIRED(BOOL, committed), GRANTED_LOCK_TYPE),
    PLAIN("commit_request", "CommitRequest", COMMIT_REQUEST),
    ROW("commit_response", "CommitResponse", COMMIT_RESPONSE, REQUIRED(BOOL, success)),
    PLAIN("commit_layout_request", "CommitLayoutRequest", COMMIT_LAYOUT_REQUEST),
    ROW("commit_layout_response", "CommitLayoutResponse", COMMIT_LAYOUT_RESPONSE,
        REQUIRED(BOOL, success), OR_ZERO(TEXT, memory_layout_hash), GRANTED_LOCK_TYPE),
    ROW("allocate_request", "AllocateRequest", ALLOCATE_REQUEST, REQUIRED(INTEGER, size),
        {"tag", MEMBER(FIELD_TEXT, FIELD_OR_DEFAULT_TAG, tag)}),
    ROW("allocate_response", "AllocateResponse", ALLOCATE_RESPONSE, ALLOCATION_ID,
        REQUIRED(INTEGER, size), REQUIRED(INTEGER, aligned_size), REQUIRED(INTEGER, layout_slot)),
    ROW("export_allocation_request", "ExportAllocationRequest", EXPORT_REQUEST, ALLOCATION_ID),
    ROW("export_allocation_response", "ExportAllocationResponse", EXPORT_RESPONSE, ALLOCATION),
    ROW("get_allocation_request", "GetAllocationRequest", GET_ALLOCATION_REQUEST, ALLOCATION_ID),
    ROW("get_allocation_response", "GetAllocationResponse", GET_ALLOCATION_RESPONSE, ALLOCATION),
    ROW("list_allocations_request", "ListAllocationsRequest", LIST_ALLOCATIONS_REQUEST,
        OR_NIL(TEXT, tag)),
    LISTING("list_allocations_response", "ListAllocationsResponse", LIST_ALLOCATIONS_RESPONSE,
            &v0_allocation, LIST(allocations, FIELD_OR_ZERO)),
    ROW("free_allocation_request", "FreeAllocationRequest", FREE_REQUEST, ALLOCATION_ID),
    ROW("free_allocation_response", "FreeAllocationResponse", FREE_RESPONSE,
        REQUIRED(BOOL, success)),
    ROW("metadata_put_request", "MetadataPutRequest", METADATA_PUT_REQUEST, REQUIRED(TEXT, key),
        ALLOCATION_ID, REQUIRED(INTEGER, offset_bytes), REQUIRED(BYTES, value)),
    ROW("metadata_put_response", "MetadataPutResponse", METADATA_PUT_RESPONSE,
        REQUIRED(BOOL, success)),
    ROW("metadata_get_request", "MetadataGetRequest", METADATA_GET_REQUEST, REQUIRED(TEXT, key)),
    ROW("metadata_get_response", "MetadataGetResponse", METADATA_GET_RESPONSE,
        REQUIRED(BOOL, found), OR_NIL(TEXT, allocation_id), OR_NIL(INTEGER, offset_bytes),
        OR_NIL(BYTES, value)),
    ROW("metadata_delete_request", "MetadataDeleteRequest", METADATA_DELETE_REQUEST,
        REQUIRED(TEXT, key)),
    ROW("metadata_delete_response", "MetadataDeleteResponse", METADATA_DELETE_RESPONSE,
        REQUIRED(BOOL, deleted)),
    ROW("metadata_list_request", "MetadataListRequest", METADATA_LIST_REQUEST,
        OR_ZERO(TEXT, prefix)),
    LISTING("metadata_list_response", "MetadataListResponse", METADATA_LIST_RESPONSE, &v0_key,
            LIST(keys, FIELD_OR_ZERO)),
    PLAIN("get_lock_state_request", "GetLockStateRequest", GET_LOCK_STATE_REQUEST),
    ROW("get_lock_state_response", "GetLockStateResponse", GET_LOCK_STATE_RESPONSE, LOCK_STATE,
        OR_ZERO(BOOL, layout_committed)),
    PLAIN("get_allocation_state_request", "GetAllocationStateRequest",
          GET_ALLOCATION_STATE_REQUEST),
    /* Older clients require the bytes, later ones skip them. */
    ROW("get_allocation_state_response", "GetAllocationStateResponse",
        GET_ALLOCATION_STATE_RESPONSE, REQUIRED(INTEGER, allocation_count),
        OR_ZERO(INTEGER, total_bytes)),
    PLAIN("get_memory_layout_hash_request", "GetStateHashRequest", GET_MEMORY_LAYOUT_HASH_REQUEST),
    ROW("get_memory_layout_hash_response", "GetStateHashResponse", GET_MEMORY_LAYOUT_HASH_RESPONSE,
        REQUIRED(TEXT, memory_layout_hash)),
    PLAIN("get_runtime_state_request", "GetRuntimeStateRequest", GET_RUNTIME_STATE_REQUEST),
    ROW("get_runtime_state_response", "GetRuntimeStateResponse", GET_RUNTIME_STATE_RESPONSE,
        LOCK_STATE, OR_ZERO(INTEGER, allocation_count), OR_ZERO(TEXT, memory_layout_hash),
        OR_ZERO(BOOL, layout_committed)),
    PLAIN("get_event_history_request", "GetEventHistoryRequest", GET_EVENT_HISTORY_REQUEST),
    LISTING("get_event_history_response", "GetEventHistoryResponse", GET_EVENT_HISTORY_RESPONSE,
            &v0_event, LIST(events, FIELD_OR_ZERO)),
    ROW("error_response", "ErrorResponse", ERROR_RESPONSE, REQUIRED(TEXT, error),
        OR_ZERO(INTEGER, code)),
    OLDER("export_request", "ExportRequest", EXPORT_REQUEST, ALLOCATION_ID),
    OLDER("get_allocation_response", "GetAllocationResponse", EXPORT_RESPONSE, ALLOCATION),
    OLDER("free_request", "FreeRequest", FREE_REQUEST, ALLOCATION_ID),
    OLDER("free_response", "FreeResponse", FREE_RESPONSE, REQUIRED(BOOL, success)),
    PLAIN("clear_all_request", "ClearAllRequest", CLEAR_ALL_REQUEST),
    ROW("clear_all_response", "ClearAllResponse", CLEAR_ALL_RESPONSE,
        REQUIRED(INTEGER, cleared_count)),
};

static const struct message_row v1_rows[] = {
    ROW("handshake_request", "HandshakeRequest", HANDSHAKE_REQUEST, REQUIRED(WANTED, lock_type),
        {"expected_identity", FIELD_IDENTITY, FIELD_OR_NIL, 0},
        {"process_fence", MEMBER(FIELD_BOOL, FIELD_LATER, process_fence)}),
    ROW("handshake_response", "HandshakeResponse", HANDSHAKE_RESPONSE, REQUIRED(GRANTED, lock_type),
        REQUIRED(TEXT, server_nonce), REQUIRED(TEXT, gpu_uuid)),
    ROW("allocate_request", "AllocateRequest", ALLOCATE_REQUEST, ALLOCATION_ID,
        REQUIRED(INTEGER, aligned_size)),
    ROW("export_request", "ExportRequest", EXPORT_REQUEST, ALLOCATION_ID),
    PLAIN("export_response", "ExportResponse", EXPORT_RESPONSE),
    ROW("free_request", "FreeRequest", FREE_REQUEST, ALLOCATION_ID),
    PLAIN("list_allocations_request", "ListAllocationsRequest", LIST_ALLOCATIONS_REQUEST),
    LISTING("list_allocations_response", "ListAllocationsResponse", LIST_ALLOCATIONS_RESPONSE,
            &v1_allocation, LIST(allocations, FIELD_REQUIRED)),
    PLAIN("commit_request", "CommitRequest", COMMIT_REQUEST),
    PLAIN("abort_request", "AbortRequest", ABORT_REQUEST),
    PLAIN("prepare_checkpoint_request", "PrepareCheckpointRequest", PREPARE_CHECKPOINT_REQUEST),
    ROW("abort_checkpoint_request", "AbortCheckpointRequest", ABORT_CHECKPOINT_REQUEST,
        REQUIRED(TEXT, token)),
    ROW("complete_restore_request", "CompleteRestoreRequest", COMPLETE_RESTORE_REQUEST,
        REQUIRED(TEXT, token)),
    PLAIN("get_checkpoint_state_request", "GetCheckpointStateRequest",
          GET_CHECKPOINT_STATE_REQUEST),
    PLAIN("retain_allocations_request", "RetainAllocationsRequest", RETAIN_ALLOCATIONS_REQUEST),
    PLAIN("release_attachment_request", "ReleaseAttachmentRequest", RELEASE_ATTACHMENT_REQUEST),
    PLAIN("success_response", "SuccessResponse", SUCCESS_RESPONSE),
    ROW("checkpoint_state_response", "CheckpointStateResponse", CHECKPOINT_STATE_RESPONSE,
        REQUIRED(TEXT, state), {"token", MEMBER(FIELD_TEXT, FIELD_REQUIRED_OR_NIL, token)}),
    ROW("error_response", "ErrorResponse", ERROR_RESPONSE,
        {"message", MEMBER(FIELD_TEXT, FIELD_REQUIRED, error)}, OR_ZERO(BOOL, out_of_memory)),
};

static const struct {
    const struct message_row *rows;
    size_t count;
} tables[] = {
    [MESSAGE_V0] = {v0_rows, sizeof v0_rows / sizeof v0_rows[0]},
    [MESSAGE_V1] = {v1_rows, sizeof v1_rows / sizeof v1_rows[0]},
};

static const struct {
    const char *name;
    enum field_kind kind;
    enum message_lock lock;
} locks[] = {
    {"rw", FIELD_WANTED, MESSAGE_RW},
    {"ro", FIELD_WANTED, MESSAGE_RO},
    {"rw_or_ro", FIELD_WANTED, MESSAGE_RW_OR_RO},
    {"rw_data_or_rw", FIELD_WANTED, MESSAGE_RW_DATA_OR_RW},
    {"rw", FIELD_GRANTED, MESSAGE_RW},
    {"ro", FIELD_GRANTED, MESSAGE_RO},
    {"rw_data", FIELD_GRANTED, MESSAGE_RW_DATA},
};

static bool is_same(const char *text, size_t bytes, const char *name)
{
    return bytes == strlen(name) && memcmp(text, name, bytes) == 0;
}

const struct message_row *message_find_tag(enum message_protocol protocol, const char *tag,
                                           size_t bytes)
{
    for (size_t i = 0; i < tables[protocol].count; i++) {
        if (is_same(tag, bytes, tables[protocol].rows[i].tag))
            return &tables[protocol].rows[i];
    }
    return NULL;
}

const struct message_row *message_find_type(enum message_protocol protocol, enum message_type type,
                                            bool is_older)
{
    const struct message_row *found = NULL;

    for (size_t i = 0; i < tables[protocol].count; i++) {
        const struct message_row *row = &tables[protocol].rows[i];
        if (row->type == type && (!found || row->is_older == is_older))
            found = row;
    }
    return found;
}

bool message_is_nil_good(const struct message_field *field)
{
    return field->absent == FIELD_OR_NIL || field->absent == FIELD_REQUIRED_OR_NIL;
}

void message_set_absent(const struct message_field *field, struct message *message)
{
    void *member = (char *)message + field->offset;

    if (field->absent != FIELD_OR_ZERO && field->absent != FIELD_OR_DEFAULT_TAG)
        return;
    if (field->kind == FIELD_INTEGER)
        *(struct message_integer *)member = message_integer(0);
    else if (field->kind == FIELD_TEXT)
        *(struct message_text *)member =
            message_text(field->absent == FIELD_OR_DEFAULT_TAG ? "default" : "");
}

enum message_lock message_lock_from_name(enum message_protocol protocol, enum field_kind kind,
                                         const char *name, size_t bytes)
{
    for (size_t i = 0; i < sizeof locks / sizeof locks[0]; i++) {
        if (locks[i].kind == kind && is_same(name, bytes, locks[i].name))
            return locks[i].lock;
    }
    if (protocol == MESSAGE_V0 && kind == FIELD_WANTED && is_same(name, bytes, "auto"))
        return MESSAGE_RW_OR_RO;
    return MESSAGE_LOCK_NIL;
}

const char *message_lock_name(enum field_kind kind, enum message_lock lock)
{
    for (size_t i = 0; i < sizeof locks / sizeof locks[0]; i++) {
        if (locks[i].kind == kind && locks[i].lock == lock)
            return locks[i].name;
    }
    return NULL;
}
