/* SPDX-License-Identifier: Apache-2.0 */
/* promote - stores come back to the device for those who wait for them in the lock */
#include "service/move.h"
#include "service/service_internal.h"

#include <errno.h>

/* It will never fit, so nobody waits for it. */
static bool can_fit(const struct service *s, const struct core_store *store)
{
    return layout_total_bytes(store->fixed) <= vmm_get_total_in(s->vmm, VMM_TIER_DEVICE);
}

/* Now there is none, of the device or of its pool. */
static bool lacks_room(const struct service *s, const struct core_store *store)
{
    uint64_t bytes = layout_total_bytes(store->fixed), free_bytes = vmm_get_free(s->vmm);
    return bytes > free_bytes || (bytes <= core_find_pool(s->core, store)->max_bytes &&
                                  core_check_promotion(s->core, store, free_bytes - bytes) < 0);
}

static void promote(struct service *s, const struct core_store *store)
{
    uint64_t id = store->id;
    /* Tried again when some comes back. */
    if (can_fit(s, store) && lacks_room(s, store)) {
        service_evict_for(s, store, layout_total_bytes(store->fixed));
        return;
    }
    int error = can_fit(s, store) ? service_promote(s, store) : -ENOMEM;
    if (!error || error == -EAGAIN)
        return;
    store = core_find_store(s->core, id);
    if (error == -ENOMEM && store && can_fit(s, store))
        s->promote_after_ms = service_now(s) + SERVICE_PROMOTE_RETRY_MS;
    else if (store && store->places.move.id == 0)
        service_move_failed(s, id, 0, error);
}

void service_start_promotions(struct service *s)
{
    if (s->core->displaced == 0 || s->promoting || s->ending ||
        s->promote_after_ms > service_now(s))
        return;
    s->promoting = true; /* what begins one applies records */
    for (size_t i = 0; i < s->core->stores.count; i++) {
        const struct core_store *store = s->core->stores.items[i];
        if (core_wants_promotion(s->core, store))
            promote(s, store);
    }
    s->promoting = false;
}

uint64_t service_promotion_moment(const struct service *s)
{
    uint64_t now_ms = service_now(s), at_ms = UINT64_MAX;
    if (s->core->displaced > 0 && s->promote_after_ms > now_ms)
        at_ms = s->promote_after_ms;
    at_ms = at_ms < service_evict_moment(s) ? at_ms : service_evict_moment(s);
    return at_ms;
}
