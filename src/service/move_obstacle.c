/* SPDX-License-Identifier: Apache-2.0 */
#include "service/move_obstacle.h"

#include "base/size.h"
#include "service/evict_table.h"
#include "service/move.h"
#include "service/moves.h"
#include "service/views.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define HOLDER_BYTES 64u
#define STAYS_MAX    3u
#define STRANGER     "another process"

/* Appends to the text, as far as there is room. */
__attribute__((format(printf, 2, 3))) static void tell(struct move_obstacle *out,
                                                       const char *format, ...)
{
    size_t used = strlen(out->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out->text + used, sizeof out->text - used, format, arguments);
    va_end(arguments);
}

/* ---- holders --------------------------------------------------------------------------------- */

static bool name_session(const struct core *core, const struct core_store *store,
                         char holder[HOLDER_BYTES])
{
    size_t count = store->lock.session_count;
    const struct core_session *first =
        count > 0 ? core_find_session(core, store->lock.sessions[0].id) : NULL;
    char more[HOLDER_BYTES / 2] = "";
    if (first && count > 1)
        snprintf(more, sizeof more, " and %zu more", count - 1);
    if (first)
        snprintf(holder, HOLDER_BYTES, "%.16s (pid %" PRIu64 ")%s", first->comm, first->owner.pid,
                 more);
    return first != NULL;
}

static bool name_waiter(const struct core *core, const struct core_store *store,
                        char holder[HOLDER_BYTES])
{
    for (size_t i = 0; i < store->lock.waiter_count; i++) {
        const struct core_waiter *waiter = core_find_waiter(core, store->lock.waiters[i].id);
        if (!waiter || !core_waiter_counts(waiter))
            continue;
        snprintf(holder, HOLDER_BYTES, "%.16s (pid %" PRIu64 ")", waiter->comm, waiter->owner.pid);
        return true;
    }
    return false;
}

/* Returns true if every reader of `store` (the text is for them) may read `other` as well. */
static bool is_seen(const struct core_store *store, const struct core_store *other)
{
    const uint32_t all = S_IRUSR | S_IRGRP | S_IROTH;
    if (store->mode & S_IROTH || other->uid != store->uid ||
        (store->mode & S_IRGRP && other->gid != store->gid))
        return (other->mode & all) == all;
    return !(store->mode & ~other->mode & all);
}

/* ---- stores that stay on the device ---------------------------------------------------------- */

static bool has_nowhere_to_go(const struct service *s, const struct core_store *store)
{
    bool has_spare = store->places.spares[CORE_PLACE_HOST] || store->places.spares[CORE_PLACE_DISK];
    return !has_spare && !service_is_scratch(store) &&
           store->use.used_bytes > service_get_room_beside(s, CORE_PLACE_HOST) &&
           store->use.used_bytes > service_get_room_beside(s, CORE_PLACE_DISK);
}

/* The order is that in which evict.h rules stores out. */
static void tell_reason(const struct service *s, const struct core_store *wanted,
                        const struct core_store *store, struct move_obstacle *out)
{
    const struct core_pool *pool = core_find_pool(s->core, store);
    const struct core_pool *own = core_find_pool(s->core, wanted);
    uint64_t until_ms = store->places.promoted_ms + s->options.min_stay_ms, now_ms = service_now(s);
    bool is_named = is_seen(wanted, store);
    const char *of = is_named ? " " : "", *pool_name = is_named ? pool->name : "";
    char holder[HOLDER_BYTES];
    if ((core_is_held(store) || core_get_writer(s->core, store->id)) &&
        name_session(s->core, store, holder))
        tell(out, "is held by %s ('gmsfs drain' asks for it)", is_named ? holder : STRANGER);
    else if (store->use.pinned)
        tell(out, "is pinned ('setfattr -x user.gmsfs.pin' unpins it)");
    else if (core_is_fenced(s->core, store->name))
        tell(out, "is fenced for a checkpoint ('gmsfs fence --status')");
    else if (store->places.move.id != 0)
        tell(out, "is being moved or copied: try again when that has ended");
    else if (name_waiter(s->core, store, holder))
        tell(out, "is waited for by %s", is_named ? holder : STRANGER);
    else if (store->places.promoted_ms > 0 && until_ms > now_ms)
        tell(out, "came a moment ago and stays for %.1f s more (min_stay= of the mount)",
             (double)(until_ms - now_ms) / 1000);
    else if (pool->class > own->class)
        tell(out, "is more important (class= of its pool%s%s)", of, pool_name);
    else if (pool != own && pool->used_bytes < pool->min_bytes + store->use.used_bytes)
        tell(out, "is within the guaranteed bytes of its pool%s%s (min=)", of, pool_name);
    else if (has_nowhere_to_go(s, store))
        tell(out, "has no place to go: host_size= and spill_size= of the mount are used up");
    else
        tell(out, "did not leave ('events' in the mount may tell why)");
}

