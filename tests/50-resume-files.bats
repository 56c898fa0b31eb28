#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The content of open files and connections that is not in the state outlives a worker that dies.
#
# shellcheck disable=SC2034,SC2153 # variables that the helpers read and set

load helpers

@test "a change of an entry's value goes on from its own value, not from others' changes" {
    start_weights
    exec 5<>"$W/lock"
    echo -n 0123456789 >"$W/metadata/key"
    spawn "$GMSCTL" open "$W/metadata/key" rw pwrite 0 AB say written until "$T/go" pwrite 2 CD close
    wait_until 5 said "$SPAWNED" written
    echo -n other >"$W/metadata/key"
    kill_worker
    touch "$T/go"
    wait_exit -0 "$SPAWNED"
    assert_eq "$(<"$W/metadata/key")" ABCD456789 value
    exec 5>&-
}

@test "a value that was put and is changed on by the same open file goes on from the put value" {
    export GMSFS_SNAPSHOT_BYTES=4000
    local i
    start_weights
    exec 5<>"$W/lock"
    echo -n 0123456789 >"$W/metadata/key"
    spawn "$GMSCTL" open "$W/metadata/key" rw pwrite 0 AB dupclose say put until "$T/go" \
        pwrite 2 CD close say "done"
    wait_until 5 said "$SPAWNED" put
    assert_eq "$(<"$W/metadata/key")" AB23456789 'the put value'
    echo -n other >"$W/metadata/key"
    for i in {1..40}; do # snapshots
        echo -n "$i" >"$W/metadata/more"
    done
    kill_worker
    assert_eq "$(<"$W/metadata/key")" other 'the value that others see'
    touch "$T/go"
    wait_exit -0 "$SPAWNED"
    assert_eq "$(<"$W/metadata/key")" ABCD456789 value
    exec 5>&-
}

# A user's share of the notes is less than this writes; the user is told at the limit.
@test "writes to entries beyond the notes for a next worker are lost with EIO, and nothing else is" {
    local i words closes=() whole=0 lost
    start_weights
    words=(open "$W/lock" rw)
    head -c 1000000 /dev/urandom >"$T/value"
    for i in {1..24}; do
        words+=(open "$W/metadata/key$i" rwc writefile "$T/value")
        closes+=(use 1 try close)
    done
    spawn "$GMSCTL" "${words[@]}" say written until "$T/go" "${closes[@]}" say closed until "$T/end"
    wait_until 20 said "$SPAWNED" written
    kill_worker
    touch "$T/go"
    wait_until 20 said "$SPAWNED" closed
    lost=$(output_of "$SPAWNED" | grep -c EIO || true)
    for i in {1..24}; do
        cmp -s "$T/value" "$W/metadata/key$i" && whole=$((whole + 1))
    done
    touch "$T/end"
    wait_exit "$SPAWNED"
    [[ $lost -ge 8 && $whole -ge 7 && $((lost + whole)) -eq 24 ]]
    grep -q '"event":"bound".*"notes"' "$M/events"
}

sequence_is_whole() { # FILE...: every event, once
    cat "$@" | grep '^{' | jq -s 'map(.seq) | length > 4 and . == [range(.[0]; .[0] + length)]' | grep -qx true
}

@test "a worker that dies over the answer of a read of events loses no line and doubles none" {
    export GMSFS_DIE_ANSWERING=$T/deaths
    local i
    start_weights
    spawn "$GMSCTL" open "$M/events" r read 1000000 say begun until "$T/go" \
        read 100 read 1000000 read 1000000 say "done"
    wait_until 5 said "$SPAWNED" begun
    for i in a b c d; do
        mkdir "$M/$i"
    done
    printf xx >"$T/deaths"
    touch "$T/go"
    wait_exit -0 "$SPAWNED"
    assert_eq "$(grep -c 'the worker was killed' "$LOG")" 2 'workers that died'
    output_of "$SPAWNED" | grep -v '^begun$\|^done$' | tr -d '\n' | sed 's/}{/}\n{/g' >"$T/lines"
    echo >>"$T/lines"
    sequence_is_whole "$T/lines"
}

