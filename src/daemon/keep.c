/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/keep.h"

#include "base/file_io.h"
#include "base/log.h"
#include "base/thread.h"
#include "daemon/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

void keep_init(struct keep *keep, int fd)
{
    pthread_mutex_init(&keep->mutex, NULL);
    keep->fd = fd;
    keep->questions = 0;
}

void keep_close(struct keep *keep)
{
    pthread_mutex_destroy(&keep->mutex);
    close(keep->fd);
    keep->fd = -1;
}

/* Receives the answer to this question; answers that earlier calls failed to receive come first and
 * are skipped. The caller holds the mutex. */
static int receive_ack(struct keep *keep, uint64_t question, uint64_t *value)
{
    struct wire_message answer = {0};
    int passed_fd = -1;
    int error;

    do {
        error = wire_receive(keep->fd, &answer, &passed_fd);
        file_close_fd(&passed_fd);
        if (error)
            return error;
    } while (answer.type == WIRE_ACK && answer.id != question);
    *value = answer.value;
    return answer.type == WIRE_ACK ? answer.error : -EPROTO;
}

/* Sends, and waits until the keeper has done it. *value: of its answer. */
static int ask_value(struct keep *keep, struct wire_batch *batch, const int *fds, uint64_t *value)
{
    SCOPED_LOCK(&keep->mutex);
    batch->head.id = ++keep->questions;
    int error = wire_send_batch(keep->fd, batch, fds);
    if (!error)
        error = receive_ack(keep, batch->head.id, value);
    return error;
}

static int ask(struct keep *keep, struct wire_batch *batch, const int *fds)
{
    uint64_t value;

    return ask_value(keep, batch, fds, &value);
}

static size_t batch_of(size_t left)
{
    return left < WIRE_BATCH_MAX ? left : WIRE_BATCH_MAX;
}

int keep_add(struct keep *keep, const struct service_memory *memories, size_t count)
{
    struct wire_batch batch;
    int fds[WIRE_BATCH_MAX];
    int error = 0;

    for (size_t done = 0; done < count && !error; done += batch.head.value) {
        batch.head = (struct wire_message){.type = WIRE_KEEP, .value = batch_of(count - done)};
        for (size_t i = 0; i < batch.head.value; i++) {
            const struct service_memory *memory = &memories[done + i];
            batch.memories[i] = (struct wire_memory){.id = memory->id, .bytes = memory->bytes};
            fds[i] = memory->fd;
        }
        error = ask(keep, &batch, fds);
    }
    return error;
}

/* Sends without an answer: question 0 is never answered. */
static bool say_ahead(struct keep *keep, enum wire_type type, struct wire_memory memory,
                      const int *fd)
{
    struct wire_batch batch = {.head = {.type = type, .value = 1}, .memories = {memory}};

    return wire_try_batch(keep->fd, &batch, fd) == 0;
}

bool keep_add_ahead(struct keep *keep, const struct service_memory *memory)
{
    return say_ahead(keep, WIRE_KEEP,
                     (struct wire_memory){.id = memory->id, .bytes = memory->bytes}, &memory->fd);
}

bool keep_drop_ahead(struct keep *keep, uint64_t memory)
{
    return say_ahead(keep, WIRE_DROP, (struct wire_memory){.id = memory}, NULL);
}

void keep_drop(struct keep *keep, const uint64_t *memories, size_t count)
{
    struct wire_batch batch;

    for (size_t done = 0; done < count; done += batch.head.value) {
        batch.head = (struct wire_message){.type = WIRE_DROP, .value = batch_of(count - done)};
        for (size_t i = 0; i < batch.head.value; i++)
            batch.memories[i] = (struct wire_memory){.id = memories[done + i]};
        int error = ask(keep, &batch, NULL);
        if (error)
            log_error("cannot tell the keeper that memory %" PRIu64 " and %" PRIu64
                      " more are free: %s",
                      memories[done], batch.head.value - 1, strerror(-error));
    }
}

int keep_end_back(struct keep *keep, uint64_t memory)
{
    struct wire_batch batch = {.head = {.type = WIRE_BACK, .value = 1},
                               .memories = {{.id = memory, .bytes = WIRE_BACK_ENDS}}};

    return ask(keep, &batch, NULL);
}

int keep_back(struct keep *keep, uint64_t memory, uint32_t *number)
{
    struct wire_batch batch = {.head = {.type = WIRE_BACK, .value = 1},
                               .memories = {{.id = memory}}};
    uint64_t value = 0;
    int error = ask_value(keep, &batch, NULL, &value);

    *number = (uint32_t)value;
    return error;
}
