/* SPDX-License-Identifier: Apache-2.0 */
#include "copier/lanes.h"

#include "copier/lane_file.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

enum direction {
    OUT,
    IN,
    DIRECTIONS,
};

/* A request, carried out in parts. */
struct move {
    bool exists;
    struct copier_request request;
    struct lane_file file;
    char *pinned;   /* the file's bytes, if the driver can use them in place; else NULL */
    bool is_mapped; /* files_leave has to be called */
    uint64_t turn;  /* the lower, the earlier */
    uint64_t begun; /* bytes that a lane has taken or finished */
    unsigned parts; /* parts that lanes have */
    int error;      /* no further part begins after an error */
    char why[COPIER_WHY_BYTES];
};

/* A buffer of a lane's ring: one part in progress. */
struct buffer {
    char *bytes;
    void *mark; /* of the driver */
    struct move *move;
    struct copier_request part;
};

struct lane {
    struct lanes *lanes;
    enum direction direction;
    pthread_t thread;
    void *stream;
    char *ring;
    bool is_pinned;
    struct buffer buffers[LANES_BUFFERS];
    unsigned first, count; /* buffers in use, in the order of their beginning */
};

struct lanes {
    const struct copier_gpu *driver;
    void *gpu, *context;
    lanes_finish finish;
    struct files *files;

    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t work;
    bool ending;
    uint64_t turns;
    unsigned direct[DIRECTIONS]; /* parts in progress from or to a file's own memory */
    struct move moves[COPIER_MOVES];
    unsigned counts[DIRECTIONS]; /* of started lanes */
    unsigned fit[DIRECTIONS];    /* of those, lanes not known to be useless */
    struct lane all[DIRECTIONS][LANES_MOST];
};

static enum direction direction_of(const struct copier_request *request)
{
    return request->act == COPIER_MOVE_OUT ? OUT : IN;
}

/* ---- moves, with the mutex held ------------------------------------------------------------ */

static bool comes_before(const struct move *move, const struct move *other)
{
    return move->parts != other->parts ? move->parts < other->parts : move->turn < other->turn;
}

static bool may_begin(const struct lanes *lanes, const struct move *move, enum direction direction)
{
    if (!move->exists || move->error || move->begun == move->request.bytes ||
        direction_of(&move->request) != direction)
        return false;
    return !move->pinned || lanes->direct[direction] < LANES_DIRECT_PARTS;
}

/* Returns the move with the fewest lanes, because lanes wait for each other in one file; then the
 * earliest. */
static struct move *choose(struct lanes *lanes, enum direction direction)
{
    struct move *best = NULL;

    for (unsigned i = 0; i < COPIER_MOVES; i++) {
        struct move *move = &lanes->moves[i];

        if (may_begin(lanes, move, direction) && (!best || comes_before(move, best)))
            best = move;
    }
    return best;
}

static void take_part(struct lanes *lanes, struct move *move, struct buffer *buffer)
{
    uint64_t left = move->request.bytes - move->begun;
    uint64_t most = move->pinned ? LANES_DIRECT_BYTES : LANES_BUFFER_BYTES;

    buffer->move = move;
    buffer->part = move->request;
    buffer->part.offset += move->begun;
    buffer->part.bytes = left < most ? left : most;
    move->begun += buffer->part.bytes;
    move->parts++;
    if (move->pinned)
        lanes->direct[direction_of(&move->request)]++;
}

/* Ends a move before its report, because the receiver may have the file forgotten. */
static void end_move(struct lanes *lanes, struct move *move)
{
    close(move->file.fd);
    if (move->is_mapped)
        files_leave(lanes->files, &move->request);
}

/* Ends a part. Releases the mutex to report the move: the entry may get its next move at once. */
static void end_part(struct lanes *lanes, struct move *move, int error, const char *why)
{
    struct move over;

    if (move->pinned)
        lanes->direct[direction_of(&move->request)]--;
    if (error && !move->error) {
        move->error = error;
        snprintf(move->why, sizeof(move->why), "%s", why);
    }
    if (--move->parts > 0 || (!move->error && move->begun < move->request.bytes))
        return;
    over = *move;
    move->exists = false;
    pthread_mutex_unlock(&lanes->mutex);
    end_move(lanes, &over);
    lanes->finish(lanes->context, &over.request, over.error, over.why);
    pthread_mutex_lock(&lanes->mutex);
}

/* ---- a part -------------------------------------------------------------------------------- */

