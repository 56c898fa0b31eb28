/* SPDX-License-Identifier: Apache-2.0 */
/* change - what a writer does to allocations and is a record and nothing else */
#include "service/service_internal.h"

#include <string.h>

int service_remove(struct service *s, uint64_t session, uint64_t serial)
{
    struct record record = {.type = RECORD_ALLOC_REMOVE, .session = session, .serial = serial};
    return service_apply_record(s, &record, NULL);
}

int service_rename(struct service *s, uint64_t session, uint64_t serial, const char *name,
                   uint32_t flags)
{
    struct record record = {
        .type = RECORD_ALLOC_RENAME,
        .session = session,
        .serial = serial,
        .name = name,
        .name_bytes = strlen(name),
        .flags = flags,
    };
    return service_apply_record(s, &record, NULL);
}

int service_set_tag(struct service *s, uint64_t session, uint64_t serial, const char *tag)
{
    struct record record = {
        .type = RECORD_ALLOC_TAG,
        .session = session,
        .serial = serial,
        .tag = tag,
        .tag_bytes = strlen(tag),
    };
    return service_apply_record(s, &record, NULL);
}

int service_clear(struct service *s, uint64_t session)
{
    struct record record = {.type = RECORD_CLEAR, .session = session};
    return service_apply_record(s, &record, NULL);
}
