#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Properties of a store in GPU memory, for every kind of client: bytes, addresses, locks, memory that
# comes back. On the fake driver; with GMSFS_GPU=real on device 0 of this machine, as
# `make gpu-check` does.

# shellcheck disable=SC2016,SC2153 # for inner shells; HANG is that of helpers.bash

load helpers

prepare() {
    HAND=$BUILD/tests/tools/gpu_hand
    if [[ ${GMSFS_GPU-} == real ]]; then
        requires nvidia-smi
        # shellcheck disable=SC2034 # start_mount's
        BACKEND=cuda
        SIZE=1T            # all that it has
        SPARE=$((4 << 30)) # left free by the tests that fill it
    else
        fake_gpus 'memory 256'
        SIZE=256M SPARE=$((32 << 20))
    fi
}

start_gpu() { # [OPTIONS]
    start_mount "size=$SIZE${1:+,$1}"
}

hand() { # ACT ARGUMENT...: to its end
    run_logged -0 timeout $((120 * HANG)) "$HAND" "$@"
}

spawn_hand() { # WORD ACT ARGUMENT...: in the background, until it says WORD
    local word=$1
    shift
    spawn "$HAND" "$@"
    wait_until 60 says "$SPAWNED" "$word"
}

says() { # PID WORD
    process_gone "$1" && return 1
    grep -q "$2" < <(output_of "$1")
}

device() { # FILTER
    jq -r "$1" "$M/device"
}

used_is_of_layouts() {
    used_is "$(jq -s 'map(.bytes) | add' "$M"/*/info)"
}

used_is() { # BYTES
    [[ $(device .used_bytes) == "$1" ]]
}

# bats test_tags=slow
@test "clients killed at any moment leave the device as the tree says" {
    start_gpu
    local round store hands
    mkdir "$M"/{a,b,c,d}
    for ((round = 1; round <= ${GMSFS_GPU_KILLS:-6}; round++)); do
        hands=()
        for store in a b c d; do
            spawn "$HAND" cycles "$M/$store" 100000 $((2 << 20)) "$round"
            hands+=("$SPAWNED")
        done
        sleep "0.$((RANDOM % 9 + 1))"
        kill -KILL "${hands[@]}"
        for hand in "${hands[@]}"; do
            wait_exit "$hand"
        done
    done
    # The committed store is whole, the rest came back.
    for store in a b c d; do
        wait_until 20 grep -qxE 'EMPTY|COMMITTED' "$M/$store/state"
    done
    wait_until 20 used_is_of_layouts
    rmdir "$M"/{a,b,c,d}
    wait_until 20 used_is 0
}

# By the device's own account, where there is one: memory of all processes, in MiB.
smi_used() {
    nvidia-smi --id=0 --query-gpu=memory.used --format=csv,noheader,nounits
}

smi_used_is() { # MIB
    [[ $(smi_used) == "$1" ]]
}

# again WORD...: over and over until $T/over is there; the first that fails ends it.
again() {
    while [[ ! -e $T/over ]]; do
        timeout $((120 * HANG)) "$HAND" "$@" || return 1
    done
}

# bats test_tags=slow
@test "a worker that dies again and again is noticed neither by readers of their mappings nor by a writer" {
    start_gpu
    local kills=0 pids=() before
    mkdir "$M"/{a,b,c}
    hand fill "$M/a" 3 $((2 << 20)) 11
    spawn_hand equal hold "$M/a" 11
    pids=("$SPAWNED")
    spawn again check "$M/a" 11
    pids+=("$SPAWNED")
    spawn again cycles "$M/b" 5 $((2 << 20)) 12
    pids+=("$SPAWNED")
    spawn again fill "$M/c" 4 $((2 << 20)) 13
    pids+=("$SPAWNED")
    while ((kills++ < ${GMSFS_GPU_WORKER_KILLS:-8})); do
        before=$(grep -c ' serves, ' "$LOG" || true)
        kill -KILL "$(worker_of "$KEEPER")"
        wait_until_any 60 resumed_more_than "$before"
        sleep "0.$((RANDOM % 300 + 100))" # the moments between two kills are tested
        for pid in "${pids[@]}"; do
            process_lives "$pid" || fail "a client ended: $(output_of "$pid")"
        done
    done
    touch "$T/over"
    for pid in "${pids[@]:1}"; do
        wait_exit -0 "$pid" 120
    done
    kill -KILL "${pids[0]}"
    hand check "$M/a" 11
    hand check "$M/c" 13
    wait_until 20 used_is_of_layouts
}

