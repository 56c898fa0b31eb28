/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library_graph - the steps of `library` on graph pools; only library.c includes it
 *
 * Their store lies beside the others, and is empty before each step.
 */
#ifndef GMSFS_TESTS_FAULT_LIBRARY_GRAPH_H
#define GMSFS_TESTS_FAULT_LIBRARY_GRAPH_H

#define GRAPH_CHUNK  65536u
#define GRAPH_ROOM   (64u * GRAPH_CHUNK)
#define GRAPH_STREAM ((void *)64)

static const char *graph_store(void)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/../graph", store);
    return path;
}

static void take(gmsfs_graph_space_t *space, uint64_t chunks)
{
    void *ptr;

    must(gmsfs_graph_space_alloc(space, chunks * GRAPH_CHUNK, &ptr), "graph_space_alloc");
}

/* Two spaces over three chunks, and one with two chunks of its own. */
static void pool_awake(struct scene *scene)
{
    must(gmsfs_graph_open(graph_store(), GRAPH_CHUNK, &scene->pool), "graph_open");
    must(gmsfs_graph_wake(scene->pool, WAIT_MS), "graph_wake");
    must(gmsfs_graph_space_new(scene->pool, GRAPH_ROOM, 0, &scene->space), "graph_space_new");
    take(scene->space, 3);
    must(gmsfs_graph_space_new(scene->pool, GRAPH_ROOM, GMSFS_GRAPH_EAGER, &scene->space),
         "graph_space_new");
    take(scene->space, 2);
    must(gmsfs_graph_space_new(scene->pool, GRAPH_ROOM, 0, &scene->space), "graph_space_new");
    must(gmsfs_graph_space_alloc(scene->space, GRAPH_CHUNK, &scene->ptr), "graph_space_alloc");
}

static void pool_asleep(struct scene *scene)
{
    pool_awake(scene);
    must(gmsfs_graph_sleep(scene->pool, 0), "graph_sleep");
}

/* Another pool left one chunk, so more must be made. */
static void pool_over_kept(struct scene *scene)
{
    gmsfs_graph_pool_t *other;
    gmsfs_graph_space_t *space;

    pool_asleep(scene);
    must(gmsfs_graph_open(graph_store(), GRAPH_CHUNK, &other), "graph_open");
    must(gmsfs_graph_wake(other, WAIT_MS), "graph_wake");
    must(gmsfs_graph_space_new(other, GRAPH_ROOM, 0, &space), "graph_space_new");
    take(space, 1);
    must(gmsfs_graph_sleep(other, GMSFS_GRAPH_KEEP), "graph_sleep");
    gmsfs_graph_close(other);
}

static void pool_without_store(struct scene *scene)
{
    pool_asleep(scene);
    must(rmdir(graph_store()) ? -errno : 0, "rmdir");
}

static void pool_with_eager(struct scene *scene)
{
    pool_awake(scene);
    must(gmsfs_graph_space_new(scene->pool, GRAPH_ROOM, GMSFS_GRAPH_EAGER, &scene->space),
         "graph_space_new");
}

static void pool_with_idle(struct scene *scene)
{
    pool_awake(scene);
    take(scene->space, 9);
    must(gmsfs_graph_space_dealloc(scene->space, (char *)scene->ptr + GRAPH_CHUNK), "dealloc");
    must(gmsfs_graph_space_dealloc(scene->space, scene->ptr), "dealloc");
}

static int do_graph_open(struct scene *scene)
{
    return gmsfs_graph_open(graph_store(), GRAPH_CHUNK, &scene->pool);
}

static int do_graph_wake(struct scene *scene)
{
    int result = gmsfs_graph_wake(scene->pool, WAIT_MS);

    if (result == 0)
        memset(scene->ptr, 1, GRAPH_CHUNK);
    return result;
}

static int do_graph_space_new(struct scene *scene)
{
    return gmsfs_graph_space_new(scene->pool, GRAPH_ROOM, 0, &scene->space);
}

static int do_graph_alloc(struct scene *scene)
{
    struct gmsfs_graph_stats before = {0}, after = {0};
    int result;

    must(gmsfs_graph_get_stats(scene->pool, &before), "graph_get_stats");
    result = gmsfs_graph_space_alloc(scene->space, 7 * GRAPH_CHUNK, &scene->ptr);
    if (result == 0) {
        memset(scene->ptr, 1, 7 * GRAPH_CHUNK);
        return 0;
    }
    must(gmsfs_graph_get_stats(scene->pool, &after), "graph_get_stats");
    if (memcmp(&before, &after, sizeof before) != 0)
        complain("graph_space_alloc: failed, and the pool is another");
    return result;
}

static int do_graph_select(struct scene *scene)
{
    int result = gmsfs_graph_select(scene->space, GRAPH_STREAM);

    return result ? result : gmsfs_graph_deselect(scene->pool, GRAPH_STREAM);
}

static int do_graph_space_free(struct scene *scene)
{
    return gmsfs_graph_space_free(scene->space);
}

static int do_graph_grow(struct scene *scene)
{
    return gmsfs_graph_grow(scene->pool, 3 * GRAPH_CHUNK);
}

static int do_graph_shrink(struct scene *scene)
{
    return gmsfs_graph_shrink(scene->pool, NULL);
}

static int do_graph_sleep(struct scene *scene)
{
    return gmsfs_graph_sleep(scene->pool, 0);
}

static int do_graph_keep(struct scene *scene)
{
    return gmsfs_graph_sleep(scene->pool, GMSFS_GRAPH_KEEP);
}

#define GRAPH_STEPS                                                                     \
    {"graph_open", nothing, do_graph_open}, {"graph_wake", pool_asleep, do_graph_wake}, \
        {"graph_wake kept", pool_over_kept, do_graph_wake},                             \
        {"graph_wake removed", pool_without_store, do_graph_wake},                      \
        {"graph_space_new", pool_awake, do_graph_space_new},                            \
        {"graph_space_alloc", pool_awake, do_graph_alloc},                              \
        {"graph_space_alloc eager", pool_with_eager, do_graph_alloc},                   \
        {"graph_select", pool_awake, do_graph_select},                                  \
        {"graph_space_free", pool_with_idle, do_graph_space_free},                      \
        {"graph_grow", pool_awake, do_graph_grow},                                      \
        {"graph_shrink", pool_with_idle, do_graph_shrink},                              \
        {"graph_sleep", pool_awake, do_graph_sleep},                                    \
        {"graph_sleep keep", pool_awake, do_graph_keep},

#endif
