/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a connection: received frames, sent answers and descriptors. */
#include "rpc/rpc_internal.h"

#include "base/clock.h"
#include "base/passing.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- bytes out ------------------------------------------------------------------------------- */

static ssize_t send_some(struct rpc_connection *connection)
{
    const struct message_buffer *output = &connection->output;
    struct kept_output *kept = kept_change_output(connection->kept);
    union passing control;
    struct iovec part = {.iov_base = output->bytes + output->begin_bytes,
                         .iov_len = output->size_bytes - output->begin_bytes};

    *kept = (struct kept_output){.frame = kept_get_input(connection->kept)->consumed + 1,
                                 .total_bytes = output->size_bytes,
                                 .sent_bytes = output->begin_bytes,
                                 .send.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    passing_put(&kept->send.msg_hdr, &control, &connection->passed_fd, connection->passed_fd >= 0);
    kept_set_output(connection->kept);
    /* Without the C library's wrapper: the kernel itself writes msg_len. */
    if (syscall(SYS_sendmmsg, connection->watch.fd, &kept->send, 1, MSG_DONTWAIT | MSG_NOSIGNAL) <
        0)
        return -1;
    return kept->send.msg_len;
}

/* Duplicates the descriptor while it waits for the socket: its memory may be freed meanwhile, and
 * its number reused. */
static int own_passed(struct rpc_connection *connection)
{
    if (connection->passed_fd < 0 || connection->passed_is_own)
        return -EAGAIN;
    int fd = fcntl(connection->passed_fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return -errno;
    rpc_pass(connection, fd, true);
    return -EAGAIN;
}

int rpc_send_output(struct rpc_connection *connection)
{
    const struct rpc_host *host = &connection->rpc->host;
    struct message_buffer *output = &connection->output;

    rpc_keep_answer(connection);
    if (output->begin_bytes < output->size_bytes && host->hold(host->context, &connection->held))
        return own_passed(connection);
    while (output->begin_bytes < output->size_bytes) {
        ssize_t sent = send_some(connection);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == ENOBUFS || errno == ETOOMANYREFS || errno == ENOMEM))
            rpc_pause(connection);
        else if (sent < 0 && errno != EAGAIN)
            return -errno;
        if (sent < 0)
            return own_passed(connection);
        rpc_pass(connection, -1, false);
        output->begin_bytes += (size_t)sent;
        connection->moved_us = clock_now_us();
    }
    if (output->room_bytes > RPC_ANSWER_BYTES)
        message_buffer_free(output);
    output->begin_bytes = output->size_bytes = output->used_bytes = 0;
    if (connection->charged_bytes > RPC_BASE_BYTES)
        rpc_lower_charge(connection);
    return 0;
}

/* ---- bytes in -------------------------------------------------------------------------------- */

int rpc_find_frame(const struct rpc_connection *connection, size_t *bytes)
{
    size_t payload_bytes = 0;

    *bytes = 0;
    if (connection->input_bytes < MESSAGE_HEADER_BYTES)
        return 0;
    int error = message_payload_bytes(connection->protocol, connection->input, &payload_bytes);
    if (error == 0)
        *bytes = MESSAGE_HEADER_BYTES + payload_bytes;
    return error;
}

int rpc_reserve_input(struct rpc_connection *connection, size_t bytes)
{
    size_t begin_bytes = kept_get_input(connection->kept)->begin_bytes;

    return kept_reserve_input(connection->kept, begin_bytes + bytes);
}

/* Makes room, which grows with the received bytes, not with the length in a header. */
static int make_room(struct rpc_connection *connection)
{
    size_t room = connection->input_room ? connection->input_room : RPC_INPUT_BYTES, frame_bytes;
    int error = rpc_find_frame(connection, &frame_bytes);

    if (error < 0)
        return error;
    /* no message that begins a session is long */
    if (frame_bytes > RPC_SHORT_BYTES && connection->phase == RPC_HELLO)
        return -EMSGSIZE;
    if (connection->input_room && (connection->input_bytes < room || frame_bytes <= room))
        return 0;
    if (connection->input_room)
        room = 2 * room < frame_bytes ? 2 * room : frame_bytes;
    if (room > RPC_INPUT_BYTES)
        error = rpc_charge(connection, room);
    if (error < 0)
        return error;
    error = rpc_reserve_input(connection, room);
    if (error == 0)
        connection->input_room = room;
    return error;
}

/* V0 ignores descriptors that clients send. In V1 one may come with the wish for a process fence,
 * which is refused in words; before that is decoded, no descriptor can be attributed to it. */
bool rpc_has_misplaced_descriptor(const struct rpc_connection *connection)
{
    const struct message *asked = &connection->asked;

    return kept_get_input(connection->kept)->brought_descriptor &&
           connection->protocol == MESSAGE_V1 &&
           !(connection->phase == RPC_HELLO && asked->type == MESSAGE_HANDSHAKE_REQUEST &&
             asked->process_fence);
}

int rpc_receive(struct rpc_connection *connection)
{
    int error = make_room(connection);

    if (error == -EDQUOT || error == -ENOMEM) {
        rpc_pause(connection); /* until other connections have sent theirs */
        return -EAGAIN;
    }
    if (error < 0)
        return error;
    size_t room = connection->input_room - connection->input_bytes;
    if (room == 0)
        return -EAGAIN;
    ssize_t size = rpc_read(connection, room);
    if (size < 0)
        return errno == EAGAIN || errno == EINTR ? -EAGAIN : -errno;
    if (rpc_has_misplaced_descriptor(connection) && connection->phase != RPC_HELLO)
        return -EPROTO;
    connection->has_ended = size == 0;
    connection->moved_us = clock_now_us();
    return 0;
}

void rpc_consume_frame(struct rpc_connection *connection)
{
    rpc_consume_input(connection);
    connection->frame_bytes = 0;
    connection->is_served = connection->is_answer_kept = false;
    if (connection->input_room > RPC_INPUT_BYTES && connection->input_bytes <= RPC_INPUT_BYTES) {
        kept_shrink_input(connection->kept, 2 * RPC_INPUT_BYTES);
        connection->input_room = RPC_INPUT_BYTES;
    }
    if (connection->output.room_bytes <= RPC_ANSWER_BYTES &&
        connection->input_room <= RPC_INPUT_BYTES)
        rpc_charge(connection, 0);
}
