#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# A worker that dies is replaced: the clients' files, waits and answers stay as they were.
#
# shellcheck disable=SC2030,SC2031,SC2034,SC2153 # variables that the helpers and bats read and set
# bats file_tags=fake

load helpers
load places

SHARER=$BUILD/tests/tools/sharer

# Two allocations and an entry.
publish() {
    head -c 3000000 /dev/urandom >"$T/a"
    head -c 70000 /dev/urandom >"$T/b"
    exec 5<>"$W/lock"
    cp "$T/a" "$W/allocations/a"
    cp "$T/b" "$W/allocations/b"
    echo value >"$W/metadata/key"
    commit_5
    assert_state weights COMMITTED
}

start_published() { # [OPTIONS]
    start_weights "$@"
    publish
}

is_whole() {
    cmp "$T/a" "$W/allocations/a"
    cmp "$T/b" "$W/allocations/b"
    assert_eq "$(<"$W/metadata/key")" value 'the entry'
}

@test "the committed layout is as it was: bytes, entries, hash, generation, account" {
    local before
    start_published
    before=$(jq -c '[.id, .layout_hash, .generation, .bytes, .state]' "$W/info")
    used=$(device_get .used_bytes)
    kill_worker
    assert_eq "$(jq -c '[.id, .layout_hash, .generation, .bytes, .state]' "$W/info")" "$before" info
    assert_eq "$(device_get .used_bytes)" "$used" used_bytes
    is_whole
    kill_worker
    is_whole
}

@test "a lock that is held stays held, and the open file goes on" {
    start_published
    exec 6<"$W/lock" 7<"$W/allocations/a"
    head -c 1000 <&7 >"$T/part"
    kill_worker
    assert_state weights RO
    head -c 3000000 <&7 >>"$T/part"
    cmp "$T/a" "$T/part"
    exec 7<&-
    assert_match "$(cat <&6)" '^RO [0-9]+$'
    exec 6<&-
    wait_until 5 state_is weights COMMITTED
}

@test "a writer goes on: its bytes from before, additions and commit are one layout" {
    start_weights
    exec 5<>"$W/lock"
    head -c 100000 /dev/urandom >"$T/b"
    cp "$T/b" "$W/allocations/first"
    kill_worker
    assert_state weights RW
    cp "$T/b" "$W/allocations/second"
    kill_worker
    commit_5
    cmp "$T/b" "$W/allocations/first"
    cmp "$T/b" "$W/allocations/second"
}

@test "a spool that is being written to goes on where it was" {
    start_weights
    head -c 5000000 /dev/urandom >"$T/b"
    exec 5<>"$W/lock" 6>"$W/allocations/b"
    head -c 2000000 "$T/b" >&6
    kill_worker
    tail -c 3000000 "$T/b" | head -c 2000000 >&6
    kill_worker
    tail -c 1000000 "$T/b" >&6
    exec 6>&-
    commit_5
    cmp "$T/b" "$W/allocations/b"
}

@test "the value of an entry that is written to and not closed yet is not lost" {
    start_weights
    exec 5<>"$W/lock" 6>"$W/metadata/key"
    echo -n 'first ' >&6
    kill_worker
    echo -n 'second' >&6
    exec 6>&-
    assert_eq "$(<"$W/metadata/key")" 'first second' value
    exec 5>&-
}

queue_is() { # PID...: those in the lock's queue, in order
    [[ $(awk '$3 == "waiting" { printf "%s ", $4 }' "$W/sessions") == "$* " ]]
}

@test "waiters for a lock wait on, in their order of arrival" {
    local pids=() i
    start_weights
    hold open "$W/lock" rw
    for i in 1 2 3 4; do
        spawn "$GMSCTL" open "$W/lock" rw say held until "$T/go$i"
        pids+=("$SPAWNED")
        wait_for_waiters weights "$i"
    done
    kill_worker
    queue_is "${pids[@]}"
    kill_worker
    let_go "$HOLDER"
    for i in 1 2 3 4; do
        wait_until 5 said "${pids[i - 1]}" held
        touch "$T/go$i"
        wait_exit -0 "${pids[i - 1]}"
    done
}

@test "a transfer that was under way is answered by the next worker" {
    export GMSFS_GATE=$T/gate
    start_published
    touch "$GMSFS_GATE"
    spawn dd "if=$W/allocations/b" "of=$T/read" bs=70000 count=1 status=none
    wait_until 5 grep -q '^gmsfs_transfers_in_flight 1$' "$M/metrics"
    kill_worker
    rm "$GMSFS_GATE"
    wait_exit -0 "$SPAWNED"
    cmp "$T/b" "$T/read"
}

@test "a poll of state is woken, and the stream of events goes on without a gap" {
    start_weights
    exec 6<"$M/events"
    cat <&6 >"$T/events"
    spawn "$GMSFS" wait --timeout 20 "$W" COMMITTED
    publish
    wait_exit -0 "$SPAWNED"
    cat <&6 >>"$T/events"
    mkdir "$M/other"
    spawn "$GMSFS" wait --timeout 20 "$M/other" COMMITTED
    kill_worker
    exec 5<>"$M/other/lock"
    echo 1 >"$M/other/commit"
    exec 5>&-
    wait_exit -0 "$SPAWNED"
    cat <&6 >>"$T/events"
    exec 6<&-
    jq -s 'map(.seq) | . == [range(.[0]; .[0] + length)]' "$T/events" | grep -qx true
    grep -q '"worker_resumed"' "$T/events"
}

