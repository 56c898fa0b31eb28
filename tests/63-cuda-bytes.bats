#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# read(2) and write(2) of GPU memory, over the fake driver: the copier that does it, its death, its hangs,
# and its leftovers. 32-transfers, which runs on fake GPUs as well, tests the bytes in all other ways.
#
# shellcheck disable=SC2016 # bodies of shells

load helpers
load gpu

prepare() { fake_gpus; }

contexts() {
    find "$GMSFS_FAKE_CUDA" -name 'context.*'
}

free_is() { # BYTES
    [[ $(device_get .free_bytes) == "$1" ]]
}

# publish NAME BYTES: random, in $T/NAME and committed
publish() {
    head -c "$2" /dev/urandom >"$T/$1"
    exec 5<>"$W/lock"
    truncate -s "$2" "$W/allocations/$1"
    dd if="$T/$1" of="$W/allocations/$1" bs=1M conv=notrunc status=none
    commit_5
}

@test "bytes that were written without a size become GPU memory at close" {
    start_weights
    head -c 3000001 /dev/urandom >"$T/a"
    exec 5<>"$W/lock"
    cp "$T/a" "$W/allocations/a"
    wait_until 5 used_is $((4 * MIB))
    wait_until 5 free_is $((1020 * MIB))
    cmp "$W/allocations/a" "$T/a"
    commit_5
    cmp "$W/allocations/a" "$T/a"
    assert_eq "$(stat -c '%s %b' "$W/allocations/a")" "3000001 $((4 * MIB / 512))"
}

@test "bytes written after a close by another process are there" {
    start_weights
    exec 5<>"$W/lock"
    {
        head -c 2097152 /dev/zero
        sh -c 'echo second'
        dd if=/dev/zero bs=1M count=3 status=none
        sh -c 'echo third'
    } >"$W/allocations/a"
    { head -c 2097152 /dev/zero && echo second && head -c 3145728 /dev/zero && echo third; } >"$T/a"
    cmp "$W/allocations/a" "$T/a"
    commit_5
    cmp "$W/allocations/a" "$T/a"
    wait_until 5 free_is $((1024 * MIB - 6 * MIB))
}

@test "a spool is read while it becomes GPU memory" {
    local i file pid
    start_weights
    head -c 3000001 /dev/urandom >"$T/a"
    exec 5<>"$W/lock"
    for i in {1..10}; do
        file=$W/allocations/f$i
        : >"$file"
        cp "$T/a" "$file" &
        pid=$!
        while process_lives "$pid"; do
            cmp -n "$(stat -c %s "$file")" "$file" "$T/a"
        done
        wait "$pid"
        cmp "$file" "$T/a"
        rm "$file"
    done
    exec 5>&-
}

