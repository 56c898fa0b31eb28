/* SPDX-License-Identifier: Apache-2.0 */
#include "base/timeline.h"

#include "base/clean.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RING_SPANS  8192u
#define BATCH_SPANS 64u
#define SPAN_BYTES  768u /* of a span's lines, at most: each byte of a text may take two */
#define TAIL_BYTES  4096u
#define STACK_BYTES (256u * 1024)
#define ENDING_MS   1000u

struct span {
    const char *category;
    uint64_t id; /* 0: of its thread */
    uint64_t began_us, ended_us;
    int thread;
    char name[TIMELINE_NAME_BYTES], detail[TIMELINE_DETAIL_BYTES];
};

struct timeline {
    struct timeline_options options;
    struct timeline_numbers own;
    pthread_mutex_t mutex; /* guards the fields below */
    pthread_cond_t work, idle;
    size_t first, count;
    uint64_t untold; /* dropped, and not told in the file */
    int next_fd;     /* the file to continue in; -1: none */
    bool ending, ended;
    int error; /* the first of the file */
    struct timeline_numbers *numbers;
    /* used by the thread only */
    int fd;
    bool is_full;
    struct span ring[RING_SPANS];
};

atomic_bool timeline_on;
static struct timeline *timeline;

/* ---- the file ------------------------------------------------------------------------------- */

static int check_file(const char *path, int fd, struct stat *file, struct failure *failure)
{
    if (fstat(fd, file) != 0)
        return failure_set(failure, -errno, "%s: cannot look at it: %s", path, strerror(errno));
    if (!S_ISREG(file->st_mode))
        return failure_set(failure, -EINVAL, "%s: is no regular file; name another one", path);
    if (file->st_uid != geteuid())
        return failure_set(failure, -EPERM,
                           "%s: belongs to another user (uid %u); name another file, or remove it",
                           path, (unsigned)file->st_uid);
    if (fchmod(fd, 0600) != 0)
        return failure_set(failure, -errno, "%s: cannot make its mode 0600: %s", path,
                           strerror(errno));
    return 0;
}

static int open_file(const char *path, int flags, struct failure *failure)
{
    int fd = open(
        path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags,
        0600);
    if (fd >= 0)
        return fd;
    if (errno == ELOOP)
        return failure_set(failure, -ELOOP,
                           "%s: is a symbolic link, which is not followed; name the file itself",
                           path);
    return failure_set(failure, -errno, "%s: cannot open it: %s%s", path, strerror(errno),
                       errno == ENOENT ? "; make its directory first" : "");
}

int timeline_open(const char *path, struct failure *failure)
{
    char former[4096 + 2];
    struct stat file;
    int fd = open_file(path, 0, failure);
    int error = fd < 0 ? fd : check_file(path, fd, &file, failure);

    if (error || file.st_size == 0)
        goto out;
    file_close_fd(&fd);
    if (snprintf(former, sizeof former, "%s.1", path) >= (int)sizeof former)
        return failure_set(failure, -ENAMETOOLONG, "%s: is too long", path);
    if (rename(path, former) != 0)
        return failure_set(failure, -errno, "%s: cannot rename it to %s: %s", path, former,
                           strerror(errno));
    fd = open_file(path, O_EXCL, failure);
    return fd;
out:
    if (error)
        file_close_fd(&fd);
    return error ? error : fd;
}

/* Removes the part of a line that a killed process left, or the line that ends the array, so that
 * the array goes on. */
static void mend(int fd, off_t size)
{
    char tail[TAIL_BYTES];
    off_t from = size > (off_t)sizeof tail ? size - (off_t)sizeof tail : 0;
    ssize_t got = pread(fd, tail, sizeof tail, from);
    const char *last = got > 0 ? memrchr(tail, '\n', (size_t)got) : NULL;

    if (last && last > tail && last[-1] == ']')
        last = memrchr(tail, '\n', (size_t)(last - tail));
    off_t whole = last ? from + (last - tail) + 1 : from;
    if (got > 0 && whole < size)
        (void)!ftruncate(fd, whole);
}

/* ---- the thread that writes ----------------------------------------------------------------- */

static void put_text(FILE *out, const char *text)
{
    for (; *text; text++)
        fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
}

