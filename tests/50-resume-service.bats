#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The service's work under way when a worker died: endings, moves, and the reports of them.
#
# shellcheck disable=SC2034,SC2153,SC2154,SC2016 # variables that the helpers read and set; inner shells

load helpers
load places

moves() { # is something under way?
    grep -q '^moving' "$W/residency"
}

count_events() { # NAME
    jq -s "[.[] | select(.event == \"$1\")] | length" <"$M/events"
}

transfers() { # COUNT
    grep -qx "gmsfs_transfers_in_flight $1" "$M/metrics"
}

# hold_transfer: a reader of committed bytes whose transfer does not end before $T/gate is removed; sets READER
hold_transfer() {
    touch "$GMSFS_GATE"
    spawn dd "if=$W/allocations/a" "of=$T/read" bs=70000 count=1 status=none
    READER=$SPAWNED
    wait_until 5 transfers 1
}

start_gated() {
    export GMSFS_GATE=$T/gate
    start_weights
    committed
}

# ---- endings ---------------------------------------------------------------------------------

@test "a revocation that waited for a transfer is done by the next worker" {
    start_gated
    hold_transfer
    spawn "$GMSFS" drain --revoke --timeout 0 "$W"
    wait_until 5 grep -q '"revoked"' "$M/events"
    assert_state weights RO
    kill_worker
    wait_until 5 state_is weights COMMITTED
    rm "$GMSFS_GATE"
    wait_exit "$READER"
    [[ $status -ne 0 ]]
    assert_eq "$(count_events revoked)" 1 'told once'
}

@test "an abort that waited for a transfer is done by the next worker, and answered" {
    start_gated
    exec 5<>"$W/lock"
    hold_transfer
    spawn bash -c 'echo 1 >"$1/abort"' _ "$W"
    local aborter=$SPAWNED
    kill_worker
    rm "$GMSFS_GATE"
    wait_exit -0 "$aborter"
    assert_state weights COMMITTED
    exec 5>&-
}

# ---- moves -----------------------------------------------------------------------------------

@test "a move that was ordered is begun anew, again and again, and ends where it was to" {
    start_tiers size=64M,host_size=64M
    committed
    touch "$T/gate"
    order host
    wait_until 5 moves
    kill_worker
    moves
    kill_worker
    moves
    rm "$T/gate"
    wait_until 10 at host
    bytes_are_right
    touch "$T/gate"
    order device
    wait_until 5 moves
    kill_worker
    rm "$T/gate"
    wait_until 10 at 'device host'
    bytes_are_right
    assert_eq "$(count_events move_failed)" 0 'moves that failed'
    assert_eq "$(device_get .used_bytes)" "$(store_bytes)" 'used_bytes'
}

store_bytes() {
    jq .bytes "$W/info"
}

@test "a waiter in promote hears of the end and of nothing else" {
    start_tiers size=64M,host_size=64M
    committed_on_host
    touch "$T/gate"
    spawn "$GMSFS" promote "$W"
    local promoter=$SPAWNED
    wait_until 5 moves
    kill_worker
    rm "$T/gate"
    wait_exit -0 "$promoter"
    at 'device host'
    bytes_are_right
}

@test "a store that comes back for a waiter in its lock is granted to that waiter" {
    start_tiers size=64M,host_size=64M
    committed_on_host
    touch "$T/gate"
    spawn "$GMSCTL" reader "$W" say held until "$T/go"
    local reader=$SPAWNED
    wait_until 5 moves
    kill_worker
    rm "$T/gate"
    wait_until 10 said "$reader" held
    bytes_are_right
    touch "$T/go"
    wait_exit -0 "$reader"
}

# ---- the audit -------------------------------------------------------------------------------

audit_is_whole() { # each event of the mount's life once, in order
    jq -s 'map(.seq) | . == [range(.[0]; .[0] + length)]' "$T/audit" | grep -qx true
}

audit_has_all() {
    [[ $(tail -n 1 "$T/audit" | jq .seq) -eq $(tail -n 1 "$M/events" | jq .seq) ]]
}

@test "each event has one line in the audit, whenever the worker dies" {
    local i
    start_weights "size=64M,audit=$T/audit"
    committed
    for i in {1..5}; do
        spawn bash -c 'for i in {1..200}; do : <"$1/lock"; done' _ "$W"
        local reader=$SPAWNED
        wait_until 5 grep -q ro_disconnected "$T/audit"
        kill_worker
        kill_worker
        wait_exit -0 "$reader"
    done
    wait_until 5 audit_has_all
    audit_is_whole
    assert_eq "$(grep -c worker_resumed "$T/audit")" 10 'deaths'
}

# ---- clients that are killed ----------------------------------------------------------------

