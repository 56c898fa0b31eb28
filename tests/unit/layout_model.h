/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_model - layouts that are clones of each other, under random changes, each beside a model
 * that is too plain to be wrong
 *
 * For test_layout_random.c and tests/fault/layout.c. A deed is chosen once and can be tried as
 * often as it fails for want of memory: the models follow only those that succeed.
 */
#ifndef GMSFS_TESTS_UNIT_LAYOUT_MODEL_H
#define GMSFS_TESTS_UNIT_LAYOUT_MODEL_H

#include "tap.h"

#include "meta/layout_internal.h"

#include <errno.h>
#include <stdlib.h>

#define MODEL_KEYS    2600u /* some ten chunks */
#define MODEL_SLOTS   4096u
#define MODEL_BATCH   700u /* more than two chunks */
#define MODEL_LAYOUTS 5u
#define MODEL_VALUE   240u
#define MODEL_IDS     16u

struct model {
    struct layout *layout; /* NULL: there is none */
    bool present[MODEL_KEYS];
    uint64_t serial[MODEL_KEYS];
    uint64_t slot[MODEL_KEYS];
    uint64_t value[MODEL_KEYS];
    bool slot_live[MODEL_SLOTS];
    size_t slot_id[MODEL_SLOTS]; /* index of its wire id; MODEL_IDS: it has none */
    uint64_t next_slot;
};

static struct model models[MODEL_LAYOUTS];
static char model_keys[MODEL_KEYS][32];
static char model_ids[MODEL_IDS][48];
static uint8_t model_bytes[MODEL_VALUE + 251];
static uint64_t model_count; /* of serials handed out */
static bool model_shrinks;   /* for a while more is deleted than put */

static size_t pick(size_t below)
{
    return (size_t)rand() % below;
}

enum deed_kind {
    DEED_ADD,
    DEED_REMOVE,
    DEED_RENAME,
    DEED_TAG,
    DEED_PUT,
    DEED_DELETE,
    DEED_CLONE,
    DEED_REBUILD, /* as DEED_CLONE, but from the layout's parts */
    DEED_FREE,
};

struct deed {
    enum deed_kind kind;
    struct model *model, *clone;
    uint64_t slot;
    size_t count;
    size_t keys[MODEL_BATCH];
    uint64_t values[MODEL_BATCH];
    struct layout_put puts[MODEL_BATCH];
    uint64_t serial; /* of an allocation */
    size_t id;       /* its wire id, as slot_id */
    char text[32];   /* its name or tag */
};

/* ---- choosing ------------------------------------------------------------------------------ */

static uint64_t pick_slot(const struct model *model)
{
    for (int tries = 0; tries < 8 && model->next_slot > 0; tries++) {
        uint64_t slot = pick(model->next_slot);
        if (model->slot_live[slot])
            return slot;
    }
    return LAYOUT_UNBOUND;
}

/* Returns the slot of the allocation with this id, LAYOUT_UNBOUND if there is none. */
static uint64_t slot_with_id(const struct model *model, size_t id)
{
    for (uint64_t slot = 0; slot < model->next_slot; slot++) {
        if (model->slot_live[slot] && model->slot_id[slot] == id)
            return slot;
    }
    return LAYOUT_UNBOUND;
}

/* Returns a free id, or MODEL_IDS for none. */
static size_t pick_id(const struct model *model)
{
    size_t id = pick(MODEL_IDS);

    return slot_with_id(model, id) == LAYOUT_UNBOUND ? id : MODEL_IDS;
}

static const char *id_text(size_t id)
{
    return id < MODEL_IDS ? model_ids[id] : NULL;
}

/* Mostly rising; otherwise any earlier serial. */
static uint64_t new_serial(bool rising)
{
    model_count++;
    return rising ? (1ull << 40) + model_count : (model_count * 2654435761u) & UINT32_MAX;
}

/* A value says how long its bytes are, and which. */
static size_t value_bytes(uint64_t value)
{
    return value / 251 % MODEL_VALUE;
}

static const void *value_of(uint64_t value)
{
    return model_bytes + value % 251;
}

