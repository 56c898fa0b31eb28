#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# A worker that dies is replaced: connections of GMS clients go on, with session, lock and place in the queue.
#
# bats file_tags=slow

load helpers
load python
load gms

prepare() { gms_setup; }

resume_client() { # MODE ARGUMENT...: sets CLIENT
    python_preload
    spawn "${PRELOAD[@]}" "$PYTHON" "$ROOT/tests/python/gms_resume.py" "$1" "$(v0_socket weights)" "${@:2}"
    CLIENT=$SPAWNED
}

succeeds() { # PID [SECONDS]
    wait_exit -0 "$1" "${2-10}"
}

kill_until_gone() { # PID
    local kills=0
    until process_gone "$1"; do
        kill_worker
        kills=$((kills + 1))
        sleep 0.05 # it is served for a while
    done
    [[ $kills -ge 3 ]] || fail "the worker was killed $kills times only"
}

publish_many() { # COUNT
    local i ops=(lock rw -)
    for ((i = 0; i < $1; i++)); do
        ops+=(allocate 65536 - export last write 0 "slot $i.")
    done
    gms v0 weights "${ops[@]}" commit
}

# bats test_tags=quick
@test "a V0 writer that is idle goes on with session, lock and layout, and commits" {
    start_gms_mount
    in_background v0 weights lock rw - allocate 65536 first export last write 0 abc say held \
        until "$T/go" allocate 65536 second put key last 8 value commit expect-closed
    wait_until 10 said "$CLIENT" held
    kill_worker
    assert_state weights RW
    kill_worker
    assert_eq "$(awk '$3 == "held" { print $2, $4 }' "$M/weights/sessions")" "RW $CLIENT" session
    touch "$T/go"
    succeeds "$CLIENT"
    wait_until 5 state_is weights COMMITTED
    assert_eq "$(jq .allocations "$M/weights/info")" 2 allocations
    gms v0 weights lock ro - list export last entry key
    assert_match "$output" '8 value'
}

# bats test_tags=quick
@test "V0 and V1 readers that are idle go on, and have the committed bytes" {
    local reader
    start_gms_mount
    gms v0 weights lock rw - allocate 65536 - allocate 131072 - fill 7 commit
    in_background v0 weights lock ro - check 7 say held until "$T/go" check 7
    reader=$CLIENT
    in_background v1 weights lock ro - say held until "$T/go" check 7
    wait_until 10 said "$reader" held
    wait_until 10 said "$CLIENT" held
    kill_worker
    kill_worker
    assert_state weights RO
    assert_eq "$(jq .readers "$M/weights/info")" 2 readers
    touch "$T/go"
    succeeds "$reader"
    succeeds "$CLIENT"
    wait_until 5 state_is weights COMMITTED
}

@test "a V1 writer that has committed stays as a reader, one that has aborted has no session" {
    start_gms_mount
    in_background v1 weights lock rw - allocate a 2097152 fill 3 commit say held until "$T/go" check 3
    wait_until 10 said "$CLIENT" held
    kill_worker
    assert_state weights RO
    touch "$T/go"
    succeeds "$CLIENT"
    rm "$T/go"
    in_background v1 kv_cache lock rw - allocate a 2097152 abort say held until "$T/go" list
    wait_until 10 said "$CLIENT" held
    kill_worker
    touch "$T/go"
    wait_exit "$CLIENT"
    assert_match "$(output_of "$CLIENT")" 'operation requires an active GMS session'
}

@test "handshakes that wait go on waiting, in the order in which they came, and time out when they would have" {
    local first second late
    start_gms_mount
    hold_gms v0 weights lock rw -
    in_background v0 weights lock rw - say held until "$T/go" commit
    first=$CLIENT
    wait_for_waiters weights 1
    in_background v1 weights lock rw - say held commit
    second=$CLIENT
    wait_for_waiters weights 2
    in_background v0 weights lock ro 3000
    late=$CLIENT
    wait_for_waiters weights 3
    kill_worker
    kill_worker
    wait_for_waiters weights 3
    kill "$HOLDER"
    wait_until 10 said "$first" held
    run ! said "$second" held
    kill_worker
    wait_exit "$late"
    assert_match "$(output_of "$late")" 'not granted'
    touch "$T/go"
    succeeds "$first"
    succeeds "$second"
}

# bats test_tags=quick
@test "a client that goes away while there is no worker ends its session" {
    start_gms_mount
    in_background v0 weights lock rw - say held pause
    wait_until 10 said "$CLIENT" held
    kill -STOP "$KEEPER" # so no worker comes
    kill -KILL "$(worker_of "$KEEPER")" "$CLIENT"
    kill -CONT "$KEEPER"
    wait_until_any 10 resumed_more_than 0
    wait_until 5 state_is weights EMPTY
}

