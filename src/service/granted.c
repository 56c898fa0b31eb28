/* SPDX-License-Identifier: Apache-2.0 */
/* granted - the second half of opens and creations, after the grant of the lock */
#include "service/sessions.h"

#include "service/parked.h"

#include <errno.h>
#include <string.h>

int service_truncate_opened(struct service *s, const struct core_file *file)
{
    const struct layout_allocation *allocation = core_find_allocation(s->core, file->serial, NULL);
    const struct core_session *session = core_find_session(s->core, file->session);
    if (!allocation || allocation->memory == LAYOUT_NO_MEMORY)
        return 0;
    if (session && session->mode == LOCK_MODE_RW_DATA)
        return -ENOLCK;
    return service_record(s, .type = RECORD_ALLOC_MEMORY, .session = file->session,
                          .serial = file->serial);
}

void service_fill_granted(const struct service *s, uint64_t file, uint64_t session,
                          struct service_answer *answer)
{
    const struct core_session *held = core_find_session(s->core, session);
    answer->file = file;
    answer->session = session;
    answer->mode = held ? held->mode : LOCK_MODE_NONE;
}

int service_add_named(struct service *s, uint64_t session, const char *name,
                      struct outcome *outcome)
{
    return service_record_for(s, outcome, .type = RECORD_ALLOC_ADD, .session = session,
                              .name = name, .name_bytes = strlen(name), .count = 1);
}

int service_create_granted(struct service *s, const char *name, struct service_answer *answer)
{
    struct outcome added;
    int error = service_add_named(s, answer->session, name, &added);
    if (!error) {
        answer->slot = added.slot;
        answer->rank = added.rank;
        error = service_record(s, .type = RECORD_FILE_BIND, .file = answer->file,
                               .serial = added.serial);
    }
    if (error)
        service_close(s, answer->file);
    return error;
}
