/* SPDX-License-Identifier: Apache-2.0 */
/* Graph pools on a GPU's memory: the second GPU of the fake driver's machine. */
#include <dlfcn.h>

#include "cuda_fixture.h"
#include "graph_fixture.h"

static enum drv_result (*begin_capture)(struct drv_stream *stream, enum drv_capture_mode mode);
static enum drv_result (*end_capture)(struct drv_stream *stream, void **graph);
static enum drv_result (*reset_primary)(drv_device device);

static void find_symbols(void)
{
    void *library;

    driver();
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    require(library != NULL);
    *(void **)&begin_capture = dlsym(library, "cuStreamBeginCapture_v2");
    *(void **)&end_capture = dlsym(library, "cuStreamEndCapture");
    *(void **)&reset_primary = dlsym(library, "cuDevicePrimaryCtxReset_v2");
    dlclose(library);
}

/* Makes a stream in a context that is current. */
static struct drv_stream *new_stream(void)
{
    struct drv_stream *stream = NULL;

    require(cu->cuStreamCreate(&stream, DRV_STREAM_NON_BLOCKING) == DRV_SUCCESS);
    return stream;
}

/* ---- memory ------------------------------------------------------------------------------- */

TAP_TEST(spaces_alias_on_the_device_and_sleep_gives_everything_back)
{
    gmsfs_graph_pool_t *pool = fresh_pool();
    uint64_t before = device_free_bytes();
    unsigned char *a, *b, *buffer;

    require(gmsfs_graph_wake(pool, WAIT_MS) == 0);
    a = take(new_space(pool, 0), 3 * CHUNK);
    b = take(new_space(pool, 0), 2 * CHUNK);
    buffer = take(new_space(pool, GMSFS_GRAPH_EAGER), CHUNK);
    check_int(device_free_bytes(), before - 4 * CHUNK);
    for (int round = 1; round < 4; round++) {
        check_int(fill(a + CHUNK, round, CHUNK), DRV_SUCCESS);
        check_int(fill(buffer, 50, CHUNK), DRV_SUCCESS);
        check_int(byte_at(b + CHUNK), round);
        check_int(gmsfs_graph_sleep(pool, round == 2 ? GMSFS_GRAPH_KEEP : 0), 0);
        check_int(count_mapped(), 0);
        check_int(fill(a, 1, 1), DRV_INVALID_VALUE);
        wait_for_free(round == 2 ? before - 4 * CHUNK : before);
        check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    }
    end_pool(pool);
    check_int(count_mapped(), 0);
    wait_for_free(before);
}

TAP_TEST(growth_and_shrinking_leave_other_spaces_alone)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *large = new_space(pool, 0);
    unsigned char *a = take(new_space(pool, 0), CHUNK), *b = take(large, 5 * CHUNK);
    uint64_t freed = 0;

    check_int(fill(a, 8, 1), DRV_SUCCESS);
    check_int(fill(a + CHUNK, 1, 1), DRV_INVALID_VALUE);
    check_int(gmsfs_graph_space_dealloc(large, b), 0);
    check_int(gmsfs_graph_shrink(pool, &freed), 0);
    check_int(freed, 4 * CHUNK);
    check_int(fill(b, 1, 1), DRV_INVALID_VALUE);
    check_int(byte_at(a), 8);
    check(take(large, 6 * CHUNK) == b);
    check_int(byte_at(b), 8);
    check_int(fill(b + 6 * CHUNK - 1, 1, 1), DRV_SUCCESS);
}

TAP_TEST(ordinal_of_another_device_is_refused)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0);

    check_int(gmsfs_graph_select(space, NULL), 0);
    check(gmsfs_graph_alloc(1, 0, NULL) == NULL);
    check_int(gmsfs_graph_alloc_error(), -ENOENT);
    check(gmsfs_graph_alloc(1, 1, NULL) != NULL);
}

/* ---- calls of the driver that fail -------------------------------------------------------- */

