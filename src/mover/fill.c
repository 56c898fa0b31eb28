/* SPDX-License-Identifier: Apache-2.0 */
#include "mover/fill.h"

#include "base/digest.h"
#include "base/file_io.h"
#include "base/pages.h"
#include "base/thread.h"
#include "base/timeline.h"
#include "mover/supply.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes that go through a buffer, or are summed, stay in the processor's cache. */
#define WRITTEN_BYTES ((size_t)128 << 10)
#define SUMMED_BYTES  ((size_t)1 << 20)
#define DIRECT_BYTES  ((size_t)4 << 20)
/* Making pages keeps the process' address space from being changed: other threads wait with their
 * mmap and munmap. */
#define MAPPED_BYTES ((size_t)256 << 10)
/* Threads for each file from which on all but its writer fill their parts through mappings. */
#define MAPPED_FROM_THREADS 2u

/* One thread at one part. */
struct filling {
    struct source_receiver receiver; /* first: its functions get their filling by it */
    struct fill_crew *crew;
    struct staging_lane *lane;
    XXH3_state_t *sum;              /* NULL: no sum wanted */
    const struct fill_range *range; /* the current range */
    const struct fill_range *last;  /* of those that are copied at once */
    uint64_t at;                    /* the current offset in its file */
    const uint8_t *wanted_sum;      /* of the part; NULL: unknown */
    /* Where the current copy began. */
    struct {
        const struct fill_range *range;
        uint64_t from, to, left_bytes;
    } begin;
    /* The sink: memory, or a file. */
    uint8_t *into; /* NULL: not mapped */
    int fd;        /* of the supply; -1: none */
    bool writes;   /* no other thread writes to that file */
    void *map;     /* of that file, to fill the part; NULL: none */
    size_t map_bytes;
    struct pipe_copy pipe; /* to that file */
    bool is_room_out;      /* a room was given, and is not put yet */
    const char *doing;     /* failed operation on the sink; NULL: none */
    struct failure why;    /* of the source */
};

/* ---- the sink ------------------------------------------------------------------------------ */

static int sink_fail(struct filling *filling, const char *doing, int error)
{
    filling->doing = doing;
    return error;
}

static int sink_map(struct filling *filling, size_t size_bytes)
{
    void *map = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, filling->fd, 0);

    if (map == MAP_FAILED)
        return -errno;
    filling->into = filling->map = map;
    filling->map_bytes = size_bytes;
    return 0;
}

/* Returns true to fill the part of a file through a mapping: the kernel locks the file for each
 * write, so a thread beside the file's writer would wait. Bytes of a slow source hardly do, and
 * with few threads for each file, the wait costs less than the faults of a mapping. */
static bool sink_wants_map(const struct filling *filling)
{
    const struct fill *fill = filling->crew->fill;

    return !filling->writes && !source_is_slow(fill->source) &&
           filling->crew->work.threads >= MAPPED_FROM_THREADS * fill->supply->count;
}

/* Finds the memory or the file that the bytes go to; by writes if mmap fails. */
static int sink_find(struct filling *filling)
{
    struct supply *supply = filling->crew->fill->supply;
    struct stat status;
    bool takes_writes;
    int error = 0;

    filling->into = filling->range->into;
    if (filling->into || !supply)
        return 0;
    filling->fd = supply_take(supply, filling->range->item, &filling->writes);
    if (filling->fd < 0)
        return filling->fd;
    if (fstat(filling->fd, &status) < 0)
        return sink_fail(filling, "look at", -errno);
    takes_writes = pages_take_writes(filling->fd, (uint64_t)status.st_size);
    if (!takes_writes || sink_wants_map(filling))
        error = sink_map(filling, (size_t)status.st_size);
    if (error && !takes_writes)
        return sink_fail(filling, "map", error);
    if (!filling->map && !filling->sum)
        pipe_copy_open(&filling->pipe);
    return 0;
}

/* Tells the source about the sink. */
static int sink_open(struct filling *filling)
{
    int error = sink_find(filling);

    filling->receiver.fd = filling->map ? -1 : filling->fd;
    filling->receiver.pipe = &filling->pipe;
    filling->receiver.step_bytes = filling->receiver.fd >= 0        ? WRITTEN_BYTES
                                   : !filling->into || filling->sum ? SUMMED_BYTES
                                   : filling->map                   ? MAPPED_BYTES
                                                                    : SIZE_MAX;
    return error;
}

