/* SPDX-License-Identifier: Apache-2.0 */
/* All graph pools, and which of their spaces is selected on which stream. */
#include "graph.h"

#include "base/array.h"

#include <errno.h>
#include <string.h>

static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t registry_unused = PTHREAD_COND_INITIALIZER;
static struct gmsfs_graph_pool *registry_first;

/* One for each gmsfs_graph_select that was not undone yet. */
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
    gfs_hold_thread();
    pthread_mutex_lock(&registry_mutex);
}

void gfs_graph_registry_unlock(void)
{
    pthread_mutex_unlock(&registry_mutex);
    gfs_let_thread();
}

struct gmsfs_graph_pool *gfs_graph_registry_first(void)
{
    return registry_first;
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

/* Two devices may have streams of one name: the special ones, NULL say. */
static int selected_same_device(const struct gmsfs_graph_space *a,
                                const struct gmsfs_graph_space *b)
{
    return memcmp(a->pool->handle->memory.uuid, b->pool->handle->memory.uuid, 16) == 0;
}

/* Returns the selection of the stream, or NULL: all its selections are of one space. */
static struct gmsfs_graph_space *selected_on(const struct gmsfs_graph_space *like, void *stream)
{
    for (size_t i = 0; i < selected_count; i++)
        if (selected_list[i].stream == stream && selected_same_device(selected_list[i].space, like))
            return selected_list[i].space;
    return NULL;
}

/* Counts streams. */
static void selected_note(struct gmsfs_graph_space *space, int more, int fewer)
{
    gfs_graph_state_lock(space->pool);
    space->selected += (size_t)more;
    space->selected -= (size_t)fewer;
    gfs_graph_state_unlock(space->pool);
}

static int selected_add(struct gmsfs_graph_space *space, void *stream)
{
    const struct gmsfs_graph_space *before = selected_on(space, stream);
    int error = before && before != space
                    ? -EBUSY
                    : ARRAY_RESERVE(selected_list, selected_room, selected_count + 1);

    if (error)
        return error;
    selected_list[selected_count++] =
        (struct selected){.space = space, .stream = stream, .thread = pthread_self()};
    selected_note(space, !before, 0);
    return 0;
}

/* The youngest one: of this thread, if it has any. `selected_count`: there is none. */
static size_t selected_find(const struct gmsfs_graph_pool *pool, void *stream)
{
    size_t found = selected_count;

    for (size_t i = selected_count; i-- > 0;) {
        if (selected_list[i].stream != stream || selected_list[i].space->pool != pool)
            continue;
        if (pthread_equal(selected_list[i].thread, pthread_self()))
            return i;
        if (found == selected_count)
            found = i;
    }
    return found;
}

static int selected_drop(const struct gmsfs_graph_pool *pool, void *stream)
{
    size_t at = selected_find(pool, stream);
    struct gmsfs_graph_space *space;

    if (at == selected_count)
        return -ENOENT;
    space = selected_list[at].space;
    selected_remove(at);
    selected_note(space, 0, !selected_on(space, stream));
    return 0;
}

/* Inside op, because a pool that is closed drops its selections, once. */
int gmsfs_graph_select(gmsfs_graph_space_t *space, void *stream)
{
    struct gmsfs_graph_pool *pool;

    if (!space)
        return -EINVAL;
    gfs_graph_registry_lock();
    pool = space->pool;
    int error = pool ? gfs_graph_check_pool(pool) : -EBADF;
    if (!error)
        error = selected_add(space, stream);
    gfs_graph_registry_unlock();
    return error;
}

int gmsfs_graph_deselect(gmsfs_graph_pool_t *pool, void *stream)
{
    int error = gfs_graph_check_pool(pool);

    if (error)
        return error;
    gfs_graph_registry_lock();
    error = selected_drop(pool, stream);
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

/* Hides the parent's pools from the pair, and resets their guards: destroying a guard would wait
 * for threads that waited for it in the parent. */
void gfs_graph_fork_child(void)
{
    for (struct gmsfs_graph_pool *pool = registry_first; pool; pool = pool->next) {
        pool->users = 0;
        gfs_graph_guard_init(&pool->guard);
        pthread_mutex_init(&pool->op, NULL);
        pthread_mutex_init(&pool->state, NULL);
    }
    selected_forget(NULL);
    registry_first = NULL;
    pthread_mutex_init(&registry_mutex, NULL);
    pthread_cond_init(&registry_unused, NULL);
    gfs_let_thread(); /* which gfs_graph_fork_prepare holds */
}
