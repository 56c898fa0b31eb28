/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Continues the connections of a worker that has ended. Received bytes without an answer lie in
 * memory that outlives the worker, and are served as if they had come now; a waiting client finds
 * its waiter's place kept. An answer that has left in part, or whose request has changed something,
 * is sent to its end. If that answer is not known to the last byte, the connection ends, and with
 * it its session.
 */
#include "rpc/rpc_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- notes ------------------------------------------------------------------------------- */

void rpc_restore_note(struct rpc *rpc, const void *bytes, size_t size)
{
    struct rpc_note note, *known;

    if (size != sizeof note)
        return;
    memcpy(&note, bytes, sizeof note);
    known = idvec_find(&rpc->notes, note.connection);
    if (known) {
        *known = note;
        return;
    }
    known = malloc(sizeof *known);
    if (!known)
        return; /* the connection then seems to have asked for nothing yet: see is_believable */
    *known = note;
    if (idvec_insert(&rpc->notes, known))
        free(known);
}

void rpc_forget_notes(struct rpc *rpc)
{
    idvec_free_items(&rpc->notes);
}

/* Returns true if note and connection agree; a first message that was answered has a note. */
static bool is_believable(const struct rpc_connection *connection)
{
    const struct rpc_note *note = &connection->noted;

    if (note->file && !core_find_file(connection->rpc->core, note->file))
        return false;
    return note->phase == RPC_SESSION || note->phase == RPC_CLOSING ||
           (note->phase == RPC_HELLO && kept_get_input(connection->kept)->consumed == 0);
}

/* ---- the answer that was being sent ------------------------------------------------------ */

static int restore_output(struct rpc_connection *connection, uint64_t sent_bytes)
{
    struct message_buffer *output = &connection->output;
    size_t bytes = connection->kept->answer_bytes;

    output->bytes = malloc(bytes);
    if (!output->bytes)
        return -ENOMEM;
    memcpy(output->bytes, kept_get_answer_bytes(connection->kept), bytes);
    output->room_bytes = output->size_bytes = output->used_bytes = bytes;
    output->begin_bytes = sent_bytes;
    connection->is_answer_kept = true;
    return 0;
}

static int restore_answer(struct rpc_connection *connection)
{
    const struct kept *kept = connection->kept;
    const struct kept_output *output = kept_get_output(kept);
    uint64_t frame = kept_get_input(kept)->consumed + 1, sent_bytes = 0;

    if (output->frame == frame)
        sent_bytes = output->sent_bytes + output->send.msg_len;
    if (sent_bytes == 0 && connection->noted.answered != frame)
        return 0; /* it is served again */
    int error = rpc_find_frame(connection, &connection->frame_bytes);
    if (error == 0 &&
        (connection->frame_bytes == 0 || connection->frame_bytes > connection->input_bytes))
        error = -EPROTO;
    if (error)
        return error;
    connection->is_served = true;
    if (sent_bytes > 0 && sent_bytes == output->total_bytes)
        return 0;
    if (kept->answer_frame != frame || sent_bytes > kept->answer_bytes)
        return -ENODATA;
    return restore_output(connection, sent_bytes);
}

/* ---- a connection ------------------------------------------------------------------------ */

static int restore(struct rpc_connection *connection)
{
    const struct rpc_note *note = idvec_find(&connection->rpc->notes, connection->id);

    if (note)
        connection->noted = *note;
    if (!is_believable(connection))
        return -ENODATA;
    connection->phase = (enum rpc_phase)connection->noted.phase;
    connection->file = connection->noted.file;
    connection->session = connection->noted.session;
    connection->is_aborted = connection->noted.is_aborted;
    rpc_take_read(connection);
    connection->input_room =
        connection->input_bytes > RPC_INPUT_BYTES ? connection->input_bytes : RPC_INPUT_BYTES;
    int error = rpc_reserve_input(connection, connection->input_room);
    return error ? error : restore_answer(connection);
}

static int find_place(struct rpc_connection *connection)
{
    struct kept *kept = kept_find(connection->rpc->memory, connection->id);

    connection->is_kept = true;
    connection->kept = kept;
    if (!kept)
        return -ENOENT;
    if (kept->domain >= RPC_DOMAIN_COUNT || kept->protocol > MESSAGE_V1)
        return -EPROTO;
    connection->domain = (enum rpc_domain)kept->domain;
    connection->protocol = (enum message_protocol)kept->protocol;
    return 0;
}

/* Takes the connection's share of the bounds. */
static int count_in(struct rpc_connection *connection)
{
    struct rpc *rpc = connection->rpc;
    int error = rpc_take_place(rpc, connection->caller.uid);

    if (error)
        return error;
    rpc_charge(connection, 0); /* it exists already, beyond its user's share if need be */
    if (connection->input_room > RPC_INPUT_BYTES)
        error = rpc_charge(connection, connection->input_room);
    if (error == 0 && connection->is_served) /* its answer, likewise */
        rpc_charge(connection, connection->input_room + connection->output.room_bytes +
                                   rpc_count_unread(connection));
    if (error == 0)
        error = idvec_insert(&rpc->connections, connection);
    if (error)
        rpc_give_place(connection);
    return error;
}

int rpc_take_over(struct rpc *rpc, uint64_t id, int fd, bool is_refused)
{
    struct rpc_connection *connection = rpc_connection_make(rpc, id, fd);

    if (!connection)
        return -ENOMEM;
    int error = find_place(connection);
    if (error == 0)
        error = rpc_read_peer(connection);
    if (error == 0 && is_refused)
        error = -EIO;
    if (error == 0)
        error = restore(connection);
    if (error == 0)
        error = count_in(connection);
    if (error == 0)
        return 0;
    if (error != -ENOENT)
        rpc_warn(connection, error);
    shutdown(fd, SHUT_RDWR);
    message_buffer_free(&connection->output);
    rpc_connection_free(connection);
    return error;
}

void rpc_resume(struct rpc *rpc)
{
    uint64_t id = 0;
    struct rpc_connection *connection;

    rpc_forget_notes(rpc);
    while ((connection = idvec_find_after(&rpc->connections, id))) {
        id = connection->id;
        if (connection->session && connection->phase == RPC_SESSION &&
            !core_find_session(rpc->core, connection->session))
            rpc_connection_end(connection); /* the session was over, and the connection with it */
        else
            rpc_advance(connection);
    }
}

bool rpc_has_file(const struct rpc *rpc, uint64_t file)
{
    for (size_t i = 0; i < rpc->connections.count; i++)
        if (((const struct rpc_connection *)rpc->connections.items[i])->file == file)
            return true;
    return false;
}