static int explain_file(const char *doing, int error, char *why)
{
    snprintf(why, COPIER_WHY_BYTES, "cannot %s the other side's memory: %s", doing,
             strerror(-error));
    return error;
}

static int begin_part(struct lane *lane, struct buffer *buffer, char *why)
{
    const struct lanes *lanes = lane->lanes;
    const struct move *move = buffer->move;
    const struct copier_request *part = &buffer->part;
    char *bytes = buffer->bytes;
    int error = 0;

    if (move->pinned)
        bytes = move->pinned + (part->offset - move->request.offset);
    else if (lane->direction == IN)
        error = lane_file_read(&move->file, bytes, part->bytes, part->offset);
    if (error < 0)
        return explain_file("read", error, why);
    return lanes->driver->begin(lanes->gpu, lane->stream, part, bytes, buffer->mark, why);
}

static int complete_part(struct lane *lane, struct buffer *buffer, char *why)
{
    const struct lanes *lanes = lane->lanes;
    int error = lanes->driver->await(lanes->gpu, buffer->mark, why);

    if (error < 0 || lane->direction == IN || buffer->move->pinned)
        return error;
    error = lane_file_write(&buffer->move->file, buffer->bytes, buffer->part.bytes,
                            buffer->part.offset);
    return error < 0 ? explain_file("write", error, why) : 0;
}

/* ---- a lane -------------------------------------------------------------------------------- */

static void release_ring(struct lane *lane)
{
    const struct lanes *lanes = lane->lanes;

    for (unsigned i = 0; i < LANES_BUFFERS; i++)
        if (lane->buffers[i].mark)
            lanes->driver->drop_mark(lanes->gpu, lane->buffers[i].mark);
    if (lane->is_pinned)
        lanes->driver->unpin(lanes->gpu, lane->ring);
    if (lane->ring)
        munmap(lane->ring, LANES_BUFFERS * LANES_BUFFER_BYTES);
    lane->ring = NULL;
}

