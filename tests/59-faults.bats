#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Each call of the daemon and the library that can fail does so once: tests/fault. FAULTS=all takes
# every call site in every deed, and every one of the start; else one that failed in a test before
# need not fail again. Sanitized, which is slow, only some of them do.
#
# shellcheck disable=SC2034,SC2153 # variables that the helpers read and set
# bats file_tags=slow

load helpers

FAULTS_TOOL=$BUILD/tests/fault/faults
GMSCTL=$BUILD/tests/tools/gmsctl

prepare() {
    export ASAN_OPTIONS=${GMSFS_DAEMON_ASAN_OPTIONS:-${ASAN_OPTIONS:-}} # of gmsctl, by the thousand
    export FAULTS_EVERY=$SLOW
    [[ ${FAULTS:-} != all ]] || export FAULTS_EACH=1
}

# name_sites PROGRAM: addresses as functions and lines, on standard input.
name_sites() {
    local line sites
    while IFS= read -r line; do
        if [[ $line == '    at '* && -n $(type -P addr2line) ]]; then
            read -ra sites <<<"${line#    at}"
            echo "    at" "$(addr2line -fse "$1" "${sites[@]}" | paste -sd ' ')"
        else
            printf '%s\n' "$line"
        fi
    done
}

# some_faults PROGRAM COMMAND...: succeeds, or prints the errors.
some_faults() {
    local program=$1 limit_s=$((80 * HANG))
    shift
    [[ ${FAULTS:-} != all ]] || limit_s=7000
    run timeout "$limit_s" "$@"
    # shellcheck disable=SC2154 # set by run
    name_sites "$program" <<<"$output"
    [[ $status -eq 0 ]] || fail "exit status $status: ${*: -6}"
}

start_armed() { # [OPTIONS]
    "$FAULTS_TOOL" new "$T/control"
    GMSFS_FAULT_CONTROL=$T/control start_mount "size=${ARMED_SIZE-8M},granularity=64K,host_size=2M${1-}"
}

daemon_faults() { # keeper|worker GROUP...
    start_armed "${ARMED_WITH-}"
    FAULTS_TRIED=$BATS_FILE_TMPDIR/tried-$1 some_faults "$GMSFS" "$FAULTS_TOOL" run "$T/control" \
        "$GMSCTL" "$M" "$KEEPER" "$(worker_of "$KEEPER")" "$@"
}

# bats test_tags=quick
@test "GMSFS_FAULT: mistakes in it are reported" {
    local value
    for value in nothing malloc:after=x malloc:after malloc:errno=EMUCH malloc:in=me :; do
        GMSFS_FAULT=$value run_logged -2 "$GMSFS" --version
        assert_match "$output" "^gmsfs: GMSFS_FAULT=$value: "
    done
    GMSFS_FAULT_CONTROL=/dev/null run_logged -2 "$GMSFS" --version
    assert_match "$output" 'GMSFS_FAULT_CONTROL=/dev/null'
}

# bats test_tags=quick
@test "GMSFS_FAULT: the call that it names fails, once" {
    requires fuse
    mkdir "$T/m"
    GMSFS_FAULT=epoll_create1:after=0:errno=ENFILE:in=worker \
        run_logged -1 timeout $((20 * HANG)) "$GMSFS" mount -f -o backend=host,size=8M "$T/m"
    assert_match "$output" 'cannot start the event loop: Too many open files in system'
    GMSFS_FAULT=memfd_create:after=3:errno=EMFILE:in=worker start_mount size=8M
    code=0
    for i in 1 2 3 4 5; do
        timeout $((10 * HANG)) "$GMSCTL" open "$M/weights/lock" rw alloc 100 1 '' '' >>"$T/said" || code=1
    done
    run_logged -0 cat "$T/said"
    assert_eq "$(grep -c ENOSPC "$T/said")" 1 'allocations that failed'
    assert_eq "$code" 1 'exit status of one of them'
}

@test "worker: looking" { daemon_faults worker look; }
@test "worker: locks" { daemon_faults worker lock; }
# bats test_tags=quick
@test "worker: memory" { daemon_faults worker memory; }
@test "worker: entries, stores and tickets" { daemon_faults worker entries stores tickets; }
# bats test_tags=quick
@test "worker: places" { daemon_faults worker places; }

# bats test_tags=quick
@test "worker: the disk" {
    requires unnamed-files
    mkdir "$T/spill"
    ARMED_WITH=",spill=$T/spill,spill_size=2M" daemon_faults worker spills
}

@test "worker: evictions" { ARMED_SIZE=1M ARMED_WITH=,min_stay=0 daemon_faults worker evictions; }
@test "worker: budgets" { daemon_faults worker budgets; }
@test "worker: spares" { daemon_faults worker spares; }
@test "worker: regions" { daemon_faults worker regions; }
@test "keeper" { daemon_faults keeper memory; }

@test "a mount begins and ends in spite of any failure, or fails with a message and leaves nothing" {
    local every=$((3 * SLOW))
    requires fuse root
    [[ ${FAULTS:-} != all ]] || every=1
    mkdir "$T/m"
    some_faults "$GMSFS" "$BUILD/tests/fault/startup" "$T/control" "$GMSFS" "$T/m" "$every"
}

@test "core: endings need no memory, and nothing else is decided by the lack of it" {
    run_logged -0 timeout $((80 * HANG)) "$BUILD/tests/fault/records"
}

# bats test_tags=quick
@test "core: requests that succeeded where memory lacked give the same when replayed" {
    run_logged -0 timeout $((80 * HANG)) "$BUILD/tests/fault/replay"
}

@test "core: a state that is decoded where memory lacks is refused whole" {
    run_logged -0 timeout $((80 * HANG)) "$BUILD/tests/fault/decode"
}

@test "messages: an answer for which memory lacks is no frame, and none of those before it is lost" {
    run_logged -0 timeout $((80 * HANG)) "$BUILD/tests/fault/messages"
}

# bats test_tags=quick
@test "bulk metadata is applied whole or not at all" { run_logged -0 timeout $((80 * HANG)) "$BUILD/tests/fault/bulk"; }

@test "requests that lack memory take nothing of a bound or of the daemon's memory" {
    run_logged -0 timeout $((80 * HANG)) "$BUILD/tests/fault/bounds"
}

@test "layouts and their clones: requests that lack memory change nothing" {
    run_logged -0 timeout $((80 * HANG)) "$BUILD/tests/fault/layout"
}

@test "library" {
    start_mount size=8M,granularity=64K
    mkdir "$M/second"
    some_faults "$BUILD/tests/fault/library" "$BUILD/tests/fault/library" "$M/weights" "$M/second"
}

# bats test_tags=quick
@test "commands that move bytes succeed, or say why not and leave nothing half done" {
    local every=$((3 * SLOW))
    requires python3
    [[ ${FAULTS:-} != all ]] || every=1
    start_mount size=64M,granularity=64K
    "$ROOT/scripts/make-model" --out "$T/model" --size 1M --shards 1 >"$T/said"
    "$GMSFS" load -q "$M/weights" "$(tail -n 1 "$T/said")"
    mkdir "$T/made"
    "$GMSFS" save -q "$M/weights" "$T/made/model.safetensors"
    some_faults "$GMSFS" "$BUILD/tests/fault/commands" "$T/control" "$GMSFS" "$M/weights" "$T/made" "$every"
}