static void sink_close(struct filling *filling)
{
    if (filling->map)
        munmap(filling->map, filling->map_bytes);
    pipe_copy_close(&filling->pipe);
    if (filling->fd >= 0)
        supply_give_back(filling->crew->fill->supply, filling->range->item, filling->writes);
}

/* Returns the room for the next bytes: their own place if possible, a GPU's buffer, or one of the
 * thread's. A direct read needs whole blocks. */
static int sink_room(struct source_receiver *receiver, size_t most, bool in_blocks, uint8_t **room,
                     size_t *room_bytes)
{
    struct filling *filling = (struct filling *)receiver;
    const struct staging_memory *memory = filling->crew->memory;
    int error;

    filling->is_room_out = true;
    if (filling->into && (staging_is_copied(memory) || !in_blocks)) {
        uint64_t span_us = staging_is_copied(memory) ? timeline_begin() : 0;
        error = staging_room(filling->lane, memory, filling->into + receiver->at_bytes,
                             in_blocks ? direct_room_bytes(most) : most, room, room_bytes);
        timeline_end("load", "wait for a buffer", span_us, NULL);
        return error ? sink_fail(filling, "write", error) : 0;
    }
    *room_bytes = in_blocks ? DIRECT_BYTES : most;
    *room = staging_scratch(filling->lane, *room_bytes);
    return *room ? 0 : sink_fail(filling, "get a buffer for", -ENOMEM);
}

/* Sends bytes that no room of the sink has: through its rooms. */
static int sink_send(struct filling *filling, uint64_t to, const uint8_t *bytes, size_t size_bytes)
{
    const struct staging_memory *memory = filling->crew->memory;
    size_t room_bytes;
    uint8_t *room;
    int error = 0;

    for (size_t done = 0; !error && done < size_bytes; done += room_bytes) {
        error = staging_room(filling->lane, memory, filling->into + to + done, size_bytes - done,
                             &room, &room_bytes);
        if (error)
            break;
        memcpy(room, bytes + done, room_bytes);
        error = staging_send(filling->lane, memory, filling->into + to + done, room, room_bytes);
    }
    return error;
}

static int sink_put_some(struct filling *filling, const uint8_t *bytes, size_t size_bytes)
{
    const struct staging_memory *memory = filling->crew->memory;
    uint64_t to = filling->receiver.at_bytes;

    if (!filling->into && filling->fd < 0)
        return 0;
    if (!filling->into)
        return file_write_at(filling->fd, bytes, size_bytes, to);
    if (staging_is_copied(memory))
        return filling->is_room_out
                   ? staging_send(filling->lane, memory, filling->into + to, bytes, size_bytes)
                   : sink_send(filling, to, bytes, size_bytes);
    if (bytes != filling->into + to)
        memcpy(filling->into + to, bytes, size_bytes);
    return 0;
}

/* Moves on, to the next range at the end of one. */
static void sink_advance(struct filling *filling, size_t size_bytes)
{
    struct source_receiver *receiver = &filling->receiver;

    atomic_fetch_add(&filling->crew->done_bytes, size_bytes);
    filling->at += size_bytes;
    receiver->at_bytes += size_bytes;
    receiver->left_bytes -= size_bytes;
    if (receiver->left_bytes > 0 || filling->range == filling->last)
        return;
    filling->range++;
    receiver->at_bytes = filling->range->to;
    receiver->left_bytes = filling->range->size_bytes;
}

/* Takes bytes, of one range or several; NULL: they are in the file already. */
static int sink_put(struct source_receiver *receiver, const uint8_t *bytes, size_t size_bytes)
{
    struct filling *filling = (struct filling *)receiver;
    uint64_t span_us = bytes ? timeline_begin() : 0;
    size_t step;

    if (bytes && filling->sum)
        XXH3_128bits_update(filling->sum, bytes, size_bytes);
    for (size_t done = 0; done < size_bytes; done += step) {
        step = size_bytes - done;
        step = receiver->left_bytes < step ? (size_t)receiver->left_bytes : step;
        if (step == 0)
            return -EOVERFLOW; /* more than was asked for */
        int error = bytes ? sink_put_some(filling, bytes + done, step) : 0;
        if (error)
            return sink_fail(filling, "write", error);
        sink_advance(filling, step);
    }
    filling->is_room_out = false;
    timeline_end("load", "copy", span_us, NULL);
    return atomic_load(&filling->crew->fill->stopped) ? -ECANCELED : 0;
}

