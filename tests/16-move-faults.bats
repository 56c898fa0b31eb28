#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Faults during a store's move: each process that takes part is killed at each of its steps (clients, the
# worker, the keeper, a drainer; the copier is in 63-cuda-moves and 59-crash-sample), memory runs out, a
# victim is in use. GMSFS_TEST_BACKEND=fake-cuda runs all of it over a GPU.
#
# The store is one allocation of three spans, so a move's steps are: its memory, a span, another, the
# last, and two parts that find nothing left. The gate lets the given number of steps through, then holds.
#
# shellcheck disable=SC2034,SC2154 # variables that the helpers read; output, status are set by bats' run
# bats file_tags=fake,slow:fake

load helpers
load memcg
load places

BYTES=$((130 << 20))
# The preparation, the order (or `reader`, which waits for the device), and the destination.
ORDERED=(': host' ': disk') WAITED_FOR=('host reader' 'disk reader')

prepare() {
    export GMSFS_MOVE_GATE=$T/gate # of any mount
    mount_disk 256M
}

teardown() {
    common_teardown
    umount_disk
}

start_all() {
    start_tiers "size=256M,host_size=256M,spill=$SPILL,spill_size=256M,keep_copy=no" "$@"
}

publish() {
    ctl open "$W/lock" rw alloc "$BYTES" 1 a '' open "$W/allocations/a" rw \
        pwrite 0 first pwrite $((BYTES - 4)) last use 0 commit
}

bytes_are_right() {
    assert_eq "$(head -c 5 "$W/allocations/a")" first 'first bytes'
    assert_eq "$(tail -c 4 "$W/allocations/a")" last 'last bytes'
}

# hold_after STEPS: moves that begin from here on wait at the gate behind so many steps.
hold_after() {
    rm -f "$T/gate.held"
    echo "$1" >"$T/gate"
}

is_held() {
    [[ -e $T/gate.held ]]
}

# begin_way STEPS BEFORE ORDER: the move stands behind so many of its steps; READER waits for it, or is ''.
begin_way() {
    READER=''
    [[ $2 == : ]] || {
        order "$2"
        wait_until 10 at "$2"
    }
    hold_after "$1"
    if [[ $3 == reader ]]; then
        wait_for_lock reader "$W"
        READER=$WAITER
    else
        order "$3"
    fi
    wait_until 10 is_held
}

tiers_are_free() { # beside the device
    [[ $(device_get '.host_used_bytes + .spill_used_bytes') -eq 0 ]]
}

copier_of() { # WORKER
    pgrep -P "$1" -x gmsfs-copier
}

# Nothing of the dead daemon is left, and another one at its place has all of the device, and a store
# that the next move can begin with.
nothing_is_left() { # KEEPER WORKER COPIER
    local pid
    for pid in "$@"; do
        wait_until_any 10 process_gone "$pid"
    done
    wait_until_any 10 disk_is_empty
    rm -f "$T/gate"
    ! is_mounted "$M" || umount "$M" # a dead keeper's
    start_all "$M"
    assert_eq "$(device_get '.used_bytes + .host_used_bytes + .spill_used_bytes')" 0 'memory of the new mount'
    [[ $BACKEND == host ]] || wait_until 5 nobody_else_has_memory
    publish
    bytes_are_right
}

nobody_else_has_memory() {
    [[ $(device_get .other_bytes) -eq 0 ]]
}

# daemons_die keeper|worker STEPS WAY...: it is killed behind so many steps of each way.
daemons_die() {
    local way steps worker pids
    start_all "$T/m"
    publish
    for way in "${@:3}"; do
        for steps in $2; do
            echo "# $way, $steps steps"
            # shellcheck disable=SC2086 # two words
            begin_way "$steps" $way
            worker=$(worker_of "$KEEPER")
            pids=("$KEEPER" "$worker")
            [[ $BACKEND == host ]] || pids+=("$(copier_of "$worker")")
            expect_death "$M"
            if [[ $1 == keeper ]]; then
                kill -KILL "$KEEPER"
            else
                kill_last_worker
            fi
            [[ -z $READER ]] || {
                wait_exit "$READER"
                assert_match "$(output_of "$READER")" 'ENOTCONN|ECONNABORTED'
            }
            nothing_is_left "${pids[@]}"
        done
    done
}

