/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out the requests of V0. Texts of refusals are the protocol's: clients match them. */
#include "rpc/rpc_internal.h"
#include "rpc/wire_id.h"
#include "service/allocations.h"
#include "service/metadata.h"
#include "service/views.h"

#include "base/clock.h"
#include "base/hex.h"
#include "meta/name.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- looking --------------------------------------------------------------------------------- */

static uint64_t count_waiting_writers(const struct core_store *store, const struct core *core)
{
    uint64_t count = 0;

    for (size_t i = 0; i < store->lock.waiter_count; i++) {
        const struct core_waiter *waiter = core_find_waiter(core, store->lock.waiters[i].id);

        count += waiter && core_waiter_counts(waiter) &&
                 (waiter->wish == LOCK_WISH_RW || waiter->wish == LOCK_WISH_DATA);
    }
    return count;
}

static void fill_hash(const struct core_store *store, char hex[33], struct message *answer)
{
    hex[0] = '\0';
    if (service_get_shown_layout(store))
        hex_format(store->hash, sizeof store->hash, hex);
    answer->memory_layout_hash = message_text(hex);
}

/* Answers both requests for the state of the lock, and older clients' sums. */
static void answer_state(struct rpc_connection *connection, const struct core_store *store,
                         enum message_type type)
{
    const struct core *core = connection->rpc->core;
    const struct layout *layout = core_get_layout(core, store);
    bool has_writer = core_get_writer(core, store->id) != NULL;
    char hex[33];
    struct message answer = {
        .type = type,
        .state = message_text(lock_state_name(lock_get_state(&store->lock))),
        .has_rw_session = has_writer,
        .ro_session_count = message_integer(store->lock.held[LOCK_MODE_RO]),
        .waiting_writers = message_integer(count_waiting_writers(store, core)),
        .committed = store->lock.committed,
        .layout_committed = store->lock.committed || store->lock.sealed,
        .is_ready = store->lock.committed && !has_writer,
        .allocation_count = message_integer(layout_count_allocations(layout)),
        .total_bytes = message_integer(layout_total_bytes(layout)),
    };

    fill_hash(store, hex, &answer);
    rpc_answer(connection, &answer);
}

static void get_state(struct rpc_connection *connection, const struct rpc_view *view)
{
    enum message_type type = MESSAGE_GET_MEMORY_LAYOUT_HASH_RESPONSE;

    if (connection->asked.type == MESSAGE_GET_LOCK_STATE_REQUEST)
        type = MESSAGE_GET_LOCK_STATE_RESPONSE;
    else if (connection->asked.type == MESSAGE_GET_ALLOCATION_STATE_REQUEST)
        type = MESSAGE_GET_ALLOCATION_STATE_RESPONSE;
    answer_state(connection, view->store, type);
}

bool rpc_probe_v0(struct rpc_connection *connection)
{
    enum message_type type = connection->asked.type;
    const struct core_store *store = rpc_find_store(connection);
    int error = rpc_check_store(connection, false);

    if (type != MESSAGE_GET_RUNTIME_STATE_REQUEST && type != MESSAGE_GET_EVENT_HISTORY_REQUEST)
        return false;
    if (error)
        rpc_refuse_errno(connection, "look", error);
    else if (type == MESSAGE_GET_EVENT_HISTORY_REQUEST)
        rpc_list_events(connection, store);
    else
        answer_state(connection, store, MESSAGE_GET_RUNTIME_STATE_RESPONSE);
    return true;
}

static void get_allocation(struct rpc_connection *connection, const struct rpc_view *view)
{
    const struct layout_allocation *allocation = rpc_find_allocation(connection, view);
    const struct message *asked = &connection->asked;
    bool exports = asked->type == MESSAGE_EXPORT_REQUEST;
    struct message answer = {.type = MESSAGE_GET_ALLOCATION_RESPONSE};
    char id[WIRE_ID_UUID_BYTES];

    if (!allocation) {
        rpc_refuse_unknown(connection);
        return;
    }
    rpc_fill_allocation(connection, view->store, allocation, id, &answer);
    if (!exports) {
        rpc_answer(connection, &answer);
        return;
    }
    if (!asked->is_older)
        answer.type = MESSAGE_EXPORT_RESPONSE;
    rpc_export(connection, allocation, &answer);
}

