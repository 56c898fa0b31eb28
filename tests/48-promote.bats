#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs promote, demote and wait resident: moves by command, and the errors for impossible moves.
# GMSFS_TEST_BACKEND=fake-cuda runs all of it over a GPU.
#
# shellcheck disable=SC2154 # output is set by bats' run
# shellcheck disable=SC2016 # bodies of shells

load helpers
load places

prepare() { start_tiers size=64M,host_size=32M; }

committed() { # [STORE]
    ctl open "$M/${1-weights}/lock" rw alloc 5000000 1 a '' commit
}

@test "demote gives a store's memory back, promote brings it again; each says so" {
    committed
    cli demote "$W"
    assert_eq "$output" "$W is at host"
    at host
    wait_until 5 used_is 0
    cli demote "$W" # it is there
    cli promote "$W"
    assert_eq "$output" "$W is at device"
    at 'device host'
    cli promote -q "$W"
    assert_eq "$output" ''
    cli demote --to none "$W"
    assert_match "$output" 'given up'
    at none
}

@test "one store comes where another one has just left, over and over" {
    start_mount size=8M,host_size=32M,evict=none,min_stay=0
    mkdir "$M/two"
    committed weights
    cli demote "$M/weights"
    committed two
    for _ in {1..20}; do
        cli demote -q "$M/two"
        cli promote -q "$M/weights"
        cli demote -q "$M/weights"
        cli promote -q "$M/two"
    done
}

@test "several stores move side by side, and one that cannot does not stop the others" {
    mkdir "$M/two" "$M/three"
    committed
    committed two
    committed three
    hold reader "$M/two"
    cli -1 demote "$W" "$M/two" "$M/three"
    assert_match "$output" "two: its lock is held by gmsctl \\(pid $HOLDER\\)"
    at host
    at device two
    at host three
    let_go "$HOLDER"
    touch "$T/gate"
    cli promote -a "$W" "$M/three"
    assert_match "$output" "$W moves to device"
    is_at host
    grep -q '^moving device' "$W/residency"
    grep -q '^moving device' "$M/three/residency"
    rm "$T/gate"
    cli wait "$M/three" resident
    cli wait "$W" resident
    at 'device host'
    at 'device host' three
}

@test "an order for a move under way waits with it; for another place, until that has ended" {
    committed
    touch "$T/gate"
    cli demote -a "$W"
    spawn "$GMSFS" demote "$W"
    local same=$SPAWNED
    spawn "$GMSFS" promote "$W"
    local back=$SPAWNED
    never_within 1 process_gone "$back"
    process_lives "$same"
    rm "$T/gate"
    wait_exit "$back"
    wait_until 10 process_gone "$same"
    at 'device host'
}

@test "a demotion of a store whose spare is being made waits for that, and then the store leaves" {
    committed
    touch "$T/gate"
    ctl open "$W/residency" w write +host
    assert_eq "$(info_of weights .moving.spare)" true
    spawn "$GMSFS" demote "$W"
    never_within 1 process_gone "$SPAWNED"
    cli -3 demote --timeout 0.2 "$W"
    assert_match "$output" 'still moving to host'
    rm "$T/gate"
    wait_exit "$SPAWNED"
    assert_eq "$(output_of "$SPAWNED")" "$W is at host"
    at host
}

# bats test_tags=slow
@test "a wait that takes too long ends with 3, and the move goes on" {
    committed
    touch "$T/gate"
    cli -3 demote --timeout 0.2 "$W"
    assert_match "$output" "$W: still at device; the move to host goes on, unless you write 'cancel'"
    cli -3 promote --timeout 0.2 "$W"
    assert_match "$output" "$W: still moving to host; .*--timeout"
    rm "$T/gate"
    wait_until 10 is_at host
    cli -3 wait --timeout 0 "$W" resident
    assert_match "$output" 'still at host'
}

# bats test_tags=slow
@test "a signal ends the command, which says that the move goes on" {
    committed
    touch "$T/gate"
    spawn env --default-signal=INT "$GMSFS" demote "$W"
    wait_until 5 grep -q '^moving host' "$W/residency"
    kill -INT "$SPAWNED"
    wait_exit -130 "$SPAWNED"
    assert_eq "$(output_of "$SPAWNED")" 'gmsfs demote: stopped by a signal (Interrupt); moves that had begun go on'
    rm "$T/gate"
    wait_until 10 at host
}

# bats test_tags=slow
@test "wait resident is over when a reader has brought the store" {
    committed
    cli demote "$W"
    spawn "$GMSFS" wait "$W" resident
    local waiter=$SPAWNED
    never_within 1 process_gone "$waiter"
    ctl reader "$W"
    wait_exit "$waiter"
}

@test "what is no store, no place and no state is refused" {
    cli -1 promote "$T"
    cli -1 promote "$M/nothing"
    cli -2 promote
    cli -2 demote --to device "$W"
    cli -2 wait "$W" RESIDENT
}

# bats test_tags=slow
@test "status shows where a store is, and where it goes" {
    committed
    shows() { "$GMSFS" status "$M" | grep -q "weights *$1 "; }
    shows COMMITTED
    touch "$T/gate"
    cli demote -a "$W"
    shows 'COMMITTED to host 0%'
    rm "$T/gate"
    wait_until 10 is_at host
    shows 'COMMITTED on host'
    touch "$T/gate"
    cli promote -a "$W"
    shows 'COMMITTED on host to device 0%'
    rm "$T/gate"
    cli promote "$W"
    cli demote --to none "$W"
    shows 'COMMITTED on none'
    "$GMSFS" status --json "$M" | jq -e '.[0].stores[] | select(.name == "weights").residency == []'
}
