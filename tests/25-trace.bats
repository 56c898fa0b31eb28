#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The trace of a mount: what takes time in the daemon, as spans that browsers show.
#
# bats file_tags=slow

load helpers
load places

# spans FILE FILTER: the array of a trace; one that goes on, or whose writer was killed, has no end yet
spans() {
    { cat "$1" && { has_end "$1" || echo '{}]'; }; } | jq -c "$2"
}

has_end() { # FILE
    [[ $(tail -c 2 "$1") == ']' ]]
}

has_span() { # FILE CONDITION: a span for which it is true
    [[ $(spans "$1" "any(.[]; $2)") == true ]]
}

trace_value() { # NAME
    sed -n "s/^gmsfs_trace_$1_total //p" "$M/metrics"
}

@test "requests, jobs and moves are spans, and waits have their length" {
    start_weights size=64M,host_size=32M,trace="$T/trace"
    committed
    hold open "$W/lock" r
    spawn "$GMSCTL" open "$W/lock" rw
    local writer=$SPAWNED
    wait_for_waiters weights 1
    sleep 0.2
    let_go "$HOLDER"
    wait_exit "$writer"
    move_to host host
    wait_until 5 has_span "$T/trace" '.cat == "move"'
    wait_until 5 has_span "$T/trace" '.cat == "wait" and .name == "open"'
    has_span "$T/trace" '.ph == "X" and .cat == "loop" and .name == "open"'
    has_span "$T/trace" '.cat == "job" and .name == "transfer"'
    has_span "$T/trace" '.cat == "move" and .name == "move to host" and .args.detail == "weights"'
    # Whole spans, each with a place and a time; a begin has its end, as late or later.
    assert_eq "$(spans "$T/trace" 'all(.[] | select(.ph == "X"); .dur >= 0 and .pid > 1 and .tid > 1 and .ts > 0)')" true
    assert_eq "$(spans "$T/trace" '[.[] | select(.ph == "b" or .ph == "e")] | group_by([.cat, .id, .name])
        | all(.[]; length % 2 == 0 and .[0].ph == "b" and .[1].ph == "e" and .[1].ts >= .[0].ts)')" true
    assert_eq "$(spans "$T/trace" '[.[] | select(.cat == "wait" and .name == "open")] | .[1].ts - .[0].ts >= 200000')" true
    assert_eq "$(stat -c %a "$T/trace")" 600
    (($(trace_value spans) > 20))
    assert_eq "$(trace_value dropped)" 0
}

@test "a trace goes on with the next worker, and can be read after both were killed" {
    start_mount size=16M,trace="$T/trace"
    local before
    ctl mkdir "$M/other"
    wait_until 5 has_span "$T/trace" '.name == "mkdir"'
    before=$(trace_value spans)
    kill_worker
    wait_until 5 has_span "$T/trace" '.cat == "recovery" and .dur > 0 and (.args.detail | length > 0)'
    (($(trace_value spans) >= before))
    ctl mkdir "$M/third"
    wait_until 5 bash -c "[[ \$(grep -c '\"mkdir\"' '$T/trace') -eq 2 ]]"
    assert_eq "$(spans "$T/trace" '[.[] | select(.name == "process_name").pid] | unique | length')" 2
    # A part of a line, as a killed writer may leave it, is removed by the next one.
    printf '{"ph":"X","ca' >>"$T/trace"
    kill_worker
    wait_until 5 bash -c "[[ \$(grep -c '\"recovery\"' '$T/trace') -eq 2 ]]"
    spans "$T/trace" length
    # So is the end of one that was asked to leave, as by an upgrade.
    run_logged -0 "$GMSFS" upgrade "$M"
    wait_until 5 bash -c "[[ \$(grep -c '\"recovery\"' '$T/trace') -eq 3 ]]"
    ! has_end "$T/trace" || fail 'the array has ended'
    stop_mount
    jq -e 'length > 10 and .[-1].args.labels == "ended"' "$T/trace"
}

