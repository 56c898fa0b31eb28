#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The keeper and workers that end again and again, or at an awkward moment.
#
# shellcheck disable=SC2034,SC2153 # variables that the helpers read and set

load helpers
load publish

# The request of `gmsfs umount` for an ordinary user: struct gmsfs_fds_request, op UNMOUNT.
ask_unmount() {
    python3 -c 'import socket, struct, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1] + "/.fds")
s.send(struct.pack("<IIII16s", 1, 2, 0, 0, b""))
sys.exit(struct.unpack_from("<i", s.recv(4096), 4)[0] != 0)' "$M"
}

# bats test_tags=slow
@test "the loop of each worker has short slices where the kernel has such, and its keeper has not" {
    requires slices
    start_mount
    [[ $(read_slice "$(worker_of "$KEEPER")") == 100000 ]]
    [[ $(read_slice "$KEEPER") == "$(read_slice $$)" ]]
    kill -KILL "$(worker_of "$KEEPER")"
    cat "$M/device" >/dev/null
    [[ $(read_slice "$(worker_of "$KEEPER")") == 100000 ]]
}

@test "an end that is asked for while no worker is there is in order" {
    export GMSFS_DIE_RESUMED=$T/die
    start_published
    touch "$GMSFS_DIE_RESUMED"
    kill -KILL "$(worker_of "$KEEPER")"
    wait_until_any 10 grep -q 'another one is started in 0.8 s' "$LOG"
    forget_mount "$M"
    kill -TERM "$KEEPER"
    wait_until_any 5 process_gone "$KEEPER"
    grep -q ': ended; ' "$LOG"
    run_logged ! mountpoint -q "$M"
}

@test "killed workers are replaced at once, any number of them" {
    local i
    start_published
    for i in {1..30}; do
        kill -KILL "$(worker_of "$KEEPER")"
        wait_until_any 10 resumed_more_than "$((i - 1))"
    done
    run_logged ! grep -q 'is started in' "$LOG"
    cmp "$T/a" "$M/weights/allocations/a"
}

@test "an unmount that was answered is done, though the worker is killed before the keeper hears of it" {
    start_published
    forget_mount "$M"
    kill -STOP "$KEEPER"
    run_logged -0 ask_unmount
    kill -KILL "$(worker_of "$KEEPER")"
    kill -CONT "$KEEPER"
    wait_until_any 10 process_gone "$KEEPER"
    run_logged ! mountpoint -q "$M"
}

# The worker that was asked is killed before it has answered; the unmount is done all the same.
@test "an ordinary user's unmount is done once and told, though the worker dies over its answer" {
    requires user-fuse || return 1
    export GMSFS_DIE_ANSWERING_FDS=$T/deaths
    MOUNT_VIA=("${AS_USER[@]}")
    start_mount
    forget_mount "$M"
    printf x. >"$T/deaths" # the first answer tells the serving worker
    chmod 666 "$T/deaths"
    run_logged as_user "$GMSFS" umount "$M"
    if ((status == 3)); then # a slow machine: it was not told the worker in time, and follows the daemon no further
        assert_match "$output" 'unmounted, but its daemon did not answer before'
    else
        assert_eq "$status $(stat -c %s "$T/deaths")" '0 0' 'exit status, and deaths that are left'
    fi
    run_logged ! mountpoint -q "$M"
    wait_until_any 10 process_gone "$KEEPER"
    assert_eq "$(grep -c 'a client asks for the unmount' "$LOG")" 1 'unmounts'
    grep -q ': ended; no client held a file' "$LOG"
}

@test "umount(8) of a mount whose worker dies just then ends it in order" {
    start_published
    forget_mount "$M"
    local worker
    worker=$(worker_of "$KEEPER")
    kill -STOP "$worker"
    spawn umount "$M"
    kill -KILL "$worker"
    wait_exit -0 "$SPAWNED"
    wait_until_any 10 process_gone "$KEEPER"
    grep -q ': ended; no client held a file' "$LOG"
    run_logged ! grep -q 'does not send requests again\|cannot resume\|cannot continue' "$LOG"
}

is_pausing() { # SECONDS: before the next worker
    grep -q "another one is started in $1 s" "$LOG"
}