static void put_line(FILE *out, const struct span *span, char phase, uint64_t at_us)
{
    fprintf(out, "{\"ph\":\"%c\",\"cat\":\"%s\",\"name\":\"", phase, span->category);
    put_text(out, span->name);
    fprintf(out, "\",\"pid\":%d,\"tid\":%d,\"ts\":%" PRIu64, (int)getpid(), span->thread, at_us);
    if (phase == 'X')
        fprintf(out, ",\"dur\":%" PRIu64, span->ended_us - span->began_us);
    else
        fprintf(out, ",\"id\":\"0x%" PRIx64 "\"", span->id);
    if (span->detail[0] && phase != 'e') {
        fputs(",\"args\":{\"detail\":\"", out);
        put_text(out, span->detail);
        fputs("\"}", out);
    }
    fputs("},\n", out);
}

static void put_span(FILE *out, const struct span *span)
{
    put_line(out, span, span->id ? 'b' : 'X', span->began_us);
    if (span->id)
        put_line(out, span, 'e', span->ended_us);
}

static void put_head(const struct timeline *at, FILE *out, bool is_empty)
{
    if (is_empty)
        fputs("[\n", out);
    fprintf(out, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"",
            (int)getpid());
    put_text(out, at->options.process);
    fputs("\"}},\n", out);
}

static void put_dropped(FILE *out, uint64_t count)
{
    fprintf(out,
            "{\"ph\":\"i\",\"s\":\"g\",\"name\":\"%" PRIu64 " spans were dropped\",\"pid\":%d,"
            "\"tid\":%d,\"ts\":%" PRIu64 "},\n",
            count, (int)getpid(), (int)gettid(), clock_now_us());
}

/* Writes all, or leaves the file as it was. */
static int write_text(const struct timeline *at, const char *text, size_t size)
{
    struct stat before;
    if (fstat(at->fd, &before) != 0)
        return -errno;
    for (size_t done = 0; done < size;) {
        ssize_t put = write(at->fd, text + done, size - done);
        int error = put < 0 ? -errno : -EIO;
        if (error == -EINTR)
            continue;
        if (put <= 0) {
            (void)!ftruncate(at->fd, before.st_size);
            return error;
        }
        done += (size_t)put;
    }
    return 0;
}

/* Writes `count` spans, and before them how many were dropped. */
static int write_spans(struct timeline *at, const struct span *spans, size_t count,
                       uint64_t dropped, bool begins)
{
    static char text[(BATCH_SPANS + 2) * SPAN_BYTES]; /* there is one thread */
    struct stat file = {0};
    FILE *out = fmemopen(text, sizeof text, "w");
    if (!out)
        return -ENOMEM;
    if (fstat(at->fd, &file) == 0 && begins)
        mend(at->fd, file.st_size);
    if (begins || file.st_size == 0)
        put_head(at, out, file.st_size == 0);
    if (dropped)
        put_dropped(out, dropped);
    for (size_t i = 0; i < count; i++)
        put_span(out, &spans[i]);
    fflush(out);
    size_t size = (size_t)ftello(out);
    fclose(out);
    int error = at->is_full ? -EFBIG : write_text(at, text, size);
    if (!error && (uint64_t)file.st_size + size >= at->options.max_bytes)
        at->is_full = !at->options.full || at->options.full(at->options.context) == 0;
    return error;
}

/* Ends the array of the file. A file with an incomplete last line, or without room, stays open. */
static void write_end(const struct timeline *at)
{
    char text[128];
    int size = snprintf(text, sizeof text,
                        "{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":%d,"
                        "\"args\":{\"labels\":\"ended\"}}]\n",
                        (int)getpid());
    (void)!write_text(at, text, (size_t)size);
}

static size_t take_spans(struct timeline *at, struct span spans[BATCH_SPANS])
{
    size_t count = 0;
    for (; count < BATCH_SPANS && at->count > 0; count++, at->count--) {
        spans[count] = at->ring[at->first];
        at->first = (at->first + 1) % RING_SPANS;
    }
    return count;
}

/* Ends the present file, if it began, when there is a new one, and returns true then. The caller
 * holds the mutex; it is free meanwhile, for write and close may hang with the file's disk. */
static bool take_file(struct timeline *at, bool begins)
{
    int next = at->next_fd;
    if (next < 0)
        return false;
    at->next_fd = -1;
    at->is_full = false;
    pthread_mutex_unlock(&at->mutex);
    if (!begins)
        write_end(at);
    close(at->fd);
    at->fd = next;
    pthread_mutex_lock(&at->mutex);
    return true;
}

