/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to and from store memory: as they are on host memory, through the ring over the fake
 * driver, which does its copies as late as it may (`lazy`). */
#include "base/failure.h"
#include "mover/staging_cuda.h"
#include "mover/work.h"

#include "fake_cuda.h"
#include "tap.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define LAZY       "devices 2\nlazy 1\n"
#define STEP_BYTES STAGING_BUFFER_MAX_BYTES

static const struct drv *cu;

/* What one work of the tests does: each item is sent from `source` to `to`, or fetched to `got`. */
struct job {
    const struct staging_memory *memory;
    uint8_t *const *to;
    const uint8_t *source;
    uint8_t *got;
    const uint64_t *starts; /* in source and got, of each item */
    bool gives_up;          /* begins each fetch twice, and hands out one part of the first */
};

static uint64_t expected_threads, expected_bytes;

/* ---- fixture ------------------------------------------------------------------------------- */

static struct staging *begin(const char *control, struct staging_memory memory[2])
{
    struct staging *staging = staging_new();
    struct failure failure;
    struct drv_uuid uuid;

    require(staging && fake_cuda_make(control));
    require(drv_open(&cu, NULL, 0) == 0);
    staging_expect(staging, expected_threads, expected_bytes);
    for (int i = 0; i < 2; i++) {
        require(cu->cuDeviceGetUuid_v2(&uuid, i) == DRV_SUCCESS);
        require(staging_open_memory(staging, GMSFS_MEMORY_CUDA, (const uint8_t *)uuid.bytes, "here",
                                    &memory[i], &failure) == 0);
    }
    return staging;
}

/* Contexts, streams and pinned memory are given back. */
static void end(struct staging *staging)
{
    char path[FAKE_PATH_BYTES + 64];

    staging_free(staging);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/context.%d.%d", fake_cuda_dir, (int)getpid(), i);
        check(access(path, F_OK) < 0);
        snprintf(path, sizeof path, "%s/leaked.%d.%d", fake_cuda_dir, (int)getpid(), i);
        check(access(path, F_OK) < 0);
    }
    fake_cuda_remove();
}

static uint8_t *gpu_new(const struct staging_memory *memory, size_t size_bytes)
{
    drv_pointer address;

    require(cu->cuCtxPushCurrent_v2(cuda_device(memory->device)->context) == DRV_SUCCESS);
    require(cu->cuMemAlloc_v2(&address, size_bytes ? size_bytes : 1) == DRV_SUCCESS);
    require(cu->cuCtxPopCurrent_v2(NULL) == DRV_SUCCESS);
    return (uint8_t *)(uintptr_t)address;
}

static void gpu_free(const struct staging_memory *memory, uint8_t *address)
{
    cu->cuCtxPushCurrent_v2(cuda_device(memory->device)->context);
    check_int(cu->cuCtxSynchronize(), DRV_SUCCESS);
    check_int(cu->cuMemFree_v2((uintptr_t)address), DRV_SUCCESS);
    cu->cuCtxPopCurrent_v2(NULL);
}

static uint8_t *bytes_new(size_t size_bytes, uint64_t seed)
{
    uint8_t *bytes = malloc(size_bytes + 1);

    require(bytes != NULL);
    for (size_t i = 0; i < size_bytes; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        bytes[i] = (uint8_t)(seed >> 56);
    }
    return bytes;
}

/* ---- pieces -------------------------------------------------------------------------------- */

static int job_send(void *context, const struct work_piece *piece, void *own)
{
    const struct job *job = context;
    const struct staging_memory *memory = job->memory;
    const uint8_t *from = job->source + job->starts[piece->item] + piece->offset_bytes;
    uint8_t *to = job->to[piece->item] + piece->offset_bytes, *room;
    size_t step;
    int r = 0;

    for (size_t at = 0; !r && at < piece->size_bytes; at += step) {
        r = staging_room(own, memory, to + at, piece->size_bytes - at, &room, &step);
        if (r)
            break;
        memcpy(room, from + at, step);
        r = staging_send(own, memory, to + at, room, step);
    }
    return r;
}

