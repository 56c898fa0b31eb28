/* SPDX-License-Identifier: Apache-2.0 */
#include "image/image_dir.h"

#include "base/failure.h"
#include "base/file_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA_PREFIX    "data-"
#define DATA_MIN_DIGIT 5
#define DIR_MODE       0777
#define FILE_MODE      0666

/* ---- names --------------------------------------------------------------------------------- */

const char *image_data_name(uint64_t file, char name[IMAGE_NAME_BYTES])
{
    snprintf(name, IMAGE_NAME_BYTES, DATA_PREFIX "%0*" PRIu64, DATA_MIN_DIGIT, file);
    return name;
}

static uint64_t data_number(const char *name)
{
    return strtoull(name + strlen(DATA_PREFIX), NULL, 10);
}

/* Returns true for a name that image_data_name makes. */
static bool is_data_name(const char *name)
{
    char again[IMAGE_NAME_BYTES];

    return strncmp(name, DATA_PREFIX, strlen(DATA_PREFIX)) == 0 &&
           data_number(name) < IMAGE_MAX_PIECES &&
           strcmp(image_data_name(data_number(name), again), name) == 0;
}

static bool is_name_of_image(const char *name)
{
    return is_data_name(name) || strcmp(name, IMAGE_LAYOUT) == 0 ||
           strcmp(name, IMAGE_LAYOUT IMAGE_NEW) == 0 || strcmp(name, IMAGE_MANIFEST IMAGE_NEW) == 0;
}

int image_dir_explain(const struct image_dir *dir, const char *name, const char *doing, int error,
                      struct failure *failure)
{
    const char *why = failure_reason(error);

    if (error == -ELOOP)
        why = "a symbolic link, which no image has";
    else if (error == -ENOTSUP || error == -EISDIR)
        why = "not a regular file";
    else if (error == -ENODATA)
        why = "the file is shorter than it was written";
    else if (error == -EFBIG)
        why = "the file is larger than it may be";
    return failure_set(failure, error, "%s/%s: cannot %s: %s", dir->path, name, doing, why);
}

/* ---- the directory ------------------------------------------------------------------------- */