/* Lets each call fail once, wherever it comes: a failed one changes nothing, and the next one
 * works. */
static void grow_with(gmsfs_graph_pool_t *pool, gmsfs_graph_space_t *space, const char *call,
                      int first)
{
    struct gmsfs_graph_stats before = stats_of(pool), after;
    char faults[100], text[GMSFS_DEVICE_ERROR_BYTES];
    int error, mapped = count_mapped();
    uint64_t room = device_free_bytes();
    void *ptr = NULL;

    snprintf(faults, sizeof faults, "fail %s 999 %d 1\n", call, first);
    control(faults);
    error = gmsfs_graph_space_alloc(space, 3 * CHUNK, &ptr);
    check_int(gmsfs_device_error(gmsfs_graph_handle(pool), text), 0);
    control("");
    check_int(error, -EIO);
    check(strstr(text, call) != NULL);
    after = stats_of(pool);
    check_bytes(&after, sizeof after, &before, sizeof before);
    check_int(count_mapped(), mapped);
    wait_for_free(room);
}

TAP_TEST(growth_that_the_driver_refuses_leaves_nothing_half_done)
{
    static const unsigned kinds[] = {0, GMSFS_GRAPH_EAGER};
    auto_pool *pool = fresh_awake_pool();

    for (int kind = 0; kind < 2; kind++) {
        gmsfs_graph_space_t *space = new_space(pool, kinds[kind]);
        unsigned char *kept = take(space, CHUNK);

        check_int(fill(kept, 5, CHUNK), DRV_SUCCESS);
        grow_with(pool, space, "cuMemImportFromShareableHandle", 1);
        grow_with(pool, space, "cuMemImportFromShareableHandle", 3);
        grow_with(pool, space, "cuMemMap", 1);
        grow_with(pool, space, "cuMemMap", 3);
        grow_with(pool, space, "cuMemSetAccess", 1);
        check_int(byte_at(kept), 5);
        check(take(space, 3 * CHUNK) == kept + CHUNK);
    }
}

static void wake_with(gmsfs_graph_pool_t *pool, const char *call, int first, const char *state)
{
    uint64_t room = device_free_bytes();
    char faults[100];
    int error;

    snprintf(faults, sizeof faults, "fail %s 999 %d 1\n", call, first);
    control(faults);
    error = gmsfs_graph_wake(pool, WAIT_MS);
    control("");
    check_int(error, -EIO);
    check_int(stats_of(pool).awake, 0);
    check_int(stats_of(pool).physical_bytes, 0);
    check_int(stats_of(pool).mapped_bytes, 0);
    check_int(count_mapped(), 0);
    check_str(read_line("state"), state);
    wait_for_free(room);
}

TAP_TEST(wake_that_the_driver_refuses_is_asleep_and_what_was_kept_stays)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool(), *small = open_pool(CHUNK);
    unsigned char *a = take(new_space(pool, 0), 3 * CHUNK), *b = take(new_space(pool, 0), CHUNK);

    take(new_space(pool, GMSFS_GRAPH_EAGER), CHUNK);
    check_int(gmsfs_graph_sleep(pool, 0), 0);
    wait_for_free(512 * MIB);
    for (int kept = 0; kept < 2; kept++) {
        const char *state = kept ? "COMMITTED" : "EMPTY";

        wake_with(pool, "cuMemImportFromShareableHandle", 2, state);
        wake_with(pool, "cuMemMap", 1, state);
        wake_with(pool, "cuMemMap", 5, state);
        wake_with(pool, "cuMemSetAccess", 3, state);
        if (kept)
            break;
        check_int(gmsfs_graph_wake(small, WAIT_MS), 0);
        take(new_space(small, 0), 2 * CHUNK);
        check_int(gmsfs_graph_sleep(small, GMSFS_GRAPH_KEEP), 0);
    }
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    check_int(fill(a, 6, 1), DRV_SUCCESS);
    check_int(byte_at(b), 6);
    gmsfs_graph_close(small);
    end_pool(pool);
}