# Three in a row at one request are too many for it; a worker that ends after them is not counted.
@test "workers that end before they serve do not count against the request that the last one was at" {
    export GMSFS_DIE_ANSWERING=$T/deaths
    start_mount
    printf x >"$T/deaths"
    touch "$GMSFS_LAST_WORKER"
    spawn mkdir "$M/other"
    wait_until_any 10 is_pausing 0.1
    rm "$GMSFS_LAST_WORKER"
    wait_exit -0 "$SPAWNED"
    [[ -d $M/other ]]
    run_logged ! grep -q 'ended while they served one request' "$LOG"
}

@test "a request that three workers in a row end at is answered with an error" {
    export GMSFS_DIE_ANSWERING=$T/deaths
    start_mount
    printf eee >"$T/deaths"
    run timeout $((20 * HANG)) mkdir "$M/other"
    assert_eq "$status" 1 'exit status'
    assert_match "$output" 'Input/output error'
    grep -q '3 workers in a row ended while they served one request' "$LOG"
    assert_eq "$(stat -c %s "$T/deaths")" 0 'deaths that are left'
    run_logged -0 timeout $((20 * HANG)) mkdir "$M/other"
}

@test "one that workers are killed at goes on, and only the sixth in a row has it answered with an error" {
    export GMSFS_DIE_ANSWERING=$T/deaths
    start_mount
    printf xxxxx >"$T/deaths"
    run_logged -0 timeout $((20 * HANG)) mkdir "$M/other"
    printf xxxxxx >"$T/deaths"
    run timeout $((20 * HANG)) mkdir "$M/third"
    assert_match "$output" 'Input/output error'
    grep -q '6 workers in a row ended while they served one request' "$LOG"
}

# ask_until_refused WORD...: a process that workers end at on .fds, three of them; then it is refused, others are
# served, and when $T/go is there it does the words. It is SPAWNED.
ask_until_refused() {
    local i again=()
    for i in 1 2 3 4 5; do
        again+=(connect "$M" try region-list self 0 a disconnect)
    done
    printf 'e%.0s' {1..25} >"$T/deaths"
    spawn "$GMSCTL" "${again[@]}" say refused until "$T/go" "$@"
    wait_until_any 10 said "$SPAWNED" refused
    assert_eq "$(output_of "$SPAWNED" | grep -c -e ECONNRESET -e EPIPE) $(output_of "$SPAWNED" | grep -c EIO)" '3 2' 'answers'
    assert_eq "$(stat -c %s "$T/deaths")" 22 'deaths that are left'
    : >"$T/deaths"
    ctl connect "$M" region-list self 0 a # another process
}

# bats test_tags=slow
@test "a request on .fds that ends three workers in a row is refused, to its process alone, and the mount goes on" {
    export GMSFS_DIE_SERVING_FDS=$T/deaths
    start_mount
    ask_until_refused connect "$M" request 00112233445566778899aabbccddeeff 8 receive
    grep -q "3 workers in a row ended while they served one request on .fds, of process $SPAWNED of user $EUID" "$LOG"
    touch "$T/go" # and its next request is answered: the ticket is unknown
    wait_exit "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" 'EACCES|EINVAL|ENOENT|ESTALE'
}

# bats test_tags=slow
@test "a process that workers end at as they receive from it on .fds is refused unread, and the mount goes on" {
    export GMSFS_DIE_RECEIVING_FDS=$T/deaths
    start_mount
    ask_until_refused
    touch "$T/go"
}

# Every other one is killed, so the next is started at once.
# bats test_tags=slow
@test "a user whose processes' requests on .fds end ten workers is refused all there, others are served" {
    local i
    requires root
    export GMSFS_DIE_SERVING_FDS=$T/deaths
    start_mount
    printf 'xe%.0s' {1..10} >"$T/deaths"
    for i in {1..19}; do
        run as_user timeout $((20 * HANG)) "$GMSCTL" connect "$M" region-list self 0 a
        assert_match "$output" '(ECONNRESET|EPIPE)$' "answer $i"
    done
    : >"$T/deaths"
    # the client sees the end of the worker before the keeper does
    wait_until_any 10 grep -q " workers in a row ended while they served one user on .fds, $TEST_UID; refused there" "$LOG"
    for i in 'region-list self 0 a' 'request 00112233445566778899aabbccddeeff 8 receive'; do
        # shellcheck disable=SC2086 # a list
        run as_user timeout $((20 * HANG)) "$GMSCTL" connect "$M" $i
        assert_match "$output" EIO "$i"
    done
    ctl connect "$M" region-list self 0 a
    run_logged -0 setpriv --reuid="$((TEST_UID - 1))" --regid="$((TEST_UID - 1))" --clear-groups \
        "$GMSCTL" connect "$M" region-list self 0 a
    run_logged -0 as_user "$GMSCTL" open "$M/weights/state" r
}

