/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spares - copies that can be dropped, and the room that they give their tier: copies of stores
 * that are on the device, and host copies of stores that are on the disk as well
 */
#include "service/move.h"
#include "service/move_op.h"

#include <string.h>

const enum vmm_tier service_tiers[CORE_TIER_COUNT] = {
    [CORE_PLACE_DEVICE] = VMM_TIER_DEVICE,
    [CORE_PLACE_HOST] = VMM_TIER_HOST,
    [CORE_PLACE_DISK] = VMM_TIER_DISK,
};

uint64_t service_count_waiting_moves(const struct service *s, enum vmm_tier tier)
{
    uint64_t bytes = 0;
    for (const struct move_op *op = s->moves.all; op; op = op->next)
        bytes += move_op_waits(op) && op->tier == tier ? op->cost_bytes : 0;
    return bytes;
}

/* Returns true if a store in this tier can go down to its spare without a copy, and no client would
 * miss it. A store that failed to go a moment ago does not count, or moves would wait for it for
 * ever. */
static bool may_go_down(const struct service *s, const struct core_store *store,
                        enum core_place tier)
{
    return core_get_spare_below(store, tier) != CORE_PLACE_NONE && !store->use.pinned &&
           !core_is_held(store) && !core_is_awaited(s->core, store) &&
           !service_is_backed_off(s, BACKOFF_LEAVE, store->id);
}

static bool can_do_without(const struct service *s, const struct core_store *store,
                           enum core_place tier)
{
    return store->places.place == CORE_PLACE_DEVICE ? store->places.spares[tier] != NULL
           : store->places.place == tier            ? may_go_down(s, store, tier)
                                                    : false;
}

/* The same rules as apply_copy_drop and apply_move_begin have. */
bool service_may_drop_copy(const struct service *s, const struct core_store *store,
                           enum core_place tier)
{
    if (!can_do_without(s, store, tier) || store->places.move.id != 0 || store->suspect > 0 ||
        (store->lock.session_count > 0 && core_get_writer(s->core, store->id)) ||
        core_is_fenced(s->core, store->name))
        return false;
    for (size_t i = 0; i < store->lock.session_count; i++) {
        if (core_find_session(s->core, store->lock.sessions[i].id)->any)
            return false;
    }
    return true;
}

uint64_t service_count_cost(const struct service *s, const struct core_store *store,
                            enum core_place tier)
{
    size_t count = layout_count_allocations(store->fixed);
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += vmm_align_in(s->vmm, service_tiers[tier],
                              layout_at_rank(store->fixed, i)->aligned_bytes);
    return bytes;
}

/* Counts the copies of stores that verify their copy below: they are dropped after that. */
static uint64_t count_going_down(const struct service *s, enum core_place tier)
{
    uint64_t bytes = 0;
    for (const struct move_op *op = s->moves.all; op; op = op->next) {
        const struct core_store *store =
            move_op_verifies(op) ? core_find_store(s->core, op->store) : NULL;
        if (store && store->places.place == tier && store->places.move.id == op->id &&
            !core_is_held(store))
            bytes += service_count_cost(s, store, tier);
    }
    return bytes;
}

int64_t service_get_free_beside(const struct service *s, enum core_place tier)
{
    uint64_t free_bytes = vmm_get_free_in(s->vmm, service_tiers[tier]);
    free_bytes += s->pieces.freeing_beside_bytes[service_tiers[tier]] + count_going_down(s, tier);
    return (int64_t)free_bytes - (int64_t)service_count_waiting_moves(s, service_tiers[tier]);
}

uint64_t service_count_spare(const struct service *s, const struct core_store *store,
                             enum core_place tier)
{
    return service_may_drop_copy(s, store, tier) ? service_count_cost(s, store, tier) : 0;
}

uint64_t service_get_room_beside(const struct service *s, enum core_place tier)
{
    int64_t bytes = service_get_free_beside(s, tier);
    if (!vmm_has_tier(s->vmm, service_tiers[tier]))
        return 0;
    for (size_t i = 0; i < s->core->stores.count; i++)
        bytes += (int64_t)service_count_spare(s, s->core->stores.items[i], tier);
    return bytes > 0 ? (uint64_t)bytes : 0;
}

static bool has_memory(const struct layout *layout, uint64_t memory)
{
    size_t count = layout ? layout_count_allocations(layout) : 0;
    for (size_t i = 0; i < count; i++) {
        if (layout_at_rank(layout, i)->memory == memory)
            return true;
    }
    return false;
}

void service_drop_copy(struct service *s, uint64_t store, enum core_place tier, int error)
{
    service_record(s, .type = RECORD_COPY_DROP, .store = store, .kind = tier,
                   .failure = (uint64_t)-error);
}

/* The spare was the store's place when the reading began: spares are not read. */
void service_spare_failed(struct service *s, uint64_t store, const struct piece *piece, int error)
{
    const struct core_store *found = core_find_store(s->core, store);
    for (unsigned tier = 0; found && tier < CORE_TIER_COUNT; tier++) {
        if (has_memory(found->places.spares[tier], piece->id)) {
            service_drop_copy(s, store, (enum core_place)tier, error);
            return;
        }
    }
}

/* ---- memory with contents that are worth no copy -------------------------------------- */

/* GMSFS_GRAPH_TAG of libgmsfs: the tag of chunks of a graph pool. */
#define GRAPH_TAG "gmsfs.graph"

bool service_is_scratch(const struct core_store *store)
{
    size_t count = store->fixed ? layout_count_allocations(store->fixed) : 0;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(layout_at_rank(store->fixed, i)->tag, GRAPH_TAG) != 0)
            return false;
    }
    return count > 0;
}