static int job_fetch(void *context, const struct work_piece *piece, void *own)
{
    const struct job *job = context;
    const struct staging_memory *memory = job->memory;
    const uint8_t *from = job->to[piece->item] + piece->offset_bytes, *part;
    uint8_t *to = job->got + job->starts[piece->item] + piece->offset_bytes;
    size_t step = 1;
    int r = 0;

    if (job->gives_up) {
        r = staging_fetch(own, memory, job->to[0], piece->size_bytes, 1000);
        if (!r)
            r = staging_next(own, &part, &step);
    }
    if (!r)
        r = staging_fetch(own, memory, from, piece->size_bytes, STEP_BYTES);
    while (!r && step > 0) {
        r = staging_next(own, &part, &step);
        if (!r)
            memcpy(to, part, step);
        to += step;
    }
    return r;
}

static int job_run(struct staging *staging, struct job *job, const uint64_t *sizes, size_t count,
                   unsigned threads, int (*piece)(void *, const struct work_piece *, void *))
{
    struct work work = {.item_bytes = sizes, .item_count = count, .context = job, .piece = piece};

    staging_equip(staging, &work, job->memory, threads);
    return work_run(&work);
}

/* Items of these sizes there and back. */
static void go_round(struct staging *staging, const struct staging_memory *memory,
                     const uint64_t *sizes, size_t count, unsigned threads)
{
    uint64_t starts[16], whole = 0;
    uint8_t *to[16];
    struct job job = {.memory = memory, .to = to, .starts = starts};

    require(count <= 16);
    for (size_t i = 0; i < count; i++) {
        starts[i] = whole;
        whole += sizes[i];
        to[i] = gpu_new(memory, sizes[i]);
    }
    job.source = bytes_new(whole, threads);
    job.got = bytes_new(whole, 0);
    check_int(job_run(staging, &job, sizes, count, threads, job_send), 0);
    check_int(job_run(staging, &job, sizes, count, threads, job_fetch), 0);
    check_bytes(job.got, whole, job.source, whole);
    for (size_t i = 0; i < count; i++)
        gpu_free(memory, to[i]);
    free((void *)job.source);
    free(job.got);
}

/* ---- tests --------------------------------------------------------------------------------- */

/* Where the room is, and the first part that is handed out. */
struct places {
    const struct staging_memory *memory;
    uint8_t *to, *room;
    const uint8_t *part;
};

static int find_places(void *context, const struct work_piece *piece, void *own)
{
    struct places *places = context;
    size_t step = 0;
    int r = staging_room(own, places->memory, places->to, piece->size_bytes, &places->room, &step);

    check(step == piece->size_bytes);
    memset(places->room, 7, step);
    if (!r)
        r = staging_send(own, places->memory, places->to, places->room, step);
    if (!r)
        r = staging_fetch(own, places->memory, places->to, step, step);
    return r ? r : staging_next(own, &places->part, &step);
}

TAP_TEST(host_memory_is_handed_over_where_it_lies)
{
    static const uint8_t uuid[2][16] = {"one", "another"};
    const uint64_t size_bytes = 100;
    struct staging *staging = staging_new();
    struct staging_memory memory[2];
    struct failure failure;
    uint8_t place[100] = {0};
    struct places places = {.memory = memory, .to = place};
    struct work work = {
        .item_bytes = &size_bytes, .item_count = 1, .context = &places, .piece = find_places};

    require(staging != NULL);
    for (int i = 0; i < 2; i++)
        require(staging_open_memory(staging, GMSFS_MEMORY_HOST, uuid[i], "here", &memory[i],
                                    &failure) == 0);
    check(memory[0].device == memory[1].device);
    staging_equip(staging, &work, memory, 1);
    check_int(work_run(&work), 0);
    check(places.room == place && places.part == place);
    check_int(place[99], 7);
    check(!staging_is_copied(memory) && staging_is_file(memory));
    check(!staging_wants_few(GMSFS_MEMORY_HOST));
    staging_free(staging);
}

TAP_TEST(bytes_of_any_size_go_to_a_gpu_and_come_back)
{
    static const uint64_t sizes[] = {0,
                                     1,
                                     511,
                                     STEP_BYTES - 1,
                                     STEP_BYTES,
                                     STEP_BYTES + 1,
                                     WORK_PIECE_BYTES + 3,
                                     5 * STEP_BYTES + 12345,
                                     7};
    struct staging_memory memory[2];
    struct staging *staging = begin(LAZY, memory);

    check(staging_is_copied(&memory[0]) && !staging_is_file(&memory[0]));
    check(staging_wants_few(GMSFS_MEMORY_CUDA));
    check(memory[0].device != memory[1].device);
    go_round(staging, memory, sizes, 9, 1);
    end(staging);
}

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

