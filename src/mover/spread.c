/* SPDX-License-Identifier: Apache-2.0 */
#include "mover/spread.h"

#include "base/file_io.h"
#include "base/pages.h"
#include "base/thread.h"
#include "base/timeline.h"
#include "mover/relay.h"
#include "mover/sink.h"
#include "mover/staging_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* A block that goes from memory to files stays in the processor's cache; one for a GPU fills a
 * buffer. */
#define STEP_TO_FILES_BYTES ((size_t)128 << 10)
#define STEP_BYTES          ((size_t)1 << 20)
/* Of RLIMIT_NOFILE, for the calls that open files and for the libraries. */
#define SPARE_DESCRIPTORS 8u

/* Memory of one item of one target, if it is a file. */
struct output {
    int fd; /* -1: none */
    struct sink sink;
    uint8_t *map; /* if it takes no writes; else NULL */
    size_t map_bytes;
};

/* The items of one call of get(). */
struct batch {
    struct spread *spread;
    size_t first, count;
    struct output *outputs; /* target by target, `count` of each */
    size_t *part_items;     /* of each part: its item, counted from `first` */
    uint64_t *part_offsets, *part_bytes;
    size_t part_count;
    uint64_t before_bytes; /* done before the batch */
    struct work work;
    pthread_mutex_t lock; /* of the spread's failure */
};

/* The lanes of one thread. */
struct lanes {
    struct staging_lane *from;
    struct staging_lane *to[]; /* of each target; NULL: it needs none */
};

/* ---- targets ------------------------------------------------------------------------------- */

static bool target_is_file(const struct spread_target *target)
{
    return staging_is_file(target->memory);
}

/* True if threads fill it, and not the copy engines. */
static bool target_is_ours(const struct spread_target *target)
{
    return target_is_file(target) || target->by_host;
}

/* ---- lanes --------------------------------------------------------------------------------- */

/* Two targets on one device share a lane: a room is sent before the next one is taken. */
static struct staging_lane *lanes_find(const struct spread *spread, const struct lanes *lanes,
                                       size_t target)
{
    for (size_t i = 0; i < target; i++)
        if (lanes->to[i] &&
            spread->targets[i].memory->device == spread->targets[target].memory->device)
            return lanes->to[i];
    return NULL;
}

static int lanes_end(void *shared, void *own)
{
    const struct spread *spread = ((const struct batch *)shared)->spread;
    SCOPED_FREE struct lanes *lanes = own;
    int error = lanes->from ? staging_settle_lane(lanes->from) : 0;

    for (size_t i = 0; i < spread->target_count; i++) {
        int ended =
            lanes->to[i] && !lanes_find(spread, lanes, i) ? staging_settle_lane(lanes->to[i]) : 0;
        error = error ? error : ended;
    }
    return error;
}

static int lanes_begin(void *shared, void **own)
{
    const struct spread *spread = ((const struct batch *)shared)->spread;
    struct lanes *lanes = calloc(1, sizeof(*lanes) + spread->target_count * sizeof(*lanes->to));
    void *lane;
    int error = lanes ? staging_take_lane(spread->from->device, false, &lane) : -ENOMEM;

    if (!error)
        lanes->from = lane;
    for (size_t i = 0; !error && i < spread->target_count; i++) {
        if (!spread->targets[i].by_host)
            continue;
        lane = lanes_find(spread, lanes, i);
        if (!lane)
            error = staging_take_lane(spread->targets[i].memory->device, false, &lane);
        if (!error)
            lanes->to[i] = lane;
    }
    *own = lanes;
    if (error && lanes)
        lanes_end(shared, lanes);
    return error;
}

/* ---- files --------------------------------------------------------------------------------- */

