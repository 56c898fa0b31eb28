/* SPDX-License-Identifier: Apache-2.0 */
/* place_order - carries out the orders that a store's owner writes to `residency` */
#include "service/account.h"
#include "service/move.h"
#include "service/moves.h"
#include "service/plan.h"
#include "service/rights.h"

#include <errno.h>

/* Carries out an order that is a record alone. */
static int change_at_once(struct service *s, uint64_t store, enum record_type type,
                          enum core_place place)
{
    return service_record(s, .type = type, .store = store, .kind = place);
}

/* Promotes the store; others leave the device for it, as for a waiter in the lock. The move waits
 * for the memory that they free; a pool's slot, or its bytes, are free only once they have left. */
static int promote(struct service *s, const struct core_store *store, struct record *record)
{
    if (!service_needs_bytes(store, CORE_PLACE_DEVICE))
        return service_move_store(s, record);
    if (service_alloc_turn(s) != UINT64_MAX && !service_is_guaranteed(s, store))
        return -EAGAIN; /* no client waits for this move, so an ALLOC is ahead of it */
    uint64_t bytes = layout_total_bytes(store->fixed);
    int error = service_move_store(s, record);
    if ((error != -ENOMEM && error != -EDQUOT) || !service_can_ever_fit(s, bytes))
        return error;
    store = core_find_store(s->core, record->store);
    if (!store || !service_evict_for(s, store, bytes))
        return error;
    int again = service_move_store(s, record);
    return again == -EDQUOT ? -EAGAIN : again;
}

static int move(struct service *s, const struct core_store *store, enum core_place to,
                uint32_t flags)
{
    struct record record = {
        .type = RECORD_MOVE_BEGIN, .store = store->id, .kind = to, .flags = flags};
    if ((to == CORE_PLACE_HOST || to == CORE_PLACE_DISK) && service_is_scratch(store))
        return -EINVAL;
    return to == CORE_PLACE_DEVICE ? promote(s, store, &record) : service_move_store(s, &record);
}

int service_order_move(struct service *s, uint64_t file, const struct service_move_order *order)
{
    const struct core_file *opened = core_find_file(s->core, file);
    const struct core_store *store = opened ? core_find_store(s->core, opened->store) : NULL;
    if (!opened || !(opened->flags & CORE_OPEN_WRITE))
        return -EBADF;
    if (!store)
        return -ESTALE;
    if (!service_is_owner(s, store->id, opened->uid))
        return -EPERM;
    if (order->is_drained && core_find_drained(s->core, order->token) != store)
        return -ECANCELED; /* no other request comes between this and the record */
    switch (order->act) {
    case SERVICE_MOVE_TO:
        return move(s, store, order->place, 0);
    case SERVICE_MOVE_COPY:
        return move(s, store, order->place, CORE_MOVE_SPARE);
    case SERVICE_MOVE_DROP:
        return change_at_once(s, store->id, RECORD_COPY_DROP, order->place);
    case SERVICE_MOVE_CANCEL:
        return change_at_once(s, store->id, RECORD_MOVE_CANCEL, CORE_PLACE_DEVICE);
    }
    return -EINVAL;
}
