/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/message_table.h"

#include <string.h>

#define FIELD(text, kind, absent, member) \
    (text), sizeof(text) - 1, FIELD_##kind, FIELD_##absent, offsetof(struct message, member)
#define REQUIRED(kind, member) FIELD(#member, kind, REQUIRED, member)
#define OR_NIL(kind, member)   FIELD(#member, kind, OR_NIL, member)
#define OR_ZERO(kind, member)  FIELD(#member, kind, OR_ZERO, member)
#define ROW(wire, camel, kind) .tag = (wire), .name = (camel), .type = MESSAGE_##kind

/* clang-format off */
#define ALLOCATION \
    {REQUIRED(TEXT, allocation_id)}, {REQUIRED(INTEGER, size)}, \
    {REQUIRED(INTEGER, aligned_size)}, {REQUIRED(TEXT, tag)}, {REQUIRED(INTEGER, layout_slot)}
#define LOCK_STATE \
    {REQUIRED(TEXT, state)}, {REQUIRED(BOOL, has_rw_session)}, \
    {REQUIRED(INTEGER, ro_session_count)}, {REQUIRED(INTEGER, waiting_writers)}, \
    {REQUIRED(BOOL, committed)}, {REQUIRED(BOOL, is_ready)}
/* clang-format on */

static const struct message_row v0_allocation = {
    ROW("get_allocation_response", "GetAllocationResponse", GET_ALLOCATION_RESPONSE),
    .fields = {ALLOCATION}};
static const struct message_row v0_key = {.is_bare = true, .fields = {{REQUIRED(TEXT, key)}}};
static const struct message_row v0_event = {
    .fields = {{REQUIRED(TEXT, kind)}, {OR_ZERO(INTEGER, allocation_count)}}};
static const struct message_row v1_allocation = {
    .fields = {{REQUIRED(TEXT, allocation_id)}, {REQUIRED(INTEGER, aligned_size)}}};