TAP_TEST(sleep_that_fails_half_way_can_be_gone_on_with)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0);
    unsigned char *a = take(space, CHUNK), *b = take(new_space(pool, 0), CHUNK);
    void *ptr = NULL;

    control("fail cuMemUnmap 999 2 1\n");
    check_int(gmsfs_graph_sleep(pool, 0), -EIO);
    control("");
    check_str(read_line("state"), "RW");
    check_int(gmsfs_graph_space_alloc(space, 1, &ptr), -ENOLCK);
    check_int(gmsfs_graph_enter(pool, NULL, GMSFS_GRAPH_ORDER), -ENOLCK);
    check_int(gmsfs_graph_shrink(pool, NULL), -ENOLCK);
    check_int(gmsfs_graph_space_free(space), -ENOLCK);
    check_int(gmsfs_graph_wake(pool, 0), -EBUSY);
    check_int(gmsfs_graph_sleep(pool, 0), 0);
    check_int(count_mapped(), 0);
    check_str(read_line("state"), "EMPTY");
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    check_int(fill(a, 2, 1), DRV_SUCCESS);
    check_int(byte_at(b), 2);
}

/* ---- captures ----------------------------------------------------------------------------- */

/* A capture of the strictest mode, which any unsafe call would break. */
TAP_TEST(pair_allocates_in_a_capture_without_breaking_it)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0), *idle = new_space(pool, 0);
    struct drv_stream *stream;
    unsigned char *ptr;
    uint64_t freed;
    void *graph;

    find_symbols();
    push_context();
    stream = new_stream();
    check_int(gmsfs_graph_select(space, stream), 0);
    check_int(begin_capture(stream, DRV_CAPTURE_MODE_GLOBAL), DRV_SUCCESS);
    ptr = gmsfs_graph_alloc((intptr_t)(3 * CHUNK), 1, stream);
    check(ptr != NULL);
    gmsfs_graph_dealloc(gmsfs_graph_alloc(100, 1, stream), 100, 1, stream);
    check_int(gmsfs_graph_sleep(pool, 0), -EBUSY);
    check_int(gmsfs_graph_shrink(pool, &freed), -EBUSY);
    check_int(gmsfs_graph_enter(pool, stream, GMSFS_GRAPH_ORDER), -EBUSY);
    check_int(gmsfs_graph_space_free(idle), 0);
    check_int(end_capture(stream, &graph), DRV_SUCCESS);
    check_int(gmsfs_graph_deselect(pool, stream), 0);
    check_int(fill(ptr, 1, 3 * CHUNK), DRV_SUCCESS);
    cu->cuStreamDestroy_v2(stream);
    pop_context();
}

TAP_TEST(capture_elsewhere_that_was_named_holds_sleep_off_and_not_wake)
{
    auto_pool *pool = fresh_awake_pool();
    struct drv_stream *stream;
    void *graph;

    take(new_space(pool, 0), CHUNK);
    find_symbols();
    push_context();
    stream = new_stream();
    check_int(gmsfs_set_streams(gmsfs_graph_handle(pool), (void *const *)&stream, 1), 0);
    check_int(begin_capture(stream, DRV_CAPTURE_MODE_GLOBAL), DRV_SUCCESS);
    check_int(gmsfs_graph_sleep(pool, 0), -EBUSY);
    check_int(stats_of(pool).awake, 1);
    check_int(end_capture(stream, &graph), DRV_SUCCESS);
    check_int(gmsfs_graph_sleep(pool, 0), 0);
    check_int(begin_capture(stream, DRV_CAPTURE_MODE_GLOBAL), DRV_SUCCESS);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    check_int(end_capture(stream, &graph), DRV_SUCCESS);
    check_int(gmsfs_set_streams(gmsfs_graph_handle(pool), NULL, 0), 0);
    cu->cuStreamDestroy_v2(stream);
    pop_context();
}

