/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of the reader: files and their bytes, the model's tensors, and error
 * reports. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file_io.h"
#include "safetensors_parts.h"

#define CONTROL_SUFFIX ".aria2"

int safetensors_fail(struct failure *failure, int error, const char *path, const char *tensor,
                     const char *format, ...)
{
    size_t used = 0;
    va_list arguments;

    if (tensor == NULL)
        snprintf(failure->text, sizeof(failure->text), "%.300s: ", path);
    else
        snprintf(failure->text, sizeof(failure->text), "%.300s: tensor '%.200s': ", path, tensor);
    used = strlen(failure->text);
    va_start(arguments, format);
    vsnprintf(failure->text + used, sizeof(failure->text) - used, format, arguments);
    va_end(arguments);
    for (char *c = failure->text; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    }
    return error;
}

/* Explains why a file cannot be opened. Returns `error`. */
static int fail_open(const char *path, int error, struct failure *failure)
{
    struct stat status;

    if (error == -ENOENT && lstat(path, &status) == 0 && S_ISLNK(status.st_mode))
        return safetensors_fail(failure, error, path, NULL,
                                "is a symbolic link to a file that is not there; the download may "
                                "not have finished, or its cache was cleaned: fetch the model "
                                "again");
    return safetensors_fail(failure, error, path, NULL, "cannot open it: %s%s",
                            failure_reason(error),
                            error == -EMFILE ? "" : "; check the path and its permissions");
}

/* Refuses an unfinished download of aria2, which makes the file in full size at once and removes a
 * second file beside it at the end. */
static int check_finished(const char *path, struct failure *failure)
{
    char *control = NULL;
    int error = 0;

    if (asprintf(&control, "%s" CONTROL_SUFFIX, path) < 0)
        return safetensors_fail(failure, -ENOMEM, path, NULL, "out of memory");
    if (access(control, F_OK) == 0)
        error = safetensors_fail(failure, -EINVAL, path, NULL,
                                 "is not whole: aria2 has not finished its download ('%.300s' is "
                                 "still there); let it finish, or fetch the file again",
                                 control);
    free(control);
    return error;
}

int safetensors_open_file(const char *path, int *fd, uint64_t *size_bytes, struct failure *failure)
{
    struct stat status;
    /* O_NONBLOCK: a FIFO is refused below instead of waited for. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int error = 0;

    if (file < 0)
        return fail_open(path, -errno, failure);
    if (fstat(file, &status) != 0) {
        error = -errno;
        safetensors_fail(failure, error, path, NULL, "cannot stat it: %s; check the disk",
                         strerror(-error));
    } else if (!S_ISREG(status.st_mode)) {
        error = S_ISDIR(status.st_mode) ? -EISDIR : -EINVAL;
        safetensors_fail(failure, error, path, NULL,
                         S_ISDIR(status.st_mode) ? "is a directory; name it alone, or files"
                                                 : "is no regular file; name the model's "
                                                   "*.safetensors files or its "
                                                   "*.safetensors.index.json");
    } else {
        error = check_finished(path, failure);
    }
    if (error != 0) {
        close(file);
        return error;
    }
    *fd = file;
    *size_bytes = (uint64_t)status.st_size;
    return 0;
}

int safetensors_read(int fd, const char *path, uint64_t offset_bytes, size_t size_bytes,
                     char **bytes, struct failure *failure)
{
    char *buffer = malloc(size_bytes + 1);
    int error;

    if (buffer == NULL)
        return safetensors_fail(failure, -ENOMEM, path, NULL, "out of memory");
    error = file_read_at(fd, buffer, size_bytes, offset_bytes);
    if (error == -ENODATA)
        error =
            safetensors_fail(failure, -EIO, path, NULL,
                             "became shorter while it was read; try again when nothing writes it");
    else if (error != 0)
        safetensors_fail(failure, error, path, NULL, "cannot read it: %s; check the disk",
                         strerror(-error));
    if (error != 0) {
        free(buffer);
        return error;
    }
    *bytes = buffer;
    return 0;
}

void *safetensors_grow(void *array, size_t count, size_t more, size_t item_bytes)
{
    size_t total_bytes = 0;

    /* Never of size 0, for which realloc() may return NULL. */
    if (__builtin_mul_overflow(count + more + 1, item_bytes, &total_bytes))
        return NULL;
    return realloc(array, total_bytes);
}

int safetensors_add_opened(struct model *model, const char *path, struct failure *failure)
{
    struct model_file *files = NULL;
    struct model_file *file;
    char *copy = NULL;
    int error;

    if (model->file_count >= SAFETENSORS_MAX_FILES)
        return safetensors_fail(failure, -EINVAL, path, NULL,
                                "is one file too many; a model has at most %u",
                                SAFETENSORS_MAX_FILES);
    copy = strdup(path);
    if (copy != NULL)
        files = safetensors_grow(model->files, model->file_count, 1, sizeof(*files));
    if (files == NULL) {
        free(copy);
        return safetensors_fail(failure, -ENOMEM, path, NULL, "out of memory");
    }
    model->files = files;
    file = &model->files[model->file_count];
    memset(file, 0, sizeof(*file));
    error = safetensors_open_file(path, &file->fd, &file->size_bytes, failure);
    if (error != 0) {
        free(copy);
        return error;
    }
    file->path = copy;
    model->file_count++;
    return 0;
}

static int tensor_compare(const void *left, const void *right)
{
    const struct model_tensor *l = left;
    const struct model_tensor *r = right;
    int order = strcmp(l->name, r->name);

    if (order != 0)
        return order;
    return (l->file > r->file) - (l->file < r->file);
}

int safetensors_finish(struct model *model, struct failure *failure)
{
    if (model->tensor_count > 0)
        qsort(model->tensors, model->tensor_count, sizeof(*model->tensors), tensor_compare);
    for (size_t i = 0; i < model->tensor_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        const char *path = model->files[tensor->file].path;

        model->value_count += tensor->long_format != NULL;
        if (i > 0 && strcmp(model->tensors[i - 1].name, tensor->name) == 0 &&
            model->tensors[i - 1].file == tensor->file)
            return safetensors_fail(failure, -EINVAL, path, tensor->name,
                                    "occurs twice in the header; write the file again with the "
                                    "safetensors library");
        if (i > 0 && strcmp(model->tensors[i - 1].name, tensor->name) == 0)
            return safetensors_fail(failure, -EINVAL, path, tensor->name,
                                    "is also in %.300s; load files of one model only, each once",
                                    model->files[model->tensors[i - 1].file].path);
        if (__builtin_add_overflow(model->tensor_bytes, tensor->size_bytes, &model->tensor_bytes))
            return safetensors_fail(failure, -EOVERFLOW, path, tensor->name,
                                    "the tensors together have more than 2^64 bytes; load fewer");
    }
    return 0;
}

const struct model_tensor *safetensors_find(const struct model *model, const char *name)
{
    const struct model_tensor *tensors = model->tensors;
    size_t at = 0;

    ARRAY_SEARCH(at, model->tensor_count, strcmp(tensors[at].name, name) < 0);
    return at < model->tensor_count && strcmp(tensors[at].name, name) == 0 ? &tensors[at] : NULL;
}