# bats test_tags=quick
@test "a session that is revoked ends the connection, also where the worker was replaced before" {
    local id
    start_gms_mount
    in_background v0 weights lock rw - say held expect-closed
    wait_until 10 said "$CLIENT" held
    kill_worker
    id=$(awk '$3 == "held" { print $1 }' "$M/weights/sessions")
    echo "revoke $id" >"$M/weights/abort"
    succeeds "$CLIENT"
}

@test "a frame of which half has come is read to its end by the next worker" {
    local i
    start_gms_mount
    resume_client halves "$T"
    for i in {0..4}; do
        wait_until 10 said "$CLIENT" "half $i"
        kill_worker
        touch "$T/$i"
    done
    succeeds "$CLIENT"
    wait_until 5 state_is weights COMMITTED
}

# bats test_tags=quick
@test "a writer notices nothing of a worker that dies again and again: nothing is done twice or lost" {
    start_gms_mount size=64M,granularity=64K
    resume_client churn $((4 * SLOW))
    wait_until 10 state_is weights RW
    kill_until_gone "$CLIENT"
    succeeds "$CLIENT"
    wait_until 5 state_is weights COMMITTED
}

@test "the same with a snapshot after every few records" {
    export GMSFS_SNAPSHOT_BYTES=20000
    start_gms_mount size=64M,granularity=64K
    resume_client churn $((3 * SLOW))
    wait_until 10 state_is weights RW
    kill_until_gone "$CLIENT"
    succeeds "$CLIENT"
}

@test "a reader that exports all the time gets every descriptor while the worker dies again and again" {
    start_gms_mount size=64M,granularity=64K
    publish_many 40
    resume_client read $((3 * SLOW))
    wait_until 10 state_is weights RO
    kill_until_gone "$CLIENT"
    succeeds "$CLIENT"
}

@test "an allocation that waits for memory waits no longer than it would have" {
    local start_ms took_ms
    start_gms_mount size=4M,granularity=64K,alloc_timeout=3
    hold_gms v0 kv_cache lock rw - allocate 3145728 -
    in_background v0 weights lock rw - say held allocate 3145728 -
    wait_until 10 said "$CLIENT" held
    start_ms=$(date +%s%3N)
    sleep 2 # two thirds of its time
    kill_worker
    wait_exit "$CLIENT"
    took_ms=$(($(date +%s%3N) - start_ms))
    assert_match "$(output_of "$CLIENT")" 'waited_sec=(2[.]99|3[.])'
    [[ $took_ms -ge 2900 && $took_ms -lt 4700 ]] || fail "it waited for $took_ms ms"
}

@test "a connection that the daemon had just accepted goes on" {
    export GMSFS_DIE_ACCEPTED=$T/die
    local protocol before
    start_gms_mount
    for protocol in v0 v1; do
        before=$(grep -c ' serves, ' "$LOG" || true)
        touch "$T/die"
        gms "$protocol" weights lock rw -
        [[ ! -e $T/die ]]
        wait_until_any 10 resumed_more_than "$before"
    done
}

@test "an answer that was read in part, too long to be kept, ends the connection and its session" {
    start_gms_mount
    local i ops=(lock rw - allocate 65536 -)
    for i in {1000..3500}; do
        ops+=(put "$(printf 'key%0200d' "$i")" last 0 value)
    done
    gms v0 weights "${ops[@]}" commit
    resume_client long "$T"
    wait_until 10 said "$CLIENT" begun
    kill_worker
    touch "$T/0"
    wait_until 10 said "$CLIENT" closed
    wait_until 5 state_is weights COMMITTED
    grep -q 'the rest of its answer is lost' "$LOG"
}

# Every worker reads it again, before it serves any client.
@test "a frame that three workers end at costs its client the connection, and others nothing" {
    local victim
    export GMSFS_DIE_GMS=$T/deaths
    start_gms_mount
    in_background v0 weights lock rw - say held until "$T/go" count
    wait_until 10 said "$CLIENT" held
    victim=$CLIENT
    in_background v1 kv_cache lock rw - say held until "$T/later" allocate a 2097152
    wait_until 10 said "$CLIENT" held
    printf eee >"$T/deaths"
    touch "$T/go"
    wait_exit "$victim" 20
    said "$victim" closed
    wait_until 5 state_is weights EMPTY
    grep -q '3 workers in a row ended while they served one GMS client' "$LOG"
    touch "$T/later"
    succeeds "$CLIENT"
}

@test "a mount without a next worker lets GMS clients go" {
    start_gms_mount
    in_background v0 weights lock rw - say held expect-closed
    wait_until 10 said "$CLIENT" held
    kill_last_worker
    succeeds "$CLIENT"
}
