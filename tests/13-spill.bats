#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The disk tier: files without names in spill=, and stores that go there and come back. The directory
# is a small tmpfs of the test's own. GMSFS_TEST_BACKEND=fake-cuda runs all of it over a GPU.
#
# shellcheck disable=SC2154 # output is set by bats' run
# shellcheck disable=SC2016 # bodies of shells
# bats file_tags=fake

load helpers
load places

prepare() {
    export GMSFS_GATE=$T/transfers # they wait while it is there
    mount_disk 24M
    start_tiers "size=64M,host_size=32M,spill=$SPILL,spill_size=48M"
}

teardown() {
    common_teardown
    umount_disk
}

spill_is() { # BYTES
    [[ $(device_get .spill_used_bytes) -eq $1 ]]
}

@test "a store goes to the disk and comes back straight; the disk shows no file of it" {
    committed
    local used
    used=$(device_get .used_bytes)
    move_to disk disk
    wait_until 5 used_is 0
    spill_is "$used"
    assert_eq "$(on_disk)" "$used"
    assert_eq "$(ls -A "$SPILL")" ''
    assert_eq "$(info_of weights '"\(.residency) \(.state)"')" '["disk"] COMMITTED'
    bytes_are_right
    grep -qxF 'gmsfs_store_copy{store="weights",tier="disk"} 1' "$M/metrics"
    grep -qxF "gmsfs_tier_used_bytes{tier=\"disk\"} $used" "$M/metrics"
    ctl reader "$W"
    at 'device disk'
    bytes_are_right
    move_to -disk device
    wait_until 5 disk_is_empty
}

@test "a store goes down step by step, and each slower copy can stay as a spare" {
    committed
    move_to +disk 'device disk'
    move_to +host 'device host disk'
    move_to host 'host disk'
    bytes_are_right
    move_to disk disk
    bytes_are_right
    move_to host 'host disk'
    bytes_are_right
    cli promote "$W"
    bytes_are_right
    cli demote --to disk "$W"
    at disk
    bytes_are_right
}

# bats test_tags=slow:fake
@test "a reader of a store on the disk, taken where it is, maps its file and cannot write to it" {
    committed
    cli sum --allocations "$W" >"$T/sum"
    move_to disk disk
    cli sum --allocations "$W" >"$T/sum.disk"
    assert_eq "$(cat "$T/sum.disk")" "$(cat "$T/sum")"
    at disk
    expect ENOLCK open "$W/ctl" rw acquire-any ro 0 connect "$M" export-rw 0 0
    expect EBADF open "$W/ctl" rw acquire-any ro 0 connect "$M" export 0 0 redeem last 8 poke 0 0 X
    bytes_are_right
}

# bats test_tags=slow:fake
@test "a file of the disk that a process keeps open is empty when the copy goes" {
    committed
    move_to disk disk
    hold open "$W/ctl" rw acquire-any ro 0 connect "$M" export 0 0 redeem last 8 release
    order none
    wait_until 5 at none
    wait_until 5 disk_is_empty
    let_go "$HOLDER"
}

@test "a disk that is full fails the move, and the store stays where it is" {
    mkdir "$M/big"
    committed big $((20 * MIB))
    committed
    move_to +host 'device host'
    move_to disk disk big
    order disk
    wait_until 10 at 'device host'
    has_event move_failed ENOSPC
    bytes_are_right
    wait_until 5 spill_is $((20 * MIB))
    move_to host host
    bytes_are_right
}

@test "a disk that fills up in the middle of a store gets back the space it gave" {
    ctl open "$W/lock" rw alloc $((10 * MIB)) 3 '' '' commit
    cli -1 demote --to disk "$W"
    at device
    has_event move_failed ENOSPC
    wait_until 5 disk_is_empty
    spill_is 0
    ctl reader "$W"
}

# The worker's descriptors of files on the disk.
spilled() {
    local link
    for link in "/proc/$(worker_of "$KEEPER")/fd/"*; do
        [[ $(readlink "$link") != "$SPILL/#"* ]] || echo "$link"
    done
}

# Makes the disk's copy unreadable from its second MiB on.
spoil_disk() {
    local link
    for link in $(spilled); do
        truncate -s 1M "$link"
    done
}

spoilt_is_told() {
    jq -e -s 'any(.event == "copy_dropped" and .tier == "disk" and .error == "EIO")' <"$M/events"
}

@test "a spare on the disk that turns out to be unreadable is dropped, and it is told" {
    committed
    move_to disk disk
    touch "$T/transfers"
    spawn "$GMSCTL" open "$W/allocations/a" r pread $((2 * MIB)) 10
    local reader=$SPAWNED
    wait_until 5 grep -qx 'gmsfs_transfers_in_flight 1' "$M/metrics"
    move_to device 'device disk'
    spoil_disk
    rm "$T/transfers"
    wait_until 5 at device
    wait_exit "$reader" 10 || :
    spoilt_is_told
}

@test "a copy unreadable on the disk is EIO to its waiters, and stays until it is given up" {
    local before
    committed
    before=$(cat "$W/layout_hash")
    move_to disk disk
    spoil_disk
    expect EIO reader "$W"
    expect EIO open "$W/ctl" rw acquire ro 5000
    at disk
    has_event move_failed EIO
    wait_until 5 used_is 0
    cli -1 promote "$W"
    assert_match "$output" 'stays at disk'
    expect EIO open "$W/allocations/a" r pread $((2 * MIB)) 10
    assert_eq "$(cat "$W/layout_hash")" "$before"
    assert_state weights COMMITTED
    order none
    wait_until 5 disk_is_empty
    ctl open "$W/auto" rw clear alloc 100 1 anew '' commit
    at device
    ctl reader "$W"
}

