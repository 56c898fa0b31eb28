#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs drain --then: a drained store moves before it lets in again, and stays whole if the drainer is
# stopped. GMSFS_TEST_BACKEND=fake-cuda runs all of it over a GPU.
#
# shellcheck disable=SC2154,SC2153,SC2016 # output is set by bats' run, HOLDER by helpers; inner shells
# bats file_tags=slow

load helpers
load places

prepare() {
    start_tiers size=64M,host_size=32M
    ctl open "$W/lock" rw alloc 5000000 1 a '' commit
}

begin_drain() { # ARGUMENT...: DRAINER
    spawn env --default-signal=INT "$GMSFS" drain "$@"
    DRAINER=$SPAWNED
}

begin_held_move() { # a drain whose demotion stands at the gate, with a reader that waits behind it
    touch "$T/gate"
    begin_drain --then demote "$W"
    wait_until 5 grep -q '^moving host' "$W/residency"
    wait_for_lock reader "$W"
}

@test "drain --then demote moves the store when its holder has left, and then lets waiters in" {
    hold open "$W/lock" r
    local holder=$HOLDER
    begin_drain --then demote "$W"
    wait_until 5 grep -q 'waiting for' "$T/spawn-$DRAINER"
    at device
    wait_for_lock reader "$W"
    touch "$T/gate"
    let_go "$holder"
    wait_until 5 grep -q '^moving host' "$W/residency"
    never_within 1 granted "$WAITER"
    expect EAGAIN open "$W/lock" rn
    rm "$T/gate"
    wait_exit -0 "$DRAINER"
    assert_match "$(output_of "$DRAINER")" "$W is at host"
    wait_until 10 granted "$WAITER"
    at 'device host'
    assert_eq "$(jq -rs 'map(select(.store == "weights") | .event) |
        map(select(. == "demoted" or . == "store_serving" or . == "promoted")) | join(" ")' <"$M/events")" \
        'demoted store_serving promoted' order
}

@test "drain --then none gives the bytes up, and waiters are told so" {
    hold open "$W/lock" r
    local holder=$HOLDER
    begin_drain --then none "$W"
    wait_until 5 grep -q 'waiting for' "$T/spawn-$DRAINER"
    spawn "$GMSCTL" reader "$W"
    local reader=$SPAWNED
    wait_until 5 grep -q ' waiting ' "$W/sessions"
    at device
    let_go "$holder"
    wait_exit -0 "$DRAINER"
    assert_match "$(output_of "$DRAINER")" 'given up'
    wait_exit "$reader"
    assert_match "$(output_of "$reader")" ENODATA
    at none
}

@test "drain --then moves an unused store at once, and -q says nothing" {
    cli -0 drain -q --then demote "$W"
    assert_eq "$output" ''
    at host
    cli -0 drain --then demote "$W" # it is there
    assert_eq "$output" "$W is at host"
    cli -0 drain --then none "$W"
    at none
    assert_eq "$(info_of weights .draining)" false draining
}

@test "drain --then demote --to disk moves to the mount's files" {
    stop_mount
    mkdir "$T/spill"
    start_weights "size=64M,spill=$T/spill,spill_size=32M"
    ctl open "$W/lock" rw alloc 5000000 1 a '' commit
    cli -0 drain --then demote --to disk "$W"
    at disk
}

@test "a drain without --then never discards, nor moves" {
    cli -0 drain --revoke --kill "$W"
    at device
}

@test "a drainer that is killed or stopped in the middle of its move lets in, and no byte is lost" {
    local number want=(INT 130 TERM 143 KILL 137) before
    before=$(sha256sum <"$W/allocations/a")
    for number in 0 2 4; do
        begin_held_move
        kill "-${want[number]}" "$DRAINER"
        wait_exit -"${want[number + 1]}" "$DRAINER"
        wait_until 5 granted "$WAITER"
        assert_eq "$(info_of weights .draining)" false draining
        rm "$T/gate"
        wait_until 10 is_at 'device host' # the copy is a spare now, for the store is held
        assert_eq "$(sha256sum <"$W/allocations/a")" "$before" bytes
        let_go "$WAITER"
        echo -host >"$W/residency"
    done
}

