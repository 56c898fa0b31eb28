/* SPDX-License-Identifier: Apache-2.0 */
/* Files of this machine, by their paths. */
#include "source/source_files_list.h"

#include "base/fd_path.h"
#include "base/file_io.h"
#include "gmsfs_abi.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CONTROL_SUFFIX ".aria2"
#define S_TO_NS        INT64_C(1000000000)

/* Of one step. Bytes that go through a buffer, or are summed, stay in the processor's cache. */
#define SPLICED_BYTES ((size_t)256 << 10)
#define DIRECT_BYTES  ((size_t)4 << 20)
#define PAGE_BYTES    ((size_t)4096)

/* One file. */
struct files_file {
    char *path;
    int flags; /* of open(2) */
    int fd;    /* -1: opened for each read */
    /* As the file was when it was added. */
    dev_t device;
    ino_t inode;
    off_t size_bytes;
    struct timespec mtime;
};

static int files_open(void **state, struct failure *failure)
{
    struct source_files *files = calloc(1, sizeof(*files));

    if (!files)
        return failure_no_memory(failure);
    files->use = DIRECT_NEVER;
    *state = files;
    return 0;
}

static void files_close(void *state)
{
    struct source_files *files = state;

    source_files_unbound(&files->bounds);
    free(files);
}

static bool files_is_tree(const char *place)
{
    struct stat status;

    return stat(place, &status) == 0 && S_ISDIR(status.st_mode);
}

/* ---- opening ------------------------------------------------------------------------------- */

/* Explains why a file cannot be opened. Returns `error`. */
static int fail_open(const char *path, int error, struct failure *failure)
{
    struct stat status;

    if (error == -ENOENT && lstat(path, &status) == 0 && S_ISLNK(status.st_mode))
        return source_fail(failure, error, path,
                           "is a symbolic link to a file that is not there; the download may not "
                           "have finished, or its cache was cleaned: fetch the model again");
    return source_fail(failure, error, path, "cannot open it: %s%s", failure_reason(error),
                       error == -EMFILE ? "" : "; check the path and its permissions");
}

/* Refuses an unfinished download of aria2, which makes the file in full size at once and removes a
 * second file beside it at the end. */
static int check_finished(const char *path, struct failure *failure)
{
    SCOPED_FREE char *control = NULL;

    if (asprintf(&control, "%s" CONTROL_SUFFIX, path) < 0)
        return source_fail(failure, -ENOMEM, path, "out of memory");
    if (access(control, F_OK) != 0)
        return 0;
    return source_fail(failure, -EINVAL, path,
                       "is not whole: aria2 has not finished its download ('%.300s' is still "
                       "there); let it finish, or fetch the file again",
                       control);
}

static int check_status(const struct files_file *file, struct stat *status, struct failure *failure)
{
    const char *path = file->path;

    if (fstat(file->fd, status) != 0)
        return source_fail(failure, -errno, path, "cannot stat it: %s; check the disk",
                           strerror(errno));
    if (S_ISDIR(status->st_mode))
        return source_fail(failure, -EISDIR, path, "is a directory; name it alone, or files");
    if (!S_ISREG(status->st_mode))
        return source_fail(failure, -EINVAL, path,
                           "is no regular file; name the model's *.safetensors files or its "
                           "*.safetensors.index.json");
    return file->flags & O_NOFOLLOW ? 0 : check_finished(path, failure);
}

/* Judges by the rules of a deep list where an open file lies: since it was listed, a link may have
 * come into its place. */
static int check_place(struct source_files *files, const struct source_item *item,
                       const struct files_file *file, struct failure *failure)
{
    char real[PATH_MAX];
    int error = source_files_bound(&files->bounds, item->place, failure);
    ssize_t bytes = error ? 0 : readlink(fd_path(file->fd).text, real, sizeof(real) - 1);

    if (error)
        return error;
    if (bytes < 0)
        return source_fail(failure, -errno, file->path, "cannot find its place in /proc: %s",
                           strerror(errno));
    real[bytes] = '\0';
    if (source_files_is_within(&files->bounds, real))
        return 0;
    return source_fail(failure, -EINVAL, file->path,
                       "leads to '%.300s' by now, outside of the directory; load the directory "
                       "when nothing changes it",
                       real);
}