static void *run(void *argument)
{
    struct timeline *at = argument;
    static struct span spans[BATCH_SPANS];
    bool begins = write_spans(at, NULL, 0, 0, true) != 0; /* else it would be no array yet */

    pthread_mutex_lock(&at->mutex);
    for (;;) {
        while (at->next_fd < 0 && !at->ending &&
               (at->count == 0 || (at->is_full && at->options.full)))
            pthread_cond_wait(&at->work, &at->mutex);
        begins |= take_file(at, begins);
        size_t count = take_spans(at, spans);
        uint64_t untold = at->untold;
        if (count == 0 && at->ending)
            break;
        at->untold = 0;
        pthread_mutex_unlock(&at->mutex);
        int error = count > 0 || begins ? write_spans(at, spans, count, untold, begins) : 0;
        pthread_mutex_lock(&at->mutex);
        begins &= error != 0;
        at->numbers->written += error ? 0 : count;
        at->numbers->dropped += error ? count : 0;
        at->untold += error ? untold + count : 0;
        if (error && !at->error)
            at->error = error;
    }
    pthread_mutex_unlock(&at->mutex);
    if (!begins)
        write_end(at);
    pthread_mutex_lock(&at->mutex);
    at->ended = true;
    pthread_cond_signal(&at->idle);
    pthread_mutex_unlock(&at->mutex);
    return NULL;
}

/* ---- from any thread ------------------------------------------------------------------------ */

int timeline_start(const struct timeline_options *options)
{
    struct timeline *made = calloc(1, sizeof *made);
    if (!made) {
        close(options->fd);
        return -ENOMEM;
    }
    made->options = *options;
    made->numbers = options->numbers ? options->numbers : &made->own;
    made->fd = options->fd;
    made->next_fd = -1;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->work, NULL);
    thread_init_condition(&made->idle);
    timeline = made;
    int error = thread_start(NULL, STACK_BYTES, run, made);
    if (error) {
        timeline = NULL;
        close(made->fd);
        free(made);
        return error;
    }
    atomic_store(&timeline_on, true);
    return 0;
}

void timeline_reopen(int fd)
{
    SCOPED_LOCK(&timeline->mutex);
    file_close_fd(&timeline->next_fd);
    timeline->next_fd = fd;
    pthread_cond_signal(&timeline->work);
}

/* The memory stays: another thread may be about to add a span. */
int timeline_stop(void)
{
    const struct timespec until = clock_after_ms(CLOCK_MONOTONIC, ENDING_MS);
    struct timeline *at = timeline;
    if (!at || !atomic_exchange(&timeline_on, false))
        return 0;
    SCOPED_LOCK(&at->mutex);
    at->ending = true;
    pthread_cond_signal(&at->work);
    while (!at->ended && pthread_cond_timedwait(&at->idle, &at->mutex, &until) == 0)
        continue;
    return at->ended ? at->error : -ETIMEDOUT;
}

bool timeline_get_numbers(struct timeline_numbers *numbers)
{
    if (!timeline_is_on())
        return false;
    SCOPED_LOCK(&timeline->mutex);
    *numbers = *timeline->numbers;
    return true;
}

uint64_t timeline_begin(void)
{
    return timeline_is_on() ? clock_now_us() : 0;
}

static void add(const char *category, const char *name, uint64_t id, uint64_t began_us,
                const char *detail)
{
    struct timeline *at = timeline;
    struct span span = {.category = category,
                        .id = id,
                        .began_us = began_us,
                        .ended_us = clock_now_us(),
                        .thread = (int)gettid()};
    if (span.ended_us < began_us)
        span.ended_us = began_us;
    snprintf(span.name, sizeof span.name, "%s", name);
    snprintf(span.detail, sizeof span.detail, "%s", detail ? detail : "");
    clean_bytes(span.name, strlen(span.name), "");
    clean_bytes(span.detail, strlen(span.detail), "");
    SCOPED_LOCK(&at->mutex);
    if (at->count == RING_SPANS) {
        at->numbers->dropped++;
        at->untold++;
    } else {
        at->ring[(at->first + at->count++) % RING_SPANS] = span;
        if (at->count == 1)
            pthread_cond_signal(&at->work);
    }
}

void timeline_end(const char *category, const char *name, uint64_t began_us, const char *detail)
{
    if (began_us && timeline_is_on())
        add(category, name, 0, began_us, detail);
}

void timeline_add(const char *category, const char *name, uint64_t id, uint64_t began_us,
                  const char *detail)
{
    if (began_us && timeline_is_on())
        add(category, name, id ? id : 1, began_us, detail);
}
