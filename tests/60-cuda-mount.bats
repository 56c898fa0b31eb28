#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# A mount of GPU memory, over the fake driver: its texts, sharing, refusals and freed memory.
#
# shellcheck disable=SC2016 # bodies of shells
# bats file_tags=slow

load helpers

SHARER=$BUILD/tests/tools/cuda_sharer

sharer() {
    run_logged -0 timeout $((60 * HANG)) "$SHARER" "$@"
}

# No mount comes of it; its words are in $output.
refused() { # OPTIONS
    mkdir -p "$T/m"
    run_logged ! timeout $((20 * HANG)) "$GMSFS" mount -f -o "$1" "$T/m"
    not_mounted "$T/m"
}

contexts() {
    find "$GMSFS_FAKE_CUDA" -name 'context.*'
}

# hold_mappings STORE: a reader that has let go of the lock and keeps its mappings; sets MAPPER.
hold_mappings() {
    mkfifo "$T/in"
    spawn bash -c 'exec "$1" hold "$2" <"$3"' _ "$SHARER" "$1" "$T/in"
    MAPPER=$SPAWNED
    exec 6>"$T/in"
    wait_until 10 grep -qx mapped "$T/spawn-$MAPPER"
}

# ---- which GPU -------------------------------------------------------------------------------

# bats test_tags=quick
@test "device and df tell the GPU and the memory that others hold of it" {
    fake_gpus 'memory 512' 'others 64'
    start_mount
    assert_eq "$(device_get .backend)" cuda
    assert_eq "$(device_get .name)" 'Fake GPU 0'
    assert_eq "$(device_get .uuid)" fa5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00
    assert_eq "$(device_get .pci_id)" 0000:17:00.0
    assert_eq "$(device_get .cuda_version)" 13.0
    assert_eq "$(device_get .total_bytes)" $((256 * MIB)) 'the part that size= gives'
    assert_eq "$(device_get .other_bytes)" $((64 * MIB))
    assert_eq "$(device_get .free_bytes)" $((448 * MIB))
    wait_until 5 metric_is gmsfs_device_other_bytes $((64 * MIB))
    fake_gpus 'memory 512' 'others 384'
    wait_until 5 device_is .free_bytes $((128 * MIB))
    assert_eq "$(df --output=avail -B1 "$M" | tail -n 1)" $((128 * MIB)) 'available by df'
}

@test "a GPU is chosen by index, by UUID and by PCI id" {
    local device
    fake_gpus 'devices 3'
    for device in 2 GPU-fa5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a02 0000:19:00.0 19:00; do
        start_mount "device=$device"
        assert_eq "$(device_get .name)" 'Fake GPU 2' "device=$device"
        stop_mount
    done
    export CUDA_VISIBLE_DEVICES=1
    start_mount
    assert_eq "$(device_get .name)" 'Fake GPU 1' 'the first of CUDA_VISIBLE_DEVICES'
    stop_mount
    start_mount device=0
    assert_eq "$(device_get .name)" 'Fake GPU 0' 'device= over CUDA_VISIBLE_DEVICES'
}

@test "a GPU that is not there, or is a slice, is refused with the way out" {
    requires fuse
    fake_gpus
    refused device=5
    assert_match "$output" 'device=5: .*CUDA_ERROR_NO_DEVICE.*nvidia-smi -L'
    refused device=MIG-7f1c2d3e-0a1b-4c5d-8e9f-001122334455
    assert_match "$output" 'MIG slices are not supported; name a whole GPU'
    refused device=tesla
    assert_match "$output" 'device=tesla: expected an index'
    refused backend=host,device=0
    assert_match "$output" 'device=0: names a GPU'
    fake_gpus 'devices 0'
    refused ''
    assert_match "$output" 'gmsfs mount -o backend=host,size=4G MOUNTPOINT'
}

# ---- sharing ---------------------------------------------------------------------------------

