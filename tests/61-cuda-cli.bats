#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The gmsfs command on stores in GPU memory, over the fake driver: load, verify, sum, save, image.
# Copies are done as late as the driver may (`lazy`).

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers

machine() { # LINE...
    fake_gpus 'devices 2' 'memory 256' 'lazy 1' "$@"
}

# Tensors of sizes that no buffer is made for: empty, odd, of several buffers, side by side.
make_odd() { # FILE
    requires python3 || return 1
    write_random_tensors "$1" 0 1 511 4194303 4194304 4194305 0 12345 21000001 512 1024 3 0
    MODEL=$1
}

# The leftovers allowed to every process: no context, and nothing pinned when it gave it back.
nothing_held() {
    local left
    left=$(find "$GMSFS_FAKE_CUDA" -name 'context.*' -o -name 'leaked.*')
    assert_eq "$left" '' 'contexts and leaks'
}

memory_is() { # FREE_MIB
    [[ $(device_get .free_bytes) == $(($1 << 20)) ]]
}

# The checksums by name.
sums() { # STORE
    "$GMSFS" sum -q "$1" | sort -k 2
}

@test "a sharded model is loaded, verified, summed and saved, byte for byte" {
    local host gpu hash
    machine
    make_model 24M 3
    start_mount backend=host
    host=$M
    cli load "$host/weights" "$MODEL"
    hash=$(cat "$host/weights/layout_hash")
    start_mount
    gpu=$M
    cli load "$gpu/weights" "$MODEL"
    assert_match "$output" 'committed .* [0-9]+ tensors in 1 allocations, generation 1'
    assert_eq "$(cat "$gpu/weights/layout_hash")" "$hash" 'hash on host memory and on the GPU'
    cli verify "$gpu/weights" "$MODEL"
    assert_match "$output" '^verified'
    assert_eq "$(sums "$gpu/weights")" "$(sums "$host/weights")" sums
    cli save "$gpu/weights" "$T/saved-gpu.safetensors"
    cli save "$host/weights" "$T/saved-host.safetensors"
    cmp "$T/saved-gpu.safetensors" "$T/saved-host.safetensors"
    nothing_held
}

@test "tensors of no bytes, of odd sizes and larger than the buffers arrive whole" {
    local threads
    machine
    make_odd "$T/odd.safetensors"
    start_mount
    for threads in 1 3 256; do
        cli load --threads "$threads" "$M/weights" "$MODEL"
        cli verify --threads "$threads" "$M/weights" "$MODEL"
    done
    cli load --chunk 2M --threads 2 "$M/weights" "$MODEL"
    cli verify "$M/weights" "$MODEL"
    cli save "$M/weights" "$T/saved.safetensors"
    cli load "$M/weights" "$T/saved.safetensors"
    cli verify "$M/weights" "$MODEL"
    nothing_held
}

@test "verify names differences on the GPU" {
    machine
    make_odd "$T/odd.safetensors"
    start_mount
    cli load "$M/weights" "$MODEL"
    cp "$MODEL" "$T/other.safetensors"
    # The last byte of t8, which has 21000001: those behind it have 1539.
    printf '\377\377' | dd of="$T/other.safetensors" bs=1 conv=notrunc status=none \
        seek=$(($(stat -c %s "$MODEL") - 1539 - 2))
    cli -1 verify "$M/weights" "$T/other.safetensors"
    assert_match "$output" "tensor 't8' of .*: byte (20999999|21000000) of 21000001 is the first"
    nothing_held
}

@test "an image goes from a GPU to host memory and back with the same layout" {
    local host gpu hash
    machine
    make_odd "$T/odd.safetensors"
    start_mount backend=host
    host=$M
    start_mount
    gpu=$M
    cli load "$gpu/weights" "$MODEL"
    hash=$(cat "$gpu/weights/layout_hash")
    cli image save "$gpu/weights" "$T/image"
    cli image load "$host/weights" "$T/image"
    assert_eq "$(cat "$host/weights/layout_hash")" "$hash" 'hash on host memory'
    cli verify "$host/weights" "$MODEL"
    cli image save "$host/weights" "$T/image2"
    cmp "$T/image/data-00000" "$T/image2/data-00000"
    mkdir "$gpu/other"
    cli image load "$gpu/other" "$T/image2"
    assert_eq "$(cat "$gpu/other/layout_hash")" "$hash" 'hash on the GPU again'
    cli verify "$gpu/other" "$MODEL"
    nothing_held
}

