/* SPDX-License-Identifier: Apache-2.0 */
/* What this process itself may grow by: what machine and cgroups have, as the room sees it. */
#include "daemon/worker_internal.h"

#include "base/log.h"

#include <errno.h>
#include <string.h>

static int look(void *context, struct room_view *view)
{
    struct worker *worker = context;
    struct headroom_info info;
    int error = worker->headroom ? headroom_read(worker->headroom, &info) : -ENOMEM;

    if (error)
        return error;
    *view = (struct room_view){.free_bytes = info.free_bytes, .reserve_bytes = info.reserve_bytes};
    if (worker->service)
        view->aside_bytes = service_count_aside(worker->service);
    headroom_set_aside(view->aside_bytes); /* allocations leave it over */
    return 0;
}

/* With less on its plate: clients get nothing more before there is room for it. */
static bool was_starved(struct worker *worker, uint64_t kills)
{
    struct worker_own *own = journal_get_own(worker->journal);
    bool is_starved = own->kills > 0 && kills + 1 > own->kills;

    own->kills = kills + 1;
    return is_starved;
}

void worker_open_room(struct worker *worker)
{
    uint64_t kills = 0;
    int error = headroom_open("", &worker->headroom);

    room_init(&worker->room, look, worker);
    if (!error)
        error = headroom_read_kills(worker->headroom, &kills);
    if (error)
        log_warning("%s: cannot look how much memory there is: %s; what clients ask for is not "
                    "refused before the machine has no more",
                    worker->setup->mountpoint, strerror(-error));
    worker->room.is_strict = was_starved(worker, kills);
    if (worker->room.is_strict)
        log_warning("%s: a worker was killed for want of memory; clients get nothing that takes "
                    "more before there is room for it (ENOMEM)",
                    worker->setup->mountpoint);
}

void worker_close_room(struct worker *worker)
{
    headroom_close(worker->headroom);
    worker->headroom = NULL;
}
