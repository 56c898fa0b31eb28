/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock_mutants - locks that are broken on purpose, each in one way, and the law that must catch it
 *
 * For test_lock_states.c, which includes it once: a checker that accepts one of these is no proof.
 */
#ifndef GMSFS_TESTS_UNIT_LOCK_MUTANTS_H
#define GMSFS_TESTS_UNIT_LOCK_MUTANTS_H

#include "lock_broken.h"
#include "lock_laws.h"
#include "lock_walk.h"

struct mutant {
    const char *name;
    bool (*caught_by)(const struct move *);
    struct rules rules; /* NULL members: the sound rule */
};

static const struct mutant mutants[] = {
    {"writers beside writers",
     one_writer,
     {.would_grant = grant_past_sessions, .add_session = add_any}},
    {"readers beside a writer",
     writer_or_readers,
     {.would_grant = grant_past_sessions, .add_session = add_any}},
    {"readers of nothing", readers_see_a_commit, {.would_grant = grant_uncommitted}},
    {"readers of a sealed layout", readers_see_a_commit, {.would_grant = grant_ro_of_sealed}},
    {"readers beside RW_DATA",
     writer_or_readers,
     {.would_grant = grant_ro_beside_data, .add_session = add_any}},
    {"writers beside RW_DATA",
     one_writer,
     {.would_grant = grant_rw_beside_data, .add_session = add_any}},
    {"RW_DATA of a committed layout", mode_as_wished, {.would_grant = grant_data_of_committed}},
    {"RW_DATA of nothing", fillers_have_a_sealed_layout, {.would_grant = grant_data_of_nothing}},
    {"data never finds a sealed layout", mode_as_wished, {.would_grant = grant_data_as_rw}},
    {"data reads a committed layout", mode_as_wished, {.would_grant = grant_data_as_auto}},
    {"data that waited does not find a layout sealed meanwhile",
     mode_as_wished,
     {.next_grant = next_as_if_unsealed}},
    {"auto always writes", mode_as_wished, {.would_grant = grant_auto_as_rw}},
    {"new readers pass a waiting writer", no_reason_against, {.would_grant = grant_past_waiters}},
    {"new readers pass data that waits",
     no_reason_against,
     {.would_grant = grant_past_waiting_data}},
    {"a release gives no new patience",
     no_reason_against,
     {.remove_session = remove_without_new_patience}},
    {"a waiter that is away is granted", away_stays_out, {.next_grant = next_may_be_away}},
    {"a waiter that is away holds readers off",
     waiters_have_a_reason,
     {.would_grant = grant_as_if_none_were_away}},
    {"a waiter that looks around holds no reader off",
     no_reason_against,
     {.would_grant = grant_past_lookers}},
    {"a sleeper is granted", sleepers_are_not_granted, {.next_grant = next_may_sleep}},
    {"a sleeper holds others off", waiters_have_a_reason, {.would_grant = grant_as_if_none_slept}},
    {"a sleeper is never woken", only_the_doer_changes, {.set_sleep = never_wake}},
    {"a sleeper in turn is granted",
     sleepers_are_not_granted,
     {.next_grant = next_may_sleep_in_turn}},
    {"a new request passes a sleeper in turn",
     no_reason_against,
     {.would_grant = grant_past_turns}},
    {"a waiter passes a sleeper in turn", no_reason_against, {.next_grant = next_past_turns}},
    {"all sleepers sleep in turn",
     waiters_have_a_reason,
     {.would_grant = grant_as_if_all_slept_in_turn}},
    {"a sleeper in turn holds off earlier waiters",
     waiters_have_a_reason,
     {.next_grant = next_waits_for_all_turns}},
    {"the end of a turn is no moment", the_moment_is_exact, {.next_moment = moment_without_turns}},
    {"the queue is never drained", waiters_have_a_reason, {.next_grant = next_is_none}},
    {"the first in the queue blocks the rest",
     waiters_have_a_reason,
     {.next_grant = next_is_the_first_or_none}},
    {"patience never ends", waiters_have_a_reason, {.next_grant = next_without_end_of_patience}},
    {"last come, first served", waiters_are_not_overtaken, {.next_grant = next_is_the_last}},
    {"a returning process is sent to the end",
     waiters_are_not_overtaken,
     {.resume_place = resume_at_the_end}},
    {"a signal loses the place", only_the_doer_changes, {.keep_place = lose_place}},
    {"a commit that stays remains the writer",
     only_the_doer_changes,
     {.commit = commit_and_go_on_writing}},
    {"a commit is not remembered", only_writers_commit, {.commit = commit_for_nothing}},
    {"an abort commits", only_writers_commit, {.remove_session = remove_as_if_committed}},
    {"a sealed layout stays committed", one_layout, {.seal = seal_and_stay_committed}},
    {"a session that seals keeps RW", only_the_doer_changes, {.seal = seal_and_keep_rw}},
    {"a seal is not remembered", only_writers_seal, {.seal = seal_for_nothing}},
    {"the end of RW_DATA drops the sealed layout",
     only_writers_seal,
     {.remove_session = remove_with_sealed}},
    {"RW_DATA commits", changes_of_sealed_are_refused, {.commit = commit_sealed}},
    {"RW_DATA ends by a commit", only_the_doer_changes, {.commit = commit_sealed}},
    {"RW_DATA seals", changes_of_sealed_are_refused, {.seal = seal_again}},
    {"a closed lock grants new requests", no_reason_against, {.would_grant = grant_though_closed}},
    {"a closed lock grants waiters", no_reason_against, {.next_grant = next_though_closed}},
    {"a closed lock has moments of patience",
     the_moment_is_exact,
     {.next_moment = moment_though_closed}},
    {"a lock that opens gives no new patience",
     no_reason_against,
     {.set_closed = open_impatiently}},
    {"it never opens again", only_a_drain_closes, {.set_closed = close_for_ever}},
    {"a sealed layout does not show in the state",
     state_is_derived,
     {.get_state = state_without_sealed}},
    {"readers do not show in the state", state_is_derived, {.get_state = state_without_readers}},
    {"readers come without a transition",
     transitions_are_rows,
     {.get_state = state_without_readers}},
    {"time runs out a tick early", waiters_expire_not_early, {.next_expired = expire_early}},
    {"time never runs out", waiters_end_at_the_timer, {.next_expired = expire_never}},
    {"the timer is never set", the_moment_is_exact, {.next_moment = moment_never}},
    {"every waiter counts as a writer", waiting_writers_are_counted, {.count_writers = count_all}},
    {"data does not count as a writer",
     waiting_writers_are_counted,
     {.count_writers = count_without_data}},
};

#define MUTANT_COUNT   (sizeof(mutants) / sizeof(mutants[0]))
#define OR_SOUND(rule) .rule = mutant->rules.rule ? mutant->rules.rule : sound.rule

static struct rules rules_of(const struct mutant *mutant)
{
    return (struct rules){
        OR_SOUND(would_grant),    OR_SOUND(next_grant),   OR_SOUND(add_session),
        OR_SOUND(remove_session), OR_SOUND(commit),       OR_SOUND(keep_place),
        OR_SOUND(resume_place),   OR_SOUND(next_expired), OR_SOUND(next_moment),
        OR_SOUND(count_writers),  OR_SOUND(get_state),    OR_SOUND(set_sleep),
        OR_SOUND(seal),           OR_SOUND(set_closed),
    };
}

#endif
