#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Random clients, killed at random: what is left is what a model says, and nothing leaks.
# GMSFS_TEST_SEED repeats a run as far as the scheduler lets it.

load helpers

nobody_holds_or_waits() {
    [[ -z $(cat "$M/weights/sessions") ]]
}

fds_of() { # PID
    find "/proc/$1/fd" -mindepth 1 | wc -l
}

memory_of() { # PID
    find "/proc/$1/fd" -lname '*memfd:*' | wc -l
}

# base_fds PID: without those of memory that is committed.
base_fds() {
    echo $(($(fds_of "$1") - $(memory_of "$1")))
}

back_to() { # PID FDS MEMORY MOST_MEMORY
    local memory
    memory=$(memory_of "$1")
    [[ $(base_fds "$1") -le $2 && $memory -ge $3 && $memory -le $4 ]]
}

random_run() { # CLIENTS ROUNDS MS
    local seed=${GMSFS_TEST_SEED:-$((RANDOM << 15 | RANDOM))} worker allocations fds
    start_mount granularity=64K,writer_patience=0.05
    worker=$(worker_of "$KEEPER")
    # Helper threads and what they open come with the first use.
    run_logged -0 timeout 20 "$BUILD/tests/tools/random_ops" "$M" 1 2 1 500
    fds="$(base_fds "$KEEPER") $(base_fds "$worker")"
    echo "seed $seed"
    run_logged -0 timeout $((75 * SLOW)) "$BUILD/tests/tools/random_ops" "$M" "$seed" "$@"
    allocations=$(jq .allocations "$M/weights/info")
    wait_until 5 back_to "$KEEPER" "${fds% *}" "$allocations" "$allocations"
    # The worker has a second descriptor, for readers, of what was handed out.
    wait_until 5 back_to "$worker" "${fds#* }" "$allocations" $((2 * allocations))
    [[ $(cat "$M/weights/state") == EMPTY ]] || {
        requires xxhsum
        output=$(xxhsum -q -H2 "$M/weights/layout")
        assert_eq "${output%% *}" "$(cat "$M/weights/layout_hash")" hash
    }
    wait_until 5 nobody_holds_or_waits
}

@test "few clients, many short rounds" {
    random_run 3 10 700
}

@test "many clients, few long rounds" {
    random_run 12 3 4000
}

fail_one_client_of() { # DRIVER
    local clients=()
    read -ra clients <"/proc/$1/task/$1/children" || true
    [[ ${#clients[@]} -eq 0 ]] || kill -TERM "${clients[0]}" || true
    process_gone "$1"
}

no_client_is_left() {
    ! pgrep -f "random_ops $M " >/dev/null
}

@test "a client that fails ends the run at once, and all others with it" {
    start_mount granularity=64K,writer_patience=0.05
    spawn "$BUILD/tests/tools/random_ops" "$M" 1 4 1 600000
    wait_until 20 fail_one_client_of "$SPAWNED"
    wait_exit "$SPAWNED"
    assert_eq "$status" 1 'exit status'
    assert_match "$(output_of "$SPAWNED")" 'client [0-9]+ ended with status 0xf'
    wait_until 5 no_client_is_left
}
