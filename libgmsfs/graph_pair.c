/* SPDX-License-Identifier: Apache-2.0 */
/* The two functions that torch is given, and what is selected for them on which stream. */
#include "graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct pair_selected {
    struct gmsfs_graph_space *space;
    void *stream;
    pthread_t thread; /* that selected it */
};

/* By age. In the registry's lock. */
static struct pair_selected *pair_list;
static size_t pair_count, pair_room;

static _Thread_local int pair_error;

/* ---- selecting ---------------------------------------------------------------------------- */

static int pair_make_room(void)
{
    size_t room = pair_room ? pair_room * 2 : 16;
    struct pair_selected *grown;

    if (pair_count < pair_room)
        return 0;
    grown = realloc(pair_list, room * sizeof *grown);
    if (!grown)
        return -ENOMEM;
    pair_list = grown;
    pair_room = room;
    return 0;
}

/* Two devices may have streams of one name: the special ones, NULL say. */
static int pair_same_device(const struct gmsfs_graph_space *a, const struct gmsfs_graph_space *b)
{
    return memcmp(a->pool->handle->memory.uuid, b->pool->handle->memory.uuid, 16) == 0;
}

static void pair_remove(size_t at)
{
    pair_count--;
    memmove(pair_list + at, pair_list + at + 1, (pair_count - at) * sizeof *pair_list);
}

static int pair_select(struct gmsfs_graph_space *space, void *stream)
{
    int error;

    for (size_t i = 0; i < pair_count; i++)
        if (pair_list[i].stream == stream && pair_same_device(pair_list[i].space, space))
            return pair_list[i].space == space ? 0 : -EBUSY;
    error = pair_make_room();
    if (error)
        return error;
    pair_list[pair_count++] =
        (struct pair_selected){.space = space, .stream = stream, .thread = pthread_self()};
    gfs_graph_state_lock(space->pool);
    space->selected++;
    gfs_graph_state_unlock(space->pool);
    return 0;
}

int gmsfs_graph_select(gmsfs_graph_space_t *space, void *stream)
{
    int error;

    if (!space)
        return -EINVAL;
    if (atomic_load(&space->pool->handle->dead))
        return -ECHILD;
    gfs_graph_registry_lock();
    error = pair_select(space, stream);
    gfs_graph_registry_unlock();
    return error;
}

int gmsfs_graph_deselect(gmsfs_graph_pool_t *pool, void *stream)
{
    int error = -ENOENT;

    if (!pool)
        return -EINVAL;
    if (atomic_load(&pool->handle->dead))
        return -ECHILD;
    gfs_graph_registry_lock();
    for (size_t i = 0; i < pair_count && error; i++) {
        struct gmsfs_graph_space *space = pair_list[i].space;

        if (pair_list[i].stream != stream || space->pool != pool)
            continue;
        pair_remove(i);
        gfs_graph_state_lock(pool);
        space->selected--;
        gfs_graph_state_unlock(pool);
        error = 0;
    }
    gfs_graph_registry_unlock();
    return error;
}

void gfs_graph_forget_selected(const struct gmsfs_graph_pool *pool)
{
    for (size_t i = pair_count; i-- > 0;)
        if (!pool || pair_list[i].space->pool == pool)
            pair_remove(i);
}

/* ---- the pair ----------------------------------------------------------------------------- */

static int pair_is_for(const struct pair_selected *selected, int device)
{
    return gfs_memory_is_ordinal(&selected->space->pool->handle->memory, device);
}

/* By the stream; else what this thread selected last. */
static struct gmsfs_graph_space *pair_find(int device, void *stream)
{
    struct gmsfs_graph_space *mine = NULL;

    for (size_t i = 0; i < pair_count; i++) {
        if (!pair_is_for(pair_list + i, device))
            continue;
        if (pair_list[i].stream == stream)
            return pair_list[i].space;
        if (pthread_equal(pair_list[i].thread, pthread_self()))
            mine = pair_list[i].space;
    }
    return mine;
}

void *gmsfs_graph_alloc(intptr_t size_bytes, int device, void *stream)
{
    struct gmsfs_graph_space *space;
    struct gmsfs_graph_pool *pool;
    void *ptr = NULL;

    gfs_graph_registry_lock();
    space = pair_find(device, stream);
    pool = space ? space->pool : NULL;
    if (space)
        gfs_graph_registry_use(pool);
    gfs_graph_registry_unlock();
    pair_error = -ENOENT;
    if (!space)
        return NULL;
    pair_error =
        size_bytes > 0 ? gfs_graph_space_alloc(pool, space, (uint64_t)size_bytes, &ptr) : -EINVAL;
    gfs_graph_registry_unuse(pool);
    return ptr;
}

void gmsfs_graph_dealloc(void *ptr, intptr_t size_bytes, int device, void *stream)
{
    uintptr_t va = (uintptr_t)ptr;
    struct gmsfs_graph_pool *pool;

    (void)size_bytes;
    (void)device;
    (void)stream;
    gfs_graph_registry_lock();
    for (pool = gfs_graph_registry_first(); pool; pool = pool->next) {
        gfs_graph_state_lock(pool);
        for (struct gmsfs_graph_space *space = pool->spaces; space; space = space->next)
            if (va - space->base < space->reserved_bytes)
                gfs_graph_space_give_back(space, va);
        gfs_graph_state_unlock(pool);
    }
    gfs_graph_registry_unlock();
}

int gmsfs_graph_alloc_error(void)
{
    return pair_error;
}