static const struct message_row v0_rows[] = {
    {ROW("handshake_request", "HandshakeRequest", HANDSHAKE_REQUEST),
     .fields = {{REQUIRED(WANTED, lock_type)}, {OR_NIL(INTEGER, timeout_ms)}}},
    {ROW("handshake_response", "HandshakeResponse", HANDSHAKE_RESPONSE),
     .fields = {{REQUIRED(BOOL, success)},
                {REQUIRED(BOOL, committed)},
                {FIELD("granted_lock_type", GRANTED, OR_NIL, lock_type)}}},
    {ROW("commit_request", "CommitRequest", COMMIT_REQUEST)},
    {ROW("commit_response", "CommitResponse", COMMIT_RESPONSE),
     .fields = {{REQUIRED(BOOL, success)}}},
    {ROW("commit_layout_request", "CommitLayoutRequest", COMMIT_LAYOUT_REQUEST)},
    {ROW("commit_layout_response", "CommitLayoutResponse", COMMIT_LAYOUT_RESPONSE),
     .fields = {{REQUIRED(BOOL, success)},
                {OR_ZERO(TEXT, memory_layout_hash)},
                {FIELD("granted_lock_type", GRANTED, OR_NIL, lock_type)}}},
    {ROW("allocate_request", "AllocateRequest", ALLOCATE_REQUEST),
     .fields = {{REQUIRED(INTEGER, size)}, {FIELD("tag", TEXT, OR_DEFAULT_TAG, tag)}}},
    {ROW("allocate_response", "AllocateResponse", ALLOCATE_RESPONSE),
     .fields = {{REQUIRED(TEXT, allocation_id)},
                {REQUIRED(INTEGER, size)},
                {REQUIRED(INTEGER, aligned_size)},
                {REQUIRED(INTEGER, layout_slot)}}},
    {ROW("export_allocation_request", "ExportAllocationRequest", EXPORT_REQUEST),
     .fields = {{REQUIRED(TEXT, allocation_id)}}},
    {ROW("export_allocation_response", "ExportAllocationResponse", EXPORT_RESPONSE),
     .fields = {ALLOCATION}},
    {ROW("get_allocation_request", "GetAllocationRequest", GET_ALLOCATION_REQUEST),
     .fields = {{REQUIRED(TEXT, allocation_id)}}},
    {ROW("get_allocation_response", "GetAllocationResponse", GET_ALLOCATION_RESPONSE),
     .fields = {ALLOCATION}},
    {ROW("list_allocations_request", "ListAllocationsRequest", LIST_ALLOCATIONS_REQUEST),
     .fields = {{OR_NIL(TEXT, tag)}}},
    {ROW("list_allocations_response", "ListAllocationsResponse", LIST_ALLOCATIONS_RESPONSE),
     .item = &v0_allocation, .fields = {{FIELD("allocations", LIST, OR_ZERO, list)}}},
    {ROW("free_allocation_request", "FreeAllocationRequest", FREE_REQUEST),
     .fields = {{REQUIRED(TEXT, allocation_id)}}},
    {ROW("free_allocation_response", "FreeAllocationResponse", FREE_RESPONSE),
     .fields = {{REQUIRED(BOOL, success)}}},
    {ROW("metadata_put_request", "MetadataPutRequest", METADATA_PUT_REQUEST),
     .fields = {{REQUIRED(TEXT, key)},
                {REQUIRED(TEXT, allocation_id)},
                {REQUIRED(INTEGER, offset_bytes)},
                {REQUIRED(BYTES, value)}}},
    {ROW("metadata_put_response", "MetadataPutResponse", METADATA_PUT_RESPONSE),
     .fields = {{REQUIRED(BOOL, success)}}},
    {ROW("metadata_get_request", "MetadataGetRequest", METADATA_GET_REQUEST),
     .fields = {{REQUIRED(TEXT, key)}}},
    {ROW("metadata_get_response", "MetadataGetResponse", METADATA_GET_RESPONSE),
     .fields = {{REQUIRED(BOOL, found)},
                {OR_NIL(TEXT, allocation_id)},
                {OR_NIL(INTEGER, offset_bytes)},
                {OR_NIL(BYTES, value)}}},
    {ROW("metadata_delete_request", "MetadataDeleteRequest", METADATA_DELETE_REQUEST),
     .fields = {{REQUIRED(TEXT, key)}}},
    {ROW("metadata_delete_response", "MetadataDeleteResponse", METADATA_DELETE_RESPONSE),
     .fields = {{REQUIRED(BOOL, deleted)}}},
    {ROW("metadata_list_request", "MetadataListRequest", METADATA_LIST_REQUEST),
     .fields = {{OR_ZERO(TEXT, prefix)}}},
    {ROW("metadata_list_response", "MetadataListResponse", METADATA_LIST_RESPONSE), .item = &v0_key,
     .fields = {{FIELD("keys", LIST, OR_ZERO, list)}}},
    {ROW("get_lock_state_request", "GetLockStateRequest", GET_LOCK_STATE_REQUEST)},
    {ROW("get_lock_state_response", "GetLockStateResponse", GET_LOCK_STATE_RESPONSE),
     .fields = {LOCK_STATE, {OR_ZERO(BOOL, layout_committed)}}},
    {ROW("get_allocation_state_request", "GetAllocationStateRequest",
         GET_ALLOCATION_STATE_REQUEST)},
    /* older clients require the bytes, later ones skip them */
    {ROW("get_allocation_state_response", "GetAllocationStateResponse",
         GET_ALLOCATION_STATE_RESPONSE),
     .fields = {{REQUIRED(INTEGER, allocation_count)}, {OR_ZERO(INTEGER, total_bytes)}}},
    {ROW("get_memory_layout_hash_request", "GetStateHashRequest", GET_MEMORY_LAYOUT_HASH_REQUEST)},
    {ROW("get_memory_layout_hash_response", "GetMemoryLayoutHashResponse",
         GET_MEMORY_LAYOUT_HASH_RESPONSE),
     .fields = {{REQUIRED(TEXT, memory_layout_hash)}}},
    {ROW("get_runtime_state_request", "GetRuntimeStateRequest", GET_RUNTIME_STATE_REQUEST)},
    {ROW("get_runtime_state_response", "GetRuntimeStateResponse", GET_RUNTIME_STATE_RESPONSE),
     .fields = {LOCK_STATE,
                {OR_ZERO(INTEGER, allocation_count)},
                {OR_ZERO(TEXT, memory_layout_hash)},
                {OR_ZERO(BOOL, layout_committed)}}},
    {ROW("get_event_history_request", "GetEventHistoryRequest", GET_EVENT_HISTORY_REQUEST)},
    {ROW("get_event_history_response", "GetEventHistoryResponse", GET_EVENT_HISTORY_RESPONSE),
     .item = &v0_event, .fields = {{FIELD("events", LIST, OR_ZERO, list)}}},
    {ROW("error_response", "ErrorResponse", ERROR_RESPONSE),
     .fields = {{REQUIRED(TEXT, error)}, {OR_ZERO(INTEGER, code)}}},
    {ROW("export_request", "ExportRequest", EXPORT_REQUEST), .is_older = true,
     .fields = {{REQUIRED(TEXT, allocation_id)}}},
    {ROW("get_allocation_response", "GetAllocationResponse", EXPORT_RESPONSE), .is_older = true,
     .fields = {ALLOCATION}},
    {ROW("free_request", "FreeRequest", FREE_REQUEST), .is_older = true,
     .fields = {{REQUIRED(TEXT, allocation_id)}}},
    {ROW("free_response", "FreeResponse", FREE_RESPONSE), .is_older = true,
     .fields = {{REQUIRED(BOOL, success)}}},
    {ROW("clear_all_request", "ClearAllRequest", CLEAR_ALL_REQUEST)},
    {ROW("clear_all_response", "ClearAllResponse", CLEAR_ALL_RESPONSE),
     .fields = {{REQUIRED(INTEGER, cleared_count)}}},
};

