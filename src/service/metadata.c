/* SPDX-License-Identifier: Apache-2.0 */
/* metadata - single entries, and bytes that are gathered for them */
#include "service/metadata.h"

#include "meta/name.h"
#include "service/parked.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int put(struct service *s, uint64_t session, const struct service_entry *entry)
{
    if (service_entry_has_stray_offset(entry->slot, entry->offset))
        return -EINVAL;
    return service_record(s, .type = RECORD_ENTRY_PUT, .session = session, .name = entry->key,
                          .name_bytes = entry->key_bytes, .slot = entry->slot,
                          .offset = entry->offset, .value = entry->value,
                          .value_bytes = entry->value_bytes);
}

int service_entry_put(struct service *s, const struct service_actor *by,
                      const struct service_entry *entry)
{
    uint64_t session;
    int error = service_find_writer(s, by, &session);
    return error ? error : put(s, session, entry);
}

/* The change frees the entry, so it is copied first. */
static int put_bound(struct service *s, uint64_t session, const struct layout_entry *entry,
                     uint64_t slot, uint64_t offset)
{
    size_t bytes = (size_t)entry->key_bytes + entry->value_bytes;
    uint8_t *copy = malloc(bytes + 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, entry->key, entry->key_bytes);
    if (entry->value_bytes)
        memcpy(copy + entry->key_bytes, entry->value, entry->value_bytes);
    struct service_entry again = {.key = copy,
                                  .key_bytes = entry->key_bytes,
                                  .slot = slot,
                                  .offset = offset,
                                  .value = copy + entry->key_bytes,
                                  .value_bytes = entry->value_bytes};
    int error = put(s, session, &again);
    free(copy);
    return error;
}

int service_entry_bind(struct service *s, const struct service_actor *by, uint64_t serial,
                       uint64_t slot, uint64_t offset)
{
    uint64_t session;
    int error = service_find_writer(s, by, &session);
    if (error)
        return error;
    const struct layout_entry *entry = core_find_entry(s->core, serial, NULL);
    return entry ? put_bound(s, session, entry, slot, offset) : -ENOENT;
}

int service_entry_delete(struct service *s, const struct service_actor *by, const void *key,
                         size_t key_bytes)
{
    struct record record = {.type = RECORD_ENTRY_DELETE, .name = key, .name_bytes = key_bytes};
    int error = service_find_writer(s, by, &record.session);
    if (!error)
        error = name_check_key(key, key_bytes);
    return error ? error : service_apply_record(s, &record, NULL);
}

int service_entry_rename(struct service *s, const struct service_actor *by, uint64_t serial,
                         const void *key, size_t key_bytes, uint32_t flags)
{
    struct record record = {
        .type = RECORD_ENTRY_RENAME,
        .serial = serial,
        .name = key,
        .name_bytes = key_bytes,
    };
    int error = service_find_writer(s, by, &record.session);
    if (error)
        return error;
    if (flags & ~(uint32_t)RENAME_NOREPLACE)
        return -EINVAL;
    const struct core_store *store =
        core_find_store(s->core, core_find_session(s->core, record.session)->store);
    if ((flags & RENAME_NOREPLACE) &&
        layout_find_entry(core_get_layout(s->core, store), key, key_bytes))
        return -EEXIST;
    return service_apply_record(s, &record, NULL);
}

int service_gather(struct service *s, uint64_t file, uint64_t bytes)
{
    struct service_actor by = {.file = file};
    const struct core_file *found = core_find_file(s->core, file);
    uint64_t session;
    int error = found && bytes > found->gathered_bytes ? service_find_writer(s, &by, &session) : 0;
    return error ? error
                 : service_record(s, .type = RECORD_GATHER, .file = file, .size_bytes = bytes);
}
