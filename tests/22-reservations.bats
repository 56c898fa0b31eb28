#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Memory reserved together with the writer's lock: both or neither, in the order of requests.
#
# The devices here have 16 MiB; a "half" is more than half of it.
#
# shellcheck disable=SC2154 # output is set by bats' run
# bats file_tags=slow

load helpers

HALF=$((10 * MIB))

prepare() {
    start_weights size=16M,alloc_timeout=0.2
    V=$M/other
    mkdir "$V"
}

reserved_is() { # BYTES
    [[ $(device_get .reserved_bytes) -eq $1 ]]
}

waits() { # STORE OP...: in the background, until it waits for the lock; sets WAITER
    local store=$1
    shift
    spawn "$GMSCTL" "$@"
    WAITER=$SPAWNED
    wait_for_waiters "$store" 1
}

is_loaded() { # STORE
    state_is "$1" COMMITTED && [[ $(info_of "$1" .bytes) -eq $HALF ]]
}

make_model() { # BYTES
    MODEL=$T/model.safetensors
    write_tensors "$MODEL" "$1"
}

@test "a reservation shows in device, info, df and metrics" {
    hold open "$W/ctl" rw acquire-reserve rw 0 $((HALF - 1))
    assert_eq "$(device_get .reserved_bytes)" "$HALF" reserved # in units of memory
    assert_eq "$(device_get .used_bytes)" 0 used
    assert_eq "$(info_of weights .reserved_bytes)" "$HALF" 'of the writer'
    assert_eq "$(info_of other .reserved_bytes)" 0 'of another store'
    assert_eq "$(df --output=avail -B1 "$M" | tail -n 1)" $((6 * MIB)) free
    grep -qx "gmsfs_device_reserved_bytes $HALF" "$M/metrics"
    let_go "$HOLDER"
    wait_until 5 reserved_is 0
}

@test "allocations use the reservation, by every way to make them" {
    hold open "$W/ctl" rw acquire-reserve rw 0 $((14 * MIB)) alloc $((2 * MIB)) 2 '' '' \
        alloc 1 1 '' '' export-rw 0 0
    assert_eq "$(device_get .reserved_bytes)" $((8 * MIB)) 'left over'
    assert_eq "$(device_get .used_bytes)" $((6 * MIB)) used
    let_go "$HOLDER"
    wait_until 5 used_is 0
    # A file of a process belongs to such a session by its token.
    hold open "$W/ctl" rw acquire-reserve rw 0 $((14 * MIB)) alloc $((10 * MIB)) 1 '' ''
    expect ENOMEM open "$V/ctl" rw acquire-reserve rw 0 $((4 * MIB))
    assert_eq "$(device_get .reserved_bytes)" $((4 * MIB)) 'left over'
}

@test "others cannot have reserved memory, by ALLOC, ftruncate or write" {
    hold open "$W/ctl" rw acquire-reserve rw 0 $HALF
    expect ENOMEM open "$V/ctl" rw acquire rw 0 alloc-nowait $((8 * MIB)) 1 '' ''
    expect ENOMEM open "$V/ctl" rw acquire rw 0 alloc $((8 * MIB)) 1 '' ''
    expect ENOMEM open "$V/lock" rw open "$V/allocations/a" rwc ftruncate $((8 * MIB))
    expect_message ENOMEM dd if=/dev/zero of="$V/allocations/b" bs=8M count=1 status=none
    ctl open "$V/ctl" rw acquire rw 0 alloc-nowait $((6 * MIB)) 1 '' ''
}

@test "a reservation that can never be met is ENOMEM at once, also for a caller that would wait" {
    expect ENOMEM open "$W/ctl" rw acquire-reserve rw 60000 $((17 * MIB))
    expect ENOMEM open "$W/ctl" rw acquire-reserve rw 60000 $(((1 << 63) - 1 + (1 << 62)))
    expect EINVAL open "$W/ctl" rw acquire-reserve ro 0 4096
    assert_state weights EMPTY
}