/* Sets the place of the next byte to the first of the current copy. */
static void sink_begin(struct filling *filling)
{
    filling->range = filling->begin.range;
    filling->at = filling->begin.from;
    filling->receiver.at_bytes = filling->begin.to;
    filling->receiver.left_bytes = filling->begin.left_bytes;
    filling->is_room_out = false;
}

static int sink_check(struct source_receiver *receiver)
{
    const struct filling *filling = (const struct filling *)receiver;
    uint8_t digest[DIGEST_BYTES];

    if (!filling->sum)
        return 0;
    digest_put(XXH3_128bits_digest(filling->sum), digest);
    return memcmp(digest, filling->wanted_sum, FILL_SUM_BYTES) == 0 ? 0 : -EBADMSG;
}

/* Parts that are summed are one copy, if their source has several servers. */
static void sink_restart(struct source_receiver *receiver)
{
    struct filling *filling = (struct filling *)receiver;

    atomic_fetch_sub(&filling->crew->done_bytes, filling->at - filling->begin.from);
    sink_begin(filling);
    if (filling->sum)
        XXH3_128bits_reset(filling->sum);
}

/* ---- one part ------------------------------------------------------------------------------ */

/* The copies of these bytes into the store lie within the read. */
static void trace_read(size_t file, uint64_t from, uint64_t bytes, uint64_t span_us)
{
    char detail[TIMELINE_DETAIL_BYTES];

    snprintf(detail, sizeof(detail), "file %zu, %" PRIu64 " bytes from %" PRIu64, file, bytes,
             from);
    timeline_end("load", "read", span_us, detail);
}

/* Copies the ranges from `first` to `last`, which follow each other in their file; of a range that
 * is cut, the bytes of the piece. */
static int fill_ranges(struct filling *filling, const struct fill_range *first,
                       const struct fill_range *last, const struct work_piece *piece)
{
    struct fill *fill = filling->crew->fill;
    uint64_t begin = 0, end = last->from + last->size_bytes - first->from;

    if (filling->crew->cuts) {
        begin = piece->offset_bytes;
        end = begin + piece->size_bytes;
        direct_align(first->from, first->size_bytes, &begin, &end);
    }
    filling->last = last;
    filling->begin.range = first;
    filling->begin.from = first->from + begin;
    filling->begin.to = first->to + begin;
    filling->begin.left_bytes = filling->crew->cuts ? end - begin : first->size_bytes;
    sink_begin(filling);
    uint64_t span_us = timeline_begin();
    int error = source_copy(fill->source, first->file, filling->at, end - begin, &filling->receiver,
                            &filling->why);
    if (span_us)
        trace_read(first->file, first->from + begin, end - begin, span_us);
    return error;
}

static bool fill_follows(const struct fill_range *range, const struct fill_range *next)
{
    return next->file == range->file && next->from == range->from + range->size_bytes;
}

static int fill_part(struct filling *filling, const struct fill_range *first,
                     const struct fill_range *end, const struct work_piece *piece)
{
    const struct fill_range *last;
    int error = 0;

    for (; !error && first < end; first = last + 1) {
        for (last = first; last + 1 < end && fill_follows(last, last + 1); last++)
            ;
        error = fill_ranges(filling, first, last, piece);
    }
    return error;
}

/* Stops all. Returns true if the reason is that the supply refused memory. */
static bool fill_stop(struct fill *fill)
{
    atomic_store(&fill->stopped, true);
    source_cancel(fill->source);
    return fill->supply && supply_stop(fill->supply) != 0;
}

/* Reports the first failure. Returns the error; -ECANCELED if the supply reports it instead. */
static int fill_fail(const struct filling *filling, int error)
{
    struct fill *fill = filling->crew->fill;
    bool is_refused = fill_stop(fill);

    SCOPED_LOCK(&fill->lock);
    if (!fill->failure && !is_refused && error != -ECANCELED) {
        fill->failure = error;
        fill->fail(fill->context,
                   &(struct fill_failure){filling->range, filling->at, filling->doing, error,
                                          filling->doing ? "" : filling->why.text});
    }
    return is_refused ? -ECANCELED : error;
}