@test "an image save from a GPU is resumed, and its existing pieces are compared" {
    machine
    make_model 24M 1
    start_mount
    cli load "$M/weights" "$MODEL"
    machine 'fail cuMemcpyDtoHAsync_v2 999 4'
    cli -1 image save --threads 1 "$M/weights" "$T/image"
    assert_match "$output" 'cannot copy from the GPU: .*weights: cuMemcpyDtoHAsync_v2: CUDA_ERROR_UNKNOWN'
    machine
    cli image save --resume "$M/weights" "$T/image"
    cli image ls --check "$T/image"
    nothing_held
}

@test "the ranks of a model go to two GPUs as one group" {
    local first
    machine
    make_model 16M 1 1
    local one=$MODEL
    make_model 16M 1 2
    start_mount device=0
    first=$M
    start_mount device=1
    cli load --group "$first/weights=$one" "$M/weights=$MODEL"
    cli verify "$first/weights" "$one"
    cli verify "$M/weights" "$MODEL"
    nothing_held
}

@test "a driver that fails while loading is told with its call, and nothing is committed" {
    local call
    machine
    make_model 24M 2
    start_mount
    for call in cuMemcpyHtoDAsync_v2 cuEventRecord cuStreamCreate cuStreamSynchronize; do
        machine "fail $call 999"
        cli -1 load "$M/weights" "$MODEL"
        assert_match "$output" "gmsfs load: cannot [a-z A-Z]+: .*/weights: $call: CUDA_ERROR_UNKNOWN"
        assert_match "$output" 'nothing was committed; .* is empty'
        assert_eq "$(grep -c 'gmsfs load: ' <<<"$output")" 1 'lines of errors'
        machine
        nothing_committed weights
        wait_until 5 memory_is 256
    done
    nothing_held
}

# bats test_tags=slow
@test "a GPU or a machine out of memory is told with the way out, and the old layout stays" {
    machine
    make_model 8M 1
    start_mount
    cli load "$M/weights" "$MODEL"
    machine 'fail cuDevicePrimaryCtxRetain 2'
    cli -1 load "$M/weights" "$MODEL"
    assert_match "$output" 'cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY .*a CUDA context takes about half a gigabyte'
    assert_match "$output" 'has its earlier layout again'
    cli -1 sum "$M/weights"
    assert_match "$output" 'a CUDA context takes about half a gigabyte'
    machine 'fail cuMemHostRegister_v2 2'
    cli -1 load "$M/weights" "$MODEL"
    assert_match "$output" 'cannot pin memory for copying: .*cuMemHostRegister_v2: CUDA_ERROR_OUT_OF_MEMORY .*--threads 1'
    assert_match "$output" 'nothing was committed'
    machine
    local n
    for n in {0..9}; do
        GMSFS_FAULT=mmap:after=$n:in=command run_logged "$GMSFS" load "$M/weights" "$MODEL"
        [[ $output != *'cannot pin memory'* ]] || break
    done
    assert_match "$output" 'cannot pin memory for copying: .*: mmap: .*; the machine has too little memory .*--threads 1'
    machine 'fail cuMemMap 2'
    cli -1 verify "$M/weights" "$MODEL"
    assert_match "$output" 'cannot map the memory: .*cuMemMap: CUDA_ERROR_OUT_OF_MEMORY'
    machine
    cli verify "$M/weights" "$MODEL"
    nothing_held
}

# bats test_tags=slow
@test "a GPU that is lost, or hidden, is told with the way out" {
    machine
    make_model 8M 1
    start_mount
    cli load "$M/weights" "$MODEL"
    CUDA_VISIBLE_DEVICES=1 cli -1 verify "$M/weights" "$MODEL"
    assert_match "$output" 'cannot open the GPU: .*none of the 1 that this process sees .*CUDA_VISIBLE_DEVICES'
    machine 'fail cuMemcpyDtoHAsync_v2 46'
    cli -1 save "$M/weights" "$T/saved.safetensors"
    assert_match "$output" 'cannot copy from the GPU: .*CUDA_ERROR_DEVICE_UNAVAILABLE'
    [[ ! -e $T/saved.safetensors ]]
    assert_eq "$(find "$T" -maxdepth 1 -name '.gmsfs-save*')" '' 'left behind'
    machine
    cli verify "$M/weights" "$MODEL"
    nothing_held
    machine 'lost 0' # the daemon learns of it too, and empties the store, at once or in a moment
    cli -1 sum "$M/weights"
    assert_match "$output" "(cannot open the GPU: .*'device' in the mount tells the GPU's health|is EMPTY)"
}

# bats test_tags=slow
@test "without a driver a store on a GPU is not opened, and the message says why" {
    machine
    make_model 8M 1
    start_mount
    cli load "$M/weights" "$MODEL"
    run_logged -1 env -u LD_LIBRARY_PATH -u GMSFS_FAKE_CUDA timeout $((60 * HANG)) "$GMSFS" \
        sum "$M/weights"
    assert_match "$output" 'cannot open the GPU: '
}

