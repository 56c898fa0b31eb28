/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Putting entries: everything that can fail happens on the side (steps, new entries, room); then
 * the new entries are merged into both orders from the back, moving each old run once.
 */
#include "layout_internal.h"

#include "name.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct step {
    const struct layout_put *put;
    struct layout_entry *entry;           /* the new one */
    struct layout_allocation *allocation; /* that it is bound to; NULL: to none */
    size_t at; /* index in by_key: of the entry replaced, or to insert before */
    bool replaces;
};

struct plan {
    const struct layout_put *puts;
    size_t put_count;
    uint64_t first_serial; /* of puts[0], and so on; 0: they have their own */
    size_t known;          /* puts that are unbound, or whose slot exists */
    struct step *steps;    /* by key, each key once */
    size_t count;
    struct layout_entry_ref *fresh; /* the entries with a new key, by serial */
    size_t fresh_count;
    uint64_t entry_bytes; /* of the layout afterwards */
    size_t cost_bytes;    /* of all new entries */
};

static int check_put(const struct layout_put *put)
{
    int rc = name_check_key(put->key, put->key_bytes);

    if (rc < 0)
        return rc;
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
        int rc = check_put(put);

        if (!known) {
            allocation = layout_slot(layout, put->slot, NULL);
            known = allocation != NULL;
        }
        if (rc == 0 && !known && !skip_unknown_slots)
            rc = -EINVAL;
        if (rc < 0) {
            *culprit = i;
            return rc;
        }
        if (known)
            plan->steps[plan->count++] = (struct step){.put = put, .allocation = allocation};
    }
    plan->known = plan->count;
    return 0;
}

static int compare_step_keys(const struct step *a, const struct step *b)
{
    return layout_compare_keys(a->put->key, a->put->key_bytes, b->put->key, b->put->key_bytes);
}

/* Of one key, in the order given. */
static int compare_steps(const void *left, const void *right)
{
    const struct step *a = left, *b = right;
    int order = compare_step_keys(a, b);

    return order != 0 ? order : (a->put > b->put) - (a->put < b->put);
}

