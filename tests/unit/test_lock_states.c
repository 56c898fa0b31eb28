/* SPDX-License-Identifier: Apache-2.0 */
/* file_tags=slow */
/*
 * The lock, explored exhaustively: all orders of events of three processes, breadth first, until
 * no new state appears (lock_walk.h). Every single deed is held against an independent statement
 * of the rules (lock_laws.h). That the laws have teeth is shown by locks that are broken on
 * purpose, each of which must be caught (lock_mutants.h); that nothing was left out, by counting
 * from the rules alone which configurations there are, and finding each of them reached.
 */
#include "fsm/lock.h"
#include "lock_laws.h"
#include "lock_mutants.h"
#include "lock_walk.h"
#include "tap.h"

/* ---- configurations that the rules allow, counted without the lock ------------------------- */

/* The postures of a process: a mode that it holds, or one of WAITS, AWAY, SLEEPS, LOOKS, STANDS
 * with a wish. */
#define HOLDINGS       ((int)WAITS)
#define WISHES         ((int)LOCK_WISH_DATA)
#define POSTURES       (HOLDINGS + (ROLES - HOLDINGS) * WISHES)
#define CONFIGURATIONS (8 * POSTURES * POSTURES * POSTURES)
_Static_assert(PROCS == 3, "a configuration is three postures, and what the lock has and is");

static struct facts facts_of(int configuration)
{
    struct facts facts = {.committed = configuration % 2,
                          .sealed = configuration / 2 % 2,
                          .closed = configuration / 4 % 2};

    configuration /= 8;
    for (int i = 0; i < PROCS; i++) {
        int posture = configuration % POSTURES, waiting = posture - HOLDINGS;

        facts.procs[i].role = (enum role)(waiting < 0 ? posture : HOLDINGS + waiting / WISHES);
        facts.procs[i].wish =
            waiting < 0 ? LOCK_WISH_RO : (enum lock_wish)(waiting % WISHES + LOCK_WISH_RO);
        configuration /= POSTURES;
    }
    return facts;
}

static int configuration_of(const struct facts *facts)
{
    int configuration = 0, scale = 1;

    FOR_EACH(p, facts)
    {
        int waiting = ((int)p->role - HOLDINGS) * WISHES + (int)p->wish - LOCK_WISH_RO;

        configuration += scale * (p->role < WAITS ? (int)p->role : HOLDINGS + waiting);
        scale *= POSTURES;
    }
    return 8 * configuration + 4 * facts->closed + 2 * facts->sealed + facts->committed;
}

/* Marks it for every way in which the three can be named. */
static void mark(bool *marks, const struct facts *facts)
{
    for (int first = 0; first < PROCS; first++) {
        for (int second = 0; second < PROCS; second++) {
            struct facts named = *facts;

            if (first == second)
                continue;
            named.procs[0] = facts->procs[first];
            named.procs[1] = facts->procs[second];
            named.procs[2] = facts->procs[PROCS - first - second];
            marks[configuration_of(&named)] = true;
        }
    }
}

/* A process that looks around waits for another one; three of a kind have none to wait for. */
static bool all_look_for_nobody(const struct facts *facts)
{
    int writers = 0;

    FOR_EACH(p, facts)
    writers += would_write(facts, p);
    return count(facts, LOOKS) == PROCS && (writers == PROCS || (writers == 0 && facts->committed));
}

/* True if the configuration is possible. Assumes that some waiter is still patient. */
static bool is_allowed(const struct facts *facts)
{
    int writers = count_writers(facts), readers = count(facts, READS);

    if (writers > 1 || (writers && readers) || (readers && !facts->committed) ||
        (!facts->closed && all_look_for_nobody(facts)))
        return false;
    if (facts->closed && count(facts, IDLE) == 0) /* not in this walk */
        return false;
    if (facts->sealed ? facts->committed || count(facts, WRITES) : count(facts, FILLS))
        return false;
    FOR_EACH(p, facts)
    {
        if (p->role == WAITS && !has_to_wait(facts, p, 0))
            return false;
        if (p->role == STANDS && p->wish != LOCK_WISH_DATA) /* no other wish does in this walk */
            return false;
    }
    return true;
}

/* ---- tests --------------------------------------------------------------------------------- */

/* The sound lock, explored once for all tests that look at its states: this takes seconds. */
static const struct search *explored(void)
{
    static struct search search;

    if (!search.nodes)
        explore(&search, &sound, ALL_LAWS);
    return &search;
}

TAP_TEST(every_state_and_every_transition_obeys_every_law)
{
    const struct search *search = explored();

    printf("# states %u, transitions %" PRIu64 ", deeds judged %" PRIu64 " by %zu laws\n",
           search->node_count, search->transitions, search->walk.deeds, LAW_COUNT);
    print_break(search);
    check_int(search->walk.broken, 0);
    check(search->complete);
}

TAP_TEST(every_configuration_that_the_rules_allow_is_reached_and_no_other)
{
    static bool reached[CONFIGURATIONS];
    const struct search *search = explored();
    int allowed = 0, wrong = 0;

    for (uint32_t i = 0; i < search->node_count; i++)
        mark(reached, &search->nodes[i].facts);
    for (int i = 0; i < CONFIGURATIONS; i++) {
        struct facts facts = facts_of(i);

        require(configuration_of(&facts) == i);
        allowed += is_allowed(&facts);
        wrong += is_allowed(&facts) != reached[i];
    }
    printf("# configurations %d of %d\n", allowed, CONFIGURATIONS);
    check_int(wrong, 0);
}

TAP_TEST(every_row_of_the_state_table_is_seen)
{
    check_int(explored()->walk.rows_seen, (1u << ROW_COUNT) - 1);
}

TAP_TEST(every_broken_lock_is_caught_by_the_law_that_it_breaks)
{
    for (size_t i = 0; i < MUTANT_COUNT; i++) {
        struct rules rules = rules_of(&mutants[i]);
        unsigned law = law_bit(mutants[i].caught_by);
        struct search search = {0};

        explore(&search, &rules, law);
        if (!check(search.walk.broken & law))
            printf("# not caught: %s\n", mutants[i].name);
        end_search(&search);
    }
}

TAP_TEST(every_law_has_caught_a_broken_lock)
{
    unsigned caught = 0;

    for (size_t i = 0; i < MUTANT_COUNT; i++)
        caught |= law_bit(mutants[i].caught_by);
    check_int(caught, ALL_LAWS);
}
