/* SPDX-License-Identifier: Apache-2.0 */
/* The one function that changes the state: dispatch, and the steps common to all records. */
#include "core/core_internal.h"

#include <errno.h>
#include <string.h>

static const struct {
    const char *name;
    int (*apply)(struct apply *apply);
    /* An ending, the time, a change of the device's health, or of their accounts: its cause cannot
     * be repeated, so it never fails with ENOMEM. */
    bool must_succeed;
} record_types[RECORD_TYPE_COUNT] = {
    [RECORD_STORE_CREATE] = {"store_create", apply_store_create, false},
    [RECORD_STORE_REMOVE] = {"store_remove", apply_store_remove, false},
    [RECORD_STORE_RENAME] = {"store_rename", apply_store_rename, false},
    [RECORD_STORE_ATTR] = {"store_attr", apply_store_attr, false},
    [RECORD_FILE_OPEN] = {"file_open", apply_file_open, false},
    [RECORD_FILE_CLOSE] = {"file_close", apply_file_close, true},
    [RECORD_FILE_BIND] = {"file_bind", apply_file_bind, false},
    [RECORD_LOCK_OPEN] = {"lock_open", apply_lock_open, false},
    [RECORD_ACQUIRE] = {"acquire", apply_acquire, false},
    [RECORD_JOIN] = {"join", apply_join, false},
    [RECORD_DETACH] = {"detach", apply_detach, true},
    [RECORD_WAIT_END] = {"wait_end", apply_wait_end, true},
    [RECORD_SESSION_END] = {"session_end", apply_session_end, true},
    [RECORD_TIME] = {"time", apply_time, true},
    [RECORD_COMMIT] = {"commit", apply_commit, false},
    [RECORD_ALLOC_ADD] = {"alloc_add", apply_alloc_add, false},
    [RECORD_ALLOC_MEMORY] = {"alloc_memory", apply_alloc_memory, false},
    [RECORD_ALLOC_REMOVE] = {"alloc_remove", apply_alloc_remove, false},
    [RECORD_ALLOC_RENAME] = {"alloc_rename", apply_alloc_rename, false},
    [RECORD_ALLOC_TAG] = {"alloc_tag", apply_alloc_tag, false},
    [RECORD_CLEAR] = {"clear", apply_clear, false},
    [RECORD_TOUCH] = {"touch", apply_touch, false},
    [RECORD_GIVE_UP] = {"give_up", apply_give_up, false},
    [RECORD_ENTRY_PUT] = {"entry_put", apply_entry_put, false},
    [RECORD_ENTRY_PUT_MANY] = {"entry_put_many", apply_entry_put_many, false},
    [RECORD_ENTRY_DELETE] = {"entry_delete", apply_entry_delete, false},
    [RECORD_ENTRY_RENAME] = {"entry_rename", apply_entry_rename, false},
    [RECORD_TICKET_ADD] = {"ticket_add", apply_ticket_add, false},
    [RECORD_TICKET_USE] = {"ticket_use", apply_ticket_use, false},
    [RECORD_OUT_OF_MEMORY] = {"out_of_memory", apply_out_of_memory, false},
    [RECORD_RESERVE] = {"reserve", apply_reserve, true},
    [RECORD_DRAIN] = {"drain", apply_drain_mount, false},
    [RECORD_HEALTH] = {"health", apply_health, true},
    [RECORD_GATHER] = {"gather", apply_gather, false},
    [RECORD_BOUND] = {"bound", apply_bound, false},
    [RECORD_LEND] = {"lend", apply_lend, false},
    [RECORD_EXIT] = {"exit", apply_exit, true},
    [RECORD_FENCE] = {"fence", apply_fence, false},
    [RECORD_REGION_REGISTER] = {"region_register", apply_region_register, false},
    [RECORD_REGION_UNREGISTER] = {"region_unregister", apply_region_unregister, true},
    [RECORD_REGION_REFER] = {"region_refer", apply_region_refer, false},
    [RECORD_REGION_RELEASE] = {"region_release", apply_region_release, true},
    [RECORD_STORE_DRAIN] = {"store_drain", apply_store_drain, false},
    [RECORD_STORE_SERVE] = {"store_serve", apply_store_serve, true},
    [RECORD_POOL_SET] = {"pool_set", apply_pool_set, false},
    [RECORD_STORE_POOL] = {"store_pool", apply_store_pool, false},
    [RECORD_STORE_PIN] = {"store_pin", apply_store_pin, false},
    [RECORD_OVER_QUOTA] = {"over_quota", apply_over_quota, false},
    [RECORD_MOVE_BEGIN] = {"move_begin", apply_move_begin, false},
    [RECORD_MOVE_END] = {"move_end", apply_move_end, false},
    [RECORD_MOVE_FAIL] = {"move_fail", apply_move_fail, true},
    [RECORD_MOVE_CANCEL] = {"move_cancel", apply_move_cancel, true},
    [RECORD_COPY_DROP] = {"copy_drop", apply_copy_drop, false},
    [RECORD_RESUME] = {"resume", apply_resume, true},
    [RECORD_TIMES] = {"times", apply_times, false},
    [RECORD_CONTENTS] = {"contents", apply_contents, false},
};