static void choose_keys(struct deed *deed, size_t most)
{
    size_t first = pick(MODEL_KEYS), step = pick(3) ? 1 : 1 + pick(40);
    bool random = pick(4) == 0;

    deed->count = pick(3) ? 1 + pick(30) : 1 + pick(most);
    for (size_t i = 0; i < deed->count; i++)
        deed->keys[i] = random ? pick(MODEL_KEYS) : (first + i * step) % MODEL_KEYS;
}

static void choose_put(struct deed *deed)
{
    bool rising = pick(4) > 0;
    uint64_t slot = pick_slot(deed->model);

    choose_keys(deed, MODEL_BATCH);
    for (size_t i = 0; i < deed->count; i++) {
        const char *key = model_keys[deed->keys[i]];
        deed->values[i] = (uint64_t)rand();
        deed->puts[i] = (struct layout_put){.key = key,
                                            .key_bytes = strlen(key),
                                            .slot = pick(2) ? slot : LAYOUT_UNBOUND,
                                            .offset = deed->values[i],
                                            .value = value_of(deed->values[i]),
                                            .value_bytes = value_bytes(deed->values[i]),
                                            .serial = new_serial(rising)};
    }
}

static struct model *pick_model(bool live)
{
    for (int tries = 0; tries < 50; tries++) {
        struct model *model = &models[pick(MODEL_LAYOUTS)];
        if ((model->layout != NULL) == live)
            return model;
    }
    return NULL;
}

static size_t count_live(void)
{
    size_t live = 0;

    for (size_t i = 0; i < MODEL_LAYOUTS; i++)
        live += models[i].layout != NULL;
    return live;
}

/* Returns false if the chosen deed has nothing to act on. */
static bool deed_choose(struct deed *deed)
{
    static const enum deed_kind kinds[] = {
        DEED_ADD, DEED_ADD,    DEED_REMOVE, DEED_PUT,    DEED_PUT,   DEED_PUT,  DEED_RENAME,
        DEED_PUT, DEED_DELETE, DEED_DELETE, DEED_DELETE, DEED_CLONE, DEED_FREE, DEED_TAG,
    };

    deed->model = pick_model(true);
    deed->kind = deed->model ? kinds[pick(sizeof kinds / sizeof kinds[0])] : DEED_ADD;
    deed->serial = 0;
    if (!deed->model)
        return false;
    if (deed->kind == DEED_CLONE && pick(4) == 0)
        deed->kind = DEED_REBUILD;
    if (pick(300) == 0)
        model_shrinks = !model_shrinks;
    if (model_shrinks && deed->kind == DEED_PUT && pick(3))
        deed->kind = DEED_DELETE;
    switch (deed->kind) {
    case DEED_ADD:
        deed->serial = new_serial(true);
        deed->id = pick_id(deed->model);
        return layout_count_allocations(deed->model->layout) < 12 &&
               deed->model->next_slot < MODEL_SLOTS;
    case DEED_REMOVE:
        deed->slot = pick_slot(deed->model);
        return deed->slot != LAYOUT_UNBOUND && pick(4) == 0;
    case DEED_RENAME:
    case DEED_TAG:
        deed->slot = pick_slot(deed->model);
        snprintf(deed->text, sizeof deed->text, "t%.*s%" PRIu64, (int)pick(9), "ttttttttt",
                 ++model_count);
        return deed->slot != LAYOUT_UNBOUND;
    case DEED_PUT:
        choose_put(deed);
        return true;
    case DEED_DELETE:
        choose_keys(deed, model_shrinks ? MODEL_BATCH : 60);
        deed->count = 1 + pick(deed->count);
        return true;
    case DEED_CLONE:
    case DEED_REBUILD:
        deed->clone = pick_model(false);
        return deed->clone != NULL;
    case DEED_FREE:
        return count_live() > 1;
    }
    return false;
}

/* ---- doing --------------------------------------------------------------------------------- */

/* An id in use is refused before. */
static int try_add(struct deed *deed)
{
    struct layout *layout = deed->model->layout;
    size_t taken = pick(MODEL_IDS);

    if (slot_with_id(deed->model, taken) != LAYOUT_UNBOUND)
        require(layout_add_with_wire_id(layout, deed->serial, NULL, "", model_ids[taken], NULL) ==
                -EEXIST);
    return layout_add_with_wire_id(layout, deed->serial, NULL, "", id_text(deed->id), &deed->slot);
}