@test "stopped by a signal, or killed, nothing is committed and the memory comes back" {
    local signal
    machine
    make_model 24M 2
    start_mount
    for signal in HUP TERM KILL; do
        machine 'slow cuMemcpyHtoDAsync_v2 2000'
        spawn "$GMSFS" load --threads 1 "$M/weights" "$MODEL"
        wait_until 10 has_context "$SPAWNED"
        wait_until 10 has_allocations
        kill "-$signal" "$SPAWNED"
        machine # the copies behind the first are quick
        wait_exit "$SPAWNED" 30
        ((status == 128 + $(kill -l "$signal")))
        [[ $signal == KILL ]] || assert_match "$(output_of "$SPAWNED")" 'nothing was committed'
        nothing_committed weights
        wait_until 5 memory_is 256
    done
}

# bats test_tags=slow
@test "a signal ends a load of an image that waits for memory" {
    machine
    make_model 24M 2
    start_mount
    cli load -q "$M/weights" "$MODEL"
    cli image save -q "$M/weights" "$T/image"
    machine 'fail cuMemCreate 2'
    spawn "$GMSFS" image load -q "$M/next" "$T/image"
    wait_until 10 metric_is gmsfs_allocs_waiting 1
    kill -TERM "$SPAWNED"
    wait_exit -143 "$SPAWNED" 30
    assert_match "$(output_of "$SPAWNED")" 'stopped by a signal \(Terminated\); nothing was committed' 'said at once'
    machine
    wait_until 5 eval '[[ ! -e $M/next ]]'
}

has_context() { # PID
    [[ -e $GMSFS_FAKE_CUDA/context.$1.0 ]]
}

has_allocations() {
    [[ -n $(ls "$M/weights/allocations") ]]
}

@test "a file that becomes shorter while it is loaded is named, and nothing is committed" {
    local direct
    machine
    start_mount
    for direct in auto always; do # through the page cache, and past it
        machine 'hold cuMemHostRegister_v2'
        make_odd "$T/odd.safetensors"
        spawn "$GMSFS" load --direct "$direct" --threads 1 "$M/weights" "$MODEL"
        wait_until 10 has_allocations
        truncate -s 1M "$MODEL"
        machine # the threads get their first buffer
        wait_exit -1 "$SPAWNED" 30
        assert_match "$(output_of "$SPAWNED")" "tensor '[^']+': the file became shorter while it was read"
        nothing_committed weights
        nothing_held
    done
}

# bats test_tags=slow
@test "bytes read and written past the page cache are the same" {
    machine
    make_odd "$T/odd.safetensors"
    start_mount
    cli load --direct always "$M/weights" "$MODEL"
    cli verify --direct always "$M/weights" "$MODEL"
    cli verify --direct never "$M/weights" "$MODEL"
    cli save --direct always "$M/weights" "$T/direct.safetensors"
    cli save --direct never "$M/weights" "$T/cached.safetensors"
    cmp "$T/direct.safetensors" "$T/cached.safetensors"
    cli image save --direct always "$M/weights" "$T/image"
    mkdir "$M/other"
    cli image load --direct always "$M/other" "$T/image"
    assert_eq "$(sums "$M/other")" "$(sums "$M/weights")" sums
    nothing_held
}

@test "a disk that fills up during a GPU's save is named with the missing bytes, and nothing is left" {
    requires root mountns
    machine
    make_model 24M 1
    start_mount
    cli load "$M/weights" "$MODEL"
    mkdir "$T/disk"
    machine 'hold cuMemHostRegister_v2'
    # The save has counted the free bytes, and waits for its first buffer, when another takes the room.
    spawn in_mountns '
        mount -t tmpfs -o size=32M tmpfs "$1"
        "$2" save --threads 4 "$3" "$1/x.safetensors" & save=$!
        while kill -0 "$save" 2>/dev/null; do
            for file in "/proc/$save/fd/"*; do
                [[ $(readlink "$file") != "$1"/* || $(stat -Lc %s "$file") -lt 20000000 ]] || break 2
            done
        done
        head -c 30M /dev/zero >"$1/other" && touch "$4"
        wait "$save"; status=$?; find "$1" -mindepth 1 ! -name other; exit "$status"' \
        "$T/disk" "$GMSFS" "$M/weights" "$T/filled"
    wait_until 30 test -e "$T/filled"
    machine
    wait_exit -1 "$SPAWNED" 30
    output=$(output_of "$SPAWNED")
    assert_match "$output" "x.safetensors: the disk is full, .*MiB needed for all files, .* free, 2[0-9].[0-9] MiB missing"
    [[ $output != *$'\n'"$T/disk/"* ]] || fail 'something was left'
    assert_state weights COMMITTED
    nothing_held
}
