/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock_walk - walks a lock, sound or broken, through everything that can happen to it
 *
 * For test_lock_states.c, which includes it once. It does to the lock what the processes, the
 * clock and the daemon would do, writes down the facts, has each deed judged by lock_laws.h, and
 * remembers the states that it has seen.
 *
 * States are equal if no later event can tell them apart: times count relative to now, exhausted
 * patience and passed deadlines count as such, and processes are interchangeable (the lock sees ids
 * alone, and never the same one twice). That makes the space finite. A clock
 * tick and the daemon's timer are events of their own, so timers that come late are explored too.
 */
#ifndef GMSFS_TESTS_UNIT_LOCK_WALK_H
#define GMSFS_TESTS_UNIT_LOCK_WALK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsm/lock.h"
#include "lock_laws.h"
#include "tap.h"

#define START      100u
#define MAX_STATES (1u << 20)
#define MAX_SLOTS  (1u << 21) /* of the hash table: a power of two */
#define MAX_ROUNDS 8          /* of a drain: more than waiters; a broken lock may go on for ever */

/* ---- the lock under test, sound or broken -------------------------------------------------- */

struct rules {
    enum lock_mode (*would_grant)(const struct lock *, enum lock_wish, uint64_t);
    bool (*next_grant)(const struct lock *, uint64_t, uint64_t *, enum lock_mode *);
    int (*add_session)(struct lock *, uint64_t, enum lock_mode);
    int (*remove_session)(struct lock *, uint64_t, uint64_t);
    int (*commit)(struct lock *, uint64_t, enum lock_mode, uint64_t);
    int (*seal)(struct lock *, uint64_t);
    int (*keep_place)(struct lock *, uint64_t, uint64_t, bool);
    int (*resume_place)(struct lock *, uint64_t, uint64_t);
    int (*set_sleep)(struct lock *, uint64_t, enum lock_sleep);
    void (*set_closed)(struct lock *, bool, uint64_t);
    bool (*next_expired)(const struct lock *, uint64_t, uint64_t *, bool *);
    uint64_t (*next_moment)(const struct lock *, uint64_t);
    size_t (*count_writers)(const struct lock *);
    enum lock_state (*get_state)(const struct lock *);
};

static const struct rules sound = {
    .would_grant = lock_would_grant,
    .next_grant = lock_next_grant,
    .add_session = lock_add_session,
    .remove_session = lock_remove_session,
    .commit = lock_commit,
    .seal = lock_seal,
    .keep_place = lock_keep_place,
    .resume_place = lock_resume_place,
    .set_sleep = lock_set_sleep,
    .set_closed = lock_set_closed,
    .next_expired = lock_next_expired,
    .next_moment = lock_next_moment,
    .count_writers = lock_count_waiting_writers,
    .get_state = lock_get_state,
};

/* ---- one step ------------------------------------------------------------------------------ */

/* A state as it is kept: the facts, and the lock's own memory. */
struct node {
    struct facts facts;
    struct lock_session sessions[PROCS];
    struct lock_waiter waiters[PROCS];
    uint8_t session_count, waiter_count;
    uint8_t event;   /* the event that led here */
    uint32_t parent; /* from where */
};

struct walk {
    const struct rules *rules;
    struct lock lock;
    struct facts facts;
    unsigned broken;    /* laws, a bit each */
    unsigned rows_seen; /* of the state table */
    uint64_t deeds;
};

static enum role role_of(enum lock_mode mode)
{
    return mode == LOCK_MODE_RW ? WRITES : mode == LOCK_MODE_RW_DATA ? FILLS : READS;
}

/* Finds each process's new role in the lock. */
static void observe(struct walk *walk)
{
    for (int i = 0; i < PROCS; i++) {
        struct proc *p = &walk->facts.procs[i];
        const struct lock_session *session = lock_find_session(&walk->lock, p->session);
        const struct lock_waiter *waiter = lock_find_waiter(&walk->lock, p->came);

        p->role = IDLE;
        if (session)
            p->role = role_of(session->mode);
        else if (waiter)
            p->role = waiter->looking                        ? LOOKS
                      : waiter->kept_until_ms                ? AWAY
                      : waiter->sleep == LOCK_ASLEEP         ? SLEEPS
                      : waiter->sleep == LOCK_ASLEEP_IN_TURN ? STANDS
                                                             : WAITS;
    }
    walk->facts.committed = walk->lock.committed;
    walk->facts.sealed = walk->lock.sealed;
    walk->facts.closed = walk->lock.closed;
    walk->facts.state = walk->rules->get_state(&walk->lock);
}

