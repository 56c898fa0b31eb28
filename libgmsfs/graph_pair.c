/* SPDX-License-Identifier: Apache-2.0 */
/* The two functions that torch is given. */
#include "graph.h"

#include <errno.h>

static _Thread_local int pair_error;

void *gmsfs_graph_alloc(intptr_t size_bytes, int device, void *stream)
{
    struct gmsfs_graph_pool *pool;
    void *ptr = NULL;

    gfs_graph_registry_lock();
    struct gmsfs_graph_space *space = gfs_graph_registry_find(device, stream);
    pool = space ? space->pool : NULL;
    if (space)
        pool->users++;
    gfs_graph_registry_unlock();
    pair_error = -ENOENT;
    if (!space)
        return NULL;
    pair_error = size_bytes > 0 ? gfs_graph_space_alloc(pool, space, (uint64_t)size_bytes,
                                                        GMSFS_ALLOC_NOWAIT, &ptr)
                                : -EINVAL;
    if (!ptr && atomic_load(&pool->closed))
        pair_error = -ENOENT; /* by now nothing is selected */
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
