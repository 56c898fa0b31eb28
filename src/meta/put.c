/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts entries: first everything that can fail (the new entries, their places, room for them); then
 * both indexes are changed.
 */
#include "layout_internal.h"

#include "name.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct step {
    const struct layout_put *put;
    struct layout_allocation *allocation; /* that the entry is bound to; NULL if unbound */
};

struct plan {
    const struct layout_put *puts;
    size_t put_count;
    uint64_t first_serial;        /* of puts[0], counting up; 0: puts have their own serials */
    size_t known;                 /* number of puts that are unbound or of an existing slot */
    struct step *steps;           /* sorted by key, each key once */
    struct index_edit *by_key;    /* an edit for each step */
    struct index_edit *by_serial; /* the same edits sorted by serial */
    size_t count;
    size_t fresh_count;   /* steps with a new key */
    uint64_t entry_bytes; /* of the layout afterwards */
    size_t cost_bytes;    /* bytes of all new entries */
};

static int check_put(const struct layout_put *put)
{
    int error = name_check_key(put->key, put->key_bytes);

    if (error < 0)
        return error;
    return put->value_bytes > LAYOUT_MAX_VALUE_BYTES ? -EINVAL : 0;
}

static uint64_t plan_serial(const struct plan *plan, const struct layout_put *put)
{
    return plan->first_serial ? plan->first_serial + (uint64_t)(put - plan->puts) : put->serial;
}

static int plan_collect(struct plan *plan, const struct layout *layout, bool skip_unknown_slots,
                        size_t *culprit)
{
    for (size_t i = 0; i < plan->put_count; i++) {
        const struct layout_put *put = &plan->puts[i];
        struct layout_allocation *allocation = NULL;
        bool known = put->slot == LAYOUT_UNBOUND;
        int error = check_put(put);

        if (!known) {
            allocation = layout_slot(layout, put->slot, NULL);
            known = allocation != NULL;
        }
        if (error == 0 && !known && !skip_unknown_slots)
            error = -EINVAL;
        if (error < 0) {
            *culprit = i;
            return error;
        }
        if (known)
            plan->steps[plan->count++] = (struct step){put, allocation};
    }
    plan->known = plan->count;
    return 0;
}

static int compare_step_keys(const struct step *a, const struct step *b)
{
    return layout_compare_keys(a->put->key, a->put->key_bytes, b->put->key, b->put->key_bytes);
}

/* Sorts by key; steps of one key keep their order. */
static int compare_steps(const void *left, const void *right)
{
    const struct step *a = left, *b = right;
    int order = compare_step_keys(a, b);

    return order != 0 ? order : (a->put > b->put) - (a->put < b->put);
}

static void plan_sort(struct plan *plan)
{
    size_t sorted = 1, kept = 0;

    /* Documents are mostly sorted: then this pass is all. */
    while (sorted < plan->count &&
           compare_step_keys(&plan->steps[sorted - 1], &plan->steps[sorted]) < 0)
        sorted++;
    if (sorted >= plan->count)
        return;
    qsort(plan->steps, plan->count, sizeof plan->steps[0], compare_steps);
    for (size_t i = 0; i < plan->count; i++) {
        if (i + 1 == plan->count || compare_step_keys(&plan->steps[i], &plan->steps[i + 1]) != 0)
            plan->steps[kept++] = plan->steps[i];
    }
    plan->count = kept;
}

/* Finds the place of each step, and computes the sizes. */
static int plan_locate(struct plan *plan, const struct layout *layout)
{
    const struct layout_index *index = &layout->by_key;
    struct index_place place;

    plan->entry_bytes = layout->entry_bytes;
    for (size_t i = 0; i < plan->count; i++) {
        const struct layout_put *put = plan->steps[i].put;
        const struct index_target target = {.key = put->key, .key_bytes = put->key_bytes};
        struct layout_entry *old = i == 0 ? layout_index_find(index, &target, &place)
                                          : layout_index_find_on(index, &target, &place);

        plan->by_key[i] = (struct index_edit){.old = old, .at = place};
        place.offset += old != NULL;
        if (old)
            plan->entry_bytes -= (uint64_t)old->key_bytes + old->value_bytes;
        plan->entry_bytes += put->key_bytes + put->value_bytes;
        plan->cost_bytes += layout_entry_cost(put);
        plan->fresh_count += !old;
    }
    if (plan->entry_bytes > LAYOUT_MAX_ENTRY_BYTES ||
        layout->entry_count + plan->fresh_count > LAYOUT_MAX_ENTRIES)
        return -ENOSPC;
    return 0;
}

