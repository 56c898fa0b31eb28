#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs mount --takeover: another process becomes the keeper of a mount, and clients notice a pause only.
#
# shellcheck disable=SC2004,SC2034,SC2153 # variables that the helpers read and set
# bats file_tags=slow

load helpers
load publish

RANDOM_OPS=$BUILD/tests/tools/random_ops

# bats test_tags=quick
@test "another keeper goes on with all there is, and the mount ends with it in order" {
    local before
    start_published
    exec 6<"$W/lock" 7<"$W/allocations/a"
    head -c 1000 <&7 >"$T/part"
    before=$(jq -c '[.id, .layout_hash, .generation, .bytes, .state]' "$W/info")
    take_over
    assert_eq "$(jq -c '[.id, .layout_hash, .generation, .bytes, .state]' "$W/info")" "$before" info
    head -c 3000000 <&7 >>"$T/part"
    cmp "$T/a" "$T/part"
    exec 6<&- 7<&-
    wait_until 5 state_is weights COMMITTED
    run_logged -0 timeout $((20 * HANG)) "$GMSCTL" reader "$W" export 0 0 connect "$M" redeem last 16
    take_over
    is_whole
    kill -KILL "$(worker_of "$KEEPER")"
    run_logged -0 timeout $((20 * HANG)) cmp "$T/a" "$W/allocations/a"
    cli upgrade "$M"
    is_whole
    stop_mount "$M"
}

# bats test_tags=host,quick
@test "random clients notice nothing of one keeper after the other" {
    start_mount granularity=64K,writer_patience=0.05
    mkdir "$M/other"
    spawn "$RANDOM_OPS" -s 1 -c 3 -r 3 -m 1000 "$M/weights" "$M/other"
    local i ops=$SPAWNED
    for i in {1..4}; do
        process_gone "$ops" || take_over
    done
    wait_exit -0 "$ops" 60
}

@test "a trace goes on with another keeper, and with another build" {
    start_mount size=16M,trace="$T/trace"
    "$GMSCTL" mkdir "$M/odd \"name\\"$'\n'
    take_over
    "$GMSCTL" mkdir "$M/second"
    cli upgrade "$M"
    "$GMSCTL" mkdir "$M/third"
    wait_until 5 bash -c "[[ \$(grep -c '\"mkdir\"' '$T/trace') -eq 3 ]]"
    { cat "$T/trace" && echo '{}]'; } >"$T/whole"
    assert_eq "$(jq '[.[] | select(.name == "process_name").pid] | unique | length' "$T/whole")" 3
    [[ ! -e $T/trace.1 ]]
}

# That keeper would be among the processes that have files of the mount open.
@test "one that is started in the mount, with a file of it open, does not keep it from being unmounted" {
    local at former
    start_published
    at=$M former=$KEEPER
    cd "$at"
    exec 6<weights/allocations/a
    "$GMSFS" mount -f --takeover . </dev/null >"$LOG.next" 2>&1 3>&- 4>&- &
    KEEPER=$!
    wait_until_any 10 grep -q ': taken over (' "$LOG.next"
    KEEPER_OF[$at]=$KEEPER
    wait_until_any 10 process_gone "$former"
    cd "$T"
    exec 6<&-
    kill -KILL "$(worker_of "$KEEPER")"
    run_logged -0 timeout $((20 * HANG)) cmp "$T/a" "$W/allocations/a"
    stop_mount "$at"
}

has_child() { # PID
    [[ -n $(cat "/proc/$1/task/"*/children) ]]
}

@test "a takeover of a mount that hangs says so, and one that is given up meanwhile is not done later" {
    local worker
    start_published
    worker=$(worker_of "$KEEPER")
    kill -STOP "$worker"
    spawn "$GMSFS" mount --takeover "$M"
    wait_until 10 grep -q 'does not answer; waiting for it' "$T/spawn-$SPAWNED"
    wait_until 5 has_child "$SPAWNED"
    kill -KILL "$SPAWNED"
    wait_until 5 process_gone "$SPAWNED"
    kill -CONT "$worker"
    wait_until 10 grep -q 'the other process gave up; this keeper continues' "$LOG"
    wait_until 5 grep -q 'not taken over: the process that asked for it has gone' "$T/spawn-$SPAWNED"
    is_whole
    assert_eq "$(device_get .keeper_pid) $(worker_of "$KEEPER")" "$KEEPER $worker" 'keeper and worker'
}