/* Judges the deed just done to the lock. */
static void judge(struct walk *walk, struct move move, const struct facts *before)
{
    observe(walk);
    move.before = before;
    move.after = &walk->facts;
    if (move.deed == SETTLE) {
        move.moment = walk->rules->next_moment(&walk->lock, walk->facts.now);
        move.writers = walk->rules->count_writers(&walk->lock);
    }
    walk->deeds++;
    for (unsigned i = 0; i < LAW_COUNT; i++) {
        if (!laws[i].holds(&move))
            walk->broken |= 1u << i;
    }
    if (find_row(&move) < ROW_COUNT)
        walk->rows_seen |= 1u << find_row(&move);
}

static void enter(struct walk *walk, int proc, enum lock_mode mode, const struct facts *before)
{
    struct proc *p = &walk->facts.procs[proc];

    p->session = ++walk->facts.serial;
    walk->rules->add_session(&walk->lock, p->session, mode);
    /* As the core does; a broken lock may have let it in beside an RW_DATA session. */
    if (mode == LOCK_MODE_RW && count(before, FILLS) == 0)
        lock_set_sealed(&walk->lock, false);
    judge(walk, (struct move){.deed = ENTER, .proc = proc}, before);
}

static int find_waiting_proc(const struct walk *walk, uint64_t waiter_id)
{
    int proc = 0;

    while (proc < PROCS - 1 && walk->facts.procs[proc].came != waiter_id)
        proc++;
    return proc;
}

static void settle(struct walk *walk)
{
    struct facts before;
    enum lock_mode mode;
    uint64_t id;

    for (int i = 0; i < MAX_ROUNDS; i++) {
        before = walk->facts;
        if (!walk->rules->next_grant(&walk->lock, walk->facts.now, &id, &mode))
            break;
        lock_remove_waiter(&walk->lock, id);
        enter(walk, find_waiting_proc(walk, id), mode, &before);
    }
    before = walk->facts;
    judge(walk, (struct move){.deed = SETTLE}, &before);
}

enum asking {
    TRY,
    TIMED,
    PATIENTLY,
    ASKINGS,
};

static void request(struct walk *walk, int proc, enum lock_wish wish, enum asking how)
{
    struct facts before = walk->facts;
    struct facts *facts = &walk->facts;
    struct proc *p = &facts->procs[proc];
    enum lock_mode mode = walk->rules->would_grant(&walk->lock, wish, facts->now);

    *p = (struct proc){.wish = wish, .asked = facts->now};
    if (mode != LOCK_MODE_NONE) {
        enter(walk, proc, mode, &before);
    } else if (how == TRY) {
        judge(walk, (struct move){.deed = REFUSED, .proc = proc}, &before);
    } else {
        p->came = ++facts->serial;
        p->deadline = how == TIMED ? facts->now + TIMEOUT : LOCK_FOREVER;
        lock_add_waiter(&walk->lock, p->came, wish, facts->now, p->deadline);
        judge(walk, (struct move){.deed = QUEUED, .proc = proc}, &before);
    }
}

/* A request that lacks more than the lock: it waits, also where the lock is free. */
static void doze(struct walk *walk, int proc, enum deed deed, enum lock_wish wish, enum asking how)
{
    struct facts before = walk->facts;
    struct facts *facts = &walk->facts;
    struct proc *p = &facts->procs[proc];

    *p = (struct proc){.wish = wish, .asked = facts->now, .came = ++facts->serial};
    p->deadline = how == TIMED ? facts->now + TIMEOUT : LOCK_FOREVER;
    lock_add_waiter(&walk->lock, p->came, wish, facts->now, p->deadline);
    walk->rules->set_sleep(&walk->lock, p->came, deed == DOZE ? LOCK_ASLEEP : LOCK_ASLEEP_IN_TURN);
    judge(walk, (struct move){.deed = deed, .proc = proc}, &before);
}

