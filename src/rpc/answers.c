/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of requests: refusals, allocations, descriptors. Lists: listing.c. */
#include "base/log.h"
#include "rpc/rpc_internal.h"
#include "rpc/wire_id.h"
#include "service/rights.h"
#include "service/tickets.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- sending --------------------------------------------------------------------------------- */

void rpc_close_after(struct rpc_connection *connection)
{
    connection->phase = RPC_CLOSING;
}

/* Ends the connection if its answer could not be made: the client would wait for it for ever. */
static void check_answer(struct rpc_connection *connection, int error)
{
    if (error) {
        if (rpc_may_warn(connection->rpc))
            log_warning("%s: GMS client at %s: its answer cannot be made (%s); its connection is "
                        "dropped",
                        connection->rpc->options.mountpoint, rpc_domain_name(connection->domain),
                        strerror(-error));
        message_buffer_free(&connection->output);
        rpc_pass(connection, -1, false);
        rpc_close_after(connection);
    }
}

/* Charges a long answer, which stays in memory until the client has read it. */
static int charge_answer(struct rpc_connection *connection)
{
    uint64_t bytes = connection->output.room_bytes;

    if (bytes <= RPC_ANSWER_BYTES)
        return 0;
    return rpc_charge(connection, connection->input_room + bytes);
}

/* refusal: the error that the answer reports; 0 if it is no refusal. */
static void answer(struct rpc_connection *connection, const struct message *message, int refusal)
{
    int error = message_encode(&connection->output, connection->protocol, message);

    if (error == 0)
        error = charge_answer(connection);
    if ((error == -EDQUOT || error == -ENOMEM) && message->type != MESSAGE_ERROR_RESPONSE) {
        message_buffer_free(&connection->output);
        rpc_pass(connection, -1, false);
        rpc_refuse_errno(connection, "answer", error);
        return;
    }
    rpc_note_answer(connection, message, error ? error : refusal);
    check_answer(connection, error);
}

void rpc_answer(struct rpc_connection *connection, const struct message *message)
{
    answer(connection, message, 0);
}

void rpc_answer_type(struct rpc_connection *connection, enum message_type type)
{
    rpc_answer(connection, &(struct message){.type = type, .success = true});
}

/* Returns a length that does not cut a character: the text quotes the client's bytes. */
static size_t cut_bytes(const char *text, size_t bytes)
{
    size_t at = bytes;

    while (at > 0 && ((unsigned char)text[at - 1] & 0xc0) == 0x80)
        at--;
    return at > 0 ? at - 1 : 0;
}

static void refuse_with(struct rpc_connection *connection, int error, struct message_text text)
{
    answer(connection,
           &(struct message){
               .type = MESSAGE_ERROR_RESPONSE, .code = message_integer(0), .error = text},
           error);
}

/* Quotes the id by its length, because it may contain a zero byte. */
void rpc_refuse_unknown(struct rpc_connection *connection)
{
    static const char why[] = "Unknown allocation: ";
    const size_t why_bytes = sizeof why - 1, most_bytes = RPC_TEXT_BYTES - 1;
    const struct message_text *id = &connection->asked.allocation_id;
    char *text = malloc(why_bytes + id->bytes);
    size_t bytes = why_bytes + id->bytes;

    if (!text) {
        rpc_close_after(connection);
        return;
    }
    memcpy(text, why, why_bytes);
    if (id->bytes > 0)
        memcpy(text + why_bytes, id->at, id->bytes);
    if (bytes > most_bytes)
        bytes = cut_bytes(text, most_bytes);
    refuse_with(connection, -ENOENT, (struct message_text){text, bytes});
    free(text);
}

__attribute__((format(printf, 3, 0))) static void
refuse(struct rpc_connection *connection, int error, const char *format, va_list arguments)
{
    char *text = malloc(RPC_TEXT_BYTES);

    if (!text) {
        rpc_close_after(connection);
        return;
    }
    int bytes = vsnprintf(text, RPC_TEXT_BYTES, format, arguments);
    if (bytes >= (int)RPC_TEXT_BYTES)
        text[cut_bytes(text, RPC_TEXT_BYTES - 1)] = '\0';
    refuse_with(connection, error, message_text(text));
    free(text);
}

void rpc_refuse(struct rpc_connection *connection, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    refuse(connection, -EINVAL, format, arguments);
    va_end(arguments);
}

__attribute__((format(printf, 3, 4))) static void refuse_error(struct rpc_connection *connection,
                                                               int error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    refuse(connection, error, format, arguments);
    va_end(arguments);
}

