/* SPDX-License-Identifier: Apache-2.0 */
#include "fsm/lock_internal.h"

#include "base/array.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONTENT_BIT(content) (1u << (content))

/*
 * The admission. A new mode is a row here, and an entry in the wishes that can lead to it.
 * Exclusion is looked up from both sides, so a row names only its own exclusions.
 */
struct mode_rule {
    unsigned excludes;     /* modes that it cannot coexist with, in live sessions */
    unsigned gives_way_to; /* modes of patient waiters that go first */
    unsigned needs;        /* CONTENT_BITs, one of which the store must have; 0: anything */
    enum lock_state state; /* the store's state while such a session lives */
};

static const struct mode_rule mode_rules[] = {
    [LOCK_MODE_RO] = {.excludes = WRITERS,
                      .gives_way_to = WRITERS,
                      .needs = CONTENT_BIT(CONTENT_COMMITTED) | CONTENT_BIT(CONTENT_BARE),
                      .state = LOCK_STATE_RO},
    [LOCK_MODE_RW] = {.excludes = MODE_BIT(LOCK_MODE_RO) | WRITERS, .state = LOCK_STATE_RW},
    [LOCK_MODE_RW_DATA] = {.excludes = MODE_BIT(LOCK_MODE_RO) | WRITERS,
                           .needs = CONTENT_BIT(CONTENT_SEALED),
                           .state = LOCK_STATE_RW},
};

/* The mode that a wish means, by content: none, sealed, committed, bare. */
static const enum lock_mode wish_modes[][CONTENT_COUNT] = {
    [LOCK_WISH_RO] = {LOCK_MODE_RO, LOCK_MODE_RO, LOCK_MODE_RO, LOCK_MODE_RO},
    [LOCK_WISH_RW] = {LOCK_MODE_RW, LOCK_MODE_RW, LOCK_MODE_RW, LOCK_MODE_RW},
    [LOCK_WISH_AUTO] = {LOCK_MODE_RW, LOCK_MODE_RW, LOCK_MODE_RO, LOCK_MODE_RW},
    [LOCK_WISH_DATA] = {LOCK_MODE_RW, LOCK_MODE_RW_DATA, LOCK_MODE_RW, LOCK_MODE_RW},
};

_Static_assert(sizeof(mode_rules) / sizeof(mode_rules[0]) == LOCK_MODES, "each mode has a rule");

static bool modes_exclude(enum lock_mode a, enum lock_mode b)
{
    return (mode_rules[a].excludes & MODE_BIT(b)) || (mode_rules[b].excludes & MODE_BIT(a));
}

static enum content content_of(const struct lock *lock)
{
    if (lock->committed)
        return lock->bare ? CONTENT_BARE : CONTENT_COMMITTED;
    return lock->sealed ? CONTENT_SEALED : CONTENT_NONE;
}

enum lock_mode lock_get_wish_mode(const struct lock *lock, enum lock_wish wish)
{
    assert(wish >= LOCK_WISH_RO && (size_t)wish < LOCK_WISHES);
    return wish_modes[wish][content_of(lock)];
}

static unsigned held_modes(const struct lock *lock)
{
    unsigned held = 0;

    for (size_t mode = LOCK_MODE_RO; mode < LOCK_MODES; mode++)
        held |= lock->held[mode] > 0 ? MODE_BIT(mode) : 0;
    return held;
}

struct view lock_view_at(const struct lock *lock, uint64_t now_ms)
{
    struct view view = {.held = held_modes(lock),
                        .turn = lock->waiter_count,
                        .content = content_of(lock),
                        .closed = lock->closed};

    for (size_t i = 0; i < lock->waiter_count; i++) {
        const struct lock_waiter *waiter = &lock->waiters[i];

        if (!waiter_holds_off(waiter) || now_ms >= waiter_patience_end_ms(lock, waiter))
            continue;
        view.wanted |= MODE_BIT(waiter_mode(lock, waiter));
        if (i < view.turn && waiter_keeps_turn(lock, waiter))
            view.turn = i;
    }
    return view;
}

static bool mode_excluded_by(enum lock_mode mode, unsigned held)
{
    for (size_t other = LOCK_MODE_RO; other < LOCK_MODES; other++) {
        if ((held & MODE_BIT(other)) && modes_exclude(mode, (enum lock_mode)other))
            return true;
    }
    return false;
}

static bool content_fits(enum content content, enum lock_mode mode)
{
    return mode_rules[mode].needs == 0 || (mode_rules[mode].needs & CONTENT_BIT(content)) != 0;
}

