/* SPDX-License-Identifier: Apache-2.0 */
/* change - a writer's changes of allocations that are a record alone */
#include "service/allocations.h"

#include "service/parked.h"

#include <errno.h>
#include <string.h>

/* Applies the record in the session of this writer. */
static int change_by(struct service *s, const struct service_actor *by, struct record *record)
{
    int error = service_find_writer(s, by, &record->session);
    return error ? error : service_apply_record(s, record, NULL);
}

#define change(s, by, ...) change_by(s, by, &(struct record){__VA_ARGS__})

int service_remove(struct service *s, const struct service_actor *by, uint64_t serial)
{
    return change(s, by, .type = RECORD_ALLOC_REMOVE, .serial = serial);
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
    return change(s, by, .type = RECORD_ALLOC_RENAME, .serial = serial, .name = name,
                  .name_bytes = strlen(name), .flags = flags);
}

int service_set_tag(struct service *s, const struct service_actor *by, uint64_t serial,
                    const char *tag)
{
    return change(s, by, .type = RECORD_ALLOC_TAG, .serial = serial, .tag = tag,
                  .tag_bytes = strlen(tag));
}

int service_clear(struct service *s, const struct service_actor *by)
{
    return change(s, by, .type = RECORD_CLEAR);
}

int service_touch(struct service *s, const struct service_actor *by)
{
    uint64_t session;
    return service_find_writer(s, by, &session);
}

int service_set_times(struct service *s, const struct service_actor *by,
                      const struct service_times *set)
{
    struct record record = {.type = RECORD_TIMES, .kind = set->kind, .serial = set->serial};
    int error = service_find_writer(s, by, &record.session);
    if (error)
        return error;
    const struct core_session *session = core_find_session(s->core, record.session);
    const struct layout *layout =
        core_get_layout(s->core, core_find_store(s->core, session->store));
    const struct layout_allocation *allocation = layout_find_serial(layout, set->serial);
    struct layout_times has = allocation ? allocation->times : layout_get_times(layout);
    bool reads = set->times.access_ns != LAYOUT_NO_TIME;
    bool changes = set->times.change_ns != LAYOUT_NO_TIME;
    record.access_ns = (uint64_t)(reads ? set->times.access_ns : has.access_ns);
    record.change_ns = (uint64_t)(changes ? set->times.change_ns : has.change_ns);
    return service_apply_record(s, &record, NULL);
}

int service_forget_times(struct service *s, uint64_t session, uint64_t serial)
{
    const struct layout_allocation *allocation = core_find_allocation(s->core, serial, NULL);
    const struct core_session *held = core_find_session(s->core, session);
    if (!allocation || !layout_has_times(&allocation->times) || !held || held->mode != LOCK_MODE_RW)
        return 0;
    return service_record(s, .type = RECORD_TIMES, .kind = CORE_KIND_ALLOCATION, .session = session,
                          .serial = serial, .access_ns = (uint64_t)LAYOUT_NO_TIME,
                          .change_ns = (uint64_t)LAYOUT_NO_TIME);
}