/* Accepts file systems without flock(2). */
static int dir_lock(const struct image_dir *dir, enum image_dir_use use, struct failure *failure)
{
    int kind = use == IMAGE_DIR_WRITE ? LOCK_EX : LOCK_SH;

    if (use == IMAGE_DIR_LOOK || flock(dir->fd, kind | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return 0;
    return failure_set(failure, -EWOULDBLOCK, "%s: another 'gmsfs image' %s it; let that end first",
                       dir->path, use == IMAGE_DIR_WRITE ? "reads or writes" : "writes");
}

int image_dir_open(struct image_dir *dir, const char *path, enum image_dir_use use,
                   struct failure *failure)
{
    *dir = (struct image_dir){
        .place = path, .path = source_show(path), .fd = -1, .source = source_open()};
    if (!dir->path || !dir->source)
        return failure_no_memory(failure);
    if (source_has_scheme(path))
        return use == IMAGE_DIR_WRITE ? failure_set(failure, -EROFS,
                                                    "%s: an image is saved into a directory; name "
                                                    "its path",
                                                    dir->path)
                                      : 0;
    if (use == IMAGE_DIR_WRITE) {
        dir->created = mkdir(path, DIR_MODE) == 0;
        if (!dir->created && errno != EEXIST)
            return failure_set(failure, -errno, "%s: cannot make the directory: %s%s", path,
                               strerror(errno),
                               errno == ENOENT ? "; make the one above it first" : "");
    }
    dir->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir->fd < 0)
        return failure_set(failure, -errno, "%s: cannot open the directory of the image: %s%s",
                           path, failure_reason(-errno),
                           errno == EMFILE ? "" : "; check the path and its permissions");
    return dir_lock(dir, use, failure);
}

void image_dir_close(struct image_dir *dir)
{
    if (dir->fd >= 0)
        close(dir->fd);
    dir->fd = -1;
    source_close(dir->source);
    dir->source = NULL;
    free(dir->path);
    dir->path = NULL;
}

/* Calls `each` for each name but . and ..; a non-zero return stops the walk. */
static int dir_each(const struct image_dir *dir, int (*each)(void *context, const char *name),
                    void *context)
{
    int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
    SCOPED_DIR DIR *list = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!list) {
        error = -errno;
        if (fd >= 0)
            close(fd);
        return error;
    }
    while (!error && (errno = 0, entry = readdir(list)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            error = each(context, entry->d_name);
    if (!error && errno)
        error = -errno;
    return error;
}

static int look_at(void *context, const char *name)
{
    struct image_dir_content *content = context;

    if (strcmp(name, IMAGE_MANIFEST) == 0)
        content->manifest = true;
    else if (strcmp(name, IMAGE_UNFINISHED) == 0)
        content->unfinished = true;
    else if (strcmp(name, IMAGE_UNFINISHED IMAGE_NEW) != 0) /* of a save that had just begun */
        content->others = true;
    if (is_name_of_image(name))
        snprintf(content->in_the_way, sizeof(content->in_the_way), "%s", name);
    return 0;
}

int image_dir_look(const struct image_dir *dir, struct image_dir_content *content)
{
    memset(content, 0, sizeof(*content));
    return dir_each(dir, look_at, content);
}

struct removal {
    const struct image_dir *dir;
    uint64_t first;
};

static int remove_data(void *context, const char *name)
{
    const struct removal *removal = context;

    if (!is_data_name(name) || data_number(name) < removal->first)
        return 0;
    return image_dir_remove(removal->dir, name);
}

int image_dir_remove_data(const struct image_dir *dir, uint64_t first)
{
    struct removal removal = {dir, first};

    return dir_each(dir, remove_data, &removal);
}

void image_dir_undo(const struct image_dir *dir, bool data)
{
    if (data) {
        image_dir_remove_data(dir, 0);
        image_dir_remove(dir, IMAGE_LAYOUT);
    }
    image_dir_remove(dir, IMAGE_UNFINISHED);
    if (dir->created)
        rmdir(dir->path);
}

/* Some file systems cannot sync a directory, and need not. */
static int sync_directory(int fd)
{
    return fsync(fd) < 0 && errno != EINVAL ? -errno : 0;
}

int image_dir_sync(const struct image_dir *dir)
{
    int error = sync_directory(dir->fd);

    if (error || !dir->created)
        return error;
    SCOPED_CLOSE int above = openat(dir->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* it may be writable, but not readable */
    if (above < 0)
        return errno == EACCES ? 0 : -errno;
    return sync_directory(above);
}

int image_dir_remove(const struct image_dir *dir, const char *name)
{
    return unlinkat(dir->fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

/* ---- files --------------------------------------------------------------------------------- */

/* O_NONBLOCK: opening a pipe must not block. */
int image_dir_open_file(const struct image_dir *dir, const char *name, int flags)
{
    int fd = openat(dir->fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, FILE_MODE);
    struct stat known;
    int error = -ENOTSUP;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &known) < 0)
        error = -errno;
    else if (S_ISREG(known.st_mode))
        return fd;
    close(fd);
    return error;
}

int image_dir_add(const struct image_dir *dir, const char *name, size_t *file,
                  struct failure *failure)
{
    unsigned flags = SOURCE_NO_LINKS | SOURCE_IN_TURN | SOURCE_NO_SUM;
    int error = source_add(dir->source, dir->place, name, flags, file, failure);

    if (!error || source_has_scheme(dir->place))
        return error;
    return image_dir_explain(dir, name, "read", error == -EINVAL ? -ENOTSUP : error, failure);
}

int image_dir_read(const struct image_dir *dir, const char *name, size_t most_bytes,
                   uint8_t **bytes, size_t *size_bytes, struct failure *failure)
{
    struct failure why = {0};
    size_t file;
    int error = image_dir_add(dir, name, &file, failure);

    if (error)
        return error;
    *bytes = NULL;
    *size_bytes = (size_t)source_get(dir->source, file)->size_bytes;
    if (*size_bytes > most_bytes)
        return image_dir_explain(dir, name, "read", -EFBIG, failure);
    *bytes = malloc(*size_bytes + 1);
    error = *bytes ? source_read(dir->source, file, 0, *bytes, *size_bytes, &why) : -ENOMEM;
    if (!error)
        return 0;
    free(*bytes);
    *bytes = NULL;
    if (*why.text)
        return failure_set(failure, error, "%s/%s: cannot read: %s", dir->path, name, why.text);
    return image_dir_explain(dir, name, "read", error, failure);
}

int image_dir_write(const struct image_dir *dir, const char *name, const void *bytes,
                    size_t size_bytes)
{
    char fresh[IMAGE_NAME_BYTES];

    snprintf(fresh, sizeof(fresh), "%s" IMAGE_NEW, name);
    int error = image_dir_remove(dir, fresh);
    if (error)
        return error;
    int fd = image_dir_open_file(dir, fresh, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0) {
        if (fd != -EEXIST)
            /* it may exist all the same */
            image_dir_remove(dir, fresh);
        return fd;
    }
    error = file_write_at(fd, bytes, size_bytes, 0);
    if (!error && fsync(fd) < 0)
        error = -errno;
    if (close(fd) < 0 && !error)
        error = -errno;
    if (!error && renameat(dir->fd, fresh, dir->fd, name) < 0)
        error = -errno;
    if (!error)
        return image_dir_sync(dir);
    image_dir_remove(dir, fresh);
    return error;
}

/* ---- the manifest -------------------------------------------------------------------------- */

int image_dir_read_manifest(const struct image_dir *dir, bool unfinished,
                            struct image_manifest *manifest, struct failure *failure)
{
    const char *name = unfinished ? IMAGE_UNFINISHED : IMAGE_MANIFEST;
    struct words_error wrong;
    uint8_t *text;
    size_t text_bytes;
    int error = image_dir_read(dir, name, IMAGE_MANIFEST_MAX_BYTES, &text, &text_bytes, failure);

    memset(manifest, 0, sizeof(*manifest));
    if (error)
        return error == -ENOENT ? error : -EINVAL;
    error = image_manifest_decode((const char *)text, text_bytes, unfinished, manifest, &wrong);
    free(text);
    if (error == -ENOMEM)
        failure_no_memory(failure);
    else if (error == -EPROTONOSUPPORT)
        failure_set(failure, error, "%s/%s: %s; a newer one may", dir->path, name, wrong.text);
    else if (error)
        failure_set(failure, error,
                    "%s/%s: line %zu: %s: the image is damaged, and nothing of it is used",
                    dir->path, name, wrong.line, wrong.text);
    return error ? -EINVAL : 0;
}
