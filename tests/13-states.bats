#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The states of a store stand in one list, GMSFS_STATE_LIST of gmsfs_abi.h; every text that names states
# names all of them. (tests/python/test_abi.py compares Python's with the header.)

load helpers

prepare() {
    mapfile -t STATES < <(sed -n 's/^ *STATE(\([A-Z_]*\), [0-9]*).*/\1/p' "$ROOT/libgmsfs/gmsfs_abi.h")
    [[ ${#STATES[@]} -ge 5 && ${STATES[0]} == EMPTY ]] || fail 'gmsfs_abi.h has no list of states'
}

@test "metrics have each state of every store, and its present state is 1" {
    start_mount
    assert_eq "$(sed -n 's/^gmsfs_store_state{store="weights",state="\(.*\)"} [01]$/\1/p' "$M/metrics")" \
        "$(printf '%s\n' "${STATES[@]}")"
    assert_eq "$(grep '^gmsfs_store_state.* 1$' "$M/metrics")" \
        'gmsfs_store_state{store="weights",state="EMPTY"} 1'
}

@test "wait knows each state, and lists them" {
    start_mount
    local state
    for state in "${STATES[@]:1}"; do
        run_logged -3 "$GMSFS" wait --timeout 0 "$M/weights" "$state"
    done
    run_logged -2 "$GMSFS" wait "$M/weights" MELTED
    assert_match "$output" "'MELTED' is no state: there are ${STATES[*]}; and, alone, resident"
    run_logged -0 "$GMSFS" wait --help
    assert_match "$output" "one of the states ${STATES[*]}\\."
}

@test "completion offers each state, and the device" {
    # shellcheck disable=SC2016 # the inner shell expands it
    run_logged -0 env PATH="${GMSFS%/*}:$PATH" bash -c '
        source "$1"
        COMP_WORDS=(gmsfs wait /m "") COMP_CWORD=3
        _gmsfs
        printf "%s\n" "${COMPREPLY[@]}"' complete "$ROOT/packaging/completion/gmsfs"
    assert_eq "$output" "$(printf '%s\n' "${STATES[@]}" resident)"
}

@test "the manual has each state" {
    local state
    for state in "${STATES[@]}"; do
        grep -qE "^\.Cm $state( |$)" "$ROOT/man/gmsfs.1" || fail "gmsfs(1), wait: no $state"
        grep -qx ".It Li $state" "$ROOT/man/gmsfs.5" || fail "gmsfs(5), STATES: no $state"
    done
}

@test "no other code has a list of states" {
    run_logged grep -rnE '\bEMPTY\b.*\bRW\b' "$ROOT"/{src,libgmsfs,packaging,python/gmsfs,tests/tools} \
        --include='*.[ch]' --include='*.py' --include=gmsfs
    assert_eq "$(grep -v '/python/gmsfs/abi.py:' <<<"$output")" ''
}