/* ---- the guard ---------------------------------------------------------------------------- */

/* Copies of the fake driver with `lazy` are done when a wait needs them. */
TAP_TEST(guard_orders_launches_on_the_device_or_refuses_them)
{
    static unsigned char one = 1;
    auto_pool *pool = fresh_awake_pool();
    unsigned char *a = take(new_space(pool, 0), 1);
    struct drv_stream *first, *second;

    push_context();
    first = new_stream();
    second = new_stream();
    check_int(fill(a, 0, 1), DRV_SUCCESS);
    check_int(gmsfs_graph_enter(pool, second, GMSFS_GRAPH_REFUSE), 0);
    check_int(gmsfs_graph_leave(pool, second), 0);
    control("lazy 1\n");
    check_int(gmsfs_graph_enter(pool, first, GMSFS_GRAPH_ORDER), 0);
    check_int(cu->cuMemcpyHtoDAsync_v2((uintptr_t)a, &one, 1, first), DRV_SUCCESS);
    check_int(gmsfs_graph_leave(pool, first), 0);
    check_int(a[0], 0);
    check_int(gmsfs_graph_enter(pool, second, GMSFS_GRAPH_REFUSE), -EBUSY);
    check_int(a[0], 0);
    check_int(gmsfs_graph_enter(pool, second, GMSFS_GRAPH_ORDER), 0);
    check_int(a[0], 1);
    check_int(gmsfs_graph_leave(pool, second), 0);
    check_int(gmsfs_graph_enter(pool, second, GMSFS_GRAPH_REFUSE), 0);
    check_int(gmsfs_graph_leave(pool, second), 0);
    control("");
    cu->cuStreamDestroy_v2(first);
    cu->cuStreamDestroy_v2(second);
    pop_context();
}

TAP_TEST(sleep_waits_for_what_was_launched)
{
    static unsigned char one = 1;
    auto_pool *pool = fresh_awake_pool();
    unsigned char *a = take(new_space(pool, 0), 1);
    struct drv_stream *stream;

    push_context();
    stream = new_stream();
    check_int(fill(a, 0, 1), DRV_SUCCESS);
    control("lazy 1\n");
    check_int(cu->cuMemcpyHtoDAsync_v2((uintptr_t)a, &one, 1, stream), DRV_SUCCESS);
    check_int(gmsfs_graph_sleep(pool, GMSFS_GRAPH_KEEP), 0);
    control("");
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    check_int(byte_at(a), 1);
    cu->cuStreamDestroy_v2(stream);
    pop_context();
}

/* The program resets its device and begins again; late releases are ignored or counted. */
TAP_TEST(pair_and_pool_survive_the_end_of_the_context)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0);
    void *ptr;

    find_symbols();
    check_int(gmsfs_graph_select(space, NULL), 0);
    ptr = gmsfs_graph_alloc(100, 1, NULL);
    check(ptr != NULL);
    check_int(gmsfs_graph_deselect(pool, NULL), 0);
    check_int(reset_primary(1), DRV_SUCCESS);
    gmsfs_graph_dealloc(ptr, 100, 1, NULL);
    check_int(stats_of(pool).live, 0);
    check(take(space, 2 * CHUNK) == ptr);
    check_int(gmsfs_graph_sleep(pool, 0), 0);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    check_int(fill(ptr, 3, 2 * CHUNK), DRV_SUCCESS);
    end_pool(pool);
    gmsfs_graph_dealloc(ptr, 100, 1, NULL);
}

TAP_TEST(lost_device_is_told_and_the_pool_can_be_closed)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0);
    void *ptr = take(space, 1);

    control("fail * 46\n");
    check(gmsfs_graph_sleep(pool, 0) < 0);
    gmsfs_graph_dealloc(ptr, 1, 1, NULL);
    check_int(stats_of(pool).live, 0);
    gmsfs_graph_close(pool);
    control("");
    remove_store();
}
