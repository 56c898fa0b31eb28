/* SPDX-License-Identifier: Apache-2.0 */
/* From the mapped memory into files beside the real ones, which they become at the very end. */
#include "base/failure.h"
#include "base/fd_path.h"
#include "base/file_io.h"
#include "base/number.h"
#include "cli/save.h"

#include "base/size.h"
#include "cli/signals.h"
#include "cli/store_memory.h"
#include "mover/sink.h"
#include "mover/work.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MAX_TRIES  10000u
#define FILE_MODE  0666
#define ZERO_BYTES 4096
/* Each is open until the end. */
#define UNNAMED_MAX_FILES 256u

struct save_copy {
    struct save *save;
    const struct save_file *file;
    struct sink sink;
};

/* ---- names and errors ---------------------------------------------------------------------- */

/* The directory of FILE; free(3). NULL: out of memory. */
static char *save_directory(const struct save *save)
{
    const char *slash = strrchr(save->path, '/');

    if (!slash)
        return strdup(".");
    return strndup(save->path, slash == save->path ? 1 : (size_t)(slash - save->path));
}

static void save_say_full(const struct save *save, const char *path)
{
    char needed[SIZE_TEXT_BYTES], available[SIZE_TEXT_BYTES] = "?", missing[SIZE_TEXT_BYTES] = "?";
    SCOPED_FREE char *directory = save_directory(save);
    struct statvfs disk;
    uint64_t free_bytes;

    size_format(save->size_bytes, needed);
    if (directory && statvfs(directory, &disk) == 0) {
        free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
        size_format_apart((struct size_text[]){{save->size_bytes, needed}, {free_bytes, available}},
                          2);
        size_format(save->size_bytes > free_bytes ? save->size_bytes - free_bytes : 0, missing);
    }
    cli_error("%s: the disk is full, or a quota is: %s needed for all files, %s free, %s missing; "
              "free some, or save elsewhere",
              path, needed, available, missing);
}

/* Removes unfinished files, so that their space is free again. */
static void save_clear_away(struct save *save)
{
    for (size_t i = 0; i < save->file_count; i++) {
        if (save->files[i].fd >= 0)
            close(save->files[i].fd);
        if (save->files[i].temporary)
            unlink(save->files[i].temporary);
        free(save->files[i].temporary);
        save->files[i].temporary = NULL;
        save->files[i].fd = -1;
    }
}

/* No regular file says EAGAIN: it is the threads'. */
static const char *save_reason(int error)
{
    return error == -EAGAIN ? failure_thread_reason(error) : failure_reason(error);
}

static const char *save_way_out(int error)
{
    switch (error) {
    case -ENOENT:
        return "; make its directory first";
    case -EPERM:
    case -EACCES:
    case -EROFS:
        return "; save where you may write";
    case -ENOMEM:
        return "; --threads 1 needs the least";
    case -EIO:
        return "; the disk fails: the kernel's log (dmesg) tells how; save elsewhere";
    default:
        return "";
    }
}

static int save_fail(struct save *save, const char *path, int error)
{
    progress_end(&save->progress);
    save_clear_away(save);
    if (error == -EINTR && signals_get())
        return CLI_SIGNALED + signals_get();
    if (store_explain_staging(save->reader.staging))
        return CLI_FAILURE;
    if (error == -ENOSPC || error == -EDQUOT)
        save_say_full(save, path);
    else if (error == -EFBIG)
        cli_error("%s: larger than a file may be here ('ulimit -f', or the file system); "
                  "--shard-size makes smaller ones",
                  path);
    else
        cli_error("%s: cannot write: %s%s", path, save_reason(error), save_way_out(error));
    return CLI_FAILURE;
}

/* Found before all the work, not after. */
static int save_check_target(const struct save_file *file)
{
    struct stat known;

    if (lstat(file->path, &known) < 0) {
        if (errno == ENOENT)
            return CLI_OK;
        return cli_error("%s: cannot write: %s", file->path, failure_reason(-errno));
    }
    if (S_ISREG(known.st_mode) || S_ISLNK(known.st_mode))
        return CLI_OK;
    return cli_error("%s: is there and not a regular file; choose another name", file->path);
}

/* ---- making -------------------------------------------------------------------------------- */

static bool is_file_of_process(int fd)
{
    return access(fd_path(fd).text, F_OK) == 0;
}

/* Opens a file without a name, which vanishes if this process ends for any reason. Negative if the
 * file system cannot do that, or could not name it later. */
static int save_open_unnamed(const char *directory)
{
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, FILE_MODE);

    if (fd < 0 || is_file_of_process(fd))
        return fd;
    close(fd);
    return -1;
}

