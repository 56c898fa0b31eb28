/* SPDX-License-Identifier: Apache-2.0 */
/* A writer's working copy: its creation, and changes of its allocations (entries:
 * apply_entry.c). */
#include "core/core_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* True if the change has several steps: it is always made on a copy, so that a failure leaves no
 * half of it. */
static bool has_steps(const struct record *record)
{
    switch (record->type) {
    case RECORD_ALLOC_ADD:
        return record->count > 1;
    case RECORD_ALLOC_RENAME: /* also removes the old owner of the name */
    case RECORD_ENTRY_RENAME:
        return true;
    default:
        return false;
    }
}

/* Returns the layout that a change has to copy; NULL if there is none, or if it may change the
 * working copy in place. */
static const struct layout *get_copied(const struct core_store *store, const struct record *record)
{
    /* A shared working copy is being read by the preparation of a commit. */
    if (store->working && !has_steps(record) && !layout_is_shared(store->working))
        return NULL;
    return store->working ? store->working : store->fixed;
}

const struct layout *core_find_copied(const struct core *core, const struct record *record)
{
    const struct core_session *session = core_find_session(core, record->session);

    return session && session->mode == LOCK_MODE_RW
               ? get_copied(core_find_store(core, session->store), record)
               : NULL;
}

int apply_change_begin(struct apply *apply, struct change *change)
{
    struct core_session *session;
    struct core_store *store;
    int error = apply_find_writer(apply, &session);

    if (error < 0)
        return error;
    store = core_store(apply->core, session->store);
    const struct layout *from = get_copied(store, apply->record);
    *change = (struct change){.session = session, .store = store, .layout = store->working};
    if (store->working && !from)
        return 0;
    change->layout = from ? layout_clone(from) : layout_new();
    change->fresh = true;
    return change->layout ? 0 : -ENOMEM;
}

int apply_change_end(struct apply *apply, struct change *change, int error)
{
    struct core_store *store = change->store;

    if (error < 0) {
        if (change->fresh)
            layout_free(change->layout);
        return error;
    }
    store->changed_ms = apply->record->wall_ms;
    if (!change->fresh)
        return 0;
    /* The copy has the references of its original; the caller accounts for its own change. */
    if (store->working)
        core_discard_layout(apply->core, store->working);
    else if (store->fixed)
        core_memory_ref_layout(apply->core, store->fixed);
    store->working = change->layout;
    change->fresh = false;
    return 0;
}

static int copy_text(const char *text, size_t bytes, char copy[256], int too_long)
{
    if (bytes > 255)
        return too_long;
    memset(copy, 0, 256);
    if (bytes == 0)
        return 0;
    if (memchr(text, '\0', bytes))
        return -EINVAL;
    memcpy(copy, text, bytes);
    return 0;
}

int apply_copy_name(const struct record *record, char name[256])
{
    return copy_text(record->name, record->name_bytes, name, -ENAMETOOLONG);
}

int apply_copy_tag(const struct record *record, char tag[256])
{
    return copy_text(record->tag, record->tag_bytes, tag, -EINVAL);
}

/* ---- adding -------------------------------------------------------------------------------- */

/* Increments a name: "a099" → "a100", "a999" → "a1000". -EINVAL without digits, -ENAMETOOLONG */
static int count_up(char name[256])
{
    size_t bytes = strlen(name), at = bytes;

    if (at == 0 || name[at - 1] < '0' || name[at - 1] > '9')
        return -EINVAL;
    while (at > 0 && name[at - 1] == '9')
        name[--at] = '0';
    if (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '8') {
        name[at - 1]++;
        return 0;
    }
    if (bytes + 1 > 255)
        return -ENAMETOOLONG;
    memmove(name + at + 1, name + at, bytes - at + 1);
    name[at] = '1';
    return 0;
}

struct addition {
    char name[256];
    char tag[256];
    char wire_id[256];     /* "" if none */
    uint64_t serial, slot; /* of the first */
    uint64_t next_serial;  /* the next unused one */
    size_t memories;       /* memories counted so far */
};

/* Adds a batch with consecutive slots. With a given name there are no gaps; default names skip
 * slots with a taken name, so on a gap the allocations before it are removed again and the batch
 * restarts behind it. */
static int add_batch(const struct record *record, struct layout *layout, struct addition *addition)
{
    uint64_t added = 0, slot;
    int error = 0;

    while (added < record->count) {
        if (added > 0 && addition->name[0])
            error = count_up(addition->name);
        if (error == 0)
            error = layout_add_with_wire_id(
                layout, addition->next_serial, addition->name[0] ? addition->name : NULL,
                addition->tag, addition->wire_id[0] ? addition->wire_id : NULL, &slot);
        if (error < 0)
            return error;
        while (added > 0 && slot != addition->slot + added)
            layout_remove(layout, addition->slot + --added, NULL);
        if (added == 0) {
            addition->slot = slot;
            addition->serial = addition->next_serial;
        }
        addition->next_serial++;
        added++;
    }
    return 0;
}