@test "the keeper has the GPU memory of a former spool, also where it could not be told at first" {
    local i
    for i in {3..8}; do # the messages to keeper and copier after that of the spool
        GMSFS_FAULT=sendmsg:after=$i:errno=EMFILE:in=worker start_weights size=8M
        exec 5<>"$W/lock"
        cp /etc/passwd "$W/allocations/a"
        commit_5
        cmp /etc/passwd "$W/allocations/a"
        run ! grep memfd:gmsfs <(readlink "/proc/$KEEPER"/fd/*)
        readlink "/proc/$KEEPER"/fd/* | grep -q "$GMSFS_FAKE_CUDA/gpu0/"
        stop_mount
    done
}

# bats test_tags=slow
@test "close fails where a GPU that others filled has no room for the written bytes" {
    start_weights
    exec 5<>"$W/lock"
    fake_gpus 'others 1023'
    run_logged ! cp /etc/passwd "$W/allocations/a"
    assert_match "$output" 'Cannot allocate memory'
    run_logged ! bash -c 'echo 1 >"$1"' _ "$W/commit"
    assert_match "$output" 'Cannot allocate memory'
    fake_gpus
    commit_5
    cmp "$W/allocations/a" /etc/passwd
}

@test "a spool has a bound, and the log tells the way out" {
    start_weights spool_max=1M
    exec 5<>"$W/lock"
    run_logged ! dd if=/dev/zero of="$W/allocations/a" bs=64k count=17 status=none
    assert_match "$output" 'File too large'
    grep -q 'bounded by spool_max= .* give it its size first (truncate -s SIZE FILE)' "$LOG"
    rm "$W/allocations/a"
    truncate -s 3M "$W/allocations/a"
    dd if=/dev/zero of="$W/allocations/a" bs=64k count=48 conv=notrunc status=none
    exec 5>&-
}

@test "a writer sees at once bytes that were written between two of its reads" {
    start_weights
    exec 5<>"$W/lock"
    truncate -s 8M "$W/allocations/a"
    exec 6<"$W/allocations/a"
    head -c $((3 * MIB)) <&6 >/dev/null
    printf changed | dd of="$W/allocations/a" bs=1 seek=$((3 * MIB)) conv=notrunc status=none
    assert_eq "$(head -c 7 <&6)" changed
    exec 6<&- 5>&-
}

# ---- the copier ------------------------------------------------------------------------------

# bats test_tags=slow
@test "the copier comes when bytes are moved, can be told in ps, and leaves with its context" {
    start_weights copier_idle=0.5
    exec 5<>"$W/lock"
    truncate -s 1M "$W/allocations/a"
    rm "$W/allocations/a"
    exec 5>&-
    run ! copier
    publish a 1000
    wait_until 10 no_copier
    assert_eq "$(contexts)" ''
    cat "$W/allocations/a" >/dev/null
    wait_until 10 no_copier
    assert_eq "$(contexts)" ''
    assert_eq "$(find "$GMSFS_FAKE_CUDA" -name 'leaked.*')" ''
}

# bats test_tags=slow
@test "the copier has its own descriptors and no others, and catches no signals" {
    local pid
    start_weights
    publish a 1000
    pid=$(copier)
    assert_eq "$(tr '\0' ' ' <"/proc/$pid/cmdline")" 'gmsfs copier 0000:17:00.0 '
    assert_match "$(readlink "/proc/$pid/fd/3")" '^socket:'
    assert_match "$(readlink "/proc/$pid/fd/4")" 'gmsfs-ring'
    run ! grep -e /dev/fuse -e eventpoll -e pidfd -e eventfd <(readlink "/proc/$pid"/fd/*)
    assert_eq "$(readlink "/proc/$pid"/fd/* | grep -c '^socket:')" 1 sockets
    assert_eq "$(awk '$1 == "SigBlk:" { print $2 }' "/proc/$pid/status")" 0000000000000000
}

# bats test_tags=slow
@test "the copier leaves with its mount, and with a worker that is killed" {
    local pid
    start_weights
    publish a 1000
    pid=$(copier)
    stop_mount
    wait_until_any 10 process_gone "$pid"
    start_weights
    publish a 1000
    pid=$(copier)
    kill_last_worker
    wait_until_any 10 process_gone "$pid"
    wait_until_any 10 process_gone "$KEEPER"
}

@test "a killed copier is replaced, and no reader or writer notices" {
    local i pid
    start_weights
    publish a 20000003
    fake_gpus 'slow cuMemcpyDtoHAsync_v2 3'
    for ((i = 0; i < 5; i++)); do
        spawn cmp "$W/allocations/a" "$T/a"
        pid=$SPAWNED
        wait_until 10 copier
        kill -KILL "$(copier)"
        wait_exit -0 "$pid" 60
    done
    fake_gpus
    cmp "$W/allocations/a" "$T/a"
}

@test "a driver that fails for good is EIO, with the cause; later requests work" {
    start_weights
    publish a 1000
    fake_gpus 'fail cuMemcpyDtoHAsync_v2 999'
    run_logged ! cat "$W/allocations/a"
    assert_match "$output" 'Input/output error'
    grep -q 'cannot read 1000 bytes at 0 of an allocation: cuMemcpyDtoHAsync_v2: CUDA_ERROR_UNKNOWN' \
        "$LOG"
    fake_gpus
    cmp "$W/allocations/a" "$T/a"
}

@test "an error that a new context repairs is not seen by readers" {
    local pid
    start_weights
    publish a 1000
    kill -KILL "$(copier)"
    fake_gpus 'fail cuMemcpyDtoHAsync_v2 700 2' # from the second call of each process on
    cmp "$W/allocations/a" "$T/a"
    pid=$(copier)
    cmp "$W/allocations/a" "$T/a"
    [[ $(copier) != "$pid" ]]
}

@test "unreadable bytes harm no reader of others" {
    local i pid pids=()
    start_weights
    publish a $((6 * MIB))
    exec 5<>"$W/lock"
    truncate -s 4M "$W/allocations/bad"
    commit_5
    fake_gpus 'poison 4'
    # shellcheck disable=SC2016
    spawn bash -c 'until [[ -e $2/enough ]]; do cat "$1" && exit 1; done; true' _ \
        "$W/allocations/bad" "$T"
    pid=$SPAWNED
    for i in {1..4}; do
        spawn bash -c 'for i in {1..10}; do cmp "$1" "$2" || exit 1; done' _ "$W/allocations/a" "$T/a"
        pids+=("$SPAWNED")
    done
    for i in "${pids[@]}"; do
        wait_exit -0 "$i" 60
    done
    touch "$T/enough"
    wait_exit -0 "$pid" 30
    assert_match "$(output_of "$pid")" 'Input/output error'
}

# bats test_tags=slow
@test "no memory for a context is ENOMEM, a device that is gone ENODEV, with the way out" {
    start_weights copier_idle=0
    publish a 1000
    wait_until 10 no_copier
    fake_gpus 'fail cuDevicePrimaryCtxRetain 2'
    run_logged ! cat "$W/allocations/a"
    assert_match "$output" 'Cannot allocate memory'
    grep -q 'device cuda (0000:17:00.0): .*CUDA_ERROR_OUT_OF_MEMORY.*half a gigabyte of the GPU' "$LOG"
    wait_until 10 no_copier
    fake_gpus 'fail cuDevicePrimaryCtxRetain 46'
    run_logged ! cat "$W/allocations/a"
    assert_match "$output" 'No such device'
    fake_gpus
    cmp "$W/allocations/a" "$T/a"
}

# ---- others ----------------------------------------------------------------------------------

@test "more files than the copier maps at a time are read, one after the other" {
    local i
    start_weights size=512M
    exec 5<>"$W/lock"
    for ((i = 0; i < 80; i++)); do
        echo "file $i" >"$W/allocations/f$i"
    done
    commit_5
    for i in {0..79} {0..79}; do
        assert_eq "$(cat "$W/allocations/f$i")" "file $i"
    done
}

# bats test_tags=slow
@test "a request that hangs holds up no reader, and is ended" {
    local pid
    export GMSFS_COPIER_HANG_MS=$((3000 * SLOW))
    start_weights
    publish a 1000
    fake_gpus 'slow cuMemcpyDtoHAsync_v2 600000'
    spawn cat "$W/allocations/a"
    pid=$SPAWNED
    wait_until 5 transfers_run
    assert_state weights RO
    stat "$W/allocations/a" "$W/info" >/dev/null
    mkdir "$M/other"
    ctl open "$M/other/ctl" rw acquire rw 0 alloc 4096 1 x '' commit
    run ! said "$pid" .
    wait_exit "$pid" 30
    [[ $status -ne 0 ]]
    assert_match "$(output_of "$pid")" 'Input/output error'
    grep -q 'the copier (process [0-9]*) did not answer for [0-9]* s and is killed' "$LOG"
    fake_gpus
    cmp "$W/allocations/a" "$T/a"
}

transfers_run() {
    grep -qx 'gmsfs_transfers_in_flight 1' "$M/metrics"
}

@test "rm gives memory back that the copier has mapped" {
    start_weights
    publish a $((8 * MIB))
    cat "$W/allocations/a" >/dev/null
    pid=$(copier)
    exec 5<>"$W/lock"
    rm "$W/allocations/a"
    truncate -s 4M "$W/allocations/b"
    printf x | dd of="$W/allocations/b" conv=notrunc status=none
    commit_5
    wait_until 5 used_is $((4 * MIB))
    wait_until 5 free_is $((1020 * MIB))
    assert_eq "$(copier)" "$pid"
}

# bats test_tags=slow
@test "memory is given back although the copier does not answer any more" {
    export GMSFS_COPIER_HANG_MS=$((2000 * SLOW))
    start_weights
    publish a $((8 * MIB))
    cat "$W/allocations/a" >/dev/null
    fake_gpus 'slow cuMemUnmap 600000'
    rmdir "$W"
    wait_until 20 used_is 0
    wait_until 5 free_is $((1024 * MIB))
}

# bats test_tags=slow
@test "an ordinary user's mount moves bytes, too" {
    requires user-fuse
    chmod 777 "$GMSFS_FAKE_CUDA"
    mkdir "$T/user"
    chown "$TEST_UID" "$T/user"
    as_user "$GMSFS" mount -o size=64M "$T/user"
    as_user bash -c '
        exec 5<>"$1/weights/lock"
        cp /etc/passwd "$1/weights/allocations/a"
        echo 1 >"$1/weights/commit"
        cmp /etc/passwd "$1/weights/allocations/a"' _ "$T/user"
    as_user "$GMSFS" umount "$T/user"
}
