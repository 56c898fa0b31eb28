#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs drain STORE: new requests wait, holders are told to leave, nothing is discarded, and at the end
# of the command the store lets in again.
#
# shellcheck disable=SC2154,SC2153,SC2016 # output is set by bats' run, HOLDER by helpers; inner shells
# bats file_tags=slow

load helpers

prepare() {
    start_weights
    commit_store
}

drains_is() { # STORE true | false
    [[ $(info_of "$1" .draining) == "$2" ]]
}

begin_drain() { # ARGUMENT...: a drain that waits for the store's holder; DRAINER
    spawn env --default-signal=INT "$GMSFS" drain "$@"
    DRAINER=$SPAWNED
    wait_until 5 grep -q 'waiting for' "$T/spawn-$DRAINER"
}

@test "an unused store is drained at once, and keeps its content" {
    cli -0 drain "$W"
    assert_match "$output" 'no session holds'
    assert_eq "$(info_of weights .draining)" false draining
    unchanged
    assert_eq "$(jq -rs '[.[] | select(.event | startswith("store_")) | select(.event != "store_created") | .event + " " + .store] | join(",")' \
        <"$M/events")" 'store_draining weights,store_serving weights' events
}

@test "a request while a store drains waits, or is told to try again, and comes in behind it" {
    hold open "$W/lock" r
    begin_drain "$W"
    expect EAGAIN open "$W/lock" rn
    expect EAGAIN open "$W/lock" wn
    expect EAGAIN open "$W/allocations/a" r
    expect ETIMEDOUT open "$W/ctl" r acquire ro 100
    local holder=$HOLDER
    wait_for_lock reader "$W"
    let_go "$holder"
    wait_exit -0 "$DRAINER"
    wait_until 5 granted "$WAITER"
    drains_is weights false
}

@test "COMMAND runs while no process is let in, and its status is the command's" {
    hold open "$W/lock" r
    local holder=$HOLDER
    spawn "$GMSFS" drain "$W" -- sh -c "cat '$W/sessions' '$W/info' >'$T/seen'; mv '$W' '$M/renamed'; exit 7"
    local drainer=$SPAWNED
    wait_until 5 grep -q 'waiting for' "$T/spawn-$drainer"
    wait_for_lock reader "$W"
    let_go "$holder"
    wait_exit -7 "$drainer"
    assert_eq "$(grep -c ' held ' "$T/seen")" 0 'held meanwhile'
    assert_eq "$(grep -c ' waiting ' "$T/seen")" 1 'waiting meanwhile'
    grep -q '"draining": true' "$T/seen"
    wait_until 5 granted "$WAITER"
    assert_eq "$(info_of renamed .draining)" false draining
}

@test "holders are told by when to leave, by info, by events and by poll" {
    hold open "$W/lock" r
    spawn "$GMSCTL" open "$W/state" r read 64 say ready poll pri 10000 say changed
    local watcher=$SPAWNED before
    wait_until 5 said "$watcher" ready
    before=$(($(date +%s%N) / 1000000))
    begin_drain --timeout 60 "$W"
    wait_until 5 said "$watcher" changed
    local deadline
    deadline=$(info_of weights .drain_deadline_ms)
    ((deadline >= before + 60000 && deadline <= before + 60000 + 10000 * SLOW)) || fail "deadline $deadline"
    assert_eq "$(jq -rs 'map(select(.event == "store_draining"))[-1].deadline_ms' <"$M/events")" "$deadline" event
    grep -q '^gmsfs_store_draining{store="weights"} 1$' "$M/metrics"
    kill -TERM "$DRAINER"
    wait_exit "$DRAINER"
    assert_eq "$(info_of weights .drain_deadline_ms)" null deadline
}

@test "a drainer that is killed, or stopped by Ctrl-C or the timeout, undoes itself" {
    hold open "$W/lock" r
    cli -3 drain --timeout 0.2 "$W"
    assert_match "$output" '1 session is left.*open again'
    wait_until 5 drains_is weights false
    local number want=(INT 130 KILL 137)
    for number in 0 2; do
        begin_drain "$W"
        drains_is weights true
        kill "-${want[number]}" "$DRAINER"
        wait_exit -"${want[number + 1]}" "$DRAINER"
        wait_until 5 drains_is weights false
    done
    assert_state weights RO
    ctl open "$W/lock" rn
}