@test "an offset in events is the same byte for the next worker" {
    start_weights
    ctl repeat 600 mkdir "$M/x" rmdir "$M/x"
    tail -c +$(($(jq .events_from "$M/device") + 1)) "$M/events" >"$T/before"
    jq .events_from "$M/device" >"$T/from"
    stat -c %s "$M/events" >"$T/size"
    exec 5<"$M/events"
    cat <&5 >"$T/read"
    kill_worker
    wait_until 10 test -e "$W/state"
    wait_until 10 grep -q '"recovered"' "$M/events"
    tail -c +$(($(jq .events_from "$M/device") + 1)) "$M/events" >"$T/after"
    local gone=$(($(jq .events_from "$M/device") - $(cat "$T/from")))
    cmp -n $(($(wc -c <"$T/before") - gone)) <(tail -c +$((gone + 1)) "$T/before") "$T/after"
    # A reader that had read to the end goes on from there.
    cat <&5 >"$T/rest"
    exec 5<&-
    cmp "$T/rest" <(tail -c +$(($(cat "$T/size") + 1)) "$M/events")
}

# As before Linux 6.9.
@test "where the kernel sends nothing again, requests under way fail with EIO once, and the rest is as it was" {
    export GMSFS_NO_RESEND=1 GMSFS_GATE=$T/gate
    local waiter reader
    start_weights
    grep -q 'does not send requests again .* fail with EIO, once' "$LOG"
    exec 5<>"$W/lock"
    head -c 70000 /dev/urandom >"$T/b"
    cp "$T/b" "$W/allocations/b"
    commit_5
    mkdir "$M/other"
    hold open "$M/other/lock" rw
    spawn "$GMSCTL" open "$M/other/lock" rw
    waiter=$SPAWNED
    wait_for_waiters other 1
    touch "$GMSFS_GATE"
    spawn "$GMSCTL" open "$W/allocations/b" r read 70000
    reader=$SPAWNED
    wait_until 5 grep -q '^gmsfs_transfers_in_flight 1$' "$M/metrics"
    kill_worker
    rm "$GMSFS_GATE"
    wait_exit "$waiter"
    assert_match "$(output_of "$waiter")" EIO
    wait_exit "$reader"
    assert_match "$(output_of "$reader")" EIO
    assert_state other RW
    run_logged -0 timeout $((10 * HANG)) cmp "$T/b" "$W/allocations/b"
    kill_worker
    assert_state other RW
    let_go "$HOLDER"
    wait_until 5 state_is other EMPTY
    cmp "$T/b" "$W/allocations/b"
}

@test "where the kernel sends nothing again, a worker that dies over an answer leaves no client waiting" {
    export GMSFS_NO_RESEND=1 GMSFS_DIE_ANSWERING=$T/deaths
    start_weights
    printf x >"$T/deaths"
    run timeout $((10 * HANG)) mkdir "$M/other"
    [[ $status -ne 124 ]]
    assert_match "$output" 'Input/output error'
    run_logged -0 timeout $((10 * HANG)) mkdir "$M/third"
    [[ -d $M/weights && -d $M/third ]]
}

@test "a text that is read in parts goes on as it was, and one that was read has its end, over deaths" {
    start_weights
    spawn "$GMSCTL" open "$M/metrics" r read 100 say begun until "$T/go" read 1000000 read 100 \
        open "$M/device" r read 1000000 say read until "$T/on" read 100 say "done"
    wait_until 5 said "$SPAWNED" begun
    cp "$M/metrics" "$T/before"
    mkdir "$M/grown" # so there is more to tell
    kill_worker
    kill_worker
    touch "$T/go"
    wait_until 5 said "$SPAWNED" read
    kill_worker
    mkdir "$M/grown-more"
    touch "$T/on"
    wait_exit -0 "$SPAWNED"
    output_of "$SPAWNED" | sed '/^begun$/d; /^read$/,$d' >"$T/read"
    # the text is of the time before: it knows of no store that came later, nor of a death
    run_logged ! grep -q 'grown' "$T/read"
    grep -qx 'gmsfs_recoveries_total 0' "$T/read"
    [[ $(wc -l <"$T/read") -ge $(($(wc -l <"$T/before") - 1)) ]]
    assert_eq "$(output_of "$SPAWNED" | sed '1,/^read$/d' | grep .)" 'done' 'the output after the end'
}

waits_for_holders() {
    [[ $(output_of "$SPAWNED") == *'waiting for 1 session'* ]]
}

@test "a drain of the mount keeps its owner over a worker's death, unheard, and ends as any" {
    start_weights
    hold open "$W/lock" rw
    spawn "$GMSFS" drain "$M"
    wait_until 5 waits_for_holders
    kill_worker
    kill_worker
    assert_eq "$(jq .draining "$M/device")" true draining
    let_go "$HOLDER"
    wait_exit -0 "$SPAWNED"
    [[ $(output_of "$SPAWNED") != *daemon* ]]
    assert_eq "$(jq .draining "$M/device")" true 'draining when it is done'
}

