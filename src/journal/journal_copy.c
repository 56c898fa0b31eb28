/* SPDX-License-Identifier: Apache-2.0 */
#include "journal/journal_copy.h"

#include "base/fd_path.h"
#include "base/file_io.h"
#include "journal/journal_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define COPY_MAGIC  UINT64_C(0x79706f6373666d67) /* "gmfscopy" */
#define COPY_FILES  4u
#define CHUNK_BYTES 65536u
#define NO_COPY \
    "neither a gmsfs mount nor a copy of a journal, which the mount option keep_journal=DIR makes"

/* The beginning of a copy. The journal's head follows, then the used bytes of both files of
 * transactions and of both snapshots. */
struct copy_head {
    uint64_t magic;
    uint32_t version, pad;
    uint64_t sizes[COPY_FILES]; /* of the files */
    uint64_t bytes[COPY_FILES]; /* of them, from their beginning, in the copy */
};

static const int *get_file(const struct journal_files *files, unsigned i)
{
    return i < 2 ? &files->transactions[i] : &files->snapshots[i - 2];
}

static int copy_bytes(int from, uint64_t from_at, int to, uint64_t to_at, uint64_t bytes)
{
    uint8_t chunk[CHUNK_BYTES];
    int error = 0;

    for (uint64_t done = 0; done < bytes && !error;) {
        size_t size = bytes - done < sizeof chunk ? (size_t)(bytes - done) : sizeof chunk;
        error = file_read_at(from, chunk, size, from_at + done);
        if (!error)
            error = file_write_at(to, chunk, size, to_at + done);
        done += size;
    }
    return error;
}

/* ---- of a journal that is there -------------------------------------------------------------- */

/* Returns how much of a file the head uses. */
static uint64_t count_used(const struct head *head, unsigned i)
{
    unsigned base = (unsigned)(head->base % 2), writing = (unsigned)(head->writing % 2);

    if (i < 2)
        return i == base || i == writing ? head->tails[i] : 0;
    return i - 2 == base && head->base > 0 ? head->snapshot_bytes[base] : 0;
}

int journal_write_copy(const struct journal_files *files, int to)
{
    struct copy_head copy = {.magic = COPY_MAGIC, .version = JOURNAL_COPY_VERSION};
    _Alignas(8) uint8_t page[HEAD_BYTES], again[HEAD_BYTES];
    struct head head;
    uint64_t at = sizeof copy + sizeof page;
    int error = file_read_at(files->head, page, sizeof page, 0);

    if (error)
        return error;
    memcpy(&head, page, sizeof head);
    for (unsigned i = 0; i < COPY_FILES && !error; i++) {
        int fd = *get_file(files, i);
        struct stat stat;
        if (fstat(fd, &stat) != 0)
            return -errno;
        copy.sizes[i] = (uint64_t)stat.st_size;
        copy.bytes[i] = count_used(&head, i);
        bool fits = copy.sizes[i] <= JOURNAL_MAX_BYTES && copy.bytes[i] <= copy.sizes[i];
        error = fits ? copy_bytes(fd, 0, to, at, copy.bytes[i]) : -EPROTO;
        at += copy.bytes[i];
    }
    int read_again = file_read_at(files->head, again, sizeof again, 0);
    const struct head *now = (const struct head *)again;
    if (!read_again && (now->base != head.base || now->writing != head.writing))
        return -EAGAIN;
    if (!error)
        error = file_write_at(to, &copy, sizeof copy, 0);
    return error ? error : file_write_at(to, page, sizeof page, sizeof copy);
}

/* ---- of a copy ------------------------------------------------------------------------------- */

static int check_copy(const struct copy_head *copy, uint64_t size, struct failure *failure)
{
    uint64_t left = size - sizeof *copy - HEAD_BYTES;

    if (copy->magic != COPY_MAGIC)
        return failure_set(failure, -EPROTO, NO_COPY);
    if (copy->version != JOURNAL_COPY_VERSION)
        return failure_set(failure, -EPROTONOSUPPORT,
                           "the copy has version %" PRIu32 ", this gmsfs reads %u", copy->version,
                           JOURNAL_COPY_VERSION);
    for (unsigned i = 0; i < COPY_FILES; i++) {
        if (copy->sizes[i] > JOURNAL_MAX_BYTES || copy->bytes[i] > copy->sizes[i] ||
            copy->bytes[i] > left)
            return failure_set(failure, -EPROTO, "the copy is damaged or cut off");
        left -= copy->bytes[i];
    }
    return left == 0 ? 0 : failure_set(failure, -EPROTO, "the copy is damaged: more follows it");
}

