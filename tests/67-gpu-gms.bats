#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# GMS clients of GPU memory: they find its sockets, and receive memory that the driver imports, maps and
# shares. On the fake driver; with GMSFS_GPU=real on device 0 of this machine, as `make gpu-check` does.
# 66-gms tests the messages over the sockets, for any memory.
#
# bats file_tags=slow

# shellcheck disable=SC2154 # output and lines are set by bats' run

load helpers
load python
load gms

prepare() {
    gms_setup
    python_with msgpack
    python_preload
    export GMSFS_TEST_DEVICE=cuda
    if [[ ${GMSFS_GPU-} == real ]]; then
        requires nvidia-smi
        # shellcheck disable=SC2034 # start_mount's
        BACKEND=cuda
        SIZE=1T                # all that it has
        SPARE=$((4 << 30))     # left free by the test that fills it
        LARGE=$((1 << 30))     # more than the noise of other programs
        OTHERS=$((768 << 20))  # by how much that may change meanwhile: a context is 549 MiB of it on an H200
    else
        fake_gpus 'memory 256'
        SIZE=256M SPARE=$((32 << 20)) LARGE=$((64 << 20)) OTHERS=0
    fi
}

start_gpu() { # [OPTIONS]
    start_gms_mount "size=$SIZE${1:+,$1}"
}

gpu_says() { # FACT NUMBER: the driver's and NVML's own answer, in $output
    run_logged -0 timeout $((30 * HANG)) "${PRELOAD[@]}" "$PYTHON" "$ROOT/tests/python/gms_cuda.py" "$@"
}

# Of all processes, by NVML.
nvml_used_at_most() { # BYTES
    gpu_says nvml-used 0
    ((output <= $1 + OTHERS))
}

kill_holder() {
    kill -KILL "$HOLDER"
    wait_exit "$HOLDER"
}

# ---- how they find it ------------------------------------------------------------------------

@test "the sockets have NVML's UUID of the GPU, and the number 0" {
    start_mount "gms,gms_dir=$SOCKETS,size=$SIZE"
    gpu_says nvml-uuid 0
    uuid=$output
    assert_match "$uuid" '^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
    for store in weights kv_cache; do
        wait_until 10 test -S "$SOCKETS/gms_${uuid}_$store.sock"
        wait_until 10 test -S "$SOCKETS/gms_0_$store.sock"
    done
    assert_eq "$(find "$SOCKETS" -type s | wc -l)" 4 sockets
}

@test "V1 names the GPU as the driver does, on both sockets" {
    start_gpu
    gpu_says uuid 0
    uuid=$output
    for store in weights kv_cache; do
        gms v1 "$store" identity
        assert_match "$output" "^identity [0-9a-f-]{36} $uuid$"
    done
}

@test "mounts of two GPUs share a directory, and each socket leads to its GPU" {
    requires fake-gpu
    fake_gpus 'devices 2' 'memory 256'
    start_mount "gms,gms_dir=$SOCKETS,device=0,gms_ordinal=0"
    start_mount "gms,gms_dir=$SOCKETS,device=1,gms_ordinal=1"
    gpu_says nvml-uuid 1
    uuid=$output
    wait_until 10 test -S "$SOCKETS/gms_${uuid}_weights.sock"
    wait_until 10 test -S "$SOCKETS/gms_1_weights.sock"
    assert_eq "$(find "$SOCKETS" -type s | wc -l)" 8 sockets
    tool=("${PRELOAD[@]}" "$PYTHON" "$ROOT/tests/python/gms.py")
    run_logged -0 timeout $((30 * HANG)) "${tool[@]}" v1 "$SOCKETS/gms_1_weights.sock" identity
    assert_match "$output" " $uuid$"
    run_logged -0 timeout $((30 * HANG)) "${tool[@]}" v0 "$SOCKETS/gms_${uuid}_weights.sock" \
        lock rw - allocate $((6 << 20)) - commit
    used_is $((6 << 20)) # of the second mount
    gpu_says nvml-used 1
    assert_eq "$output" $((6 << 20))
    gpu_says nvml-used 0
    assert_eq "$output" 0
}