bool lock_mode_fits(const struct view *view, enum lock_mode mode)
{
    const struct mode_rule *rule = &mode_rules[mode];

    if (view->closed || !content_fits(view->content, mode))
        return false;
    if (mode_excluded_by(mode, view->held))
        return false;
    return !(rule->gives_way_to & view->wanted);
}

unsigned lock_get_preferred(enum lock_mode mode)
{
    return mode_rules[mode].gives_way_to;
}

/* Returns the index of the first ready waiter at or after `from` that fits and has its turn;
 * waiter_count if none. */
static size_t find_fitting(const struct lock *lock, const struct view *view, size_t from)
{
    size_t i = from;

    while (i < view->turn && !(waiter_is_ready(&lock->waiters[i]) &&
                               lock_mode_fits(view, waiter_mode(lock, &lock->waiters[i]))))
        i++;
    return i < view->turn ? i : lock->waiter_count;
}

static size_t find_session_index(const struct lock *lock, uint64_t session_id)
{
    size_t i = 0;

    while (i < lock->session_count && lock->sessions[i].id != session_id)
        i++;
    return i;
}

static size_t find_waiter_index(const struct lock *lock, uint64_t waiter_id)
{
    size_t i = 0;

    while (i < lock->waiter_count && lock->waiters[i].id != waiter_id)
        i++;
    return i;
}

/* Makes room for one more session and for those of `waiters` waiters: a grant to a waiter needs no
 * memory. */
static int make_session_room(struct lock *lock, size_t waiters)
{
    return ARRAY_RESERVE(lock->sessions, lock->session_room, lock->session_count + waiters + 1);
}

/* Makes room for one more waiter and for its session. */
static int make_waiter_room(struct lock *lock)
{
    int error = ARRAY_RESERVE(lock->waiters, lock->waiter_room, lock->waiter_count + 1);

    return error ? error : make_session_room(lock, lock->waiter_count + 1);
}

static void restart_patience(struct lock *lock, uint64_t now_ms)
{
    for (size_t i = 0; i < lock->waiter_count; i++)
        lock->waiters[i].hold_since_ms = now_ms;
}

void lock_init(struct lock *lock, uint64_t patience_ms)
{
    memset(lock, 0, sizeof(*lock));
    lock->patience_ms = patience_ms;
}

void lock_free(struct lock *lock)
{
    free(lock->sessions);
    free(lock->waiters);
    memset(lock, 0, sizeof(*lock));
}

enum lock_state lock_get_state(const struct lock *lock)
{
    unsigned held = held_modes(lock);

    for (size_t mode = LOCK_MODES - 1; mode >= LOCK_MODE_RO; mode--) {
        if (held & MODE_BIT(mode))
            return mode_rules[mode].state;
    }
    if (lock->committed)
        return LOCK_STATE_COMMITTED;
    return lock->sealed ? LOCK_STATE_LAYOUT_COMMITTED : LOCK_STATE_EMPTY;
}

size_t lock_count_waiting_writers(const struct lock *lock)
{
    size_t count = 0;

    for (size_t i = 0; i < lock->waiter_count; i++) {
        const struct lock_waiter *waiter = &lock->waiters[i];

        if (waiter_counts(waiter) && waiter_wants_to_write(lock, waiter))
            count++;
    }
    return count;
}

enum lock_mode lock_would_grant(const struct lock *lock, enum lock_wish wish, uint64_t now_ms)
{
    struct view view = lock_view_at(lock, now_ms);
    enum lock_mode mode = lock_get_wish_mode(lock, wish);

    if (view.turn < lock->waiter_count || !lock_mode_fits(&view, mode))
        return LOCK_MODE_NONE;
    /* A request does not overtake a waiter that has just become grantable and that it would
     * exclude. A compatible waiter loses nothing: it is granted in the same round. */
    for (size_t i = find_fitting(lock, &view, 0); i < lock->waiter_count;
         i = find_fitting(lock, &view, i + 1)) {
        if (modes_exclude(mode, waiter_mode(lock, &lock->waiters[i])))
            return LOCK_MODE_NONE;
    }
    return mode;
}

int lock_reserve_session(struct lock *lock)
{
    return make_session_room(lock, lock->waiter_count);
}