@test "in the background it answers when the mount goes on" {
    local former
    start_published
    former=$KEEPER
    cli mount --takeover "$M"
    wait_until_any 10 process_gone "$former"
    is_whole
    forget_mount "$M"
    cli umount "$M"
}

# Bounds follow the limit of open files of the first worker: objects admitted then stay admitted.
# bats test_tags=host
@test "with a lower limit of open files it goes on with more regions than that would allow" {
    local i former regions=()
    start_mount
    former=$KEEPER
    for i in {1..70}; do
        regions+=(region-register self "r$i" "/key$i" memfd:4096 64 1000)
    done
    ctl connect "$M" "${regions[@]}"
    # shellcheck disable=SC2016 # the inner shell expands them
    run_logged -0 bash -c 'ulimit -n 512 && exec "$0" mount --takeover "$1"' "$GMSFS" "$M"
    wait_until_any 10 process_gone "$former"
    assert_eq "$(find "$M/regions/$(id -u)" -type f | wc -l)" 70 regions
    forget_mount "$M"
    cli umount "$M"
}

@test "options are the mount's, and a path that is no mount is refused" {
    start_mount
    cli -2 mount --takeover -o size=1G "$M"
    assert_match "$output" 'the options are those of the mount'
    mkdir "$T/nothing"
    cli -1 mount --takeover "$T/nothing"
    assert_match "$output" "no gmsfs is mounted there; 'gmsfs status' lists the mounts"
    cat "$M/weights/state"
}

# bats test_tags=quick
@test "only root and the user that mounted may take over" {
    start_mount
    run_logged -1 as_user "$GMSFS" mount --takeover "$M"
    assert_match "$output" 'Operation not permitted .only root and the user that mounted it may: run this as one of them'
    cat "$M/weights/state"
    requires user-fuse || return 1
    MOUNT_VIA=("${AS_USER[@]}")
    start_mount
    local former=$KEEPER
    SECRET_OF_ROOT=hidden cli mount --takeover "$M"
    wait_until_any 10 process_gone "$former"
    KEEPER=$(keeper_of "$M")
    run_logged ! grep -a -e SECRET_OF_ROOT -e hidden "/proc/$KEEPER/environ"
    grep -a PATH= "/proc/$KEEPER/environ"
    assert_eq "$(readlink "/proc/$KEEPER/cwd") $(awk '{ print $7 }' "/proc/$KEEPER/stat")" '/ 0' 'directory, terminal'
    run_logged ! as_user readlink "/proc/$KEEPER/cwd" # nor may he trace it
    assert_eq "$(awk '/^[UG]id|^CapEff/ { print $2, $3 }' "/proc/$KEEPER/status" | tr '\n' ' ')" \
        "$TEST_UID $TEST_UID $TEST_UID $TEST_UID 0000000000000000  " 'user, group, capabilities'
    kill -KILL "$(worker_of "$KEEPER")"
    run_logged -0 as_user timeout $((20 * HANG)) cat "$M/weights/state"
    run_logged -0 as_user timeout $((20 * HANG)) mkdir "$M/other"
    forget_mount "$M"
    run_logged -0 as_user "$GMSFS" umount "$M"
    wait_until_any 5 process_gone "$KEEPER"
}

# The worker's open files that have no fixed number: pipes, files and sockets.
open_in_worker() {
    readlink "/proc/$(worker_of "$KEEPER")/fd/"* | sed 's/[0-9]\+//g' | sort
}

@test "the worker of a next keeper inherits nothing that another worker does not" {
    local former first
    start_published
    former=$KEEPER
    run_logged ! grep journal-ledger <(open_in_worker)
    cli mount --takeover "$M"
    wait_until_any 10 process_gone "$former"
    KEEPER=$(keeper_of "$M")
    run_logged ! grep journal-ledger <(open_in_worker)
    first=$(open_in_worker)
    kill -KILL "$(worker_of "$KEEPER")"
    run_logged -0 timeout $((20 * HANG)) cat "$W/state"
    assert_eq "$(open_in_worker)" "$first" 'open files of the second worker'
    forget_mount "$M"
    cli umount "$M"
}