struct rival {
    pthread_t thread;
    struct staging *staging;
    const struct staging_memory *memory;
    struct job job;
    uint64_t size_bytes;
    int result;
};

static void *rival_run(void *context)
{
    struct rival *rival = context;

    rival->result = job_run(rival->staging, &rival->job, &rival->size_bytes, 1, 2, job_send) ||
                    job_run(rival->staging, &rival->job, &rival->size_bytes, 1, 2, job_fetch);
    return NULL;
}

TAP_TEST(two_gpus_are_filled_at_the_same_time)
{
    struct staging_memory memory[2];
    struct staging *staging = begin(LAZY, memory);
    struct rival rivals[2];
    uint64_t start = 0;
    uint8_t *to[2];

    for (int i = 0; i < 2; i++) {
        uint64_t bytes = 3 * STEP_BYTES + (uint64_t)i;
        to[i] = gpu_new(&memory[i], bytes);
        rivals[i] = (struct rival){.staging = staging, .size_bytes = bytes};
        rivals[i].job = (struct job){.memory = &memory[i], .to = &to[i], .starts = &start};
        rivals[i].job.source = bytes_new(bytes, (uint64_t)i + 8);
        rivals[i].job.got = bytes_new(bytes, 0);
        require(pthread_create(&rivals[i].thread, NULL, rival_run, &rivals[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(rivals[i].thread, NULL);
        check_int(rivals[i].result, 0);
        check_bytes(rivals[i].job.got, rivals[i].size_bytes, rivals[i].job.source,
                    rivals[i].size_bytes);
        gpu_free(&memory[i], to[i]);
        free((void *)rivals[i].job.source);
        free(rivals[i].job.got);
    }
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

TAP_TEST(a_fetch_that_is_given_up_does_not_reach_into_the_next)
{
    static const uint64_t sizes[] = {STEP_BYTES, 3 * STEP_BYTES, STEP_BYTES + 9};
    struct staging_memory memory[2];
    struct staging *staging = begin(LAZY, memory);
    uint64_t starts[3] = {0, STEP_BYTES, 4 * (uint64_t)STEP_BYTES};
    uint64_t whole = starts[2] + sizes[2];
    uint8_t *to[3];
    struct job job = {.memory = memory, .to = to, .starts = starts, .gives_up = true};

    for (size_t i = 0; i < 3; i++)
        to[i] = gpu_new(memory, sizes[i]);
    job.source = bytes_new(whole, 5);
    job.got = bytes_new(whole, 6);
    check_int(job_run(staging, &job, sizes, 3, 1, job_send), 0);
    check_int(job_run(staging, &job, sizes, 3, 1, job_fetch), 0);
    check_bytes(job.got, whole, job.source, whole);
    for (size_t i = 0; i < 3; i++)
        gpu_free(memory, to[i]);
    free((void *)job.source);
    free(job.got);
    end(staging);
}

TAP_TEST(threads_that_come_again_find_their_buffers)
{
    static const uint64_t sizes[] = {WORK_PIECE_BYTES};
    struct staging_memory memory[2];
    struct staging *staging = begin(LAZY, memory);

    go_round(staging, memory, sizes, 1, 1);
    check(staging->lanes != NULL && staging->lanes->next == NULL);
    /* Pinning anew would fail. */
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

/* What staging_room gives one thread, in order. */
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

TAP_TEST(what_a_thread_sends_first_is_small_in_each_work)
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

static int note_piece(void *context, const struct work_piece *piece, void *own)
{
    uint64_t *sizes = context;

    (void)own;
    sizes[piece->offset_bytes / WORK_LAST_BYTES] = piece->size_bytes;
    return 0;
}

TAP_TEST(a_work_that_tapers_ends_with_small_pieces)
{
    static const uint64_t whole = 5 * WORK_PIECE_BYTES + 100;
    uint64_t sizes[5 * WORK_PIECE_BYTES / WORK_LAST_BYTES + 1] = {0}, sum = 0;
    struct work work = {.item_bytes = &whole,
                        .item_count = 1,
                        .threads = 2,
                        .tapers = true,
                        .context = sizes,
                        .piece = note_piece};

    check_int(work_run(&work), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        sum += sizes[i];
    check_int(sum, whole);
    check_int(sizes[0], WORK_PIECE_BYTES);
    check_int(sizes[4 * WORK_PIECE_BYTES / WORK_LAST_BYTES], WORK_LAST_BYTES);
    check_int(sizes[5 * WORK_PIECE_BYTES / WORK_LAST_BYTES], 100);
}

static unsigned count_pinned(const struct staging *staging)
{
    unsigned pinned = 0;

    for (const struct staging_lane *lane = staging->lanes; lane; lane = lane->next)
        pinned += cuda_lane(lane)->pinned;
    return pinned;
}

TAP_TEST(what_threads_need_is_made_before_there_is_work)
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

/* As for a load of one store: pages before the device is open, as much as its threads will use. */
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
        expected_bytes = 0;
        staging_warm(memory, works[i].threads, works[i].bytes);
        go_round(staging, memory, sizes, 1, 1);
        check_int(cuda_device(memory->device)->block_bytes, works[i].pages_bytes);
        check_int(count_pinned(staging), works[i].pinned);
        end(staging);
    }
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

TAP_TEST(what_cannot_be_made_before_is_made_by_the_work)
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

TAP_TEST(each_call_that_fails_is_told_once_and_leaks_nothing)
{
    static const char *const calls[] = {
        "cuCtxSetCurrent",      "cuStreamCreate",     "cuMemHostRegister_v2",
        "cuEventCreate",        "cuEventRecord",      "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2", "cuEventSynchronize", "cuStreamSynchronize"};
    static const uint64_t sizes[] = {6 * STEP_BYTES};
    struct staging_memory memory[2];

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        struct staging *staging = begin(LAZY, memory);
        uint8_t *to[] = {gpu_new(memory, sizes[0])};
        uint64_t start = 0;
        struct job job = {.memory = memory, .to = to, .starts = &start};
        struct failure failure;
        char control[200];
        bool is_told = true;
        int r;

        job.source = bytes_new(sizes[0], 1);
        job.got = bytes_new(sizes[0], 2);
        snprintf(control, sizeof control, LAZY "fail %s 2 1 1\n", calls[i]);
        check(fake_cuda_control(control));
        r = job_run(staging, &job, sizes, 1, 1, job_send);
        if (!r)
            r = job_run(staging, &job, sizes, 1, 1, job_fetch);
        check_int(r, -ENOMEM);
        check(staging_get_failure(staging, &failure, &is_told));
        check(!is_told);
        check(strstr(failure.text, calls[i]) != NULL);
        check(strstr(failure.text, ": here: ") != NULL);
        check(strstr(failure.text, "CUDA_ERROR_OUT_OF_MEMORY") != NULL);
        check(staging_get_failure(staging, &failure, &is_told));
        check(is_told);
        check(fake_cuda_control(LAZY));
        gpu_free(memory, to[0]);
        free((void *)job.source);
        free(job.got);
        end(staging);
    }
}

TAP_TEST(a_device_without_room_for_a_context_is_not_opened)
{
    struct staging_memory memory[2], more;
    struct staging *staging = begin(LAZY "fail cuDevicePrimaryCtxRetain 2 3\n", memory);
    struct staging *other = staging_new();
    struct failure failure;

    require(other != NULL);
    check_int(staging_open_memory(other, GMSFS_MEMORY_CUDA, memory[0].device->uuid, "there", &more,
                                  &failure),
              -ENOMEM);
    check(strstr(failure.text, "cannot open the GPU: there: ") == failure.text);
    check(strstr(failure.text, "half a gigabyte") != NULL);
    check(more.device == NULL);
    staging_free(other);
    other = staging_new();
    require(other != NULL);
    staging_expect(other, 1, 1); /* its pages go as well */
    check_int(staging_open_memory(other, GMSFS_MEMORY_CUDA, memory[0].device->uuid, "there", &more,
                                  &failure),
              -ENOMEM);
    staging_free(other);
    end(staging);
}
