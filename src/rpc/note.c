/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a next worker has to know of a connection. What a request has changed is in the journal, and
 * with it, in the same transaction, that it was answered: so it is never done twice. A request that
 * has changed nothing is simply served again, unless a part of its answer has left.
 */
#include "rpc/rpc_internal.h"

#include <string.h>

/* The request is answered, and the answer can be sent by another process. A descriptor cannot: but
 * lending it once more is no other thing. */
static bool has_answer(const struct rpc_connection *connection)
{
    return connection->output.size_bytes > 0 && !connection->finish && !connection->listing &&
           connection->passed_fd < 0;
}

static bool is_other(const struct rpc_note *a, const struct rpc_note *b)
{
    return a->file != b->file || a->session != b->session || a->phase != b->phase ||
           a->is_aborted != b->is_aborted;
}

void rpc_keep_answer(struct rpc_connection *connection)
{
    const struct message_buffer *output = &connection->output;
    uint64_t frame = kept_get_input(connection->kept)->consumed + 1;

    if (output->size_bytes == 0 || connection->is_answer_kept)
        return;
    kept_set_answer(connection->kept, frame, output->bytes, output->size_bytes);
    connection->is_answer_kept = true;
}

void rpc_note(struct rpc_connection *connection)
{
    const struct rpc_host *host = &connection->rpc->host;
    bool is_answered = has_answer(connection);
    struct rpc_note now = connection->noted;
    const struct iovec part = {&now, sizeof now};

    if (connection->is_gone)
        return;
    now.file = connection->file;
    now.session = connection->session;
    now.is_aborted = connection->is_aborted;
    /* One that is to be closed after its answer is not before there is one. */
    if (is_answered || connection->phase != RPC_CLOSING)
        now.phase = connection->phase;
    if (is_answered && (is_other(&now, &connection->noted) || host->is_recording(host->context))) {
        rpc_keep_answer(connection);
        now.answered = kept_get_input(connection->kept)->consumed + 1;
    }
    if (!is_other(&now, &connection->noted) && now.answered == connection->noted.answered)
        return;
    connection->note_error = host->note(host->context, &part, 1);
    connection->noted = now;
}

void rpc_note_all(struct rpc *rpc)
{
    for (size_t i = 0; i < rpc->connections.count; i++) {
        struct rpc_connection *connection = rpc->connections.items[i];
        const struct iovec part = {&connection->noted, sizeof connection->noted};

        if (connection->phase != RPC_KEEPING)
            connection->note_error = rpc->host.note(rpc->host.context, &part, 1);
    }
}
