/* SPDX-License-Identifier: Apache-2.0 */
#include "service/stores.h"

#include "service/parked.h"
#include "service/rights.h"

#include <errno.h>
#include <string.h>

/* The user that mounted owns the top of the tree. */
static int check_top(const struct service *s, const struct service_caller *caller)
{
    return service_check_right(s, 0, caller, SERVICE_WRITE | SERVICE_SEARCH);
}

int service_store_create(struct service *s, const char *name, const struct service_caller *caller,
                         uint32_t mode, uint64_t *id)
{
    struct record record = {.type = RECORD_STORE_CREATE,
                            .name = name,
                            .name_bytes = strlen(name),
                            .process = service_caller_process(caller),
                            .uid = caller->uid,
                            .gid = caller->gid,
                            .mode = mode & 07777};
    struct outcome outcome;
    int error = check_top(s, caller);
    if (!error)
        error = s->host.get_random(s->host.context, record.bytes16, sizeof record.bytes16);
    if (!error)
        error = service_apply_record(s, &record, &outcome);
    if (!error)
        *id = outcome.id;
    return error;
}

int service_store_remove(struct service *s, uint64_t store, const struct service_caller *caller)
{
    int error = check_top(s, caller);
    return error ? error
                 : service_record(s, .type = RECORD_STORE_REMOVE, .store = store,
                                  .process = service_caller_process(caller), .uid = caller->uid);
}

int service_store_remove_unused(struct service *s, uint64_t file)
{
    const struct core_file *by = core_find_file(s->core, file);
    if (!by || !(by->flags & CORE_OPEN_WRITE))
        return -EBADF;
    if (!service_is_admin(s, by->uid))
        return -EACCES;
    int error = service_record(s, .type = RECORD_STORE_REMOVE, .store = by->store, .file = file,
                               .flags = CORE_REMOVE_UNUSED, .process = by->opener, .uid = by->uid);
    return error == -ENOENT ? -ESTALE : error;
}

int service_store_rename(struct service *s, uint64_t store, const char *name, uint32_t flags,
                         const struct service_caller *caller)
{
    int error = check_top(s, caller);
    return error ? error
                 : service_record(s, .type = RECORD_STORE_RENAME, .store = store, .name = name,
                                  .name_bytes = strlen(name), .flags = flags,
                                  .process = service_caller_process(caller), .uid = caller->uid);
}

/* As chmod(2) and chown(2): the owner may change the mode, and the group to one of its own. */
static int check_attr(const struct service_store_attr *attr, const struct core_store *store,
                      const struct service_caller *caller)
{
    /* if its groups are not visible, the kernel has checked */
    bool is_member = service_is_in_group(caller, attr->gid) != 0;
    if (caller->uid == 0)
        return 0;
    if (caller->uid != store->uid)
        return -EPERM;
    if ((attr->which & CORE_ATTR_UID) && attr->uid != store->uid)
        return -EPERM;
    if ((attr->which & CORE_ATTR_GID) && attr->gid != store->gid && !is_member)
        return -EPERM;
    return 0;
}

int service_store_set_attr(struct service *s, uint64_t store, const struct service_store_attr *attr,
                           const struct service_caller *caller)
{
    const struct core_store *found = core_find_store(s->core, store);
    int error = found ? check_attr(attr, found, caller) : -ENOENT;
    return error
               ? error
               : service_record(s, .type = RECORD_STORE_ATTR, .store = store, .flags = attr->which,
                                .uid = attr->uid, .gid = attr->gid, .mode = attr->mode & 07777);
}

int service_store_touch(struct service *s, uint64_t store, const struct service_caller *caller)
{
    const struct core_store *found = core_find_store(s->core, store);
    int error = found ? 0 : -ENOENT;
    if (!error && caller->uid != found->uid)
        error = service_check_right(s, store, caller, SERVICE_WRITE);
    return error ? error : service_record(s, .type = RECORD_STORE_ATTR, .store = store);
}