@test "tried once: EAGAIN when the lock is not free, ENOMEM when the memory is not" {
    hold open "$W/ctl" rw acquire-reserve rw 0 $HALF
    expect EAGAIN open "$W/ctl" rw acquire-reserve rw 0 4096
    expect ENOMEM open "$V/ctl" rw acquire-reserve rw 0 $HALF
    expect ETIMEDOUT open "$V/ctl" rw acquire-reserve rw 50 $HALF
    assert_state other EMPTY
    ctl open "$V/ctl" rw acquire-reserve rw 0 $((6 * MIB))
}

@test "a waiter holds neither lock nor memory, and gets both when they are there" {
    hold open "$W/ctl" rw acquire-reserve rw 0 $HALF
    waits other open "$V/ctl" rw acquire-reserve rw 60000 $HALF say got pause
    assert_state other EMPTY
    assert_eq "$(device_get .reserved_bytes)" "$HALF" 'only the first'
    ctl open "$V/lock" rw # an open without a reservation is not held up
    never_within 1 said "$WAITER" got
    let_go "$HOLDER"
    wait_until 5 said "$WAITER" got
    assert_eq "$(device_get .reserved_bytes)" "$HALF" 'only the second'
    assert_state other RW
    let_go "$WAITER"
}

@test "a writer can replace a layout that fills the device, and no other writer takes the freed memory" {
    ctl open "$W/ctl" rw acquire rw 0 alloc $((12 * MIB)) 1 '' '' commit
    # 4 MiB are free: the rest is the store's own.
    hold open "$W/ctl" rw acquire-reserve rw 0 $((14 * MIB)) clear alloc $((6 * MIB)) 1 '' ''
    expect ENOMEM open "$V/ctl" rw acquire rw 0 alloc $((4 * MIB)) 1 '' ''
    assert_eq "$(info_of weights .reserved_bytes)" $((8 * MIB)) 'still promised'
    let_go "$HOLDER"
    ctl open "$W/ctl" rw acquire-reserve rw 5000 $((16 * MIB)) clear alloc $((8 * MIB)) 2 '' '' commit
    # The same again, of a device that holds only one copy.
    ctl open "$W/ctl" rw acquire-reserve rw 5000 $((16 * MIB)) clear alloc $((8 * MIB)) 2 '' '' commit
    assert_eq "$(info_of weights .generation)" 3 generation
}

@test "with room for both, a reservation leaves the committed layout to be rolled back to" {
    commit_store
    hold open "$W/ctl" rw acquire-reserve rw 0 $((14 * MIB)) clear alloc $((14 * MIB)) 1 '' ''
    let_go "$HOLDER"
    wait_until 5 state_is weights COMMITTED
    unchanged
}

@test "a writer's session sets more aside, or gives back, by RESERVE" {
    run_logged -0 "$GMSCTL" open "$W/ctl" rw acquire rw 0 reserve $HALF 0 reserve $((4 * MIB)) 1 \
        reserve $((4 * MIB)) 0 reserve 0 0
    assert_match "$output" "reserved=$HALF before=0"
    assert_match "$output" "reserved=$HALF before=$HALF"
    assert_match "$output" "reserved=$((4 * MIB)) before=$HALF"
    assert_match "$output" "reserved=0 before=$((4 * MIB))"
    expect ENOMEM open "$W/ctl" rw acquire rw 0 reserve $((17 * MIB)) 0
    expect ENOLCK open "$W/ctl" rw reserve 4096 0
    expect EINVAL open "$W/ctl" rw acquire rw 0 reserve 4096 8
    hold open "$W/ctl" rw acquire rw 0 reserve $HALF 0
    expect ENOMEM open "$V/ctl" rw acquire rw 0 reserve $((8 * MIB)) 2
    expect ENOMEM open "$V/ctl" rw acquire rw 0 reserve $((8 * MIB)) 0
    expect ENOMEM open "$V/ctl" rw acquire rw 0 reserve $((8 * MIB)) 4
}