/* Adds the record's memories; after a failure `memories` is the number already added. */
static int count_memories(struct apply *apply, const struct change *change,
                          struct addition *addition)
{
    const struct record *record = apply->record;
    const struct layout *layout = change->layout;
    uint64_t bytes;
    int error = 0;

    if (record->memory_count == 0)
        return 0;
    if (__builtin_mul_overflow(record->aligned_bytes, record->count, &bytes) ||
        bytes > UINT64_MAX - layout_total_bytes(layout))
        return -EINVAL;
    while (error == 0 && addition->memories < record->memory_count) {
        error = core_memory_add(apply->core, change->store, record->memories[addition->memories],
                                CORE_PLACE_DEVICE, record->aligned_bytes);
        addition->memories += error == 0;
    }
    return error;
}

static void forget_memories(struct apply *apply, const struct addition *addition)
{
    for (size_t i = 0; i < addition->memories; i++)
        core_memory_forget(apply->core, apply->record->memories[i]);
}

static int check_addition(const struct record *record, struct addition *addition)
{
    int error = apply_copy_name(record, addition->name);

    if (error == 0)
        error = apply_copy_tag(record, addition->tag);
    if (error == 0)
        error =
            copy_text((const char *)record->value, record->value_bytes, addition->wire_id, -EINVAL);
    if (error < 0)
        return error;
    if (record->count == 0 || (record->value_bytes > 0 && record->count != 1))
        return -EINVAL;
    if (record->count > LAYOUT_MAX_ALLOCATIONS)
        return -ENOSPC;
    if (record->memory_count != 0 &&
        (record->memory_count != record->count || record->size_bytes == 0 ||
         record->size_bytes > record->aligned_bytes))
        return -EINVAL;
    return 0;
}

/* The part that cannot fail. */
static void finish_addition(struct apply *apply, const struct change *change,
                            const struct addition *addition)
{
    const struct record *record = apply->record;
    size_t rank;

    for (size_t i = 0; i < addition->memories; i++) {
        layout_set_memory(change->layout, addition->slot + i, record->memories[i],
                          record->size_bytes, record->aligned_bytes, false);
        core_memory_ref(apply->core, record->memories[i]);
    }
    apply_made(apply, change->session);
    apply->core->next_id = addition->next_serial;
    layout_find_slot(change->layout, addition->slot, &rank);
    apply->out->serial = addition->serial;
    apply->out->slot = addition->slot;
    apply->out->rank = rank;
    apply->out->count = record->count;
}

int apply_alloc_add(struct apply *apply)
{
    struct addition addition = {.next_serial = apply->core->next_id};
    struct change change;
    int error = check_addition(apply->record, &addition);

    if (error < 0)
        return error;
    error = apply_change_begin(apply, &change);
    if (error < 0)
        return error;
    error = apply_check_made(apply, change.session);
    if (error == 0)
        error = count_memories(apply, &change, &addition);
    if (error == 0)
        error = add_batch(apply->record, change.layout, &addition);
    error = apply_change_end(apply, &change, error);
    if (error < 0)
        forget_memories(apply, &addition);
    else
        finish_addition(apply, &change, &addition);
    return error;
}

/* ---- changing ------------------------------------------------------------------------------ */

/* Begins a change and finds the record's allocation. */
static int begin_allocation(struct apply *apply, struct change *change,
                            const struct layout_allocation **allocation)
{
    int error = apply_change_begin(apply, change);

    if (error < 0)
        return error;
    *allocation = layout_find_serial(change->layout, apply->record->serial);
    return *allocation ? 0 : apply_change_end(apply, change, -ENOENT);
}

static int check_memory(const struct record *record, const struct layout_allocation *allocation)
{
    bool spool = (record->flags & CORE_MEMORY_SPOOL) != 0;

    if (record->memory == LAYOUT_NO_MEMORY)
        return 0;
    if (allocation->memory != LAYOUT_NO_MEMORY && !allocation->spool)
        return -EBUSY;
    if (record->size_bytes > record->aligned_bytes || (record->size_bytes == 0 && !spool))
        return -EINVAL;
    return 0;
}

