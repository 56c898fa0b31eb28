#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs umount answers when the memory is free, or names the processes that have it.

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers

@test "when umount has answered, the daemon has ended and its memory is back" {
    start_mount size=600M
    "$GMSFS" run -w "$M/weights" -- fallocate -l 500M "$M/weights/allocations/a"
    cli umount "$M"
    process_gone "$KEEPER" || fail 'the daemon is still there'
    assert_eq "$output" '' output
    expect_death
    wait_exit -0 "$KEEPER"
}

@test "an ordinary user's umount waits for the daemon too" {
    requires user-fuse
    # shellcheck disable=SC2034 # start_mount reads it
    MOUNT_VIA=("${AS_USER[@]}")
    start_mount size=600M
    as_user "$GMSFS" run -w "$M/weights" -- fallocate -l 500M "$M/weights/allocations/a"
    wait_until 5 as_user "$GMSFS" umount "$M"
    process_gone "$KEEPER" || fail 'the daemon is still there'
    expect_death
}

@test "memory that clients still map is named, in bytes" {
    start_mount
    "$BUILD/tests/tools/sharer" load "$M/weights" 3 2097152
    spawn "$BUILD/tests/tools/sharer" stay "$M/weights"
    wait_until 5 grep -q mapped "$T/spawn-$SPAWNED"
    wait_until 5 cli umount "$M"
    assert_match "$output" "$M is unmounted; memory that clients map comes back"
    assert_match "$output" "pid $SPAWNED +6291456 bytes +6.0 MiB +sharer"
    process_gone "$KEEPER" || fail 'the daemon is still there'
    expect_death
}

@test "a copy of the mount in another mount namespace is named, with what to do" {
    requires root mountns nsenter
    start_mount
    "$GMSFS" run -w "$M/weights" -- fallocate -l 1M "$M/weights/allocations/a"
    spawn unshare --mount bash -c 'echo there && exec sleep 60'
    wait_until 5 grep -q there "$T/spawn-$SPAWNED"
    cli -1 umount "$M"
    assert_match "$output" 'unmounted here, but copies of the mount keep its daemon'
    assert_match "$output" "$M  as seen by  pid $SPAWNED"
    assert_match "$output" 'nsenter -t PID -m umount PATH'
    not_mounted "$M"
    process_lives "$KEEPER"
    expect_death
    nsenter -t "$SPAWNED" -m umount "$M" # as it says
    wait_exit -0 "$KEEPER"
}

@test "a bind mount of a store keeps the daemon, and is named" {
    requires root
    start_mount
    mkdir "$T/bound"
    mount --bind "$M/weights" "$T/bound"
    cli -1 umount "$M"
    assert_match "$output" "$T/bound +as seen by"
    expect_death
    umount "$T/bound"
    wait_exit -0 "$KEEPER"
}

@test "a daemon that does not end is given up after the time given" {
    requires root
    start_mount
    kill -STOP "$KEEPER"
    cli -3 umount --timeout 0.3 "$M"
    assert_match "$output" "its daemon .process $KEEPER. has not given the memory back in the time given"
    not_mounted "$M"
    expect_death
    kill -CONT "$KEEPER"
    wait_exit "$KEEPER"
    cli -2 umount --timeout soon "$M"
}

@test "a daemon that is stopped holds no umount up for long, and is said to be so" {
    requires root
    start_mount
    local worker
    worker=$(worker_of "$KEEPER")
    kill -STOP "$worker"
    cli -3 umount "$M"
    assert_match "$output" 'its daemon did not answer before, so its memory may not be back'
    not_mounted "$M"
    expect_death
    kill -CONT "$worker"
    wait_exit "$KEEPER"
}

@test "a user that may not unmount is told which users may" {
    requires root
    start_mount
    local lazy
    for lazy in '' -l; do
        # shellcheck disable=SC2086 # none, or one
        run_logged -1 as_user "$GMSFS" umount $lazy "$M"
        assert_eq "$output" \
            "gmsfs umount: $M: cannot unmount: only root and the user that mounted it can; run this as one of them"
    done
    assert_state weights EMPTY
}

@test "an error of fusermount3 is reported once, and its absence too" {
    requires user-fuse
    # shellcheck disable=SC2034 # start_mount reads it
    MOUNT_VIA=("${AS_USER[@]}")
    start_mount
    mkdir "$T/bin"
    printf '#!/bin/sh\necho "fusermount3: a warning" >&2\necho "fusermount3: it is so" >&2\nexit 1\n' >"$T/bin/fusermount3"
    chmod +x "$T/bin/fusermount3"
    run_logged -1 as_user env PATH="$T/bin:$PATH" "$GMSFS" umount -l "$M"
    assert_eq "$output" "gmsfs umount: $M: fusermount3 cannot unmount it: it is so"
    run_logged -1 as_user env PATH="$T/none" "$GMSFS" umount -l "$M"
    assert_eq "$output" \
        "gmsfs umount: $M: cannot run fusermount3, which an ordinary user needs to unmount; install fuse3"
    as_user "$GMSFS" umount "$M"
    expect_death
}

@test "umount -l waits for nothing" {
    requires root
    start_mount
    kill -STOP "$KEEPER"
    cli umount -l "$M"
    not_mounted "$M"
    expect_death
    kill -CONT "$KEEPER"
    wait_exit "$KEEPER"
}