@test "weights outlive the writer that loaded them, and two readers find every byte" {
    start_gpu
    spawn_hand filled linger "$M/weights" 8 $((6 << 20)) 11
    kill -KILL "$SPAWNED"
    wait_exit "$SPAWNED"
    assert_eq "$(cat "$M/weights/state")" COMMITTED
    spawn_hand equal hold "$M/weights" 11
    spawn_hand equal hold "$M/weights" 11
    assert_eq "$(cat "$M/weights/state")" RO
    hand check "$M/weights" 11
}

@test "a model is loaded, verified, summed, saved and put into an image by the commands" {
    requires python3
    local model sums
    model=$("$ROOT/scripts/make-model" --out "$T/model" --size 48M --shards 3 --seed 3 | tail -n 1)
    start_gpu
    run_logged -0 timeout $((120 * HANG)) "$GMSFS" load "$M/weights" "$model"
    run_logged -0 timeout $((120 * HANG)) "$GMSFS" verify "$M/weights" "$model"
    sums=$("$GMSFS" sum -q "$M/weights")
    run_logged -0 timeout $((120 * HANG)) "$GMSFS" image save "$M/weights" "$T/image"
    run_logged -0 timeout $((120 * HANG)) "$GMSFS" save "$M/weights" "$T/saved.safetensors"
    run_logged -0 timeout $((120 * HANG)) "$GMSFS" load "$M/weights" "$T/saved.safetensors"
    run_logged -0 timeout $((120 * HANG)) "$GMSFS" verify "$M/weights" "$model"
    run_logged -0 timeout $((120 * HANG)) "$GMSFS" image load "$M/weights" "$T/image"
    assert_eq "$("$GMSFS" sum -q "$M/weights")" "$sums" sums
}

