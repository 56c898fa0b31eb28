/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock_laws - the laws of the lock, written without knowledge of its code
 *
 * An independent statement of gmsfs(5), STATES and THE LOCK, for test_lock_states.c, which includes
 * it once. It speaks of the deeds of each process and their times (struct facts), and judges one
 * deed at a time by the facts before and after. It never calls the lock, and never reads its
 * fields.
 */
#ifndef GMSFS_TESTS_UNIT_LOCK_LAWS_H
#define GMSFS_TESTS_UNIT_LOCK_LAWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsm/lock.h"

#define PROCS    3
#define PATIENCE 2 /* ticks; the three differ so that none hides behind another */
#define TIMEOUT  3
#define KEPT     1

/* ---- the facts, as the processes see them -------------------------------------------------- */

enum role {
    IDLE,
    READS,
    WRITES,
    FILLS, /* writes the bytes of a sealed layout alone: RW_DATA */
    WAITS,
    AWAY,   /* interrupted, its place kept */
    SLEEPS, /* waits for something that the lock cannot give */
    LOOKS,  /* only looks around; its place is kept */
    STANDS, /* as SLEEPS, but in turn: later processes wait behind it */
    ROLES,
};

enum deed {
    ENTER,   /* was granted a session, at once or from the queue */
    REFUSED, /* asked without waiting, and was not granted */
    QUEUED,  /* asked, and waits */
    RELEASE, /* a reader's end; RW's is an abort that rolls back, RW_DATA's keeps all */
    WIPE,    /* an abort that leaves the store empty */
    COMMIT,
    STAY,   /* a commit that stays on as a reader */
    SEAL,   /* its layout is final, and it goes on with RW_DATA */
    LEAVE,  /* a signal came */
    LOOK,   /* goes to look around */
    RETURN, /* after LEAVE or LOOK, the process asked again */
    DOZE,   /* came needing more than the lock, and sleeps at once */
    SLEEP,  /* needs more than the lock, and that is gone */
    STAND,  /* as SLEEP or DOZE, but it stays in turn */
    WAKE,   /* the missing thing is there again */
    FORGET, /* killed or revoked while waiting or away */
    EXPIRE, /* its deadline, or its kept place, has passed */
    TICK,
    RANG,   /* the timer was served: everything expired is out */
    CLOSE,  /* a drain: no process is let in */
    OPEN,   /* the drain's end */
    SETTLE, /* the queue was drained: the end of every event but TICK */
};

static const char *const deed_names[] = {
    [ENTER] = "enter",   [REFUSED] = "refused", [QUEUED] = "queued", [RELEASE] = "release",
    [WIPE] = "wipe",     [COMMIT] = "commit",   [STAY] = "stay",     [LEAVE] = "leave",
    [RETURN] = "return", [FORGET] = "forget",   [EXPIRE] = "expire", [TICK] = "tick",
    [RANG] = "rang",     [SETTLE] = "settle",   [DOZE] = "doze",     [SLEEP] = "sleep",
    [WAKE] = "wake",     [LOOK] = "look",       [SEAL] = "seal",     [STAND] = "stand",
    [CLOSE] = "close",   [OPEN] = "open",
};

struct proc {
    enum role role;
    enum lock_wish wish;
    uint64_t asked;    /* when */
    uint64_t came;     /* its number in the order of arrival, and its waiter's id */
    uint64_t session;  /* its session's id */
    uint64_t deadline; /* as it last asked */
    uint64_t until;    /* how long its place is kept */
};

struct facts {
    bool committed, sealed, closed;
    uint64_t now;
    uint64_t released; /* when a session last ended or became a reader's, or the lock opened */
    uint64_t serial;   /* of ids */
    enum lock_state state;
    struct proc procs[PROCS];
};

struct move {
    enum deed deed;
    int proc;
    const struct facts *before, *after;
    /* The lock's answers: to COMMIT, STAY and SEAL; to EXPIRE; and, at SETTLE, about itself. */
    bool refused;
    bool was_kept;
    uint64_t moment;
    size_t writers;
};

#define FOR_EACH(p, facts) \
    for (const struct proc *p = (facts)->procs; p < (facts)->procs + PROCS; p++)

static int count(const struct facts *facts, enum role role)
{
    int found = 0;

    FOR_EACH(p, facts)
    found += p->role == role;
    return found;
}

static bool is_writer(enum role role)
{
    return role == WRITES || role == FILLS;
}

static int count_writers(const struct facts *facts)
{
    return count(facts, WRITES) + count(facts, FILLS);
}

