/* SPDX-License-Identifier: Apache-2.0 */
/* Lets one call at a time use the regions of a mount, and ends its wait. */
#include "regions.h"

#include <errno.h>
#include <unistd.h>

#include "internal.h"

static int regions_check(const struct gmsfs_regions *regions)
{
    if (!regions)
        return -EINVAL;
    if (atomic_load(&regions->closed))
        return -EBADF;
    return regions->pid == getpid() ? 0 : -ECHILD;
}

static int regions_enter(struct gmsfs_regions *regions, void (*lock)(struct gmsfs_regions *regions))
{
    int error = regions_check(regions);
    struct gfs_passage passage;

    if (!error && gfs_is_held(regions, &regions->holder))
        error = -EDEADLK;
    if (error)
        return error;
    gfs_hold_thread();
    gfs_passage_begin(&passage, regions);
    lock(regions);
    atomic_store(&regions->holder, (uintptr_t)pthread_self());
    gfs_passage_end(&passage);
    atomic_fetch_add(&regions->call, 1);
    if (!atomic_load(&regions->closed))
        return 0;
    gfs_regions_leave(regions);
    return -EBADF;
}

static void regions_lock_in_turn(struct gmsfs_regions *regions)
{
    pthread_mutex_lock(&regions->op);
}

int gfs_regions_enter(struct gmsfs_regions *regions)
{
    return regions_enter(regions, regions_lock_in_turn);
}

void gfs_regions_leave(struct gmsfs_regions *regions)
{
    struct gfs_passage passage;

    atomic_fetch_add(&regions->call, 1);
    gfs_passage_begin(&passage, regions);
    atomic_store(&regions->holder, 0);
    pthread_mutex_unlock(&regions->op);
    gfs_passage_end(&passage);
    gfs_let_thread();
}

int gfs_regions_pause(struct gmsfs_regions *regions, struct gfs_again *again)
{
    if (gfs_regions_is_cancelled(regions))
        return -ECANCELED;
    return gfs_again_pause(again) ? 0 : -ETIMEDOUT;
}

int gfs_regions_is_cancelled(struct gmsfs_regions *regions)
{
    return atomic_load(&regions->cancelled) == atomic_load(&regions->call);
}

/* A call that begins right after it is another one. */
static void regions_cancel(struct gmsfs_regions *regions)
{
    unsigned call = atomic_load(&regions->call);

    if (call % 2 == 1)
        atomic_store(&regions->cancelled, call);
}

int gmsfs_regions_cancel(gmsfs_regions_t *regions)
{
    int error = regions_check(regions);

    if (!error)
        regions_cancel(regions);
    return error;
}

static void regions_lock_first(struct gmsfs_regions *regions)
{
    if (pthread_mutex_trylock(&regions->op) == 0)
        return;
    do
        regions_cancel(regions);
    while (!gfs_lock_soon(&regions->op));
}

int gfs_regions_enter_last(struct gmsfs_regions *regions)
{
    return regions_enter(regions, regions_lock_first);
}