@test "ALLOC waits for memory that another writer may give up, not for memory that stays where it is" {
    start_mount size=16M,alloc_timeout=60
    mkdir "$M/other"
    ctl open "$M/other/ctl" rw acquire rw 0 alloc $HALF 1 '' '' commit
    local begun=$SECONDS
    expect ENOMEM open "$M/weights/ctl" rw acquire rw 0 alloc $HALF 1 '' ''
    expect ENOMEM open "$M/weights/ctl" rw acquire rw 0 alloc $((4 * MIB)) 1 '' '' alloc $((4 * MIB)) 1 '' ''
    expect ENOMEM open "$M/weights/ctl" rw acquire rw 0 reserve $HALF 0
    ((SECONDS - begun < 20)) || fail 'it has waited'
    hold open "$M/other/ctl" rw acquire rw 0 alloc $((4 * MIB)) 1 '' ''
    spawn "$GMSCTL" open "$M/weights/ctl" rw acquire rw 0 alloc $((4 * MIB)) 1 '' ''
    local waiter=$SPAWNED
    wait_until 5 metric_is gmsfs_allocs_waiting 1
    let_go "$HOLDER"
    wait_exit -0 "$waiter" 10
}

@test "ALLOC waits for a store that is leaving the device, also where none is made to leave for it" {
    export GMSFS_MOVE_GATE=$T/gate
    start_mount size=16M,host_size=16M,alloc_timeout=60,evict=none
    mkdir "$M/other"
    ctl open "$M/other/ctl" rw acquire rw 0 alloc $((12 * MIB)) 1 '' '' commit
    touch "$T/gate"
    echo host >"$M/other/residency"
    spawn "$GMSCTL" open "$M/weights/ctl" rw acquire rw 0 alloc $HALF 1 '' ''
    wait_until 5 metric_is gmsfs_allocs_waiting 1
    rm "$T/gate"
    wait_exit -0 "$SPAWNED" 10
}

@test "of two loaders for a device that holds one model, one loads and the other waits for its turn" {
    requires python3
    make_model $HALF
    local one two
    for _ in 1 2 3 4 5; do
        spawn "$GMSFS" load "$W" "$MODEL"
        one=$SPAWNED
        spawn "$GMSFS" load --timeout 60 "$V" "$MODEL"
        two=$SPAWNED
        wait_until 20 eval 'is_loaded weights || is_loaded other'
        if is_loaded weights; then
            assert_eq "$(info_of other .bytes)" 0 'bytes of the loser'
            ctl open "$W/lock" rw use 0 clear commit
        else
            assert_eq "$(info_of weights .bytes)" 0 'bytes of the loser'
            ctl open "$V/lock" rw use 0 clear commit
        fi
        wait_exit -0 "$one" 20
        wait_exit -0 "$two" 20
        ctl open "$W/lock" rw use 0 clear commit
        ctl open "$V/lock" rw use 0 clear commit
        wait_until 5 used_is 0
    done
}

@test "load says that it waits for memory, and gives up after its timeout with both states as they were" {
    requires python3
    make_model $HALF
    ctl open "$V/ctl" rw acquire rw 0 alloc $HALF 1 '' '' commit
    run_logged -3 "$GMSFS" load --timeout 0.3 "$W" "$MODEL"
    assert_match "$output" 'waiting for memory for .*weights: 10.0 MiB needed, 6.0 MiB free; .gmsfs status. shows the stores'
    assert_match "$output" 'does not fit: 10.0 MiB needed, 6.0 MiB free of 16.0 MiB; that did not change in the time given; .gmsfs status. shows'
    assert_match "$output" 'wait longer \(--timeout\)'
    assert_state weights EMPTY
    assert_state other COMMITTED
    run_logged -3 "$GMSFS" load --timeout 0 "$W" "$MODEL"
    assert_match "$output" 'does not fit: .* free of 16.0 MiB; remove another'
}

@test "load names the process that asked for memory before, instead of a free lock as taken" {
    requires python3
    make_model $HALF
    ctl open "$V/ctl" rw acquire rw 0 alloc $HALF 1 '' '' commit
    spawn "$GMSFS" load "$W" "$MODEL"
    local first=$SPAWNED
    wait_until 5 eval "output_of $first | grep -q 'waiting for memory'"
    assert_eq "$(info_of other .behind) $(info_of weights .behind)" 'weights null'
    run_logged -3 "$GMSFS" load --timeout 0.3 "$V" "$MODEL"
    assert_match "$output" 'waiting for memory for .*: weights is ahead in the queue'
    assert_match "$output" 'weights asked for memory of the device before, .*another store'
    [[ $output != *sessions* ]] || fail 'a lock is blamed'
    ctl open "$V/lock" rw use 0 clear commit
    wait_exit -0 "$first" 20
}