/* Returns the role that the process gets if it is let in now. */
static enum role wished_role(const struct facts *facts, const struct proc *p)
{
    if (p->wish == LOCK_WISH_DATA)
        return facts->sealed ? FILLS : WRITES;
    if (p->wish == LOCK_WISH_AUTO)
        return facts->committed ? READS : WRITES;
    return p->wish == LOCK_WISH_RW ? WRITES : READS;
}

static bool would_write(const struct facts *facts, const struct proc *p)
{
    return is_writer(wished_role(facts, p));
}

/* A sealed layout's shape is final, and its bytes are never committed. */
static bool is_denied(enum role role, enum deed deed)
{
    return role == FILLS && (deed == COMMIT || deed == STAY || deed == SEAL);
}

static bool is_patient(const struct facts *facts, const struct proc *p, uint64_t at)
{
    return at - (p->asked > facts->released ? p->asked : facts->released) < PATIENCE;
}

/* A process that is not in the queue yet comes after all in the queue. */
static bool came_before(const struct proc *p, const struct proc *one)
{
    return one->came == 0 || p->came < one->came;
}

/* Returns true if there is any reason to keep the process out. */
static bool has_to_wait(const struct facts *facts, const struct proc *one, uint64_t at)
{
    if (count_writers(facts) || facts->closed)
        return true;
    FOR_EACH(p, facts)
    {
        if (p->role == STANDS && would_write(facts, p) && is_patient(facts, p, at) &&
            came_before(p, one))
            return true;
    }
    if (would_write(facts, one))
        return count(facts, READS) > 0;
    if (!facts->committed)
        return true;
    FOR_EACH(p, facts)
    {
        if ((p->role == WAITS || p->role == LOOKS || p->role == STANDS) && would_write(facts, p) &&
            is_patient(facts, p, at))
            return true;
    }
    return false;
}

static bool is_overdue(const struct proc *p, uint64_t at)
{
    return ((p->role == WAITS || p->role == SLEEPS || p->role == STANDS) && p->deadline <= at) ||
           ((p->role == AWAY || p->role == LOOKS) && p->until <= at);
}

/* ---- the laws ------------------------------------------------------------------------------ */

static bool one_writer(const struct move *m)
{
    return count_writers(m->after) <= 1;
}

static bool writer_or_readers(const struct move *m)
{
    return !count_writers(m->after) || !count(m->after, READS);
}

static bool one_layout(const struct move *m)
{
    return !m->after->committed || !m->after->sealed;
}

static bool readers_see_a_commit(const struct move *m)
{
    return m->after->committed || !count(m->after, READS);
}

static bool fillers_have_a_sealed_layout(const struct move *m)
{
    return m->after->sealed || !count(m->after, FILLS);
}

static bool mode_as_wished(const struct move *m)
{
    const struct proc *p = &m->after->procs[m->proc];

    return m->deed != ENTER || p->role == wished_role(m->before, p);
}

static bool no_reason_against(const struct move *m)
{
    return m->deed != ENTER || !has_to_wait(m->before, &m->after->procs[m->proc], m->before->now);
}

static bool away_stays_out(const struct move *m)
{
    enum role was = m->before->procs[m->proc].role;

    return m->deed != ENTER || (was != AWAY && was != LOOKS);
}

static bool sleepers_are_not_granted(const struct move *m)
{
    enum role was = m->before->procs[m->proc].role;

    return m->deed != ENTER || (was != SLEEPS && was != STANDS);
}

/* Returns true if letting `one` in would overtake a waiter whose reason to wait has just expired
 * and that was not granted the lock yet. */
static bool shuts_out(const struct facts *facts, const struct proc *one)
{
    FOR_EACH(p, facts)
    {
        if (p->role == WAITS && !has_to_wait(facts, p, facts->now))
            return would_write(facts, one) || would_write(facts, p);
    }
    return false;
}

static bool waiters_have_a_reason(const struct move *m)
{
    if (m->deed == REFUSED || m->deed == QUEUED)
        return has_to_wait(m->before, &m->after->procs[m->proc], m->before->now) ||
               shuts_out(m->before, &m->after->procs[m->proc]);
    if (m->deed != SETTLE)
        return true;
    FOR_EACH(p, m->after)
    {
        if (p->role == WAITS && !has_to_wait(m->after, p, m->after->now))
            return false;
    }
    return true;
}

/* From the queue, no process passes an earlier one that could be let in. From outside, only a
 * reader may pass, and only readers, which come in with it. */
static bool waiters_are_not_overtaken(const struct move *m)
{
    const struct proc *one = &m->after->procs[m->proc];

    if (m->deed != ENTER)
        return true;
    FOR_EACH(p, m->before)
    {
        bool queued = m->before->procs[m->proc].role == WAITS;

        if (p->role != WAITS || (queued && p->came >= m->before->procs[m->proc].came))
            continue;
        if (has_to_wait(m->before, p, m->before->now))
            continue;
        if (queued || would_write(m->before, p) || is_writer(one->role))
            return false;
    }
    return true;
}