/* Takes as much memory as the copy has bytes: the sizes in the copy only cost address space. */
static int make_files(const struct copy_head *copy, int from, const struct journal_files *files)
{
    uint64_t at = sizeof *copy + HEAD_BYTES;
    int error = copy_bytes(from, sizeof *copy, files->head, 0, HEAD_BYTES);

    for (unsigned i = 0; i < COPY_FILES && !error; i++) {
        int fd = *get_file(files, i);
        if (ftruncate(fd, (off_t)copy->sizes[i]) != 0)
            return -errno;
        error = copy_bytes(from, at, fd, 0, copy->bytes[i]);
        at += copy->bytes[i];
    }
    return error;
}

int journal_read_copy(int from, struct journal_files *files, struct failure *failure)
{
    struct copy_head copy;
    struct stat stat;

    *files = (struct journal_files){-1, {-1, -1}, {-1, -1}};
    if (fstat(from, &stat) != 0)
        return failure_set(failure, -errno, "cannot look at it: %s", strerror(errno));
    if (!S_ISREG(stat.st_mode) || (uint64_t)stat.st_size < sizeof copy + HEAD_BYTES)
        return failure_set(failure, -EPROTO, NO_COPY);
    int error = file_read_at(from, &copy, sizeof copy, 0);
    if (error)
        return failure_set(failure, error, "cannot read it: %s", strerror(-error));
    error = check_copy(&copy, (uint64_t)stat.st_size, failure);
    if (error)
        return error;
    error = journal_make_files(files);
    if (!error)
        error = make_files(&copy, from, files);
    if (!error)
        return 0;
    journal_close_files(files);
    return failure_set(failure, error, "cannot read it: %s", strerror(-error));
}

/* ---- of a process ---------------------------------------------------------------------------- */

/* Returns the place for the file that a link of /proc/PID/fd names; NULL if it is no journal's. */
static int *find_place(const char *link, struct journal_files *files)
{
    static const char *const names[] = {JOURNAL_FILE_NAMES};
    int *const places[] = {&files->head, &files->transactions[0], &files->transactions[1],
                           &files->snapshots[0], &files->snapshots[1]};
    char wanted[64];

    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(wanted, sizeof wanted, "/memfd:%s (deleted)", names[i]);
        if (strcmp(link, wanted) == 0)
            return places[i];
    }
    return NULL;
}

/* Opens a file of another process for reading, if it is a memfd: that process chooses the text of
 * the link, and opening a pipe or a device could wait or change it. */
static int open_memfd(int directory, const char *name, int *opened)
{
    struct stat stat;
    struct statfs system;
    SCOPED_CLOSE int fd = openat(directory, name, O_PATH | O_CLOEXEC);

    if (fd < 0 || fstatfs(fd, &system) != 0)
        return -errno;
    if (system.f_type != TMPFS_MAGIC)
        return -EPROTO;
    if (fstat(fd, &stat) != 0)
        return -errno;
    if (!S_ISREG(stat.st_mode))
        return -EPROTO;
    *opened = open(fd_path(fd).text, O_RDONLY | O_CLOEXEC);
    return *opened < 0 ? -errno : 0;
}

static bool has_all(const struct journal_files *files)
{
    return files->head >= 0 && files->transactions[0] >= 0 && files->transactions[1] >= 0 &&
           files->snapshots[0] >= 0 && files->snapshots[1] >= 0;
}

int journal_find_files(pid_t pid, struct journal_files *files)
{
    char path[64];
    const struct dirent *entry;
    int error = 0;

    *files = (struct journal_files){-1, {-1, -1}, {-1, -1}};
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *all = opendir(path);
    if (!all)
        return -errno;
    while (!error && (entry = readdir(all))) {
        char link[64] = "";
        ssize_t bytes = readlinkat(dirfd(all), entry->d_name, link, sizeof link - 1);
        int *place = bytes > 0 ? find_place(link, files) : NULL;
        if (!place || *place >= 0)
            continue;
        error = open_memfd(dirfd(all), entry->d_name, place);
    }
    closedir(all);
    if (!error && !has_all(files)) /* former builds gave two files one name */
        error = files->head >= 0 ? -EPROTONOSUPPORT : -ENOENT;
    if (error)
        journal_close_files(files);
    return error;
}