# bats test_tags=quick
@test "bytes of a writer that was killed are read by two other processes" {
    fake_gpus
    start_mount
    spawn bash -c '"$1" load "$2" 5 6 && echo loaded && exec sleep 1000' _ "$SHARER" "$M/weights"
    wait_until 20 said_loaded
    kill -KILL "$SPAWNED"
    assert_state weights COMMITTED
    spawn "$SHARER" check "$M/weights" 5
    sharer check "$M/weights" 5
    assert_eq "$output" '5 as they were loaded'
    wait_exit -0 "$SPAWNED" 30
    assert_eq "$(device_get .used_bytes)" $((30 * MIB))
}

said_loaded() {
    grep -qx loaded "$T/spawn-$SPAWNED"
}

@test "the daemon has no context, and its keeper not even the driver" {
    local worker
    fake_gpus
    start_mount
    worker=$(worker_of "$KEEPER")
    sharer load "$M/weights" 3 2
    grep -q libcuda "/proc/$worker/maps"
    run ! grep -q libcuda "/proc/$KEEPER/maps"
    assert_eq "$(contexts)" ''
}

# ---- memory ----------------------------------------------------------------------------------

@test "a spool that several users write to is charged to the first writer, and to no user in the end" {
    local file
    requires root
    fake_gpus 'memory 512'
    start_mount
    file=$M/weights/allocations/x
    chmod 0777 "$M/weights"
    exec 5<>"$M/weights/lock"
    mkfifo "$T/go"
    spawn "${AS_USER[@]}" bash -c 'exec 6>"$1"; head -c 3000000 /dev/zero >&6; echo wrote; read -r <"$2"' \
        _ "$file" "$T/go"
    wait_until 10 grep -qx wrote "$T/spawn-$SPAWNED"
    head -c 5000000 /dev/zero >>"$file"
    echo go >"$T/go"
    wait_exit "$SPAWNED"
    assert_eq "$(stat -c %s "$file")" 8000000
    commit_5
    assert_state weights COMMITTED
}

@test "a management library that hangs holds up no reader: the last known values are shown" {
    local known i looks=()
    fake_gpus 'memory 512' 'others 64'
    start_mount
    known=$(device_get .free_bytes)
    fake_gpus 'memory 512' 'others 128' 'slow nvmlDeviceGetMemoryInfo 3600000'
    for i in {1..8}; do
        timeout $((20 * HANG)) stat -f "$M" >"$T/look-$i" &
        looks+=($!)
    done
    assert_eq "$(timeout $((20 * HANG)) cat "$M/weights/state")" EMPTY
    assert_eq "$(device_get .free_bytes)" "$known"
    metric_is gmsfs_device_free_bytes "$known"
    for i in "${looks[@]}"; do
        wait "$i"
    done
}

@test "a management library that is slow is not waited for, and heard when it answers" {
    fake_gpus 'memory 512' 'others 64'
    start_mount
    fake_gpus 'memory 512' 'others 128' 'slow nvmlDeviceGetMemoryInfo 300'
    wait_until 10 device_is .free_bytes $((384 * MIB))
}

@test "memory that was freed and is still mapped is held by others, until it is not" {
    fake_gpus 'memory 256'
    start_mount
    sharer load "$M/weights" 4 8
    hold_mappings "$M/weights"
    rmdir "$M/weights"
    wait_until 5 device_is .used_bytes 0
    wait_until 5 device_is .other_bytes $((32 * MIB))
    exec 6>&-
    wait_exit "$MAPPER"
    wait_until 5 device_is .free_bytes $((256 * MIB))
}

# bats test_tags=quick
@test "ALLOC waits for memory that others hold, and goes on when they give it back" {
    fake_gpus 'memory 256' 'others 128'
    start_mount
    spawn "$GMSCTL" open "$M/weights/lock" rw alloc $((200 * MIB)) 1 a '' say finished
    wait_until 10 metric_is gmsfs_allocs_waiting 1
    wait_until 10 device_is .used_bytes 0 # a try reserves it for a moment
    fake_gpus 'memory 256' 'others 0'
    wait_exit "$SPAWNED" 20
    assert_match "$(output_of "$SPAWNED")" finished
}