const char *record_type_name(enum record_type type)
{
    if (type < RECORD_STORE_CREATE || type >= RECORD_TYPE_COUNT)
        return "unknown";
    return record_types[type].name;
}

/* Bumps the versions that a poll of `state` compares, and tells of changed files. */
static void note_changes(struct core *core)
{
    for (size_t i = 0; i < core->index.touched_count; i++) {
        const struct core_shown *before = &core->index.touched[i];
        struct core_store *store = core_store(core, before->store);

        if (store) {
            if (store->places.version != before->place_version)
                core_push_effect(core, (struct effect){.type = EFFECT_PLACE, .store = store->id});
            if (lock_get_state(&store->lock) == before->state &&
                store->generation == before->generation)
                continue;
            store->version++;
        }
        /* A poll of the state of a removed store has to end as well. */
        core_push_effect(core, (struct effect){.type = EFFECT_STATE, .store = before->store});
    }
}

/* Makes room for everything that the record can add, so that only its own objects can fail with
 * ENOMEM. Records that are not endings also leave room for an ending that comes next. */
static int make_room(struct core *core, const struct record *record)
{
    bool ending = record_types[record->type].must_succeed;
    size_t grants = core->waiters.count + (ending ? 0 : 2);

    if (core_reserve(&core->sessions, grants) < 0 || core_reserve(&core->files, grants) < 0 ||
        core_reserve_effects(core, ending ? 0 : 1 + record->memory_count) < 0)
        return -ENOMEM;
    if (ending)
        return 0;
    if (core_reserve(&core->stores, 1) < 0 || core_index_reserve(core) < 0 ||
        core_reserve(&core->waiters, 1) < 0 || core_reserve(&core->tickets, 1) < 0)
        return -ENOMEM;
    return 0;
}

/* Grants waiters of other stores: memory or a place in the queue may have become free for them. */
static void settle_reservations(struct apply *apply)
{
    struct core *core = apply->core;
    bool waits = core->reserving > 0;
    struct core_store *store;

    for (uint64_t id = 0; waits && (store = idvec_find_after(&core->index.waited, id));
         id = store->id)
        apply_grant_waiters(apply, store);
}

int core_apply(struct core *core, const struct record *record, struct outcome *outcome)
{
    uint64_t suspect_before = core->suspect;
    struct outcome unused;
    struct apply apply = {.core = core,
                          .record = record,
                          .out = outcome ? outcome : &unused,
                          .free_bytes = record->free_bytes};

    memset(apply.out, 0, sizeof *apply.out);
    if (record->type < RECORD_STORE_CREATE || record->type >= RECORD_TYPE_COUNT)
        return -EINVAL;
    int error = make_room(core, record);
    if (error < 0)
        return error;
    error = record_types[record->type].apply(&apply);
    if (error == 0 && record->type != RECORD_RESUME)
        settle_reservations(&apply);
    if (error == 0)
        apply_settle_health(&apply, suspect_before);
    if (error == 0)
        note_changes(core);
    core_measure_events(core);
    core_end_touching(core);
    return error;
}
