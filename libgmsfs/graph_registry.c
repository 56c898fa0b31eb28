/* SPDX-License-Identifier: Apache-2.0 */
/* All graph pools, and which of their spaces is selected on which stream. */
#include "graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t registry_unused = PTHREAD_COND_INITIALIZER;
static struct gmsfs_graph_pool *registry_first;

struct selected {
    struct gmsfs_graph_space *space;
    void *stream;
    pthread_t thread; /* that selected it */
};

/* By age. In the registry's lock. */
static struct selected *selected_list;
static size_t selected_count, selected_room;

/* ---- the registry ------------------------------------------------------------------------- */

void gfs_graph_registry_lock(void)
{
    pthread_mutex_lock(&registry_mutex);
}

void gfs_graph_registry_unlock(void)
{
    pthread_mutex_unlock(&registry_mutex);
}

struct gmsfs_graph_pool *gfs_graph_registry_first(void)
{
    return registry_first;
}

void gfs_graph_registry_use(struct gmsfs_graph_pool *pool)
{
    pool->users++;
}

void gfs_graph_registry_unuse(struct gmsfs_graph_pool *pool)
{
    gfs_graph_registry_lock();
    if (--pool->users == 0)
        pthread_cond_broadcast(&registry_unused);
    gfs_graph_registry_unlock();
}

void gfs_graph_register(struct gmsfs_graph_pool *pool)
{
    gfs_graph_registry_lock();
    pool->next = registry_first;
    registry_first = pool;
    gfs_graph_registry_unlock();
}

static void selected_remove(size_t at)
{
    selected_count--;
    memmove(selected_list + at, selected_list + at + 1,
            (selected_count - at) * sizeof *selected_list);
}

/* For the end of a pool, and in a child for all (NULL). */
static void selected_forget(const struct gmsfs_graph_pool *pool)
{
    for (size_t i = selected_count; i-- > 0;)
        if (!pool || selected_list[i].space->pool == pool)
            selected_remove(i);
}

void gfs_graph_unregister(struct gmsfs_graph_pool *pool)
{
    struct gmsfs_graph_pool **at;

    gfs_graph_registry_lock();
    for (at = &registry_first; *at && *at != pool; at = &(*at)->next)
        ;
    if (*at)
        *at = pool->next;
    selected_forget(pool);
    while (pool->users)
        pthread_cond_wait(&registry_unused, &registry_mutex);
    gfs_graph_registry_unlock();
}

/* ---- selecting ---------------------------------------------------------------------------- */

static int selected_make_room(void)
{
    size_t room = selected_room ? selected_room * 2 : 16;
    struct selected *grown;

    if (selected_count < selected_room)
        return 0;
    grown = realloc(selected_list, room * sizeof *grown);
    if (!grown)
        return -ENOMEM;
    selected_list = grown;
    selected_room = room;
    return 0;
}

/* Two devices may have streams of one name: the special ones, NULL say. */
static int selected_same_device(const struct gmsfs_graph_space *a,
                                const struct gmsfs_graph_space *b)
{
    return memcmp(a->pool->handle->memory.uuid, b->pool->handle->memory.uuid, 16) == 0;
}

static int selected_add(struct gmsfs_graph_space *space, void *stream)
{
    int error;

    for (size_t i = 0; i < selected_count; i++)
        if (selected_list[i].stream == stream &&
            selected_same_device(selected_list[i].space, space))
            return selected_list[i].space == space ? 0 : -EBUSY;
    error = selected_make_room();
    if (error)
        return error;
    selected_list[selected_count++] =
        (struct selected){.space = space, .stream = stream, .thread = pthread_self()};
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
    error = selected_add(space, stream);
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
    for (size_t i = 0; i < selected_count && error; i++) {
        struct gmsfs_graph_space *space = selected_list[i].space;

        if (selected_list[i].stream != stream || space->pool != pool)
            continue;
        selected_remove(i);
        gfs_graph_state_lock(pool);
        space->selected--;
        gfs_graph_state_unlock(pool);
        error = 0;
    }
    gfs_graph_registry_unlock();
    return error;
}

static int selected_is_for(const struct selected *selected, int device)
{
    return gfs_memory_is_ordinal(&selected->space->pool->handle->memory, device);
}

struct gmsfs_graph_space *gfs_graph_registry_find(int device, void *stream)
{
    struct gmsfs_graph_space *mine = NULL;

    for (size_t i = 0; i < selected_count; i++) {
        if (!selected_is_for(selected_list + i, device))
            continue;
        if (selected_list[i].stream == stream)
            return selected_list[i].space;
        if (pthread_equal(selected_list[i].thread, pthread_self()))
            mine = selected_list[i].space;
    }
    return mine;
}

/* ---- fork --------------------------------------------------------------------------------- */

void gfs_graph_fork_prepare(void)
{
    gfs_graph_registry_lock();
    for (struct gmsfs_graph_pool *pool = registry_first; pool; pool = pool->next)
        gfs_graph_state_lock(pool);
}

void gfs_graph_fork_parent(void)
{
    for (struct gmsfs_graph_pool *pool = registry_first; pool; pool = pool->next)
        gfs_graph_state_unlock(pool);
    gfs_graph_registry_unlock();
}

/* The pair knows nothing of the parent's pools here. */
void gfs_graph_fork_child(void)
{
    for (struct gmsfs_graph_pool *pool = registry_first; pool; pool = pool->next) {
        pool->users = 0;
        pthread_mutex_init(&pool->op, NULL);
        pthread_mutex_init(&pool->state, NULL);
    }
    selected_forget(NULL);
    registry_first = NULL;
    pthread_mutex_init(&registry_mutex, NULL);
    pthread_cond_init(&registry_unused, NULL);
}
