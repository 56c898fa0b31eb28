/* SPDX-License-Identifier: Apache-2.0 */
/* Graph pools by random operations in any order, compared with a model of a few lines: the place of
 * each segment, the number of chunks, and the bytes that are shared. */
#include "graph_fixture.h"

#define SPACES   8
#define SEGMENTS 12
#define CHUNKS   12 /* addresses of a space */
#define STEPS    1500
#define SEEDS    4

#define MODEL_CHUNK (2 * MIB)

struct model_segment {
    uint64_t offset, size_bytes; /* size 0 if none */
};

struct model_space {
    gmsfs_graph_space_t *space; /* NULL if none */
    unsigned char *base;
    int eager;
    size_t reached;
    struct model_segment segments[SEGMENTS];
    int bytes[CHUNKS]; /* of an eager one: the first of each chunk; -1 for any */
};

struct model {
    gmsfs_graph_pool_t *pool;
    struct model_space spaces[SPACES];
    int awake;
    size_t shared; /* chunks that no eager space has */
    size_t stored; /* asleep: chunks kept in the store */
    size_t high;
    int bytes[SPACES * CHUNKS]; /* of shared chunks */
    uint64_t random;
};

static uint64_t draw(struct model *model, uint64_t below)
{
    model->random ^= model->random << 13;
    model->random ^= model->random >> 7;
    model->random ^= model->random << 17;
    return model->random % below;
}

/* ---- consequences of the model -------------------------------------------------------------- */

static size_t chunks_of(uint64_t bytes)
{
    return (size_t)((bytes + MODEL_CHUNK - 1) / MODEL_CHUNK);
}

static size_t shared_reach(const struct model *model)
{
    size_t reach = 0;

    for (int i = 0; i < SPACES; i++)
        if (model->spaces[i].space && !model->spaces[i].eager && model->spaces[i].reached > reach)
            reach = model->spaces[i].reached;
    return reach;
}

static size_t eager_chunks(const struct model *model)
{
    size_t count = 0;

    for (int i = 0; i < SPACES; i++)
        if (model->spaces[i].space && model->spaces[i].eager)
            count += model->spaces[i].reached;
    return count;
}

static uint64_t live_end(const struct model_space *space)
{
    uint64_t end = 0;

    for (int i = 0; i < SEGMENTS; i++)
        if (space->segments[i].size_bytes &&
            space->segments[i].offset + space->segments[i].size_bytes > end)
            end = space->segments[i].offset + space->segments[i].size_bytes;
    return end;
}

/* Returns the lowest multiple of 512 at which it overlaps none; UINT64_MAX if there is none. */
static uint64_t lowest_gap(const struct model_space *space, uint64_t size_bytes)
{
    uint64_t at = 0, rounded = (size_bytes + 511) & ~UINT64_C(511);
    int moved = 1;

    while (moved) {
        moved = 0;
        for (int i = 0; i < SEGMENTS; i++) {
            const struct model_segment *other = space->segments + i;
            uint64_t end = (other->offset + other->size_bytes + 511) & ~UINT64_C(511);

            if (other->size_bytes && at < end && other->offset < at + rounded) {
                at = end;
                moved = 1;
            }
        }
    }
    return at + rounded <= CHUNKS * MODEL_CHUNK ? at : UINT64_MAX;
}