static int try_remove(const struct deed *deed)
{
    size_t bound = 0, removed = SIZE_MAX;
    int error = layout_remove(deed->model->layout, deed->slot, &removed);

    for (size_t key = 0; key < MODEL_KEYS; key++)
        bound += deed->model->present[key] && deed->model->slot[key] == deed->slot;
    require(error < 0 ? removed == SIZE_MAX : removed == bound);
    return error;
}

/* Does one after the other; after a failure the deed holds only the rest. */
static int try_delete(struct deed *deed)
{
    while (deed->count > 0) {
        size_t key = deed->keys[deed->count - 1];
        int error = layout_delete(deed->model->layout, model_keys[key], strlen(model_keys[key]));
        if (error == -ENOMEM)
            return error;
        require(error == (deed->model->present[key] ? 0 : -ENOENT));
        deed->model->present[key] = false;
        deed->count--;
    }
    return 0;
}

static int rebuild_entries(struct layout *copy, const struct layout *layout)
{
    static struct layout_put puts[MODEL_KEYS];
    const struct layout_entry *entry;
    struct layout_cursor cursor;
    size_t count = 0, culprit;

    layout_cursor_first(&cursor, layout);
    while ((entry = layout_cursor_next(&cursor)))
        puts[count++] =
            (struct layout_put){entry->key,   entry->key_bytes,   entry->slot,  entry->offset,
                                entry->value, entry->value_bytes, entry->serial};
    return layout_restore_entries(copy, puts, count, &culprit);
}

static int try_rebuild(const struct layout *layout, struct layout **rebuilt)
{
    struct layout *copy = NULL;
    int error = layout_restore(layout_next_slot(layout), layout_count_changes(layout), &copy);

    for (size_t rank = 0; error == 0 && rank < layout_count_allocations(layout); rank++) {
        const struct layout_allocation *from = layout_at_rank(layout, rank);
        error = layout_restore_allocation(
            copy,
            &(struct layout_restored){.serial = from->serial,
                                      .slot = from->slot,
                                      .name = from->name,
                                      .name_bytes = strlen(from->name),
                                      .tag = from->tag,
                                      .tag_bytes = strlen(from->tag),
                                      .wire_id = from->wire_id,
                                      .wire_id_bytes = from->wire_id ? strlen(from->wire_id) : 0});
    }
    if (error == 0)
        error = rebuild_entries(copy, layout);
    if (error < 0) {
        layout_free(copy);
        copy = NULL;
    }
    *rebuilt = copy;
    return error;
}

/* 0 or -ENOMEM */
static int deed_try(struct deed *deed)
{
    struct layout *layout = deed->model->layout;
    size_t culprit;

    switch (deed->kind) {
    case DEED_ADD:
        return try_add(deed);
    case DEED_REMOVE:
        return try_remove(deed);
    case DEED_RENAME:
        return layout_rename(layout, deed->slot, deed->text);
    case DEED_TAG:
        return layout_set_tag(layout, deed->slot, deed->text);
    case DEED_PUT:
        return layout_put_many(layout, deed->puts, deed->count, false, &culprit);
    case DEED_DELETE:
        return try_delete(deed);
    case DEED_CLONE:
        deed->clone->layout = layout_clone(layout);
        return deed->clone->layout ? 0 : -ENOMEM;
    case DEED_REBUILD:
        return try_rebuild(layout, &deed->clone->layout);
    case DEED_FREE:
        layout_free(layout);
        return 0;
    }
    return 0;
}

static void note_puts(const struct deed *deed)
{
    struct model *model = deed->model;
    static bool fresh[MODEL_KEYS];

    memset(fresh, 0, sizeof fresh);
    for (size_t i = 0; i < deed->count; i++) {
        size_t key = deed->keys[i];
        if (!model->present[key] || fresh[key])
            model->serial[key] = deed->puts[i].serial;
        fresh[key] |= !model->present[key];
        model->present[key] = true;
        model->slot[key] = deed->puts[i].slot;
        model->value[key] = deed->values[i];
    }
}

