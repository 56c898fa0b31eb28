/* SPDX-License-Identifier: Apache-2.0 */
/* From the mapped memory into files beside the real ones, which they become at the very end. */
#include "cli/save.h"

#include "base/size.h"
#include "cli/file_io.h"
#include "cli/signals.h"
#include "cli/work.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MAX_TRIES 10000u
#define FILE_MODE 0666

struct save_copy {
    struct save *save;
    const struct save_file *file;
    int fd;
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
    char needed[SIZE_TEXT_BYTES], available[SIZE_TEXT_BYTES] = "?";
    char *directory = save_directory(save);
    struct statvfs disk;

    if (directory && statvfs(directory, &disk) == 0)
        size_format((uint64_t)disk.f_bavail * disk.f_frsize, available);
    cli_error("%s: the disk is full, or a quota is: %s needed for all files, %s free; free "
              "some, or save elsewhere",
              path, size_format(save->size_bytes, needed), available);
    free(directory);
}

/* What was begun goes away, and so counts as free space again. */
static void save_clear_away(struct save *save)
{
    for (size_t i = 0; i < save->file_count; i++) {
        if (save->files[i].temporary)
            unlink(save->files[i].temporary);
        free(save->files[i].temporary);
        save->files[i].temporary = NULL;
    }
}

static int save_fail(struct save *save, const char *path, int error)
{
    progress_end(&save->progress);
    save_clear_away(save);
    if (error == -EINTR && signals_get())
        return CLI_SIGNALED + signals_get();
    if (staging_explain(save->reader.staging))
        return CLI_FAILURE;
    if (error == -ENOSPC || error == -EDQUOT)
        save_say_full(save, path);
    else if (error == -EFBIG)
        cli_error("%s: larger than a file may be here ('ulimit -f', or the file system); "
                  "--shard-size makes smaller ones",
                  path);
    else
        cli_error("%s: cannot write: %s%s", path, strerror(-error),
                  error == -ENOENT ? "; make its directory first" : "");
    return CLI_FAILURE;
}

/* Found before all the work, not after. */
static int save_check_target(const struct save_file *file)
{
    struct stat known;

    if (lstat(file->path, &known) < 0) {
        if (errno == ENOENT)
            return CLI_OK;
        cli_error("%s: cannot write: %s", file->path, strerror(errno));
        return CLI_FAILURE;
    }
    if (S_ISREG(known.st_mode) || S_ISLNK(known.st_mode))
        return CLI_OK;
    cli_error("%s: is there and not a regular file; choose another name", file->path);
    return CLI_FAILURE;
}

/* ---- making -------------------------------------------------------------------------------- */

/* The whole size at once, so that a full disk is known before anything is copied. */
static int save_reserve(int fd, uint64_t size_bytes)
{
    while (fallocate(fd, 0, 0, (off_t)size_bytes) < 0) {
        if (errno == EINTR && !signals_get())
            continue;
        if (errno != EOPNOTSUPP)
            return -errno;
        return ftruncate(fd, (off_t)size_bytes) < 0 ? -errno : 0;
    }
    return 0;
}

