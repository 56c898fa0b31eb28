/* SPDX-License-Identifier: Apache-2.0 */
/* audit - writes each event's line; core/event_line.c renders it */
#include "daemon/audit.h"
#include "base/clock.h"
#include "core/event_line.h"

#include "base/file_io.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_BYTES (1u << 20) /* of lines waiting for the thread */
#define STACK_BYTES (256u * 1024)
#define ENDING_S    1

struct line {
    struct line *next;
    uint64_t seq; /* the event's */
    size_t size;
    char *text;
};

struct audit {
    struct service *service;
    struct service_observer observer;
    uint64_t seq;                   /* of the next event */
    struct line *held, **last_held; /* lines of events that are not published yet */
    pthread_mutex_t mutex;          /* guards the fields below */
    pthread_cond_t work, idle;
    struct line *first, **last;
    size_t queued_bytes;
    int next_fd; /* the descriptor to continue in; -1 if none */
    bool ending, ended;
    struct audit_numbers *numbers; /* the caller's memory */
    /* used by the thread only */
    struct audit_position *position;
    int fd;
    bool is_torn, complained;
};

static void free_line(struct line *line)
{
    free(line->text);
    free(line);
}

static void drop(struct audit *audit)
{
    SCOPED_LOCK(&audit->mutex);
    audit->numbers->dropped++;
}

/* ---- the thread that writes ----------------------------------------------------------------- */

/* Removes a part of a line; where that fails, the next line starts with a newline. */
static void mend(struct audit *audit, const struct stat *before)
{
    audit->is_torn = !S_ISREG(before->st_mode) || ftruncate(audit->fd, before->st_size) != 0;
}

static int write_all(struct audit *audit, const char *text, size_t size, const struct stat *before)
{
    size_t whole = size;

    while (size > 0) {
        ssize_t put = write(audit->fd, text, size);
        int error = put < 0 ? -errno : -EIO;
        if (error == -EINTR)
            continue;
        if (put <= 0) {
            if (size < whole)
                mend(audit, before);
            return error;
        }
        text += put;
        size -= (size_t)put;
    }
    return 0;
}

/* Writes all of the text, or returns -errno. When it is written, so is every event before
 * `after`. */
static int write_text(struct audit *audit, const char *text, size_t size, uint64_t after)
{
    struct audit_position *position = audit->position;
    struct stat before = {0};

    if (audit->is_torn && write(audit->fd, "\n", 1) == 1)
        audit->is_torn = false;
    if (audit->is_torn)
        return -errno;
    if (fstat(audit->fd, &before) != 0)
        return -errno;
    atomic_store(&position->after, after);
    atomic_store(&position->offset, (uint64_t)before.st_size);
    atomic_store(&position->size, size);
    int error = write_all(audit, text, size, &before);
    if (!error)
        atomic_store(&position->next, after);
    atomic_store(&position->size, 0);
    return error;
}

/* Decides whether the last worker's final line is in the file; removes a part of it. */
static void settle_position(struct audit_position *position, int fd)
{
    uint64_t offset = position->offset, size = position->size;
    struct stat now;

    atomic_store(&position->size, 0);
    if (size == 0 || fstat(fd, &now) != 0 || !S_ISREG(now.st_mode))
        return;
    if ((uint64_t)now.st_size >= offset + size)
        atomic_store(&position->next, position->after);
    else if ((uint64_t)now.st_size > offset && ftruncate(fd, (off_t)offset) != 0)
        log_warning("the audit has a part of a line: %s", strerror(errno));
}

/* Writes a line with the number of events before this one that have no line. */
static int tell_dropped(struct audit *audit, uint64_t seq)
{
    uint64_t next = audit->position->next;
    char text[64];

    if (seq <= next)
        return 0;
    int size = snprintf(text, sizeof text, "{\"lost\":%llu}\n", (unsigned long long)(seq - next));
    return write_text(audit, text, (size_t)size, seq);
}

static void write_line(struct audit *audit, const struct line *line)
{
    int error = tell_dropped(audit, line->seq);
    if (!error)
        error = write_text(audit, line->text, line->size, line->seq + 1);
    if (error) {
        drop(audit);
        if (!audit->complained)
            log_warning("the audit cannot be written: %s; its lines are dropped and counted "
                        "(gmsfs_audit_dropped_total) until it can",
                        strerror(-error));
        audit->complained = true;
        return;
    }
    if (audit->complained)
        log_info("the audit is written again");
    audit->complained = false;
    SCOPED_LOCK(&audit->mutex);
    audit->numbers->written++;
}

/* The caller holds the mutex; it is free during close, which may hang with the file's disk. */
static void take_descriptor(struct audit *audit)
{
    int old_fd = audit->fd;
    if (audit->next_fd < 0)
        return;
    audit->fd = audit->next_fd;
    audit->next_fd = -1;
    audit->is_torn = false;
    if (old_fd < 0)
        return;
    pthread_mutex_unlock(&audit->mutex);
    close(old_fd);
    pthread_mutex_lock(&audit->mutex);
}