/* Finds the largest stores on the device. pool NULL: of all pools. Returns how many there are. */
static size_t find_largest(const struct service *s, const struct core_store *wanted,
                           const struct core_pool *pool, const struct core_store *top[STAYS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < s->core->stores.count; i++) {
        const struct core_store *store = s->core->stores.items[i];
        if (store == wanted || store->use.used_bytes == 0 ||
            (pool && core_find_pool(s->core, store) != pool))
            continue;
        size_t at = count < STAYS_MAX ? count : STAYS_MAX;
        for (; at > 0 && top[at - 1]->use.used_bytes < store->use.used_bytes; at--) {
            if (at < STAYS_MAX)
                top[at] = top[at - 1];
        }
        if (at < STAYS_MAX)
            top[at] = store;
        count++;
    }
    return count;
}

static void tell_stays(const struct service *s, const struct core_store *wanted,
                       const struct core_pool *pool, struct move_obstacle *out)
{
    const struct core_store *top[STAYS_MAX];
    size_t all = find_largest(s, wanted, pool, top), count = all < STAYS_MAX ? all : STAYS_MAX;
    char size[SIZE_TEXT_BYTES];
    for (size_t i = 0; i < count; i++) {
        tell(out, "; %s (%s) ", top[i]->name, size_format(top[i]->use.used_bytes, size));
        tell_reason(s, wanted, top[i], out);
    }
    if (all > count)
        tell(out, "; and %zu smaller store%s", all - count, all - count == 1 ? "" : "s");
    tell(out, "; 'gmsfs demote' moves a store by order, or says why not");
}

/* ---- refused orders -------------------------------------------------------------------------- */

static void tell_busy(const struct service *s, const struct core_store *store,
                      struct move_obstacle *out)
{
    char holder[HOLDER_BYTES];
    if (core_is_fenced(s->core, store->name) || store->places.move.id != 0 ||
        !name_session(s->core, store, holder))
        return; /* `info` tells that it is fenced, or moves */
    if (core_get_writer(s->core, store->id))
        tell(out, "its writer, %s, has its lock; it can move after the commit", holder);
    else
        tell(out,
             "its lock is held by %s; it can move when the lock is free: 'gmsfs drain --then "
             "demote' asks the holder to leave, and then moves it",
             holder);
}

static const struct core_store *find_leaving(const struct core *core)
{
    for (size_t i = 0; i < core->stores.count; i++) {
        if (evict_table_is_leaving(core->stores.items[i]))
            return core->stores.items[i];
    }
    return NULL;
}

static void tell_turn(const struct service *s, const struct core_store *store,
                      struct move_obstacle *out)
{
    const struct core_store *ahead = service_get_ahead(s, store);
    const struct core_store *leaving = find_leaving(s->core);
    char holder[HOLDER_BYTES] = STRANGER;
    if (ahead) {
        if (is_seen(store, ahead) && !name_waiter(s->core, ahead, holder))
            name_session(s->core, ahead, holder);
        tell(out,
             "%s is ahead in the queue for device memory, for %s; 'gmsfs status' shows the holders",
             holder, ahead->name);
    } else if (leaving) {
        tell(out,
             "room is still being made for it: %s is leaving the device; give it more time "
             "(--timeout)",
             leaving->name);
    } else {
        tell(out, "device memory was being given to another request; try again");
    }
}