static int plan_make_entries(struct plan *plan)
{
    struct layout_entry_maker maker = {.left_bytes = plan->cost_bytes};

    for (size_t i = 0; i < plan->count; i++) {
        struct index_edit *edit = &plan->by_key[i];
        const struct layout_put *put = plan->steps[i].put;
        uint64_t serial = edit->old ? edit->old->serial : plan_serial(plan, put);

        edit->entry = layout_entry_new(&maker, put, serial);
        if (!edit->entry)
            return -ENOMEM;
        plan->by_serial[i] = *edit;
    }
    return 0;
}

/* Returns the index of the last put with this serial. */
static size_t find_culprit(const struct plan *plan, uint64_t serial)
{
    size_t culprit = 0;

    for (size_t i = 0; i < plan->count; i++) {
        size_t put = (size_t)(plan->steps[i].put - plan->puts);
        if (!plan->by_key[i].old && plan->by_key[i].entry->serial == serial && put > culprit)
            culprit = put;
    }
    return culprit;
}

static int plan_make_room(struct plan *plan)
{
    size_t each = 2 * sizeof(struct index_edit) + sizeof plan->steps[0];

    plan->by_key = malloc(plan->put_count * each);
    if (!plan->by_key)
        return -ENOMEM;
    plan->by_serial = plan->by_key + plan->put_count;
    plan->steps = (struct step *)(plan->by_serial + plan->put_count);
    return 0;
}

static int plan_carry_out(struct plan *plan, struct layout *layout, size_t *culprit)
{
    int error = plan_locate(plan, layout);

    if (error == 0)
        error = plan_make_entries(plan);
    if (error < 0)
        return error;
    size_t clash = layout_place_by_serial(layout, plan->by_serial, plan->count);
    if (clash < plan->count) {
        *culprit = find_culprit(plan, plan->by_serial[clash].entry->serial);
        return -EINVAL;
    }
    error = layout_edit_entries(layout, plan->by_key, plan->by_serial, plan->count,
                                plan->fresh_count == plan->count);
    for (size_t i = 0; error == 0 && i < plan->count; i++) {
        if (plan->steps[i].allocation)
            plan->steps[i].allocation->bound_entries++;
    }
    return error;
}

/* Carries out a plan that has its puts; fills in the other members. */
static int put_planned(struct layout *layout, struct plan *plan, bool skip_unknown_slots,
                       size_t *culprit)
{
    layout_assert_unshared(layout);
    *culprit = plan->put_count;
    if (plan->put_count == 0)
        return 0;
    int error = plan_make_room(plan);
    if (error < 0)
        return error;
    error = plan_collect(plan, layout, skip_unknown_slots, culprit);
    if (error == 0) {
        plan_sort(plan);
        error = plan_carry_out(plan, layout, culprit);
        for (size_t i = 0; error < 0 && i < plan->count && plan->by_key[i].entry; i++)
            layout_entries_release(&plan->by_key[i].entry, 1);
    }
    free(plan->by_key);
    return error;
}

int layout_put_many(struct layout *layout, const struct layout_put *puts, size_t count,
                    bool skip_unknown_slots, size_t *culprit)
{
    struct plan plan = {.puts = puts, .put_count = count};
    size_t nobody;

    return put_planned(layout, &plan, skip_unknown_slots, culprit ? culprit : &nobody);
}

int layout_put_rows(struct layout *layout, const struct layout_put *puts, size_t count,
                    uint64_t first_serial, size_t *known, size_t *culprit)
{
    struct plan plan = {.puts = puts, .put_count = count, .first_serial = first_serial};
    int error = put_planned(layout, &plan, true, culprit);

    *known = plan.known;
    return error;
}

int layout_put(struct layout *layout, const struct layout_put *put)
{
    return layout_put_many(layout, put, 1, false, NULL);
}
