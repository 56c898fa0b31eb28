/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_file.h"

#include "base/array.h"
#include "base/file_io.h"
#include "base/hex.h"
#include "base/scope.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_MAX_BYTES (16u << 20)
#define TEXT_STEP      4096u

char *store_file_path(const char *path, const char *file)
{
    return cli_format("%s/%s", path, file);
}

static int store_read_fd(int fd, size_t most_bytes, char **text, size_t *text_bytes)
{
    SCOPED_FREE char *bytes = NULL;
    size_t used = 0, room = 0;
    ssize_t got;

    do {
        if (used > most_bytes || ARRAY_RESERVE(bytes, room, used + TEXT_STEP) != 0)
            return -ENOMEM;
        got = read(fd, bytes + used, room - used - 1);
        used += got > 0 ? (size_t)got : 0;
    } while (got > 0 || (got < 0 && errno == EINTR));
    if (got < 0)
        return -errno;
    bytes[used] = '\0';
    *text = bytes;
    *text_bytes = used;
    bytes = NULL;
    return 0;
}

/* Opens with O_NONBLOCK, so that a FIFO without a writer never blocks. */
int store_read_regular(const char *path, size_t most_bytes, char **text, size_t *text_bytes)
{
    SCOPED_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat status;

    if (fd < 0 || fstat(fd, &status) != 0)
        return -errno;
    return S_ISREG(status.st_mode) ? store_read_fd(fd, most_bytes, text, text_bytes) : -ENOTSUP;
}

int store_read_bytes(const char *path, size_t most_bytes, uint8_t **bytes, size_t *size_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = NULL;

    if (fd < 0)
        return -errno;
    int error = store_read_fd(fd, most_bytes, &text, size_bytes);
    close(fd);
    if (!error)
        *bytes = (uint8_t *)text;
    return error;
}

int store_read_text(const char *path, char **text)
{
    uint8_t *bytes = NULL;
    size_t text_bytes;
    int error = store_read_bytes(path, TEXT_MAX_BYTES, &bytes, &text_bytes);

    if (!error)
        *text = (char *)bytes;
    return error;
}

int store_read_file(const char *path, const char *file, char **text)
{
    SCOPED_FREE char *name = store_file_path(path, file);

    return store_read_text(name, text);
}

int store_read_again(int fd, char *text, size_t room)
{
    ssize_t got;

    do
        got = pread(fd, text, room - 1, 0);
    while (got < 0 && errno == EINTR);
    text[got < 0 ? 0 : got] = '\0';
    return got < 0 ? -errno : 0;
}

int store_read_json(const char *path, const char *file, json_t **json)
{
    SCOPED_FREE char *text = NULL;
    int error = store_read_file(path, file, &text);

    *json = error ? NULL : json_loads(text, 0, NULL);
    if (!error && !json_is_object(*json)) {
        json_decref(*json);
        *json = NULL;
        error = -EBADMSG;
    }
    return error;
}

json_t *store_device_json(const char *path)
{
    json_t *json;

    store_read_json(path, "../device", &json);
    return json;
}

json_t *store_info_json(const char *path)
{
    json_t *json;

    store_read_json(path, "info", &json);
    return json;
}

void store_last_error(const char *path, char *text, size_t room)
{
    json_auto_t *info = store_info_json(path);

    snprintf(text, room, "%s", info ? json_get_text(info, "last_error") : "");
}

int store_read_id(const char *path, uint8_t id[16])
{
    json_auto_t *info = NULL;
    int error = store_read_json(path, "info", &info);
    const char *text = info ? json_get_text(info, "id") : "";

    if (error == -ENOTDIR || error == -EBADMSG || (!error && strlen(text) != 32))
        error = -ENOENT;
    if (error == 0 && hex_parse(text, id, 16) < 0)
        error = -ENOENT;
    return error;
}