@test "a drain of a store keeps its owner over a worker's death, also while its command runs" {
    start_weights
    hold open "$W/lock" rw
    # shellcheck disable=SC2016 # another shell expands it
    spawn "$GMSFS" drain "$W" -- bash -c 'touch "$1"; until [[ -e $2 ]]; do sleep 0.05; done' _ \
        "$T/runs" "$T/go"
    wait_until 5 waits_for_holders
    kill_worker
    assert_eq "$(jq .draining "$W/info")" true draining
    let_go "$HOLDER"
    wait_until 5 test -e "$T/runs"
    kill_worker
    wait_until 5 grep -q 'goes on with its drain' "$LOG"
    run_logged -1 "$GMSCTL" open "$W/lock" rwn
    assert_eq "$(jq .draining "$W/info")" true 'draining, the command runs'
    touch "$T/go"
    wait_exit -0 "$SPAWNED"
    wait_until 5 test "$(jq .draining "$W/info")" = false
}

@test "a drain of any kind whose worker dies before it has answered is asked for again" {
    export GMSFS_DIE_ANSWERING_FDS=$T/deaths
    start_weights
    hold open "$W/lock" rw
    printf xx >"$T/deaths" # the drain is begun, and again
    spawn "$GMSFS" drain "$M"
    wait_until 5 waits_for_holders
    assert_eq "$(grep -c 'the worker was killed' "$LOG")" 2 'workers that died'
    assert_eq "$(jq .draining "$M/device")" true draining
    printf x >"$T/deaths" # at one of the requests meanwhile
    wait_until_any 10 resumed_more_than 2
    kill -STOP "$SPAWNED"
    let_go "$HOLDER"
    printf x >"$T/deaths" # the answer that it has ended
    kill -CONT "$SPAWNED"
    wait_exit -0 "$SPAWNED"
    [[ $(output_of "$SPAWNED") != *daemon* ]]
    assert_eq "$(stat -c %s "$T/deaths")" 0 'deaths that are left'
    assert_eq "$(jq .draining "$M/device")" true 'draining when it is done'
    printf x >"$T/deaths"
    run_logged -0 cli drain --undo "$M"
    assert_eq "$(jq .draining "$M/device")" false 'draining when it is undone'
}

@test "a drain of a store whose worker dies before it has answered goes on as if it had" {
    export GMSFS_DIE_ANSWERING_FDS=$T/deaths
    start_weights
    printf x >"$T/deaths"
    # shellcheck disable=SC2016 # another shell expands it
    run_logged -0 cli drain "$W" -- bash -c 'jq .draining "$1/info"' _ "$W"
    assert_match "$output" true
    assert_eq "$(stat -c %s "$T/deaths")" 0 'deaths that are left'
    wait_until 5 serves_again
}

@test "a drain that has a file of the store from the shell says that it waits for itself" {
    local seconds=$((2 * SLOW))
    start_weights
    exec 6<>"$W/lock"
    run "$GMSFS" drain --timeout "$seconds" "$W"
    assert_eq "$status" 3 'exit status: sessions were left'
    assert_match "$output" "process [0-9]+. waits for itself: its descriptor 6 is $W/lock"
    run "$GMSFS" drain -q --timeout "$seconds" "$M"
    assert_eq "$status" 3 'exit status: sessions were left'
    assert_match "$output" "waits for itself: its descriptor 6 is $W/lock"
    exec 6>&-
    run_logged -0 cli drain "$W"
    [[ $output != *itself* ]]
}

serves_again() {
    [[ $(jq .draining "$M/device") == false && $(jq .draining "$W/info") == false ]]
}

@test "a drain whose owner dies after the worker ends with it, and no other takes it over before" {
    start_weights
    hold open "$W/lock" rw
    spawn "$GMSFS" drain "$M"
    wait_until 5 waits_for_holders
    kill -STOP "$SPAWNED"
    kill_worker
    run cli drain --timeout 1 "$M"
    assert_eq "$status" 1 'exit status of another drain'
    assert_match "$output" 'under way'
    kill -KILL "$SPAWNED"
    wait_exit "$SPAWNED"
    wait_until 5 serves_again # he had twice as long to come again
    let_go "$HOLDER"
}