@test "drain --kill ends holders when the time is up, and names the ones it spares" {
    hold open "$W/lock" r
    local holder=$HOLDER
    cli -0 drain --kill --timeout 0.3 "$W"
    wait_exit -137 "$holder"
    unchanged
    # A shell that holds the store itself is not killed by its own command.
    run_logged -3 bash -c 'exec 3<"$1/lock"; "$2" drain --kill "$1"; exit $?' - "$W" "$GMSFS"
    assert_match "$output" 'it runs this command'
}

@test "drain --kill leaves a session held by a killed process's child to --revoke" {
    spawn bash -c 'exec 3<"$1/lock"; sleep 1000 & echo "$!" >"$2"; wait' - "$W" "$T/child"
    wait_until 5 test -s "$T/child"
    cli -0 drain --kill --revoke "$W"
    kill -0 "$(cat "$T/child")"
    kill "$(cat "$T/child")"
    unchanged
}

@test "drain --revoke ends the sessions when the time is up, and nothing is discarded" {
    hold open "$W/lock" r
    cli -0 drain --revoke --timeout 0.2 "$W"
    assert_eq "$(grep -c . "$W/sessions")" 0 sessions
    unchanged
    hold open "$W/lock" r
    cli -0 drain --revoke "$W"
    unchanged
}

@test "one drain of a store at a time, of several stores as many as one likes, and --undo ends one" {
    hold open "$W/lock" r
    begin_drain "$W"
    cli -1 drain "$W"
    assert_match "$output" 'another .*drain.* is under way'
    mkdir "$M/other"
    cli -0 drain "$M/other"
    cli -0 drain --undo "$W"
    wait_exit -1 "$DRAINER"
    assert_match "$(output_of "$DRAINER")" 'the drain was cancelled by .gmsfs drain --undo.'
    ctl open "$W/lock" rn
}

@test "a store that is removed meanwhile is told" {
    mkdir "$M/other"
    cli -0 drain "$M/other" -- rmdir "$M/other"
    [[ ! -e $M/other ]]
    run_logged -1 "$GMSFS" drain "$M/other"
}

@test "only a store's owner, root and the user that mounted drain it" {
    requires root
    mkdir "$M/theirs"
    chown "$TEST_UID" "$M/theirs"
    run_logged -0 as_user "$GMSFS" drain "$M/theirs"
    run_logged -1 as_user "$GMSFS" drain "$W"
    assert_match "$output" 'only root'
    run_logged -1 as_user "$GMSFS" drain --undo "$W"
    assert_match "$output" 'only root'
    cli -0 drain "$M/theirs"
}

@test "a user that may not even look into a store is told which users may drain it, and how" {
    requires root
    chmod 700 "$W"
    for option in '' --undo; do
        # shellcheck disable=SC2086 # none, or one
        run_logged -1 as_user "$GMSFS" drain $option "$W"
        assert_match "$output" "only root, .* owner, root \(uid 0\), can .*drain.*it; .*'chown'"
    done
    chown "$TEST_UID" "$W"
    run_logged -0 as_user "$GMSFS" drain "$W"
}

@test "drain names a path that is neither a mount nor a store, and arguments that make no sense" {
    cli -1 drain "$W/allocations"
    assert_match "$output" "no store.*gmsfs status' lists the stores"
    cli -2 drain --undo --kill "$W"
    cli -2 drain --undo "$W" -- true
    cli -2 drain --kill "$M"
    cli -2 drain "$M" -- true
    mkdir "$M/other"
    cli -2 drain "$W" "$M/other"
    assert_match "$output" "one MOUNT or STORE at a time; a COMMAND stands behind '--'"
    cli -2 drain "$W" "$M/other" -- true
    cli -0 drain -q -- "$W" true
}

@test "a drain that has ended is over, though the worker died before it had heard of the end" {
    local worker drainer
    worker=$(worker_of "$KEEPER")
    expect_death
    spawn "$GMSFS" drain "$W" -- bash -c 'kill -STOP "$1" && echo stopped' - "$worker"
    drainer=$SPAWNED
    wait_until 10 grep -q stopped "$T/spawn-$drainer"
    wait_until 10 sleeps_or_is_gone "$drainer"
    kill -KILL "$worker"
    wait_exit -0 "$drainer"
    assert_eq "$(info_of weights .draining)" false draining
    unchanged
}

sleeps_or_is_gone() { # PID: it has nothing to do but to wait, and no child that it waits for
    [[ $(cat "/proc/$1/task/$1/children" 2>/dev/null) == '' ]] &&
        [[ $(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) == @(S|) ]]
}

@test "a daemon that dies under a drain is reported to the process that drains the store" {
    hold open "$W/lock" w
    begin_drain "$W"
    kill_last_worker
    wait_exit -1 "$DRAINER"
}