static void get_entry(struct rpc_connection *connection, const struct rpc_view *view)
{
    const struct message_text *key = &connection->asked.key;
    const struct layout_entry *entry = layout_find_entry(view->layout, key->at, key->bytes);
    struct message answer = {.type = MESSAGE_METADATA_GET_RESPONSE};
    char id[WIRE_ID_UUID_BYTES];

    if (entry && entry->slot != LAYOUT_UNBOUND) {
        answer.found = true;
        answer.allocation_id = message_text(wire_id_of(
            MESSAGE_V0, view->store, layout_find_slot(view->layout, entry->slot, NULL), id));
        answer.offset_bytes = message_integer(entry->offset);
        answer.value =
            (struct message_text){.at = entry->value_bytes ? entry->value : (const void *)"",
                                  .bytes = entry->value_bytes};
    }
    rpc_answer(connection, &answer);
}

/* ---- allocations ----------------------------------------------------------------------------- */

#define SIZE_TEXT_BYTES 24

/* 2^64 does not fit any integer. */
static void format_aligned(const struct vmm_info *device, uint64_t bytes,
                           char text[SIZE_TEXT_BYTES])
{
    uint64_t mask = device->granularity_bytes - 1;

    if (bytes > UINT64_MAX - mask)
        snprintf(text, SIZE_TEXT_BYTES, "18446744073709551616");
    else
        snprintf(text, SIZE_TEXT_BYTES, "%" PRIu64, (bytes + mask) & ~mask);
}

/* Refuses in the words that clients search for, also if waiting cannot help. */
static void refuse_memory(struct rpc_connection *connection)
{
    const struct message *asked = &connection->asked;
    uint64_t waited_us = clock_now_us() - connection->asked_us;
    char aligned[SIZE_TEXT_BYTES], limit[96] = "";
    struct vmm_info device;

    service_get_device(connection->rpc->service, &device);
    format_aligned(&device, asked->size.magnitude, aligned);
    if (asked->size.magnitude > device.total_bytes)
        snprintf(limit, sizeof limit, ": the mount has only %" PRIu64 " bytes in all",
                 device.total_bytes);
    rpc_refuse(connection,
               "Timed out waiting for GPU memory: requested_size=%" PRIu64
               ", aligned_size=%s, tag=%.*s, waited_sec=%" PRIu64 ".%03" PRIu64 "%s",
               asked->size.magnitude, aligned, (int)asked->tag.bytes, (const char *)asked->tag.at,
               waited_us / 1000000, waited_us / 1000 % 1000, limit);
}

static void finish_allocate(struct rpc_connection *connection, int error,
                            const struct service_answer *made)
{
    struct message answer = {.type = MESSAGE_ALLOCATE_RESPONSE};
    char id[WIRE_ID_UUID_BYTES];
    struct rpc_view view;

    if (error == -ENOMEM)
        refuse_memory(connection);
    else if (error)
        rpc_refuse_errno(connection, "allocate", error);
    if (error || !rpc_view_session(connection, &view))
        return;
    const struct layout_allocation *allocation = layout_find_slot(view.layout, made->slot, NULL);
    rpc_fill_allocation(connection, view.store, allocation, id, &answer);
    rpc_answer(connection, &answer);
}

static void allocate(struct rpc_connection *connection, const struct rpc_view *view)
{
    const struct message *asked = &connection->asked;
    struct service_actor by = rpc_actor(connection);
    char tag[LAYOUT_MAX_TAG_BYTES + 1] = "", number[MESSAGE_INTEGER_TEXT_BYTES];
    struct service_alloc alloc = {.size_bytes = asked->size.magnitude,
                                  .count = 1,
                                  .name = "",
                                  .tag = tag,
                                  .wait = true,
                                  .waits_for_decision = true};

    (void)view;
    if (asked->size.is_negative || asked->size.magnitude == 0) {
        rpc_refuse(connection, "size must be > 0, got %s",
                   message_integer_format(asked->size, number));
        return;
    }
    if (asked->tag.bytes > LAYOUT_MAX_TAG_BYTES ||
        (asked->tag.bytes > 0 && memchr(asked->tag.at, '\0', asked->tag.bytes))) {
        rpc_refuse(connection, "tag must have at most %u bytes, and no NUL", LAYOUT_MAX_TAG_BYTES);
        return;
    }
    if (asked->tag.bytes > 0)
        memcpy(tag, asked->tag.at, asked->tag.bytes);
    service_alloc(connection->rpc->service, &by, &alloc, rpc_wait(connection, finish_allocate));
}

