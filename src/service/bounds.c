/* SPDX-License-Identifier: Apache-2.0 */
#include "service/bounds.h"

#include "base/log.h"
#include "service/cost.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Time between two events of the same user and bound, and the number of such pairs: a user that
 * tries again and again must not push the events of others out of the ring. */
#define NOTE_MS   10000u
#define MAX_NOTES 64u

struct bound_note {
    uint32_t uid;
    char name[CORE_POOL_NAME_BYTES]; /* of a bound, or of a pool */
    uint64_t until_ms;               /* 0: free */
    bool is_untold, is_share, is_pool;
    uint64_t store;
    struct core_process process; /* is_pool */
};

static uint64_t find_limit(const struct service_options *options, enum service_bound bound)
{
    uint64_t limit = service_bounds[bound].limit;
    switch (bound) {
    case SERVICE_BOUND_CONNECTIONS:
        return number_smaller(options->max_connections, limit);
    case SERVICE_BOUND_WATCHES:
        return number_smaller(options->max_watches, limit);
    case SERVICE_BOUND_REQUESTS:
        return options->max_requests ? number_smaller(options->max_requests, limit) : limit;
    case SERVICE_BOUND_SPOOLS: /* so many spools of the largest size */
        return options->spool_max_bytes > UINT64_MAX / limit ? UINT64_MAX
                                                             : options->spool_max_bytes * limit;
    default:
        return limit;
    }
}

void service_init_bounds(struct service *s)
{
    for (unsigned i = 0; i < SERVICE_BOUND_COUNT; i++)
        share_init(&s->bounds.shares[i], find_limit(&s->options, (enum service_bound)i));
}

void service_free_bounds(struct service *s)
{
    for (size_t i = 0; i < SERVICE_BOUND_COUNT; i++)
        share_free(&s->bounds.shares[i]);
    free(s->bounds.notes);
}

/* Returns a free place for a note; NULL: the user had this event a moment ago, or too many are
 * noted. */
static struct bound_note *find_place(struct service *s, const char *name, uint32_t uid)
{
    struct bound_note *free_place = NULL;
    uint64_t now_ms = service_now(s);
    if (!s->bounds.notes)
        s->bounds.notes = calloc(MAX_NOTES, sizeof *s->bounds.notes);
    for (size_t i = 0; s->bounds.notes && i < MAX_NOTES; i++) {
        struct bound_note *note = &s->bounds.notes[i];
        if (note->until_ms <= now_ms)
            free_place = note;
        else if (note->uid == uid && strcmp(note->name, name) == 0)
            return NULL;
    }
    return free_place;
}

/* Has the event written at the end of the step. Returns false if the user had one a moment ago. */
static bool note(struct service *s, const char *name, const struct bound_note *note)
{
    struct bound_note *place = find_place(s, name, note->uid);
    if (!place)
        return false;
    *place = *note;
    snprintf(place->name, sizeof place->name, "%s", name);
    place->until_ms = service_now(s) + NOTE_MS;
    place->is_untold = true;
    s->step.has_notes = s->step.is_unsettled = true;
    return true;
}

void service_note_bound(struct service *s, const char *name, uint64_t store, uint32_t uid,
                        int error)
{
    struct bound_note met = {.uid = uid, .store = store, .is_share = error == -EDQUOT};
    if (note(s, name, &met))
        log_info("user %u met the bound on %s: %s", uid, name,
                 met.is_share ? "its share is taken, others are served"
                              : "all of it is taken (gmsfs(5), LIMITS)");
}

void service_note_over_quota(struct service *s, const struct core_store *store, uint32_t uid,
                             struct core_process process)
{
    const char *pool = core_find_pool(s->core, store)->name;
    struct bound_note met = {.uid = uid, .store = store->id, .process = process, .is_pool = true};
    if (note(s, pool, &met))
        log_info("user %u met the budget of the pool %s", uid, pool);
}

bool service_take_note(struct service *s, struct record *record)
{
    struct bound_note *note = s->bounds.notes;
    while (note && note < s->bounds.notes + MAX_NOTES && !note->is_untold)
        note++;
    if (!note || note == s->bounds.notes + MAX_NOTES)
        return false;
    note->is_untold = false;
    *record = (struct record){.type = note->is_pool ? RECORD_OVER_QUOTA : RECORD_BOUND,
                              .store = core_find_store(s->core, note->store) ? note->store : 0,
                              .uid = note->uid,
                              .process = note->process,
                              .name = note->name,
                              .name_bytes = strlen(note->name),
                              .flags = note->is_share ? CORE_BOUND_SHARE : 0};
    return true;
}

static int take(struct service *s, enum service_bound bound, uint64_t store, uint32_t uid,
                uint64_t more, bool looks)
{
    enum share_rank rank = core_get_rank(s->core, core_find_store(s->core, store), uid);
    int error = share_check(&s->bounds.shares[bound], uid, rank, more);
    if (error == -ENOSPC)
        error = service_bounds[bound].whole;
    if (error) {
        service_note_bound(s, service_bounds[bound].name, store, uid, error);
        return error;
    }
    error = share_take(&s->bounds.shares[bound], uid, more);
    if (error)
        return error;
    error = service_take_room(s, uid, looks, more * service_bounds[bound].room_bytes);
    if (error) {
        share_give(&s->bounds.shares[bound], uid, more);
        service_note_bound(s, core_bound_name(CORE_BOUND_MEMORY), store, uid, error);
    }
    return error;
}

int service_take(struct service *s, enum service_bound bound, uint64_t store, uint32_t uid,
                 uint64_t more)
{
    return take(s, bound, store, uid, more, service_bounds[bound].looks);
}

int service_take_beside_looks(struct service *s, enum service_bound bound, uint32_t uid,
                              uint64_t more)
{
    return take(s, bound, 0, uid, more, false);
}

int service_take_some(struct service *s, enum service_bound bound, uint64_t store, uint32_t uid,
                      uint64_t wanted, uint64_t least, uint64_t *taken)
{
    struct share *share = &s->bounds.shares[bound];
    enum share_rank rank = core_get_rank(s->core, core_find_store(s->core, store), uid);
    uint64_t some = share_get_room(share, uid, rank) / 2;
    if (some < least)
        some = least;
    *taken = wanted < some ? wanted : some;
    int error = share_take(share, uid, *taken);
    if (error) {
        *taken = 0;
        return error;
    }
    if (service_take_room(s, uid, service_bounds[bound].looks,
                          *taken * service_bounds[bound].room_bytes)) {
        uint64_t fewer = wanted < least ? wanted : least;
        share_give(share, uid, *taken - fewer);
        room_spend(s->host.room,
                   fewer * service_bounds[bound].room_bytes); /* even beyond the room */
        *taken = fewer;
    }
    return 0;
}

void service_give(struct service *s, enum service_bound bound, uint32_t uid, uint64_t less)
{
    if (less == 0)
        return;
    share_give(&s->bounds.shares[bound], uid, less);
    room_give(s->host.room, less * service_bounds[bound].room_bytes);
}

int service_charge(struct service *s, enum service_bound bound, uint32_t uid,
                   uint64_t *charged_bytes, uint64_t bytes)
{
    int error = 0;
    if (bytes > *charged_bytes)
        error = service_take(s, bound, 0, uid, bytes - *charged_bytes);
    else
        service_give(s, bound, uid, *charged_bytes - bytes);
    if (!error)
        *charged_bytes = bytes;
    return error;
}
