/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/exits.h"

#include "base/container.h"
#include "daemon/process.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct exit_watch {
    uint64_t id; /* pid; first for idvec */
    struct core_process process;
    struct exits *exits;
    struct event_watch watch;
};

void exits_init(struct exits *exits, struct loop *loop,
                void (*on_exit)(void *context, struct core_process process), void *context)
{
    *exits = (struct exits){.loop = loop, .on_exit = on_exit, .context = context};
}

static void end_watch(struct exit_watch *watch)
{
    loop_unwatch(watch->exits->loop, &watch->watch);
    close(watch->watch.fd);
    free(watch);
}

void exits_free(struct exits *exits)
{
    for (size_t i = 0; i < exits->watches.count; i++)
        end_watch(exits->watches.items[i]);
    idvec_free(&exits->watches);
}

static void on_ready(struct event_watch *ready, uint32_t events)
{
    struct exit_watch *watch = CONTAINER_OF(ready, struct exit_watch, watch);
    struct exits *exits = watch->exits;
    struct core_process process = watch->process;

    (void)events;
    idvec_remove(&exits->watches, watch->id);
    end_watch(watch);
    exits->on_exit(exits->context, process);
}

/* Opens a pidfd of exactly this process. -ESRCH: it has exited, even if it was not reaped. */
static int open_process(struct core_process process, int *fd)
{
    uint64_t start = 0;
    int opened = -1;
    int error = process_open(process.pid, &opened);

    if (error)
        return error;
    error = process_read_start(process.pid, opened, &start);
    if (!error && (start != process.start || process_has_exited(opened)))
        error = -ESRCH;
    if (error) {
        close(opened);
        return error;
    }
    *fd = opened;
    return 0;
}

int exits_watch(struct exits *exits, struct core_process process)
{
    struct exit_watch *watch = NULL;
    int fd = -1;
    int error = open_process(process, &fd);

    if (error)
        return error;
    watch = calloc(1, sizeof *watch);
    if (!watch) {
        close(fd);
        return -ENOMEM;
    }
    *watch = (struct exit_watch){.id = process.pid,
                                 .process = process,
                                 .exits = exits,
                                 .watch = {.fd = fd, .ready = on_ready}};
    error = idvec_insert(&exits->watches, watch);
    if (!error) {
        error = loop_watch(exits->loop, &watch->watch, EVENT_READ);
        if (error)
            idvec_remove(&exits->watches, watch->id);
    }
    if (error)
        end_watch(watch);
    return error;
}

void exits_unwatch(struct exits *exits, struct core_process process)
{
    struct exit_watch *watch = idvec_remove(&exits->watches, process.pid);

    if (watch)
        end_watch(watch);
}
