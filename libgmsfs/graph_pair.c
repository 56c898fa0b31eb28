/* SPDX-License-Identifier: Apache-2.0 */
/* The two functions that torch is given, and what is selected for them on which stream. */
#include "graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One for each gmsfs_graph_select that was not undone yet. */
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

/* What the stream has selected, or NULL: all its selections are of one space. */
static struct gmsfs_graph_space *pair_selected_on(const struct gmsfs_graph_space *like,
                                                  void *stream)
{
    for (size_t i = 0; i < pair_count; i++)
        if (pair_list[i].stream == stream && pair_same_device(pair_list[i].space, like))
            return pair_list[i].space;
    return NULL;
}

/* Counts streams. */
static void pair_note(struct gmsfs_graph_space *space, int more, int fewer)
{
    gfs_graph_state_lock(space->pool);
    space->selected += (size_t)more;
    space->selected -= (size_t)fewer;
    gfs_graph_state_unlock(space->pool);
}

static int pair_select(struct gmsfs_graph_space *space, void *stream)
{
    const struct gmsfs_graph_space *before = pair_selected_on(space, stream);
    int error = before && before != space ? -EBUSY : pair_make_room();

    if (error)
        return error;
    pair_list[pair_count++] =
        (struct pair_selected){.space = space, .stream = stream, .thread = pthread_self()};
    pair_note(space, !before, 0);
    return 0;
}

/* The youngest one: of this thread, if it has any. `pair_count`: there is none. */
static size_t pair_find_selection(const struct gmsfs_graph_pool *pool, void *stream)
{
    size_t found = pair_count;

    for (size_t i = pair_count; i-- > 0;) {
        if (pair_list[i].stream != stream || pair_list[i].space->pool != pool)
            continue;
        if (pthread_equal(pair_list[i].thread, pthread_self()))
            return i;
        if (found == pair_count)
            found = i;
    }
    return found;
}

static int pair_deselect(const struct gmsfs_graph_pool *pool, void *stream)
{
    size_t at = pair_find_selection(pool, stream);
    struct gmsfs_graph_space *space;

    if (at == pair_count)
        return -ENOENT;
    space = pair_list[at].space;
    pair_remove(at);
    pair_note(space, 0, !pair_selected_on(space, stream));
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
    int error;

    if (!pool)
        return -EINVAL;
    if (atomic_load(&pool->handle->dead))
        return -ECHILD;
    gfs_graph_registry_lock();
    error = pair_deselect(pool, stream);
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
    pair_error = size_bytes > 0 ? gfs_graph_space_alloc(pool, space, (uint64_t)size_bytes,
                                                        GMSFS_ALLOC_NOWAIT, &ptr)
                                : -EINVAL;
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