static void drop_file(struct files_file *file)
{
    file_close_fd(&file->fd);
    free(file->path);
    free(file);
}

static struct files_file *make_file(const struct source_item *item)
{
    struct files_file *file = calloc(1, sizeof(*file));

    if (!file)
        return NULL;
    /* O_NONBLOCK: a FIFO is refused instead of waited for. */
    file->flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    file->flags |= item->flags & SOURCE_NO_LINKS ? O_NOFOLLOW : 0;
    file->fd = -1;
    file->path = item->name ? source_join(item->place, item->name) : strdup(item->place);
    if (file->path)
        return file;
    free(file);
    return NULL;
}

/* A time that cannot be counted is unknown. */
static int64_t get_mtime(const struct stat *status)
{
    int64_t ns;

    if (__builtin_mul_overflow((int64_t)status->st_mtim.tv_sec, S_TO_NS, &ns) ||
        __builtin_add_overflow(ns, (int64_t)status->st_mtim.tv_nsec, &ns))
        return 0;
    return ns;
}

static int describe(struct source_file *file, struct files_file *own, const struct stat *status,
                    struct failure *failure)
{
    own->device = status->st_dev;
    own->inode = status->st_ino;
    own->size_bytes = status->st_size;
    own->mtime = status->st_mtim;
    file->size_bytes = (uint64_t)status->st_size;
    file->mtime_ns = get_mtime(status);
    if (asprintf(&file->identity, "%ju:%ju", (uintmax_t)status->st_dev,
                 (uintmax_t)status->st_ino) >= 0)
        return 0;
    file->identity = NULL;
    return failure_no_memory(failure);
}

static int files_add(void *state, struct source_item *item, struct failure *failure)
{
    struct files_file *file = make_file(item);
    struct stat status;

    if (!file)
        return failure_no_memory(failure);
    file->fd = open(file->path, file->flags);
    int error = file->fd < 0 ? fail_open(file->path, -errno, failure)
                             : check_status(file, &status, failure);
    if (!error && item->name && item->flags & SOURCE_LISTED)
        error = check_place(state, item, file, failure);
    if (!error)
        error = describe(&item->file, file, &status, failure);
    if (error) {
        drop_file(file);
        return error;
    }
    if (item->flags & SOURCE_IN_TURN)
        file_close_fd(&file->fd);
    item->own = file;
    return 0;
}

static void files_drop(void *state, struct source_item *item)
{
    (void)state;
    drop_file(item->own);
}

static bool is_unchanged(const struct files_file *file, const struct stat *status)
{
    return status->st_dev == file->device && status->st_ino == file->inode &&
           status->st_size == file->size_bytes && status->st_mtim.tv_sec == file->mtime.tv_sec &&
           status->st_mtim.tv_nsec == file->mtime.tv_nsec;
}

/* Returns a descriptor to read from, or a negative errno: -ESTALE with the reason; *own: to close
 * afterwards, or -1. */
static int use_file(const struct source_item *item, int *own, struct failure *failure)
{
    const struct files_file *file = item->own;
    struct stat status;

    if (file->fd >= 0)
        return file->fd;
    *own = open(file->path, file->flags);
    if (*own < 0 || fstat(*own, &status) < 0)
        return -errno;
    if (is_unchanged(file, &status))
        return *own;
    return failure_set(failure, -ESTALE,
                       "it is another file than at the start, or was changed; load it again when "
                       "nothing changes it");
}

/* Other file systems know the ioctl not, or by another length, which its number has in it. */
static bool files_find_store(void *state, const struct source_item *item, uint8_t store_id[16])
{
    struct gmsfs_ioc_info from = {0};
    SCOPED_CLOSE int own = -1;
    struct failure unused;
    int fd = use_file(item, &own, &unused);

    (void)state;
    if (fd < 0 || ioctl(fd, GMSFS_IOC_INFO, &from) < 0)
        return false;
    memcpy(store_id, from.store_id, sizeof(from.store_id));
    return true;
}

