/* SPDX-License-Identifier: Apache-2.0 */
#include "mover/fill.h"

#include "base/file_io.h"
#include "base/thread.h"
#include "base/xxh3.h"
#include "mover/supply.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* ---- from the page cache -------------------------------------------------------------------- */

/*
 * Copies bytes of a file in the page cache into another file, with one copy. read(2) into a buffer
 * and write(2) from it touch each byte twice; splice(2) passes the pages of the first file through
 * a pipe to the write. A refusal (a file system without splice, no descriptors left) is no error:
 * the caller then copies. For one thread at a time.
 */

struct pipe_copy {
    int ends[2]; /* -1: none, or splice was refused */
};

/* Twice the size of one request: a page that is wanted in part takes a whole slot. */
#define PIPE_BYTES (512 << 10)

/* Never fails. */
static void pipe_copy_open(struct pipe_copy *pipe)
{
    if (pipe2(pipe->ends, O_CLOEXEC) < 0)
        pipe->ends[0] = pipe->ends[1] = -1;
    else
        fcntl(pipe->ends[1], F_SETPIPE_SZ, PIPE_BYTES); /* if that fails, it is smaller */
}

static void pipe_copy_close(struct pipe_copy *pipe)
{
    for (int i = 0; i < 2; i++) {
        if (pipe->ends[i] >= 0)
            close(pipe->ends[i]);
        pipe->ends[i] = -1;
    }
}

/* Closes the pipe, with the bytes in it. */
static int pipe_copy_refuse(struct pipe_copy *pipe)
{
    pipe_copy_close(pipe);
    return -EOPNOTSUPP;
}

static ssize_t splice_again(int from_fd, off_t *from, int to_fd, off_t *to, size_t size_bytes)
{
    ssize_t moved;

    do
        moved = splice(from_fd, from, to_fd, to, size_bytes, 0);
    while (moved < 0 && errno == EINTR);
    return moved < 0 ? -errno : moved;
}

/*
 * Copies the next 1..size_bytes (*copied); usually all, up to 256 KiB. -EOPNOTSUPP: splice is
 * refused now and later, and nothing was copied; -ENODATA: the file is shorter; or the error of
 * splice(2).
 */
static int pipe_copy_some(struct pipe_copy *pipe, int from_fd, uint64_t from, int to_fd,
                          uint64_t to, size_t size_bytes, size_t *copied)
{
    off_t in = (off_t)from, out = (off_t)to;
    ssize_t held, moved = 0;

    *copied = 0;
    if (pipe->ends[0] < 0)
        return -EOPNOTSUPP;
    held = splice_again(from_fd, &in, pipe->ends[1], NULL, size_bytes);
    if (held == -EINVAL)
        return pipe_copy_refuse(pipe);
    if (held <= 0)
        return held < 0 ? (int)held : -ENODATA;
    for (ssize_t left = held; left > 0; left -= moved) {
        moved = splice_again(pipe->ends[0], NULL, to_fd, &out, (size_t)left);
        if (moved == -EINVAL && left == held)
            return pipe_copy_refuse(pipe);
        if (moved <= 0) {
            pipe_copy_close(pipe);
            return moved < 0 ? (int)moved : -EIO;
        }
    }
    *copied = (size_t)held;
    return 0;
}

/* Of one step. Bytes that go through a buffer, or are summed, stay in the processor's cache. */
#define SPLICED_BYTES ((size_t)256 << 10)
#define WRITTEN_BYTES ((size_t)128 << 10)
#define SUMMED_BYTES  ((size_t)1 << 20)
#define DIRECT_BYTES  ((size_t)4 << 20)
#define PAGE_BYTES    ((size_t)4096)

/* One thread at one part. */
struct filling {
    struct fill_crew *crew;
    struct staging_lane *lane;
    XXH3_state_t *sum;              /* NULL: no sum wanted */
    const struct fill_range *range; /* the current range */
    uint64_t at;                    /* the current offset in its file */
    struct direct_file *file;
    /* The sink: memory, or a file. */
    uint8_t *into; /* NULL: not mapped */
    int fd;        /* of the supply; -1: none */
    void *map;     /* of that file, if it cannot be written; NULL: none */
    size_t map_bytes;
    struct pipe_copy pipe; /* to that file */
    const char *doing;     /* failed operation on the sink; NULL: none */
};

