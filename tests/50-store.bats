#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# A service manager holds the keeper's descriptors: after the keeper is killed, the restarted keeper goes on
# with the same mount. tests/tools/descriptor_store.py stands in for systemd.
#
# shellcheck disable=SC2030,SC2031,SC2034,SC2153 # variables that the helpers and bats read and set

load helpers
load publish

RANDOM_OPS=$BUILD/tests/tools/random_ops

# A mount under a manager whose store has so many places; KEEPER is the keeper, $S where the manager writes.
start() { # PLACES [OPTIONS]
    S=$T/manager
    mkdir -p "$S"
    printf '#!/bin/sh\nexec python3 %q %q %q %q "$@"\n' \
        "$ROOT/tests/tools/descriptor_store.py" "$S" "$1" "$GMSFS" >"$T/managed"
    chmod 755 "$T/managed"
    GMSFS=$T/managed start_mount "${@:2}"
    KEEPER=$(<"$S/main")
    W=$M/weights
    wait_until 5 stores gmsfs-index
}

stores() { # NAME
    grep -qx "$1" "$S/store"
}

stored() {
    wc -l <"$S/store"
}

stores_so_many() {
    [[ $(stored) -eq $1 ]]
}

# The manager starts another one, which goes on.
kill_keeper() {
    local former=$KEEPER
    kill -KILL "$former"
    wait_until 10 is_another "$former"
    KEEPER=$(<"$S/main")
    wait_until 20 grep -q ": resumed (.* keeper $KEEPER," "$LOG"
}

is_another() { # PID
    [[ $(<"$S/main") != "$1" ]]
}

@test "a keeper that is killed is followed by one that goes on with mount, memory and locks" {
    local before mount
    start 1000
    publish
    exec 6<"$W/lock" 7<"$W/allocations/a"
    head -c 1000 <&7 >"$T/part"
    mount=$(awk -v at="$M" '$5 == at' /proc/self/mountinfo)
    before=$(jq -c '[.id, .layout_hash, .generation, .bytes, .state]' "$W/info")
    kill_keeper
    assert_eq "$(awk -v at="$M" '$5 == at' /proc/self/mountinfo)" "$mount" 'the mount'
    assert_eq "$(jq -c '[.id, .layout_hash, .generation, .bytes, .state]' "$W/info")" "$before" info
    head -c 3000000 <&7 >>"$T/part"
    cmp "$T/a" "$T/part"
    assert_eq "$(device_get .last_recovery.cause)" 'the keeper ended' 'the cause'
    exec 6<&- 7<&-
    wait_until 5 state_is weights COMMITTED
    run_logged -0 timeout $((20 * HANG)) "$GMSCTL" reader "$W" export 0 0 connect "$M" redeem last 16
    is_whole
    kill_keeper
    kill -KILL "$(worker_of "$KEEPER")"
    run_logged -0 timeout $((20 * HANG)) cmp "$T/a" "$W/allocations/a"
    kill_keeper
    is_whole
}

@test "a waiter for a lock waits on when the keeper is killed" {
    start 1000
    hold open "$W/lock" rw
    spawn "$GMSCTL" open "$W/lock" rw say held until "$T/go"
    wait_for_waiters weights 1
    kill_keeper
    wait_for_waiters weights 1
    let_go "$HOLDER"
    wait_until 5 said "$SPAWNED" held
    touch "$T/go"
    wait_exit -0 "$SPAWNED"
}

# bats test_tags=host
@test "random clients notice nothing of keepers that are killed" {
    start 5000 granularity=64K,writer_patience=0.05
    mkdir "$M/other"
    spawn "$RANDOM_OPS" -s 1 -c 3 -r 3 -m 1000 "$M/weights" "$M/other"
    local i ops=$SPAWNED
    for i in {1..5}; do
        process_gone "$ops" || kill_keeper
    done
    wait_exit -0 "$ops" 60
}

@test "memory that is given back leaves the store before it counts as free, and an end in order leaves nothing" {
    local empty
    start 1000
    empty=$(stored)
    publish
    wait_until 5 stores_so_many "$((empty + 2))"
    kill_keeper
    wait_until 5 stores_so_many "$((empty + 2))"
    exec 5<>"$W/lock"
    rm "$W/allocations/a"
    commit_5
    wait_until 5 stores_so_many "$empty"
    stop_mount "$M"
    stores_so_many 0
}

@test "descriptors that the store has no place for are named, and nothing else is lost" {
    local i
    start 60
    exec 5<>"$W/lock"
    for i in {1..20}; do
        echo "content $i" >"$W/allocations/$i"
    done
    commit_5
    grep -q "descriptor store is incomplete: it is full" "$LOG"
    kill_keeper
    assert_eq "$(<"$W/allocations/1")" 'content 1' 'one that was stored'
    run_logged ! timeout 20 cat "$W/allocations/20"
    assert_match "$output" 'Input/output error'
}

@test "a program with formats that do not fit does not go on, and the next start mounts anew" {
    cp "$GMSFS" "$T/gmsfs"
    GMSFS=$T/gmsfs start 1000
    publish
    echo journal 77 77 >"$T/gmsfs.abi"
    kill -KILL "$KEEPER"
    wait_until 20 grep -q "cannot continue after the keeper's end: the journal's files: the mount has version" "$LOG"
    wait_until 20 mounted_times 2
    KEEPER=$(<"$S/main")
    wait_until 5 state_is weights EMPTY
    cli status "$M"
}

mounted_times() {
    [[ $(grep -c ': mounted (' "$LOG") -eq $1 ]]
}

@test "a worker that was another program is followed by that one" {
    cp "$GMSFS" "$T/gmsfs"
    GMSFS=$T/gmsfs start 1000
    publish
    cp "$T/gmsfs" "$T/gmsfs.new"
    mv "$T/gmsfs.new" "$T/gmsfs"
    cli upgrade "$M"
    kill_keeper
    is_whole
}

@test "a keeper that is stopped, and not killed, takes the mount with it" {
    start 1000
    publish
    forget_mount "$M"
    kill -TERM "$KEEPER"
    wait_until_any 10 not_mounted "$M"
    wait_until_any 10 stores_so_many 0
}

# bats test_tags=host
@test "a busy manager holds up no client, and holds everything when it is idle again" {
    local empty manager
    start 1000 granularity=64K
    empty=$(stored)
    manager=$(awk '$1 == "PPid:" { print $2 }' "/proc/$KEEPER/status")
    kill -STOP "$manager"
    ctl open "$W/lock" rw alloc 65536 100 '' '' commit
    kill -KILL "$(worker_of "$KEEPER")"
    run_logged -0 timeout $((5 * HANG)) cat "$W/state"
    grep -q 'the service manager is busy' "$LOG"
    kill -CONT "$manager"
    wait_until 10 stores_so_many $((empty + 200))
    kill_keeper
    assert_eq "$(jq -r .allocations "$W/info")" 100 allocations
    cat "$W/allocations/"* >"$T/all"
}