@test "a takeover that is agreed on while no worker is there goes on at once" {
    export GMSFS_DIE_RESUMED=$T/die
    start_published
    # One that has agreed to nothing yet; it holds the keeper's offer open.
    GMSFS_TAKEOVER_STOP=offered spawn "$GMSFS" mount -f --takeover "$M"
    wait_until 10 process_stopped "$SPAWNED"
    touch "$GMSFS_DIE_RESUMED"
    kill -KILL "$(worker_of "$KEEPER")"
    wait_until_any 20 grep -q 'another one is started in 1.6 s' "$LOG"
    rm "$GMSFS_DIE_RESUMED"
    kill -CONT "$SPAWNED"
    wait_until_any 10 process_gone "$KEEPER"
    run_logged ! grep -q 'does not finish its step' "$LOG"
    KEEPER=$SPAWNED
    KEEPER_OF[$M]=$KEEPER
    run_logged -0 timeout $((20 * HANG)) cmp "$T/a" "$W/allocations/a"
    is_whole
}

@test "a next keeper that has not read the offer when the worker lets go of it keeps its connection" {
    local worker
    export GMSFS_PASSING_STOP=passed
    start_mount
    worker=$(worker_of "$KEEPER")
    # op 19: TAKEOVER
    spawn "$GMSCTL" connect "$M" send hex:0100000013000000000000000000000000000000000000000000000000000000 \
        until "$T/go" send x
    wait_until 10 process_stopped "$worker"
    wait_until 10 grep -q 'another process wants to become the keeper' "$LOG"
    kill -CONT "$worker"
    timeout $((10 * HANG)) cat "$M/device" >"$T/looked" # so the worker is past that step
    touch "$T/go"
    wait_exit -0 "$SPAWNED"
}

# bats test_tags=quick
@test "a next keeper that the last word does not reach does not go on" {
    local worker
    export GMSFS_TAKEOVER_MUTE=1
    start_published
    GMSFS_TAKEOVER_STOP=everything spawn "$GMSFS" mount -f --takeover "$M"
    wait_until 10 process_stopped "$SPAWNED"
    wait_until 20 grep -q 'did not receive everything: Resource temporarily unavailable; this one continues' "$LOG"
    run_logged -0 timeout $((20 * HANG)) cmp "$T/a" "$W/allocations/a"
    worker=$(worker_of "$KEEPER")
    kill -CONT "$SPAWNED"
    wait_exit -1 "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" 'the other keeper continues'
    assert_eq "$(worker_of "$KEEPER")" "$worker" 'the worker'
    is_whole
}

# bats test_tags=quick
@test "a keeper with other formats takes nothing" {
    start_published
    cp "$GMSFS" "$T/gmsfs"
    echo journal 77 77 >"$T/gmsfs.abi"
    local worker
    worker=$(worker_of "$KEEPER")
    run_logged -1 "$T/gmsfs" mount --takeover "$M"
    assert_match "$output" "the journal's files: the mount has version"
    assert_eq "$(worker_of "$KEEPER")" "$worker" 'the worker'
    is_whole
}

# GMSFS_TAKEOVER_STOP=POINT: the process stops itself there.
# bats test_tags=quick
@test "a keeper that dies before it has everything changes nothing" {
    local point next
    start_published
    for point in agreed text descriptors; do
        GMSFS_TAKEOVER_STOP=$point spawn "$GMSFS" mount -f --takeover "$M"
        next=$SPAWNED
        wait_until 10 process_stopped "$next"
        kill -KILL "$next"
        run_logged -0 timeout $((20 * HANG)) cmp "$T/a" "$W/allocations/a"
        kill -0 "$KEEPER"
    done
    take_over
    is_whole
}

# bats test_tags=quick
@test "a former keeper that dies when the next one has everything is done without" {
    local former
    start_published
    former=$KEEPER
    GMSFS_TAKEOVER_STOP=everything "$GMSFS" mount -f --takeover "$M" </dev/null >"$LOG.next" 2>&1 3>&- 4>&- 6>&- 7>&- &
    KEEPER=$!
    wait_until 10 process_stopped "$KEEPER"
    kill -KILL "$former"
    wait_until_any 5 process_gone "$former"
    kill -CONT "$KEEPER"
    KEEPER_OF[$M]=$KEEPER
    run_logged -0 timeout $((20 * HANG)) cmp "$T/a" "$W/allocations/a"
    is_whole
}