@test "a tensor of more than 4 GiB arrives whole, through the page cache and past it" {
    requires gpu python3 # 5 GiB of memory
    # Sparse: all zeros except around the places where 32 bits end.
    python3 - "$T/large.safetensors" <<'EOT'
import json, struct, sys
sizes = [3, 5 * 2**30 + 1]
header, at = {}, 0
for i, size in enumerate(sizes):
    header[f"t{i}"] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
    at += size
text = json.dumps(header).encode()
with open(sys.argv[1], "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text)
    begin = out.tell()
    for place in (0, 2**31 - 2, 2**32 - 2, 2**32 + 2**22 - 5, at - 7):
        out.seek(begin + place)
        out.write(b"\x01\x02\x03\x04\x05\x06\x07")
EOT
    start_gpu
    local direct
    for direct in never always; do
        run_logged -0 timeout $((120 * HANG)) "$GMSFS" load --direct "$direct" "$M/weights" "$T/large.safetensors"
        run_logged -0 timeout $((120 * HANG)) "$GMSFS" verify "$M/weights" "$T/large.safetensors"
    done
    run_logged -0 timeout $((120 * HANG)) "$GMSFS" save "$M/weights" "$T/saved.safetensors"
    run_logged -0 timeout $((120 * HANG)) "$GMSFS" verify "$M/weights" "$T/saved.safetensors"
}

@test "a killed writer's memory comes back, all of it" {
    start_gpu
    local before
    before=$(device .used_bytes)
    spawn_hand written write "$M/weights" 4 $((4 << 20)) 15
    assert_eq "$(device .used_bytes)" $((before + (16 << 20)))
    kill -KILL "$SPAWNED"
    wait_until 20 used_is "$before"
    assert_eq "$(cat "$M/weights/state")" EMPTY
}

# sleeper_after COUNT SEED: puts a reader of 4 allocations to sleep, commits COUNT with SEED + 1,
# and wakes it; sets output to what it said.
sleeper_after() {
    hand fill "$M/weights" 4 $((4 << 20)) "$2"
    spawn_hand asleep sleep "$M/weights" "$2" $(($2 + 1)) "$T/cue"
    local sleeper=$SPAWNED
    hand fill "$M/weights" "$1" $((4 << 20)) $(($2 + 1))
    touch "$T/cue"
    wait_exit -0 "$sleeper" 60
    output=$(output_of "$sleeper")
}

@test "a sleeper wakes at the same addresses to the bytes that another committed meanwhile" {
    start_gpu
    sleeper_after 4 21
    assert_match "$output" 'awake, 1 commits later'
}

@test "a sleeper is told when the structure changed" {
    start_gpu
    sleeper_after 5 31
    assert_match "$output" stale
}

@test "a sleeper holds no memory: its mapping goes when the store is removed" {
    start_gpu
    mkdir "$M/other"
    hand fill "$M/other" 2 $((8 << 20)) 41
    spawn_hand asleep sleep "$M/other" 41 41 "$T/cue"
    rmdir "$M/other"
    wait_until 20 used_is 0
}

@test "a reader's write through its mapping is refused by the driver" {
    start_gpu
    hand fill "$M/weights" 1 $((2 << 20)) 51
    hand trespass "$M/weights"
    assert_match "$output" 'refused: CUDA_ERROR_'
    hand check "$M/weights" 51
}

@test "freed memory shows none of its old bytes to the next user" {
    requires root setpriv
    start_gpu
    hand fill "$M/weights" 16 $((8 << 20)) 61
    "$GMSFS" run -w "$M/weights" -- bash -c 'rm "$GMSFS_STORE"/allocations/*'
    wait_until 20 used_is 0
    mkdir "$M/other"
    chown "$TEST_UID" "$M/other"
    run_logged -0 "${AS_USER[@]}" timeout $((120 * HANG)) "$HAND" peek "$M/other" 16 $((8 << 20))
}

# fill_device STORE: a writer takes all but SPARE bytes of what is free, and has it until descriptor 7
# is closed; sets FILLED
fill_device() {
    local granularity
    granularity=$(device .granularity_bytes)
    FILLED=$((($(device .free_bytes) - SPARE) / granularity * granularity))
    exec 7<>"$1/lock"
    truncate -s "$FILLED" "$1/allocations/all"
}

@test "an allocation that does not fit waits until another process frees" {
    start_gpu alloc_timeout=60
    mkdir "$M/full" "$M/wants"
    fill_device "$M/full"
    spawn "$HAND" fill "$M/wants" 2 "$SPARE" 71 7>&-
    wait_until 20 grep -q '^gmsfs_allocs_waiting 1' "$M/metrics"
    exec 7>&-
    wait_exit -0 "$SPAWNED" 60
}

@test "a client killed while it waits for memory is forgotten" {
    start_gpu alloc_timeout=60
    mkdir "$M/full" "$M/wants"
    fill_device "$M/full"
    spawn "$HAND" fill "$M/wants" 2 "$SPARE" 71 7>&-
    wait_until 20 grep -q '^gmsfs_allocs_waiting 1' "$M/metrics"
    kill -KILL "$SPAWNED"
    wait_until 20 grep -q '^gmsfs_allocs_waiting 0' "$M/metrics"
    wait_until 20 grep -qx EMPTY "$M/wants/state"
    wait_until 20 used_is "$FILLED"
    exec 7>&-
}

# bats test_tags=slow
@test "loading, sleeping and waking in cycles leaks neither memory nor descriptors" {
    start_gpu
    local worker fds cycles=${GMSFS_GPU_CYCLES:-20}
    worker=$(worker_of "$KEEPER")
    hand cycles "$M/weights" 1 $((2 << 20)) 81
    fds=$(find "/proc/$worker/fd" | wc -l)
    hand cycles "$M/weights" "$cycles" $((2 << 20)) 82
    has_descriptors() { [[ $(find "/proc/$worker/fd" | wc -l) == "$fds" ]]; }
    # The open files of an ended process are given back after its end is seen.
    wait_until 20 has_descriptors
    assert_eq "$(device .used_bytes)" $((4 << 20))
    "$GMSFS" run -w "$M/weights" -- bash -c 'rm "$GMSFS_STORE"/allocations/*'
    wait_until 20 used_is 0
}

no_context_of() { # PID...
    local pid apps
    apps=$(nvidia-smi --query-compute-apps=pid --format=csv,noheader)
    for pid in "$@"; do
        if grep -qx "$pid" <<<"$apps"; then fail "process $pid has a context"; fi
    done
}

@test "the daemon has neither a context nor device memory of its own by the driver's account" {
    requires gpu # the fake driver keeps no such account
    local idle worker
    # The cost of any process that has opened the driver, with a context or without.
    spawn_hand opened open
    idle=$(smi_used)
    kill -KILL "$SPAWNED"
    wait_exit "$SPAWNED"
    start_gpu
    worker=$(worker_of "$KEEPER")
    wait_until 20 smi_used_is "$idle"
    no_context_of "$KEEPER" "$worker"
    hand fill "$M/weights" 16 $((64 << 20)) 91
    wait_until 20 smi_used_is $((idle + 1024))
    no_context_of "$KEEPER" "$worker"
    "$GMSFS" run -w "$M/weights" -- bash -c 'rm "$GMSFS_STORE"/allocations/*'
    wait_until 20 smi_used_is "$idle"
}

# bats test_tags=slow
@test "PyTorch computes over mapped tensors, also in a graph replayed after sleep, demotion and promotion" {
    requires gpu torch
    start_gpu host_size=1G
    run_logged -0 timeout $((120 * HANG)) "${GMSFS_TEST_PYTHON:-python3}" \
        "$ROOT/tests/tools/torch_hand.py" \
        "$BUILD/libgmsfs.so.0" "$M/weights"
    assert_match "$output" ok
}

# torch_tests MODULE[.CLASS] [OPTIONS]: of tests/python, on the GPU
torch_tests() {
    local python=${GMSFS_TEST_PYTHON:-python3}
    requires gpu torch
    start_gpu "${2-}"
    export PYTHONPATH=$ROOT/python:$ROOT/tests/python PYTHONDONTWRITEBYTECODE=1 GMSFS
    export GMSFS_LIBRARY=$BUILD/libgmsfs.so.0 GMSFS_TEST_MOUNT=$M GMSFS_TEST_DEVICE=cuda
    run_logged -0 timeout $((80 * HANG)) "$python" -m unittest -v "$1"
    assert_match "$output" OK
}

@test "the Python package's tensors on the GPU are the file's, compute, live on, sleep and wake" { torch_tests test_torch.Reading; }
@test "another process reads the tensors that the Python package publishes from the GPU and the host" { torch_tests test_torch.Publishing; }
@test "torch modules are published to the GPU and attached with ties, views, buffers" { torch_tests test_modules; }

# bats test_tags=slow
@test "transformers models on the GPU share a store and equal a plain load" {
    requires gpu transformers
    SLOW=$((SLOW * 3)) # four processes that import for seconds
    torch_tests test_transformers
}

@test "torch saves, copies and changes the GPU's tensors of a store one by one, as those of a file" { torch_tests test_torch_storages; }
@test "engines of vLLM's stand-in share a store on the GPU and sleep by its backend" { torch_tests test_vllm_stub; }
@test "the KV connector of vLLM keeps blocks on the GPU for the next engine" { torch_tests test_vllm_kv; }

# ---- bytes by read and write -----------------------------------------------------------------

# 5 GiB of a real one, so that offsets need more than 32 bits; with marks where something might go wrong.
make_marked_file() { # FILE BYTES
    local at
    truncate -s "$2" "$1"
    for at in 0 1048575 2097151 $((${2} / 2)) $((${2} - 9)) $(((4 << 30) - 3)) $(((4 << 30) + 7)); do
        ((at > $2 - 9)) || printf 'mark%05d' $((at % 99999)) |
            dd of="$1" bs=1M oflag=seek_bytes seek="$at" conv=notrunc status=none
    done
}

@test "cp in, cat, dd and sha256sum out give the bytes of the file" {
    local bytes=$((96 << 20))
    [[ ${GMSFS_GPU-} != real ]] || bytes=$(((5 << 30) + 12345))
    start_gpu spool_max=16M
    make_marked_file "$T/file" "$bytes"
    exec 5<>"$M/weights/lock"
    truncate -s "$bytes" "$M/weights/allocations/a"
    dd if="$T/file" of="$M/weights/allocations/a" bs=1M conv=notrunc status=none
    head -c 5000001 /dev/urandom >"$T/spooled"
    cp "$T/spooled" "$M/weights/allocations/b"
    commit_5
    cmp "$M/weights/allocations/a" "$T/file"
    # shellcheck disable=SC2002 # the way of cat
    cat "$M/weights/allocations/a" | cmp - "$T/file"
    cmp "$M/weights/allocations/b" "$T/spooled"
    dd if="$M/weights/allocations/b" bs=70001 status=none | cmp - "$T/spooled"
    assert_eq "$(sha256sum <"$M/weights/allocations/b")" "$(sha256sum <"$T/spooled")"
    rmdir "$M/weights"
    wait_until 20 used_is 0
}

copiers() {
    local child children=()
    read -ra children < <(cat "/proc/$(worker_of "$KEEPER")"/task/*/children | tr '\n' ' ') || true
    for child in "${children[@]}"; do
        [[ $(cat "/proc/$child/comm") != gmsfs-copier ]] || return 0
    done
    return 1
}

no_copiers() {
    ! copiers
}

others_hold_at_most() { # BYTES
    (($(device .other_bytes) <= $1))
}

@test "the context that moves bytes is there only while they are moved" {
    local others
    start_gpu copier_idle=0.5
    others=$(device .other_bytes)
    exec 5<>"$M/weights/lock"
    cp /etc/passwd "$M/weights/allocations/a"
    copiers
    commit_5
    wait_until 20 no_copiers
    wait_until 20 others_hold_at_most "$others"
    cmp /etc/passwd "$M/weights/allocations/a"
}

# bats test_tags=slow
@test "many shapes that torch captures in any order equal eager work, after sleep too" { torch_tests test_graphs_torch.Shapes; }

@test "torch's graphs are dropped, leaks into their memory named, and a full device harms none of them" {
    torch_tests test_graphs_torch.Freeing alloc_timeout=1
}

@test "graphs of one pool run one after the other, from all threads and streams" { torch_tests test_graphs_torch.Launching; }
@test "two processes take turns over one store of graph memory, and one may end at any time" { torch_tests test_graphs_torch.Processes; }

# bats test_tags=slow
@test "the example captures 24 shapes of a small transformer" {
    local python=${GMSFS_TEST_PYTHON:-python3}
    requires gpu torch
    start_gpu
    export PYTHONPATH=$ROOT/python PYTHONDONTWRITEBYTECODE=1 GMSFS_LIBRARY=$BUILD/libgmsfs.so.0
    run_logged -0 timeout $((80 * HANG)) "$python" "$ROOT/examples/graph_shapes.py" "$M/graphs"
    assert_match "$output" 'awake: all shapes'
}