/* A session seals, or ends in each of its ways. */
static void use_session(struct walk *walk, int proc, enum deed deed)
{
    struct facts before = walk->facts;
    uint64_t id = walk->facts.procs[proc].session, now = walk->facts.now;
    enum lock_mode stay = deed == STAY ? LOCK_MODE_RO : LOCK_MODE_NONE;
    int error = 0;

    if (deed != SEAL && !is_denied(walk->facts.procs[proc].role, deed))
        walk->facts.released = now;
    if (deed == WIPE)
        lock_set_committed(&walk->lock, false);
    if (deed == SEAL)
        error = walk->rules->seal(&walk->lock, id);
    else if (deed == COMMIT || deed == STAY)
        error = walk->rules->commit(&walk->lock, id, stay, now);
    else
        walk->rules->remove_session(&walk->lock, id, now);
    judge(walk, (struct move){.deed = deed, .proc = proc, .refused = error != 0}, &before);
}

static void disturb_waiter(struct walk *walk, int proc, enum deed deed, enum asking how)
{
    struct facts before = walk->facts;
    struct proc *p = &walk->facts.procs[proc];

    if (deed == FORGET) {
        lock_remove_waiter(&walk->lock, p->came);
    } else if (deed == LEAVE || deed == LOOK) {
        p->until = walk->facts.now + KEPT;
        walk->rules->keep_place(&walk->lock, p->came, p->until, deed == LOOK);
    } else if (deed == SLEEP || deed == STAND || deed == WAKE) {
        walk->rules->set_sleep(&walk->lock, p->came,
                               deed == SLEEP   ? LOCK_ASLEEP
                               : deed == STAND ? LOCK_ASLEEP_IN_TURN
                                               : LOCK_AWAKE);
    } else {
        p->deadline = how == TIMED ? walk->facts.now + TIMEOUT : LOCK_FOREVER;
        walk->rules->resume_place(&walk->lock, p->came, p->deadline);
    }
    judge(walk, (struct move){.deed = deed, .proc = proc}, &before);
}

static void ring_timer(struct walk *walk)
{
    struct facts before = walk->facts;
    uint64_t id;
    bool was_kept;

    for (int i = 0; i < MAX_ROUNDS; i++) {
        if (!walk->rules->next_expired(&walk->lock, walk->facts.now, &id, &was_kept))
            break;
        lock_remove_waiter(&walk->lock, id);
        judge(walk,
              (struct move){
                  .deed = EXPIRE, .proc = find_waiting_proc(walk, id), .was_kept = was_kept},
              &before);
        before = walk->facts;
    }
    judge(walk, (struct move){.deed = RANG}, &before);
}

/* A drain is explored with two processes at a time, to keep the space small: the third comes and
 * goes before or after it. */
static bool would_crowd(const struct walk *walk, int more)
{
    bool drains = more ? walk->facts.closed : !walk->facts.closed;

    return drains && count(&walk->facts, IDLE) - more < 1;
}

static void drain_or_serve(struct walk *walk)
{
    struct facts before = walk->facts;
    bool close = !walk->facts.closed;

    if (!close)
        walk->facts.released = walk->facts.now;
    walk->rules->set_closed(&walk->lock, close, walk->facts.now);
    judge(walk, (struct move){.deed = close ? CLOSE : OPEN}, &before);
}

/* ---- events: all that can happen next ------------------------------------------------------ */

struct happening {
    enum role role;      /* in which a process can do it */
    enum deed deed;      /* QUEUED: a request, however it ends */
    enum lock_wish wish; /* of a request, or of the waiter that can do it; 0 for any */
    enum asking how;
};

