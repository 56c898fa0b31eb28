#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# `auto` decides at the grant: the first process loads, all others read its commit.

load helpers

race() { # MODE N
    start_mount
    run_logged -0 timeout $((70 * HANG)) "$BUILD/tests/tools/auto_racer" "$1" "$M/weights" "$2"
    wait_until 5 no_sessions
}

@test "20 processes race on an empty store: one loads, 19 read" {
    race plain 20
    assert_state weights COMMITTED
    assert_eq "$(jq .generation "$M/weights/info")" 1 generation
}

@test "the first writer aborts: one other loads, 18 read" {
    race abort 20
    assert_state weights COMMITTED
    assert_eq "$(jq .generation "$M/weights/info")" 1 generation
}

@test "the first writer is killed: one other loads, 18 read" {
    race kill 20
    assert_state weights COMMITTED
    assert_eq "$(jq .generation "$M/weights/info")" 1 generation
}

@test "under a storm of signals too: one loads, 19 read" {
    race storm 20
    assert_state weights COMMITTED
    assert_eq "$(jq .generation "$M/weights/info")" 1 generation
}

@test "under a storm of signals everybody keeps the place in the queue" {
    export GMSFS_UNREAD=$T/unread
    : >"$GMSFS_UNREAD"
    race order 20
    assert_state weights EMPTY
}