static bool deed_makes_one(const struct deed *deed)
{
    return deed->kind == DEED_CLONE || deed->kind == DEED_REBUILD;
}

/* Applies a deed that succeeded to the model. */
static void deed_note(const struct deed *deed)
{
    struct model *model = deed->model;
    struct layout *cloned = deed_makes_one(deed) ? deed->clone->layout : NULL;

    switch (deed->kind) {
    case DEED_ADD:
        require(deed->slot == model->next_slot);
        model->slot_id[model->next_slot] = deed->id;
        model->slot_live[model->next_slot++] = true;
        break;
    case DEED_REMOVE:
        model->slot_live[deed->slot] = false;
        for (size_t key = 0; key < MODEL_KEYS; key++) {
            if (model->slot[key] == deed->slot)
                model->present[key] = false;
        }
        break;
    case DEED_PUT:
        note_puts(deed);
        break;
    case DEED_RENAME:
        require(layout_find_name(model->layout, deed->text)->slot == deed->slot);
        break;
    case DEED_TAG:
        require(strcmp(layout_find_slot(model->layout, deed->slot, NULL)->tag, deed->text) == 0);
        break;
    case DEED_DELETE:
        break;
    case DEED_CLONE:
    case DEED_REBUILD:
        *deed->clone = *model;
        deed->clone->layout = cloned;
        require(layout_count_changes(cloned) == layout_count_changes(model->layout));
        break;
    case DEED_FREE:
        model->layout = NULL;
        break;
    }
}

/* ---- comparing ----------------------------------------------------------------------------- */

static void compare_ids(const struct model *model)
{
    for (size_t id = 0; id < MODEL_IDS; id++) {
        const struct layout_allocation *found = layout_find_wire_id(model->layout, model_ids[id]);
        uint64_t slot = slot_with_id(model, id);

        require(found == layout_find_slot(model->layout, slot, NULL));
        require(!found || strcmp(found->wire_id, model_ids[id]) == 0);
    }
    require(layout_check_wire_ids(model->layout) == 0);
}

static void compare_allocations(const struct model *model)
{
    const struct layout *layout = model->layout;
    static uint64_t bound[MODEL_SLOTS];
    size_t rank = 0, found;

    memset(bound, 0, sizeof bound);
    for (size_t key = 0; key < MODEL_KEYS; key++) {
        if (model->present[key] && model->slot[key] != LAYOUT_UNBOUND)
            bound[model->slot[key]]++;
    }
    for (uint64_t slot = 0; slot < model->next_slot; slot++) {
        const struct layout_allocation *allocation = layout_find_slot(layout, slot, &found);

        require((allocation != NULL) == model->slot_live[slot]);
        if (!allocation)
            continue;
        require(found == rank && layout_at_rank(layout, rank) == allocation);
        require(layout_find_serial(layout, allocation->serial) == allocation);
        require(layout_find_name(layout, allocation->name) == allocation);
        require(allocation->bound_entries == bound[slot]);
        require((allocation->wire_id != NULL) == (model->slot_id[slot] < MODEL_IDS));
        rank++;
    }
    require(layout_count_allocations(layout) == rank);
    require(layout_next_slot(layout) == model->next_slot);
}

static void compare_entry(const struct model *model, size_t key, const struct layout_entry *entry)
{
    const char *text = model_keys[key];
    uint64_t value = model->value[key];

    require(entry && entry->key_bytes == strlen(text));
    require(memcmp(entry->key, text, entry->key_bytes) == 0);
    require(entry->slot == model->slot[key] && entry->serial == model->serial[key]);
    require(entry->offset == value && entry->value_bytes == value_bytes(value));
    require(memcmp(entry->value, value_of(value), entry->value_bytes) == 0);
    require(layout_find_entry(model->layout, text, strlen(text)) == entry);
    require(layout_find_entry_serial(model->layout, entry->serial) == entry);
}

