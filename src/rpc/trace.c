/* SPDX-License-Identifier: Apache-2.0 */
/* trace - requests of GMS clients and their answers in the log at level debug, and the answers'
 * tracepoint */
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
