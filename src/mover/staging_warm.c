/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging_warm - prepares in the background, before there is work
 *
 * In two steps, each beside something that takes longer: pages while the device is opened, the rest
 * while the store's memory is made. The work repeats any part that fails.
 */
#include "base/thread.h"
#include "base/timeline.h"
#include "mover/staging_parts.h"

void staging_expect(struct staging *staging, uint64_t threads, uint64_t size_bytes)
{
    staging->expected_threads = threads;
    staging->expected_bytes = size_bytes;
}

void staging_await_warm(struct staging_device *device)
{
    if (!device->warming.is_running)
        return;
    pthread_join(device->warming.running, NULL);
    device->warming.is_running = false;
}

void staging_await(const struct staging_memory *memory)
{
    staging_await_warm(memory->device);
}

/* One lane for each thread, but no more than there are pieces. */
static unsigned warm_count_lanes(unsigned threads, uint64_t size_bytes)
{
    uint64_t pieces = size_bytes / WORK_PIECE_BYTES + (size_bytes % WORK_PIECE_BYTES > 0);
    unsigned lanes = threads < WORK_MAX_THREADS ? threads : WORK_MAX_THREADS;

    return pieces < lanes ? (unsigned)pieces : lanes;
}

static void warm_start(struct staging_device *device, unsigned lanes, void *(*run)(void *))
{
    struct staging_warming *warming = &device->warming;

    warming->lanes = lanes;
    warming->is_running = lanes > 0 && thread_start(&warming->running, 0, run, device) == 0;
}

/* ---- pages --------------------------------------------------------------------------------- */

static void *warm_run_pages(void *context)
{
    struct staging_device *device = context;

    staging_stay_near(device);
    device->kind->make_pages(device, device->warming.lanes);
    return NULL;
}

void staging_begin_pages(struct staging_device *device)
{
    struct staging *staging = device->staging;
    unsigned threads = staging_count_threads(device->kind, staging->expected_threads);

    if (device->kind->make_pages) {
        warm_start(device, warm_count_lanes(threads, staging->expected_bytes), warm_run_pages);
        staging->expected_bytes = 0;
    }
}

/* ---- buffers --------------------------------------------------------------------------------- */

static void *warm_run(void *context)
{
    struct staging_device *device = context;
    struct staging_lane *lanes[WORK_MAX_THREADS];
    unsigned count = 0;
    void *lane;

    while (count < device->warming.lanes && staging_take_lane(device, true, &lane) == 0)
        lanes[count++] = lane;
    uint64_t span_us = timeline_begin();
    if (count > 0)
        device->kind->warm(device, lanes, count);
    timeline_end("load", "pin", span_us, NULL);
    for (unsigned i = 0; i < count; i++)
        staging_give_lane_back(lanes[i]);
    /* Work begins after this and repeats the failed part, so the failure does not count. */
    staging_forget_failure(device);
    return NULL;
}

void staging_warm(const struct staging_memory *memory, uint64_t threads, uint64_t size_bytes)
{
    struct staging_device *device = memory->device;

    if (!device->kind->warm || device->warming.was_begun)
        return;
    staging_await_warm(device); /* of pages */
    device->warming.was_begun = true;
    warm_start(device, warm_count_lanes(staging_prepare(device, threads), size_bytes), warm_run);
}
