/* SPDX-License-Identifier: Apache-2.0 */
/* Tier 1, metadata entry by entry: small ones by ioctl, a large value by its file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/key_name.h"
#include "bulk.h"
#include "internal.h"

/* Before anything is added to a size. */
static int metadata_check(const struct gmsfs_metadata *entry)
{
    if (gfs_key_check(entry->key) || (!entry->value && entry->value_bytes))
        return -EINVAL;
    return entry->value_bytes > GMSFS_VALUE_MAX ? -EFBIG : 0;
}

static int metadata_put_small(struct gmsfs_store *handle, const struct gmsfs_metadata *entry)
{
    struct gmsfs_ioc_metadata request;
    size_t key_bytes = strlen(entry->key);

    memset(&request, 0, sizeof request);
    request.slot = entry->slot;
    request.offset = entry->offset;
    request.key_bytes = (uint32_t)key_bytes;
    request.value_bytes = (uint32_t)entry->value_bytes;
    memcpy(request.data, entry->key, key_bytes);
    if (entry->value_bytes)
        memcpy(request.data + key_bytes, entry->value, entry->value_bytes);
    return gfs_ioctl(handle, GMSFS_IOC_METADATA_PUT, &request);
}

int gmsfs_metadata_put(gmsfs_t *handle, const struct gmsfs_metadata *entry)
{
    int error = entry ? metadata_check(entry) : -EINVAL;

    if (error)
        return error;
    if (strlen(entry->key) + entry->value_bytes > GMSFS_PUT_DATA_MAX)
        return gmsfs_metadata_put_many(handle, entry, 1, NULL);
    error = gfs_enter(handle);
    if (error)
        return error;
    error = handle->mode == GMSFS_MODE_RW ? metadata_put_small(handle, entry) : -ENOLCK;
    gfs_leave(handle);
    return error;
}

int gmsfs_metadata_put_many(gmsfs_t *handle, const struct gmsfs_metadata *entries, size_t count,
                            size_t *culprit)
{
    size_t at_fault = SIZE_MAX;
    int error = 0;

    if (!entries && count)
        return -EINVAL;
    if (count > GMSFS_ENTRIES_MAX) /* before one of them is looked at: so many there cannot be */
        error = -ENOSPC;
    for (size_t i = 0; i < count && !error; i++) {
        error = metadata_check(entries + i);
        if (error)
            at_fault = i;
    }
    if (!error)
        error = gfs_enter(handle);
    if (!error) {
        error = handle->mode == GMSFS_MODE_RW ? gfs_bulk_put(handle, entries, count, &at_fault)
                                              : -ENOLCK;
        gfs_leave(handle);
    }
    if (error && culprit)
        *culprit = at_fault;
    return error;
}

int gmsfs_metadata_delete(gmsfs_t *handle, const char *key)
{
    struct gmsfs_ioc_metadata request;

    if (gfs_key_check(key))
        return -EINVAL;
    int error = gfs_enter(handle);
    if (error)
        return error;
    memset(&request, 0, sizeof request);
    request.key_bytes = (uint32_t)strlen(key);
    memcpy(request.data, key, request.key_bytes);
    error = handle->mode == GMSFS_MODE_RW ? gfs_ioctl(handle, GMSFS_IOC_METADATA_DELETE, &request)
                                          : -ENOLCK;
    gfs_leave(handle);
    return error;
}

/* ---- get ---------------------------------------------------------------------------------- */

struct metadata_found {
    uint64_t slot;
    uint64_t offset;
    uint8_t *value;
    size_t value_bytes;
};

static int metadata_get_small(struct gmsfs_store *handle, const char *key,
                              struct metadata_found *found)
{
    struct gmsfs_ioc_metadata request;

    memset(&request, 0, sizeof request);
    request.key_bytes = (uint32_t)strlen(key);
    memcpy(request.data, key, request.key_bytes);
    int error = gfs_ioctl(handle, GMSFS_IOC_METADATA_GET, &request);
    if (error)
        return error;
    if (request.value_bytes > GMSFS_PUT_DATA_MAX - strlen(key))
        return -EPROTO;
    found->value = malloc((size_t)request.value_bytes + 1);
    if (!found->value)
        return -ENOMEM;
    memcpy(found->value, request.data + strlen(key), request.value_bytes);
    found->value[request.value_bytes] = 0;
    found->value_bytes = request.value_bytes;
    found->slot = request.slot;
    found->offset = request.offset;
    return 0;
}

