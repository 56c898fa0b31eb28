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

# The driver of the soak that was spawned, or nothing.
driver() {
    pgrep -f "random_ops -s $SEED "
}

# One of its clients, or nothing. Their numbers say nothing, for numbers wrap.
client() {
    pgrep -P "$(driver | paste -sd,)" | head -n 1
}

# The driver kills its clients too, and may have been quicker.
a_client_fails() {
    kill -TERM "$(client)"
    process_gone "$SPAWNED"
}

driver_works() {
    [[ -n $(client) ]]
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
    wait_until 30 a_client_fails
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