static const struct happening happenings[] = {
    {IDLE, QUEUED, LOCK_WISH_RO, TRY},
    {IDLE, QUEUED, LOCK_WISH_RO, TIMED},
    {IDLE, QUEUED, LOCK_WISH_RW, TRY},
    {IDLE, QUEUED, LOCK_WISH_RW, TIMED},
    {IDLE, QUEUED, LOCK_WISH_AUTO, TRY},
    {IDLE, QUEUED, LOCK_WISH_AUTO, TIMED},
    {IDLE, QUEUED, LOCK_WISH_DATA, TRY},
    {IDLE, QUEUED, LOCK_WISH_DATA, TIMED},
    {IDLE, QUEUED, LOCK_WISH_RO, PATIENTLY},
    {IDLE, QUEUED, LOCK_WISH_RW, PATIENTLY},
    {IDLE, QUEUED, LOCK_WISH_AUTO, PATIENTLY},
    {IDLE, QUEUED, LOCK_WISH_DATA, PATIENTLY},
    {IDLE, DOZE, LOCK_WISH_RO, PATIENTLY},
    {IDLE, DOZE, LOCK_WISH_RW, PATIENTLY},
    {IDLE, DOZE, LOCK_WISH_AUTO, PATIENTLY},
    {IDLE, DOZE, LOCK_WISH_DATA, PATIENTLY},
    {IDLE, DOZE, LOCK_WISH_RW, TIMED},
    {IDLE, STAND, LOCK_WISH_DATA, PATIENTLY},
    {IDLE, STAND, LOCK_WISH_DATA, TIMED},
    {READS, RELEASE, 0, 0},
    {WRITES, RELEASE, 0, 0},
    {WRITES, WIPE, 0, 0},
    {WRITES, COMMIT, 0, 0},
    {WRITES, STAY, 0, 0},
    {WRITES, SEAL, 0, 0},
    {FILLS, RELEASE, 0, 0},
    {FILLS, COMMIT, 0, 0},
    {FILLS, STAY, 0, 0},
    {FILLS, SEAL, 0, 0},
    {WAITS, LEAVE, 0, 0},
    {WAITS, LOOK, 0, 0},
    {WAITS, FORGET, 0, 0},
    {WAITS, SLEEP, 0, 0},
    {WAITS, STAND, LOCK_WISH_DATA, 0},
    {SLEEPS, WAKE, 0, 0},
    {SLEEPS, LEAVE, 0, 0},
    {SLEEPS, FORGET, 0, 0},
    {STANDS, WAKE, 0, 0},
    {STANDS, LEAVE, 0, 0},
    {STANDS, FORGET, 0, 0},
    {AWAY, RETURN, 0, TIMED},
    {AWAY, RETURN, 0, PATIENTLY},
    {AWAY, FORGET, 0, 0},
    {LOOKS, RETURN, 0, TIMED},
    {LOOKS, FORGET, 0, 0},
};

#define HAPPENING_COUNT ((int)(sizeof(happenings) / sizeof(happenings[0])))
/* An event is a number: process * HAPPENING_COUNT + happening; then these three. */
#define EVENT_TICK  (PROCS * HAPPENING_COUNT)
#define EVENT_TIMER (EVENT_TICK + 1)
#define EVENT_DRAIN (EVENT_TIMER + 1)
#define EVENT_COUNT (EVENT_DRAIN + 1)

static const char *const event_names[] = {"the clock ticks", "the timer rings",
                                          "a drain begins or ends"};

/* Returns false if the event cannot happen here. */
static bool happen(struct walk *walk, int event)
{
    const struct happening *happening = &happenings[event % HAPPENING_COUNT];
    int proc = event / HAPPENING_COUNT;
    struct facts before = walk->facts;

    if (event == EVENT_TICK) {
        walk->facts.now++;
        judge(walk, (struct move){.deed = TICK}, &before);
        return true;
    }
    if (event == EVENT_TIMER)
        ring_timer(walk);
    else if (event == EVENT_DRAIN ? would_crowd(walk, 0)
                                  : happening->role == IDLE && would_crowd(walk, 1))
        return false;
    else if (event == EVENT_DRAIN)
        drain_or_serve(walk);
    else if (walk->facts.procs[proc].role != happening->role)
        return false;
    else if (happening->role != IDLE && happening->wish &&
             walk->facts.procs[proc].wish != happening->wish)
        return false;
    else if (happening->role == IDLE && happening->deed != QUEUED)
        doze(walk, proc, happening->deed, happening->wish, happening->how);
    else if (happening->role == IDLE)
        request(walk, proc, happening->wish, happening->how);
    else if (happening->role == READS || is_writer(happening->role))
        use_session(walk, proc, happening->deed);
    else
        disturb_waiter(walk, proc, happening->deed, happening->how);
    settle(walk);
    return true;
}

