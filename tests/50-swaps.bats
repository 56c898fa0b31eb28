#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Takeovers and upgrades, forth and back between two builds, while clients of every kind are at work: locks, sessions
# and mappings are right after each as they were right before.
#
# shellcheck disable=SC2004,SC2030,SC2031,SC2034,SC2153,SC2154 # variables that the helpers and bats read and set
# bats file_tags=slow

load helpers
load python
load gms

SHARER=$BUILD/tests/tools/sharer

prepare() { gms_setup; }

# With the hooks for tests; with a larger ABI (Makefile), for which there is a client, too; as it is installed.
BUILDS=("$GMSFS" "$BUILD/test/gmsfs-larger" "$BUILD/gmsfs")
LATER=(0 77 0) # fields of INFO that only the larger one knows

install_build() { # NUMBER
    cp "${BUILDS[$1]}" "$T/gmsfs.new"
    mv "$T/gmsfs.new" "$T/gmsfs" # the former may be running
}

# Its program is the test's own, $T/gmsfs.
start() {
    install_build 0
    GMSFS=$T/gmsfs start_gms_mount
    mkdir "$M/mapped"
    run_logged -0 timeout $((30 * HANG)) "$SHARER" load "$M/mapped" 20 70000
}

# A GMS reader of each protocol, both with mapped memory, and one of libgmsfs; READERS are theirs.
start_readers() {
    local protocol
    READERS=()
    gms v0 weights lock rw - allocate 65536 - allocate 131072 - fill 7 commit
    for protocol in v0 v1; do
        in_background "$protocol" weights lock ro - check 7 say held until "$T/go" check 7
        READERS+=("$CLIENT")
    done
    for CLIENT in "${READERS[@]}"; do
        wait_until 10 said "$CLIENT" held
    done
    spawn "$SHARER" stay "$M/mapped"
    wait_until 10 said "$SPAWNED" mapped
    READERS+=("$SPAWNED")
    SESSIONS=$(sessions)
}

# A GMS writer that asks without a pause, until $T/done is there.
start_writer() {
    python_preload
    spawn "${PRELOAD[@]}" "$PYTHON" "$ROOT/tests/python/gms_resume.py" churn "$(v0_socket kv_cache)" "$T/done"
    WRITER=$SPAWNED
    wait_until 10 state_is kv_cache RW
}

sessions() {
    awk '$3 == "held" { print $1, $2, $4 }' "$M/weights/sessions"
}

is_as_before() { # NUMBER of the build that serves
    assert_eq "$(cat "$M/weights/state") $(cat "$M/mapped/state")" 'RO COMMITTED' 'states' # the staying client closed its files
    assert_eq "$(sessions)" "$SESSIONS" 'sessions of the readers'
    assert_eq "$(cat "$M/kv_cache/state")" RW "the writer's store"
    gms v0 weights lock ro - check 7
    run_logged -0 timeout $((30 * HANG)) "$GMSCTL" open "$M/weights/ctl" r info
    assert_match "$output" 'state=RO .* group=0{32}$'
    run_logged -0 timeout $((30 * HANG)) "$GMSCTL-larger" open "$M/weights/ctl" r info
    assert_match "$output" "state=RO .* later=${LATER[$1]}\$"
    run_logged -0 timeout $((30 * HANG)) "$SHARER" attach "$M/mapped" 20
}

# The ledger's own description, at its beginning.
slots_of_ledger() {
    local fd
    for fd in "/proc/$KEEPER/fd/"*; do
        [[ $(readlink "$fd") != */memfd:journal-ledger* ]] || od -An -N4 -tu4 "$fd" | tr -d ' '
    done
}

# An upgrade or a takeover in turn, and every second time by another build, while the writer writes.
swap_builds() {
    local swaps number
    for ((swaps = 0; swaps < 6; swaps++)); do
        process_gone "$WRITER" && fail "the writer ended: $(output_of "$WRITER")"
        number=$(((swaps / 2 + 1) % 3))
        install_build "$number"
        if [[ $((swaps % 2)) -eq 0 ]]; then cli upgrade "$M"; else take_over "$T/gmsfs"; fi
        is_as_before "$number"
        [[ $swaps -ne 0 ]] || assert_eq "$(slots_of_ledger)" 16384 'slots, of which a larger worker uses those that are there'
        [[ $swaps -lt 1 ]] || assert_eq "$(slots_of_ledger)" 32768 'slots, by the larger keeper, and of any after it'
    done
    touch "$T/done"
    wait_exit -0 "$WRITER"
}

readers_are_well() {
    local reader
    touch "$T/go"
    for reader in "${READERS[@]:0:2}"; do
        wait_exit -0 "$reader"
    done
    kill "${READERS[2]}"
}

@test "GMS clients and mapped readers notice nothing of takeovers and upgrades between two builds" {
    start
    start_readers
    start_writer
    swap_builds
    readers_are_well
    wait_until 5 state_is kv_cache COMMITTED
}

@test "the same on a GPU" {
    fake_gpus 'memory 256'
    export GMSFS_TEST_DEVICE=cuda
    start
    start_readers
    start_writer
    swap_builds
    readers_are_well
    wait_until 5 state_is kv_cache COMMITTED
}