# bats test_tags=host
@test "a directory that is being read is read to its end" {
    local count
    start_weights granularity=64K
    hold open "$W/lock" rw alloc 65536 3000 '' ''
    # shellcheck disable=SC2016 # another shell expands them
    spawn bash -c 'exec 3< <(ls -U "$1"); read -r first <&3; touch "$2"; until [[ -e $3 ]]; do
        sleep 0.05; done; echo "$first" >"$4"; cat <&3 >>"$4"' _ "$W/allocations" "$T/begun" "$T/go" "$T/list"
    wait_until 5 test -e "$T/begun"
    kill_worker
    touch "$T/go"
    wait_exit -0 "$SPAWNED"
    count=$(sort -u "$T/list" | wc -l)
    assert_eq "$count" 3000 'names'
    let_go "$HOLDER"
}

# bats test_tags=host
@test "copies in other places outlive the worker" {
    start_published size=64M,host_size=64M
    cli demote "$W"
    kill_worker
    at host
    cli promote "$W"
    is_whole
}

@test "a store that is drained lets in again, for its drainer's connection has ended" {
    start_published
    # shellcheck disable=SC2016 # another shell expands it
    run cli drain "$W" -- bash -c 'kill -KILL "$1"; sleep 0.3' _ "$(worker_of "$KEEPER")"
    wait_until_any 10 resumed_more_than 0
    run_logged -0 timeout $((5 * HANG)) cat "$W/lock"
    assert_eq "$(jq .draining "$W/info")" false draining
}

@test "a file of a mount that was taken out of the tree is read to its end" {
    start_published
    exec 6<"$W/allocations/a"
    head -c 1000 <&6 >"$T/part"
    forget_mount "$M"
    run_logged -0 umount -l "$M"
    wait_until 5 grep -q ': unmounted' "$LOG"
    kill_worker
    head -c 3000000 <&6 >>"$T/part"
    cmp "$T/a" "$T/part"
    exec 6<&-
    wait_until_any 5 process_gone "$KEEPER"
}

recoveries() { # the cause of each that events tell of, the oldest first
    jq -r 'select(.event == "recovered" and .took_us > 0 and .took_us < 60000000) | .cause' "$M/events"
}

@test "events tell each recovery's cause and duration" {
    start_weights
    kill_worker
    kill -ABRT "$(worker_of "$KEEPER")"
    wait_until_any 10 resumed_more_than 1
    run_logged -0 recoveries
    assert_match "${lines[0]}" 'was killed by signal 9'
    assert_match "${lines[1]}" 'was killed by signal 6'
    assert_eq "${#lines[@]}" 2 recoveries
    grep -q '"event":"worker_resumed".*"resumes":2' "$M/events"
    grep -qx 'gmsfs_recoveries_total 2' "$M/metrics"
    assert_eq "$(tail -n 1 "$M/events" | jq -c '[.cause, .took_us]')" \
        "$(jq -c '.last_recovery | [.cause, .took_us]' "$M/device")" 'the last one, as device has it'
}

@test "the last time's cause and how long it took are told" {
    start_weights
    assert_eq "$(jq -c '[.recoveries, .last_recovery]' "$M/device")" '[0,null]' 'before it'
    grep -qx 'gmsfs_last_recovery_seconds 0.000000' "$M/metrics"
    kill_worker
    device_get .last_recovery
    device_get '.recoveries == 1 and (.last_recovery | .cause == "was killed by signal 9 (Killed)" and
        .took_us > 0 and .took_us < 60000000 and (now * 1000 - .time_ms | . >= 0 and . < 60000))' | grep -qx true
    grep -qE '^gmsfs_last_recovery_seconds [0-9]+[.][0-9]*[1-9]' "$M/metrics"
    cli status "$M"
    assert_match "$output" 'its worker was replaced 1 time, last at 2.*Z within [0-9.]+ ms: it was killed by signal 9'
}

write_large() { # NUMBER
    head -c 20000 /dev/zero | tr '\0' x >"$W/metadata/key$1"
}

@test "while a snapshot does not come large records are refused, and locks come and go" {
    export GMSFS_SNAPSHOT_BYTES=20000 GMSFS_JOURNAL_BOUND=400000 GMSFS_HOLD_SNAPSHOT=$T/hold
    local i=0
    start_weights
    touch "$T/hold"
    exec 5<>"$W/lock"
    while write_large "$i" 2>"$T/why"; do
        [[ $((++i)) -lt 50 ]] || fail 'nothing is refused'
    done
    assert_match "$(<"$T/why")" 'Cannot allocate memory'
    grep -q 'the journal waits for a snapshot of the state' "$LOG"
    exec 5>&-
    wait_until 5 state_is weights EMPTY
    exec 5<>"$W/lock"
    rm "$T/hold"
    wait_until 10 write_large after
    kill_worker
    assert_eq "$(wc -c <"$W/metadata/keyafter")" 20000 bytes
    exec 5>&-
}
