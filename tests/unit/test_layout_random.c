/* SPDX-License-Identifier: Apache-2.0 */
/* A layout under random changes, held against a model that is too plain to be wrong. */
#include "tap.h"

#include "meta/layout.h"

#include <errno.h>
#include <stdlib.h>

#define KEYS   97
#define SLOTS  4000
#define BATCH  24
#define ROUNDS 6000

struct model {
    bool present[KEYS];
    uint64_t serial[KEYS];
    uint64_t slot[KEYS];
    uint64_t value[KEYS];
    bool slot_live[SLOTS];
    uint64_t next_slot;
};

static char key_text[KEYS][8];

static size_t pick(size_t below)
{
    return (size_t)rand() % below;
}

static uint64_t pick_slot(const struct model *model)
{
    for (int tries = 0; tries < 8 && model->next_slot > 0; tries++) {
        uint64_t slot = pick(model->next_slot);
        if (model->slot_live[slot])
            return slot;
    }
    return LAYOUT_UNBOUND;
}

static void change_allocations(struct layout *layout, struct model *model, uint64_t *serial)
{
    uint64_t slot = pick_slot(model);
    size_t bound = 0, removed = 0;

    if (layout_count_allocations(layout) < 12) {
        require(layout_add(layout, (*serial)++, NULL, "", &slot) == 0);
        require(slot == model->next_slot);
        model->slot_live[model->next_slot++] = true;
        return;
    }
    if (slot == LAYOUT_UNBOUND)
        return;
    require(layout_remove(layout, slot, &removed) == 0);
    model->slot_live[slot] = false;
    for (size_t key = 0; key < KEYS; key++) {
        if (model->present[key] && model->slot[key] == slot) {
            model->present[key] = false;
            bound++;
        }
    }
    require(removed == bound);
}

static void change_entries(struct layout *layout, struct model *model, uint64_t *serial)
{
    struct layout_put puts[BATCH];
    uint64_t values[BATCH];
    size_t keys[BATCH], count = pick(BATCH + 1), culprit;
    bool fresh[KEYS] = {false};

    for (size_t i = 0; i < count; i++) {
        keys[i] = pick(KEYS);
        values[i] = (uint64_t)rand();
        puts[i] =
            (struct layout_put){key_text[keys[i]], strlen(key_text[keys[i]]), pick_slot(model), 0,
                                &values[i],        sizeof values[i],          (*serial)++};
    }
    require(layout_put_many(layout, puts, count, false, &culprit) == 0);
    for (size_t i = 0; i < count; i++) {
        size_t key = keys[i];
        if (!model->present[key] || fresh[key])
            model->serial[key] = puts[i].serial;
        fresh[key] |= !model->present[key];
        model->present[key] = true;
        model->slot[key] = puts[i].slot;
        model->value[key] = values[i];
    }
}

static void delete_entry(struct layout *layout, struct model *model)
{
    size_t key = pick(KEYS);
    int rc = layout_delete(layout, key_text[key], strlen(key_text[key]));

    require(rc == (model->present[key] ? 0 : -ENOENT));
    model->present[key] = false;
}

static void compare_allocations(const struct layout *layout, const struct model *model)
{
    size_t rank = 0, found;

    for (uint64_t slot = 0; slot < model->next_slot; slot++) {
        const struct layout_allocation *allocation = layout_find_slot(layout, slot, &found);
        uint64_t bound = 0;

        require((allocation != NULL) == model->slot_live[slot]);
        if (!allocation)
            continue;
        require(found == rank && layout_at_rank(layout, rank) == allocation);
        require(layout_find_serial(layout, allocation->serial) == allocation);
        require(layout_find_name(layout, allocation->name) == allocation);
        for (size_t key = 0; key < KEYS; key++)
            bound += model->present[key] && model->slot[key] == slot;
        require(allocation->bound_entries == bound);
        rank++;
    }
    require(layout_count_allocations(layout) == rank);
}

static void compare_entries(const struct layout *layout, const struct model *model)
{
    uint64_t bytes = 0;
    size_t index = 0;

    for (size_t key = 0; key < KEYS; key++) {
        const char *text = key_text[key];
        const struct layout_entry *entry = layout_find_entry(layout, text, strlen(text));

        require(layout_entry_lower_bound(layout, text, strlen(text)) == index);
        require((entry != NULL) == model->present[key]);
        if (!entry)
            continue;
        require(layout_entry_at(layout, index) == entry);
        require(entry->slot == model->slot[key] && entry->serial == model->serial[key]);
        require(memcmp(entry->value, &model->value[key], sizeof model->value[key]) == 0);
        require(layout_find_entry_serial(layout, entry->serial) == entry);
        bytes += strlen(text) + sizeof model->value[key];
        index++;
    }
    require(layout_count_entries(layout) == index);
    require(layout_entry_bytes(layout) == bytes);
}

TAP_TEST(random_changes_and_clones_agree_with_a_plain_model)
{
    static struct model model, kept_model;
    struct layout *layout = layout_new(), *kept;
    uint64_t serial = 1;

    srand(20240607);
    for (size_t i = 0; i < KEYS; i++)
        snprintf(key_text[i], sizeof key_text[i], "k%03u", (unsigned)i);
    require(layout != NULL);
    kept = layout_clone(layout);
    for (int round = 0; round < ROUNDS; round++) {
        switch (pick(4)) {
        case 0:
            change_allocations(layout, &model, &serial);
            break;
        case 1:
        case 2:
            delete_entry(layout, &model);
            break;
        default:
            change_entries(layout, &model, &serial);
        }
        compare_entries(layout, &model);
        if (round % 50 == 0) {
            compare_allocations(layout, &model);
            compare_entries(kept, &kept_model);
            compare_allocations(kept, &kept_model);
            layout_free(kept);
            kept = layout_clone(layout);
            require(kept != NULL);
            kept_model = model;
        }
    }
    layout_free(layout);
    layout_free(kept);
}

TAP_TEST(serials_that_do_not_rise_with_the_order_of_puts_are_kept_sorted)
{
    struct layout *layout = layout_new();
    struct layout_put puts[64];
    char keys[64][4];
    size_t culprit;

    require(layout != NULL);
    for (size_t batch = 0; batch < 4; batch++) {
        for (size_t i = 0; i < 16; i++) {
            size_t number = i * 4 + batch;
            snprintf(keys[number], sizeof keys[number], "%02u", (unsigned)((number * 29) % 64));
            puts[i] = (struct layout_put){.key = keys[number],
                                          .key_bytes = 2,
                                          .slot = LAYOUT_UNBOUND,
                                          .serial = 1000 - number};
        }
        require(layout_put_many(layout, puts, 16, false, &culprit) == 0);
    }
    for (uint64_t number = 0; number < 64; number++) {
        const struct layout_entry *entry = layout_find_entry_serial(layout, 1000 - number);
        require(entry != NULL);
        check_bytes(entry->key, entry->key_bytes, keys[number], 2);
    }
    layout_free(layout);
}
