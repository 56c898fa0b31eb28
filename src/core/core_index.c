/* SPDX-License-Identifier: Apache-2.0 */
/* Finds stores, and lists those that a record has to look at: its cost does not grow with the
 * number of other stores. */
#include "core/core_check.h"

#include "base/array.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HINTS 2048u /* a power of 2 */

int core_index_init(struct core_index *index)
{
    index->hints = calloc(HINTS, sizeof *index->hints);
    return index->hints ? 0 : -ENOMEM;
}

void core_index_free(struct core_index *index)
{
    free(index->names);
    free(index->touched);
    free(index->hints);
    idvec_free(&index->waited);
    idvec_free(&index->lent);
}

int core_index_reserve(struct core *core)
{
    struct core_index *index = &core->index;
    size_t wanted = core->stores.count + 1;

    return core_reserve(&index->waited, wanted - index->waited.count) < 0 ||
                   core_reserve(&index->lent, wanted - index->lent.count) < 0 ||
                   ARRAY_RESERVE(index->names, index->name_room, wanted) < 0 ||
                   ARRAY_RESERVE(index->touched, index->touched_room, wanted) < 0
               ? -ENOMEM
               : 0;
}

/* ---- names ---------------------------------------------------------------------------------- */

/* Returns the index of the first store with a name not below this one. */
static size_t find_name(const struct core_index *index, const char *name)
{
    size_t at = 0;

    ARRAY_SEARCH(at, index->name_count, strcmp(index->names[at]->name, name) < 0);
    return at;
}

void core_enter_name(struct core *core, struct core_store *store)
{
    struct core_index *index = &core->index;
    size_t at = find_name(index, store->name);

    memmove(index->names + at + 1, index->names + at,
            (index->name_count - at) * sizeof(struct core_store *));
    index->names[at] = store;
    index->name_count++;
}

void core_forget_name(struct core *core, const struct core_store *store)
{
    struct core_index *index = &core->index;
    size_t at = find_name(index, store->name);

    index->name_count--;
    memmove(index->names + at, index->names + at + 1,
            (index->name_count - at) * sizeof(struct core_store *));
}

const struct core_store *core_find_uuid(const struct core *core, const uint8_t uuid[16])
{
    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];
        if (memcmp(store->uuid, uuid, sizeof store->uuid) == 0)
            return store;
    }
    return NULL;
}

const struct core_store *core_find_store_name(const struct core *core, const char *name)
{
    const struct core_index *index = &core->index;
    size_t at = find_name(index, name);

    return at < index->name_count && strcmp(index->names[at]->name, name) == 0 ? index->names[at]
                                                                               : NULL;
}

/* ---- allocations and entries ---------------------------------------------------------------- */

/* Finds a serial in the visible layouts by `find`; NULL if none. Tries the hinted store first: a
 * lookup by name usually comes before a use by serial. */
static const void *find_serial(const struct core *core, uint64_t serial,
                               const void *(*find)(const struct layout *layout, uint64_t serial),
                               const struct core_store **store)
{
    struct core_hint *hint = &core->index.hints[serial & (HINTS - 1)];
    const struct core_store *at = hint->serial == serial ? core_store(core, hint->store) : NULL;
    const void *found = at ? find(core_get_layout(core, at), serial) : NULL;

    for (size_t i = 0; !found && i < core->stores.count; i++) {
        at = core->stores.items[i];
        found = find(core_get_layout(core, at), serial);
    }
    if (!found)
        return NULL;
    *hint = (struct core_hint){.serial = serial, .store = at->id};
    if (store)
        *store = at;
    return found;
}

static const void *find_in_allocations(const struct layout *layout, uint64_t serial)
{
    return layout_find_serial(layout, serial);
}

static const void *find_in_entries(const struct layout *layout, uint64_t serial)
{
    return layout_find_entry_serial(layout, serial);
}

const struct layout_allocation *core_find_allocation(const struct core *core, uint64_t serial,
                                                     const struct core_store **store)
{
    return find_serial(core, serial, find_in_allocations, store);
}

const struct layout_entry *core_find_entry(const struct core *core, uint64_t serial,
                                           const struct core_store **store)
{
    return find_serial(core, serial, find_in_entries, store);
}

void core_hint_serial(const struct core *core, uint64_t serial, uint64_t store)
{
    core->index.hints[serial & (HINTS - 1)] = (struct core_hint){.serial = serial, .store = store};
}

/* ---- stores that a record looks at ---------------------------------------------------------- */

void core_touch(struct core *core, struct core_store *store)
{
    if (store->is_touched)
        return;
    store->is_touched = true;
    core->index.touched[core->index.touched_count++] =
        (struct core_shown){.store = store->id,
                            .state = lock_get_state(&store->lock),
                            .generation = store->generation,
                            .place_version = store->places.version};
}

void core_end_touching(struct core *core)
{
    struct core_index *index = &core->index;

    for (size_t i = 0; i < index->touched_count; i++) {
        struct core_store *store = core_store(core, index->touched[i].store);

        if (store)
            store->is_touched = false;
    }
    index->touched_count = 0;
}

/* The vector has room for every store. */
static void set_member(struct idvec *stores, struct core_store *store, bool is_member)
{
    bool was_member = idvec_find(stores, store->id) != NULL;

    if (is_member && !was_member)
        idvec_insert_within(stores, store);
    else if (!is_member && was_member)
        idvec_remove(stores, store->id);
}

void core_note_waiters(struct core *core, struct core_store *store)
{
    set_member(&core->index.waited, store, store->lock.waiter_count > 0);
}

void core_note_writers(struct core *core, struct core_store *store)
{
    set_member(&core->index.lent, store, store->writer_count > 0);
}

void core_forget_writers(struct core *core, struct core_store *store)
{
    free(store->writers);
    store->writers = NULL;
    store->writer_count = 0;
    store->unseen_writer = false;
    core_note_writers(core, store);
}

/* ---- check ---------------------------------------------------------------------------------- */

static int check_store(struct check *check, const void *item)
{
    const struct core_store *store = item;
    const struct core_index *index = &check->core->index;
    bool waited = store->lock.waiter_count > 0, lent = store->writer_count > 0;

    if (core_find_store_name(check->core, store->name) != store)
        return core_wrong(check, "a lookup by its name does not find it");
    if (store->is_touched)
        return core_wrong(check, "it is marked as touched between records");
    if ((idvec_find(&index->waited, store->id) == store) != waited ||
        (idvec_find(&index->lent, store->id) == store) != lent)
        return core_wrong(check, "the index of waited or lent stores is wrong for it");
    check->waited += waited;
    check->lent += lent;
    return 0;
}

int core_check_index(struct check *check)
{
    const struct core *core = check->core;
    const struct core_index *index = &core->index;
    int error = core_check_each(check, "store", &core->stores, core->next_id, check_store);

    if (error == 0 &&
        (index->name_count != core->stores.count || index->waited.count != check->waited ||
         index->lent.count != check->lent || index->touched_count != 0))
        error = core_wrong(check, "the index has stores that do not exist");
    return error;
}
