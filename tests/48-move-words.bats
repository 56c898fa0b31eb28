#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Messages of gmsfs promote and demote where a store does not move: the store, the obstacle, and the way
# out.
#
# shellcheck disable=SC2034,SC2153,SC2154 # MOUNT_VIA, HOLDER are of helpers.bash; output is set by bats' run
# bats file_tags=slow

load helpers
load places

teardown() {
    common_teardown
    umount_disk
}

# refused STATUS PATTERN COMMAND...
refused() {
    local want=$1 pattern=$2
    shift 2
    cli "-$want" "$@"
    assert_match "$output" "$pattern"
    assert_eq "${#lines[@]}" 1 lines
}

# at_host STORE MIB...: stores on the host alone
at_host() {
    while (($# > 0)); do
        committed "$1" $(($2 * MIB))
        move_to host host "$1"
        shift 2
    done
}

# ---- away from the device ---------------------------------------------------------------------

@test "a place that the mount has not is named, with the options that make it" {
    start_tiers size=32M,host_size=16M
    committed
    refused 1 "cannot move: $W: the mount has no disk beside the device; mount it with spill=DIRECTORY,spill_size=SIZE" \
        demote --to disk "$W"
    committed big $((20 * MIB))
    refused 1 "big: it never fits: it has 20.0 MiB, and the host memory beside the device 16.0 MiB in all; .*host_size=SIZE.*--to disk" \
        demote "$M/big"
}

@test "a place that is full says how much lacks, and how to make room" {
    start_tiers size=32M,host_size=16M
    at_host one 12
    committed weights $((8 * MIB))
    refused 1 "$W: the host memory beside the device has no room for it: it needs 8.0 MiB, and 4.0 MiB of 16.0 MiB are free; .*demote --to disk.*host_size=SIZE" \
        demote "$W"
}

@test "the holder of the lock is named" {
    start_tiers size=32M,host_size=16M
    committed
    hold reader "$W"
    refused 1 "$W: its lock is held by gmsctl \\(pid $HOLDER\\); .*gmsfs drain --then demote" demote "$W"
    local first=$HOLDER
    hold reader "$W"
    refused 1 "$W: its lock is held by gmsctl \\(pid $first\\) and 1 more; " demote "$W"
    let_go "$first" "$HOLDER"
    hold open "$W/lock" w
    refused 1 "$W: its writer, gmsctl \\(pid $HOLDER\\), has its lock; it can move after the commit" demote "$W"
}

@test "a store without bytes says whether it never had any" {
    start_tiers size=32M,host_size=16M
    refused 1 "$W: nothing is committed in it; 'gmsfs load' fills it" demote "$W"
    committed
    cli demote -q --to none "$W"
    refused 1 "$W: there are no bytes of it: they were given up; 'gmsfs load'" promote "$W"
}

@test "a user that may not move a store is told which users may" {
    requires root
    start_tiers size=32M,host_size=16M
    committed
    run_logged -1 as_user "$GMSFS" demote "$W"
    assert_match "$output" "$W: permission denied: only root, .* root \\(uid 0\\), can move it; "
}

@test "a part of a mount, or a mount that may not be written to, is told as that" {
    requires root
    start_tiers size=32M,host_size=16M
    committed
    mkdir "$T/part" "$T/whole"
    mount --bind "$W" "$T/part"
    mount --bind "$M" "$T/whole"
    mount -o remount,ro,bind "$T/whole"
    refused 1 "$T/part: .*only a part of a mount was bound there; .*gmsfs status" drain "$T/part"
    refused 1 "$T/whole/weights: it is mounted read-only here; " promote "$T/whole/weights"
    umount "$T/part" "$T/whole"
}

# ---- to the device ----------------------------------------------------------------------------

@test "a store that came a moment ago stays, and the order that lacks its room is told so" {
    start_tiers size=32M,host_size=64M,min_stay=60
    at_host one 20 two 20
    move_to device 'device host' one
    refused 1 "two: the device has no room for it: it needs 20.0 MiB, and 12.0 MiB of 32.0 MiB are free; one \\(20.0 MiB\\) came a moment ago and stays for [0-9]+\\.[0-9] s more \\(min_stay= of the mount\\); .*gmsfs demote" \
        promote "$M/two"
}

@test "stores that are held, pinned or more important are named with that" {
    start_tiers size=32M,host_size=64M,min_stay=0
    at_host wanted 30
    echo 'chat class=critical' >"$M/pools"
    committed held $((8 * MIB))
    committed pinned $((6 * MIB))
    committed chat $((4 * MIB))
    committed small $((2 * MIB))
    setfattr -n user.gmsfs.pin -v 1 "$M/pinned"
    setfattr -n user.gmsfs.pin -v 1 "$M/small"
    setfattr -n user.gmsfs.pool -v chat "$M/chat"
    hold reader "$M/held"
    refused 1 "wanted: .*; held \\(8.0 MiB\\) is held by gmsctl \\(pid $HOLDER\\) .*gmsfs drain.*; pinned \\(6.0 MiB\\) is pinned .*user.gmsfs.pin.*; chat \\(4.0 MiB\\) is more important \\(class= of its pool chat\\); and 1 smaller store; .*gmsfs demote" \
        promote "$M/wanted"
}

@test "a mount on which nothing leaves by itself says so, and a store that never fits, too" {
    start_tiers size=32M,host_size=64M,evict=none
    at_host one 20 two 20
    cli promote -q "$M/one"
    refused 1 "two: the device has no room for it: .*12.0 MiB of 32.0 MiB are free; nothing leaves by itself here \\(evict=none\\): 'gmsfs demote'" \
        promote "$M/two"
    assert_eq "$(device_get '"\(.evict) \(.min_stay_ms)"')" 'none 10000'
}

@test "a pool that has no room is named, with the budget that is at its end" {
    start_tiers size=32M,host_size=64M,min_stay=60
    at_host one 8 two 8
    echo 'chat max=12M' >"$M/pools"
    setfattr -n user.gmsfs.pool -v chat "$M/one"
    setfattr -n user.gmsfs.pool -v chat "$M/two"
    move_to device 'device host' one
    refused 1 "two: its pool chat has no room for it: it needs 8.0 MiB, and 4.0 MiB of the pool's 12.0 MiB are free \\(max=\\); one .*min_stay=.*'chat max=SIZE slots=N' to 'pools'" \
        promote "$M/two"
    echo 'chat max=4M' >"$M/pools"
    refused 1 "two: it never fits: it has 8.0 MiB, and its pool chat may have 4.0 MiB of the device" promote "$M/two"
    echo 'chat max=max slots=1' >"$M/pools"
    refused 1 "two: its pool chat has slots=1 on the device, and all are taken; one .*slots=N" \
        promote "$M/two"
    echo 'chat slots=max' >"$M/pools"
    echo 'kept min=20M' >"$M/pools"
    refused 1 "two: it needs 8.0 MiB, and the free bytes are kept for other pools, .*min= in 'pools'" promote "$M/two"
}

@test "the earlier waiter is named, and the end of the wait for it is status 3" {
    start_tiers size=32M,host_size=64M,min_stay=0
    at_host late 4 first 20
    committed big $((24 * MIB))
    hold reader "$M/big"
    local holder=$HOLDER
    spawn "$GMSCTL" reader "$M/first" say granted pause
    local waiter=$SPAWNED
    wait_for_waiters first 1
    refused 3 "late: gmsctl \\(pid $waiter\\) is ahead in the queue for device memory, for first; " \
        promote --timeout 0.2 "$M/late"
    let_go "$holder"
    wait_until 10 granted "$waiter"
    cli promote -q "$M/late"
}

# ---- on the way -------------------------------------------------------------------------------

@test "a disk that is full before spill_size= is, is told as that" {
    mount_disk 4M
    start_tiers "size=32M,spill=$SPILL,spill_size=48M"
    committed
    refused 1 "$W: it stays at device: the move failed \\(ENOSPC\\): the disk of spill= is full" demote --to disk "$W"
    bytes_are_right
}

@test "a daemon that may open no more files says that it is the daemon, and how to raise its limit" {
    MOUNT_VIA=(bash -c 'ulimit -n 300; exec "$@"' -)
    start_tiers size=64M,host_size=64M,granularity=64K
    ctl open "$W/lock" rw alloc 65536 70 a0 '' commit
    refused 1 "$W: it stays at device: the move failed \\(ENFILE\\): the daemon may open no more files, .*LimitNOFILE=.*ulimit -Hn" \
        demote "$W"
    has_event move_failed ENFILE
    at device
}

@test "the process that took a store in the middle of its move is named, with the bytes copied" {
    start_tiers size=32M,host_size=16M
    committed
    touch "$T/gate"
    spawn "$GMSFS" demote "$W"
    local demote=$SPAWNED
    wait_until 5 grep -q '^moving host' "$W/residency"
    hold reader "$W"
    rm "$T/gate"
    wait_exit -1 "$demote"
    assert_match "$(output_of "$demote")" "$W: it stays at device: gmsctl \\(pid $HOLDER\\) took it meanwhile; the copy stays as a spare"
}

@test "a move that another user cancelled says so" {
    start_tiers size=32M,host_size=16M
    committed
    touch "$T/gate"
    spawn "$GMSFS" demote "$W"
    local demote=$SPAWNED
    wait_until 5 grep -q '^moving host' "$W/residency"
    order cancel
    rm "$T/gate"
    wait_exit -1 "$demote"
    assert_match "$(output_of "$demote")" "$W: it stays at device: the move failed \\(ECANCELED\\): it was cancelled"
}

@test "an order's obstacle is not for readers that the store got later" {
    start_tiers size=32M,host_size=16M
    committed
    chmod 700 "$W"
    refused 1 'the mount has no disk' demote --to disk "$W"
    assert_match "$(info_of weights .obstacle.text)" 'the mount has no disk'
    chmod 755 "$W"
    assert_eq "$(info_of weights .obstacle)" null
}

@test "an order's obstacle is forgotten with the next order, which finds the store moving by itself" {
    start_tiers size=32M,host_size=16M
    committed_on_host
    refused 1 'the mount has no disk' demote --to disk "$W"
    assert_match "$(info_of weights .obstacle.text)" 'the mount has no disk'
    touch "$T/gate"
    spawn "$GMSCTL" reader "$W" say granted pause
    local reader=$SPAWNED
    wait_until 5 grep -q '^moving device' "$W/residency"
    run_logged ! order disk
    assert_eq "$(info_of weights .obstacle)" null
    rm "$T/gate"
    wait_until 10 granted "$reader"
}

@test "a user whose orders are refused again and again pushes out no other user's obstacle" {
    requires root
    start_tiers size=32M,host_size=16M,allow_other
    mkdir "$M"/theirs{1..33}
    chown "$TEST_UID" "$M"/theirs*
    run_logged ! order disk
    # shellcheck disable=SC2016 # that shell's own
    run_logged ! as_user bash -c 'for i in {1..33}; do echo disk >"$1/theirs$i/residency"; done' _ "$M"
    assert_match "$(info_of weights .obstacle.text)" 'nothing is committed in it'
    assert_eq "$(info_of theirs1 .obstacle)" null 'their oldest'
    assert_match "$(info_of theirs2 .obstacle.text)" 'nothing is committed in it'
    mkdir "$M/mine"
    run_logged ! order disk mine
    assert_eq "$(info_of weights .obstacle)" null "root's oldest"
}

# ---- the lock ----------------------------------------------------------------------------------

@test "a process that cannot have the lock of a store whose bytes are elsewhere, or given up, is told that" {
    start_tiers size=16M,host_size=32M
    at_host one 8
    committed two $((12 * MIB))
    hold reader "$M/two"
    refused 3 "$M/one: its bytes did not come to the device; 'gmsfs promote $M/one' brings them" \
        run -n "$M/one" -- true
    refused 3 'did not come to the device in the time given' run --timeout 0.1 "$M/one" -- true
    run_logged -3 script -qec "stty cols 200; '$GMSFS' run --timeout 0.1 '$M/one' -- true" /dev/null
    assert_match "$output" "waiting for $M/one to come to the device \\('gmsfs promote $M/one' names the obstacle"
    cli demote -q --to none "$M/one"
    refused 1 "$M/one: its bytes were given up, .*'gmsfs load' brings them" run "$M/one" -- true
    refused 1 "$M/one: its bytes were given up, .*'gmsfs load' brings them" sum "$M/one"
}

@test "a pool that has no room for a load is named" {
    requires python3
    start_mount size=32M
    "$ROOT/scripts/make-model" --out "$T/model" --size 4M --shards 1 >"$T/made"
    echo 'chat max=2M' >"$M/pools"
    setfattr -n user.gmsfs.pool -v chat "$M/weights"
    refused 1 "$M/weights: its pool chat has no room for it \\('pools' in the mount" \
        load "$M/weights" "$T/model"
}
