/* SPDX-License-Identifier: Apache-2.0 */
#include "mover/relay.h"

#include "base/clock.h"
#include "mover/staging_cuda.h"

#include <errno.h>
#include <stdlib.h>

/* Measured on 2 x H200, whose cuMemcpyPeer of 8 GiB moves 395 GB/s: blocks of 4 MiB 287, 16 MiB
 * 361, 64 MiB 387, 256 MiB 395. Each further stop of a chain takes the time of one block. */
#define RELAY_BLOCK_BYTES ((uint64_t)128 << 20)
#define RELAY_DEPTH       4u /* blocks queued per stop */

#define DOING_RELAY "copy from GPU to GPU"

#define CALL(hop, call, arguments) \
    hop_result(hop, #call, cuda_device((hop)->device)->driver->call arguments)

/* One stop and its stream; the first has none. */
struct relay_hop {
    struct staging_device *device;
    struct drv_stream *stream;
    struct drv_event *arrived[RELAY_DEPTH]; /* of each block in flight */
};

struct run {
    const struct relay *relay;
    uint64_t blocks;
    uint64_t in_flight[RELAY_DEPTH]; /* bytes of these blocks, of all hops */
    uint64_t done_bytes, ticked_ms;
};

/* ---- peers --------------------------------------------------------------------------------- */

static bool is_gpu(const struct staging_memory *memory)
{
    return memory->device->kind == &staging_cuda;
}

static bool can_read(const struct cuda_device *reader, const struct cuda_device *of)
{
    int can = 0;

    return reader->device == of->device || (reader->driver->cuDeviceCanAccessPeer(
                                                &can, reader->device, of->device) == DRV_SUCCESS &&
                                            can);
}

bool relay_reaches(const struct staging_memory *from, const struct staging_memory *to)
{
    return is_gpu(from) && is_gpu(to) &&
           can_read(cuda_device(to->device), cuda_device(from->device));
}

bool relay_let_in(const struct relay_stop *stop, size_t item_count,
                  const struct staging_memory *reader)
{
    struct drv_access_desc right = {.location.type = DRV_LOCATION_DEVICE, .flags = DRV_ACCESS_READ};
    enum drv_result result = DRV_SUCCESS;

    if (!relay_reaches(stop->memory, reader))
        return false;
    const struct cuda_device *by = cuda_device(reader->device);
    const struct cuda_device *of = cuda_device(stop->memory->device);
    if (by->device == of->device)
        return true;
    right.location.id = by->device;
    for (size_t i = 0; result == DRV_SUCCESS && i < item_count; i++)
        result = by->driver->cuMemSetAccess((drv_pointer)(uintptr_t)stop->mappings[i].ptr,
                                            stop->mappings[i].aligned_bytes, &right, 1);
    return result == DRV_SUCCESS;
}

/* ---- one stop ------------------------------------------------------------------------------ */

static int hop_result(const struct relay_hop *hop, const char *call, enum drv_result result)
{
    char text[STAGING_ERROR_BYTES];

    if (result == DRV_SUCCESS)
        return 0;
    int error = drv_explain(cuda_device(hop->device)->driver, call, result, text, sizeof(text));
    return staging_fail(hop->device, DOING_RELAY, text, error);
}

static int hop_begin(struct relay_hop *hop)
{
    int error = staging_cuda_enter(hop->device);

    if (!error)
        error = CALL(hop, cuStreamCreate, (&hop->stream, DRV_STREAM_NON_BLOCKING));
    for (size_t i = 0; !error && i < RELAY_DEPTH; i++)
        error = CALL(hop, cuEventCreate, (&hop->arrived[i], DRV_EVENT_DISABLE_TIMING));
    return error;
}

/* Waits for the copies first, also after a failure: they use the memory. */
static int hop_end(struct relay_hop *hop)
{
    const struct drv *driver = cuda_device(hop->device)->driver;
    int error = staging_cuda_enter(hop->device);

    if (error || !hop->stream)
        return error;
    error = CALL(hop, cuStreamSynchronize, (hop->stream));
    for (size_t i = 0; i < RELAY_DEPTH; i++)
        if (hop->arrived[i])
            driver->cuEventDestroy_v2(hop->arrived[i]);
    driver->cuStreamDestroy_v2(hop->stream);
    return error;
}

/* ---- one block ----------------------------------------------------------------------------- */

static drv_pointer stop_at(const struct relay_stop *stop, size_t item, uint64_t offset_bytes)
{
    return (drv_pointer)(uintptr_t)stop->mappings[item].ptr + offset_bytes;
}

/* Asks for a copy that begins when the earlier stop has the block. */
static int hop_ask(const struct run *run, size_t index, size_t item, uint64_t offset_bytes,
                   uint64_t size_bytes)
{
    const struct relay_stop *stops = run->relay->stops;
    const struct relay_hop *hop = &run->relay->hops[index];
    size_t slot = run->blocks % RELAY_DEPTH, from = stops[index].from;
    int error = staging_cuda_enter(hop->device);

    if (!error && from > 0)
        error =
            CALL(hop, cuStreamWaitEvent, (hop->stream, run->relay->hops[from].arrived[slot], 0));
    if (!error)
        error = CALL(hop, cuMemcpyDtoDAsync_v2,
                     (stop_at(&stops[index], item, offset_bytes),
                      stop_at(&stops[from], item, offset_bytes), size_bytes, hop->stream));
    return error ? error : CALL(hop, cuEventRecord, (hop->arrived[slot], hop->stream));
}

/* Waits until all hops have the block that was in this slot. */
static int run_await_slot(struct run *run, size_t slot)
{
    int error = 0;

    if (run->in_flight[slot] == 0)
        return 0;
    for (size_t i = 1; !error && i < run->relay->stop_count; i++) {
        error = staging_cuda_enter(run->relay->hops[i].device);
        if (!error)
            error =
                CALL(&run->relay->hops[i], cuEventSynchronize, (run->relay->hops[i].arrived[slot]));
    }
    run->done_bytes += error ? 0 : run->in_flight[slot];
    run->in_flight[slot] = 0;
    return error;
}

static int run_tick(struct run *run)
{
    uint64_t now_ms = clock_now_ms();

    if (!run->relay->tick || now_ms - run->ticked_ms < WORK_TICK_MS)
        return 0;
    run->ticked_ms = now_ms;
    return run->relay->tick(run->relay->context, run->done_bytes);
}

static int run_block(struct run *run, size_t item, uint64_t offset_bytes, uint64_t size_bytes)
{
    size_t slot = run->blocks % RELAY_DEPTH;
    int error = run_await_slot(run, slot);

    if (!error)
        error = run_tick(run);
    for (size_t i = 1; !error && i < run->relay->stop_count; i++) {
        error = hop_ask(run, i, item, offset_bytes, size_bytes);
        run->in_flight[slot] += size_bytes;
    }
    run->blocks++;
    return error;
}

/* ---- the whole ----------------------------------------------------------------------------- */

int relay_begin(struct relay *relay)
{
    int error = 0;

    relay->hops = calloc(relay->stop_count, sizeof(*relay->hops));
    if (!relay->hops)
        return -ENOMEM;
    for (size_t i = 0; i < relay->stop_count; i++)
        relay->hops[i].device = relay->stops[i].memory->device;
    for (size_t i = 1; !error && i < relay->stop_count; i++)
        error = hop_begin(&relay->hops[i]);
    return error;
}

static int run_items(struct run *run)
{
    const struct relay *relay = run->relay;
    int error = 0;

    for (size_t item = 0; !error && item < relay->item_count; item++) {
        uint64_t left = relay->item_bytes[item], size;

        for (uint64_t at = 0; !error && left > 0; at += size, left -= size) {
            size = left < RELAY_BLOCK_BYTES ? left : RELAY_BLOCK_BYTES;
            error = run_block(run, item, at, size);
        }
    }
    for (size_t slot = 0; !error && slot < RELAY_DEPTH; slot++)
        error = run_await_slot(run, slot);
    return error;
}

int relay_run(const struct relay *relay)
{
    struct run run = {.relay = relay};
    int error = run_items(&run);

    return error || !relay->tick ? error : relay->tick(relay->context, run.done_bytes);
}

int relay_end(struct relay *relay)
{
    int error = 0, ended;

    if (!relay->hops)
        return 0;
    for (size_t i = 1; i < relay->stop_count; i++) {
        ended = hop_end(&relay->hops[i]);
        error = error ? error : ended;
    }
    staging_cuda_leave(relay->hops[0].device);
    free(relay->hops);
    relay->hops = NULL;
    return error;
}
