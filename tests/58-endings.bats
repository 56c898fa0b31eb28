#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Requests while earlier ones are still ending: memory that is being freed, spools that are being sealed,
# descriptors that have run out, an idle daemon.
#
# bats file_tags=fake,slow:fake

load helpers

@test "a spool that needs given-up memory gets it, and the writer is not told ENOMEM" {
    start_weights size=64M
    head -c 48M /dev/zero >"$T/model"
    ctl open "$W/lock" rw open "$W/allocations/a" rwc ftruncate $((48 << 20)) \
        open "$W/commit" w write 1
    for _ in 1 2 3; do
        exec 5<>"$W/lock"
        cp "$T/model" "$W/allocations/a"
        commit_5
        cmp "$W/allocations/a" "$T/model"
    done
    assert_eq "$(device_get .used_bytes)" $((48 << 20)) 'used bytes'
}

@test "a process that closed its lock asks again while its spool is being sealed" {
    start_weights
    for _ in 1 2 3; do
        ctl repeat 100 open "$W/lock" rw open "$W/allocations/s" rwc write fill:1000001 close \
            use 0 close open "$W/lock" rw close
    done
}

@test "without a free descriptor memory is ENOSPC, and the daemon neither spins nor dies" {
    # shellcheck disable=SC2016 # for the inner shell
    MOUNT_VIA=(bash -c 'ulimit -n 64; exec "$@"' -)
    start_mount
    # shellcheck disable=SC2034 # start_mount reads it
    MOUNT_VIA=()
    W=$M/weights
    expect ENOSPC open "$W/ctl" rw acquire rw 1000 repeat 100 alloc-nowait 4096 1 '' ''
    assert_match "$(cat "$LOG")" 'the limit of 64 open files is reached'
    expect ENOSPC open "$W/ctl" rw acquire rw 1000 alloc-nowait 4096 100 '' ''
    spawn "$GMSCTL" open "$W/ctl" rw acquire rw 1000 repeat 100 try connect "$M"
    wait_exit "$SPAWNED" 20
    ctl open "$W/lock" rw # its process can still be told
    "$ROOT/scripts/make-model" --out "$T/model" --size 1M --shards 1 >"$T/made"
    cli -1 load --chunk 1K "$W" "$T/model"
    assert_match "$output" "$W: no room for [0-9]+ allocations: .* its daemon as many open files, .*; choose a larger --chunk, or mount with"
    start_mount
    cli load -q --chunk 1K "$M/weights" "$T/model"
    cli image save -q "$M/weights" "$T/image"
    cli -1 image load "$W" "$T/image"
    assert_match "$output" "$W: no room for [0-9]+ allocations: .*; mount with a larger limit"
}

@test "a file beyond the daemon's limit is ENFILE: EMFILE would be the limit of the caller" {
    local worker limits
    start_weights
    worker=$(worker_of "$KEEPER")
    limits=$(prlimit --pid "$worker" --nofile --raw --noheadings --output SOFT,HARD)
    exec 5<>"$W/lock"
    echo bytes >"$W/allocations/a"
    prlimit --pid "$worker" --nofile=3:
    run_logged -1 tee "$W/commit" <<<1
    assert_match "$output" 'Too many open files in system'
    run_logged -1 mkdir "$M/other"
    assert_match "$output" 'Too many open files in system'
    prlimit --pid "$worker" --nofile="${limits/ /:}"
    commit_5
    assert_state weights COMMITTED
}

@test "a file beyond the daemon's limit is ENFILE on .fds, too" {
    local worker limits
    start_mount
    worker=$(worker_of "$KEEPER")
    limits=$(prlimit --pid "$worker" --nofile --raw --noheadings --output SOFT,HARD)
    spawn "$GMSCTL" connect "$M" ask fence 1 say connected until "$T/go" ask fence 1
    wait_until_any 10 said "$SPAWNED" connected
    prlimit --pid "$worker" --nofile=3:
    touch "$T/go"
    wait_exit "$SPAWNED"
    prlimit --pid "$worker" --nofile="${limits/ /:}"
    assert_match "$(output_of "$SPAWNED")" ENFILE
}

@test "a mount ends in order while a large document is being written" {
    start_weights
    hold open "$W/ctl" rw acquire rw 1000 write fill:8000000
    expect_death
    kill -TERM "$KEEPER"
    wait_exit -0 "$KEEPER"
    run_logged ! grep -E 'signal|killed|hang' "$LOG"
}

sleeps_on() { # PID: without a wakeup for three seconds
    local before
    before=$(awk '/^voluntary/ { print $2 }' "/proc/$1/status")
    sleep 3
    [[ $(awk '/^voluntary/ { print $2 }' "/proc/$1/status") == "$before" ]]
}

@test "at rest the worker does not wake up" {
    start_mount
    ls -lR "$M" >/dev/null
    worker=$(pgrep -P "$KEEPER")
    # `gmsfs status` in tests beside this one looks at every mount, so some seconds may be disturbed.
    wait_until 60 sleeps_on "$worker"
}
