/* SPDX-License-Identifier: Apache-2.0 */
/* Creates, removes and renames stores, and changes their attributes. */
#include "core/core_internal.h"

#include "base/clean.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Other names at the top of the tree. */
static const char *const taken_names[] = {"device",  "events", "metrics", ".fds",
                                          "regions", "pools",  ".",       ".."};

/* A store's name is any directory name in UTF-8. */
int core_check_store_name(const char *name)
{
    size_t bytes = strlen(name);

    if (bytes == 0 || memchr(name, '/', bytes) || !clean_is_utf8(name, bytes))
        return -EINVAL;
    for (size_t i = 0; i < sizeof taken_names / sizeof taken_names[0]; i++) {
        if (strcmp(name, taken_names[i]) == 0)
            return -EPERM;
    }
    return 0;
}

static struct core_store *find_name(const struct core *core, const char *name)
{
    const struct core_store *found = core_find_store_name(core, name);

    return found ? core_store(core, found->id) : NULL;
}

static int copy_store_name(const struct record *record, char name[256])
{
    int error = apply_copy_name(record, name);

    return error < 0 ? error : core_check_store_name(name);
}

int apply_store_create(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core *core = apply->core;
    struct core_store *store;
    char name[256];
    int error = copy_store_name(record, name);

    if (error < 0)
        return error;
    if (find_name(core, name))
        return -EEXIST;
    if (core_is_fenced(core, name))
        return -EBUSY;
    if (core->stores.count >= CORE_MAX_STORES)
        return -ENOSPC;
    store = calloc(1, sizeof *store);
    if (!store)
        return -ENOMEM;
    store->id = core->next_id++;
    memcpy(store->uuid, record->bytes16, sizeof store->uuid);
    memcpy(store->name, name, sizeof store->name);
    store->uid = record->uid;
    store->gid = record->gid;
    store->mode = record->mode & 07777;
    store->created_ms = store->changed_ms = record->wall_ms;
    lock_init(&store->lock, core->options.patience_ms);
    share_init(&store->sessions, core->options.limits.sessions);
    share_init(&store->waiters, core->options.limits.waiters);
    idvec_append(&core->stores, store);
    core_enter_name(core, store);
    core_enter_pool(core, store, CORE_DEFAULT_POOL);
    core_add_event(apply, CORE_EVENT_STORE_CREATED, store, NULL);
    apply->out->id = store->id;
    return 0;
}

/* Files outside of sessions (a sleeping library's `ctl`, a poll of `state`) do not keep a store:
 * they fail with ESTALE afterwards. */
static bool store_in_use(const struct core_store *store)
{
    return store->lock.session_count > 0 || store->lock.waiter_count > 0;
}

static void remove_store(struct apply *apply, struct core_store *store)
{
    core_touch(apply->core, store);
    core_add_event(apply, CORE_EVENT_STORE_REMOVED, store, NULL);
    core_drop_working(apply->core, store);
    core_drop_fixed(apply->core, store);
    core_leave_pool(apply->core, store);
    core_forget_name(apply->core, store);
    idvec_remove(&apply->core->stores, store->id);
    core_store_free(store);
}

/* A client with an open `ctl` is about to take the lock, or sleeps. */
static bool is_open_by_others(const struct core *core, uint64_t store, uint64_t file)
{
    for (size_t i = 0; i < core->files.count; i++) {
        const struct core_file *other = core->files.items[i];

        if (other->store == store && other->kind == CORE_KIND_CTL && other->id != file)
            return true;
    }
    return false;
}

int apply_store_remove(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_store *store = core_store(apply->core, record->store);
    bool unused = record->flags & CORE_REMOVE_UNUSED;

    if (record->flags & ~CORE_REMOVE_UNUSED)
        return -EINVAL;
    if (!store)
        return -ENOENT;
    if (unused && (store->fixed || store->generation > 0))
        return -ENOTEMPTY;
    if (store_in_use(store) || core_is_fenced(apply->core, store->name))
        return -EBUSY;
    if (unused && is_open_by_others(apply->core, store->id, record->file))
        return -EBUSY;
    remove_store(apply, store);
    return 0;
}

static void set_name(struct apply *apply, struct core_store *store, const char name[256])
{
    memcpy(store->name, name, sizeof store->name);
    store->changed_ms = apply->record->wall_ms;
}

static void exchange_names(struct apply *apply, struct core_store *store, struct core_store *other)
{
    char name[256];

    memcpy(name, store->name, sizeof name);
    core_forget_name(apply->core, store);
    core_forget_name(apply->core, other);
    set_name(apply, store, other->name);
    set_name(apply, other, name);
    core_enter_name(apply->core, store);
    core_enter_name(apply->core, other);
    core_add_event(apply, CORE_EVENT_STORE_RENAMED, store, NULL);
    core_add_event(apply, CORE_EVENT_STORE_RENAMED, other, NULL);
}

/* As for directories, a rename replaces only an empty store. */
static int check_replaceable(const struct core_store *store, uint32_t flags)
{
    if (flags & RENAME_NOREPLACE)
        return -EEXIST;
    if (store_in_use(store))
        return -EBUSY;
    return store->fixed ? -ENOTEMPTY : 0;
}

int apply_store_rename(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_store *store = core_store(apply->core, record->store);
    char name[256];
    int error = copy_store_name(record, name);

    if (error < 0)
        return error;
    if (!store)
        return -ENOENT;
    if (record->flags != 0 && record->flags != RENAME_NOREPLACE && record->flags != RENAME_EXCHANGE)
        return -EINVAL;
    struct core_store *other = find_name(apply->core, name);
    if (record->flags == RENAME_EXCHANGE && !other)
        return -ENOENT;
    if (other == store)
        return record->flags == RENAME_NOREPLACE ? -EEXIST : 0;
    if (core_is_fenced(apply->core, store->name) || core_is_fenced(apply->core, name))
        return -EBUSY;
    if (record->flags == RENAME_EXCHANGE) {
        exchange_names(apply, store, other);
        return 0;
    }
    error = other ? check_replaceable(other, record->flags) : 0;
    if (error < 0)
        return error;
    if (other)
        remove_store(apply, other);
    core_forget_name(apply->core, store);
    set_name(apply, store, name);
    core_enter_name(apply->core, store);
    core_add_event(apply, CORE_EVENT_STORE_RENAMED, store, NULL);
    return 0;
}

int apply_store_attr(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_store *store = core_store(apply->core, record->store);

    if (!store)
        return -ENOENT;
    if (record->flags & ~(CORE_ATTR_MODE | CORE_ATTR_UID | CORE_ATTR_GID))
        return -EINVAL;
    if (record->flags & CORE_ATTR_MODE)
        store->mode = record->mode & 07777;
    if (record->flags & CORE_ATTR_UID)
        store->uid = record->uid;
    if (record->flags & CORE_ATTR_GID)
        store->gid = record->gid;
    store->changed_ms = record->wall_ms;
    return 0;
}