int apply_alloc_memory(struct apply *apply)
{
    const struct record *record = apply->record;
    const struct layout_allocation *allocation;
    struct core *core = apply->core;
    struct change change;
    uint64_t old, fresh = LAYOUT_NO_MEMORY;
    int error = begin_allocation(apply, &change, &allocation);

    if (error < 0)
        return error;
    old = allocation->memory;
    error = check_memory(record, allocation);
    if (error == 0)
        error = apply_check_made(apply, change.session);
    if (error == 0 && record->memory != LAYOUT_NO_MEMORY && record->memory != old) {
        error = core_memory_add(core, change.store, record->memory, CORE_PLACE_DEVICE,
                                record->aligned_bytes);
        if (error == 0)
            fresh = record->memory;
    }
    if (error == 0)
        error = layout_set_memory(change.layout, allocation->slot, record->memory,
                                  record->size_bytes, record->aligned_bytes,
                                  (record->flags & CORE_MEMORY_SPOOL) != 0 &&
                                      record->memory != LAYOUT_NO_MEMORY);
    error = apply_change_end(apply, &change, error);
    if (error < 0) {
        if (fresh != LAYOUT_NO_MEMORY)
            core_memory_forget(core, fresh);
        return error;
    }
    apply_made(apply, change.session);
    if (fresh != LAYOUT_NO_MEMORY)
        core_memory_ref(core, fresh);
    else if (record->memory != LAYOUT_NO_MEMORY)
        core_memory_resize(core, record->memory, record->aligned_bytes);
    if (old != LAYOUT_NO_MEMORY && old != record->memory)
        core_memory_unref(core, old);
    return 0;
}

int apply_alloc_remove(struct apply *apply)
{
    const struct layout_allocation *allocation;
    struct change change;
    uint64_t memory;
    int error = begin_allocation(apply, &change, &allocation);

    if (error < 0)
        return error;
    memory = allocation->memory;
    error = layout_remove(change.layout, allocation->slot, NULL);
    error = apply_change_end(apply, &change, error);
    if (error == 0 && memory != LAYOUT_NO_MEMORY)
        core_memory_unref(apply->core, memory);
    return error;
}

/* As rename(2): removes the old owner of the name with its bound entries. */
static int replace_name(struct layout *layout, uint64_t slot, const char *name, bool noreplace,
                        uint64_t *freed)
{
    const struct layout_allocation *holder = layout_find_name(layout, name);
    int error;

    *freed = LAYOUT_NO_MEMORY;
    if (holder && noreplace)
        return -EEXIST;
    if (holder && holder->slot != slot) {
        *freed = holder->memory;
        error = layout_remove(layout, holder->slot, NULL);
        if (error < 0)
            return error;
    }
    return layout_rename(layout, slot, name);
}

int apply_alloc_rename(struct apply *apply)
{
    const struct record *record = apply->record;
    const struct layout_allocation *allocation;
    struct change change;
    uint64_t freed;
    char name[256];
    int error = apply_copy_name(record, name);

    if (error < 0)
        return error;
    if (record->flags & ~(uint32_t)RENAME_NOREPLACE)
        return -EINVAL;
    error = begin_allocation(apply, &change, &allocation);
    if (error < 0)
        return error;
    error = replace_name(change.layout, allocation->slot, name,
                         (record->flags & RENAME_NOREPLACE) != 0, &freed);
    error = apply_change_end(apply, &change, error);
    if (error == 0 && freed != LAYOUT_NO_MEMORY)
        core_memory_unref(apply->core, freed);
    return error;
}

int apply_alloc_tag(struct apply *apply)
{
    const struct record *record = apply->record;
    const struct layout_allocation *allocation;
    struct change change;
    char tag[256];
    int error = copy_text(record->tag, record->tag_bytes, tag, -EINVAL);

    if (error < 0)
        return error;
    error = begin_allocation(apply, &change, &allocation);
    if (error < 0)
        return error;
    error = layout_set_tag(change.layout, allocation->slot, tag);
    return apply_change_end(apply, &change, error);
}

/* Entries have no times of their own: the store's time of change counts. */
static int set_times(const struct record *record, struct layout *layout)
{
    const struct layout_times times = {(int64_t)record->access_ns, (int64_t)record->change_ns};
    const struct layout_allocation *allocation = layout_find_serial(layout, record->serial);

    if (record->kind == CORE_KIND_ENTRY)
        return 0;
    if (record->serial != 0 && !allocation)
        return -ENOENT;
    return layout_set_times(layout, allocation ? allocation->slot : LAYOUT_UNBOUND, &times);
}

int apply_times(struct apply *apply)
{
    const struct record *record = apply->record;
    struct change change;

    if (record->kind != CORE_KIND_ALLOCATION && record->kind != CORE_KIND_ENTRY)
        return -EINVAL;
    int error = apply_change_begin(apply, &change);
    return error < 0 ? error : apply_change_end(apply, &change, set_times(record, change.layout));
}

/* Replaces the working copy by an empty layout, which continues its counters. */
int apply_clear(struct apply *apply)
{
    struct core_session *session;
    struct core_store *store;
    int error = apply_find_writer(apply, &session);

    if (error < 0)
        return error;
    struct layout *empty = layout_new();
    if (!empty)
        return -ENOMEM;
    store = core_store(apply->core, session->store);
    layout_succeed(empty, core_get_layout(apply->core, store));
    core_drop_working(apply->core, store);
    store->working = empty;
    store->changed_ms = apply->record->wall_ms;
    return 0;
}
