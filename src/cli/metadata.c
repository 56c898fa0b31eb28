/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/metadata.h"

#include "base/file_io.h"
#include "base/scope.h"
#include "cli/cli.h"
#include "cli/store_connect.h"
#include "cli/store_explain.h"
#include "cli/store_file.h"
#include "cli/store_key.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The file of the entry; NULL: no memory, for the key has been looked at before. */
static char *metadata_path(const char *store, const char *key)
{
    char file[sizeof("metadata/") + STORE_ENCODED_BYTES], name[STORE_ENCODED_BYTES];

    if (store_encode_key(key, name) != 0)
        return NULL;
    snprintf(file, sizeof(file), "metadata/%s", name);
    return store_file_path(store, file);
}

/* ---- by token ------------------------------------------------------------------------------ */

static int metadata_change_joined(gmsfs_t *handle, const struct metadata_entry *entry)
{
    if (gmsfs_granted_lock(handle) != GMSFS_MODE_RW)
        return -ENOLCK;
    return entry->remove ? gmsfs_metadata_delete(handle, entry->data.key)
                         : gmsfs_metadata_put(handle, &entry->data);
}

/* ---- by descent ---------------------------------------------------------------------------- */

static int metadata_set_text(const char *path, const char *attribute, const char *text)
{
    return setxattr(path, attribute, text, strlen(text), 0) < 0 ? -errno : 0;
}

static int metadata_bind(const char *path, const struct metadata_entry *entry)
{
    char offset[24];
    int error;

    snprintf(offset, sizeof(offset), "%" PRIu64, entry->data.offset);

    /* At 0 both an unbound entry and any allocation are valid in between. */
    error = metadata_set_text(path, "user.gmsfs.offset", "0");
    if (!error)
        error = metadata_set_text(path, "user.gmsfs.allocation", entry->allocation);
    if (!error && entry->data.offset)
        error = metadata_set_text(path, "user.gmsfs.offset", offset);
    return error;
}

static int metadata_put_file(const char *path, const struct metadata_entry *entry)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), error;

    if (fd < 0)
        return -errno;
    error = file_write(fd, entry->data.value, entry->data.value_bytes);

    /* The value becomes the entry's at close. */
    if (close(fd) < 0 && !error)
        error = -errno;
    return error ? error : metadata_bind(path, entry);
}

static int metadata_change_file(const char *store, const struct metadata_entry *entry)
{
    SCOPED_FREE char *path = metadata_path(store, entry->data.key);
    int error;

    if (!path)
        return -ENOMEM;
    if (entry->remove)
        error = unlink(path) < 0 ? -errno : 0;
    else
        error = metadata_put_file(path, entry);
    return error;
}

int metadata_change(const char *store, gmsfs_t *handle, const struct metadata_entry *entry)
{
    int error = store_join(handle);

    if (error == 0)
        return metadata_change_joined(handle, entry);
    return error == -ENOENT ? metadata_change_file(store, entry) : error;
}

/* ---- reading ------------------------------------------------------------------------------- */

int metadata_read(const char *store, const char *key, void **value, size_t *value_bytes)
{
    char *path = metadata_path(store, key), *bytes = malloc(GMSFS_VALUE_MAX);
    int fd = path && bytes ? open(path, O_RDONLY | O_CLOEXEC) : -1, error = 0;
    size_t used = 0;
    ssize_t got = 1;

    if (!path || !bytes)
        error = -ENOMEM;
    else if (fd < 0)
        error = -errno;
    while (!error && got > 0 && used < GMSFS_VALUE_MAX) {
        got = read(fd, bytes + used, GMSFS_VALUE_MAX - used);
        if (got > 0)
            used += (size_t)got;
        else if (got < 0 && errno == EINTR)
            got = 1;
        else if (got < 0)
            error = -errno;
    }
    if (fd >= 0)
        close(fd);
    free(path);
    if (error) {
        free(bytes);
        return error;
    }
    *value = bytes;
    *value_bytes = used;
    return 0;
}

int metadata_explain(const char *store, const char *key, const char *doing, int error)
{
    if (error == -ENOENT)
        cli_error("%s: no entry '%s'; 'gmsfs metadata ls %s' lists them", store, key, store);
    else if (error == -ENOLCK || error == -EBADF)
        cli_error("cannot %s '%s': %s: not in a writer's session; do it as "
                  "'gmsfs run -w %s -- gmsfs metadata ...'",
                  doing, key, store, store);
    else if (error == -EINVAL)
        cli_error("cannot %s '%s': %s: the store refuses it: the key must be UTF-8, and the offset "
                  "lie in the allocation",
                  doing, key, store);
    else if (error == -EFBIG || error == -ENOSPC)
        cli_error("cannot %s '%s': %s: beyond what a store takes (a value has at most %u bytes)",
                  doing, key, store, GMSFS_VALUE_MAX);
    else
        store_explain(store, doing, error);
    return CLI_FAILURE;
}