static void forget_bytes(int *bytes, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        bytes[i] = -1;
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void step_new(struct model *model, struct model_space *space)
{
    struct gmsfs_graph_space_stats stats;
    unsigned flags = draw(model, 4) == 0 ? GMSFS_GRAPH_EAGER : 0;

    memset(space, 0, sizeof *space);
    require(gmsfs_graph_space_new(model->pool, CHUNKS * MODEL_CHUNK, flags, &space->space) == 0);
    stats = space_stats_of(space->space);
    space->base = stats.base;
    space->eager = flags != 0;
    forget_bytes(space->bytes, 0, CHUNKS);
}

static void reach(struct model *model, struct model_space *space, size_t to)
{
    size_t more = to > space->reached ? to - space->reached : 0, surplus;

    if (space->eager) {
        surplus = model->shared - shared_reach(model);
        surplus = surplus < more ? surplus : more;
        model->shared -= surplus;
        space->reached += more;
    } else if (more) {
        space->reached = to;
        if (to > model->shared) {
            forget_bytes(model->bytes, model->shared, to);
            model->shared = to;
        }
    }
    if (model->shared + eager_chunks(model) > model->high)
        model->high = model->shared + eager_chunks(model);
}

static void step_alloc(struct model *model, struct model_space *space)
{
    static const uint64_t sizes[] = {1, 700, MODEL_CHUNK / 2, MODEL_CHUNK, 3 * MODEL_CHUNK + 1};
    uint64_t size_bytes = sizes[draw(model, 5)], expected = lowest_gap(space, size_bytes);
    void *ptr = NULL;
    int slot = 0, result;

    while (slot < SEGMENTS && space->segments[slot].size_bytes)
        slot++;
    if (slot == SEGMENTS)
        return;
    result = gmsfs_graph_space_alloc(space->space, size_bytes, &ptr);
    if (!model->awake || expected == UINT64_MAX) {
        check_int(result, model->awake ? -ENOSPC : -ENOLCK);
        return;
    }
    require(result == 0);
    check_int((unsigned char *)ptr - space->base, expected);
    space->segments[slot] = (struct model_segment){expected, size_bytes};
    reach(model, space, chunks_of(expected + size_bytes));
}

static void step_dealloc(struct model *model, struct model_space *space)
{
    struct model_segment *segment = space->segments + draw(model, SEGMENTS);

    if (!segment->size_bytes)
        return;
    if (draw(model, 2))
        gmsfs_graph_dealloc(space->base + segment->offset, 1, 0, NULL);
    else
        check_int(gmsfs_graph_space_dealloc(space->space, space->base + segment->offset), 0);
    segment->size_bytes = 0;
}

static void step_free(struct model *model, struct model_space *space)
{
    int result = gmsfs_graph_space_free(space->space);

    if (live_end(space)) {
        check_int(result, -EBUSY);
        return;
    }
    require(result == 0);
    if (space->eager && model->awake) {
        forget_bytes(model->bytes, model->shared, model->shared + space->reached);
        model->shared += space->reached;
    }
    space->space = NULL;
}

static void step_shrink(struct model *model)
{
    size_t before = model->shared + eager_chunks(model);
    uint64_t freed = 0;
    int result = gmsfs_graph_shrink(model->pool, &freed);

    if (!model->awake) {
        check_int(result, -ENOLCK);
        return;
    }
    require(result == 0);
    for (int i = 0; i < SPACES; i++)
        model->spaces[i].reached = chunks_of(live_end(model->spaces + i));
    model->shared = shared_reach(model);
    check_int(freed, (before - model->shared - eager_chunks(model)) * MODEL_CHUNK);
}

static void step_grow(struct model *model)
{
    size_t total = model->shared + eager_chunks(model), wanted = draw(model, CHUNKS), made;
    int result = gmsfs_graph_grow(model->pool, wanted * MODEL_CHUNK);

    if (!model->awake) {
        check_int(result, -ENOLCK);
        return;
    }
    require(result == 0);
    if (wanted <= total)
        return;
    made = wanted - total;
    forget_bytes(model->bytes, model->shared, model->shared + made);
    model->shared += made;
    if (wanted > model->high)
        model->high = wanted;
}

static void step_sleep_or_wake(struct model *model)
{
    unsigned flags = draw(model, 2) ? GMSFS_GRAPH_KEEP : 0;
    size_t total = model->shared + eager_chunks(model), needed;

    if (model->awake) {
        require(gmsfs_graph_sleep(model->pool, flags) == 0);
        model->stored = flags ? total : 0;
        model->shared = 0;
        check_str(read_line("state"), flags ? "COMMITTED" : "EMPTY");
    } else {
        require(check_int(gmsfs_graph_wake(model->pool, WAIT_MS), 0));
        needed = shared_reach(model) + eager_chunks(model);
        total = needed > model->stored ? needed : model->stored;
        model->shared = total - eager_chunks(model);
        model->high = total > model->high ? total : model->high;
    }
    model->awake = !model->awake;
    forget_bytes(model->bytes, 0, SPACES * CHUNKS);
    for (int i = 0; i < SPACES; i++)
        forget_bytes(model->spaces[i].bytes, 0, CHUNKS);
}

/* ---- checks --------------------------------------------------------------------------------- */

static void check_stats(const struct model *model)
{
    struct gmsfs_graph_stats stats = stats_of(model->pool);
    size_t mapped = 0, spaces = 0, live = 0;

    for (int i = 0; i < SPACES; i++) {
        const struct model_space *space = model->spaces + i;

        if (!space->space)
            continue;
        spaces++;
        mapped += model->awake ? space->reached : 0;
        for (int j = 0; j < SEGMENTS; j++)
            live += space->segments[j].size_bytes != 0;
        check_int(space_stats_of(space->space).reached_bytes, space->reached * MODEL_CHUNK);
    }
    check_int(stats.awake, model->awake);
    check_int(stats.physical_bytes,
              model->awake ? (model->shared + eager_chunks(model)) * MODEL_CHUNK : 0);
    check_int(stats.needed_bytes, (shared_reach(model) + eager_chunks(model)) * MODEL_CHUNK);
    check_int(stats.eager_bytes, eager_chunks(model) * MODEL_CHUNK);
    check_int(stats.high_bytes, model->high * MODEL_CHUNK);
    check_int(stats.mapped_bytes, mapped * MODEL_CHUNK);
    check_int(stats.spaces, spaces);
    check_int(stats.live, live);
}

/* A byte is written through one space, and read through all. */
static void check_bytes_of(struct model *model, struct model_space *space)
{
    size_t chunk = space->reached ? draw(model, space->reached) : 0;
    int value = (int)draw(model, 256);

    if (!model->awake || !space->reached)
        return;
    space->base[chunk * MODEL_CHUNK] = (unsigned char)value;
    (space->eager ? space->bytes : model->bytes)[chunk] = value;
    for (int i = 0; i < SPACES; i++) {
        const struct model_space *other = model->spaces + i;
        const int *bytes = other->eager ? other->bytes : model->bytes;

        for (size_t k = 0; other->space && k < other->reached; k++)
            if (bytes[k] >= 0)
                check_int(other->base[k * MODEL_CHUNK], bytes[k]);
    }
}

static void step(struct model *model)
{
    struct model_space *space = model->spaces + draw(model, SPACES);
    uint64_t what = draw(model, 100);

    if (!space->space)
        step_new(model, space);
    else if (what < 45)
        step_alloc(model, space);
    else if (what < 75)
        step_dealloc(model, space);
    else if (what < 85)
        step_free(model, space);
    else if (what < 90)
        step_shrink(model);
    else if (what < 92)
        step_grow(model);
    else
        step_sleep_or_wake(model);
    check_stats(model);
    if (space->space)
        check_bytes_of(model, space);
}

static void walk(uint64_t seed)
{
    static struct model model;

    if (access(graph_path(), F_OK) == 0)
        remove_store();
    model = (struct model){.pool = open_pool(MODEL_CHUNK), .random = seed};
    for (int i = 0; i < STEPS && !tap_failed; i++) {
        step(&model);
        if (tap_failed)
            fprintf(stderr, "# seed %lu, step %d\n", (unsigned long)seed, i);
    }
    end_pool(model.pool);
}

TAP_TEST(any_order_of_operations_agrees_with_the_model)
{
    const char *seed = getenv("GMSFS_GRAPH_SEED");

    if (seed) {
        walk(strtoul(seed, NULL, 0));
        return;
    }
    for (uint64_t i = 1; i <= SEEDS && !tap_failed; i++)
        walk(i * UINT64_C(0x9e3779b97f4a7c15));
}