/* ---- bytes --------------------------------------------------------------------------------- */

static int files_read(void *state, const struct source_item *item, uint64_t offset_bytes,
                      void *bytes, size_t size_bytes, struct failure *failure)
{
    SCOPED_CLOSE int own = -1;
    int fd = use_file(item, &own, failure);

    (void)state;
    return fd < 0 ? fd : file_read_at(fd, bytes, size_bytes, offset_bytes);
}

/* Returns the maximum size of the next step. Steps end at a page of a file that is written. */
static size_t step_most(const struct direct_file *from, const struct source_receiver *to)
{
    size_t over = (size_t)(to->at_bytes % PAGE_BYTES);

    if (direct_is_on(from))
        return DIRECT_BYTES;
    if (to->fd >= 0 && pipe_copy_is_open(to->pipe))
        return SPLICED_BYTES - over;
    return to->fd >= 0 ? to->step_bytes - over : to->step_bytes;
}

/* Copies the next bytes, at most `left`. If a splice fails, read and write are tried and tell which
 * of the two files is at fault. */
static int copy_step(struct direct_file *from, uint64_t at, uint64_t left,
                     struct source_receiver *to, size_t *size_bytes)
{
    size_t most = step_most(from, to), room_bytes;
    bool is_direct = direct_is_on(from);
    uint8_t *room, *bytes;

    most = left < most ? (size_t)left : most;
    most = to->left_bytes < most ? (size_t)to->left_bytes : most;
    if (to->fd >= 0 && !is_direct &&
        pipe_copy_some(to->pipe, from->fd, at, to->fd, to->at_bytes, most, size_bytes) == 0)
        return to->put(to, NULL, *size_bytes);
    int error = to->room(to, most, is_direct, &room, &room_bytes);
    if (error)
        return error;
    *size_bytes = direct_fit(from, at, most, room_bytes);
    error = direct_read(from, room, at, *size_bytes, &bytes);
    return error ? error : to->put(to, bytes, *size_bytes);
}

static int files_copy(void *state, const struct source_item *item, uint64_t offset_bytes,
                      uint64_t size_bytes, struct source_receiver *receiver,
                      struct failure *failure)
{
    const struct source_files *files = state;
    SCOPED_CLOSE int own = -1;
    struct direct_file from;
    int fd = use_file(item, &own, failure), error = 0;
    size_t step;

    if (fd < 0)
        return fd;
    direct_open(&from, fd, files->use, offset_bytes, size_bytes);
    for (uint64_t done = 0; !error && done < size_bytes; done += step)
        error = copy_step(&from, offset_bytes + done, size_bytes - done, receiver, &step);
    direct_close(&from);
    return error;
}

/* ---- the choice ---------------------------------------------------------------------------- */

static void files_prepare(void *state, enum direct_use direct, uint64_t read_bytes,
                          uint64_t taken_bytes)
{
    struct source_files *files = state;

    files->use = direct_choose(direct, read_bytes, taken_bytes);
}

static unsigned files_threads(void *state)
{
    const struct source_files *files = state;

    return (unsigned)direct_threads(0, files->use != DIRECT_NEVER);
}

static bool files_is_slow(void *state)
{
    const struct source_files *files = state;

    return files->use != DIRECT_NEVER;
}

const struct source_backend source_files = {.open = files_open,
                                            .close = files_close,
                                            .is_tree = files_is_tree,
                                            .list = source_files_list,
                                            .tell_unfinished = source_files_tell_unfinished,
                                            .add = files_add,
                                            .drop = files_drop,
                                            .find_store = files_find_store,
                                            .read = files_read,
                                            .copy = files_copy,
                                            .prepare = files_prepare,
                                            .threads = files_threads,
                                            .is_slow = files_is_slow};