# die_of_alloc VARIABLE: workers that end of an ALLOC, each as the file of that variable says.
die_of_alloc() {
    local waiter
    export "$1=$T/deaths"
    start_mount
    spawn "$GMSCTL" open "$M/weights/lock" rw say ready until "$T/go" \
        try alloc 65536 1 a t alloc 65536 1 a t say made commit
    wait_until 10 said "$SPAWNED" ready
    local writer=$SPAWNED
    spawn "$GMSCTL" reader "$M/weights" say granted
    wait_for_waiters weights 1
    waiter=$SPAWNED
    printf eee >"$T/deaths"
    touch "$T/go"
    wait_until_any 10 said "$writer" made
    assert_match "$(output_of "$writer")" 'EIO'
    assert_eq "$(grep -c 'ended while they served one request' "$LOG")" 1 'requests that were refused'
    wait_exit -0 "$waiter"
}

@test "an allocation that ends three workers is answered with an error, and waiters are not" {
    die_of_alloc GMSFS_DIE_MAKING
}

# bats test_tags=slow
@test "so is one that they end of when it was made" {
    die_of_alloc GMSFS_DIE_DONE
}

is_another_worker() { # PID
    worker=$(worker_of "$KEEPER")
    [[ -n $worker && $worker != "$1" ]]
}

@test "six workers in a row that are killed before they serve lose nothing" {
    export GMSFS_HANG_WORKER=$T/hang
    local i worker former
    start_published
    touch "$GMSFS_HANG_WORKER"
    former=$(worker_of "$KEEPER")
    kill -KILL "$former"
    for i in {1..6}; do
        wait_until_any 10 is_another_worker "$former"
        kill -KILL "$worker"
        former=$worker
    done
    rm "$GMSFS_HANG_WORKER"
    run_logged -0 timeout $((20 * HANG)) cmp "$T/a" "$M/weights/allocations/a"
    grep -q 'is started in 0.8 s' "$LOG"
}

# It is sent a file of its own mount to be registered. It closes that, and is asked for it itself (FUSE_FLUSH), which
# no signal ends; sets WORKER
let_worker_close_its_own() {
    export GMSFS_DIE_ANSWERING=$T/deaths
    start_mount
    WORKER=$(worker_of "$KEEPER")
    spawn "$GMSCTL" open "$M/weights/ctl" r connect "$M" say ready until "$T/go" \
        try region-register self r key file 0 1
    wait_until 10 said "$SPAWNED" ready
    printf x >"$T/deaths"
}

# bats test_tags=slow
@test "a worker that is dead and does not go, for it closes a file of its own mount, is left behind" {
    let_worker_close_its_own
    touch "$T/go"
    wait_until_any 10 resumed_more_than 0
    grep -q "worker $WORKER is dead but cannot be reaped" "$LOG"
    wait_until_any 10 grep -q "dead worker $WORKER was reaped" "$LOG"
    process_gone "$WORKER"
    run_logged -0 timeout $((20 * HANG)) mkdir "$M/other"
}

# poll(2) with -1, or ppoll(2) with no time at all
waits_without_end() {
    local arguments
    read -ra arguments <"/proc/$1/syscall"
    [[ ${arguments[3]-} == 0xffffffff || ${arguments[3]-} == 0x0 ]]
}

# bats test_tags=slow
@test "nothing wakes the keeper while its worker lives" {
    requires root # /proc/PID/syscall
    start_mount
    wait_until 10 waits_without_end "$KEEPER"
    kill -KILL "$(worker_of "$KEEPER")"
    wait_until_any 10 resumed_more_than 0
    wait_until 10 waits_without_end "$KEEPER"
}

# bats test_tags=slow
@test "a mount that ends ends such a worker as well" {
    let_worker_close_its_own
    touch "$GMSFS_LAST_WORKER" "$T/go"
    expect_death
    wait_until_any 20 process_gone "$KEEPER"
    grep -q "worker $WORKER is dead but cannot be reaped" "$LOG"
    process_gone "$WORKER"
}