static void *run(void *argument)
{
    struct audit *audit = argument;

    pthread_mutex_lock(&audit->mutex);
    for (;;) {
        while (!audit->first && audit->next_fd < 0 && !audit->ending)
            pthread_cond_wait(&audit->work, &audit->mutex);
        take_descriptor(audit);
        struct line *line = audit->first;
        if (!line && audit->ending)
            break;
        if (!line)
            continue;
        audit->first = line->next;
        if (!audit->first)
            audit->last = &audit->first;
        audit->queued_bytes -= line->size;
        pthread_mutex_unlock(&audit->mutex);
        write_line(audit, line);
        free_line(line);
        pthread_mutex_lock(&audit->mutex);
    }
    audit->ended = true;
    pthread_cond_signal(&audit->idle);
    pthread_mutex_unlock(&audit->mutex);
    return NULL;
}

/* ---- the loop's thread ---------------------------------------------------------------------- */

/* Returns false if there is no room; else the queue owns the line. */
static bool queue_line(struct audit *audit, struct line *line)
{
    pthread_mutex_lock(&audit->mutex);
    bool fits = line->size <= QUEUE_BYTES - audit->queued_bytes;
    if (fits)
        audit->queued_bytes += line->size;
    pthread_mutex_unlock(&audit->mutex);
    if (!fits)
        return false;
    *audit->last_held = line;
    audit->last_held = &line->next;
    return true;
}

void audit_release(struct audit *audit)
{
    if (!audit || !audit->held)
        return;
    pthread_mutex_lock(&audit->mutex);
    *audit->last = audit->held;
    audit->last = audit->last_held;
    pthread_cond_signal(&audit->work);
    pthread_mutex_unlock(&audit->mutex);
    audit->held = NULL;
    audit->last_held = &audit->held;
}

/* Takes the text. */
static void enqueue(struct audit *audit, uint64_t seq, char *text, size_t size)
{
    struct line *line = malloc(sizeof *line);

    if (!line) {
        free(text);
        drop(audit);
        return;
    }
    *line = (struct line){.seq = seq, .size = size, .text = text};
    if (queue_line(audit, line))
        return;
    free_line(line);
    drop(audit);
}

static void on_event(void *context)
{
    struct audit *audit = context;
    const struct core *core = service_get_core(audit->service);

    for (; audit->seq < core->next_event; audit->seq++) {
        const struct core_event *event = core_find_event(core, audit->seq);
        char *text;
        size_t size;
        if (event && event_line_render(event, 0, &text, &size) == 0)
            enqueue(audit, audit->seq, text, size);
        else
            drop(audit);
    }
}

/* Returns where the last worker stopped, or the next event. */
static uint64_t choose_seq(const struct service *service, struct audit_position *position, int fd)
{
    uint64_t next_event = service_get_core(service)->next_event;

    settle_position(position, fd);
    if (position->next == 0 || position->next > next_event)
        atomic_store(&position->next, next_event);
    return position->next;
}

int audit_new(struct service *service, int fd, struct audit_position *position,
              struct audit_numbers *numbers, struct audit **audit)
{
    struct audit *made = calloc(1, sizeof *made);

    if (!made) {
        close(fd);
        return -ENOMEM;
    }
    made->service = service;
    made->position = position;
    made->numbers = numbers;
    made->seq = choose_seq(service, position, fd);
    made->fd = fd;
    made->next_fd = -1;
    made->last = &made->first;
    made->last_held = &made->held;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->work, NULL);
    thread_init_condition(&made->idle);
    int error = thread_start(NULL, STACK_BYTES, run, made);
    if (error) {
        close(fd);
        free(made);
        return error;
    }
    made->observer = (struct service_observer){.context = made, .on_event = on_event};
    service_observe(service, &made->observer);
    on_event(made);
    *audit = made;
    return 0;
}

void audit_reopen(struct audit *audit, int fd)
{
    SCOPED_LOCK(&audit->mutex);
    file_close_fd(&audit->next_fd);
    audit->next_fd = fd;
    pthread_cond_signal(&audit->work);
}

struct audit_numbers audit_get_numbers(struct audit *audit)
{
    SCOPED_LOCK(&audit->mutex);
    return *audit->numbers;
}

/* If the disk hangs, the thread and its memory stay until the process ends. */
void audit_free(struct audit *audit)
{
    struct timespec until;
    bool ended;

    if (!audit)
        return;
    service_unobserve(audit->service, &audit->observer);
    audit_release(audit);
    until = clock_after_ms(CLOCK_MONOTONIC, ENDING_S * 1000);
    pthread_mutex_lock(&audit->mutex);
    audit->ending = true;
    pthread_cond_signal(&audit->work);
    while (!audit->ended && pthread_cond_timedwait(&audit->idle, &audit->mutex, &until) == 0)
        continue;
    ended = audit->ended;
    pthread_mutex_unlock(&audit->mutex);
    if (!ended) {
        log_warning("the audit's disk does not answer; its last lines may be missing");
        return;
    }
    file_close_fd(&audit->fd);
    pthread_cond_destroy(&audit->work);
    pthread_cond_destroy(&audit->idle);
    pthread_mutex_destroy(&audit->mutex);
    free(audit);
}