/* ---- equal states -------------------------------------------------------------------------- */

/* 0: never; 1: passed; else how far away. */
static uint64_t until(uint64_t moment, uint64_t now)
{
    if (moment == LOCK_FOREVER)
        return 0;
    return moment <= now ? 1 : 1 + moment - now;
}

static uint64_t age(uint64_t since, uint64_t now)
{
    return now - since < PATIENCE ? now - since : PATIENCE;
}

static uint64_t pack(uint64_t packed, uint64_t value)
{
    return packed << 3 | value; /* every value here is below 8 */
}

static uint64_t pack_proc(const struct facts *facts, const struct proc *p)
{
    uint64_t packed = p->role, rank = 0; /* the first: it may take a bit more */

    if (p->role < WAITS)
        return packed;
    for (int i = 0; i < PROCS; i++) {
        const struct proc *other = &facts->procs[i];

        rank += other->role >= WAITS && other->came < p->came;
    }
    packed = pack(pack(packed, p->wish), rank);
    packed = pack(packed, age(p->asked > facts->released ? p->asked : facts->released, facts->now));
    return pack(packed,
                until(p->role == AWAY || p->role == LOOKS ? p->until : p->deadline, facts->now));
}

struct key {
    uint64_t facts, lock;
};

/* The facts, the processes in the order of what they are doing; and apart from them everything
 * that the lock remembers and can decide by, in its own order. */
static struct key key_of(const struct walk *walk)
{
    struct key key = {
        .lock = pack(walk->lock.committed, (walk->lock.closed ? 2 : 0) + walk->lock.sealed)};
    uint64_t packed[PROCS];

    for (int i = 0; i < PROCS; i++) {
        uint64_t one = pack_proc(&walk->facts, &walk->facts.procs[i]);
        int at = i;

        for (; at > 0 && packed[at - 1] > one; at--)
            packed[at] = packed[at - 1];
        packed[at] = one;
    }
    for (int i = 0; i < PROCS; i++)
        key.facts = key.facts << 16 | packed[i];
    for (size_t i = 0; i < walk->lock.waiter_count; i++) {
        const struct lock_waiter *w = &walk->lock.waiters[i];

        key.lock = pack(pack(key.lock, (uint64_t)w->wish), w->sleep);
        key.lock = pack(key.lock, age(w->hold_since_ms, walk->facts.now));
        /* The deadline of one that is away is set anew when it returns. */
        key.lock = pack(key.lock, w->kept_until_ms ? 0 : until(w->deadline_ms, walk->facts.now));
        key.lock =
            pack(key.lock, (w->looking ? 4 : 0) +
                               (w->kept_until_ms ? until(w->kept_until_ms, walk->facts.now) : 0));
    }
    for (size_t i = 0; i < walk->lock.session_count; i++)
        key.lock = pack(key.lock, 4 + walk->lock.sessions[i].mode);
    return key;
}

/* ---- breadth first ------------------------------------------------------------------------- */

struct search {
    struct walk walk;
    struct node *nodes;
    struct key *keys;
    uint32_t *slots; /* node + 1 */
    uint32_t node_count;
    uint64_t transitions;
    bool complete;      /* no new state appears any more */
    uint32_t last_node; /* where, and by which event, a law was broken */
    int last_event;
};

static void load(struct walk *walk, const struct node *node)
{
    walk->facts = node->facts;
    walk->lock.committed = node->facts.committed;
    walk->lock.sealed = node->facts.sealed;
    walk->lock.closed = node->facts.closed;
    walk->lock.session_count = node->session_count;
    walk->lock.waiter_count = node->waiter_count;
    memcpy(walk->lock.sessions, node->sessions, sizeof(node->sessions));
    memset(walk->lock.held, 0, sizeof(walk->lock.held));
    for (size_t i = 0; i < walk->lock.session_count; i++)
        walk->lock.held[walk->lock.sessions[i].mode]++;
    memcpy(walk->lock.waiters, node->waiters, sizeof(node->waiters));
}

