#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The stores of a tensor-parallel model, on as many mounts, taken as one by engines that race and die.
#
# bats file_tags=slow

load helpers

MOUNT_COUNT=8

racer() { # ARGUMENT...
    run_logged -0 timeout $((100 * HANG)) "$BUILD/tests/tools/group_racer" "$@"
}

start_ranks() { # sets STORES
    local rank
    STORES=()
    for ((rank = 0; rank < MOUNT_COUNT; rank++)); do
        start_mount size=8M "$T/rank$rank"
        STORES+=("$T/rank$rank/weights")
    done
}

group_ids() {
    local store
    for store in "${STORES[@]}"; do
        jq -r .group "$store/info"
    done | sort -u
}

sums() {
    local store
    for store in "${STORES[@]}"; do
        cat "$store"/allocations/* | sha256sum
    done | sort -u
}

@test "two engines race for 8 mounts and are killed: one group of one engine remains" {
    requires jq
    start_ranks
    racer 60 "${STORES[@]}"
    wait_until 5 no_sessions "${STORES[@]}"
    assert_match "$(group_ids)" '^[0-9a-f]{32}$'
    assert_match "$(sums)" '^[0-9a-f]{64}  -$'
}

@test "two engines of one store each rank race on one mount as well" {
    requires jq
    start_mount size=32M
    mkdir "$M/two" "$M/three"
    STORES=("$M/weights" "$M/two" "$M/three")
    racer 40 "${STORES[@]}"
    wait_until 5 no_sessions "${STORES[@]}"
    assert_match "$(group_ids)" '^[0-9a-f]{32}$'
}

@test "a user that may not write reads a whole group, and is refused a mix" {
    requires root setpriv
    start_ranks
    chmod 755 "${STORES[@]}"
    racer 1 "${STORES[@]}"
    local nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups --)
    run_logged -0 "${nobody[@]}" "$BUILD/tests/tools/group_racer" connect RW_OR_RO 0 "${STORES[@]}"
    assert_eq "$output" RO grant
    run_logged -0 "${nobody[@]}" "$BUILD/tests/tools/group_racer" connect RW 0 "${STORES[@]}"
    assert_eq "$output" EACCES grant
    exec 5<>"${STORES[0]}/lock"
    echo 1 >"${STORES[0]}/commit"
    exec 5>&-
    wait_until 5 no_sessions "${STORES[@]}"
    run_logged -0 "${nobody[@]}" "$BUILD/tests/tools/group_racer" connect RW_OR_RO 0 "${STORES[@]}"
    assert_eq "$output" ESTALE grant
}

@test "a mount that dies while others are waited for fails the group, and frees them" {
    start_ranks
    local dead
    # The first in the order of ids is held by the group while it waits for the last.
    mapfile -t STORES < <(for store in "${STORES[@]}"; do
        echo "$(sed -n 's/.*"id": "\([0-9a-f]*\)".*/\1/p' "$store/info") $store"
    done | sort | cut -d ' ' -f 2)
    # shellcheck disable=SC2016 # for the inner shell
    spawn bash -c 'exec 5<>"$1/lock"; exec sleep 60' _ "${STORES[7]}"
    local holder=$SPAWNED
    assert_state "${STORES[7]}" RW
    spawn "$BUILD/tests/tools/group_racer" connect RW 60000 "${STORES[@]}"
    wait_until 5 grep -q waiting "${STORES[7]}/sessions"
    dead=${STORES[2]%/weights}
    expect_death "$dead"
    kill -KILL "${KEEPER_OF[$dead]}" "$(worker_of "${KEEPER_OF[$dead]}")"
    kill -KILL "$holder"
    wait_exit "$SPAWNED" 30
    assert_eq "$(output_of "$SPAWNED")" ENOTCONN answer
    STORES=("${STORES[@]:0:2}" "${STORES[@]:3}")
    wait_until 5 no_sessions "${STORES[@]}"
}
