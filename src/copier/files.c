/* SPDX-License-Identifier: Apache-2.0 */
#include "copier/files.h"

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
#include <unistd.h>

#define SPAN_BYTES COPIER_MOVE_BYTES

enum span {
    SPAN_NEW = 0,
    SPAN_CHANGING, /* some thread pins it */
    SPAN_PINNED,
    SPAN_REFUSED,
};

struct file {
    uint64_t id; /* the worker's */
    char *at;
    size_t bytes, size; /* mapped, in whole pages; of the file */
    bool is_hugetlb;
    unsigned moves;
    uint8_t spans[]; /* enum span, one for each SPAN_BYTES */
};

struct files {
    const struct copier_gpu *driver;
    void *gpu;

    pthread_mutex_t mutex; /* of all below */
    unsigned count;
    uint64_t ids[FILES_MOST]; /* of `all`, looked through far quicker */
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
    return files;
}

static size_t count_spans(size_t bytes)
{
    return (bytes + SPAN_BYTES - 1) / SPAN_BYTES;
}

/* Nobody else knows it any more. */
static void unmap(const struct files *files, struct file *file)
{
    for (size_t i = 0; i < count_spans(file->bytes); i++)
        if (file->spans[i] == SPAN_PINNED)
            files->driver->unpin(files->gpu, file->at + i * SPAN_BYTES);
    munmap(file->at, file->bytes);
    free(file);
}

void files_free(struct files *files)
{
    for (unsigned i = 0; i < files->count; i++)
        unmap(files, files->all[i]);
    pthread_mutex_destroy(&files->mutex);
    free(files);
}

/* ---- mapping ------------------------------------------------------------------------------- */

static bool is_hugetlb(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC;
}

/* Whole pages of the file's own size, which one in memory tells as its block size. NULL: none. */
static struct file *map(uint64_t id, int fd)
{
    struct file *file;
    struct stat st;
    size_t page, bytes;
    void *at;

    if (fcntl(fd, F_GET_SEALS) < 0 || fstat(fd, &st) < 0 || st.st_size < (off_t)FILES_MIN_BYTES)
        return NULL;
    page = (size_t)st.st_blksize;
    bytes = ((size_t)st.st_size + page - 1) / page * page;
    file = calloc(1, sizeof(*file) + count_spans(bytes));
    if (!file)
        return NULL;
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        free(file);
        return NULL;
    }
    file->id = id;
    file->at = at;
    file->bytes = bytes;
    file->size = (size_t)st.st_size;
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

/* With the mutex held, which it gives up meanwhile. */
static void pin(struct files *files, struct file *file, size_t index)
{
    char *at = file->at + index * SPAN_BYTES;
    size_t left = file->bytes - index * SPAN_BYTES, bytes = left < SPAN_BYTES ? left : SPAN_BYTES;
    bool is_pinned;

    file->spans[index] = SPAN_CHANGING;
    pthread_mutex_unlock(&files->mutex);
    is_pinned =
        lane_file_make_pages(at, bytes) == 0 && files->driver->pin(files->gpu, at, bytes) == 0;
    pthread_mutex_lock(&files->mutex);
    file->spans[index] = is_pinned ? SPAN_PINNED : SPAN_REFUSED;
}

struct file_view files_enter(struct files *files, const struct copier_request *request, int fd)
{
    struct file_view view = {0};
    struct file *file;
    size_t index = request->offset / SPAN_BYTES;

    if (!request->file)
        return view;
    pthread_mutex_lock(&files->mutex);
    file = find_or_map(files, request->file, fd);
    if (file && request->offset <= file->size && request->bytes <= file->size - request->offset) {
        file->moves++;
        if (file->spans[index] == SPAN_NEW)
            pin(files, file, index);
        view.at = file->at + request->offset;
        view.is_hugetlb = file->is_hugetlb;
        view.is_pinned = file->spans[index] == SPAN_PINNED &&
                         (request->offset + request->bytes - 1) / SPAN_BYTES == index;
    }
    pthread_mutex_unlock(&files->mutex);
    return view;
}

void files_leave(struct files *files, const struct copier_request *request)
{
    unsigned index;
    struct file *file;

    pthread_mutex_lock(&files->mutex);
    file = find(files, request->file, &index);
    file->moves--;
    pthread_mutex_unlock(&files->mutex);
}

int files_forget(struct files *files, uint64_t id)
{
    unsigned index;
    struct file *file;
    int error = 0;

    pthread_mutex_lock(&files->mutex);
    file = find(files, id, &index);
    if (file && file->moves > 0) {
        error = -EBUSY;
    } else if (file) {
        files->count--;
        files->ids[index] = files->ids[files->count];
        files->all[index] = files->all[files->count];
    }
    pthread_mutex_unlock(&files->mutex);
    if (file && !error)
        unmap(files, file);
    return error;
}
