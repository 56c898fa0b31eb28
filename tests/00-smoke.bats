#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The shortest way through everything. When these fail, look at nothing else.

load helpers

@test "the command states its name and its usage" {
    run_logged -0 "$GMSFS" --version
    assert_match "$output" '[0-9]+\.[0-9]+\.[0-9]+'
    run_logged -0 "$GMSFS" --help
    assert_match "$output" 'mount'
    run_logged '!' "$GMSFS" no-such-command
}

@test "a mount shows the device and one empty store" {
    start_mount
    run_logged -0 cat "$M/device"
    assert_eq "$(device_get .backend)" host backend
    run_logged -0 ls -A "$M/weights"
    assert_eq "$(cat "$M/weights/state")" EMPTY state
    assert_eq "$(cat "$M/weights/layout_hash")" '' layout_hash
    stop_mount
}

@test "a shell loads, commits and reads" {
    start_mount
    cd "$M/weights"
    head -c 3M /dev/urandom >"$T/bytes"

    exec 5<>lock
    assert_state weights RW
    truncate -s 3M allocations/a
    dd if="$T/bytes" of=allocations/a bs=1M conv=notrunc status=none
    printf value >metadata/key
    echo 1 >commit
    exec 5>&-
    assert_state weights COMMITTED

    exec 5<lock
    assert_state weights RO
    cmp allocations/a "$T/bytes"
    assert_eq "$(cat metadata/key)" value
    exec 5<&-
    assert_state weights COMMITTED
    cd /
    stop_mount
}

@test "the hash is that of the layout file" {
    requires xxhsum
    start_mount
    (
        exec 5<>"$M/weights/lock"
        truncate -s 1M "$M/weights/allocations/a"
        echo 1 >"$M/weights/commit"
    )
    assert_state weights COMMITTED
    run_logged -0 xxhsum -q -H2 "$M/weights/layout"
    assert_eq "${output%% *}" "$(cat "$M/weights/layout_hash")" hash
}

@test "the mount returns when it answers, and umount ends it" {
    requires fuse
    mkdir "$T/m"
    M=$T/m
    run_logged -0 "$GMSFS" mount -o backend=host,size=64M "$M" 3>&- 4>&-
    cat "$M/device"
    keeper=$(keeper_of "$M")
    [[ -n $keeper ]]
    run_logged -0 "$GMSFS" umount "$M"
    not_mounted "$M"
    wait_until 5 process_gone "$keeper"
}
