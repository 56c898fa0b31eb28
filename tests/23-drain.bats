#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs drain: no process is let in, sessions are waited for or ended, nothing is held.
#
# shellcheck disable=SC2154 # output is set by bats' run
# bats file_tags=slow

load helpers

prepare() { start_weights; }

draining_is() { # true | false
    [[ $(device_get .draining) == "$1" ]]
}

@test "a drained mount holds nothing, lets no process in, and serves again when told so" {
    commit_store
    cli -0 drain "$M"
    assert_match "$output" 'is drained'
    assert_eq "$(device_get .used_bytes)" 0 used
    assert_eq "$(device_get .draining)" true draining
    assert_state weights EMPTY
    assert_eq "$(info_of weights .generation)" 1 generation
    expect ENODEV open "$W/lock" rw
    expect ENODEV open "$W/lock" rn
    expect ENODEV open "$W/auto" rw
    expect ENODEV open "$W/ctl" rw acquire rw 60000
    expect ENODEV open "$W/allocations/a" rwc
    run_logged -1 "$GMSFS" run -w "$W" -- true
    assert_match "$output" 'drain'
    cli -0 drain "$M" # again is no error
    cli -0 drain --undo "$M"
    assert_eq "$(device_get .draining)" false draining
    commit_store
    assert_eq "$(jq -rs '[.[].event] | map(select(. == "draining" or . == "dropped" or . == "serving")) | join(" ")' \
        <"$M/events")" 'draining dropped serving' events
}

@test "drain waits for sessions, which go on, and tells waiters" {
    hold open "$W/ctl" rw acquire rw 0 alloc 4096 1 '' ''
    wait_for_lock open "$W/lock" rw
    spawn "$GMSFS" drain "$M"
    local drainer=$SPAWNED
    wait_until 5 draining_is true
    wait_exit "$WAITER"
    assert_match "$(output_of "$WAITER")" ECANCELED
    wait_until 5 grep -q 'waiting for 1 session:' "$T/spawn-$drainer"
    expect ENODEV open "$W/lock" rw
    assert_state weights RW
    let_go "$HOLDER"
    wait_exit -0 "$drainer"
    assert_eq "$(device_get .used_bytes)" 0 used
}

@test "drain --revoke ends the sessions" {
    commit_store
    hold open "$W/lock" r
    cli -0 drain --revoke "$M"
    assert_eq "$(device_get .used_bytes)" 0 used
    assert_eq "$(grep -c . "$W/sessions")" 0 sessions
    assert_eq "$(jq -rs 'map(select(.event == "revoked")) | length' <"$M/events")" 1 revoked
}

@test "after its timeout, or a signal, the mount serves again with its content" {
    commit_store
    hold open "$W/lock" r
    cli -3 drain --timeout 0.2 "$M"
    assert_match "$output" '1 session is left.*serves again'
    wait_until 5 draining_is false
    unchanged_but_read
    local number want=(TERM 143 KILL 137)
    for number in 0 2; do
        spawn "$GMSFS" drain "$M"
        wait_until 5 grep -q 'waiting for 1 session:' "$T/spawn-$SPAWNED"
        draining_is true
        kill "-${want[number]}" "$SPAWNED"
        wait_exit -"${want[number + 1]}" "$SPAWNED"
        wait_until 5 draining_is false
    done
    unchanged_but_read
    let_go "$HOLDER"
    unchanged
}

unchanged_but_read() {
    assert_state weights RO
    assert_eq "$(head -c 9 "$W/allocations/a")" committed bytes
}

# Memory is free when the keeper says so.
@test "a signal ends a drain that waits for memory to be freed, and reports the rest" {
    commit_store
    kill -STOP "$KEEPER"
    spawn "$GMSFS" drain "$M"
    local drainer=$SPAWNED
    wait_until 5 has_event dropped
    wait_until 5 is_pausing "$drainer"
    kill -TERM "$drainer"
    wait_exit "$drainer"
    kill -CONT "$KEEPER"
    assert_eq "$status" 143 status
    assert_match "$(output_of "$drainer")" 'serves again; its committed bytes are discarded, and .* given back'
    wait_until 5 draining_is false
    wait_until 5 uses_nothing
    commit_store
}

is_pausing() { # PID: it has an answer, and waits before it asks again
    grep -q nanosleep "/proc/$1/wchan"
}

has_event() { # NAME
    grep -q "\"$1\"" "$M/events"
}

uses_nothing() {
    [[ $(device_get .used_bytes) == 0 ]]
}

@test "a signal ends a drain that a stopped daemon does not answer" {
    local worker
    worker=$(worker_of "$KEEPER")
    hold open "$W/lock" rw
    spawn "$GMSFS" drain "$M"
    local drainer=$SPAWNED
    wait_until 5 grep -q 'waiting for' "$T/spawn-$drainer"
    kill -STOP "$worker"
    kill -TERM "$drainer"
    wait_exit "$drainer"
    kill -CONT "$worker"
    assert_eq "$status" 143 status
    wait_until 5 draining_is false
}

@test "one drain at a time, and --undo ends one that is under way" {
    hold open "$W/lock" rw
    spawn "$GMSFS" drain "$M"
    local drainer=$SPAWNED
    wait_until 5 grep -q 'waiting for' "$T/spawn-$drainer"
    cli -1 drain "$M"
    assert_match "$output" 'another .*drain.* is under way'
    cli -0 drain --undo "$M"
    wait_exit -1 "$drainer"
    assert_match "$(output_of "$drainer")" 'the drain was cancelled by .gmsfs drain --undo.'
    let_go "$HOLDER"
    ctl open "$W/lock" rw
}

@test "drain names a path that is no mount, and arguments that make no sense" {
    cli -1 drain "$T"
    assert_match "$output" 'not a gmsfs mount'
    cli -2 drain
    cli -2 drain --undo --revoke "$M"
    cli -2 drain --timeout soon "$M"
}

@test "a daemon that dies under a drain is reported to the process that drains" {
    hold open "$W/lock" rw
    spawn "$GMSFS" drain "$M"
    local drainer=$SPAWNED
    wait_until 5 grep -q 'waiting for' "$T/spawn-$drainer"
    kill_last_worker
    wait_exit -1 "$drainer"
    assert_match "$(output_of "$drainer")" 'the mount was unmounted, or its daemon died'
}

# An order of `.fds`: DRAIN, and revoke (version 1, operation 3, batch 1).
DRAIN_AND_REVOKE=hex:0100000003000000010000000000000000000000000000000000000000000000

@test "a drain that its caller gave up before it was read revokes no session" {
    local worker reader
    worker=$(worker_of "$KEEPER")
    hold open "$W/lock" rw
    reader=$HOLDER
    spawn "$GMSCTL" connect "$M" say connected until "$T/go" send "$DRAIN_AND_REVOKE" say sent pause
    wait_until 5 said "$SPAWNED" connected
    kill -STOP "$worker"
    touch "$T/go"
    wait_until 5 said "$SPAWNED" sent
    kill -KILL "$SPAWNED"
    wait_exit "$SPAWNED"
    kill -CONT "$worker"
    assert_state weights RW
    assert_eq "$(device_get .draining)" false
    kill -0 "$reader"
}