int lock_add_session(struct lock *lock, uint64_t session_id, enum lock_mode mode)
{
    assert(mode > LOCK_MODE_NONE && (size_t)mode < LOCK_MODES);
    assert(!mode_excluded_by(mode, held_modes(lock)));
    assert(!lock_find_session(lock, session_id));
    if (lock->session_count >= LOCK_MAX_SESSIONS)
        return -ENOSPC;
    int error = make_session_room(lock, 0); /* a waiter has its room already */
    if (error)
        return error;
    lock->sessions[lock->session_count++] = (struct lock_session){.id = session_id, .mode = mode};
    lock->held[mode]++;
    lock->changed = true;
    return 0;
}

int lock_add_waiter(struct lock *lock, uint64_t waiter_id, enum lock_wish wish, uint64_t now_ms,
                    uint64_t deadline_ms)
{
    assert(wish >= LOCK_WISH_RO && (size_t)wish < LOCK_WISHES);
    assert(!lock_find_waiter(lock, waiter_id));
    if (lock->waiter_count >= LOCK_MAX_WAITERS)
        return -ENOSPC;
    int error = make_waiter_room(lock);
    if (error)
        return error;
    lock->waiters[lock->waiter_count++] = (struct lock_waiter){
        .id = waiter_id,
        .wish = wish,
        .since_ms = now_ms,
        .hold_since_ms = now_ms,
        .deadline_ms = deadline_ms,
    };
    lock->changed = true;
    return 0;
}

bool lock_next_grant(const struct lock *lock, uint64_t now_ms, uint64_t *waiter_id,
                     enum lock_mode *mode)
{
    struct view view = lock_view_at(lock, now_ms);
    size_t i = find_fitting(lock, &view, 0);

    /* At the bound on sessions the waiters keep waiting; only new requests get ENOSPC. */
    if (i == lock->waiter_count || lock->session_count >= LOCK_MAX_SESSIONS)
        return false;
    *waiter_id = lock->waiters[i].id;
    *mode = waiter_mode(lock, &lock->waiters[i]);
    return true;
}

int lock_remove_session(struct lock *lock, uint64_t session_id, uint64_t now_ms)
{
    size_t i = find_session_index(lock, session_id);

    if (i == lock->session_count)
        return -ENOENT;
    lock->held[lock->sessions[i].mode]--;
    lock->changed = true;
    lock->session_count--;
    memmove(&lock->sessions[i], &lock->sessions[i + 1],
            (lock->session_count - i) * sizeof(*lock->sessions));
    restart_patience(lock, now_ms);
    return 0;
}

int lock_commit(struct lock *lock, uint64_t session_id, enum lock_mode stay, uint64_t now_ms)
{
    size_t i = find_session_index(lock, session_id);

    if (i == lock->session_count)
        return -ENOENT;
    if (lock->sessions[i].mode != LOCK_MODE_RW || (stay != LOCK_MODE_NONE && stay != LOCK_MODE_RO))
        return -EINVAL;
    assert(!lock->sealed);
    lock->committed = true;
    lock->bare = false;
    lock->changed = true;
    if (stay == LOCK_MODE_NONE)
        return lock_remove_session(lock, session_id, now_ms);
    /* A writer that stays as a reader has released the writer's lock too. */
    lock->held[lock->sessions[i].mode]--;
    lock->held[stay]++;
    lock->sessions[i].mode = stay;
    restart_patience(lock, now_ms);
    return 0;
}

int lock_seal(struct lock *lock, uint64_t session_id)
{
    size_t i = find_session_index(lock, session_id);

    if (i == lock->session_count)
        return -ENOENT;
    if (lock->sessions[i].mode != LOCK_MODE_RW)
        return -EINVAL;
    lock->held[LOCK_MODE_RW]--;
    lock->held[LOCK_MODE_RW_DATA]++;
    lock->sessions[i].mode = LOCK_MODE_RW_DATA;
    lock->committed = false;
    lock->bare = false;
    lock->sealed = true;
    lock->changed = true;
    return 0;
}

void lock_set_committed(struct lock *lock, bool committed)
{
    assert(!committed || !lock->sealed);
    lock->committed = committed;
    lock->bare = false;
    lock->changed = true;
}

void lock_set_bare(struct lock *lock, bool bare)
{
    assert(!bare || lock->committed);
    lock->bare = bare;
    lock->changed = true;
}

void lock_set_sealed(struct lock *lock, bool sealed)
{
    assert(sealed ? !lock->committed : lock->held[LOCK_MODE_RW_DATA] == 0);
    lock->sealed = sealed;
    lock->changed = true;
}