@test "a trace at its bound becomes FILE.1, and a new mount does the same with an old one" {
    export GMSFS_TRACE_BYTES=20000
    start_mount size=16M,trace="$T/trace"
    wait_until 10 bash -c "stat '$M'/* >'$T/out'; [[ -e '$T/trace.1' ]]"
    wait_until 10 bash -c "stat '$M'/* >'$T/out'; [[ -s '$T/trace' ]]"
    wait_until 5 has_end "$T/trace.1"
    jq length "$T/trace.1"
    spans "$T/trace" length
    (($(stat -c %s "$T/trace.1") < 40000))
    assert_eq "$(stat -c %a "$T/trace.1")" 600
    stop_mount
    local sum
    sum=$(sha256sum <"$T/trace")
    start_mount size=16M,trace="$T/trace"
    assert_eq "$(sha256sum <"$T/trace.1")" "$sum"
}

# fill_trace FILE: looks at the mount until the trace has replaced its file by this one
fill_trace() {
    wait_until 10 bash -c "stat '$M'/* >'$T/out'; [[ -e '$1' ]]"
}

@test "a disk that hangs while the trace's file is replaced keeps no worker from starting" {
    export GMSFS_TRACE_BYTES=20000 GMSFS_HOLD_TRACE=$T/hold
    touch "$T/hold"
    start_mount size=16M,trace="$T/trace"
    wait_until 10 bash -c "stat '$M'/* >'$T/out'; (( \$(stat -c %s '$T/trace') >= 20000 ))"
    kill -KILL "$(worker_of "$KEEPER" | head -n 1)" # the other child replaces the file
    wait_until_any 5 resumed_more_than 0
    ctl mkdir "$M/other"
    [[ ! -e $T/trace.1 ]]
    rm "$T/hold"
    fill_trace "$T/trace.1"
    wait_until 10 bash -c "stat '$M'/* >'$T/out'; [[ -s '$T/trace' ]]"
}

@test "a trace whose full file cannot be replaced ends, and the log says so" {
    export GMSFS_TRACE_BYTES=20000
    mkdir -p "$T/gone"
    start_mount size=16M,trace="$T/gone/trace"
    mv "$T/gone" "$T/moved"
    wait_until 10 bash -c "stat '$M'/* >'$T/out'; grep -q 'the trace ends, because its file is full' '$LOG'"
    grep -q "$T/gone/trace: cannot open it: No such file or directory; make its directory first" "$LOG"
    ctl mkdir "$M/other"
}

@test "a link, a directory and another user's file are refused, with the reason" {
    refused() { # FILE TEXT
        run_logged -1 "$GMSFS" mount -o "backend=host,size=16M,trace=$1" "$T/mnt"
        assert_match "$output" "$2"
    }
    mkdir -p "$T/mnt" "$T/directory"
    touch "$T/mine"
    ln -s "$T/mine" "$T/link"
    refused "$T/link" 'is a symbolic link'
    refused "$T/directory" 'directory'
    refused "$T/none/trace" 'No such file'
    refused /dev/null 'no regular file'
    run_logged -2 "$GMSFS" mount -o backend=host,size=16M,trace=trace "$T/mnt"
    assert_match "$output" 'expected an absolute path'
    [[ ! -s $T/mine ]]
    if [[ $EUID -eq 0 ]]; then
        touch "$T/theirs"
        chown 65534 "$T/theirs"
        refused "$T/theirs" 'belongs to another user'
        [[ ! -s $T/theirs ]]
    fi
}