@test "a worker that is killed at any step of a move leaves no process, memory or file, and its place to others" {
    daemons_die worker '0 1 2 4' "${ORDERED[@]}"
}

# bats test_tags=slow
@test "so does one that is killed at any step of a move that a reader waits for" {
    daemons_die worker '0 1 2 4' "${WAITED_FOR[@]}"
}

# bats test_tags=slow
@test "so does a keeper" {
    daemons_die keeper '0 2' "${ORDERED[@]}" "${WAITED_FOR[@]}"
}

@test "a reader that is killed at any step of the promotion it waits for is forgotten, and the promotion ends" {
    local steps
    start_all
    publish
    for steps in 0 1 2 3 4 5; do
        begin_way "$steps" host reader
        kill -KILL "$READER"
        wait_until 5 waiters_are weights 0
        grep -q '^moving device' "$W/residency"
        rm "$T/gate"
        wait_until 10 at device
        bytes_are_right
        wait_until 5 tiers_are_free
    done
}

# bats test_tags=slow
@test "a client that ordered a move is not needed at any step of it" {
    local steps
    start_all
    publish
    for steps in 0 1 2 3 4 5; do
        hold_after "$steps"
        spawn "$GMSFS" demote "$W"
        wait_until 10 is_held
        kill -KILL "$SPAWNED"
        wait_exit "$SPAWNED"
        rm "$T/gate"
        wait_until 10 at host
        bytes_are_right
        order device
        wait_until 10 at device
    done
}

# bats test_tags=slow
@test "a drainer killed at any step of its move lets waiters in, and the move ends as a spare" {
    local steps drainer
    start_all
    publish
    for steps in 0 1 2 3 4 5; do
        hold_after "$steps"
        spawn "$GMSFS" drain --then demote "$W"
        drainer=$SPAWNED
        wait_until 10 is_held
        wait_for_lock reader "$W"
        kill -KILL "$drainer"
        wait_until 5 granted "$WAITER"
        assert_eq "$(info_of weights .draining)" false draining
        rm "$T/gate"
        wait_until 10 at 'device host'
        bytes_are_right
        let_go "$WAITER"
        order -host
        wait_until 5 tiers_are_free
    done
}

@test "a move cancelled at any step frees its memory, and the next one works" {
    local way steps before word
    start_all
    publish
    for way in 'device host' 'device disk' 'host device' 'host disk'; do
        read -r before word <<<"$way"
        for steps in 0 1 2 3 4 5; do
            echo "# $way, $steps steps"
            at "$before" || order "$before"
            wait_until 10 at "$before"
            wait_until 10 only_at "$before"
            hold_after "$steps"
            order "$word"
            wait_until 10 is_held
            order cancel
            at "$before"
            rm "$T/gate"
            bytes_are_right
            wait_until 10 only_at "$before"
        done
    done
    has_event move_failed ECANCELED
    order disk
    wait_until 10 at disk
    bytes_are_right
}

only_at() { # device | host
    local device=0 host=0
    if [[ $1 == device ]]; then device=$BYTES; else host=$BYTES; fi
    [[ $(device_get '"\(.used_bytes) \(.host_used_bytes) \(.spill_used_bytes)"') == "$device $host 0" ]] && disk_is_empty
}

@test "a store is ordered to where another one is just being freed, and comes there" {
    local up=other down=weights
    start_weights size=256M,host_size=288M
    mkdir "$M/other"
    publish
    order +host
    wait_until 10 at 'device host'
    order host
    ctl open "$M/other/lock" rw alloc "$BYTES" 1 a '' commit
    order +host other
    wait_until 10 at 'device host' other
    for _ in 1 2 3 4 5; do
        order host "$up"
        order device "$down"
        wait_until 10 at 'device host' "$down"
        read -r up down <<<"$down $up"
    done
    bytes_are_right
}