/* Adds the state that the walk is in, unless it is known. False: no room. */
static bool add_node(struct search *search, uint32_t parent, int event)
{
    struct key key = key_of(&search->walk);
    uint64_t hash = (key.facts * 0x9e3779b97f4a7c15u) ^ (key.lock * 0xc2b2ae3d27d4eb4fu);
    uint32_t slot = (uint32_t)(hash >> 40) & (MAX_SLOTS - 1);
    struct node *node;

    for (; search->slots[slot]; slot = (slot + 1) & (MAX_SLOTS - 1)) {
        const struct key *known = &search->keys[search->slots[slot] - 1];

        if (known->facts == key.facts && known->lock == key.lock)
            return true;
    }
    if (search->node_count == MAX_STATES)
        return false;
    search->keys[search->node_count] = key;
    node = &search->nodes[search->node_count];
    search->slots[slot] = ++search->node_count;
    node->facts = search->walk.facts;
    node->session_count = (uint8_t)search->walk.lock.session_count;
    node->waiter_count = (uint8_t)search->walk.lock.waiter_count;
    memcpy(node->sessions, search->walk.lock.sessions, sizeof(node->sessions));
    memcpy(node->waiters, search->walk.lock.waiters, sizeof(node->waiters));
    node->parent = parent;
    node->event = (uint8_t)event;
    return true;
}

/* Prints the events that led to the broken law, in order. */
static void print_way(const struct search *search, uint32_t node, int event)
{
    if (node)
        print_way(search, search->nodes[node].parent, search->nodes[node].event);
    if (event >= EVENT_TICK)
        printf("#   %s\n", event_names[event - EVENT_TICK]);
    else
        printf("#   process %d: %s, wish %d, how %d\n", event / HAPPENING_COUNT,
               deed_names[happenings[event % HAPPENING_COUNT].deed],
               happenings[event % HAPPENING_COUNT].wish, happenings[event % HAPPENING_COUNT].how);
}

static void print_break(const struct search *search)
{
    for (unsigned i = 0; i < LAW_COUNT; i++) {
        if (search->walk.broken & 1u << i)
            printf("# broken: %s\n", laws[i].sentence);
    }
    if (search->walk.broken)
        print_way(search, search->last_node, search->last_event);
}

/* Explores until no new state appears or one of the watched laws is broken. */
static void explore(struct search *search, const struct rules *rules, unsigned watched)
{
    struct walk *walk = &search->walk;

    walk->rules = rules;
    walk->facts = (struct facts){.now = START, .released = START - PATIENCE};
    lock_init(&walk->lock, PATIENCE);
    /* Room for all of them once, so that a kept state can be copied in. */
    walk->lock.session_room = walk->lock.waiter_room = MAX_ROUNDS + PROCS;
    walk->lock.sessions = calloc(walk->lock.session_room, sizeof(*walk->lock.sessions));
    walk->lock.waiters = calloc(walk->lock.waiter_room, sizeof(*walk->lock.waiters));
    search->nodes = malloc(MAX_STATES * sizeof(*search->nodes));
    search->keys = malloc(MAX_STATES * sizeof(*search->keys));
    search->slots = calloc(MAX_SLOTS, sizeof(*search->slots));
    require(walk->lock.sessions && walk->lock.waiters && search->nodes && search->keys &&
            search->slots);
    add_node(search, 0, 0);
    for (uint32_t at = 0; at < search->node_count; at++) {
        for (int event = 0; event < EVENT_COUNT; event++) {
            load(walk, &search->nodes[at]);
            if (!happen(walk, event))
                continue;
            search->transitions++;
            if (walk->broken & watched) {
                search->last_node = at;
                search->last_event = event;
                return;
            }
            if (!add_node(search, at, event))
                return;
        }
    }
    search->complete = true;
}

static void end_search(struct search *search)
{
    lock_free(&search->walk.lock);
    free(search->nodes);
    free(search->keys);
    free(search->slots);
}

#endif