static void free_allocation(struct rpc_connection *connection, const struct rpc_view *view)
{
    const struct layout_allocation *allocation = rpc_find_allocation(connection, view);
    struct service_actor by = rpc_actor(connection);
    struct message answer = {.type = MESSAGE_FREE_RESPONSE,
                             .is_older = connection->asked.is_older,
                             .success = allocation != NULL};
    int error = 0;

    if (allocation)
        error = service_remove_slot(connection->rpc->service, &by, allocation->slot);
    rpc_answer_or_refuse(connection, "free", error, &answer);
}

static void clear_all(struct rpc_connection *connection, const struct rpc_view *view)
{
    struct message answer = {.type = MESSAGE_CLEAR_ALL_RESPONSE,
                             .cleared_count =
                                 message_integer(layout_count_allocations(view->layout))};
    struct service_actor by = rpc_actor(connection);

    rpc_answer_or_refuse(connection, "clear", service_clear(connection->rpc->service, &by),
                         &answer);
}

/* ---- metadata -------------------------------------------------------------------------------- */

/* Refuses a bad place of an entry. True: it was refused. */
static bool refuse_place(struct rpc_connection *connection,
                         const struct layout_allocation *allocation)
{
    const struct message *asked = &connection->asked;
    char number[MESSAGE_INTEGER_TEXT_BYTES];

    if (!allocation)
        rpc_refuse_unknown(connection);
    else if (asked->offset_bytes.is_negative)
        rpc_refuse(connection, "offset_bytes must be >= 0, got %s",
                   message_integer_format(asked->offset_bytes, number));
    else if (asked->offset_bytes.magnitude >= allocation->aligned_bytes)
        rpc_refuse(connection,
                   "offset_bytes %s out of range for allocation %.*s (aligned_size=%" PRIu64 ")",
                   message_integer_format(asked->offset_bytes, number),
                   (int)asked->allocation_id.bytes, (const char *)asked->allocation_id.at,
                   allocation->aligned_bytes);
    else
        return false;
    return true;
}

/* Refuses an entry whose key cannot be a file's name in the tree. */
static bool refuse_entry(struct rpc_connection *connection)
{
    const struct message *asked = &connection->asked;
    char name[NAME_MAX_BYTES + 1];

    if (asked->value.bytes > LAYOUT_MAX_VALUE_BYTES)
        rpc_refuse(connection, "value must have at most %u bytes, got %zu", LAYOUT_MAX_VALUE_BYTES,
                   asked->value.bytes);
    else if (name_encode_key(asked->key.at, asked->key.bytes, name) < 0)
        rpc_refuse(connection,
                   "key cannot be a file's name: it must not be empty, and at most %u bytes with "
                   "%%, / and a leading . written as %%25, %%2F and %%2E",
                   NAME_MAX_BYTES);
    else
        return false;
    return true;
}

static void put_entry(struct rpc_connection *connection, const struct rpc_view *view)
{
    const struct message *asked = &connection->asked;
    const struct layout_allocation *allocation = rpc_find_allocation(connection, view);
    struct service_actor by = rpc_actor(connection);
    struct service_entry entry = {.key = asked->key.at,
                                  .key_bytes = asked->key.bytes,
                                  .offset = asked->offset_bytes.magnitude,
                                  .value = asked->value.at,
                                  .value_bytes = asked->value.bytes};
    struct message answer = {.type = MESSAGE_METADATA_PUT_RESPONSE, .success = true};

    if (refuse_place(connection, allocation) || refuse_entry(connection))
        return;
    entry.slot = allocation->slot;
    rpc_answer_or_refuse(connection, "put metadata",
                         service_entry_put(connection->rpc->service, &by, &entry), &answer);
}

static void delete_entry(struct rpc_connection *connection, const struct rpc_view *view)
{
    const struct message_text *key = &connection->asked.key;
    const struct layout_entry *entry = layout_find_entry(view->layout, key->at, key->bytes);
    struct service_actor by = rpc_actor(connection);
    struct message answer = {.type = MESSAGE_METADATA_DELETE_RESPONSE};
    int error = 0;

    answer.deleted = entry && entry->slot != LAYOUT_UNBOUND;
    if (answer.deleted)
        error = service_entry_delete(connection->rpc->service, &by, key->at, key->bytes);
    rpc_answer_or_refuse(connection, "delete metadata", error, &answer);
}

/* ---- commit ---------------------------------------------------------------------------------- */