# Kills the worker and then this client; the next worker comes after that.
kill_with_worker() { # PID
    local before
    before=$(grep -c ' serves, ' "$LOG" || true)
    kill -STOP "$KEEPER"
    kill -KILL "$(worker_of "$KEEPER")"
    kill -KILL "$1"
    kill -CONT "$KEEPER"
    wait_until_any 10 resumed_more_than "$before"
}

@test "an abort that waits is done though its caller is killed with the worker" {
    start_gated
    exec 5<>"$W/lock"
    hold_transfer
    spawn bash -c 'exec 3>"$1/abort" && echo open && echo 1 >&3' _ "$W"
    wait_until 5 said "$SPAWNED" open
    wait_until 5 is_blocked "$SPAWNED"
    assert_state weights RW
    kill_with_worker "$SPAWNED"
    rm "$GMSFS_GATE"
    wait_exit "$READER"
    wait_until 5 state_is weights COMMITTED
    run_logged -1 bash -c 'echo 1 >"$1/commit"' _ "$W" # the session is over
    exec 5>&-
    bytes_are_right
}

is_blocked() { # PID: in a request to the mount
    grep -q 'fuse\|request_wait' "/proc/$1/wchan" || [[ $(awk '{print $1}' "/proc/$1/syscall") == 1 ]]
}

@test "a client killed with the worker leaves no session and no place in the queue" {
    local waiter
    start_weights
    hold open "$W/lock" rw
    spawn "$GMSCTL" open "$W/lock" rw say held pause
    waiter=$SPAWNED
    wait_for_waiters weights 1
    kill_with_worker "$waiter"
    wait_until 5 requests_wait 0
    assert_state weights RW
    kill_with_worker "$HOLDER"
    wait_until 5 state_is weights EMPTY
    assert_eq "$(wc -l <"$W/sessions")" 0 'sessions and waiters'
    run_logged -0 timeout $((10 * HANG)) "$GMSCTL" open "$W/lock" rwn
}

# ---- requests --------------------------------------------------------------------------------

some_are_refused() {
    grep -q EDQUOT "$T"/spawn.*
}

requests_wait() { # COUNT
    [[ $(awk '$3 == "waiting"' "$M/weights/sessions" | wc -l) -eq $1 ]]
}

@test "requests that wait are bounded, with a share for each user, and others are served" {
    export GMSFS_LEDGER_SLOTS=1058 # of which 1,026 are for closes and what is being served
    local i waiting
    requires root
    start_weights
    hold open "$W/lock" rw
    for i in {1..20}; do
        spawn setpriv --reuid="$TEST_UID" --regid="$TEST_UID" --clear-groups --inh-caps=-all \
            "$GMSCTL" reader "$W"
    done
    wait_until 10 some_are_refused || { cat "$W/sessions" "$T"/spawn.* ; false; }
    grep -q '"event":"bound".*"bound":"requests","share":true' "$M/events"
    waiting=$(awk '$3 == "waiting"' "$W/sessions" | wc -l)
    [[ $waiting -ge 8 && $waiting -lt 20 ]]
    kill_worker
    wait_until 5 requests_wait "$waiting"
    let_go "$HOLDER"
}

@test "an allocation that waits for memory keeps its time over two workers' deaths, the second before it came again" {
    local start_ms took_ms
    export GMSFS_DIE_ASKED=$T/deaths
    start_weights size=4M,granularity=64K,alloc_timeout=3
    mkdir "$M/other"
    hold open "$M/other/lock" rw alloc 4194304 1 '' ''
    start_ms=$(date +%s%3N)
    spawn "$GMSCTL" open "$W/lock" rw alloc 65536 1 '' ''
    sleep 2 # two thirds of its time
    printf x >"$T/deaths"
    kill_worker
    assert_eq "$(stat -c %s "$T/deaths")" 0 'deaths that are left'
    wait_exit "$SPAWNED"
    took_ms=$(($(date +%s%3N) - start_ms))
    assert_match "$(output_of "$SPAWNED")" ENOMEM
    [[ $took_ms -ge 2900 && $took_ms -lt 4700 ]] || fail "it waited for $took_ms ms"
    let_go "$HOLDER"
}

# ---- snapshots -------------------------------------------------------------------------------

# Another one is begun with the end of each: nearly always one is being written.
@test "a worker may die while its child writes a snapshot" {
    export GMSFS_SNAPSHOT_BYTES=1
    local i
    start_weights size=64M
    committed
    spawn bash -c 'i=0; until [[ -e $2 ]]; do mkdir "$1/s$((++i))" && : <"$1/weights/lock" || exit 1; done; echo $i' \
        _ "$M" "$T/go"
    local user=$SPAWNED
    for i in {1..8}; do
        wait_until 5 test -d "$M/s$((i * 4))"
        kill_worker
    done
    touch "$T/go"
    wait_exit -0 "$user"
    assert_eq "$(find "$M" -mindepth 1 -maxdepth 1 -name 's*' -type d | wc -l)" "$(tail -n 1 "$T/spawn-$user")" stores
    bytes_are_right
}