/* write(2) by one thread, mappings by the others: the sink knows how. */
static int output_open(struct output *output, int fd)
{
    const struct sink_way way = {.direct = DIRECT_NEVER};
    struct stat known;

    output->fd = fd;
    if (fstat(fd, &known) < 0)
        return -errno;
    if (pages_take_writes(fd, (uint64_t)known.st_size)) {
        sink_open(&output->sink, fd, (uint64_t)known.st_size, &way);
        return 0;
    }
    void *map = mmap(NULL, (size_t)known.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    output->map = map;
    output->map_bytes = (size_t)known.st_size;
    return 0;
}

static void output_close(struct output *output)
{
    if (output->map)
        munmap(output->map, output->map_bytes);
    else if (output->fd >= 0)
        sink_close(&output->sink);
    if (output->fd >= 0)
        close(output->fd);
}

static int output_put(struct output *output, uint64_t at, const uint8_t *bytes, size_t size_bytes)
{
    struct sink_stream stream;

    if (output->map) {
        memcpy(output->map + at, bytes, size_bytes);
        return 0;
    }
    sink_begin(&stream, &output->sink, at, NULL);
    return sink_put(&stream, bytes, size_bytes);
}

/* ---- one part ------------------------------------------------------------------------------ */

static int batch_fail(struct batch *batch, size_t target, size_t item, int error)
{
    struct spread *spread = batch->spread;

    SCOPED_LOCK(&batch->lock);
    if (!spread->failure) {
        spread->failure = error;
        spread->failed_target = target;
        spread->failed_item = batch->first + item;
    }
    return error;
}

static int put_to_gpu(struct staging_lane *lane, const struct staging_memory *memory, uint8_t *to,
                      const uint8_t *bytes, size_t size_bytes)
{
    size_t room_bytes;
    uint8_t *room;
    int error = 0;

    for (size_t done = 0; !error && done < size_bytes; done += room_bytes) {
        error = staging_room(lane, memory, to + done, size_bytes - done, &room, &room_bytes);
        if (error)
            break;
        memcpy(room, bytes + done, room_bytes);
        error = staging_send(lane, memory, to + done, room, room_bytes);
    }
    return error;
}

static int put_to_all(struct batch *batch, const struct lanes *lanes, size_t item, uint64_t at,
                      const uint8_t *bytes, size_t size_bytes)
{
    const struct spread *spread = batch->spread;
    int error = 0;

    for (size_t i = 0; !error && i < spread->target_count; i++) {
        const struct spread_target *target = &spread->targets[i];

        if (target->by_host) {
            error = put_to_gpu(lanes->to[i], target->memory,
                               (uint8_t *)target->mappings[batch->first + item].ptr + at, bytes,
                               size_bytes);
        } else if (target_is_file(target)) {
            error = output_put(&batch->outputs[i * batch->count + item], at, bytes, size_bytes);
            if (error)
                batch_fail(batch, i, item, error);
        }
    }
    return error;
}

/* Bytes that come from a GPU are in a buffer of the ring, as large as it is. */
static size_t batch_step(const struct batch *batch)
{
    const struct spread *spread = batch->spread;

    if (staging_is_copied(spread->from))
        return WORK_PIECE_BYTES;
    for (size_t i = 0; i < spread->target_count; i++)
        if (spread->targets[i].by_host)
            return STEP_BYTES;
    return STEP_TO_FILES_BYTES;
}

static int batch_part(void *context, const struct work_piece *piece, void *own)
{
    struct batch *batch = context;
    const struct spread *spread = batch->spread;
    const struct lanes *lanes = own;
    size_t item = batch->part_items[piece->item], step = 1;
    uint64_t at = batch->part_offsets[piece->item];
    const uint8_t *part;
    int error = staging_fetch(lanes->from, spread->from,
                              (const uint8_t *)spread->items[batch->first + item].ptr + at,
                              piece->size_bytes, batch_step(batch));

    while (!error && step > 0) {
        error = staging_next(lanes->from, &part, &step);
        if (!error && step > 0)
            error = put_to_all(batch, lanes, item, at, part, step);
        at += step;
    }
    return error;
}

/* ---- one batch ------------------------------------------------------------------------------- */

static size_t count_ours(const struct spread *spread, bool files_only)
{
    size_t count = 0;

    for (size_t i = 0; i < spread->target_count; i++)
        count +=
            files_only ? target_is_file(&spread->targets[i]) : target_is_ours(&spread->targets[i]);
    return count;
}

static int batch_tick(void *context, uint64_t done_bytes)
{
    const struct batch *batch = context;
    const struct spread *spread = batch->spread;

    return spread->tick ? spread->tick(spread->context,
                                       batch->before_bytes + done_bytes * count_ours(spread, false))
                        : 0;
}

static int batch_open_files(struct batch *batch, size_t target, int *fds)
{
    struct spread *spread = batch->spread;
    int error = spread->get(spread->context, target, batch->first, batch->count, fds);

    for (size_t i = 0; error == 0 && i < batch->count; i++)
        batch->outputs[target * batch->count + i].fd = fds[i];
    for (size_t i = 0; error == 0 && i < batch->count; i++) {
        error = output_open(&batch->outputs[target * batch->count + i], fds[i]);
        if (error)
            batch_fail(batch, target, i, error);
    }
    return error;
}

static size_t batch_cut(struct batch *batch, bool counts)
{
    size_t count = 0;

    for (size_t i = 0; i < batch->count; i++) {
        uint64_t left = batch->spread->item_bytes[batch->first + i], at = 0;

        for (; left > 0; count++) {
            uint64_t size = left < WORK_PIECE_BYTES ? left : WORK_PIECE_BYTES;
            if (!counts) {
                batch->part_items[count] = i;
                batch->part_offsets[count] = at;
                batch->part_bytes[count] = size;
            }
            at += size;
            left -= size;
        }
    }
    return count;
}

/* The device that uses the fewest threads decides. */
static unsigned batch_count_threads(const struct spread *spread)
{
    unsigned threads = staging_prepare(spread->from->device, spread->threads);

    for (size_t i = 0; i < spread->target_count; i++) {
        unsigned other = target_is_ours(&spread->targets[i])
                             ? staging_prepare(spread->targets[i].memory->device, spread->threads)
                             : threads;
        threads = other < threads ? other : threads;
    }
    return threads;
}

/* Files are written several at a time: the kernel lets one thread at a time write to one. */
static int batch_copy(struct batch *batch)
{
    size_t parts = batch_cut(batch, true);
    SCOPED_FREE size_t *order = calloc(parts + 1, sizeof(*order));
    SCOPED_FREE size_t *items = calloc(parts + 1, sizeof(*items));
    SCOPED_FREE uint64_t *offsets = calloc(parts + 1, sizeof(*offsets));
    SCOPED_FREE uint64_t *bytes = calloc(parts + 1, sizeof(*bytes));

    if (!order || !items || !offsets || !bytes)
        return -ENOMEM;
    batch->part_items = items;
    batch->part_offsets = offsets;
    batch->part_bytes = bytes;
    batch_cut(batch, false);
    batch->work = (struct work){.item_bytes = bytes,
                                .order = order,
                                .item_count = parts,
                                .threads = batch_count_threads(batch->spread),
                                .whole = true,
                                .shared = batch,
                                .begin = lanes_begin,
                                .end = lanes_end,
                                .context = batch,
                                .piece = batch_part,
                                .tick = batch_tick};
    work_order_abreast(items, parts, batch->work.threads, order);
    return work_run(&batch->work);
}

static int batch_run(struct batch *batch)
{
    size_t count = batch->count * batch->spread->target_count;
    SCOPED_FREE int *fds = calloc(batch->count, sizeof(*fds));
    int error = 0;

    batch->outputs = calloc(count, sizeof(*batch->outputs));
    if (!batch->outputs || !fds) {
        free(batch->outputs);
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++)
        batch->outputs[i] = (struct output){.fd = -1, .sink.direct_fd = -1};
    for (size_t i = 0; !error && i < batch->spread->target_count; i++)
        if (target_is_file(&batch->spread->targets[i]))
            error = batch_open_files(batch, i, fds);
    if (!error)
        error = batch_copy(batch);
    for (size_t i = 0; i < count; i++)
        output_close(&batch->outputs[i]);
    free(batch->outputs);
    return error;
}

/* Returns the most items of one batch: the files of all targets are open at the same time. */
static size_t count_at_once(const struct spread *spread)
{
    SCOPED_CLOSE int lowest = open("/", O_PATH | O_CLOEXEC);
    size_t files = count_ours(spread, true);
    struct rlimit limit;

    if (files == 0)
        return spread->item_count;
    if (lowest < 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 1;
    rlim_t taken = (rlim_t)lowest + SPARE_DESCRIPTORS;
    rlim_t each = limit.rlim_cur > taken ? (limit.rlim_cur - taken) / files : 0;
    each = each < spread->at_once ? each : spread->at_once;
    return each < 1 ? 1 : (size_t)each;
}

static int spread_by_threads(struct spread *spread, uint64_t done_bytes)
{
    size_t ours = count_ours(spread, false);
    size_t most = count_at_once(spread);
    struct batch batch = {.spread = spread, .before_bytes = done_bytes};
    int error = 0;

    pthread_mutex_init(&batch.lock, NULL);
    while (!error && ours > 0 && batch.first < spread->item_count) {
        batch.count = spread->item_count - batch.first;
        batch.count = batch.count < most ? batch.count : most;
        error = batch_run(&batch);
        for (size_t i = 0; i < batch.count; i++)
            batch.before_bytes += spread->item_bytes[batch.first + i] * ours;
        batch.first += batch.count;
    }
    pthread_mutex_destroy(&batch.lock);
    return error;
}

/* ---- the copy engines ------------------------------------------------------------------------ */

/* Finds the latest stop that the target's GPU can read: a chain, where all GPUs reach each other.
 */
static bool relay_add(const struct spread *spread, struct relay *relay, struct relay_stop *stops,
                      struct spread_target *target)
{
    for (size_t i = relay->stop_count; i-- > 0;) {
        if (!relay_let_in(&stops[i], spread->item_count, target->memory))
            continue;
        stops[relay->stop_count++] =
            (struct relay_stop){target->memory, target->mappings, .from = i};
        return true;
    }
    return false;
}

/* Finds the targets that copy engines fill, and prepares all for the first byte. */
static int spread_begin(struct spread *spread, struct relay *relay, struct relay_stop *stops)
{
    uint64_t span_us = timeline_begin();
    int error;

    stops[0] = (struct relay_stop){spread->from, spread->items, 0};
    staging_await_warm(spread->from->device);
    for (size_t i = 0; i < spread->target_count; i++) {
        struct spread_target *target = &spread->targets[i];
        staging_await_warm(target->memory->device);
        target->by_host = !target_is_file(target) && !relay_add(spread, relay, stops, target);
    }
    error = relay->stop_count > 1 ? relay_begin(relay) : 0;
    timeline_end("load", "prepare to pass on", span_us, NULL);
    return error;
}

static int spread_bytes(struct spread *spread, const struct relay *relay)
{
    uint64_t span_us = timeline_begin(), done_bytes = 0;
    int error = relay->hops ? relay_run(relay) : 0;

    for (size_t i = 0; i < spread->item_count; i++)
        done_bytes += spread->item_bytes[i] * (relay->stop_count - 1);
    error = error ? error : spread_by_threads(spread, done_bytes);
    timeline_end("load", "pass on", span_us, NULL);
    return error;
}

bool spread_reaches(const struct staging_memory *from, const struct staging_memory *to)
{
    return relay_reaches(from, to);
}

int spread_run(struct spread *spread)
{
    SCOPED_FREE struct relay_stop *stops = calloc(spread->target_count + 1, sizeof(*stops));
    struct relay relay = {.stops = stops,
                          .stop_count = 1,
                          .item_bytes = spread->item_bytes,
                          .item_count = spread->item_count,
                          .tick = spread->tick,
                          .context = spread->context};

    spread->failure = 0;
    if (!stops)
        return -ENOMEM;
    int error = spread_begin(spread, &relay, stops);
    if (!error && spread->engines_only && count_ours(spread, false) > 0)
        error = -EOPNOTSUPP;
    if (!error && spread->begin)
        spread->begin(spread->context);
    if (!error)
        error = spread_bytes(spread, &relay);
    int ended = relay_end(&relay);
    return error ? error : ended;
}