@test "an unreadable copy on the disk is harmless as long as there is a faster one" {
    committed_on_host
    move_to +disk 'host disk'
    spoil_disk
    ctl reader "$W"
    at 'device host disk'
    bytes_are_right
    move_to -disk 'device host'
    wait_until 5 disk_is_empty
    bytes_are_right
}

@test "a store whose copy on the disk is spoilt stays where it is, and is copied anew the next time" {
    committed
    move_to +disk 'device disk'
    spoil_disk
    order disk
    wait_until 10 at device
    spoilt_is_told
    has_event move_failed EIO
    bytes_are_right
    wait_until 5 disk_is_empty
    move_to disk disk
    bytes_are_right
}

start_with_fault() { # FAULT
    stop_mount
    GMSFS_FAULT=$1:in=worker start_mount "size=64M,host_size=32M,spill=$SPILL,spill_size=48M"
    W=$M/weights
}

@test "a copy on a disk that fails is dropped, by any name its driver gives the failure" {
    start_with_fault pread:after=1:errno=EREMOTEIO
    committed weights "$MIB"
    move_to host host
    move_to +disk 'host disk'
    committed big $((31 * MIB))
    order host big
    wait_until 10 at device big
    spoilt_is_told
    has_event move_failed ENOMEM
    at host
}

# bats test_tags=slow:fake
@test "an order that counts on a copy that cannot be dropped just now is refused, and the copy stays" {
    start_with_fault pread:after=1:errno=ENOMEM
    committed weights "$MIB"
    local sum=$SUM
    move_to host host
    move_to +disk 'host disk'
    committed big $((31 * MIB))
    order host big
    wait_until 10 at device big
    has_event move_failed ENOMEM
    at 'host disk'
    SUM=$sum bytes_are_right
}

@test "a disk that tells of an error when all is written fails the move, and the source stays" {
    stop_mount
    GMSFS_FAULT=fdatasync:after=0:errno=EIO:in=worker start_mount "size=64M,spill=$SPILL,spill_size=48M"
    W=$M/weights
    committed
    order disk
    wait_until 10 at device
    has_event move_failed EIO
    wait_until 5 disk_is_empty
    move_to disk disk
    bytes_are_right
}

# bats test_tags=slow:fake
@test "a waiter for a store that fails to go to the disk is let in when the store is back" {
    stop_mount
    export GMSFS_MOVE_GATE=$T/gate
    start_weights "size=64M,host_size=32M,spill=$SPILL,spill_size=48M"
    committed_on_host
    fallocate -l 22M "$SPILL/full"
    touch "$T/gate"
    order disk
    wait_for_lock reader "$W"
    rm "$T/gate"
    wait_until 10 granted "$WAITER"
    at 'device host'
    let_go "$WAITER"
    bytes_are_right
}

# bats test_tags=slow:fake
@test "spill_size bounds it, however large the disk is" {
    start_weights "size=64M,spill=$SPILL,spill_size=4M"
    committed
    expect ENOMEM open "$W/residency" w write disk
    at device
    disk_is_empty
}

# bats test_tags=slow:fake
@test "a mount that ends, or whose daemons are killed, leaves nothing on the disk" {
    committed
    move_to disk disk
    stop_mount "$M"
    wait_until 5 disk_is_empty
    start_weights "size=64M,spill=$SPILL,spill_size=48M"
    committed
    move_to disk disk
    [[ $(on_disk) -gt 0 ]]
    expect_death "$M"
    kill -KILL "$KEEPER" "$(worker_of "$KEEPER")"
    wait_until 10 disk_is_empty
}

# bats test_tags=slow:fake
@test "a directory that cannot be used is said at the mount" {
    mkdir -p "$T/m9"
    run_logged -1 timeout $((20 * HANG)) "$GMSFS" mount -f -o "backend=host,size=8M,spill=$T/nothing,spill_size=1G" "$T/m9"
    assert_match "$output" 'disk tier \(spill=.*nothing\): cannot be opened: No such file or directory .create it: mkdir -p.'
    run_logged -1 timeout $((20 * HANG)) "$GMSFS" mount -f -o "backend=host,size=8M,spill=/proc,spill_size=1G" "$T/m9"
    assert_match "$output" 'disk tier \(spill=/proc\)'
    run_logged -1 timeout $((20 * HANG)) "$GMSFS" mount -f -o "backend=host,size=8M,spill=$SPILL,spill_size=1M" "$T/m9"
    assert_match "$output" 'spill_size='
}

many_pieces() { # STORE: each part of its move begins with one
    mkdir "$M/$1"
    ctl open "$M/$1/lock" rw alloc 65536 12 '' '' commit
}

# bats test_tags=slow:fake
@test "a disk that hangs holds up no move that does not need it" {
    stop_mount
    mount -o remount,size=64M "$SPILL"
    export GMSFS_DISK_GATE=$T/disk
    start_weights "size=64M,host_size=32M,spill=$SPILL,spill_size=48M"
    committed_on_host
    many_pieces one
    many_pieces two
    touch "$T/disk"
    order disk one
    order disk two
    ctl reader "$W"
    at 'device host'
    grep -q '^moving disk 0 ' "$M/one/residency"
    grep -q '^moving disk 0 ' "$M/two/residency"
    rm "$T/disk"
    wait_until 10 at disk one
    wait_until 10 at disk two
}