@test "a client that is killed while its ALLOC waits is forgotten" {
    fake_gpus 'memory 256' 'others 128'
    start_mount
    spawn "$GMSCTL" open "$M/weights/lock" rw alloc $((200 * MIB)) 1 a '' say finished
    wait_until 10 metric_is gmsfs_allocs_waiting 1
    kill -KILL "$SPAWNED"
    wait_until 10 metric_is gmsfs_allocs_waiting 0
    assert_state weights EMPTY
    fake_gpus 'memory 256'
    wait_until 5 device_is .free_bytes $((256 * MIB))
    assert_eq "$(device_get .used_bytes)" 0
}

@test "memory that was freed can be allocated at once by ftruncate" {
    local i
    fake_gpus 'memory 256'
    start_mount
    exec 5<>"$M/weights/lock"
    for ((i = 0; i < 50; i++)); do
        truncate -s 200M "$M/weights/allocations/a"
        rm "$M/weights/allocations/a"
        wait_until 5 device_is .used_bytes 0
    done
    exec 5>&-
}

# bats test_tags=quick
@test "memory kept for a rollback is given up when the device lacks memory, not before" {
    fake_gpus 'memory 256' 'others 150'
    start_mount
    sharer load "$M/weights" 1 100
    # Too much even then: nothing is given up.
    expect ENOMEM open "$M/weights/lock" rw unlink "$M/weights/allocations/a000000" \
        open "$M/weights/allocations/b" rwc ftruncate $((120 * MIB))
    assert_state weights COMMITTED
    ctl open "$M/weights/lock" rw unlink "$M/weights/allocations/a000000" \
        open "$M/weights/allocations/b" rwc ftruncate $((100 * MIB)) use 0 abort
    assert_state weights EMPTY
    wait_until 5 device_is .used_bytes 0
}

# bats test_tags=quick
@test "an error of the driver harms the request and nothing else" {
    fake_gpus
    start_mount
    fake_gpus 'fail cuMemCreate 999'
    expect EIO open "$M/weights/lock" rw alloc "$MIB" 1 a ''
    assert_match "$(cat "$LOG")" 'cuMemCreate: CUDA_ERROR_UNKNOWN'
    fake_gpus 'fail cuMemCreate 46'
    expect ENODEV open "$M/weights/lock" rw alloc "$MIB" 1 a ''
    fake_gpus
    ctl open "$M/weights/lock" rw alloc "$MIB" 1 a '' commit
    assert_state weights COMMITTED
}

@test "a count of allocations is all or nothing, at the failure of any call" {
    local call n keeper_fds
    fake_gpus
    start_mount size=1G
    keeper_fds=$(fds_of "$KEEPER")
    for call in cuMemCreate cuMemExportToShareableHandle; do
        for n in 1 37 450; do
            fake_gpus "fail $call 304 $n 1"
            expect EIO open "$M/weights/lock" rw alloc $((2 * MIB)) 450 '' ''
            wait_until 5 device_is .used_bytes 0
            wait_until 5 device_is .free_bytes $((1024 * MIB))
            fds_are "$KEEPER" "$keeper_fds"
        done
    done
    fake_gpus
    ctl open "$M/weights/lock" rw alloc $((2 * MIB)) 450 '' '' commit
    assert_eq "$(find "$M/weights/allocations" -type f | wc -l)" 450
    assert_eq "$(fds_of "$KEEPER")" $((keeper_fds + 450)) 'descriptors of the keeper'
}

jobs_run() {
    (($(awk '$1 == "gmsfs_jobs_in_flight" { print $2 }' "$M/metrics") >= 1))
}

