/* SPDX-License-Identifier: Apache-2.0 */
/* deeds - carries out the planners' deeds, and backs off stores that heal.c would name again */
#include "service/moves.h"
#include "service/plan.h"

#include <errno.h>

static void heal(struct service *s, uint64_t store)
{
    int error = service_move(s, .store = store, .kind = CORE_PLACE_DISK);
    if (error == -EIO) /* a worker's end lost its bytes */
        service_drop_copy(s, store, CORE_PLACE_DISK, error);
    if (error)
        service_back_off(s, BACKOFF_LEAVE, store, SERVICE_LEAVE_RETRY_MS);
}

/* Refuses the waiters of the store, unless a move of it is under way after all. */
static void refuse(struct service *s, uint64_t store, int error)
{
    const struct core_store *found = core_find_store(s->core, store);
    if (found && found->places.move.id == 0)
        service_move_failed(s, store, 0, error);
}

static void promote(struct service *s, uint64_t store)
{
    int error = service_move(s, .store = store, .kind = CORE_PLACE_DEVICE);
    if (error == -ENOMEM)
        service_back_off(s, BACKOFF_PROMOTE, 0, SERVICE_PROMOTE_RETRY_MS);
    else if (error && error != -EAGAIN)
        refuse(s, store, error);
}

static void move_down(struct service *s, uint64_t store, enum core_place below)
{
    if (service_move(s, .store = store, .kind = below))
        service_back_off(s, BACKOFF_LEAVE, store, SERVICE_LEAVE_RETRY_MS);
}

static bool make_room(struct service *s, const struct deed *deed)
{
    bool comes = service_evict_for(s, core_find_store(s->core, deed->store), deed->bytes);
    if (deed->move)
        service_settle_short_move(s, deed->move, comes);
    return comes;
}

bool service_do(struct service *s, const struct deed *deed)
{
    switch (deed->type) {
    case DEED_HEAL:
        heal(s, deed->store);
        break;
    case DEED_PROMOTE:
        promote(s, deed->store);
        break;
    case DEED_REFUSE:
        refuse(s, deed->store, -ENOMEM);
        break;
    case DEED_DROP_SPARE:
        service_drop_copy(s, deed->store, deed->place, 0);
        break;
    case DEED_MOVE_DOWN:
        move_down(s, deed->store, deed->place);
        break;
    case DEED_MAKE_ROOM:
        return make_room(s, deed);
    case DEED_COVER_SHORTFALL:
        return service_evict_for_shortfall(s, core_find_store(s->core, deed->store), deed->bytes);
    }
    return false;
}
