#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# `make soak`, for a few seconds: it ends well, it can be interrupted, and it reports failures and hangs
# truly.
#
# bats file_tags=slow

load helpers

soak() {
    O=$BUILD timeout $((60 * HANG)) "$ROOT/tests/soak" --seed "$SEED" "$@"
}

common_requirements() {
    requires fuse
    SEED=$((RANDOM << 15 | RANDOM))
}

# The driver of the soak that was spawned, or nothing. Its clients have the same command line.
driver() {
    local pid pids STAT
    pids=" $(pgrep -f "random_ops -s $SEED " | paste -sd ' ') "
    for pid in $pids; do
        stat_of "$pid" || continue
        [[ $pids == *" ${STAT[1]} "* ]] || echo "$pid"
    done
}

clients() {
    pgrep -P "$(driver)"
}

# The driver kills its clients too, within milliseconds, so it is stopped meanwhile.
clients_fail() {
    local driver clients
    driver=$(driver)
    kill -STOP "$driver"
    mapfile -t clients < <(clients)
    kill -TERM "${clients[@]}"
    kill -CONT "${clients[@]}" "$driver"
    process_gone "$SPAWNED"
}

driver_works() {
    [[ -n $(clients) ]]
}

forget_files() {
    rm -f "$BUILD/soak"/*"-$SEED"[.-]*
}

teardown() {
    forget_files
    common_teardown
}

@test "some stores on some mounts, and nothing is lost" {
    common_requirements
    run_logged -0 soak --seconds 3 --stores 5 --mounts 2 --clients 6
    assert_match "$output" '[1-9][0-9]* operations, [1-9][0-9]* kills, .* 0 losses'
    assert_eq "${lines[-1]}" "soak: ok, seed $SEED" 'last line'
}

@test "SIGINT ends it in order, with the figures so far" {
    common_requirements
    spawn soak --seconds 600 --stores 2 --clients 3
    wait_until 20 driver_works
    kill -INT "$(pgrep -f "tests/soak --seed $SEED " | tail -n 1)"
    wait_exit "$SPAWNED" 30
    assert_match "$(output_of "$SPAWNED")" ' kills, .* 0 losses.*soak: ok, seed'
    assert_eq "$status" 0 'exit status'
}

@test "a failure is reported, with the way to repeat it" {
    common_requirements
    spawn soak --seconds 600 --stores 2 --clients 3
    wait_until 20 driver_works
    wait_until 30 clients_fail
    wait_exit -1 "$SPAWNED" 30
    assert_match "$(output_of "$SPAWNED")" 'ended with status 0xf'
    assert_match "$(output_of "$SPAWNED")" "make soak SEED=$SEED SECONDS=600 STORES=2 "
}

@test "a hang is written down before the end" {
    common_requirements
    touch "$T/gate" # transfers wait as long as it is there
    export GMSFS_GATE=$T/gate
    run_logged -1 soak --seconds 600 --stores 2 --clients 3 --stall 1
    assert_match "$output" "$BUILD/soak/stall-$SEED.txt"
    dump=$(cat "$BUILD/soak/stall-$SEED.txt")
    for word in client keeper worker wchan stack syscall sessions info metrics; do
        assert_match "$dump" "$word"
    done
    assert_match "$dump" 'weights1/sessions'
    assert_match "$dump" 'fuse'
}