static void plan_sort(struct plan *plan)
{
    size_t sorted = 1, kept = 0;

    /* A document comes sorted, as `layout` is: then once through is all. */
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

/* Lower bound of a key at or behind `from`, by steps that double: cheap where it is near. */
static size_t seek_key(const struct layout *layout, const struct layout_put *put, size_t from)
{
    size_t low = from, high = layout->entry_count, stride = 1;

    while (low + stride <= high) {
        const struct layout_entry *entry = layout->by_key[low + stride - 1];
        if (layout_compare_keys(entry->key, entry->key_bytes, put->key, put->key_bytes) >= 0) {
            high = low + stride - 1;
            break;
        }
        low += stride;
        stride *= 2;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct layout_entry *entry = layout->by_key[middle];
        if (layout_compare_keys(entry->key, entry->key_bytes, put->key, put->key_bytes) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Where each step goes, and what the whole comes to. */
static int plan_locate(struct plan *plan, const struct layout *layout)
{
    size_t at = 0;

    plan->entry_bytes = layout->entry_bytes;
    for (size_t i = 0; i < plan->count; i++) {
        struct step *step = &plan->steps[i];
        const struct layout_put *put = step->put;

        at = seek_key(layout, put, at);
        step->at = at;
        if (at < layout->entry_count) {
            const struct layout_entry *old = layout->by_key[at];
            step->replaces =
                layout_compare_keys(old->key, old->key_bytes, put->key, put->key_bytes) == 0;
            if (step->replaces)
                plan->entry_bytes -= (uint64_t)old->key_bytes + old->value_bytes;
        }
        plan->entry_bytes += put->key_bytes + put->value_bytes;
        plan->cost_bytes += layout_entry_cost(put);
        plan->fresh_count += !step->replaces;
    }
    if (plan->entry_bytes > LAYOUT_MAX_ENTRY_BYTES ||
        layout->entry_count + plan->fresh_count > LAYOUT_MAX_ENTRIES)
        return -ENOSPC;
    return 0;
}

static int plan_make_entries(struct plan *plan, const struct layout *layout)
{
    struct layout_entry_maker maker = {.left_bytes = plan->cost_bytes};
    size_t fresh = 0;

    plan->fresh = malloc((plan->fresh_count + 1) * sizeof plan->fresh[0]);
    if (!plan->fresh)
        return -ENOMEM;
    for (size_t i = 0; i < plan->count; i++) {
        struct step *step = &plan->steps[i];
        uint64_t serial =
            step->replaces ? layout->by_key[step->at]->serial : plan_serial(plan, step->put);

        step->entry = layout_entry_new(&maker, step->put, serial);
        if (!step->entry)
            return -ENOMEM;
        if (!step->replaces)
            plan->fresh[fresh++] = (struct layout_entry_ref){serial, step->entry};
    }
    return 0;
}

static int compare_serials(const void *left, const void *right)
{
    const struct layout_entry_ref *a = left, *b = right;

    return (a->serial > b->serial) - (a->serial < b->serial);
}

/* Orders the new serials and sees that each is new. */
static int plan_check_serials(struct plan *plan, const struct layout *layout, size_t *culprit)
{
    const struct layout_entry_ref *fresh = plan->fresh;
    size_t sorted = 1, at = 0;

    while (sorted < plan->fresh_count && fresh[sorted - 1].serial < fresh[sorted].serial)
        sorted++;
    if (sorted < plan->fresh_count)
        qsort(plan->fresh, plan->fresh_count, sizeof plan->fresh[0], compare_serials);
    for (size_t i = 0; i < plan->fresh_count; i++) {
        bool taken = i + 1 < plan->fresh_count && fresh[i].serial == fresh[i + 1].serial;

        if (i == 0)
            at = layout_serial_lower_bound(layout, fresh[0].serial);
        while (at < layout->entry_count && layout->by_serial[at].serial < fresh[i].serial)
            at++;
        if (at < layout->entry_count && layout->by_serial[at].serial == fresh[i].serial)
            taken = true;
        if (!taken)
            continue;
        for (size_t j = 0; j < plan->put_count; j++) {
            if (plan_serial(plan, &plan->puts[j]) == fresh[i].serial)
                *culprit = j;
        }
        return -EINVAL;
    }
    return 0;
}

static void forget_binding(struct layout *layout, const struct layout_entry *entry)
{
    struct layout_allocation *allocation = NULL;

    if (entry->slot != LAYOUT_UNBOUND)
        allocation = layout_slot(layout, entry->slot, NULL);
    if (allocation)
        allocation->bound_entries--;
}

static void merge_serials(struct layout *layout, const struct plan *plan)
{
    size_t old_end = layout->entry_count;

    for (size_t left = plan->fresh_count; left > 0; left--) {
        const struct layout_entry_ref *fresh = &plan->fresh[left - 1];
        size_t at = old_end;

        while (at > 0 && layout->by_serial[at - 1].serial > fresh->serial)
            at--;
        if (at < old_end)
            memmove(layout->by_serial + at + left, layout->by_serial + at,
                    (old_end - at) * sizeof layout->by_serial[0]);
        layout->by_serial[at + left - 1] = *fresh;
        old_end = at;
    }
}

/* Cannot fail: there is room for all. Replacements first, while the indices of the steps hold. */
static void plan_carry_out(struct plan *plan, struct layout *layout)
{
    size_t old_end = layout->entry_count, left = plan->fresh_count;

    for (size_t i = 0; i < plan->count; i++) {
        const struct step *step = &plan->steps[i];
        if (step->allocation)
            step->allocation->bound_entries++;
        if (!step->replaces)
            continue;
        struct layout_entry *old = layout->by_key[step->at];
        forget_binding(layout, old);
        layout->by_key[step->at] = step->entry;
        layout->by_serial[layout_serial_lower_bound(layout, old->serial)].entry = step->entry;
        layout_entry_release(old);
    }
    merge_serials(layout, plan);
    for (size_t i = plan->count; i > 0 && left > 0; i--) {
        const struct step *step = &plan->steps[i - 1];
        if (step->replaces)
            continue;
        if (step->at < old_end)
            memmove(layout->by_key + step->at + left, layout->by_key + step->at,
                    (old_end - step->at) * sizeof layout->by_key[0]);
        layout->by_key[step->at + left - 1] = step->entry;
        old_end = step->at;
        left--;
    }
    layout->entry_count += plan->fresh_count;
    layout->entry_bytes = plan->entry_bytes;
}

/* `plan` says what; the rest of it is made here. */
static int put_planned(struct layout *layout, struct plan *plan, bool skip_unknown_slots,
                       size_t *culprit)
{
    int rc;

    *culprit = plan->put_count;
    if (plan->put_count == 0)
        return 0;
    plan->steps = malloc(plan->put_count * sizeof plan->steps[0]);
    if (!plan->steps)
        return -ENOMEM;
    rc = plan_collect(plan, layout, skip_unknown_slots, culprit);
    if (rc < 0)
        goto out;
    plan_sort(plan);
    rc = plan_locate(plan, layout);
    if (rc < 0)
        goto out;
    rc = plan_make_entries(plan, layout);
    if (rc < 0)
        goto out;
    rc = plan_check_serials(plan, layout, culprit);
    if (rc < 0)
        goto out;
    rc = layout_reserve_entries(layout, layout->entry_count + plan->fresh_count);
    if (rc < 0)
        goto out;
    plan_carry_out(plan, layout);
out:
    for (size_t i = 0; rc < 0 && i < plan->count && plan->steps[i].entry; i++)
        layout_entry_release(plan->steps[i].entry);
    free(plan->fresh);
    free(plan->steps);
    return rc;
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
    int rc = put_planned(layout, &plan, true, culprit);

    *known = plan.known;
    return rc;
}

int layout_put(struct layout *layout, const struct layout_put *put)
{
    return layout_put_many(layout, put, 1, false, NULL);
}
