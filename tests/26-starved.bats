#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Workers that the kernel kills for want of memory: the keeper holds all memory for as long as it takes.
#
# shellcheck disable=SC2034,SC2153 # variables that the helpers read and set
# bats file_tags=slow

load helpers
load memcg
load publish

prepare() {
    requires memory-cgroup python3 no-sanitizer
    memcg_make 96
    start_published
}

teardown() {
    [[ -z ${EATER-} ]] || kill "$EATER" 2>/dev/null || true
    umount "$T/tmpfs" 2>/dev/null || true
    common_teardown
    memcg_remove
}

# From here on a process fills the cgroup but for a little, takes all memory that workers free, and is not killed for it.
eat_all() {
    python3 "$ROOT/tests/tools/eat_memory.py" "$MEMCG" &
    EATER=$!
    kill -STOP "$KEEPER"
    kill -KILL "$(worker_of "$KEEPER")" # at rest it needs nothing, and the next one does
    wait_until_any 10 has_no_worker
    wait_until_any 30 memcg_is_full
    kill -CONT "$KEEPER"
    wait_until_any 30 grep -q 'memory is kept, and' "$LOG"
}

has_no_worker() {
    [[ -z $(worker_of "$KEEPER") ]]
}

stop_eating() {
    kill "$EATER"
    wait "$EATER" || true
    EATER=''
}

@test "while there is no memory for a worker nothing is lost, and with some the mount goes on" {
    eat_all
    run_logged ! timeout 3 cat "$W/state" # the keeper looks again and again
    stop_eating
    run_logged -0 timeout $((60 * HANG)) cmp "$T/a" "$W/allocations/a"
    is_whole
}

@test "a worker that is killed for want of memory is replaced, and that is told" {
    mkdir "$T/tmpfs"
    mount -t tmpfs none "$T/tmpfs"
    # The kernel kills the worker first, then this, and not the keeper.
    # shellcheck disable=SC2016 # the inner shell expands them
    run_logged ! bash -c 'echo $$ >"$1/cgroup.procs" && echo 40 >/proc/self/oom_score_adj &&
        exec fallocate -l 96M "$2"' - "$MEMCG" "$T/tmpfs/file"
    umount "$T/tmpfs"
    wait_until_any 30 grep -q 'the worker was killed by the kernel for want of memory' "$LOG"
    run_logged -0 timeout $((60 * HANG)) cmp "$T/a" "$W/allocations/a"
    is_whole
    run_logged -0 timeout $((10 * HANG)) cat "$M/events"
    [[ $output == *'"recovered"'*'for want of memory'* ]]
}

# In a cgroup of its own, which is no part of the mount's.
another_is_killed_for_want_of_memory() {
    local other kills
    other=${MEMCG%/*}/gmsfs-other.$$.$BATS_TEST_NUMBER
    kills=$(sed -n 's/^oom_kill //p' /proc/vmstat)
    mkdir "$other"
    (
        MEMCG=$other
        memcg_limit 16
        # shellcheck disable=SC2016 # the inner shell expands them
        run_logged ! bash -c 'echo $$ >"$1/cgroup.procs" && exec python3 -c "b = bytearray(64 << 20)"' - "$other"
    )
    wait_until_any 10 rmdir "$other"
    (($(sed -n 's/^oom_kill //p' /proc/vmstat) > kills)) || fail 'nothing was killed for want of memory'
}

@test "a killed worker did not starve, though the kernel killed another process meanwhile" {
    another_is_killed_for_want_of_memory
    kill_worker
    another_is_killed_for_want_of_memory
    kill_worker
    is_whole
    run_logged ! grep -q 'for want of memory' "$LOG"
    run_logged -0 timeout $((10 * HANG)) cat "$M/events"
    [[ $output == *'"recovered"'* && $output != *'for want of memory'* ]]
}

@test "root ends a mount that has no memory for a worker" {
    eat_all
    expect_death
    kill -TERM "$KEEPER"
    wait_until_any 20 process_gone "$KEEPER"
    grep -q ': ended; ' "$LOG"
    run_logged ! mountpoint -q "$M"
}

@test "an unmount ends it as well, where no file of it is open" {
    eat_all
    expect_death
    cli umount -l "$M"
    wait_until_any 20 process_gone "$KEEPER"
    grep -q ': ended; ' "$LOG"
}
