/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the sender of each request. A connection is inherited by children and can be passed on, so
 * the sender of a request need not be the process that connected: the kernel names the sender of
 * all bytes, and never returns those of two senders in one read.
 */
#include "rpc/rpc_internal.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Looks the sender up now, while its number is most likely still its own. */
static struct kept_sender find_sender(const struct rpc_connection *connection, uint64_t pid)
{
    const struct service_caller *caller = &connection->caller;
    const struct rpc_host *host = &connection->rpc->host;
    struct kept_sender sender = {.pid = pid};
    struct service_caller found = {0};

    if (pid != 0 && caller->process_count > 0 && caller->processes[0].pid == pid) {
        sender.process = caller->processes[0];
        memcpy(sender.comm, caller->comm, sizeof sender.comm);
    } else if (pid != 0) {
        sender.error = host->resolve(host->context, (uint32_t)pid, 1, &found);
        if (sender.error == 0 && found.process_count > 0) {
            sender.process = found.processes[0];
            memcpy(sender.comm, found.comm, sizeof sender.comm);
        }
    }
    return sender;
}

static void note_sender(const struct rpc_connection *connection, struct kept_input *input,
                        uint64_t pid)
{
    struct kept_sender *last =
        input->sender_count ? &input->senders[input->sender_count - 1] : NULL;

    if (last && last->pid == pid)
        last->end_bytes = input->size_bytes;
    else if (input->sender_count == KEPT_MAX_SENDERS) /* too many: their sender counts as unknown */
        *last = (struct kept_sender){.end_bytes = input->size_bytes};
    else {
        last = &input->senders[input->sender_count++];
        *last = find_sender(connection, pid);
        last->end_bytes = input->size_bytes;
    }
}

void rpc_show_input(struct rpc_connection *connection)
{
    const struct kept_input *input = kept_get_input(connection->kept);

    connection->input = kept_get_input_bytes(connection->kept) + input->begin_bytes;
    connection->input_bytes = input->size_bytes;
}

static uint64_t find_pid(const struct kept_input *input)
{
    /* the pointers in `read` may be another process's */
    size_t control_bytes = input->read.msg_hdr.msg_controllen;
    struct msghdr head = {.msg_control = (void *)(uintptr_t)&input->control,
                          .msg_controllen = control_bytes < sizeof input->control
                                                ? control_bytes
                                                : sizeof input->control};
    const struct cmsghdr *first = CMSG_FIRSTHDR(&head);
    struct ucred sender = {0};

    if (first && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_CREDENTIALS)
        memcpy(&sender, CMSG_DATA(first), sizeof sender);
    return sender.pid > 0 ? (uint64_t)sender.pid : 0;
}

void rpc_take_read(struct rpc_connection *connection)
{
    const struct kept_input *now = kept_get_input(connection->kept);

    if (now->read.msg_len > 0) {
        struct kept_input *next = kept_change_input(connection->kept);

        note_sender(connection, next, find_pid(now));
        next->brought_descriptor |= (now->read.msg_hdr.msg_flags & MSG_CTRUNC) != 0;
        kept_set_input(connection->kept);
    }
    rpc_show_input(connection);
}

ssize_t rpc_read(struct rpc_connection *connection, size_t room)
{
    struct kept_input *input = kept_change_input(connection->kept);
    struct iovec part = {.iov_base = connection->input + connection->input_bytes, .iov_len = room};

    input->read.msg_hdr = (struct msghdr){.msg_iov = &part,
                                          .msg_iovlen = 1,
                                          .msg_control = &input->control,
                                          .msg_controllen = sizeof input->control};
    kept_set_input(connection->kept);
    /* Without the C library's wrapper: the kernel itself writes msg_len. */
    if (syscall(SYS_recvmmsg, connection->watch.fd, &input->read, 1, MSG_DONTWAIT, NULL) < 0)
        return -1;
    ssize_t size = input->read.msg_len;
    rpc_take_read(connection);
    return size;
}

static void consume_senders(struct kept_input *input, size_t bytes)
{
    unsigned left = 0;

    for (unsigned i = 0; i < input->sender_count; i++) {
        struct kept_sender sender = input->senders[i];

        if (sender.end_bytes <= bytes)
            continue;
        sender.end_bytes -= bytes;
        input->senders[left++] = sender;
    }
    input->sender_count = left;
}

/* Moves the input to the beginning of its memory, if it would not overlap. */
static void move_input(struct kept *kept)
{
    const struct kept_input *now = kept_get_input(kept);
    uint8_t *bytes = kept_get_input_bytes(kept);

    if (now->begin_bytes == 0 || now->size_bytes > now->begin_bytes)
        return;
    struct kept_input *next = kept_change_input(kept);
    memcpy(bytes, bytes + next->begin_bytes, next->size_bytes);
    next->begin_bytes = 0;
    kept_set_input(kept);
}

void rpc_consume_input(struct rpc_connection *connection)
{
    struct kept_input *next = kept_change_input(connection->kept);

    consume_senders(next, connection->frame_bytes);
    next->consumed++;
    next->begin_bytes += connection->frame_bytes;
    next->size_bytes -= connection->frame_bytes;
    kept_set_input(connection->kept);
    move_input(connection->kept);
    rpc_show_input(connection);
}

static bool is_same(struct core_process a, struct core_process b)
{
    return a.pid == b.pid && a.start == b.start;
}

static void add_asker(struct rpc_askers *askers, struct core_process process)
{
    for (size_t i = 0; i < askers->count; i++) {
        if (is_same(askers->processes[i], process))
            return;
    }
    askers->processes[askers->count++] = process;
}

int rpc_find_askers(const struct rpc_connection *connection, struct rpc_askers *askers)
{
    const struct service_caller *caller = &connection->caller;
    const struct rpc_host *host = &connection->rpc->host;
    const struct kept_input *input = kept_get_input(connection->kept);
    size_t begin_bytes = 0;

    askers->count = 0;
    for (unsigned i = 0; i < input->sender_count && begin_bytes < connection->frame_bytes; i++) {
        const struct kept_sender *sender = &input->senders[i];

        if (sender->error)
            return sender->error;
        add_asker(askers, sender->process);
        begin_bytes = sender->end_bytes;
    }
    /* the process that connected may be the reader of the answer, unless it has exited */
    if (caller->process_count > 0 && askers->count == 1 &&
        is_same(askers->processes[0], caller->processes[0]))
        return 0;
    if (!host->has_exited(host->context, connection->watch.fd))
        add_asker(askers, caller->process_count ? caller->processes[0] : (struct core_process){0});
    return 0;
}

int rpc_find_sender(const struct rpc_connection *connection, struct service_caller *caller)
{
    const struct kept_input *input = kept_get_input(connection->kept);
    const struct kept_sender *only = &input->senders[0];

    for (unsigned i = 0; i < input->sender_count; i++) {
        const struct kept_sender *sender = &input->senders[i];

        if (sender->error)
            return sender->error;
        if (!is_same(sender->process, only->process))
            only = NULL;
        if (!only || sender->end_bytes >= connection->frame_bytes)
            break;
    }
    *caller = connection->caller;
    caller->process_count = only && only->process.pid != 0;
    if (caller->process_count) {
        caller->processes[0] = only->process;
        memcpy(caller->comm, only->comm, sizeof caller->comm);
    }
    return 0;
}