/* A short name, for the real one may be as long as names get. */
static int save_open_new(const char *directory, char **path)
{
    int fd;

    for (unsigned i = 0; i < MAX_TRIES; i++) {
        if (asprintf(path, "%s/.gmsfs-save-%ld-%u.tmp", directory, (long)getpid(), i) < 0) {
            *path = NULL;
            return -ENOMEM;
        }
        fd = open(*path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
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

static int save_make(struct save_file *file, const char *directory)
{
    int fd = save_open_new(directory, &file->temporary), r;

    if (fd < 0)
        return fd;
    r = save_reserve(fd, file->size_bytes);
    if (close(fd) < 0 && !r)
        r = -errno;
    return r;
}

static int save_make_all(struct save *save)
{
    char *directory = save_directory(save);
    int status = CLI_OK, r;

    if (!directory)
        return cli_out_of_memory();
    /* All of them before the first is made: these failures leave nothing to clear away. */
    for (size_t i = 0; status == CLI_OK && i < save->file_count; i++)
        status = save_check_target(&save->files[i]);
    for (size_t i = 0; status == CLI_OK && i < save->file_count; i++) {
        r = signals_get() ? -EINTR : save_make(&save->files[i], directory);
        if (r)
            status = save_fail(save, save->files[i].path, r);
    }
    free(directory);
    return status;
}

/* ---- filling ------------------------------------------------------------------------------- */

static int save_piece(void *context, const struct work_piece *piece, void *own)
{
    const struct save_copy *copy = context;
    size_t index = copy->file->first + piece->item, step = 1;
    uint64_t at = copy->save->offsets[index] + piece->offset_bytes;
    const uint8_t *part;
    int r = staging_fetch(own, &copy->save->reader.memory,
                          copy->save->tensors.list[index].bytes + piece->offset_bytes,
                          piece->size_bytes, WORK_PIECE_BYTES);

    while (!r && step > 0) {
        r = staging_next(own, &part, &step);
        if (!r)
            r = file_write_at(copy->fd, part, step, at);
        at += step;
    }
    return r;
}

static int save_tick(void *context, uint64_t done_bytes)
{
    struct save_copy *copy = context;

    progress_show(&copy->save->progress, copy->save->copied_bytes + done_bytes);
    return signals_get() ? -EINTR : 0;
}

static int save_fill(struct save *save, const struct save_file *file)
{
    struct save_copy copy = {save, file, open(file->temporary, O_WRONLY | O_CLOEXEC)};
    struct work work = {.item_bytes = save->sizes + file->first,
                        .item_count = file->count,
                        .context = &copy,
                        .piece = save_piece,
                        .tick = save_tick};
    int r;

    staging_equip(save->reader.staging, &work, &save->reader.memory, save->threads);
    if (copy.fd < 0)
        return -errno;
    r = file_write_at(copy.fd, file->head, file->head_bytes, 0);
    if (!r)
        r = work_run(&work);
    if (!r)
        save->copied_bytes += file->size_bytes - file->head_bytes;
    if (!r && fsync(copy.fd) < 0)
        r = -errno;
    if (close(copy.fd) < 0 && !r)
        r = -errno;
    if (!r && signals_get())
        r = -EINTR;
    return r;
}

static int save_fill_all(struct save *save)
{
    int r;

    progress_begin(&save->progress, "saving", save->tensors.size_bytes, save->quiet);
    for (size_t i = 0; i < save->file_count; i++) {
        r = save_fill(save, &save->files[i]);
        if (r)
            return save_fail(save, save->files[i].path, r);
    }
    save->copied_ms = progress_end(&save->progress);
    return CLI_OK;
}

/* ---- putting in place ---------------------------------------------------------------------- */

static int save_sync_directory(const struct save *save)
{
    char *directory = save_directory(save);
    int fd = directory ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int r = fd < 0 ? -errno : 0;

    /* Some file systems cannot, and need not. */
    if (!r && fsync(fd) < 0 && errno != EINVAL)
        r = -errno;
    if (fd >= 0)
        close(fd);
    free(directory);
    return r;
}

/* An older index goes first and the new one comes last: there is never one that names the shards of
 * two models. */
static int save_place(struct save *save)
{
    size_t last = save->file_count - 1;
    int r = 0;

    if (save->has_index && unlink(save->files[last].path) < 0 && errno != ENOENT)
        return save_fail(save, save->files[last].path, -errno);
    for (size_t i = 0; i <= last; i++) {
        struct save_file *file = &save->files[i];
        if (rename(file->temporary, file->path) < 0)
            return save_fail(save, file->path, -errno);
        free(file->temporary);
        file->temporary = NULL;
    }
    r = save_sync_directory(save);
    return r ? save_fail(save, save->path, r) : CLI_OK;
}

int save_write(struct save *save)
{
    int status;

    signals_defer(true);
    signal(SIGXFSZ, SIG_IGN); /* a limit is an error like others */
    status = save_make_all(save);
    if (status == CLI_OK)
        status = save_fill_all(save);
    if (status == CLI_OK)
        status = save_place(save);
    return status;
}