void lock_set_closed(struct lock *lock, bool closed, uint64_t now_ms)
{
    if (lock->closed && !closed)
        restart_patience(lock, now_ms);
    lock->closed = closed;
    lock->changed = true;
}

int lock_remove_waiter(struct lock *lock, uint64_t waiter_id)
{
    size_t i = find_waiter_index(lock, waiter_id);

    if (i == lock->waiter_count)
        return -ENOENT;
    lock->changed = true;
    lock->waiter_count--;
    memmove(&lock->waiters[i], &lock->waiters[i + 1],
            (lock->waiter_count - i) * sizeof(*lock->waiters));
    return 0;
}

int lock_keep_place(struct lock *lock, uint64_t waiter_id, uint64_t kept_until_ms, bool looking)
{
    size_t i = find_waiter_index(lock, waiter_id);

    if (i == lock->waiter_count)
        return -ENOENT;
    /* 0 means "active"; a place kept until time 0 or 1 expires at the next check in any case. */
    lock->waiters[i].kept_until_ms = kept_until_ms ? kept_until_ms : 1;
    lock->changed = true;
    lock->waiters[i].looking = looking;
    if (!looking)
        lock->waiters[i].sleep = LOCK_AWAKE;
    return 0;
}

int lock_resume_place(struct lock *lock, uint64_t waiter_id, uint64_t deadline_ms)
{
    size_t i = find_waiter_index(lock, waiter_id);

    if (i == lock->waiter_count)
        return -ENOENT;
    lock->changed = true;
    lock->waiters[i].kept_until_ms = 0;
    lock->waiters[i].looking = false;
    lock->waiters[i].deadline_ms = deadline_ms;
    lock->waiters[i].sleep = LOCK_AWAKE;
    return 0;
}

int lock_set_sleep(struct lock *lock, uint64_t waiter_id, enum lock_sleep sleep)
{
    size_t i = find_waiter_index(lock, waiter_id);

    if (i == lock->waiter_count)
        return -ENOENT;
    assert(waiter_counts(&lock->waiters[i]));
    lock->changed = lock->changed || lock->waiters[i].sleep != sleep;
    lock->waiters[i].sleep = sleep;
    return 0;
}

bool lock_is_free_for(const struct lock *lock, uint64_t waiter_id)
{
    size_t i = find_waiter_index(lock, waiter_id);
    struct view view = {
        .held = held_modes(lock), .content = content_of(lock), .closed = lock->closed};

    return i < lock->waiter_count && waiter_counts(&lock->waiters[i]) &&
           lock_mode_fits(&view, waiter_mode(lock, &lock->waiters[i]));
}

int lock_restore_session(struct lock *lock, const struct lock_session *session)
{
    size_t count = lock->session_count;

    if (session->mode < LOCK_MODE_RO || (size_t)session->mode >= LOCK_MODES ||
        count >= LOCK_MAX_SESSIONS || lock->waiter_count > 0 ||
        (count > 0 && lock->sessions[count - 1].id >= session->id) ||
        !content_fits(content_of(lock), session->mode) ||
        (session->mode == LOCK_MODE_RW &&
         lock->sealed) || /* its grant has dropped the sealed layout */
        mode_excluded_by(session->mode, held_modes(lock)))
        return -EINVAL;
    int error = make_session_room(lock, 0);
    if (error)
        return error;
    lock->sessions[lock->session_count++] = *session;
    lock->held[session->mode]++;
    lock->changed = true;
    return 0;
}

int lock_restore_waiter(struct lock *lock, const struct lock_waiter *waiter)
{
    size_t count = lock->waiter_count;

    if (waiter->wish < LOCK_WISH_RO || (size_t)waiter->wish >= LOCK_WISHES || waiter->sleep ||
        count >= LOCK_MAX_WAITERS || (count > 0 && lock->waiters[count - 1].id >= waiter->id) ||
        (waiter->looking && waiter_is_active(waiter)))
        return -EINVAL;
    int error = make_waiter_room(lock);
    if (error)
        return error;
    lock->waiters[lock->waiter_count++] = *waiter;
    lock->changed = true;
    return 0;
}

const struct lock_waiter *lock_find_waiter(const struct lock *lock, uint64_t waiter_id)
{
    size_t i = find_waiter_index(lock, waiter_id);

    return i == lock->waiter_count ? NULL : &lock->waiters[i];
}

const struct lock_session *lock_find_session(const struct lock *lock, uint64_t session_id)
{
    size_t i = find_session_index(lock, session_id);

    return i == lock->session_count ? NULL : &lock->sessions[i];
}