static void finish_commit(struct rpc_connection *connection, int error,
                          const struct service_answer *answer)
{
    (void)answer;
    if (error) {
        rpc_refuse_commit(connection, error);
        return;
    }
    connection->session = 0;
    rpc_answer_type(connection, MESSAGE_COMMIT_RESPONSE);
    rpc_close_after(connection);
}

static void finish_seal(struct rpc_connection *connection, int error,
                        const struct service_answer *done)
{
    struct message answer = {
        .type = MESSAGE_COMMIT_LAYOUT_RESPONSE, .success = true, .lock_type = MESSAGE_RW_DATA};
    struct rpc_view view;
    char hex[33];

    (void)done;
    if (error)
        rpc_refuse_commit(connection, error);
    if (error || !rpc_view_session(connection, &view))
        return;
    fill_hash(view.store, hex, &answer);
    rpc_answer(connection, &answer);
}

static void commit(struct rpc_connection *connection, const struct rpc_view *view)
{
    struct service_actor by = rpc_actor(connection);

    (void)view;
    service_commit(connection->rpc->service, &by, 0, NULL, rpc_wait(connection, finish_commit));
}

static void commit_layout(struct rpc_connection *connection, const struct rpc_view *view)
{
    struct service_actor by = rpc_actor(connection);

    (void)view;
    service_commit(connection->rpc->service, &by, CORE_COMMIT_SEAL, NULL,
                   rpc_wait(connection, finish_seal));
}

/* ---- rights by session -------------------------------------------------------------------- */

enum right {
    LOOKS,   /* in any session */
    CHANGES, /* changes of the layout */
    ENDS,
};

/* The requests of a session; all others are refused in any. */
static const struct request {
    enum message_type type;
    enum right right;
    void (*serve)(struct rpc_connection *connection, const struct rpc_view *view);
} requests[] = {
    {MESSAGE_EXPORT_REQUEST, LOOKS, get_allocation},
    {MESSAGE_GET_ALLOCATION_REQUEST, LOOKS, get_allocation},
    {MESSAGE_LIST_ALLOCATIONS_REQUEST, LOOKS, rpc_list_allocations},
    {MESSAGE_METADATA_GET_REQUEST, LOOKS, get_entry},
    {MESSAGE_METADATA_LIST_REQUEST, LOOKS, rpc_list_keys},
    {MESSAGE_GET_LOCK_STATE_REQUEST, LOOKS, get_state},
    {MESSAGE_GET_ALLOCATION_STATE_REQUEST, LOOKS, get_state},
    {MESSAGE_GET_MEMORY_LAYOUT_HASH_REQUEST, LOOKS, get_state},
    {MESSAGE_ALLOCATE_REQUEST, CHANGES, allocate},
    {MESSAGE_FREE_REQUEST, CHANGES, free_allocation},
    {MESSAGE_METADATA_PUT_REQUEST, CHANGES, put_entry},
    {MESSAGE_METADATA_DELETE_REQUEST, CHANGES, delete_entry},
    {MESSAGE_CLEAR_ALL_REQUEST, ENDS, clear_all},
    {MESSAGE_COMMIT_REQUEST, ENDS, commit},
    {MESSAGE_COMMIT_LAYOUT_REQUEST, ENDS, commit_layout},
};

static const struct request *find_request(enum message_type type)
{
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        if (requests[i].type == type)
            return &requests[i];
    return NULL;
}

/* Refuses a request that the session does not allow. request NULL: allowed in no session. True: it
 * was refused. */
static bool refuse_request(struct rpc_connection *connection, const struct rpc_view *view,
                           const struct request *request)
{
    enum lock_mode mode = view->session->mode;
    const char *name = message_get_name(MESSAGE_V0, &connection->asked);

    if (request && (request->right == LOOKS || mode == LOCK_MODE_RW))
        return false;
    if (request && request->right == CHANGES && mode == LOCK_MODE_RW_DATA)
        rpc_refuse(connection,
                   "%s not allowed: the layout is committed. Reconnect with RW to replace it.",
                   name);
    else
        rpc_refuse(connection, "%s not allowed for %s session in state %s", name,
                   lock_mode_name(mode), lock_state_name(lock_get_state(&view->store->lock)));
    return true;
}

void rpc_serve_v0(struct rpc_connection *connection)
{
    const struct request *request = find_request(connection->asked.type);
    struct rpc_view view;

    if (rpc_view_session(connection, &view) && !refuse_request(connection, &view, request))
        request->serve(connection, &view);
}
