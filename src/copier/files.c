/* SPDX-License-Identifier: Apache-2.0 */
#include "copier/files.h"

#include "base/clock.h"
#include "base/thread.h"
#include "copier/lane_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define SPAN_BYTES      COPIER_MOVE_BYTES
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
/* After a move out its source is freed, and the driver does not free while it pins (H200, 16 GiB:
 * 40 ms instead of 6 to 10). So nothing is pinned for this time. */
#define REST_MS 50

enum span {
    SPAN_NEW = 0,
    SPAN_WANTED,   /* a move used it */
    SPAN_CHANGING, /* it is being pinned */
    SPAN_PINNED,
    SPAN_REFUSED,
};

struct file {
    uint64_t id; /* the worker's number */
    char *at;
    size_t bytes, size; /* bytes: mapped, in whole pages; size: of the file */
    bool is_huge, is_hugetlb;
    atomic_bool is_written;
    unsigned moves;
    uint8_t spans[]; /* enum span, one for each SPAN_BYTES */
};

struct files {
    const struct copier_gpu *driver;
    void *gpu;

    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    pthread_t pinner;
    bool has_pinner, ending;
    unsigned moves;        /* in progress */
    uint64_t may_begin_ms; /* time from which pinning may begin */
    uint64_t wanted;       /* number of spans */
    unsigned count;
    uint64_t ids[FILES_MOST]; /* of `all`, for a quicker search */
    struct file *all[FILES_MOST];
};

struct files *files_new(const struct copier_gpu *driver, void *gpu)
{
    struct files *files = calloc(1, sizeof(*files));

    if (!files)
        return NULL;
    files->driver = driver;
    files->gpu = gpu;
    pthread_mutex_init(&files->mutex, NULL);
    thread_init_condition(&files->changed);
    return files;
}

static size_t count_spans(size_t bytes)
{
    return (bytes + SPAN_BYTES - 1) / SPAN_BYTES;
}

/* Unmaps a file that no other thread knows any more. */
static void unmap(const struct files *files, struct file *file)
{
    for (size_t i = 0; i < count_spans(file->bytes); i++)
        if (file->spans[i] == SPAN_PINNED)
            files->driver->unpin(files->gpu, file->at + i * SPAN_BYTES);
    munmap(file->at, file->bytes);
    free(file);
}

/* ---- mapping ------------------------------------------------------------------------------- */

static bool is_hugetlb(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC;
}

/* Maps whole pages of the file's own page size, which a file in memory has as its block size. NULL:
 * not mapped. */
static struct file *map(uint64_t id, int fd)
{
    struct file *file;
    struct stat st;
    size_t page, bytes;

    if (fcntl(fd, F_GET_SEALS) < 0 || fstat(fd, &st) < 0 || st.st_size < (off_t)FILES_MIN_BYTES)
        return NULL;
    page = (size_t)st.st_blksize;
    bytes = ((size_t)st.st_size + page - 1) / page * page;
    file = calloc(1, sizeof(*file) + count_spans(bytes));
    if (!file)
        return NULL;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        free(file);
        return NULL;
    }
    file->id = id;
    file->at = at;
    file->bytes = bytes;
    file->size = (size_t)st.st_size;
    file->is_huge = page >= HUGE_PAGE_BYTES;
    file->is_hugetlb = is_hugetlb(fd);
    return file;
}

/* With the mutex held. */
static struct file *find(const struct files *files, uint64_t id, unsigned *index)
{
    for (unsigned i = 0; i < files->count; i++)
        if (files->ids[i] == id) {
            *index = i;
            return files->all[i];
        }
    return NULL;
}

/* With the mutex held. */
static struct file *find_or_map(struct files *files, uint64_t id, int fd)
{
    unsigned index;
    struct file *file = find(files, id, &index);

    if (file || files->count == FILES_MOST)
        return file;
    file = map(id, fd);
    if (!file)
        return NULL;
    files->ids[files->count] = id;
    files->all[files->count++] = file;
    return file;
}

/* ---- pinning ------------------------------------------------------------------------------- */

/* Called with the mutex held, which is released meanwhile. */
static void pin(struct files *files, struct file *file, size_t index)
{
    char *at = file->at + index * SPAN_BYTES;
    size_t left = file->bytes - index * SPAN_BYTES, bytes = left < SPAN_BYTES ? left : SPAN_BYTES;
    bool is_pinned;

    file->spans[index] = SPAN_CHANGING;
    files->wanted--;
    pthread_mutex_unlock(&files->mutex);
    is_pinned =
        lane_file_make_pages(at, bytes) == 0 && files->driver->pin(files->gpu, at, bytes) == 0;
    pthread_mutex_lock(&files->mutex);
    file->spans[index] = is_pinned ? SPAN_PINNED : SPAN_REFUSED;
    pthread_cond_broadcast(&files->changed);
}