/* Two looks at the binding: an entry that is put again in between is not torn. */
static int metadata_get_binding(struct gmsfs_store *handle, const char *path,
                                struct metadata_found *found)
{
    char allocation[GMSFS_NAME_MAX + 1], target[sizeof "allocations/" + GMSFS_NAME_MAX];
    int error = gfs_xattr_text(handle->dir_fd, path, "user.gmsfs.allocation", allocation,
                               sizeof allocation);

    found->slot = GMSFS_SLOT_NONE;
    found->offset = 0;
    if (error == -ENODATA || (!error && !allocation[0]))
        return 0;
    if (!error)
        error = gfs_xattr_u64(handle->dir_fd, path, "user.gmsfs.offset", &found->offset);
    if (error)
        return error;
    memcpy(target, "allocations/", sizeof "allocations/");
    strcat(target, allocation);
    return gfs_xattr_u64(handle->dir_fd, target, "user.gmsfs.slot", &found->slot);
}

static int metadata_get_large(struct gmsfs_store *handle, const char *key,
                              struct metadata_found *found)
{
    char path[sizeof "metadata/" + KEY_NAME_BYTES] = "metadata/";
    int error = key_name_encode(key, path + strlen(path));

    if (!error)
        error = gfs_file_read(handle, path, 0, GMSFS_VALUE_MAX, &found->value, &found->value_bytes);
    if (!error)
        error = metadata_get_binding(handle, path, found);
    if (error) {
        free(found->value);
        found->value = NULL;
    }
    return error;
}

int gmsfs_metadata_get(gmsfs_t *handle, const char *key, uint64_t *slot, uint64_t *offset,
                       void **value, size_t *value_bytes)
{
    struct metadata_found found = {0};

    if (gfs_key_check(key))
        return -EINVAL;
    int error = gfs_enter(handle);
    if (error)
        return error;
    error = metadata_get_small(handle, key, &found);
    if (error == -EFBIG)
        error = metadata_get_large(handle, key, &found);
    gfs_leave(handle);
    if (error)
        return error;
    if (slot)
        *slot = found.slot;
    if (offset)
        *offset = found.offset;
    if (value_bytes)
        *value_bytes = found.value_bytes;
    if (value)
        *value = found.value;
    else
        free(found.value);
    return 0;
}

/* ---- list --------------------------------------------------------------------------------- */

struct metadata_keys {
    const char *prefix;
    size_t prefix_bytes;
    char *text; /* keys one after the other, with their NULs */
    size_t text_bytes, text_room;
    size_t count;
};

static int metadata_each_key(void *context, int dir_fd, const char *name)
{
    struct metadata_keys *keys = context;
    char key[KEY_NAME_BYTES];
    size_t key_bytes;

    (void)dir_fd;
    if (strlen(name) >= sizeof key || gfs_key_decode(name, key, &key_bytes) ||
        strlen(key) != key_bytes || strncmp(key, keys->prefix, keys->prefix_bytes) != 0)
        return 0;
    if (ARRAY_RESERVE(keys->text, keys->text_room, keys->text_bytes + sizeof key) != 0)
        return -ENOMEM;
    memcpy(keys->text + keys->text_bytes, key, key_bytes + 1);
    keys->text_bytes += key_bytes + 1;
    keys->count++;
    return 0;
}

/* strcmp compares as unsigned bytes. */
static int metadata_compare_keys(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* One block: the pointers, then their strings. */
static int metadata_pack_keys(const struct metadata_keys *keys, char ***out)
{
    char **pointers = malloc((keys->count + 1) * sizeof *pointers + keys->text_bytes);

    if (!pointers)
        return -ENOMEM;
    char *text = (char *)(pointers + keys->count + 1);
    if (keys->text_bytes)
        memcpy(text, keys->text, keys->text_bytes);
    for (size_t i = 0; i < keys->count; i++) {
        pointers[i] = text;
        text += strlen(text) + 1;
    }
    pointers[keys->count] = NULL;
    if (keys->count > 1)
        qsort(pointers, keys->count, sizeof *pointers, metadata_compare_keys);
    *out = pointers;
    return 0;
}

int gmsfs_metadata_list(gmsfs_t *handle, const char *prefix, char ***out, size_t *count)
{
    struct metadata_keys keys = {.prefix = prefix ? prefix : ""};

    if (!out || !count)
        return -EINVAL;
    keys.prefix_bytes = strlen(keys.prefix);
    int error = gfs_enter(handle);
    if (error)
        return error;
    error = gfs_dir_walk(handle, "metadata", metadata_each_key, &keys);
    gfs_leave(handle);
    if (!error)
        error = metadata_pack_keys(&keys, out);
    if (!error)
        *count = keys.count;
    free(keys.text);
    return error;
}
