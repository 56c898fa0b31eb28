/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the ring through which bytes go to a GPU: its lanes and buffers, their preparation before
 * there is work, and the number of threads. */
#include "staging_fixture.h"

/* ---- lanes and buffers --------------------------------------------------------------------- */

TAP_TEST(each_gpu_has_lanes_of_its_own)
{
    static const uint64_t sizes[] = {1000, 2000, STEP_BYTES, 3, 77, STEP_BYTES + 5, 9, 10, 11};
    struct staging_memory memory[2];
    struct staging *staging = begin(LAZY, memory);

    for (int i = 0; i < 4; i++)
        go_round(staging, &memory[i % 2], sizes, 9, 1);
    require(staging->lanes && staging->lanes->next && !staging->lanes->next->next);
    check(staging->lanes->device == memory[1].device);
    check(staging->lanes->next->device == memory[0].device);
    end(staging);
}

TAP_TEST(many_threads_share_a_ring_of_one_size)
{
    static const uint64_t sizes[] = {3 * WORK_PIECE_BYTES, 100, 2 * WORK_PIECE_BYTES - 1};
    struct staging_memory memory[2];
    struct staging *staging = begin(LAZY, memory);

    go_round(staging, memory, sizes, 3, WORK_MAX_THREADS);
    size_t bytes = cuda_device(memory->device)->buffer_bytes;
    check(bytes * STAGING_BUFFERS * WORK_MAX_THREADS <= STAGING_RING_BYTES);
    check(bytes >= 4096);
    end(staging);
}

TAP_TEST(a_gpu_beside_an_idle_one_works_as_if_it_were_alone)
{
    static const uint64_t sizes[] = {3 * WORK_PIECE_BYTES};

    for (int idle = 0; idle < 2; idle++) {
        struct staging_memory memory[2];
        struct staging *staging = begin(LAZY, memory);
        const struct cuda_device *device = cuda_device(memory->device);

        if (idle)
            staging_set_idle(&memory[1]);
        go_round(staging, memory, sizes, 1, STAGING_GPU_THREADS);
        check((device->buffer_bytes == STAGING_BUFFER_MAX_BYTES) == idle);
        check((device->stream == NULL) == idle); /* streams of the lanes' own */
        end(staging);
    }
}

TAP_TEST(threads_that_come_again_find_their_buffers)
{
    static const uint64_t sizes[] = {WORK_PIECE_BYTES};
    struct staging_memory memory[2];
    struct staging *staging = begin(LAZY, memory);

    go_round(staging, memory, sizes, 1, 1);
    check(staging->lanes != NULL && staging->lanes->next == NULL);
    /* Pinning again would fail. */
    check(fake_cuda_control(LAZY "fail cuMemHostRegister_v2 2\n"));
    go_round(staging, memory, sizes, 1, 1);
    end(staging);
}

TAP_TEST(a_buffer_is_pinned_only_where_the_thread_would_wait)
{
    static const uint64_t sizes[] = {8 * STEP_BYTES};
    static const struct {
        const char *control;
        unsigned pinned;
    } drivers[] = {{"devices 2\n", 1}, {LAZY, STAGING_BUFFERS}};
    struct staging_memory memory[2];

    for (size_t i = 0; i < 2; i++) {
        struct staging *staging = begin(drivers[i].control, memory);
        uint8_t *to[] = {gpu_new(memory, sizes[0])};
        struct job job = {.memory = memory, .to = to, .starts = &(uint64_t){0}};
        job.source = bytes_new(sizes[0], 1);
        check_int(job_run(staging, &job, sizes, 1, 1, job_send), 0);
        check_int(cuda_lane(staging->lanes)->pinned, drivers[i].pinned);
        gpu_free(memory, to[0]);
        free((void *)job.source);
        end(staging);
    }
}

TAP_TEST(a_buffer_that_is_for_speed_alone_may_be_refused)
{
    static const char *const calls[] = {"cuMemHostRegister_v2", "cuEventCreate"};
    static const uint64_t sizes[] = {8 * STEP_BYTES, 1, 3 * STEP_BYTES + 5};
    struct staging_memory memory[2];
    struct failure failure;
    char control[200];
    bool is_told;

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        snprintf(control, sizeof control, LAZY "fail %s 2 2\n", calls[i]);
        struct staging *staging = begin(control, memory);
        go_round(staging, memory, sizes, 3, 1);
        check_int(cuda_lane(staging->lanes)->pinned, 1);
        check(!staging_get_failure(staging, &failure, &is_told));
        end(staging);
    }
}