# within BEGIN_US FILE: all spans lie between then and now
within() {
    local now
    now=$(python3 -c 'import time; print(time.monotonic_ns() // 1000)')
    assert_eq "$(spans "$2" "[.[] | select(.ph == \"X\")] | length > 3 and all(.[]; .ts >= $1 and .ts + .dur <= $now)")" true
}

@test "the trace of a load has its reads, memory and commit, within the load's time" {
    local begun
    start_mount size=64M
    make_model 8M
    begun=$(python3 -c 'import time; print(time.monotonic_ns() // 1000)')
    run_logged -0 "$GMSFS" load --trace "$T/trace" "$M/weights" "$MODEL"
    within "$begun" "$T/trace"
    # Whole, with no span lost: as many bytes were read as the model has.
    assert_eq "$(spans "$T/trace" '[.[] | select(.name == "commit")] | length')" 1
    assert_eq "$(spans "$T/trace" '[.[] | select(.name == "read").args.detail | capture(", (?<n>[0-9]+) bytes").n | tonumber] | add >= 8000000')" true
    has_span "$T/trace" '.name == "memory"'
    has_span "$T/trace" '.name == "plan"'
    if [[ $BACKEND == cuda ]]; then
        has_span "$T/trace" '.name == "pin"'
        has_span "$T/trace" '.name == "copy"'
    fi
    # No read ends after the commit began.
    # shellcheck disable=SC2016 # of jq
    assert_eq "$(spans "$T/trace" '(map(select(.name == "commit"))[0].ts) as $c | all(.[] | select(.name == "read"); .ts + .dur <= $c)')" true
    assert_eq "$(stat -c %a "$T/trace")" 600
    # The next load's trace begins a new file, also that of a group.
    begun=$(python3 -c 'import time; print(time.monotonic_ns() // 1000)')
    run_logged -0 "$GMSFS" load --group --force --trace "$T/trace" "$M/weights=$MODEL"
    within "$begun" "$T/trace"
    has_span "$T/trace" '.name == "commit"'
    [[ -s $T/trace.1 ]]
    jq -e 'length > 3' "$T/trace" "$T/trace.1"
    # Where the trace cannot be written nothing is loaded; a full disk is told at the end, and no failure.
    ln -s "$T/none" "$T/link"
    run_logged -1 "$GMSFS" load --trace "$T/link" "$M/weights" "$MODEL"
    assert_match "$output" 'symbolic link'
    run_logged -1 "$GMSFS" load --trace /dev/full "$M/weights" "$MODEL"
    assert_match "$output" 'no regular file'
}

@test "a load that fails ends its trace, and one that was killed or interrupted leaves whole lines" {
    local signal loader
    start_mount size=16M
    make_model 8M
    head -c 1000000 "$(printf '%s\n' "$T"/model-*/*.safetensors | tail -n 1)" >"$T/short.safetensors"
    run_logged -1 "$GMSFS" load --trace "$T/trace" "$M/weights" "$T/short.safetensors"
    jq -e '.[-1].args.labels == "ended"' "$T/trace"
    hold open "$M/weights/lock" rw
    for signal in KILL TERM; do
        spawn "$GMSFS" load --trace "$T/$signal" "$M/weights" "$MODEL"
        loader=$SPAWNED
        wait_for_waiters weights 1
        wait_until 5 has_span "$T/$signal" '.name == "plan"'
        kill -"$signal" "$loader"
        wait_exit "$loader"
        has_span "$T/$signal" '.name == "plan"' || fail "a line of the trace after SIG$signal is broken"
    done
}

@test "a load on a full disk for its trace loads, and says that the trace is not complete" {
    requires root
    mkdir "$T/small"
    mount -t tmpfs -o size=4k tmpfs "$T/small"
    head -c 4096 /dev/zero >"$T/small/full"
    start_mount size=64M
    make_model 1M
    run_logged -0 "$GMSFS" load --trace "$T/small/trace" "$M/weights" "$MODEL"
    assert_match "$output" 'trace .* is not complete: No space left'
    assert_state weights COMMITTED
    umount "$T/small"
}

@test "a full disk drops spans, counts them and delays no request" {
    requires root
    mkdir "$T/small"
    mount -t tmpfs -o size=64k tmpfs "$T/small"
    start_mount size=16M,trace="$T/small/trace"
    wait_until 10 bash -c "stat '$M'/* >'$T/out'; (( \$(sed -n 's/^gmsfs_trace_dropped_total //p' '$M/metrics') > 0 ))"
    spans "$T/small/trace" length
    stop_mount
    umount "$T/small"
}