/* ---- the sink ------------------------------------------------------------------------------ */

/* Huge pages have no write(2), and RLIMIT_FSIZE refuses larger files. */
static bool sink_is_written(int fd, uint64_t size_bytes)
{
    struct rlimit limit;
    struct statfs system;

    return fstatfs(fd, &system) == 0 && system.f_type != HUGETLBFS_MAGIC &&
           getrlimit(RLIMIT_FSIZE, &limit) == 0 && size_bytes <= limit.rlim_cur;
}

static int sink_fail(struct filling *filling, const char *doing, int error)
{
    filling->doing = doing;
    return error;
}

static int sink_map(struct filling *filling, size_t size_bytes)
{
    void *map = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, filling->fd, 0);

    if (map == MAP_FAILED)
        return sink_fail(filling, "map", -errno);
    filling->into = filling->map = map;
    filling->map_bytes = size_bytes;
    return 0;
}

static int sink_open(struct filling *filling)
{
    struct supply *supply = filling->crew->fill->supply;
    struct stat status;

    filling->into = filling->range->into;
    if (filling->into || !supply)
        return 0;
    filling->fd = supply_take(supply, filling->range->item);
    if (filling->fd < 0)
        return filling->fd;
    if (fstat(filling->fd, &status) < 0)
        return sink_fail(filling, "look at", -errno);
    if (!sink_is_written(filling->fd, (uint64_t)status.st_size))
        return sink_map(filling, (size_t)status.st_size);
    if (!filling->sum)
        pipe_copy_open(&filling->pipe);
    return 0;
}

static void sink_close(struct filling *filling)
{
    if (filling->map)
        munmap(filling->map, filling->map_bytes);
    pipe_copy_close(&filling->pipe);
    if (filling->fd >= 0)
        supply_give_back(filling->crew->fill->supply, filling->range->item);
}

/* Returns the maximum size of a step. Steps end at a page of a file that is written. */
static size_t sink_most(const struct filling *filling, uint64_t to)
{
    if (direct_is_on(filling->file))
        return DIRECT_BYTES;
    if (filling->pipe.ends[0] >= 0)
        return SPLICED_BYTES - (size_t)(to % PAGE_BYTES);
    if (filling->fd >= 0 && !filling->map)
        return WRITTEN_BYTES - (size_t)(to % PAGE_BYTES);
    return filling->into && !filling->sum ? SIZE_MAX : SUMMED_BYTES;
}

/* Returns the room for the next bytes: their own place if possible, a GPU's buffer, or one of the
 * thread's. A direct read needs whole blocks. */
static int sink_room(struct filling *filling, uint64_t to, size_t most, uint8_t **room,
                     size_t *room_bytes)
{
    const struct staging_memory *memory = filling->crew->memory;
    bool is_direct = direct_is_on(filling->file);

    if (filling->into && (staging_is_copied(memory) || !is_direct))
        return staging_room(filling->lane, memory, filling->into + to,
                            is_direct ? direct_room_bytes(most) : most, room, room_bytes);
    *room_bytes = is_direct ? DIRECT_BYTES : most;
    *room = staging_scratch(filling->lane, *room_bytes);
    return *room ? 0 : sink_fail(filling, "get a buffer for", -ENOMEM);
}

static int sink_put(struct filling *filling, uint64_t to, const uint8_t *bytes, size_t size_bytes)
{
    const struct staging_memory *memory = filling->crew->memory;

    if (!filling->into && filling->fd < 0)
        return 0;
    if (!filling->into)
        return file_write_at(filling->fd, bytes, size_bytes, to);
    if (staging_is_copied(memory))
        return staging_send(filling->lane, memory, filling->into + to, bytes, size_bytes);
    if (bytes != filling->into + to)
        memcpy(filling->into + to, bytes, size_bytes);
    return 0;
}

/* ---- one part ------------------------------------------------------------------------------ */

/* Moves the next bytes of a range, at most `left`. If a splice fails, read and write are tried and
 * tell which of the two files is at fault. */