/* Lists the sizes that staging_room gives one thread, in order. */
static size_t rooms[16], room_count;

static int job_note_rooms(void *context, const struct work_piece *piece, void *own)
{
    const struct job *job = context;
    uint8_t *to = job->to[0] + piece->offset_bytes, *room;
    size_t step;
    int r = 0;

    for (size_t at = 0; !r && at < piece->size_bytes; at += step) {
        r = staging_room(own, job->memory, to + at, piece->size_bytes - at, &room, &step);
        if (!r)
            r = staging_send(own, job->memory, to + at, room, step);
        if (room_count < 16)
            rooms[room_count++] = step;
    }
    return r;
}

TAP_TEST(the_first_bytes_of_a_thread_are_few_in_each_work)
{
    static const uint64_t sizes[] = {2 * WORK_PIECE_BYTES};
    struct staging_memory memory[2];
    struct staging *staging = begin("devices 2\n", memory);
    uint8_t *to[] = {gpu_new(memory, sizes[0])};
    struct job job = {.memory = memory, .to = to};

    for (int i = 0; i < 2; i++) {
        room_count = 0;
        check_int(job_run(staging, &job, sizes, 1, 1, job_note_rooms), 0);
        check_int(rooms[0], STAGING_FIRST_BYTES);
        check_int(rooms[1], 2 * STAGING_FIRST_BYTES);
        check_int(rooms[room_count - 2], STAGING_BUFFER_MAX_BYTES);
    }
    gpu_free(memory, to[0]);
    end(staging);
}

/* ---- made before there is work -------------------------------------------------------------- */

static unsigned count_pinned(const struct staging *staging)
{
    unsigned pinned = 0;

    for (const struct staging_lane *lane = staging->lanes; lane; lane = lane->next)
        pinned += cuda_lane(lane)->pinned;
    return pinned;
}

TAP_TEST(buffers_of_threads_are_made_before_there_is_work)
{
    static const uint64_t sizes[] = {3 * WORK_PIECE_BYTES};
    struct staging_memory memory[2];
    struct staging *staging = begin(LAZY, memory);

    staging_warm(memory, 2, 10 * WORK_PIECE_BYTES);
    staging_warm(memory, 9, 10 * WORK_PIECE_BYTES); /* once is enough */
    go_round(staging, memory, sizes, 1, 2);
    check_int(count_pinned(staging), 2 * STAGING_BUFFERS);
    check(cuda_lane(staging->lanes)->is_of_block);
    check(cuda_lane(staging->lanes)->stream == cuda_lane(staging->lanes->next)->stream);
    end(staging);
}

TAP_TEST(all_that_threads_need_is_pinned_by_one_call)
{
    static const uint64_t sizes[] = {6 * WORK_PIECE_BYTES};
    struct staging_memory memory[2];
    struct staging *staging = begin(LAZY "fail cuMemHostRegister_v2 2 2\n", memory);

    staging_warm(memory, 5, UINT64_MAX);
    go_round(staging, memory, sizes, 1, 5);
    check_int(count_pinned(staging), 5 * STAGING_BUFFERS);
    end(staging);
}

/* As for a load of one store: pages before the device is open, as many as its threads will use. */
TAP_TEST(pages_that_were_made_early_are_pinned)
{
    static const struct {
        unsigned threads;
        uint64_t bytes;
        size_t pages_bytes;
        unsigned pinned;
    } works[] = {
        {1, UINT64_MAX, STAGING_BUFFERS * STAGING_BUFFER_MAX_BYTES, STAGING_BUFFERS},
        {5, WORK_PIECE_BYTES + 1, 2 * STAGING_BUFFERS * STAGING_BUFFER_MAX_BYTES,
         2 * STAGING_BUFFERS},
        {40, UINT64_MAX, STAGING_RING_BYTES, 40 * STAGING_BUFFERS},
    };
    static const uint64_t sizes[] = {WORK_PIECE_BYTES};
    struct staging_memory memory[2];

    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        expected_threads = works[i].threads;
        expected_bytes = works[i].bytes;
        struct staging *staging = begin(LAZY, memory);
        staging_set_idle(&memory[1]);
        staging_warm(memory, works[i].threads, works[i].bytes);
        go_round(staging, memory, sizes, 1, 1);
        check_int(cuda_device(memory->device)->block_bytes, works[i].pages_bytes);
        check_int(count_pinned(staging), works[i].pinned);
        end(staging);
    }
    expected_bytes = 0;
}