static bool only_the_doer_changes(const struct move *m)
{
    static const unsigned become[] = {
        [ENTER] = 1u << READS | 1u << WRITES | 1u << FILLS,
        [REFUSED] = 1u << IDLE,
        [QUEUED] = 1u << WAITS,
        [RELEASE] = 1u << IDLE,
        [WIPE] = 1u << IDLE,
        [COMMIT] = 1u << IDLE,
        [STAY] = 1u << READS,
        [SEAL] = 1u << FILLS,
        [LEAVE] = 1u << AWAY,
        [LOOK] = 1u << LOOKS,
        [RETURN] = 1u << WAITS,
        [DOZE] = 1u << SLEEPS,
        [SLEEP] = 1u << SLEEPS,
        [STAND] = 1u << STANDS,
        [WAKE] = 1u << WAITS,
        [FORGET] = 1u << IDLE,
        [EXPIRE] = 1u << IDLE,
    };
    bool has_no_doer = m->deed == TICK || m->deed == RANG || m->deed == SETTLE ||
                       m->deed == CLOSE || m->deed == OPEN;

    for (int i = 0; i < PROCS; i++) {
        enum role was = m->before->procs[i].role, is = m->after->procs[i].role;
        bool acts = !has_no_doer && i == m->proc && !is_denied(was, m->deed);

        if (acts ? !(become[m->deed] & 1u << is) : was != is)
            return false;
    }
    return true;
}

static bool only_writers_commit(const struct move *m)
{
    bool denied = is_denied(m->before->procs[m->proc].role, m->deed);

    if (!denied && (m->deed == COMMIT || m->deed == STAY))
        return m->after->committed;
    if (!denied && (m->deed == WIPE || m->deed == SEAL))
        return !m->after->committed;
    return m->after->committed == m->before->committed;
}

/* Holders of the lock go on and end unaffected. */
static bool only_a_drain_closes(const struct move *m)
{
    if (m->deed == CLOSE || m->deed == OPEN)
        return m->after->closed == (m->deed == CLOSE);
    return m->after->closed == m->before->closed;
}

/* A new RW session drops the sealed layout; otherwise a sealed layout outlives all sessions. */
static bool only_writers_seal(const struct move *m)
{
    if (m->deed == SEAL)
        return m->after->sealed;
    if (m->deed == ENTER && m->after->procs[m->proc].role == WRITES)
        return !m->after->sealed;
    return m->after->sealed == m->before->sealed;
}

static bool changes_of_sealed_are_refused(const struct move *m)
{
    return m->refused == is_denied(m->before->procs[m->proc].role, m->deed);
}

static bool state_is_derived(const struct move *m)
{
    if (count_writers(m->after))
        return m->after->state == LOCK_STATE_RW;
    if (count(m->after, READS))
        return m->after->state == LOCK_STATE_RO;
    if (m->after->committed)
        return m->after->state == LOCK_STATE_COMMITTED;
    return m->after->state == (m->after->sealed ? LOCK_STATE_LAYOUT_COMMITTED : LOCK_STATE_EMPTY);
}

/* The table of gmsfs(5), STATES. Every other deed keeps the state; a denied deed has a row. */
struct row {
    enum lock_state from;
    enum deed deed;
    enum role role; /* of the doer: afterwards if it ENTERs, else before */
    enum lock_state to;
};

static const struct row rows[] = {
    {LOCK_STATE_EMPTY, ENTER, WRITES, LOCK_STATE_RW},
    {LOCK_STATE_COMMITTED, ENTER, WRITES, LOCK_STATE_RW},
    {LOCK_STATE_LAYOUT_COMMITTED, ENTER, WRITES, LOCK_STATE_RW},
    {LOCK_STATE_LAYOUT_COMMITTED, ENTER, FILLS, LOCK_STATE_RW},
    {LOCK_STATE_RW, COMMIT, WRITES, LOCK_STATE_COMMITTED},
    {LOCK_STATE_RW, STAY, WRITES, LOCK_STATE_RO},
    {LOCK_STATE_RW, WIPE, WRITES, LOCK_STATE_EMPTY},
    {LOCK_STATE_RW, RELEASE, WRITES, LOCK_STATE_EMPTY},
    {LOCK_STATE_RW, RELEASE, WRITES, LOCK_STATE_COMMITTED},
    {LOCK_STATE_RW, SEAL, WRITES, LOCK_STATE_RW},
    {LOCK_STATE_RW, RELEASE, FILLS, LOCK_STATE_LAYOUT_COMMITTED},
    {LOCK_STATE_RW, COMMIT, FILLS, LOCK_STATE_RW},
    {LOCK_STATE_RW, STAY, FILLS, LOCK_STATE_RW},
    {LOCK_STATE_RW, SEAL, FILLS, LOCK_STATE_RW},
    {LOCK_STATE_COMMITTED, ENTER, READS, LOCK_STATE_RO},
    {LOCK_STATE_RO, ENTER, READS, LOCK_STATE_RO},
    {LOCK_STATE_RO, RELEASE, READS, LOCK_STATE_RO},
    {LOCK_STATE_RO, RELEASE, READS, LOCK_STATE_COMMITTED},
};