@test "calls of the driver that hang hold up no reader" {
    fake_gpus
    start_mount
    fake_gpus 'hold cuMemExportToShareableHandle'
    spawn "$GMSCTL" open "$M/weights/lock" rw alloc $((2 * MIB)) 8 '' '' say finished
    wait_until 5 jobs_run
    assert_state weights RW
    ls "$M/weights/allocations"
    mkdir "$M/other"
    run ! said "$SPAWNED" finished
    fake_gpus
    wait_exit "$SPAWNED" 30
    assert_match "$(output_of "$SPAWNED")" finished
}

# ---- the end ---------------------------------------------------------------------------------

@test "nothing is left of 200 loads and 500 readers" {
    local worker keeper_fds='' worker_fds='' i
    fake_gpus 'memory 128'
    start_mount size=128M
    worker=$(worker_of "$KEEPER")
    for ((i = 0; i < 200; i++)); do
        ctl open "$M/weights/lock" rw clear alloc $((10 * MIB)) 6 '' '' commit >/dev/null
        if ((i == 5)); then
            sharer cycle "$M/weights" 1 # the last caller is remembered
            keeper_fds=$(fds_of "$KEEPER")
            worker_fds=$(fds_of "$worker")
        fi
    done
    sharer cycle "$M/weights" 500
    assert_eq "$(device_get .used_bytes)" $((60 * MIB))
    wait_until 5 device_is .free_bytes $((68 * MIB))
    wait_until 5 fds_are "$KEEPER" "$keeper_fds"
    wait_until 5 fds_are "$worker" "$worker_fds"
}

@test "clients killed in the middle of everything leave the device as the tree says" {
    local i pid
    fake_gpus 'memory 512'
    start_mount size=512M
    for ((i = 0; i < 20; i++)); do
        spawn bash -c 'while :; do "$1" load "$2" 8 4; "$1" check "$2" 8; done' _ "$SHARER" \
            "$M/weights"
        pid=$SPAWNED
        spawn "$SHARER" cycle "$M/weights" 100000
        wait_until 10 state_is weights RW || true
        sleep "0.0$((i % 10))"
        pkill -KILL -P "$pid" || true
        kill -KILL "$pid" "$SPAWNED" || true
        wait_until 5 process_gone "$pid"
    done
    wait_until 10 nobody_holds
    wait_until 10 accounts_agree
}

nobody_holds() {
    [[ $(cat "$M/weights/state") == EMPTY || $(cat "$M/weights/state") == COMMITTED ]]
}

holds_some() { # KEEPER FDS: more than these
    [[ $(fds_of "$1") -gt $2 ]]
}

# bats test_tags=quick
@test "a worker that is killed in the middle of an ALLOC leaves nothing with its keeper" {
    local keeper_fds
    fake_gpus 'slow cuMemExportToShareableHandle 5'
    start_mount size=1G
    keeper_fds=$(fds_of "$KEEPER")
    spawn "$GMSCTL" open "$M/weights/lock" rw alloc $((2 * MIB)) 450 '' '' pause
    wait_until 20 holds_some "$KEEPER" "$keeper_fds"
    kill_last_worker
    wait_until_any 10 process_gone "$KEEPER"
    kill -KILL "$SPAWNED" || true
    wait_until 5 process_gone "$SPAWNED"
    fake_gpus
    start_mount
    wait_until 5 device_is .free_bytes $((1024 * MIB))
}

accounts_agree() {
    [[ $(device_get '.used_bytes + .free_bytes') -eq $((512 * MIB)) &&
        $(device_get .used_bytes) -eq $(jq .bytes "$M/weights/info") ]]
}

# bats test_tags=quick
@test "the end of the mount, or of its worker, gives all memory back" {
    local first
    fake_gpus 'memory 256'
    start_mount
    sharer load "$M/weights" 10 8
    stop_mount
    start_mount
    first=$M
    wait_until 5 device_is .free_bytes $((256 * MIB))
    sharer load "$M/weights" 10 8
    kill_last_worker
    wait_until_any 10 process_gone "$KEEPER"
    grep -q '10 allocations (80.0 MiB) are lost' "$LOG"
    start_mount
    [[ $M != "$first" ]]
    wait_until 5 device_is .free_bytes $((256 * MIB))
}
