/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of a graph pool: allocations of its store, held once, mapped in many spaces. */
#include "graph.h"

#include "base/array.h"

#include <errno.h>

int gfs_chunks_make_room(struct gfs_chunks *chunks, size_t count)
{
    return ARRAY_RESERVE(chunks->list, chunks->room, count);
}

/* ---- counting ------------------------------------------------------------------------------ */

size_t gfs_graph_shared_reach(const struct gmsfs_graph_pool *pool)
{
    size_t reach = 0;

    for (const struct gmsfs_graph_space *space = pool->spaces; space; space = space->next)
        if (!space->eager && space->reached > reach)
            reach = space->reached;
    return reach;
}

size_t gfs_graph_needed(const struct gmsfs_graph_pool *pool)
{
    size_t needed = gfs_graph_shared_reach(pool);

    for (const struct gmsfs_graph_space *space = pool->spaces; space; space = space->next)
        if (space->eager)
            needed += space->reached;
    return needed;
}

size_t gfs_graph_physical(const struct gmsfs_graph_pool *pool)
{
    size_t count = pool->shared.count;

    for (const struct gmsfs_graph_space *space = pool->spaces; space; space = space->next)
        count += space->own.count;
    return count;
}

void gfs_graph_note_high(struct gmsfs_graph_pool *pool)
{
    size_t physical = gfs_graph_physical(pool);

    gfs_graph_state_lock(pool);
    if (physical > pool->high)
        pool->high = physical;
    gfs_graph_state_unlock(pool);
}

/* ---- holding ------------------------------------------------------------------------------ */

struct chunks_taking {
    struct gmsfs_graph_pool *pool;
    struct gfs_chunks *chunks;
    uint64_t next_rank;
};

static int chunks_take(void *context, const struct gfs_item *item, int *fd)
{
    struct chunks_taking *taking = context;
    struct gmsfs_graph_pool *pool = taking->pool;
    struct gfs_chunk chunk = {.slot = item->slot};

    if (item->rank != taking->next_rank || item->aligned_bytes != pool->chunk_bytes ||
        taking->chunks->count == taking->chunks->room)
        return -EPROTO;
    int error = gfs_memory_hold(&pool->handle->memory, pool->chunk_bytes, *fd, &chunk.held);
    if (error)
        return error;
    taking->next_rank++;
    gfs_graph_state_lock(pool);
    taking->chunks->list[taking->chunks->count++] = chunk;
    gfs_graph_state_unlock(pool);
    return 0;
}

static void chunks_let_go_from(struct gmsfs_graph_pool *pool, struct gfs_chunks *chunks,
                               size_t keep)
{
    while (chunks->count > keep) {
        struct gfs_chunk *last = chunks->list + chunks->count - 1;

        gfs_memory_let_go(&pool->handle->memory, pool->chunk_bytes, &last->held);
        gfs_graph_state_lock(pool);
        chunks->count--;
        gfs_graph_state_unlock(pool);
    }
}

void gfs_graph_let_go(struct gmsfs_graph_pool *pool, struct gfs_chunks *chunks)
{
    chunks_let_go_from(pool, chunks, 0);
}

int gfs_graph_hold_chunks(struct gmsfs_graph_pool *pool, struct gfs_chunks *chunks, uint64_t first,
                          size_t count)
{
    struct chunks_taking taking = {.pool = pool, .chunks = chunks, .next_rank = first};
    struct gfs_export export = {.first = first, .count = count, .access = GMSFS_ACCESS_WRITE};
    size_t before = chunks->count;

    if (count == 0)
        return 0;
    int error = gfs_export_ticket(pool->handle, &export);
    if (!error)
        error = gfs_export_redeem(pool->handle, &export, chunks_take, &taking);
    if (error)
        chunks_let_go_from(pool, chunks, before);
    return error;
}

/* ---- making and freeing ------------------------------------------------------------------- */

int gfs_graph_make_chunks(struct gmsfs_graph_pool *pool, struct gfs_chunks *chunks, size_t count,
                          unsigned alloc_flags)
{
    struct gmsfs_ioc_alloc alloc = {
        .size_bytes = pool->chunk_bytes, .count = (uint32_t)count, .flags = alloc_flags};

    if (count == 0)
        return 0;
    if (count > UINT32_MAX)
        return -ENOMEM;
    int error = gfs_chunks_make_room(chunks, chunks->count + count);
    if (!error)
        error = gfs_text_copy(alloc.tag, sizeof alloc.tag, GMSFS_GRAPH_TAG);
    if (!error)
        error = gfs_alloc(pool->handle, &alloc);
    if (error)
        return error;
    error = gfs_graph_hold_chunks(pool, chunks, alloc.rank, count);
    for (size_t i = 0; error && i < count; i++)
        gfs_alloc_free(pool->handle, alloc.slot + i);
    return error;
}