static int fill_step(struct filling *filling, uint64_t to, uint64_t left, size_t *size_bytes)
{
    struct direct_file *file = filling->file;
    size_t most = sink_most(filling, to), room_bytes;
    uint8_t *room, *bytes;
    int error;

    most = left < most ? (size_t)left : most;
    if (filling->pipe.ends[0] >= 0 && !direct_is_on(file) &&
        pipe_copy_some(&filling->pipe, file->fd, filling->at, filling->fd, to, most, size_bytes) ==
            0)
        return 0;
    error = sink_room(filling, to, most, &room, &room_bytes);
    if (error)
        return error;
    *size_bytes = direct_fit(file, filling->at, most, room_bytes);
    error = direct_read(file, room, filling->at, *size_bytes, &bytes);
    if (error)
        return error;
    if (filling->sum)
        XXH3_128bits_update(filling->sum, bytes, *size_bytes);
    error = sink_put(filling, to, bytes, *size_bytes);
    return error ? sink_fail(filling, "write", error) : 0;
}

static int fill_steps(struct filling *filling, uint64_t begin, uint64_t end)
{
    const struct fill_range *range = filling->range;
    struct fill_crew *crew = filling->crew;
    size_t step;

    for (uint64_t at = begin; at < end; at += step) {
        int error;

        if (atomic_load(&crew->fill->stopped))
            return -ECANCELED;
        filling->at = range->from + at;
        error = fill_step(filling, range->to + at, end - at, &step);
        if (error)
            return error;
        atomic_fetch_add(&crew->done_bytes, step);
    }
    return 0;
}

/* Fills the part of the range that is in the piece. */
static int fill_range(struct filling *filling, const struct work_piece *piece)
{
    const struct fill_range *range = filling->range;
    const struct fill *fill = filling->crew->fill;
    uint64_t begin = 0, end = range->size_bytes;
    struct direct_file own;
    int fd = -1, error;

    if (filling->crew->cuts) {
        begin = piece->offset_bytes;
        end = begin + piece->size_bytes;
        direct_align(range->from, range->size_bytes, &begin, &end);
    }
    filling->at = range->from + begin;
    filling->file = range->file ? range->file : &own;
    if (!range->file)
        fd = fill->open(fill->context, range, &own);
    if (!range->file && fd < 0)
        return fd;
    error = fill_steps(filling, begin, end);
    if (fd >= 0) {
        direct_close(&own);
        close(fd);
    }
    return error;
}

static int fill_compare_sum(const struct filling *filling, const uint8_t *sum)
{
    XXH128_canonical_t canonical;

    if (!sum)
        return 0;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(filling->sum));
    return memcmp(canonical.digest, sum, FILL_SUM_BYTES) == 0 ? 0 : -EBADMSG;
}

/* Stops all. Returns true if the reason is that the supply refused memory. */
static bool fill_stop(struct fill *fill)
{
    atomic_store(&fill->stopped, true);
    return fill->supply && supply_stop(fill->supply) != 0;
}

/* Reports the first failure. Returns the error; -ECANCELED if the supply reports it instead. */
static int fill_fail(const struct filling *filling, int error)
{
    struct fill *fill = filling->crew->fill;
    bool is_refused = fill_stop(fill);

    pthread_mutex_lock(&fill->lock);
    if (!fill->failure && !is_refused && error != -ECANCELED) {
        fill->failure = error;
        fill->fail(fill->context, filling->range, filling->at, filling->doing, error);
    }
    pthread_mutex_unlock(&fill->lock);
    return is_refused ? -ECANCELED : error;
}

static int fill_piece(void *context, const struct work_piece *piece, void *own)
{
    struct fill_crew *crew = context;
    const struct fill_part *part = &crew->parts[piece->item];
    const struct fill_range *ranges = crew->fill->ranges;
    struct filling filling = {.crew = crew,
                              .lane = own,
                              .sum = part->sum ? XXH3_createState() : NULL,
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
    for (size_t i = part->first; !error && i < part->end; i++) {
        filling.range = &ranges[i];
        error = fill_range(&filling, piece);
    }
    if (!error)
        error = fill_compare_sum(&filling, part->sum);
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