# ---- bytes -----------------------------------------------------------------------------------

@test "V0: sizes are rounded up to the driver's granularity, which clients compute themselves" {
    start_gpu
    gpu_says granularity 0
    piece=$output
    gms v0 weights lock rw - allocate 1 - allocate "$piece" - allocate $((piece + 1)) - export last
    assert_match "$output" "allocation [^ ]* 1 $piece 0"
    assert_match "$output" "allocation [^ ]* $piece $piece 1"
    assert_match "$output" "allocation [^ ]* $((piece + 1)) $((2 * piece)) 2"
    assert_match "$output" "exported $((2 * piece))"
}

# bats test_tags=quick
@test "V0: readers map a writer's content at the same time and find it, byte for byte" {
    start_gpu
    gms v0 weights lock rw - allocate 3000000 one allocate $((8 << 20)) two fill 11 commit
    assert_state weights COMMITTED
    hold_gms v0 weights lock ro - check 11
    first=$HOLDER
    hold_gms v0 weights lock ro - check 11
    kill -KILL "$first"
    gms v0 weights lock ro - check 11
    kill_holder
    assert_state weights COMMITTED
    used_is $((12 << 20))
    gms v0 weights lock ro - check 11
}

@test "V1: a writer that stays on as a reader shares its mapping, and its death takes nothing" {
    start_gpu
    hold_gms v1 weights lock rw - allocate one $((4 << 20)) allocate two $((8 << 20)) fill 21 commit
    gms v1 weights lock ro - check 21
    kill_holder
    assert_state weights COMMITTED
    gms v1 weights lock ro - check 21
}

# bats test_tags=quick
@test "V1 reads content written by V0, and the other way" {
    start_gpu
    gms v0 weights lock rw - allocate 3000000 - allocate $((8 << 20)) - fill 31 commit
    gms v1 weights lock ro - check 31
    gms v1 weights lock rw - allocate one $((4 << 20)) allocate two $((2 << 20)) fill 32 commit
    gms v0 weights lock ro - check 32
}

@test "a check finds a byte that another writer changed" {
    start_gpu
    gms v0 weights lock rw - allocate $((4 << 20)) - allocate $((4 << 20)) - fill 41 \
        export last write 3145743 X commit
    gms_expect 'differs in 1' v0 weights lock ro - check 41
}

@test "a file shows the bytes that a client wrote on the GPU, and a client those of a shell" {
    start_gpu
    gms v0 weights lock rw - allocate 3000000 label export last write 2999990 'the end' commit
    assert_state weights COMMITTED
    assert_eq "$(tail -c 10 "$M/weights/allocations/a000000" | head -c 7)" 'the end'
    exec 5<>"$M/weights/lock"
    printf hello >"$M/weights/allocations/shell"
    commit_5
    for version in v0 v1; do
        gms "$version" weights lock ro - list export last read 0 5
        assert_eq "${lines[-1]}" hello
    done
}

# ---- memory that comes back ------------------------------------------------------------------

@test "a killed writer's memory comes back, though it had exported and mapped all of it" {
    start_gpu
    gpu_says nvml-used 0
    before=$output
    for writer in "v0 weights lock rw - allocate $LARGE -" "v1 weights lock rw - allocate id $LARGE"; do
        # shellcheck disable=SC2086 # words
        hold_gms $writer fill 51
        used_is "$LARGE"
        gpu_says nvml-used 0
        ((output >= LARGE))
        kill_holder
        assert_state weights EMPTY
        wait_until 10 used_is 0
        wait_until 60 nvml_used_at_most "$before"
    done
}

@test "V1: memory is free when abort is answered" {
    start_gpu
    gpu_says nvml-used 0
    before=$output
    hold_gms v1 kv_cache lock rw - allocate id "$LARGE" fill 61 unmap abort
    used_is 0
    nvml_used_at_most "$before"
}