@test "an undone drain's move does not take the store from a process that came in meanwhile" {
    begin_held_move
    cli -0 drain --undo "$W"
    wait_until 5 granted "$WAITER"
    rm "$T/gate"
    wait_exit -1 "$DRAINER"
    assert_match "$(output_of "$DRAINER")" 'stays at device'
    at 'device host'
}

@test "a drain that was undone while it waited for another move orders none of its own" {
    local to
    for to in none demote; do
        touch "$T/gate"
        order +host
        begin_drain --then "$to" "$W"
        wait_until 5 has_open "$DRAINER" "$W" # its file residency, to see the move's end
        cli -0 drain --undo "$W"
        rm "$T/gate"
        wait_exit -1 "$DRAINER"
        assert_match "$(output_of "$DRAINER")" 'the drain was cancelled by .gmsfs drain --undo.'
        at 'device host'
        order -host
    done
}

# order_drained WORD: DRAINER has the store drained, and when there is $T/go orders that by its drain.
order_drained() {
    rm -f "$T/go"
    spawn "$GMSCTL" connect "$M" ask-of drain "$W" 0 say drains until "$T/go" open "$W/residency" rw write-drained "$1"
    DRAINER=$SPAWNED
    wait_until 5 grep -q drains "$T/spawn-$DRAINER"
}

@test "an order that names its drain is given while that is on, and not by one that was undone or is another's" {
    local token=00112233445566778899aabbccddeeff word
    order_drained host
    touch "$T/go"
    wait_until 10 at host
    order_drained none
    cli -0 drain --undo "$W"
    touch "$T/go"
    wait_exit "$DRAINER"
    assert_match "$(output_of "$DRAINER")" ECANCELED
    order_drained none
    local first=$DRAINER
    cli -0 drain --undo "$W"
    begin_drain "$W" -- sleep 60
    wait_until 5 drains
    touch "$T/go"
    wait_exit "$first"
    assert_match "$(output_of "$first")" ECANCELED
    at host
    expect ECANCELED open "$W/residency" rw write "none drained $token"
    for word in "cancel drained $token" "+host drained $token" "none drained ${token%f}" "none drained $token$token" \
        "none drained" "none drained ${token%f}F"; do
        expect EINVAL open "$W/residency" rw write "$word"
    done
    kill "$DRAINER"
}

drains() {
    [[ $(info_of weights .draining) == true ]]
}

@test "a store that cannot move is named, and lets in as it was" {
    hold open "$W/lock" r
    local holder=$HOLDER
    cli -3 drain --then none --timeout 0.2 "$W"
    at device
    let_go "$holder"
    cli -1 drain --then demote --to disk "$W"
    assert_match "$output" 'the mount has no disk beside the device; mount it with spill='
    at device
    ctl open "$W/lock" rn
    mkdir "$M/empty"
    cli -1 drain --then none "$M/empty"
    assert_match "$output" 'nothing is committed'
}

@test "the store that was drained moves, not one that took its name meanwhile" {
    mkdir "$M/other"
    ctl open "$M/other/lock" rw alloc 5000000 1 a '' commit
    hold open "$W/lock" r
    local holder=$HOLDER
    begin_drain --then none "$W"
    wait_until 5 grep -q 'waiting for' "$T/spawn-$DRAINER"
    mv "$W" "$M/renamed"
    mv "$M/other" "$W"
    let_go "$holder"
    wait_exit -0 "$DRAINER"
    at none renamed
    at device
}

@test "drain says which words do not go with --then" {
    cli -2 drain --then demote "$M"
    cli -2 drain --then host "$W"
    cli -2 drain --then none --to host "$W"
    cli -2 drain --then demote --to none "$W"
    cli -2 drain --to host "$W"
    cli -2 drain --then demote "$W" -- true
    cli -2 drain --undo --then demote "$W"
}