static int fill_piece(void *context, const struct work_piece *piece, void *own)
{
    struct fill_crew *crew = context;
    const struct fill_part *part = &crew->parts[piece->item];
    const struct fill_range *ranges = crew->fill->ranges;
    struct filling filling = {.receiver = {.room = sink_room,
                                           .put = sink_put,
                                           .check = sink_check,
                                           .restart = sink_restart,
                                           .fd = -1},
                              .crew = crew,
                              .lane = own,
                              .sum = part->sum ? XXH3_createState() : NULL,
                              .wanted_sum = part->sum,
                              .range = &ranges[part->first],
                              .at = ranges[part->first].from,
                              .fd = -1,
                              .pipe.ends = {-1, -1}};
    int error;

    if (filling.sum)
        XXH3_128bits_reset(filling.sum);
    if (part->sum && !filling.sum)
        error = sink_fail(&filling, "sum", -ENOMEM);
    else
        error = sink_open(&filling);
    if (!error)
        error = fill_part(&filling, &ranges[part->first], &ranges[part->end], piece);
    if (!error)
        error = sink_check(&filling.receiver);
    if (error)
        error = fill_fail(&filling, error);
    sink_close(&filling);
    XXH3_freeState(filling.sum);
    return error;
}

/* ---- all parts ------------------------------------------------------------------------------- */

/* Ticks for one crew; done_bytes of a work counts whole pieces only. */
static int fill_tick(void *context, uint64_t done_bytes)
{
    struct fill_crew *crew = context;
    struct fill *fill = crew->fill;
    int error = 0;

    (void)done_bytes;
    pthread_mutex_lock(&fill->lock);
    if (fill->tick && !fill->failure)
        error =
            fill->tick(fill->context, (size_t)(crew - fill->crews), atomic_load(&crew->done_bytes));
    pthread_mutex_unlock(&fill->lock);
    if (error)
        fill_stop(fill);
    return error;
}

/* Fills several items at a time, half as many as may be open, while the next ones arrive. */
static int fill_make_order(struct fill_crew *crew)
{
    size_t *item = calloc(crew->part_count + 1, sizeof(*item));
    size_t most = (crew->fill->supply->most + 1) / 2;

    crew->order = calloc(crew->part_count + 1, sizeof(*crew->order));
    crew->work.order = crew->order;
    for (size_t i = 0; item && i < crew->part_count; i++)
        item[i] = crew->fill->ranges[crew->parts[i].first].item;
    if (item && crew->order)
        work_order_abreast(item, crew->part_count,
                           crew->work.threads < most ? crew->work.threads : (unsigned)most,
                           crew->order);
    free(item);
    return item && crew->order ? 0 : -ENOMEM;
}

static void *fill_run_crew(void *context)
{
    struct fill_crew *crew = context;

    crew->work = (struct work){.item_bytes = crew->part_bytes,
                               .item_count = crew->part_count,
                               .whole = !crew->cuts,
                               .tapers = crew->cuts,
                               .context = crew,
                               .piece = fill_piece,
                               .tick = fill_tick};
    staging_equip(crew->fill->staging, &crew->work, crew->memory, crew->threads);
    crew->result = crew->fill->supply ? fill_make_order(crew) : 0;
    if (!crew->result)
        crew->result = work_run(&crew->work);
    if (crew->result)
        fill_stop(crew->fill);
    free(crew->order);
    return NULL;
}

static void fill_add_parts(struct fill *fill, struct fill_crew *crew)
{
    crew->fill = fill;
    for (size_t i = 0; fill->supply && i < crew->part_count; i++) {
        const struct fill_range *range = &fill->ranges[crew->parts[i].first];

        if (!range->into && crew->part_bytes[i] > 0)
            supply_add_part(fill->supply, range->item);
    }
}

int fill_run(struct fill *fill)
{
    size_t started = 0;
    int error = 0;

    pthread_mutex_init(&fill->lock, NULL);
    for (size_t i = 0; i < fill->crew_count; i++)
        fill_add_parts(fill, &fill->crews[i]);
    while (!error && started < fill->crew_count) {
        error = thread_start(&fill->crews[started].thread, 0, fill_run_crew, &fill->crews[started]);
        started += error == 0;
    }
    if (error)
        fill_stop(fill);
    else if (fill->supply)
        supply_run(fill->supply);
    for (size_t i = 0; i < started; i++) {
        pthread_join(fill->crews[i].thread, NULL);
        if (!error || error == -ECANCELED)
            error = fill->crews[i].result ? fill->crews[i].result : error;
    }
    pthread_mutex_destroy(&fill->lock);
    return fill->failure ? fill->failure : error;
}
