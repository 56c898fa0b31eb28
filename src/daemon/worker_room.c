/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that this process may still take, and how it gives memory back: reads the machine and
 * its cgroups for the room (vmm/room.h). */
#include "daemon/worker_internal.h"

#include "base/log.h"

#include <errno.h>
#include <malloc.h>
#include <string.h>

#define TRIM_MS 1000u

/* Gives freed memory of the heap (worker_bound_heap) back to the kernel when requests are about to
 * be refused for lack of memory; not earlier, because malloc_trim(3) stops the loop. Returns true
 * if the kernel may have got some. */
static bool give_back(struct worker *worker, const struct headroom_info *info)
{
    uint64_t now_ms = loop_now_ms();
    uint64_t aside_bytes = worker->service ? service_count_aside(worker->service) : 0;

    if (info->free_bytes > info->reserve_bytes / 2 + aside_bytes ||
        now_ms - worker->trimmed_ms < TRIM_MS)
        return false;
    worker->trimmed_ms = now_ms;
    return malloc_trim(0) == 1;
}

static int look(void *context, struct room_view *view)
{
    struct worker *worker = context;
    struct headroom_info info = {0};
    int error = worker->headroom ? headroom_read(worker->headroom, &info) : -ENOMEM;

    if (!error && give_back(worker, &info))
        error = headroom_read(worker->headroom, &info);
    if (error)
        return error;
    *view = (struct room_view){.free_bytes = info.free_bytes, .reserve_bytes = info.reserve_bytes};
    if (worker->service)
        view->aside_bytes = service_count_aside(worker->service);
    headroom_set_aside(view->aside_bytes); /* allocations leave this much free */
    return 0;
}

/* Returns true if the keeper notes that the former worker was killed for lack of memory. */
static bool was_starved(const struct worker *worker)
{
    const struct fs_recovery *recovery = &worker->setup->ledger->recovery;

    return recovery->took_us == 0 && strcmp(recovery->cause, FS_RECOVERY_STARVED) == 0;
}

/* Makes the heap give back freed memory in small steps: large blocks by themselves, the rest a
 * limited amount at a time. Else glibc returns hundreds of megabytes at once, and every thread
 * waits for malloc, as during malloc_trim(3), for 0.2 ms a megabyte: freeing 184 MB of a million
 * entries delayed the next request. */
void worker_bound_heap(void)
{
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TRIM_THRESHOLD, 24 << 20);
    mallopt(M_TOP_PAD, 16 << 20); /* kept, so that memory needed again is not mapped anew */
    mallopt(M_MMAP_MAX, 16384);   /* a quarter of the mappings that the kernel allows a process */
}

void worker_open_room(struct worker *worker)
{
    int error = headroom_open("", &worker->headroom);

    room_init(&worker->room, look, worker);
    worker->transaction.room = &worker->room;
    if (error)
        log_warning("%s: cannot read how much memory is free: %s; requests of clients are not "
                    "refused before the machine is out of memory",
                    worker->setup->mountpoint, strerror(-error));
    worker->room.is_strict = was_starved(worker); /* clients get no memory until there is room */
    if (worker->room.is_strict)
        log_warning("%s: a worker was killed for lack of memory; requests that need more "
                    "memory are refused until there is room (ENOMEM)",
                    worker->setup->mountpoint);
}

void worker_close_room(struct worker *worker)
{
    headroom_close(worker->headroom);
    worker->headroom = NULL;
}