#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

static size_t find_row(const struct move *m)
{
    size_t i = 0;

    while (i < ROW_COUNT &&
           (rows[i].from != m->before->state || rows[i].deed != m->deed ||
            rows[i].to != m->after->state ||
            rows[i].role != (m->deed == ENTER ? m->after : m->before)->procs[m->proc].role))
        i++;
    return i;
}

static bool transitions_are_rows(const struct move *m)
{
    if (m->deed == ENTER || m->deed == COMMIT || m->deed == STAY || m->deed == SEAL ||
        m->deed == WIPE || m->deed == RELEASE)
        return find_row(m) < ROW_COUNT;
    return m->before->state == m->after->state;
}

static bool waiters_expire_not_early(const struct move *m)
{
    const struct proc *p = &m->before->procs[m->proc];

    return m->deed != EXPIRE ||
           (is_overdue(p, m->before->now) && m->was_kept == (p->role == AWAY || p->role == LOOKS));
}

static bool waiters_end_at_the_timer(const struct move *m)
{
    FOR_EACH(p, m->after)
    {
        if (m->deed == RANG && is_overdue(p, m->after->now))
            return false;
    }
    return true;
}

/* Nothing happens by itself before the moment, and something does at it. */
static bool the_moment_is_exact(const struct move *m)
{
    if (m->deed != SETTLE)
        return true;
    for (uint64_t at = m->after->now; at <= m->after->now + TIMEOUT + 1; at++) {
        FOR_EACH(p, m->after)
        {
            if (is_overdue(p, at) || (p->role == WAITS && !has_to_wait(m->after, p, at)))
                return at == m->after->now ? m->moment <= at : m->moment == at;
        }
    }
    return m->moment == LOCK_FOREVER;
}

static bool waiting_writers_are_counted(const struct move *m)
{
    size_t writers = 0;

    FOR_EACH(p, m->after)
    writers += (p->role == WAITS || p->role == SLEEPS || p->role == LOOKS || p->role == STANDS) &&
               would_write(m->after, p);
    return m->deed != SETTLE || m->writers == writers;
}

static const struct law {
    const char *sentence;
    bool (*holds)(const struct move *);
} laws[] = {
    {"there is at most one writer", one_writer},
    {"there is a writer or there are readers, never both", writer_or_readers},
    {"a layout is committed or sealed, never both", one_layout},
    {"a reader reads a committed layout", readers_see_a_commit},
    {"a session with RW_DATA has a sealed layout", fillers_have_a_sealed_layout},
    {"a process enters with the mode of its wish", mode_as_wished},
    {"no process enters that has a reason to wait", no_reason_against},
    {"a process that is away or looks around is not granted", away_stays_out},
    {"a sleeping process is not granted", sleepers_are_not_granted},
    {"no process waits without a reason", waiters_have_a_reason},
    {"no process is overtaken", waiters_are_not_overtaken},
    {"a deed changes the doer as it says, and no other process", only_the_doer_changes},
    {"only a writer commits", only_writers_commit},
    {"only a writer seals or drops a sealed layout", only_writers_seal},
    {"only a drain closes and opens the lock", only_a_drain_closes},
    {"RW_DATA can neither commit nor seal, and RW can", changes_of_sealed_are_refused},
    {"the state is derived", state_is_derived},
    {"transitions are rows of the table", transitions_are_rows},
    {"no waiter expires early", waiters_expire_not_early},
    {"no waiter outlives the timer", waiters_end_at_the_timer},
    {"the next moment is exact", the_moment_is_exact},
    {"waiting writers are counted", waiting_writers_are_counted},
};

#define LAW_COUNT (sizeof(laws) / sizeof(laws[0]))
#define ALL_LAWS  ((1u << LAW_COUNT) - 1)

static unsigned law_bit(bool (*holds)(const struct move *))
{
    unsigned i = 0;

    while (i < LAW_COUNT && laws[i].holds != holds)
        i++;
    return 1u << i;
}

#endif