TAP_TEST(of_pages_made_early_a_device_keeps_its_share_of_the_ring_bytes)
{
    static const uint64_t sizes[] = {WORK_PIECE_BYTES};
    struct staging_memory memory[2];

    expected_threads = 40;
    expected_bytes = UINT64_MAX;
    struct staging *staging = begin(LAZY, memory);
    staging_warm(memory, expected_threads, UINT64_MAX);
    go_round(staging, memory, sizes, 1, 1);
    check_int(cuda_device(memory->device)->block_bytes, STAGING_SHARED_RING_BYTES / 2);
    check_int(count_pinned(staging), 40 * STAGING_BUFFERS);
    end(staging);
    expected_bytes = 0;
}

TAP_TEST(no_more_is_made_before_than_there_are_bytes)
{
    static const struct {
        uint64_t bytes;
        unsigned lanes;
    } works[] = {{0, 0}, {1, 1}, {WORK_PIECE_BYTES, 1}, {WORK_PIECE_BYTES + 1, 2}};
    struct staging_memory memory[2];

    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        struct staging *staging = begin(LAZY, memory);
        staging_warm(memory, 9, works[i].bytes);
        go_round(staging, memory, &(uint64_t){works[i].bytes}, 1, 1);
        check(count_pinned(staging) >= works[i].lanes * STAGING_BUFFERS);
        check(count_pinned(staging) < (works[i].lanes + 1) * STAGING_BUFFERS);
        end(staging);
    }
}

TAP_TEST(buffers_that_fail_early_are_made_by_the_work)
{
    static const char *const calls[] = {"cuMemHostRegister_v2 2 1 1", "cuEventCreate 2 2 1"};
    static const uint64_t sizes[] = {3 * WORK_PIECE_BYTES};
    struct staging_memory memory[2];
    char control[200];

    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        snprintf(control, sizeof control, LAZY "fail %s\n", calls[i]);
        struct staging *staging = begin(control, memory);
        staging_warm(memory, 1, WORK_PIECE_BYTES);
        go_round(staging, memory, sizes, 1, 1);
        check(!cuda_lane(staging->lanes)->is_of_block);
        check(cuda_lane(staging->lanes)->pinned > 0);
        end(staging);
    }
}

/* ---- threads -------------------------------------------------------------------------------- */

TAP_TEST(devices_near_the_same_processors_share_them)
{
    struct staging_memory memory[2];
    struct staging *staging = begin("devices 2\n", memory);
    cpu_set_t allowed;
    unsigned count;

    require(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    count = (unsigned)CPU_COUNT(&allowed);
    memory[0].device->has_near = memory[1].device->has_near = false;
    check_int(staging_count_processors(memory), count > 2 ? count / 2 : 1);
    memory[0].device->has_near = memory[1].device->has_near = true;
    memory[0].device->near = memory[1].device->near = allowed;
    check_int(staging_count_processors(memory), count > 2 ? count / 2 : 1);
    CPU_SET(CPU_SETSIZE - 1, &memory[1].device->near); /* another node, from here on */
    check_int(staging_count_processors(memory), count > 1 ? count : 1);
    memory[1].device->near = allowed;
    staging_set_idle(&memory[1]);
    check_int(staging_count_processors(memory), count > 1 ? count : 1);
    check_int(staging_count_processors(&memory[1]), count > 2 ? count / 2 : 1);
    end(staging);
}

TAP_TEST(a_device_takes_no_more_threads_than_are_fast_unless_asked)
{
    struct staging_memory memory[2];
    struct staging *staging = begin(LAZY, memory);
    struct work work = {0};

    staging_equip(staging, &work, memory, 0);
    check(work.threads >= 1 && work.threads <= STAGING_GPU_THREADS);
    staging_equip(staging, &work, memory, 40);
    check_int(work.threads, 40);
    end(staging);
}

TAP_TEST(a_failure_of_early_buffers_is_not_reported_for_a_later_one)
{
    static const uint64_t sizes[] = {WORK_PIECE_BYTES};
    struct staging_memory memory[2];
    struct staging *staging = begin("devices 2\nfail cuStreamCreate 999 1 1\n", memory);
    struct failure failure;
    bool is_told;

    staging_warm(memory, 1, WORK_PIECE_BYTES);
    staging_await_warm(memory->device);
    check(!staging_get_failure(staging, &failure, &is_told));
    go_round(staging, memory, sizes, 1, 1);
    end(staging);
}