# ---- memory of the host ------------------------------------------------------------------------

# bats test_tags=host
@test "memory that the daemon's group lacks fails the move, not the daemon, and the store stays where it is" {
    requires memory-cgroup
    memcg_make 240
    start_all
    publish
    run_logged -1 "$GMSFS" demote "$W"
    assert_match "$output" 'stays at device'
    at device
    has_event move_failed ENOMEM
    bytes_are_right
    wait_until 5 tiers_are_free
    assert_eq "$(memcg_kills)" 0 'processes that were killed for memory'
    memcg_limit 512
    cli demote "$W"
    bytes_are_right
    stop_mount
    memcg_remove
}

# bats test_tags=host
@test "a victim that finds no memory elsewhere stays, and the other store waits until there is some" {
    requires memory-cgroup
    memcg_make 240
    start_weights size=160M,host_size=256M,min_stay=0
    publish
    mkdir "$M/other"
    spawn "$GMSCTL" open "$M/other/lock" rw alloc $((40 << 20)) 1 a '' commit
    local writer=$SPAWNED
    wait_until 10 has_event move_failed ENOMEM
    never_within 1 process_gone "$writer"
    is_at device # whether the next try has begun or not
    bytes_are_right
    memcg_limit 512
    wait_exit -0 "$writer"
    wait_until 10 at host
    bytes_are_right
    assert_eq "$(memcg_kills)" 0 'processes that were killed for memory'
    stop_mount
    memcg_remove
}

# ---- victims -----------------------------------------------------------------------------------

make_store() { # NAME MIB [TIER]
    mkdir "$M/$1"
    ctl open "$M/$1/lock" rw alloc $(($2 << 20)) 1 a '' open "$M/$1/allocations/a" rw \
        pwrite 0 "$1" use 0 commit
    [[ -z ${3-} ]] || move_to "$3" "$3" "$1"
}

# bats test_tags=slow
@test "a victim that is used while it leaves stays, its copy is a spare, and another one is chosen" {
    local store
    start_mount size=24M,host_size=64M,min_stay=0
    make_store d 8 host
    for store in a b c; do
        make_store "$store" 8
    done
    hold_after 0
    spawn "$GMSCTL" reader "$M/d" say granted pause
    local reader=$SPAWNED
    wait_until 10 grep -q '^moving host' "$M/a/residency"
    hold reader "$M/a"
    rm "$T/gate"
    wait_until 10 granted "$reader"
    wait_until 10 at 'device host' a
    at host b
    at device c
    at 'device host' d
    for store in d a b c; do
        assert_eq "$(head -c 1 "$M/$store/allocations/a")" "$store" bytes
    done
    assert_eq "$(jq -rs 'map(select(.event == "evicted") | .store) | join(" ")' <"$M/events")" b 'the evicted store'
    assert_eq "$(jq -rs 'map(select(.event == "copied") | .store) | join(" ")' <"$M/events")" a 'the store with a spare'
}

is_moving() { # TIER STORE
    grep -q "^moving $1" "$M/$2/residency"
}

# a is used while it leaves so that b can come, and stays.
use_who_leaves() {
    wait_until 10 is_moving host a
    wait_until 10 is_moving device b
    hold reader "$M/a"
    rm "$T/gate"
    wait_until 10 at 'device host' a
}

# bats test_tags=slow
@test "a store ordered to a place that no other leaves stays, and holds no other store up" {
    start_mount size=24M,host_size=96M,min_stay=0
    make_store b 16 host
    make_store c 4 host
    make_store a 12
    hold_after 0
    order device b
    use_who_leaves
    wait_until 5 at host b
    has_event move_failed ENOMEM
    ctl reader "$M/c"
    at 'device host' c
}

@test "a store that is ordered to where another one was ordered from stays, where that one stays" {
    start_mount size=24M,host_size=96M,evict=none
    make_store b 16 host
    make_store a 12
    hold_after 0
    order host a
    order device b
    use_who_leaves
    wait_until 5 at host b
    has_event move_failed ENOMEM
}
