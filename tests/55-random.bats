#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Random clients, killed at random: the state is that of a model, and nothing leaks.
# `make soak` is the same for as long as one wants. GMSFS_TEST_SEED repeats a run as far as the scheduler lets it.
#
# bats file_tags=slow

# shellcheck disable=SC2030,SC2031 # each test has an M of its own, and lines of its own

load helpers

RANDOM_OPS=$BUILD/tests/tools/random_ops

random_run() { # CLIENTS ROUNDS MS
    local seed=${GMSFS_TEST_SEED:-$((RANDOM << 15 | RANDOM))}
    start_mount granularity=64K,writer_patience=0.05
    # Helper threads and their files come with the first use, and so does the committed layout.
    run_logged -0 timeout $((20 * HANG)) "$RANDOM_OPS" -s 1 -c 2 -m 500 -k "$KEEPER" "$M/weights"
    run_logged -0 timeout $((75 * HANG)) "$RANDOM_OPS" -s "$seed" -c "$1" -r "$2" -m "$3" \
        -k "$KEEPER" "$M/weights"
    assert_match "${lines[-1]}" ', 0 losses$'
    [[ $(cat "$M/weights/state") == EMPTY ]] || {
        requires xxhsum
        output=$(xxhsum -q -H2 "$M/weights/layout")
        assert_eq "${output%% *}" "$(cat "$M/weights/layout_hash")" hash
    }
    wait_until 5 no_sessions
}

@test "few clients, many short rounds" { random_run 3 6 700; }

places_run() { # SEED STORE...
    run_logged -0 timeout $((75 * HANG)) "$RANDOM_OPS" -s "$1" -c 4 -r 4 -m 1000 -k "$KEEPER" "${@:2}"
    assert_match "${lines[-1]}" ', [1-9][0-9]* moves, [1-9][0-9]* wakes behind one, [1-9][0-9]* given up, 0 losses$'
}

# Two stores and more, and less room beside the device than they may want.
random_places() { # OPTIONS [STORE...]
    mkdir "$T/spill"
    start_mount "granularity=64K,writer_patience=0.05,$1,spill=$T/spill,spill_size=1M"
    mkdir "${@:2}" "$M/other"
    places_run "${GMSFS_TEST_SEED:-$((RANDOM << 15 | RANDOM))}" "$M/weights" "$M/other" "${@:2}"
    wait_until 5 no_sessions
}

# bats test_tags=quick
@test "stores that come and go between their places keep their bytes, and sleepers over it wake with them" { random_places host_size=1M; }
@test "the same where no copy is kept on the way to the device" { random_places host_size=1M,keep_copy=no; }

evicts() { (($(sed -n 's/^gmsfs_evictions_total{.*} //p' "$M/metrics" | paste -sd +) > 0)); }

# On a busy machine one run may end before a store that is not in use is old enough to be evicted.
# bats test_tags=quick
@test "the same on a device that has not enough for all, which they leave for each other" {
    local more
    random_places size=1536K,host_size=1M,min_stay=0.01,alloc_timeout=0.3 "$T/m0/third"
    for ((more = 0; more < 9; more++)); do
        evicts || places_run "$more" "$M/weights" "$M/other" "$M/third"
    done
    evicts
}

@test "many clients, few long rounds" { random_run 12 2 3000; }

fail_one_client_of() { # DRIVER
    local clients=()
    read -ra clients <"/proc/$1/task/$1/children" || true
    [[ ${#clients[@]} -eq 0 ]] || kill -TERM "${clients[0]}" || true
    process_gone "$1"
}

no_client_is_left() {
    ! pgrep -f "random_ops .* $M/weights" >/dev/null
}

@test "a client that fails ends the run at once, and all others with it" {
    start_mount granularity=64K,writer_patience=0.05
    spawn "$RANDOM_OPS" -m 600000 "$M/weights"
    wait_until 20 fail_one_client_of "$SPAWNED"
    wait_exit -1 "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" 'client [0-9]+ ended with status 0xf'
    wait_until 5 no_client_is_left
}

# A commit of other bytes than the model knows, if there is something committed just now.
meddle() { # DRIVER
    ctl_quietly open "$M/weights/lock" rw open "$M/weights/allocations/c0" rw pwrite 0 meddled \
        use 0 commit || true
    process_gone "$1"
}

ctl_quietly() {
    timeout 10 "$BUILD/tests/tools/gmsctl" "$@" >/dev/null 2>&1
}

# Gives up the bytes of a new commit, as no client did.
give_up() { # DRIVER
    echo none >"$M/weights/residency" 2>/dev/null || true
    process_gone "$1"
}

# bats test_tags=quick
@test "bytes that are gone without being given up are seen as a loss" {
    start_mount granularity=64K,writer_patience=0.05,host_size=4M
    spawn "$RANDOM_OPS" -t 600 "$M/weights"
    wait_until 40 give_up "$SPAWNED"
    wait_exit -1 "$SPAWNED"
    # Between two rounds, at rest, by the account instead.
    assert_match "$(output_of "$SPAWNED")" '(, [1-9][0-9]* losses| in the layouts;)'
}

# bats test_tags=quick
@test "bytes that are not those of the last commit are seen as a loss" {
    start_mount granularity=64K,writer_patience=0.05
    spawn "$RANDOM_OPS" -m 600000 "$M/weights" # no rest, where no other client may be
    wait_until 40 meddle "$SPAWNED"
    wait_exit -1 "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" ', [1-9][0-9]* losses'
}