static const struct message_row v1_rows[] = {
    {ROW("handshake_request", "HandshakeRequest", HANDSHAKE_REQUEST),
     .fields = {{REQUIRED(WANTED, lock_type)},
                {FIELD("expected_identity", IDENTITY, OR_NIL, server_nonce)},
                {FIELD("process_fence", BOOL, LATER, process_fence)}}},
    {ROW("handshake_response", "HandshakeResponse", HANDSHAKE_RESPONSE),
     .fields = {{REQUIRED(GRANTED, lock_type)},
                {REQUIRED(TEXT, server_nonce)},
                {REQUIRED(TEXT, gpu_uuid)}}},
    {ROW("allocate_request", "AllocateRequest", ALLOCATE_REQUEST),
     .fields = {{REQUIRED(TEXT, allocation_id)}, {REQUIRED(INTEGER, aligned_size)}}},
    {ROW("export_request", "ExportRequest", EXPORT_REQUEST),
     .fields = {{REQUIRED(TEXT, allocation_id)}}},
    {ROW("export_response", "ExportResponse", EXPORT_RESPONSE)},
    {ROW("free_request", "FreeRequest", FREE_REQUEST), .fields = {{REQUIRED(TEXT, allocation_id)}}},
    {ROW("list_allocations_request", "ListAllocationsRequest", LIST_ALLOCATIONS_REQUEST)},
    {ROW("list_allocations_response", "ListAllocationsResponse", LIST_ALLOCATIONS_RESPONSE),
     .item = &v1_allocation, .fields = {{FIELD("allocations", LIST, REQUIRED, list)}}},
    {ROW("commit_request", "CommitRequest", COMMIT_REQUEST)},
    {ROW("abort_request", "AbortRequest", ABORT_REQUEST)},
    {ROW("prepare_checkpoint_request", "PrepareCheckpointRequest", PREPARE_CHECKPOINT_REQUEST)},
    {ROW("abort_checkpoint_request", "AbortCheckpointRequest", ABORT_CHECKPOINT_REQUEST),
     .fields = {{REQUIRED(TEXT, token)}}},
    {ROW("complete_restore_request", "CompleteRestoreRequest", COMPLETE_RESTORE_REQUEST),
     .fields = {{REQUIRED(TEXT, token)}}},
    {ROW("get_checkpoint_state_request", "GetCheckpointStateRequest",
         GET_CHECKPOINT_STATE_REQUEST)},
    {ROW("retain_allocations_request", "RetainAllocationsRequest", RETAIN_ALLOCATIONS_REQUEST)},
    {ROW("release_attachment_request", "ReleaseAttachmentRequest", RELEASE_ATTACHMENT_REQUEST)},
    {ROW("success_response", "SuccessResponse", SUCCESS_RESPONSE)},
    {ROW("checkpoint_state_response", "CheckpointStateResponse", CHECKPOINT_STATE_RESPONSE),
     .fields = {{REQUIRED(TEXT, state)}, {FIELD("token", TEXT, REQUIRED_OR_NIL, token)}}},
    {ROW("error_response", "ErrorResponse", ERROR_RESPONSE),
     .fields = {{FIELD("message", TEXT, REQUIRED, error)}, {OR_ZERO(BOOL, out_of_memory)}}},
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

const char *message_get_name(enum message_protocol protocol, const struct message *message)
{
    const struct message_row *row = message_find_type(protocol, message->type, message->is_older);

    return row ? row->name : NULL;
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
