/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/keep.h"

#include "base/log.h"
#include "daemon/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

void keep_init(struct keep *keep, int fd)
{
    pthread_mutex_init(&keep->mutex, NULL);
    keep->fd = fd;
}

void keep_close(struct keep *keep)
{
    pthread_mutex_destroy(&keep->mutex);
    close(keep->fd);
    keep->fd = -1;
}

/* Under the mutex. An answer that an earlier call could not receive still lies before ours. */
static int receive_ack(struct keep *keep, uint64_t memory, struct wire_message *message)
{
    int passed_fd = -1;
    int error;

    do {
        error = wire_receive(keep->fd, message, &passed_fd);
        if (passed_fd >= 0)
            close(passed_fd);
    } while (!error && message->type == WIRE_ACK && message->id != memory);
    return !error && message->type != WIRE_ACK ? -EPROTO : error;
}

/* Sends, and waits until the keeper has done it. */
static int ask(struct keep *keep, struct wire_message *message, int fd)
{
    uint64_t memory = message->id;

    pthread_mutex_lock(&keep->mutex);
    int error = wire_send(keep->fd, message, fd);
    if (!error)
        error = receive_ack(keep, memory, message);
    pthread_mutex_unlock(&keep->mutex);
    return error ? error : message->error;
}

int keep_add(struct keep *keep, uint64_t memory, int fd, uint64_t bytes)
{
    struct wire_message message = {.type = WIRE_KEEP, .id = memory, .value = bytes};

    return ask(keep, &message, fd);
}

void keep_drop(struct keep *keep, uint64_t memory)
{
    struct wire_message message = {.type = WIRE_DROP, .id = memory};
    int error = ask(keep, &message, -1);

    if (error)
        log_error("cannot tell the keeper that memory %" PRIu64 " is free: %s", memory,
                  strerror(-error));
}
