#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs copy between GPUs of the fake driver and host memory: by the copy engines in a chain, or through
# the host's memory. Copies are done as late as the driver may (`lazy`).

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers

machine() { # LINE...
    fake_gpus 'devices 3' 'memory 256' 'lazy 1' "$@"
}

# A mount on each GPU, and one of host memory: GPU0, GPU1, GPU2, HOST. A store with allocations of sizes
# that no block is made for, in GPU0.
start_gpus() { # LINE...
    local ordinal
    machine "$@"
    for ordinal in 0 1 2; do
        start_mount "size=160M,device=$ordinal,copier_idle=0.05" "$T/gpu$ordinal"
        printf -v "GPU$ordinal" %s "$M"
    done
    start_mount backend=host,size=160M "$T/host"
    HOST=$M

    bash -c 'exec 4<>"$1/lock"
        for size in 1 2097152 40000003 5000000 70000; do
            head -c "$size" /dev/urandom >"$1/allocations/a$size"
        done
        echo >"$1/commit"' _ "$GPU0/weights"
    "$GMSFS" sum -q --allocations "$GPU0/weights" >"$T/sums"
}

same_as_source() { # STORE...
    local store
    for store in "$@"; do
        "$GMSFS" sum -q --allocations "$store" >"$T/sums.new"
        cmp "$T/sums" "$T/sums.new" || fail "$store has other bytes"
        cmp "$GPU0/weights/layout" "$store/layout"
    done
}

nothing_is_held() {
    [[ -z $(find "$GMSFS_FAKE_CUDA" -name 'context.*' -o -name 'leaked.*') ]]
}

nothing_held() { # by the commands, and by the copiers, which made the first store's bytes
    wait_until 5 nothing_is_held
}

@test "a store goes to GPUs in a chain, to its own GPU and to host memory, with the same hash" {
    start_gpus
    machine 'fail cuMemcpyHtoDAsync_v2 999' # no byte comes from the host
    cli copy "$GPU0/weights" "$GPU1/new" "$GPU2/new" "$GPU0/second"
    assert_match "$output" 'group [0-9a-f]{32} of 3 stores'
    [[ $output != *'peer access'* ]] || fail 'it went through the host'
    machine
    same_as_source "$GPU1/new" "$GPU2/new" "$GPU0/second"
    cli copy "$GPU0/weights" "$HOST/new" "$GPU1/third"
    same_as_source "$HOST/new" "$GPU1/third"
    nothing_held
}

# bats test_tags=slow
@test "from host memory the bytes reach several GPUs" {
    start_gpus
    cli copy -q "$GPU0/weights" "$HOST/new"
    cli copy "$HOST/new" "$GPU1/new" "$GPU2/new" "$HOST/second"
    [[ $output != *'peer access'* ]] || fail 'there is none on the host'
    same_as_source "$GPU1/new" "$GPU2/new" "$HOST/second"
    nothing_held
}

@test "without peer access the bytes go through the host's memory, and this is said" {
    start_gpus 'peers 0'
    cli copy "$GPU0/weights" "$GPU1/new" "$GPU2/new" "$HOST/new"
    assert_match "$output" "$GPU1/new: its GPU has no peer access to the GPU of $GPU0/weights, so its bytes went through the host"
    assert_match "$output" "$GPU2/new: its GPU has no peer access"
    same_as_source "$GPU1/new" "$GPU2/new" "$HOST/new"
    cli copy "$GPU0/weights" "$GPU0/second" # on the same GPU none is needed
    [[ $output != *'peer access'* ]] || fail 'it went through the host'
    same_as_source "$GPU0/second"
    nothing_held
}

# bats test_tags=slow
@test "a GPU that fails in the middle, or the second that is full, and nothing is committed" {
    start_gpus 'fail cuMemcpyDtoDAsync_v2 999 4 1'
    cli -1 copy "$GPU0/weights" "$GPU1/new" "$GPU2/new"
    assert_match "$output" 'cannot copy from GPU to GPU: .*: cuMemcpyDtoDAsync_v2: CUDA_ERROR_UNKNOWN'
    assert_match "$output" 'nothing was committed'
    [[ ! -e $GPU1/new && ! -e $GPU2/new ]] || fail 'a store was left'
    machine
    cli copy -q "$GPU0/weights" "$GPU2/a" "$GPU2/b" "$GPU2/c"
    cli -3 copy --timeout 0 "$GPU0/weights" "$GPU1/new" "$GPU2/new"
    assert_match "$output" "$GPU2/new: the model does not fit"
    [[ ! -e $GPU1/new && ! -e $GPU2/new ]] || fail 'a store was left'
    nothing_held
}

