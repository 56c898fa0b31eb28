/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/foreign.h"

#include "base/thread.h"

#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#define CLOSER_STACK_BYTES (64u << 10)

enum {
    IDLE,
    WAITING, /* waits for a thread, until the next client sends one */
    CLOSING,
};

/* Static, because a thread may outlive any owner that could be freed. */
static struct closing {
    atomic_int state;
    uint32_t uid;
    int fd;
} all[FOREIGN_MAX_CLOSING];

static void *run(void *argument)
{
    struct closing *closing = argument;

    close(closing->fd);
    atomic_store(&closing->state, IDLE);
    return NULL;
}

static void start(struct closing *closing)
{
    atomic_store(&closing->state, CLOSING);
    if (thread_start(NULL, CLOSER_STACK_BYTES, run, closing) != 0)
        atomic_store(&closing->state, WAITING);
}

bool foreign_may_take(void *context, uint32_t uid)
{
    bool has_place = false;
    unsigned of_user = 0;

    (void)context;
    for (size_t i = 0; i < FOREIGN_MAX_CLOSING; i++) {
        if (atomic_load(&all[i].state) == WAITING)
            start(&all[i]);
        if (atomic_load(&all[i].state) == IDLE)
            has_place = true;
        else
            of_user += all[i].uid == uid;
    }
    return has_place && of_user < FOREIGN_MAX_OF_USER;
}

void foreign_close(void *context, uint32_t uid, int fd)
{
    (void)context;
    for (size_t i = 0; i < FOREIGN_MAX_CLOSING; i++) {
        if (atomic_load(&all[i].state) != IDLE)
            continue;
        all[i].uid = uid;
        all[i].fd = fd;
        start(&all[i]);
        return;
    }
}