/* Explains an error of the service to a client that does not see the tree. */
static const char *explain(const struct rpc_connection *connection, int error)
{
    switch (error) {
    case -EACCES:
        return "the store's owner and mode do not let this user do that";
    case -ENOENT:
        return "there is no store of this name in the mount";
    case -EDQUOT:
        return "this user's share of a bound is taken: see the mount's events";
    case -ENOSPC:
    case -ENFILE:
        return "a bound of the mount is reached: see its events";
    case -EINVAL:
        return "the store cannot take this request";
    case -EBUSY:
        return "it is being written through a file: close that first";
    case -EMFILE:
        return "the daemon has no descriptor left for it: raise its limit of open files (prlimit "
               "--nofile, or LimitNOFILE= of its unit)";
    case -ESTALE:
        return "the session is over: it was revoked, or its store removed";
    case -ECANCELED:
        return "it was revoked, or the mount is being drained";
    case -ENODEV:
        return core_get_health(connection->rpc->core) == CORE_HEALTH_LOST
                   ? "the GPU is lost"
                   : "the mount is drained, or fenced for a checkpoint";
    case -EIO:
        return "the store's memory may be damaged: see its events, and load it anew";
    case -EOPNOTSUPP:
        return "a process that can write this memory is not visible to the daemon, or was gone "
               "when "
               "it was handed the memory, so the daemon could not see when all have exited: run "
               "both in one pid namespace, or the daemon in the host's, and let the process that "
               "asks live";
    default:
        return strerror(-error);
    }
}

void rpc_refuse_errno(struct rpc_connection *connection, const char *action, int error)
{
    refuse_error(connection, error, "cannot %s at %s: %s", action,
                 rpc_domain_name(connection->domain), explain(connection, error));
}

void rpc_answer_or_refuse(struct rpc_connection *connection, const char *action, int error,
                          const struct message *answer)
{
    if (error)
        rpc_refuse_errno(connection, action, error);
    else
        rpc_answer(connection, answer);
}

void rpc_refuse_commit(struct rpc_connection *connection, int error)
{
    const struct core_file *file = core_find_file(connection->rpc->core, connection->file);
    const struct core_store *store =
        file ? core_find_store(connection->rpc->core, file->store) : NULL;

    if (error == -EINVAL && store && store->last_error[0])
        rpc_refuse(connection, "cannot commit: %s", store->last_error);
    else
        rpc_refuse_errno(connection, "commit", error);
}

/* ---- the store ------------------------------------------------------------------------------- */

const struct core_store *rpc_find_store(const struct rpc_connection *connection)
{
    return core_find_store_name(connection->rpc->core, rpc_domain_name(connection->domain));
}

int rpc_check_store(const struct rpc_connection *connection, bool write)
{
    const struct core_store *store = rpc_find_store(connection);

    if (!store)
        return -ENOENT;
    return service_check_right(connection->rpc->service, store->id, &connection->caller,
                               write ? SERVICE_READ | SERVICE_WRITE : SERVICE_READ);
}

/* ---- the session's layout -------------------------------------------------------------------- */

bool rpc_find_view(const struct rpc_connection *connection, struct rpc_view *view)
{
    const struct core *core = connection->rpc->core;

    view->session = core_find_session(core, connection->session);
    if (!view->session)
        return false;
    view->store = core_find_store(core, view->session->store);
    view->layout = core_get_layout(core, view->store);
    return true;
}

bool rpc_view_session(struct rpc_connection *connection, struct rpc_view *view)
{
    bool found = rpc_find_view(connection, view);

    if (!found)
        rpc_refuse_errno(connection, "go on", -ESTALE);
    return found;
}

const struct layout_allocation *rpc_find_allocation(const struct rpc_connection *connection,
                                                    const struct rpc_view *view)
{
    const struct message_text *id = &connection->asked.allocation_id;

    return id->at ? wire_id_find(connection->protocol, view->store, view->layout, id->at, id->bytes)
                  : NULL;
}

void rpc_fill_allocation(const struct rpc_connection *connection, const struct core_store *store,
                         const struct layout_allocation *allocation, char id[WIRE_ID_UUID_BYTES],
                         struct message *message)
{
    message->allocation_id = message_text(wire_id_of(connection->protocol, store, allocation, id));
    message->size = message_integer(allocation->size_bytes);
    message->aligned_size = message_integer(allocation->aligned_bytes);
    message->tag = message_text(allocation->tag);
    message->layout_slot = message_integer(allocation->slot);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

void rpc_pass(struct rpc_connection *connection, int fd, bool is_own)
{
    if (connection->passed_fd >= 0 && connection->passed_is_own)
        close(connection->passed_fd);
    connection->passed_fd = fd;
    connection->passed_is_own = is_own;
}

void rpc_export(struct rpc_connection *connection, const struct layout_allocation *allocation,
                const struct message *answer)
{
    struct service_descriptor descriptor;
    struct rpc_askers askers;

    /* One at a time: unread descriptors count for all processes of the daemon's user. */
    if (rpc_has_unread(connection)) {
        rpc_await_reader(connection);
        return;
    }
    int error = rpc_find_askers(connection, &askers);

    if (error == 0)
        error =
            service_lend_descriptor(connection->rpc->service, connection->file, allocation->slot,
                                    askers.processes, askers.count, &descriptor);
    if (error) {
        rpc_refuse_errno(connection, "export", error);
        return;
    }
    rpc_pass(connection, descriptor.fd, descriptor.is_own);
    rpc_answer(connection, answer);
}