# bats test_tags=slow
@test "SIGTERM and kill -9 in the middle leave what was there" {
    start_gpus
    cli copy -q "$GPU0/weights" "$GPU1/old"
    local pid before
    before=$(jq .generation "$GPU1/old/info")
    machine 'slow cuMemcpyDtoDAsync_v2 300'
    spawn "$GMSFS" copy "$GPU0/weights" "$GPU1/old" "$GPU2/new"
    pid=$SPAWNED
    wait_until 10 state_is "$GPU2/new" RW
    sleep 0.2
    kill -TERM "$pid"
    wait_exit -143 "$pid" 10
    assert_match "$(output_of "$pid")" 'nothing was committed'
    assert_eq "$(jq .generation "$GPU1/old/info")" "$before" old
    [[ ! -e $GPU2/new ]] || fail 'a store was left'
    spawn "$GMSFS" copy "$GPU0/weights" "$GPU1/old" "$GPU2/new"
    wait_until 10 state_is "$GPU2/new" RW
    kill -KILL "$SPAWNED"
    wait_until 5 state_is "$GPU2/new" EMPTY
    assert_state "$GPU1/old" COMMITTED
    machine
    same_as_source "$GPU1/old"
    assert_eq "$(jq .generation "$GPU1/old/info")" "$before" old
    assert_eq "$(cat "$GPU0/weights/sessions")" '' sessions
}

# bats test_tags=slow
@test "load --group reads files once, and the GPUs pass their bytes on" {
    requires direct-io
    start_gpus
    local chunk
    make_model 24M
    for chunk in 8M 1G; do # several allocations are passed on while the last is filled
        cli load --direct never --chunk "$chunk" --group --force "$GPU1/a=$MODEL" "$GPU2/a=$MODEL" "$GPU2/b=$MODEL"
        for store in "$GPU1/a" "$GPU2/a" "$GPU2/b"; do
            cli verify -q "$store" "$MODEL"
        done
    done
    cli load --direct always --group "$GPU1/a=$MODEL" "$HOST/a=$MODEL" "$GPU2/a=$MODEL"
    cli verify -q "$GPU1/a" "$MODEL"
    cli verify -q "$GPU2/a" "$MODEL"
    cli verify -q "$HOST/a" "$MODEL"
    machine 'fail cuMemcpyDtoDAsync_v2 999'
    for chunk in 8M 1G; do
        cli -1 load --direct never --chunk "$chunk" --group "$GPU1/c=$MODEL" "$GPU2/c=$MODEL"
        assert_match "$output" 'cannot copy from GPU to GPU: .*/c: cuMemcpyDtoDAsync_v2'
        assert_eq "$(grep -c '^gmsfs load: ' <<<"$output")" 1 errors
        [[ ! -e $GPU1/c && ! -e $GPU2/c ]] || fail 'a store was left'
    done
    nothing_held
}

gpu_has_bytes() { # INDEX
    [[ -n $(cat "$GMSFS_FAKE_CUDA/gpu$1"/m* | tr -d '\0' | head -c 1) ]]
}

# load_until_gpu_has_bytes INDEX: loads a model into two GPUs, 1 and 2. 1: the load is held where it fills
# the first allocation; 2: it has passed bytes on, and is held where it fills the last one.
load_until_gpu_has_bytes() {
    make_model 24M 1
    start_gpus
    machine 'slow cuMemcpyHtoDAsync_v2 200'
    spawn "$GMSFS" load --direct never --threads 1 --chunk 8M --group "$GPU1/a=$MODEL" "$GPU2/a=$MODEL"
    wait_until 20 gpu_has_bytes "$1"
    machine 'hold cuMemcpyHtoDAsync_v2'
    sleep 0.5
    kill -0 "$SPAWNED" || fail 'all was filled before'
}

# ends_without_store -STATUS REGEX: the load ends so, with one message
ends_without_store() {
    machine
    wait_exit "$1" "$SPAWNED" 10
    assert_match "$(output_of "$SPAWNED")" "$2"
    assert_eq "$(grep -c 'gmsfs load: ' <<<"$(output_of "$SPAWNED")")" 1 messages
    [[ ! -e $GPU1/a && ! -e $GPU2/a ]] || fail 'a store was left'
    nothing_held
}

# bats test_tags=slow
@test "load --group prepares to pass bytes on while it fills the first allocation; SIGTERM ends both" {
    load_until_gpu_has_bytes 1
    kill -TERM "$SPAWNED"
    ends_without_store -143 'nothing was committed'
}

# bats test_tags=slow
@test "load --group prepares to pass bytes on while it fills the first allocation; a file cut short ends both" {
    load_until_gpu_has_bytes 1
    truncate -s 1M "$T"/model-*/*.safetensors
    ends_without_store -1 "$T/model-.*safetensors"
}

# bats test_tags=slow
@test "load --group passes bytes on while it fills the last allocation; SIGTERM ends both" {
    load_until_gpu_has_bytes 2
    kill -TERM "$SPAWNED"
    ends_without_store -143 'nothing was committed'
}

# bats test_tags=slow
@test "load --group passes bytes on while it fills the last allocation; a file cut short ends both" {
    load_until_gpu_has_bytes 2
    truncate -s 1M "$T"/model-*/*.safetensors
    ends_without_store -1 "$T/model-.*safetensors"
}

# bats test_tags=slow
@test "load --group of one model fills a GPU from its files with as large buffers as load does" {
    start_gpus
    local copies
    make_model 96M 1
    cli load --threads 32 --trace "$T/trace" --group "$GPU1/a=$MODEL" "$GPU2/a=$MODEL"
    copies=$(jq '[.[] | select(.name == "copy")] | length' "$T/trace")
    ((copies < 192)) || fail "$copies copies: small ones, as two GPUs need that are filled from files"
    assert_eq "$(jq '[.[] | select(.name == "pass on")] | length' "$T/trace")" 1 'passes in the trace'
}
