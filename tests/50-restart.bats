#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The keeper and workers that end again and again, or at an awkward moment.
#
# shellcheck disable=SC2034,SC2153 # variables that the helpers read and set

load helpers
load gmsctl

setup() {
    common_setup
}

teardown() {
    common_teardown
}

publish() {
    head -c 3000000 /dev/urandom >"$T/a"
    exec 5<>"$M/weights/lock"
    cp "$T/a" "$M/weights/allocations/a"
    echo 1 >"$M/weights/commit"
    exec 5>&-
}

resumed_more_than() { # COUNT
    [[ $(grep -c ' goes on, ' "$LOG") -gt $1 ]]
}

# What `gmsfs umount` asks for an ordinary user: struct gmsfs_fds_request, op UNMOUNT.
ask_unmount() {
    python3 -c 'import socket, struct, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1] + "/.fds")
s.send(struct.pack("<IIII16s", 1, 2, 0, 0, b""))
sys.exit(struct.unpack_from("<i", s.recv(4096), 4)[0] != 0)' "$M"
}

@test "workers that end as soon as they serve are started more and more slowly, and nothing is lost" {
    export GMSFS_DIE_RESUMED=$T/die
    start_mount
    publish
    touch "$GMSFS_DIE_RESUMED"
    kill -KILL "$(worker_of "$KEEPER")"
    wait_until_any 10 grep -q 'another one is started in 0.1 s' "$LOG"
    wait_until_any 10 grep -q 'another one is started in 0.4 s' "$LOG"
    rm "$GMSFS_DIE_RESUMED"
    run_logged -0 timeout 20 cmp "$T/a" "$M/weights/allocations/a"
}

@test "an end that is asked for while no worker is there is in order" {
    export GMSFS_DIE_RESUMED=$T/die
    start_mount
    publish
    touch "$GMSFS_DIE_RESUMED"
    kill -KILL "$(worker_of "$KEEPER")"
    wait_until_any 10 grep -q 'another one is started in 0.8 s' "$LOG"
    forget_mount "$M"
    kill -TERM "$KEEPER"
    wait_until_any 5 process_gone "$KEEPER"
    grep -q ': ended; ' "$LOG"
    run_logged ! mountpoint -q "$M"
}

@test "workers that somebody kills are replaced at once, however many" {
    local i
    start_mount
    publish
    for i in {1..30}; do
        kill -KILL "$(worker_of "$KEEPER")"
        wait_until_any 10 resumed_more_than "$((i - 1))"
    done
    run_logged ! grep -q 'is started in' "$LOG"
    cmp "$T/a" "$M/weights/allocations/a"
}

@test "an unmount that was answered is done, though the worker is killed before the keeper hears of it" {
    start_mount
    publish
    forget_mount "$M"
    kill -STOP "$KEEPER"
    run_logged -0 ask_unmount
    kill -KILL "$(worker_of "$KEEPER")"
    kill -CONT "$KEEPER"
    wait_until_any 10 process_gone "$KEEPER"
    run_logged ! mountpoint -q "$M"
}

@test "readers of an ordinary user's mount get descriptors from the next worker as well" {
    requires user-fuse || return 1
    MOUNT_VIA=("${AS_USER[@]}")
    start_mount
    head -c 3000000 /dev/urandom >"$T/a"
    chmod 644 "$T/a"
    # shellcheck disable=SC2016 # another shell expands it
    as_user bash -c 'exec 5<>"$1/weights/lock"; cp "$2" "$1/weights/allocations/a"
        echo 1 >"$1/weights/commit"' _ "$M" "$T/a"
    kill -KILL "$(worker_of "$KEEPER")"
    wait_until_any 10 resumed_more_than 0
    run_logged -0 as_user timeout 20 cmp "$T/a" "$M/weights/allocations/a"
    run_logged -0 as_user timeout 20 "$GMSCTL" open "$M/weights/lock" r export 0 0 connect "$M" redeem last 16
    forget_mount "$M"
    run_logged -0 as_user "$GMSFS" umount "$M"
    wait_until_any 5 process_gone "$KEEPER"
}