/* With the mutex held; there is a wanted span. */
static void pin_next(struct files *files)
{
    for (unsigned i = 0; i < files->count; i++) {
        struct file *file = files->all[i];
        const uint8_t *span = memchr(file->spans, SPAN_WANTED, count_spans(file->bytes));

        if (!span)
            continue;
        pin(files, file, (size_t)(span - file->spans));
        return;
    }
}

static void rest(struct files *files, uint64_t ms)
{
    struct timespec until = clock_after_ms(CLOCK_MONOTONIC, (unsigned)ms);

    pthread_cond_timedwait(&files->changed, &files->mutex, &until);
}

/* Pins on a thread of its own: moves must not wait for it, because pinning and making pages delay
 * each other in the kernel. */
static void *run_pinner(void *argument)
{
    struct files *files = argument;
    char why[COPIER_WHY_BYTES];
    void *stream = NULL;
    int entered = files->driver->enter(files->gpu, &stream, why);

    pthread_mutex_lock(&files->mutex);
    while (entered == 0 && !files->ending) {
        uint64_t now_ms = clock_now_ms();

        if (files->wanted == 0 || files->moves > 0)
            pthread_cond_wait(&files->changed, &files->mutex);
        else if (now_ms < files->may_begin_ms)
            rest(files, files->may_begin_ms - now_ms);
        else
            pin_next(files);
    }
    pthread_mutex_unlock(&files->mutex);
    if (entered == 0)
        files->driver->leave(files->gpu, stream);
    return NULL;
}

/* With the mutex held. Without a thread nothing is pinned, and all bytes go the other way. */
static void want(struct files *files, struct file *file, size_t index)
{
    file->spans[index] = SPAN_WANTED;
    files->wanted++;
    if (!files->has_pinner)
        files->has_pinner = pthread_create(&files->pinner, NULL, run_pinner, files) == 0;
}

/* ---- moves --------------------------------------------------------------------------------- */

struct file_view files_enter(struct files *files, const struct copier_request *request, int fd)
{
    struct file_view view = {0};
    struct file *file;
    size_t index = request->offset / SPAN_BYTES;

    if (!request->file)
        return view;
    SCOPED_LOCK(&files->mutex);
    file = find_or_map(files, request->file, fd);
    if (file && request->offset <= file->size && request->bytes <= file->size - request->offset) {
        files->moves++;
        file->moves++;
        view.at = file->at + request->offset;
        view.is_huge = file->is_huge;
        view.is_written = file->is_hugetlb ? NULL : &file->is_written;
        view.is_pinned = file->spans[index] == SPAN_PINNED &&
                         (request->offset + request->bytes - 1) / SPAN_BYTES == index;
    }
    return view;
}

void files_leave(struct files *files, const struct copier_request *request)
{
    size_t index = request->offset / SPAN_BYTES;
    unsigned at;
    struct file *file;

    SCOPED_LOCK(&files->mutex);
    file = find(files, request->file, &at);
    file->moves--;
    if (file->spans[index] == SPAN_NEW)
        want(files, file, index);
    if (request->act == COPIER_MOVE_OUT)
        files->may_begin_ms = clock_now_ms() + REST_MS;
    if (--files->moves == 0 && files->wanted > 0)
        pthread_cond_broadcast(&files->changed);
}

static bool is_changing(const struct file *file)
{
    return memchr(file->spans, SPAN_CHANGING, count_spans(file->bytes));
}

/* With the mutex held. */
static void take_out(struct files *files, struct file *file, unsigned index)
{
    for (size_t i = 0; i < count_spans(file->bytes); i++)
        files->wanted -= file->spans[i] == SPAN_WANTED;
    files->count--;
    files->ids[index] = files->ids[files->count];
    files->all[index] = files->all[files->count];
}

int files_forget(struct files *files, uint64_t id)
{
    unsigned index;
    struct file *file;
    int error = 0;

    pthread_mutex_lock(&files->mutex);
    while ((file = find(files, id, &index)) && is_changing(file))
        pthread_cond_wait(&files->changed, &files->mutex);
    if (file && file->moves > 0)
        error = -EBUSY;
    else if (file)
        take_out(files, file, index);
    pthread_mutex_unlock(&files->mutex);
    if (file && !error)
        unmap(files, file);
    return error;
}

void files_free(struct files *files)
{
    pthread_mutex_lock(&files->mutex);
    files->ending = true;
    pthread_cond_broadcast(&files->changed);
    pthread_mutex_unlock(&files->mutex);
    if (files->has_pinner)
        pthread_join(files->pinner, NULL);
    for (unsigned i = 0; i < files->count; i++)
        unmap(files, files->all[i]);
    pthread_cond_destroy(&files->changed);
    pthread_mutex_destroy(&files->mutex);
    free(files);
}
