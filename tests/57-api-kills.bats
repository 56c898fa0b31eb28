#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The programs of tests/api while the workers of their mounts are killed, again and again: they pass, so
# whoever calls libgmsfs notices nothing.

load helpers
load api

KILLS=6

# Every mount's worker, as soon as it goes on after the last time.
kill_workers() {
    local at
    for at in "${!KEEPER_OF[@]}"; do
        [[ $(grep -c ' goes on, ' "${LOG_OF[$at]}") -ge ${KILLED[$at]-0} ]] || continue
        KILLED[$at]=$((${KILLED[$at]-0} + 1))
        kill -KILL "$(worker_of "${KEEPER_OF[$at]}")"
    done
}

# api_killed NAME [-TEST]: without that one of its tests, until its mounts together lost $KILLS workers, 30 to 100 ms apart.
api_killed() {
    local -A KILLED=()
    local kills=0 at
    start_api "$1"
    while [[ $kills -lt $KILLS ]]; do
        spawn "$BUILD/tests/api/test_$1" "${@:2}"
        until process_gone "$SPAWNED"; do
            kill_workers
            sleep "0.0$((RANDOM % 7 + 3))"
        done
        wait_exit "$SPAWNED"
        assert_eq "$status" 0 "$(output_of "$SPAWNED")"
        kills=0
        for at in "${!KILLED[@]}"; do
            kills=$((kills + ${KILLED[$at]}))
        done
    done
}

@test "api under kills: adapters" {
    api_killed adapters
}

@test "api under kills: graph" {
    api_killed graph
}

@test "api under kills: graph_cuda" {
    api_killed graph_cuda
}

@test "api under kills: graph_pair" {
    api_killed graph_pair
}

@test "api under kills: graph_random" {
    api_killed graph_random
}

@test "api under kills: graph_turns" {
    api_killed graph_turns
}

@test "api under kills: group" {
    api_killed group
}

@test "api under kills: group_evict" {
    api_killed group_evict
}

@test "api under kills: group_places" {
    api_killed group_places
}

@test "api under kills: group_reserve" {
    api_killed group_reserve
}

@test "api under kills: group_wait" {
    api_killed group_wait
}

@test "api under kills: cuda" {
    api_killed cuda
}

@test "api under kills: lock" {
    api_killed lock
}

@test "api under kills: many" {
    api_killed many
}

@test "api under kills: memory" {
    api_killed memory
}

# A path that is replaced twice in a row while it is looked at may be ESTALE once, where the worker dies
# between the two: who has been told to look again is in its memory.
@test "api under kills: metadata" {
    api_killed metadata -never_stale
}

# A file of the mount that is given for an object is closed by the worker, which is asked for that itself:
# killed just then, it does not end, and no other one comes.
@test "api under kills: regions" {
    api_killed regions -a_file_of_the_mount_is_no_object
}

@test "api under kills: regions_threads" {
    api_killed regions_threads
}

@test "api under kills: seal" {
    api_killed seal
}

@test "api under kills: sizes" {
    api_killed sizes
}

@test "api under kills: slabs" {
    api_killed slabs
}

@test "api under kills: places" {
    api_killed places
}

@test "api under kills: places_cuda" {
    api_killed places_cuda
}

@test "api under kills: retarget" {
    api_killed retarget
}

@test "api under kills: retarget_cuda" {
    api_killed retarget_cuda
}

@test "api under kills: sleep" {
    api_killed sleep
}

@test "api under kills: store" {
    api_killed store
}

@test "api under kills: user" {
    api_killed user
}

@test "api under kills: wait" {
    api_killed wait
}