@test "an allocation that does not fit waits until another store's writer is gone" {
    start_gpu alloc_timeout=60
    full=$((($(device_get .free_bytes) - SPARE) / (2 << 20) * (2 << 20)))
    gms v0 weights lock rw - allocate "$full" - commit
    gms_command v0 kv_cache lock rw - allocate $((2 * SPARE)) - export last write 0 here commit
    spawn "${COMMAND[@]}"
    wait_until 20 grep -q '^gmsfs_allocs_waiting 1' "$M/metrics"
    gms v0 weights lock rw -
    wait_exit -0 "$SPAWNED" 60
    gms v0 kv_cache lock ro - list export last read 0 4
    assert_eq "${lines[-1]}" here
    gms v0 kv_cache events
    assert_match "$output" 'event allocation_oom 0'
}

# ---- exports ---------------------------------------------------------------------------------

@test "an export asks nothing of the driver: the first export is duplicated" {
    requires fake-gpu
    start_gpu
    gms v0 weights lock rw - allocate $((4 << 20)) - allocate $((4 << 20)) - fill 71 commit
    fake_gpus 'memory 256' 'fail cuMemExportToShareableHandle 1'
    gms v0 weights lock ro - check 71 check 71
    gms v1 weights lock ro - check 71
    gms_command v0 kv_cache lock rw - allocate 4096 -
    run_logged -1 timeout $((30 * HANG)) "${COMMAND[@]}" # so the driver did fail
}

@test "exports leave no descriptor with the daemon" {
    start_gpu
    exports=()
    for ((i = 0; i < 100; i++)); do
        exports+=(export last)
    done
    gms v0 weights lock rw - allocate 4096 - export last commit
    fds=$(find "/proc/$(worker_of "$KEEPER")/fd" | wc -l)
    for version in v0 v1; do
        gms "$version" weights lock ro - list "${exports[@]}"
        wait_until 5 has_at_most_descriptors "$fds"
    done
}

# COUNT may hold the socket of the client before, which the daemon closes a moment later.
has_at_most_descriptors() { # COUNT
    (($(find "/proc/$(worker_of "$KEEPER")/fd" | wc -l) <= $1))
}

# ---- caches that survive ---------------------------------------------------------------------

# bats test_tags=quick
@test "a sealed KV cache of an engine that was killed is its successor's, with every byte" {
    start_gpu
    hold_gms v0 kv_cache lock rw_data_or_rw - allocate "$LARGE" kv allocate $((4 << 20)) kv fill 81 seal
    assert_match "$(output_of "$HOLDER")" 'granted rw'$'\n'
    kill_holder
    assert_state kv_cache LAYOUT_COMMITTED
    used_is $((LARGE + (4 << 20)))
    hold_gms v0 kv_cache lock rw_data_or_rw - check 81 unmap fill 82
    assert_match "$(output_of "$HOLDER")" 'granted rw_data'$'\n'
    kill_holder
    assert_state kv_cache LAYOUT_COMMITTED
    gms v0 kv_cache lock rw_data_or_rw - check 82
    used_is $((LARGE + (4 << 20)))
    gms v0 kv_cache lock rw -
    assert_state kv_cache EMPTY
    wait_until 10 used_is 0
}

@test "a sealed KV cache goes to no other engine while a closed engine may still write it" {
    start_gpu
    hold_gms v0 kv_cache lock rw_data_or_rw - allocate $((4 << 20)) kv fill 91 seal close
    gms_command v0 kv_cache lock rw_data_or_rw - check 91
    spawn "${COMMAND[@]}"
    wait_until 10 grep -q ' waiting ' "$M/kv_cache/sessions"
    process_lives "$SPAWNED"
    kill_holder
    wait_exit -0 "$SPAWNED" 20
    assert_match "$(output_of "$SPAWNED")" 'granted rw_data'
}