static void tell_budget(const struct service *s, const struct core_store *store,
                        struct move_obstacle *out)
{
    const struct core_pool *pool = core_find_pool(s->core, store);
    uint64_t bytes = layout_total_bytes(store->fixed);
    uint64_t taken_bytes = pool->used_bytes + pool->coming_bytes;
    uint64_t free_bytes = taken_bytes < pool->max_bytes ? pool->max_bytes - taken_bytes : 0;
    char needed[SIZE_TEXT_BYTES], left[SIZE_TEXT_BYTES], all[SIZE_TEXT_BYTES];
    size_format_apart(
        (struct size_text[]){{bytes, needed}, {free_bytes, left}, {pool->max_bytes, all}}, 3);
    if (bytes > pool->max_bytes) {
        tell(out, "it never fits: it has %s, and its pool %s may have %s of the device (max=)",
             needed, pool->name, all);
    } else if (core_check_room(s->core, store, bytes, UINT64_MAX) == 0) {
        tell(out,
             "it needs %s, and the free bytes are kept for other pools, which do not use all of "
             "their guaranteed bytes (min= in 'pools')",
             size_format(bytes, needed));
        return;
    } else if (bytes > free_bytes) {
        tell(out,
             "its pool %s has no room for it: it needs %s, and %s of the pool's %s are free "
             "(max=)",
             pool->name, needed, left, all);
        tell_stays(s, store, pool, out);
    } else {
        tell(out, "its pool %s has slots=%" PRIu64 " on the device, and all are taken", pool->name,
             pool->slots);
        tell_stays(s, store, pool, out);
    }
    tell(out, "; a line '%s max=SIZE slots=N' to 'pools' gives it more", pool->name);
}

static const struct {
    const char *noun, *option, *elsewhere, *way_out;
} beside[CORE_TIER_COUNT] = {
    [CORE_PLACE_DEVICE] = {"device", "", "", ""},
    [CORE_PLACE_HOST] = {"host memory beside the device", "host_size=SIZE", "disk", "disk"},
    [CORE_PLACE_DISK] = {"disk beside the device", "spill=DIRECTORY,spill_size=SIZE", "host",
                         "none"},
};

static void tell_room(const struct service *s, const struct core_store *store, enum core_place to,
                      struct move_obstacle *out)
{
    enum vmm_tier tier = service_tiers[to];
    bool of_device = to == CORE_PLACE_DEVICE, has_tier = vmm_has_tier(s->vmm, tier);
    uint64_t bytes = layout_total_bytes(store->fixed);
    uint64_t all_bytes = has_tier ? vmm_get_total_in(s->vmm, tier) : 0;
    uint64_t free_bytes = !has_tier   ? 0
                          : of_device ? vmm_get_free(s->vmm)
                                      : vmm_get_free_in(s->vmm, tier);
    char needed[SIZE_TEXT_BYTES], left[SIZE_TEXT_BYTES], all[SIZE_TEXT_BYTES];
    size_format_apart((struct size_text[]){{bytes, needed}, {free_bytes, left}, {all_bytes, all}},
                      3);
    if (!has_tier) {
        tell(out, "the mount has no %s; mount it with %s (gmsfs-mount(8))", beside[to].noun,
             beside[to].option);
    } else if (bytes > all_bytes) {
        tell(out, "it never fits: it has %s, and the %s %s in all", needed, beside[to].noun, all);
        if (!of_device)
            tell(out, "; mount with more (%s), or move it elsewhere ('--to %s')", beside[to].option,
                 beside[to].elsewhere);
    } else if (bytes <= free_bytes) {
        tell(out,
             "the free bytes of the %s are promised to other moves, or the daemon itself was "
             "short of memory; try again",
             beside[to].noun);
    } else {
        tell(out, "the %s has no room for it: it needs %s, and %s of %s are free", beside[to].noun,
             needed, left, all);
        if (!of_device)
            tell(out,
                 "; move others from there ('gmsfs demote --to %s', 'gmsfs promote'), or "
                 "mount with more (%s)",
                 beside[to].way_out, beside[to].option);
        else if (s->options.evicts)
            tell_stays(s, store, NULL, out);
        else
            tell(out, "; nothing leaves by itself here (evict=none): 'gmsfs demote' makes room");
    }
}