int gfs_graph_free_last_chunk(struct gmsfs_graph_pool *pool, struct gfs_chunks *chunks)
{
    int error = gfs_alloc_free(pool->handle, chunks->list[chunks->count - 1].slot);

    if (!error)
        chunks_let_go_from(pool, chunks, chunks->count - 1);
    return error;
}

/* ---- mapping ------------------------------------------------------------------------------ */

static void chunks_set_mapped(struct gmsfs_graph_space *space, size_t mapped)
{
    gfs_graph_state_lock(space->pool);
    space->mapped = mapped;
    gfs_graph_state_unlock(space->pool);
}

/* Sets the access of all new chunks in one call, as that is the expensive step. */
int gfs_graph_map(struct gmsfs_graph_space *space, size_t reach)
{
    struct gfs_memory *memory = &space->pool->handle->memory;
    const struct gfs_chunk *list = space->eager ? space->own.list : space->pool->shared.list;
    uint64_t chunk_bytes = space->pool->chunk_bytes, devices = 0;
    size_t from = space->mapped, at = from;
    uintptr_t start = space->base + from * chunk_bytes;
    int error = 0;

    if (reach <= from)
        return 0;
    error = gfs_memory_find_devices(memory, &devices);
    for (; at < reach && !error; at += !error)
        error = gfs_memory_map_held(memory, space->base + at * chunk_bytes, chunk_bytes,
                                    &list[at].held);
    if (!error)
        error = gfs_memory_settle(memory, start, (reach - from) * chunk_bytes, GMSFS_ACCESS_WRITE,
                                  devices);
    if (!error)
        chunks_set_mapped(space, reach);
    else if (at > from)
        gfs_memory_unmap(memory, start, (at - from) * chunk_bytes);
    return error;
}

int gfs_graph_unmap(struct gmsfs_graph_space *space, size_t reach)
{
    uint64_t chunk_bytes = space->pool->chunk_bytes;

    if (space->mapped <= reach)
        return 0;
    int error = gfs_memory_unmap(&space->pool->handle->memory, space->base + reach * chunk_bytes,
                                 (space->mapped - reach) * chunk_bytes);
    if (!error)
        chunks_set_mapped(space, reach);
    return error;
}

/* ---- growing ------------------------------------------------------------------------------ */

/* From the end of one list to the end of another, where there is room. */
static void chunks_move(struct gmsfs_graph_pool *pool, struct gfs_chunks *from,
                        struct gfs_chunks *to, size_t count)
{
    gfs_graph_state_lock(pool);
    for (; count; count--)
        to->list[to->count++] = from->list[--from->count];
    gfs_graph_state_unlock(pool);
}

void gfs_graph_return_own(struct gmsfs_graph_space *space, size_t keep)
{
    chunks_move(space->pool, &space->own, &space->pool->shared, space->own.count - keep);
}

/* Takes chunks that no space reaches before it makes new ones. `made`: number of new ones. The list
 * of the shared chunks has room for all chunks, so that taking them back cannot fail. */
static int chunks_provide(struct gmsfs_graph_space *space, size_t reach, unsigned alloc_flags,
                          size_t *made)
{
    struct gmsfs_graph_pool *pool = space->pool;
    struct gfs_chunks *chunks = space->eager ? &space->own : &pool->shared;
    size_t missing = reach > chunks->count ? reach - chunks->count : 0, surplus;
    int error = gfs_chunks_make_room(chunks, reach);

    if (!error)
        error = gfs_chunks_make_room(&pool->shared, gfs_graph_physical(pool) + missing);
    if (!error && space->eager) {
        surplus = pool->shared.count - gfs_graph_shared_reach(pool);
        surplus = surplus < missing ? surplus : missing;
        chunks_move(pool, &pool->shared, chunks, surplus);
        missing -= surplus;
    }
    if (!error)
        error = gfs_graph_make_chunks(pool, chunks, missing, alloc_flags);
    *made = error ? 0 : missing;
    return error;
}

int gfs_graph_grow(struct gmsfs_graph_space *space, size_t reach, unsigned alloc_flags)
{
    struct gmsfs_graph_pool *pool = space->pool;
    struct gfs_chunks *chunks = space->eager ? &space->own : &pool->shared;
    size_t made = 0, own = space->own.count;

    if (reach <= space->mapped)
        return 0;
    int error = chunks_provide(space, reach, alloc_flags, &made);
    if (!error)
        error = gfs_graph_map(space, reach);
    if (!error) {
        gfs_graph_state_lock(pool);
        space->reached = reach;
        gfs_graph_state_unlock(pool);
        gfs_graph_note_high(pool);
        return made ? (gfs_graph_note(pool), 0) : 0;
    }
    while (made && !gfs_graph_free_last_chunk(pool, chunks))
        made--;
    if (space->eager)
        gfs_graph_return_own(space, own);
    return error;
}