/* Of a new file, or of `unnamed` where that is one. A short name, for the real one may be as long
 * as names get. A descriptor, or a negative errno. */
static int save_open_named(const char *directory, int unnamed, char **path)
{
    int fd;

    if (unnamed >= 0 && !is_file_of_process(unnamed))
        return -ENOENT;
    for (unsigned i = 0; i < MAX_TRIES; i++) {
        if (asprintf(path, "%s/.gmsfs-save-%ld-%u.tmp", directory, (long)getpid(), i) < 0) {
            *path = NULL;
            return -ENOMEM;
        }
        if (unnamed < 0)
            fd = open(*path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
        else
            fd = linkat(AT_FDCWD, fd_path(unnamed).text, AT_FDCWD, *path, AT_SYMLINK_FOLLOW) == 0
                     ? unnamed
                     : -1;
        if (fd >= 0)
            return fd;
        fd = -errno;
        free(*path);
        *path = NULL;
        if (fd != -EEXIST)
            return fd;
    }
    return -EEXIST;
}

/* And leave most of the descriptors that the process may have to others. */
static bool save_can_hold_all(const struct save *save)
{
    struct rlimit limit;

    return save->file_count <= UNNAMED_MAX_FILES && getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
           save->file_count <= limit.rlim_cur / 4;
}

static int save_make(const struct save *save, struct save_file *file, const char *directory,
                     uint64_t *promised_bytes)
{
    int fd, error;

    file->fd = save_can_hold_all(save) ? save_open_unnamed(directory) : -1;
    fd = file->fd >= 0 ? file->fd : save_open_named(directory, -1, &file->temporary);
    if (fd < 0)
        return fd;
    do
        error = sink_reserve(fd, file->plan.size_bytes, &save->way, promised_bytes);
    while (error == -EINTR && !signals_get());
    if (file->fd < 0 && close(fd) < 0 && !error)
        error = -errno;
    return error;
}

static int save_make_all(struct save *save)
{
    SCOPED_FREE char *directory = save_directory(save);
    uint64_t promised_bytes = 0;
    int status = CLI_OK, error;

    if (!directory)
        cli_out_of_memory();

    /* All of them before the first is made: these failures leave nothing to clear away. */
    for (size_t i = 0; i < save->file_count; i++)
        save->files[i].fd = -1;
    for (size_t i = 0; status == CLI_OK && i < save->file_count; i++)
        status = save_check_target(&save->files[i]);
    for (size_t i = 0; status == CLI_OK && i < save->file_count; i++) {
        error =
            signals_get() ? -EINTR : save_make(save, &save->files[i], directory, &promised_bytes);
        if (error)
            status = save_fail(save, save->files[i].path, error);
    }
    return status;
}

/* ---- filling ------------------------------------------------------------------------------- */

/* Writes bytes of the store's memory up to the offset `end` of the file. */
static int save_memory(const struct save_copy *copy, const struct file_extent *extent, uint64_t end,
                       struct sink_stream *stream, struct staging_lane *lane)
{
    const struct reader *reader = &copy->save->reader;
    const uint8_t *memory = reader->mappings[extent->source].ptr, *part;
    size_t step = 1;
    int error =
        staging_fetch(lane, &reader->memory, memory + extent->offset + (stream->at - extent->at),
                      end - stream->at, WORK_PIECE_BYTES);

    while (!error && step > 0) {
        error = staging_next(lane, &part, &step);
        if (!error && step > 0)
            error = sink_put(stream, part, step);
    }
    return error;
}

static int save_zeros(struct sink_stream *stream, uint64_t until)
{
    static const uint8_t zeros[ZERO_BYTES];
    int error = 0;

    while (!error && stream->at < until) {
        uint64_t left = until - stream->at;
        error = sink_put(stream, zeros, left < sizeof(zeros) ? (size_t)left : sizeof(zeros));
    }
    return error;
}

static int save_extent(const struct save_copy *copy, const struct file_extent *extent, uint64_t end,
                       struct sink_stream *stream, struct staging_lane *lane)
{
    if (file_extent_is_memory(extent))
        return save_memory(copy, extent, end, stream, lane);
    if (extent->source == FILE_PLAN_ZEROS)
        return save_zeros(stream, end);
    return sink_put(
        stream, (const uint8_t *)copy->file->plan.text + extent->offset + (stream->at - extent->at),
        (size_t)(end - stream->at));
}

/* Writes a piece of the file. */
static int save_piece(void *context, const struct work_piece *piece, void *own)
{
    struct save_copy *copy = context;
    const struct file_plan *plan = &copy->file->plan;
    uint64_t end = piece->offset_bytes + piece->size_bytes;
    void *room = staging_scratch(own, SINK_ROOM_BYTES);
    struct sink_stream stream;
    int error = room ? 0 : -ENOMEM;

    sink_begin(&stream, &copy->sink, piece->offset_bytes, room);
    for (size_t i = file_plan_find(plan, stream.at); !error && stream.at < end; i++)
        error = save_extent(copy, &plan->extents[i], number_smaller(file_plan_end(plan, i), end),
                            &stream, own);
    return error ? error : sink_end(&stream);
}

static int save_tick(void *context, uint64_t done_bytes)
{
    struct save_copy *copy = context;

    progress_show(&copy->save->progress, copy->save->copied_bytes + done_bytes);
    return signals_get() ? -EINTR : 0;
}

static int save_copy_all(struct save_copy *copy)
{
    struct save *save = copy->save;
    struct work work = {.item_bytes = &copy->file->plan.size_bytes,
                        .item_count = 1,
                        .context = copy,
                        .piece = save_piece,
                        .tick = save_tick};

    staging_equip(save->reader.staging, &work, &save->reader.memory,
                  direct_threads(save->way.threads, sink_is_direct(&copy->sink)));
    return work_run(&work);
}

static int save_fill(struct save *save, const struct save_file *file)
{
    struct save_copy copy = {.save = save, .file = file};
    int fd = file->fd >= 0 ? file->fd : open(file->temporary, O_RDWR | O_CLOEXEC), error;

    if (fd < 0)
        return -errno;
    sink_open(&copy.sink, fd, file->plan.size_bytes, &save->way);
    error = save_copy_all(&copy);
    sink_close(&copy.sink);
    if (!error)
        save->copied_bytes += file->plan.size_bytes;
    if (!error && fsync(fd) < 0)
        error = -errno;
    if (fd != file->fd && close(fd) < 0 && !error)
        error = -errno;
    if (!error && signals_get())
        error = -EINTR;
    return error;
}

static int save_fill_all(struct save *save)
{
    int error;

    progress_begin(&save->progress, "saving", save->size_bytes, save->quiet);
    for (size_t i = 0; i < save->file_count; i++) {
        error = save_fill(save, &save->files[i]);
        if (error)
            return save_fail(save, save->files[i].path, error);
    }
    progress_end(&save->progress);
    return CLI_OK;
}

/* ---- putting in place ---------------------------------------------------------------------- */

static int save_sync_directory(const struct save *save)
{
    SCOPED_FREE char *directory = save_directory(save);
    SCOPED_CLOSE int fd = directory ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int error = fd < 0 ? -errno : 0;

    /* Some file systems cannot, and need not. */
    if (!error && fsync(fd) < 0 && errno != EINVAL)
        error = -errno;
    return error;
}

/* With all that is in it on the disk. */
static int save_name(struct save_file *file, const char *directory)
{
    int fd = file->fd;

    if (fd < 0)
        return 0;
    fd = save_open_named(directory, fd, &file->temporary);
    if (fd < 0)
        return fd;
    file->fd = -1;
    return close(fd) < 0 ? -errno : 0;
}

static int save_name_all(struct save *save)
{
    SCOPED_FREE char *directory = save_directory(save);
    int status = directory ? CLI_OK : save_fail(save, save->path, -ENOMEM), error;

    for (size_t i = 0; status == CLI_OK && i < save->file_count; i++) {
        error = save_name(&save->files[i], directory);
        if (error)
            status = save_fail(save, save->files[i].path, error);
    }
    return status;
}

/* An older index goes first and the new one comes last: there is never one that names the shards of
 * two models. */
static int save_place(struct save *save)
{
    size_t last = save->file_count - 1;
    int status = save_name_all(save), error;

    if (status != CLI_OK)
        return status;
    if (save->has_index && unlink(save->files[last].path) < 0 && errno != ENOENT)
        return save_fail(save, save->files[last].path, -errno);
    for (size_t i = 0; i <= last; i++) {
        struct save_file *file = &save->files[i];
        if (rename(file->temporary, file->path) < 0)
            return save_fail(save, file->path, -errno);
        free(file->temporary);
        file->temporary = NULL;
    }
    error = save_sync_directory(save);
    if (error)
        cli_error("%s: is whole and in its place, but its directory cannot be flushed to the disk: "
                  "%s; it may be gone after a power failure: save again, or elsewhere",
                  save->path, failure_reason(error));
    return error ? CLI_FAILURE : CLI_OK;
}

int save_write(struct save *save)
{
    uint64_t start_ms = clock_now_ms();

    signals_defer(true);
    int status = save_make_all(save);
    if (status == CLI_OK)
        status = save_fill_all(save);
    save->copied_ms = clock_now_ms() - start_ms;
    if (status == CLI_OK)
        status = save_place(save);
    return status;
}