void service_find_obstacle(const struct service *s, const struct core_store *store,
                           enum core_place to, int error, struct move_obstacle *out)
{
    *out = (struct move_obstacle){0};
    if (error == -EBUSY)
        tell_busy(s, store, out);
    else if (error == -EAGAIN)
        tell_turn(s, store, out);
    else if (error == -ENODATA)
        tell(out, store->lock.committed
                      ? "there are no bytes of it: they were given up; 'gmsfs load' brings them"
                      : "nothing is committed in it; 'gmsfs load' fills it");
    else if (error == -EINVAL && service_is_scratch(store))
        tell(out, "it is memory of CUDA graphs, which is never copied; 'gmsfs demote --to none' "
                  "gives it up, and the next wake makes it anew");
    else if (error == -EDQUOT && store->fixed)
        tell_budget(s, store, out);
    else if (error == -ENOMEM && store->fixed && to < CORE_TIER_COUNT)
        tell_room(s, store, to, out);
}

/* ---- moves that have ended ------------------------------------------------------------------- */

static const char *find_failure(int error, enum core_place to)
{
    switch (error) {
    case ENOMEM:
        if (to == CORE_PLACE_DEVICE)
            return "the device itself is short of memory that gmsfs counts as free: other "
                   "programs have it ('other_bytes' in 'device'); it fits once they free it";
        return to == CORE_PLACE_HOST
                   ? "the machine, or the daemon's cgroup, is short of the memory that "
                     "host_size= promises: free some, raise the limit (MemoryMax=), or mount with "
                     "a smaller host_size="
                   : "the daemon, or the machine, is short of memory; free some, or raise the "
                     "daemon's limit (MemoryMax=)";
    case ENFILE:
        return "the daemon may open no more files, of which each allocation takes one; raise its "
               "limit and mount anew (LimitNOFILE= of its unit, or 'ulimit -Hn' before the mount)";
    case ENOSPC:
    case EDQUOT:
        return "the disk of spill= is full, though spill_size= is not reached; free some of it, or "
               "mount with another directory, or a smaller spill_size=";
    case ECANCELED:
        return "it was cancelled: by 'cancel' to 'residency', or by a writer that came";
    case ENODEV:
        return "the device was lost; 'device' in the mount tells";
    case EIO:
        return "its bytes could not be copied: an error of the GPU or the disk, of which the "
               "kernel's log and 'device' in the mount tell";
    default:
        return "see 'events' in the mount";
    }
}

static bool ends_move(enum core_event_type type)
{
    return type == CORE_EVENT_MOVE_FAILED || type == CORE_EVENT_COPIED ||
           type == CORE_EVENT_PROMOTED || type == CORE_EVENT_DEMOTED || type == CORE_EVENT_HEALED;
}

/* Returns the first event since then that ended a move of the store; NULL if none is remembered, or
 * if the store was renamed since then: events name stores, and another store may have had the
 * name. */
static const struct core_event *find_end(const struct core *core, const struct core_store *store,
                                         uint64_t event)
{
    const struct core_event *end = NULL;
    if (event < core_first_event(core))
        return NULL;
    for (; event < core->next_event; event++) {
        const struct core_event *next = core_find_event(core, event);
        if (!next || strcmp(next->store, store->name) != 0)
            continue;
        if (next->type == CORE_EVENT_STORE_RENAMED)
            return NULL;
        if (!end && ends_move(next->type))
            end = next;
    }
    return end;
}

void service_find_move_end(const struct service *s, const struct core_store *store,
                           enum core_place to, uint64_t event, struct move_obstacle *out)
{
    const struct core_event *end = find_end(s->core, store, event);
    char holder[HOLDER_BYTES] = STRANGER;
    *out = (struct move_obstacle){0};
    if (end && end->type == CORE_EVENT_MOVE_FAILED) {
        const char *name = strerrorname_np((int)end->error);
        tell(out, "the move failed (%s): %s", name ? name : "?", find_failure((int)end->error, to));
    } else if (end && end->tier != (uint32_t)to) {
        tell(out, "another order moved it elsewhere meanwhile ('events' in the mount tells)");
    } else if (end && end->type == CORE_EVENT_COPIED) {
        name_session(s->core, store, holder);
        tell(out,
             "%s took it meanwhile; the copy stays as a spare, so a later demotion takes no "
             "time: try again when its lock is free",
             holder);
    }
}