/* Checks a cursor put before a key, and cursors at and behind an allocation's serial. */
static void compare_cursors(const struct model *model, size_t key, const struct layout_entry *here,
                            const struct layout_entry *next)
{
    const struct layout_entry *behind;
    struct layout_cursor cursor;

    layout_cursor_seek(&cursor, model->layout, model_keys[key], strlen(model_keys[key]));
    require(layout_cursor_next(&cursor) == (here ? here : next));
    if (!here)
        return;
    layout_cursor_seek_serial(&cursor, model->layout, here->serial);
    require(layout_cursor_next(&cursor) == here);
    behind = layout_cursor_next(&cursor);
    layout_cursor_seek_serial(&cursor, model->layout, here->serial + 1);
    require(layout_cursor_next(&cursor) == behind);
}

/* Checks that the cursor visits all serials in rising order. */
static void compare_serials_in_order(const struct model *model, size_t count)
{
    const struct layout_entry *entry;
    struct layout_cursor cursor;
    uint64_t last = 0;

    layout_cursor_seek_serial(&cursor, model->layout, 0);
    for (size_t i = 0; i < count; i++) {
        entry = layout_cursor_next(&cursor);
        require(entry && (i == 0 || entry->serial > last));
        last = entry->serial;
    }
    require(layout_cursor_next(&cursor) == NULL);
}

static void compare_entries(const struct model *model)
{
    const struct layout_entry *entry, *here;
    struct layout_cursor cursor;
    uint64_t bytes = 0;
    size_t index = 0;

    layout_cursor_first(&cursor, model->layout);
    entry = layout_cursor_next(&cursor);
    for (size_t key = 0; key < MODEL_KEYS; key++) {
        here = NULL;
        if (model->present[key]) {
            compare_entry(model, key, entry);
            bytes += entry->key_bytes + entry->value_bytes;
            here = entry;
            entry = layout_cursor_next(&cursor);
            index++;
        } else {
            require(!layout_find_entry(model->layout, model_keys[key], strlen(model_keys[key])));
        }
        if (pick(16) == 0)
            compare_cursors(model, key, here, entry);
    }
    require(entry == NULL && layout_cursor_next(&cursor) == NULL);
    require(layout_count_entries(model->layout) == index);
    require(layout_entry_bytes(model->layout) == bytes);
    compare_serials_in_order(model, index);
}

/* Checks the index's invariants: no chunk is empty, and the facts beside each chunk are true. */
static void check_index(const struct layout_index *index, size_t entries)
{
    size_t counted = 0;

    for (size_t chunk = 0; chunk < index->chunk_count; chunk++) {
        const struct index_chunk_ref *ref = &index->chunks[chunk];

        require(ref->count > 0 && ref->count <= INDEX_CHUNK_ENTRIES);
        require(ref->first == layout_index_entries(index, chunk)[0]);
        require(ref->first_serial == ref->first->serial);
        counted += ref->count;
    }
    require(counted == entries);
}

static void model_compare(const struct model *model)
{
    check_index(&model->layout->by_key, layout_count_entries(model->layout));
    check_index(&model->layout->by_serial, layout_count_entries(model->layout));
    compare_entries(model);
    compare_allocations(model);
    compare_ids(model);
}

/* ---- beginning and end --------------------------------------------------------------------- */

static void models_start(unsigned seed)
{
    srand(seed);
    model_count = 0;
    model_shrinks = false;
    memset(models, 0, sizeof models);
    for (size_t i = 0; i < MODEL_KEYS; i++)
        snprintf(model_keys[i], sizeof model_keys[i], "k%04u%s", (unsigned)i,
                 i % 7 ? "" : "/with/a/longer/tail");
    for (size_t i = 0; i < MODEL_IDS; i++)
        snprintf(model_ids[i], sizeof model_ids[i], "allocation-%.*s%u", (int)(i * 7 % 30),
                 "0123456789abcdef0123456789abcdef", (unsigned)i);
    for (size_t i = 0; i < sizeof model_bytes; i++)
        model_bytes[i] = (uint8_t)rand();
    models[0].layout = layout_new();
    require(models[0].layout != NULL);
}

static void models_end(void)
{
    for (size_t i = 0; i < MODEL_LAYOUTS; i++) {
        if (models[i].layout)
            model_compare(&models[i]);
        layout_free(models[i].layout);
        models[i].layout = NULL;
    }
}

#endif
