/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes about connections for the next worker. A request's changes are in the journal, and with
 * them, in the same transaction, the note that it was answered: so it is never carried out twice. A
 * request without changes is simply served again, unless a part of its answer has left.
 */
#include "rpc/rpc_internal.h"

/* Returns true if the request has an answer that another process can send. A descriptor cannot be
 * kept, but lending it once more does no harm. */
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
    /* A connection that is to end after its answer has not ended before there is one. */
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
