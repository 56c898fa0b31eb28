#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# A part of `make crash-test`: the worker is killed at random moments, and at certain steps of a client's
# requests, the copier at some of its own steps; clients notice no more than a pause. Sanitized builds are slow:
# they are killed at fewer steps.
#
# bats file_tags=slow

load helpers
load python
load triton

KILLS=$BUILD/tests/fault/kills
GMSCTL=$BUILD/tests/tools/gmsctl

prepare() {
    requires fuse
    SEED=$((RANDOM << 15 | RANDOM))
}

teardown() {
    rm -f "$BUILD/soak"/*"-$SEED"[.-]* /dev/shm/"gmsfs-test-${T##*/}"
    common_teardown
}

random_kills() { # KILLS [OPTION...]
    local kills=$(($1 / (SLOW > 1 ? 2 : 1)))
    O=$BUILD run_logged -0 timeout $((80 * HANG)) "$ROOT/tests/soak" --seed "$SEED" --worker-kills "$kills" "${@:2}"
    assert_match "$output" "$kills workers killed; [^;]*, 0 losses"
    assert_eq "${lines[-1]}" "soak: ok, seed $SEED" 'last line'
}

# bats test_tags=quick
@test "random clients on several mounts notice nothing of workers that are killed" { random_kills 15 --stores 4 --mounts 2 --clients 6; }
@test "the same with a snapshot after every few records" { GMSFS_SNAPSHOT_BYTES=20000 random_kills 15 --stores 3 --clients 6; }
# bats test_tags=quick
@test "the same on a GPU" { random_kills 12 --stores 3 --clients 6 --gpu fake; }

# kill_all run|copiers MOUNT_OPTIONS EVERY AGAIN [GROUP[/NAME]...]
kill_all() {
    "$KILLS" new "$T/control"
    GMSFS_KILL_CONTROL=$T/control start_mount "$2"
    run_logged -0 timeout $((85 * HANG)) "$KILLS" "$1" "$T/control" "$GMSCTL" "$M" "$KEEPER" \
        $(($3 * SLOW)) "${@:4}"
    assert_match "${lines[-1]}" '^[1-9][0-9]* trials, 0 wrong$'
}

# kills_at EVERY AGAIN GROUP[/NAME]...: before every so many steps; OPTIONS are the mount's.
kills_at() {
    kill_all run "size=${SIZE-8M},granularity=64K,host_size=2M${OPTIONS-}" "$@"
}

# bats test_tags=quick
@test "GMSFS_KILL_CONTROL: mistakes in it are reported" {
    GMSFS_KILL_CONTROL=/dev/null run_logged -2 "$GMSFS" --version
    assert_match "$output" 'GMSFS_KILL_CONTROL=/dev/null: is not a control file'
}

@test "a worker that is played dies before each of its steps, and the next one before some of its own" {
    run_logged -0 timeout $((80 * HANG)) "$BUILD/tests/fault/lives"
}

# trials_of NAME [PART]: of that deed, with one death and with two
trials_of() {
    LIVES_DEED=$1 PART=${2-0/1} "$BUILD/tests/fault/lives" 2>&1 | sed -n 's/^# \([0-9]*\) trials$/\1/p'
}

@test "processes that share the steps at which a worker dies make together as many trials as one that has all" {
    local i ones=0 twos=0 counts
    for i in 0 1 2; do
        mapfile -t counts < <(trials_of alloc "$i/3")
        ones=$((ones + counts[0])) twos=$((twos + counts[1]))
    done
    mapfile -t counts < <(trials_of alloc)
    ((counts[0] > 3)) || fail "only ${counts[0]} trials"
    assert_eq "$ones $twos" "${counts[*]}"
    PART=3/3 run_logged -2 "$BUILD/tests/fault/lives"
}

@test "a worker that is killed at any step of an allocation: answered once, and as if nothing had been" { kills_at 1 0 memory/alloc; }
@test "a worker that is killed at any step of a wait for the lock" { kills_at 1 0 lock/wait; }
@test "two and three workers in a row that are killed at a step of an allocation, also as they resume" { kills_at 23 17 memory/alloc; }
@test "a worker that is killed at some step of looking and of locks" { kills_at 31 0 look lock; }
# bats test_tags=quick
@test "a worker that is killed at some step of requests for memory" { kills_at 31 0 memory; }
@test "a worker that is killed at some step of appending, listing, sealing, and of waking pollers" { kills_at 31 0 writes lists seals wakes; }
# bats test_tags=quick
@test "a worker that is killed at some step of requests for entries, stores, tickets, budgets" { kills_at 29 0 entries stores tickets regions budgets; }

@test "a worker that is killed at some step of GMS clients' requests" {
    export GMSFS_TEST_SOCKETS=$T/s
    mkdir "$T/s"
    OPTIONS=,gms,gms_dir=$T/s,gms_ordinal=0,uuid=8f3c0d5e-5a57-4b0e-9c11-3d0e6a1f2b4c kills_at 37 0 gms
}

@test "a worker that is killed at some step of Triton clients' requests by another process, by HTTP and gRPC" {
    python_setup
    python_with ctypes
    export GMSFS_TEST_SHM=gmsfs-test-${T##*/}
    fake_gpus 'devices 1' 'memory 64' # the clients': the mount is of host memory
    # shellcheck disable=SC2034 # start_mount's
    BACKEND=host
    "$KILLS" new "$T/control"
    GMSFS_KILL_CONTROL=$T/control start_mount size=8M,granularity=64K
    start_triton
    python "$ROOT/tests/python/triton_kills.py" "$T/control" "$KEEPER" "$M/regions/$(id -u)" "$GMSFS_TEST_SHM" \
        $((17 * SLOW)) 0
    assert_match "${lines[-1]}" '^[1-9][0-9]* trials, 0 wrong$'
    stop_triton
}

@test "a worker that is killed at some step of an unmount: the mount ends all the same" {
    local step
    for ((step = RANDOM % 7; ; step += 7 * SLOW)); do
        "$KILLS" new "$T/control"
        GMSFS_KILL_CONTROL=$T/control start_mount size=8M,granularity=64K
        "$KILLS" arm "$T/control" "$step"
        run_logged -0 timeout $((20 * HANG)) "$GMSFS" umount "$M"
        not_mounted "$M"
        expect_death
        wait_exit -0 "$KEEPER"
        "$KILLS" fired "$T/control" || break
    done
    [[ $step -ge 7 ]] || fail "the unmount has $step steps only"
}

# bats test_tags=quick
@test "a worker that is killed at some step of a move" { kills_at 37 0 places spares; }

# bats test_tags=quick
@test "a worker that is killed at some step of a move to the disk" {
    mkdir "$T/spill"
    OPTIONS=,spill=$T/spill,spill_size=2M kills_at 41 0 spills
}

# bats test_tags=quick
@test "a worker that is killed at some step of an eviction" { SIZE=1M OPTIONS=,min_stay=0 kills_at 29 0 evictions; }

# copiers_at EVERY AGAIN [GROUP/NAME]...: the same of the copier.
copiers_at() {
    fake_gpus
    mkdir "$T/spill"
    kill_all copiers "size=64M,host_size=32M,spill=$T/spill,spill_size=32M" "$@"
}

# bats test_tags=quick
@test "a copier killed at some step of a promotion, a demotion, to the disk and back is not noticed" { copiers_at 11 0 copies/demotion copies/promotion copies/to-disk copies/from-disk; }
# bats test_tags=quick
@test "two copiers in a row that are killed at some step: the move is made or forgotten, and the bytes are right" { copiers_at 19 11 copies/promotion; }
