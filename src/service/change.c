/* SPDX-License-Identifier: Apache-2.0 */
/* change - what a writer does to allocations and is a record and nothing else */
#include "service/allocations.h"

#include "service/service_internal.h"

#include <errno.h>
#include <string.h>

/* The record, in the session of this writer. */
static int change(struct service *s, const struct service_actor *by, struct record *record)
{
    int error = service_find_writer(s, by, &record->session);
    return error ? error : service_apply_record(s, record, NULL);
}

int service_remove(struct service *s, const struct service_actor *by, uint64_t serial)
{
    struct record record = {.type = RECORD_ALLOC_REMOVE, .serial = serial};
    return change(s, by, &record);
}

int service_remove_slot(struct service *s, const struct service_actor *by, uint64_t slot)
{
    struct record record = {.type = RECORD_ALLOC_REMOVE};
    int error = service_find_writer(s, by, &record.session);
    if (error)
        return error;
    const struct core_session *session = core_find_session(s->core, record.session);
    const struct layout_allocation *allocation = layout_find_slot(
        core_get_layout(s->core, core_find_store(s->core, session->store)), slot, NULL);
    if (!allocation)
        return -ENOENT;
    record.serial = allocation->serial;
    return service_apply_record(s, &record, NULL);
}

int service_rename(struct service *s, const struct service_actor *by, uint64_t serial,
                   const char *name, uint32_t flags)
{
    struct record record = {.type = RECORD_ALLOC_RENAME,
                            .serial = serial,
                            .name = name,
                            .name_bytes = strlen(name),
                            .flags = flags};
    return change(s, by, &record);
}

int service_set_tag(struct service *s, const struct service_actor *by, uint64_t serial,
                    const char *tag)
{
    struct record record = {
        .type = RECORD_ALLOC_TAG, .serial = serial, .tag = tag, .tag_bytes = strlen(tag)};
    return change(s, by, &record);
}

int service_clear(struct service *s, const struct service_actor *by)
{
    struct record record = {.type = RECORD_CLEAR};
    return change(s, by, &record);
}

int service_touch(struct service *s, const struct service_actor *by)
{
    uint64_t session;
    return service_find_writer(s, by, &session);
}
