/* SPDX-License-Identifier: Apache-2.0 */
/* trace - requests of GMS clients and their answers in the log at level debug, the answers'
 * tracepoint, and the requests' counts */
#include "base/log.h"
#include "base/probe.h"
#include "rpc/rpc_internal.h"

#include <string.h>

static uint64_t get_number(const struct rpc_connection *connection)
{
    return connection->rpc->host.number(connection->id,
                                        kept_get_input(connection->kept)->consumed + 1);
}

static const char *get_name(const struct rpc_connection *connection, const struct message *message)
{
    const char *name = message_get_name(connection->protocol, message);

    return name ? name : "unknown";
}

void rpc_trace_asked(const struct rpc_connection *connection)
{
    const struct service_caller *caller = &connection->caller;

    log_trace_request(get_number(connection), "request GMS %s at %s session=%llu pid=%llu uid=%u",
                      get_name(connection, &connection->asked), rpc_domain_name(connection->domain),
                      (unsigned long long)connection->session,
                      (unsigned long long)(caller->process_count ? caller->processes[0].pid : 0),
                      caller->uid);
}

void rpc_note_answer(const struct rpc_connection *connection, const struct message *message,
                     int error)
{
    PROBE_ANSWER(connection->id, PROBE_GMS, error);
    if (log_is_debug())
        log_trace_request(get_number(connection), "answer GMS %s %s, %zu bytes",
                          get_name(connection, message), error ? strerrorname_np(-error) : "ok",
                          connection->output.size_bytes);
}

#define MOST_TYPES 6u

static const struct {
    const char *name;
    enum message_type types[MOST_TYPES];
} kinds[] = {
    {"gms_other", {0}},
    {"gms_handshake", {MESSAGE_HANDSHAKE_REQUEST}},
    {"gms_allocate", {MESSAGE_ALLOCATE_REQUEST}},
    {"gms_export", {MESSAGE_EXPORT_REQUEST}},
    {"gms_free", {MESSAGE_FREE_REQUEST}},
    {"gms_list_allocations", {MESSAGE_LIST_ALLOCATIONS_REQUEST}},
    {"gms_get_allocation", {MESSAGE_GET_ALLOCATION_REQUEST}},
    {"gms_commit", {MESSAGE_COMMIT_REQUEST, MESSAGE_COMMIT_LAYOUT_REQUEST}},
    {"gms_metadata_put", {MESSAGE_METADATA_PUT_REQUEST}},
    {"gms_metadata_get", {MESSAGE_METADATA_GET_REQUEST}},
    {"gms_metadata_delete", {MESSAGE_METADATA_DELETE_REQUEST}},
    {"gms_metadata_list", {MESSAGE_METADATA_LIST_REQUEST}},
    {"gms_state",
     {MESSAGE_GET_LOCK_STATE_REQUEST, MESSAGE_GET_ALLOCATION_STATE_REQUEST,
      MESSAGE_GET_MEMORY_LAYOUT_HASH_REQUEST, MESSAGE_GET_RUNTIME_STATE_REQUEST,
      MESSAGE_GET_EVENT_HISTORY_REQUEST, MESSAGE_GET_CHECKPOINT_STATE_REQUEST}},
    {"gms_abort", {MESSAGE_ABORT_REQUEST, MESSAGE_CLEAR_ALL_REQUEST}},
};
_Static_assert(sizeof kinds / sizeof kinds[0] == RPC_KINDS, "each kind has a name");

const char *rpc_kind_name(uint32_t kind)
{
    return kinds[kind < RPC_KINDS ? kind : 0].name;
}

static uint32_t find_kind(enum message_type type)
{
    for (uint32_t kind = 1; kind < RPC_KINDS; kind++)
        for (unsigned i = 0; i < MOST_TYPES && kinds[kind].types[i]; i++)
            if (kinds[kind].types[i] == type)
                return kind;
    return 0;
}

void rpc_count_request(const struct rpc_connection *connection, uint64_t began_us)
{
    const struct rpc_host *host = &connection->rpc->host;

    host->count(host->context, find_kind(connection->asked.type), began_us);
}