/* Makes the ring at a multiple of a huge page, so that it can use huge pages. */
static int make_ring(struct lane *lane, char *why)
{
    size_t bytes = LANES_BUFFERS * LANES_BUFFER_BYTES, head;
    const struct lanes *lanes = lane->lanes;
    char *at = mmap(NULL, bytes + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int error = 0;

    if (at == MAP_FAILED) {
        snprintf(why, COPIER_WHY_BYTES, "no memory for the buffers of a move");
        return -ENOMEM;
    }
    head = HUGE_PAGE_BYTES - ((uintptr_t)at & (HUGE_PAGE_BYTES - 1));
    munmap(at, head);
    if (head < HUGE_PAGE_BYTES)
        munmap(at + head + bytes, HUGE_PAGE_BYTES - head);
    lane->ring = at + head;
    madvise(lane->ring, bytes, MADV_HUGEPAGE);
    memset(lane->ring, 0, bytes); /* makes the pages on the node where this thread runs */
    lane->is_pinned = lanes->driver->pin(lanes->gpu, lane->ring, bytes) == 0;
    for (unsigned i = 0; i < LANES_BUFFERS && error == 0; i++) {
        lane->buffers[i].bytes = lane->ring + i * LANES_BUFFER_BYTES;
        error = lanes->driver->make_mark(lanes->gpu, &lane->buffers[i].mark, why);
    }
    return error;
}

/* Begins one part if there is room and a move, else completes the oldest one. Called with the mutex
 * held, which is released meanwhile. */
static void step(struct lane *lane, struct move *move)
{
    unsigned at = (lane->first + (move ? lane->count : 0)) % LANES_BUFFERS;
    struct buffer *buffer = &lane->buffers[at];
    char why[COPIER_WHY_BYTES] = "";

    if (move)
        take_part(lane->lanes, move, buffer);
    pthread_mutex_unlock(&lane->lanes->mutex);
    int error = move ? begin_part(lane, buffer, why) : complete_part(lane, buffer, why);
    pthread_mutex_lock(&lane->lanes->mutex);
    if (move && error == 0) {
        lane->count++;
        return;
    }
    if (!move) {
        lane->first = (lane->first + 1) % LANES_BUFFERS;
        lane->count--;
    }
    end_part(lane->lanes, buffer->move, error, why);
}

/* Fails a move when no lane works. */
static void refuse(struct lane *lane, struct move *move, int error, const char *why)
{
    struct buffer buffer;

    take_part(lane->lanes, move, &buffer);
    end_part(lane->lanes, move, error, why);
}

static void *run_lane(void *argument)
{
    struct lane *lane = argument;
    struct lanes *lanes = lane->lanes;
    char why[COPIER_WHY_BYTES] = "";
    int entered = lanes->driver->enter(lanes->gpu, &lane->stream, why);
    int error = entered < 0 ? entered : make_ring(lane, why);

    pthread_mutex_lock(&lanes->mutex);
    if (error < 0)
        lanes->fit[lane->direction]--;
    while (error == 0 || lanes->fit[lane->direction] == 0) {
        struct move *move = lane->count < LANES_BUFFERS ? choose(lanes, lane->direction) : NULL;

        if (move && error < 0)
            refuse(lane, move, error, why);
        else if (move || lane->count > 0)
            step(lane, move);
        else if (lanes->ending)
            break;
        else
            pthread_cond_wait(&lanes->work, &lanes->mutex);
    }
    pthread_mutex_unlock(&lanes->mutex);
    release_ring(lane);
    if (entered == 0)
        lanes->driver->leave(lanes->gpu, lane->stream);
    return NULL;
}

/* ---- all of them --------------------------------------------------------------------------- */

static unsigned count_wanted(void)
{
    cpu_set_t cpus;
    int count = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;

    return count < (int)LANES_MOST ? (unsigned)count : LANES_MOST;
}

/* With the mutex held. One lane is enough; more are for speed. */
static void start(struct lanes *lanes, enum direction direction)
{
    unsigned wanted = count_wanted();

    while (lanes->counts[direction] < wanted) {
        struct lane *lane = &lanes->all[direction][lanes->counts[direction]];

        *lane = (struct lane){.lanes = lanes, .direction = direction};
        if (pthread_create(&lane->thread, NULL, run_lane, lane))
            return;
        lanes->counts[direction]++;
        lanes->fit[direction]++;
    }
}

struct lanes *lanes_new(const struct copier_gpu *driver, void *gpu, struct files *files,
                        lanes_finish finish, void *context)
{
    struct lanes *lanes = calloc(1, sizeof(*lanes));

    if (!lanes)
        return NULL;
    lanes->driver = driver;
    lanes->gpu = gpu;
    lanes->finish = finish;
    lanes->context = context;
    lanes->files = files;
    pthread_mutex_init(&lanes->mutex, NULL);
    pthread_cond_init(&lanes->work, NULL);
    return lanes;
}

static struct move prepare(struct lanes *lanes, const struct copier_request *request, int fd)
{
    struct file_view view = files_enter(lanes->files, request, fd);

    return (struct move){
        .exists = true,
        .request = *request,
        .file = {.fd = fd,
                 .at = view.is_huge ? view.at : NULL,
                 .at_begin = request->offset,
                 .is_written = view.is_written},
        .pinned = view.is_pinned ? view.at : NULL,
        .is_mapped = view.at != NULL,
    };
}

bool lanes_add(struct lanes *lanes, const struct copier_request *request, int fd)
{
    struct move *move = &lanes->moves[request->entry - COPIER_FIRST_MOVE];
    enum direction direction = direction_of(request);
    struct move made = prepare(lanes, request, fd);

    pthread_mutex_lock(&lanes->mutex);
    if (move->exists) {
        pthread_mutex_unlock(&lanes->mutex);
        end_move(lanes, &made);
        return false;
    }
    *move = made;
    move->turn = lanes->turns++;
    if (lanes->counts[direction] == 0)
        start(lanes, direction);
    if (lanes->counts[direction] == 0) {
        struct buffer none;

        take_part(lanes, move, &none);
        end_part(lanes, move, -ENOMEM, "no thread can be started to move bytes");
    }
    pthread_cond_broadcast(&lanes->work);
    pthread_mutex_unlock(&lanes->mutex);
    return true;
}

void lanes_free(struct lanes *lanes)
{
    pthread_mutex_lock(&lanes->mutex);
    lanes->ending = true;
    pthread_cond_broadcast(&lanes->work);
    pthread_mutex_unlock(&lanes->mutex);
    for (unsigned direction = 0; direction < DIRECTIONS; direction++)
        for (unsigned i = 0; i < lanes->counts[direction]; i++)
            pthread_join(lanes->all[direction][i].thread, NULL);
    pthread_cond_destroy(&lanes->work);
    pthread_mutex_destroy(&lanes->mutex);
    free(lanes);
}
