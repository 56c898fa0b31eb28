/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reserve - the device's account: charging it, and the reservations of sessions
 *
 * Reservations are state of the core, and the account follows it (ledger.c). A session draws from
 * its own reservation first. Memory that its store gives back goes there as long as a refund is
 * due; all other memory that comes back is for everyone.
 */
#include "service/account.h"
#include "service/cost.h"
#include "service/plan.h"

#include <errno.h>

/* Charges `bytes`, of which `draw` come from the reservation, and records that they are being made.
 * All or nothing. */
static int charge(struct service *s, const struct core_session *held, uint64_t bytes, uint64_t draw)
{
    uint64_t aside_bytes = s->core->reserved_bytes;
    if (!held)
        return vmm_reserve(s->vmm, bytes);
    vmm_set_aside(s->vmm, aside_bytes - draw); /* a smaller reservation never fails */
    int error = vmm_reserve(s->vmm, bytes);
    if (error) {
        vmm_set_aside(s->vmm, aside_bytes);
        return error;
    }
    struct service_reserved reserved = service_get_reserved(held);
    reserved.aside_bytes -= draw;
    reserved.making_bytes += bytes;
    reserved.drawn_bytes += draw;
    error = service_record_reserved(s, held->id, &reserved);
    if (error) {
        vmm_unreserve(s->vmm, bytes);
        vmm_set_aside(s->vmm, aside_bytes);
    }
    return error;
}

static bool give_up(struct service *s, const struct core_session *held)
{
    return service_record(s, .type = RECORD_GIVE_UP, .session = held->id) == 0;
}

/* Makes room where there is too little. Gives up memory that only a rollback would need, if that is
 * enough. -EAGAIN: memory is on its way, wait; -ENOMEM: waiting does not help. */
static int make_room(struct service *s, const struct core_session *held, uint64_t bytes)
{
    struct vmm_info info;
    vmm_get_info(s->vmm, &info);
    uint64_t staying_bytes = info.used_bytes + info.aside_bytes - s->numbers.freeing_bytes;
    /* Memory that comes back anyhow may be enough. */
    if (bytes <= info.total_bytes - staying_bytes)
        return -EAGAIN;
    const struct core_store *store = held ? core_find_store(s->core, held->store) : NULL;
    uint64_t given_up_bytes = store ? core_count_given_up_bytes(s->core, store) : 0;
    /* Only if it is enough. */
    if (given_up_bytes > 0 && bytes <= info.total_bytes - staying_bytes + given_up_bytes)
        give_up(s, held);
    if (s->numbers.freeing_bytes > 0)
        return -EAGAIN;
    return store && service_evict_for(s, store, bytes) ? -EAGAIN : -ENOMEM;
}

bool service_give_up(struct service *s, uint64_t session, uint64_t bytes)
{
    const struct core_session *held = core_find_session(s->core, session);
    const struct core_store *store = held ? core_find_store(s->core, held->store) : NULL;
    uint64_t given_up_bytes = store ? core_count_given_up_bytes(s->core, store) : 0;
    struct vmm_info info;
    vmm_get_info(s->vmm, &info); /* measured when making the memory failed */
    if (info.knows_others && bytes > info.free_bytes + s->numbers.freeing_bytes + given_up_bytes)
        return false; /* only if it is enough */
    return given_up_bytes > 0 && give_up(s, held);
}

/* Checks whether the session's pool may have so much more. 0: yes, or it is the device that is
 * short. Gives up memory that only a rollback would need, if that is enough. -EAGAIN: once the
 * memory on its way is back; -EDQUOT: waiting does not help. */
static int check_budget(struct service *s, const struct core_session *held, uint64_t bytes)
{
    const struct core_store *store = held ? core_find_store(s->core, held->store) : NULL;
    uint64_t free_bytes = vmm_get_free(s->vmm);
    if (!store || core_check_room(s->core, store, bytes, free_bytes) != -EDQUOT)
        return 0;
    free_bytes += s->numbers.freeing_bytes;
    if (core_check_room(s->core, store, bytes, free_bytes) == 0)
        return -EAGAIN;
    uint64_t given_up_bytes = core_count_given_up_bytes(s->core, store);
    uint64_t more_bytes = bytes - number_smaller(given_up_bytes, bytes);
    free_bytes += given_up_bytes;
    if (given_up_bytes > 0 && core_check_room(s->core, store, more_bytes, free_bytes) == 0 &&
        give_up(s, held))
        return core_check_room(s->core, store, bytes, vmm_get_free(s->vmm)) == 0 ? 0 : -EAGAIN;
    if (service_evict_for(s, store, bytes))
        return -EAGAIN;
    service_note_over_quota(s, store, held->uid, held->owner);
    return -EDQUOT;
}

int service_reserve(struct service *s, uint64_t session, uint64_t bytes, uint64_t *drawn)
{
    const struct core_session *held = core_find_session(s->core, session);
    uint64_t draw = held ? number_smaller(held->reserved_bytes, bytes) : 0;
    *drawn = 0;
    if (!service_can_ever_fit(s, bytes))
        return -ENOMEM;
    int error = check_budget(s, held, bytes - draw);
    if (error)
        return error;
    error = charge(s, held, bytes, draw);
    if (!error)
        *drawn = draw;
    return error == -ENOMEM ? make_room(s, held, bytes - draw) : error;
}

int service_reserve_aside(struct service *s, uint64_t session, uint64_t bytes)
{
    const struct core_session *held = core_find_session(s->core, session);
    struct service_reserved reserved = service_get_reserved(held);
    if (bytes <= held->reserved_bytes) {
        reserved.aside_bytes = bytes;
        reserved.due_bytes = 0;
        return service_record_reserved(s, session, &reserved);
    }
    uint64_t due_bytes = number_smaller(held->due_bytes, bytes - held->reserved_bytes);
    uint64_t more_bytes = bytes - held->reserved_bytes - due_bytes;
    if (!service_can_ever_fit(s, bytes))
        return -ENOMEM;
    int error = check_budget(s, held, more_bytes);
    if (error)
        return error;
    if (more_bytes > vmm_get_free(s->vmm))
        return make_room(s, held, more_bytes);
    reserved.aside_bytes = bytes - due_bytes;
    reserved.due_bytes = due_bytes;
    return service_record_reserved(s, session, &reserved);
}

int service_reserve_as_acquire(struct service *s, uint64_t session, uint64_t bytes, bool replacing)
{
    return service_record(s, .type = RECORD_RESERVE, .session = session, .reserved_bytes = bytes,
                          .flags =
                              CORE_RESERVE_AS_ACQUIRE | (replacing ? CORE_RESERVE_REPLACING : 0));
}
