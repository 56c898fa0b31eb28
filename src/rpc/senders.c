/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who sent what is read. A connection is inherited by children and can be passed on, so who asks
 * for memory need not be who connected: the kernel tells the sender of all bytes, and never gives
 * those of two senders in one read.
 */
#include "rpc/rpc_internal.h"

#include <string.h>
#include <sys/socket.h>

/* Looked up now, while its number is most likely still its own. */
static struct rpc_sender find_sender(const struct rpc_connection *connection, uint64_t pid)
{
    const struct service_caller *caller = &connection->caller;
    const struct rpc_host *host = &connection->rpc->host;
    struct rpc_sender sender = {.pid = pid};
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

static void note_sender(struct rpc_connection *connection, uint64_t pid, size_t bytes)
{
    size_t end_bytes = connection->input_bytes + bytes;
    struct rpc_sender *last =
        connection->sender_count ? &connection->senders[connection->sender_count - 1] : NULL;

    if (last && last->pid == pid)
        last->end_bytes = end_bytes;
    else if (connection->sender_count == RPC_MAX_SENDERS) /* too many to tell: nobody is known */
        *last = (struct rpc_sender){.end_bytes = end_bytes};
    else {
        last = &connection->senders[connection->sender_count++];
        *last = find_sender(connection, pid);
        last->end_bytes = end_bytes;
    }
}

ssize_t rpc_read(struct rpc_connection *connection, void *at, size_t room)
{
    union { /* room for who sends alone: descriptors do not fit, and the kernel closes them */
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec part = {.iov_base = at, .iov_len = room};
    struct msghdr head = {.msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = sizeof control};
    ssize_t size = recvmsg(connection->watch.fd, &head, MSG_DONTWAIT);
    const struct cmsghdr *first = size > 0 ? CMSG_FIRSTHDR(&head) : NULL;
    struct ucred sender = {0};

    if (size <= 0)
        return size;
    if (first && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_CREDENTIALS)
        memcpy(&sender, CMSG_DATA(first), sizeof sender);
    note_sender(connection, sender.pid > 0 ? (uint64_t)sender.pid : 0, (size_t)size);
    if (head.msg_flags & MSG_CTRUNC)
        connection->brought_descriptor = true;
    return size;
}

void rpc_consume_senders(struct rpc_connection *connection)
{
    unsigned left = 0;

    for (unsigned i = 0; i < connection->sender_count; i++) {
        struct rpc_sender sender = connection->senders[i];

        if (sender.end_bytes <= connection->frame_bytes)
            continue;
        sender.end_bytes -= connection->frame_bytes;
        connection->senders[left++] = sender;
    }
    connection->sender_count = left;
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
    size_t begin_bytes = 0;

    askers->count = 0;
    for (unsigned i = 0; i < connection->sender_count && begin_bytes < connection->frame_bytes;
         i++) {
        const struct rpc_sender *sender = &connection->senders[i];

        if (sender->error)
            return sender->error;
        add_asker(askers, sender->process);
        begin_bytes = sender->end_bytes;
    }
    /* Who connected may be the one that reads the answer, unless it has exited. */
    if (caller->process_count > 0 && askers->count == 1 &&
        is_same(askers->processes[0], caller->processes[0]))
        return 0;
    if (!host->has_exited(host->context, connection->watch.fd))
        add_asker(askers, caller->process_count ? caller->processes[0] : (struct core_process){0});
    return 0;
}

int rpc_find_sender(const struct rpc_connection *connection, struct service_caller *caller)
{
    const struct rpc_sender *only = &connection->senders[0];

    for (unsigned i = 0; i < connection->sender_count; i++) {
        const struct rpc_sender *sender = &connection->senders[i];

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
