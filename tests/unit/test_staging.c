/* SPDX-License-Identifier: Apache-2.0 */
/* Tests bytes to and from store memory: in place on host memory, through the ring over the fake
 * driver. The ring itself is in test_staging_ring.c. */
#include "staging_fixture.h"

#include <errno.h>
#include <pthread.h>

/* Returns the place of the room, and of the first part. */
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
