#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The log of a running mount: the users that may change its level, and the lines of level debug.

load helpers

log_has() { # PATTERN: some line of the mount's log
    grep -qE -- "$1" "$LOG"
}

# traced PATTERN: prints the name of the request in the last line of the log that is like PATTERN
traced() {
    grep -E -- "$1" "$LOG" | tail -1 | sed -E 's/^[^[]*\[([^]]*)\].*/\1/'
}

@test "gmsfs log tells the level and changes it, for root and the mount's owner" {
    start_mount
    run_logged -0 "$GMSFS" log "$M"
    assert_eq "$output" info
    run_logged -0 "$GMSFS" log "$M" warning
    assert_eq "$output" warning
    run_logged -0 "$GMSFS" log "$M"
    assert_eq "$output" warning
    run_logged -2 "$GMSFS" log "$M" loud
    assert_match "$output" "unknown level 'loud'; use error, warning, info or debug"
    run_logged -0 "$GMSFS" log "$M" error
    run_logged -0 "$GMSFS" log "$M" info
    wait_until 5 log_has 'process [0-9]+ \(uid [0-9]+\) sets the log level to info'
    requires root
    run_logged -1 as_user "$GMSFS" log "$M" debug
    assert_match "$output" 'permission denied: only root and the user that mounted it'
    run_logged -0 "$GMSFS" log "$M"
    assert_eq "$output" info
}

@test "the level of gmsfs log outlives the worker" {
    start_mount
    run_logged -0 "$GMSFS" log "$M" debug
    kill_worker
    run_logged -0 "$GMSFS" log "$M"
    assert_eq "$output" debug
    mkdir "$M/after"
    wait_until 5 log_has "record store_create .*name='after'"
}

@test "without level debug nothing of the trace is written" {
    start_mount log=info
    mkdir "$M/quiet"
    rmdir "$M/quiet"
    run_logged -1 log_has 'record |request |answer |job begins'
}

@test "at level debug a request is followed from its arrival to its answer by one name" {
    local name
    start_mount log=debug
    mkdir "$M/seen"
    wait_until 5 log_has "record store_create .*name='seen'"
    name=$(traced "record store_create .*name='seen'")
    assert_match "$name" '^r[0-9]+$'
    wait_until 5 log_has "\[$name\] answer ok"
    log_has "\[$name\] request mkdir node="
    log_has "\[$name\] record store_create .*; applied session=0 .* us, effects:"
}

@test "a waiter's answer has the name of its own request, and the grant is an effect" {
    local name
    start_weights log=debug
    hold open "$W/lock" rw
    spawn "$GMSCTL" open "$W/lock" rw
    wait_until 5 waiters_are weights 1
    wait_until 5 log_has 'record lock_open .*; applied session=0 waiter=[1-9]'
    name=$(traced 'record lock_open .*; applied session=0 waiter=[1-9]')
    run_logged -1 log_has "\[$name\] answer"
    kill "$HOLDER"
    wait_exit "$SPAWNED"
    log_has 'record file_close .*effects:.* granted\(store=[0-9]+ waiter='
    wait_until 5 log_has "\[$name\] answer ok"
}

@test "jobs begin and end, with their pool and how long they took" {
    local name
    start_mount log=debug
    commit_store
    wait_until 5 log_has 'job ends pool=memory, [0-9]+ us'
    name=$(traced 'job ends pool=memory')
    log_has "\[$name\] job begins pool=memory"
}

@test "the planner's decisions are logged with their reasons" {
    start_mount log=debug,size=1M,host_size=16M,min_stay=0,granularity=64K
    mkdir "$M/second"
    commit_store weights
    commit_store second
    wait_until 5 log_has "plan make_room store=[0-9]+ 'second' .* because .*; room comes"
    log_has "plan evict for store=[0-9]+ 'second' .*chosen=1 because stores were chosen to leave"
}

@test "requests of .fds are traced with the process that asks" {
    start_mount log=debug
    run_logged -0 "$GMSFS" log "$M"
    wait_until 5 log_has '\[f[0-9]+\.22\] request \.fds op=22 batch=0'
    log_has '\[f[0-9]+\.22\] answer \.fds ok, [0-9]+ bytes'
}

@test "a name that a terminal would obey is harmless in the log" {
    start_mount log=debug
    run_logged -1 stat "$M/x' [r1234] answer ok"
    wait_until 5 log_has "request lookup .*'x\? \[r1234\] answer ok' pid="
    run_logged -1 stat "$M"/$'evil\e[31m\nname'
    wait_until 5 log_has "request lookup .*'evil.\[31m.name'"
    run_logged -1 grep -q $'\e' "$LOG"
}

@test "a log without a reader holds up no request" {
    requires fuse
    mkfifo "$T/pipe"
    exec 9<>"$T/pipe" # it is open, and stays unread
    M=$T/unread
    mkdir "$M"
    # shellcheck disable=SC2016 # for the inner shell
    spawn bash -c 'exec "$1" mount -f -o "log=debug,size=16M,backend=$2" "$3" 2>"$4" 9<&-' - \
        "$GMSFS" "$BACKEND" "$M" "$T/pipe"
    wait_until 10 test -S "$M/.fds"
    for _ in {1..1000}; do
        [[ ! -e $M/none ]]
    done
    mkdir "$M/served"
    run_logged -0 "$GMSFS" umount "$M"
    wait_exit "$SPAWNED"
    exec 9<&-
}
