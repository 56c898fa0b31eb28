#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# CUDA memory of Triton clients: registered by handles, read and written by inferences, and open for no
# longer than its regions. On the fake driver; with GMSFS_GPU=real on device 0 of this machine, as `make
# gpu-check` does. The mount is of host memory: it has nothing to do with it.
#
# bats file_tags=slow

# shellcheck disable=SC2154 # output and lines are set by bats' run

load helpers
load python
load triton

prepare() {
    triton_setup
    if [[ ${GMSFS_GPU-} == real ]]; then
        requires nvidia-smi
    else
        fake_gpus 'devices 2' 'memory 64'
        export GMSFS_TEST_DEVICES=2
    fi
    # shellcheck disable=SC2034 # start_mount's
    BACKEND=host
}

teardown() {
    triton_teardown
}

# cuda_tests [TEST]: of test_triton_cuda.py, as this user's or root's.
cuda_tests() {
    export GMSFS_TEST_TRITON=$TRITON GMSFS_TEST_LOG=$T/spawn-$TRITON GMSFS_TEST_REGIONS
    GMSFS_TEST_REGIONS=$M/regions/$(id -u)
    triton_tests "$@"
}

helpers_of() { # PID: its processes that have CUDA memory open
    pgrep -P "$1" -x gmsfs-cuda || true
}

@test "CUDA memory is registered by its handle, and read and written where it is" {
    tritonclient
    start_mount
    start_triton --test-delay 0.1
    cuda_tests test_triton_cuda
    stop_triton
}

@test "a server without a driver serves all but CUDA memory, and says so" {
    requires fake-gpu
    tritonclient
    start_mount
    unset GMSFS_FAKE_CUDA
    start_triton
    triton_tests test_triton_client.Regions.test_where_no_gpu_is_no_cuda_region_is_registered
    assert_eq "$(curl -s "http://$HTTP/v2/cudasharedmemory/status")" '[]'
    assert_eq "$(curl -s -o /dev/null -w '%{http_code}' -X POST "http://$HTTP/v2/cudasharedmemory/unregister")" 200
    stop_triton
}

shares() {
    [[ $(output_of "$SHARER" | wc -l) -ge 2 ]]
}

has_no_helper() {
    [[ -z $(helpers_of "$TRITON") ]]
}

# share_as UID: a client of that user's with 128 bytes of CUDA memory; sets SHARER and HANDLE.
share_as() {
    mkfifo "$T/commands"
    exec 7<>"$T/commands" # which waits for no reader
    python_preload
    spawn "${PRELOAD[@]}" "$PYTHON" "$ROOT/tests/python/cuda_sharer.py" 0 "$T/commands" "$@" 7>&-
    SHARER=$SPAWNED
    printf 'new 128 1\nhandle 0\n' >&7
    wait_until 20 shares || { output_of "$SHARER" >&2; return 1; }
    HANDLE=$(output_of "$SHARER" | sed -n 2p)
}

@test "a server with many variables passes all of them on to its own user's helper" {
    requires curl
    python_with ctypes
    start_mount
    local name variables=()
    for name in {1..200}; do
        variables+=("A_SERVICE_$name=0")
    done
    for name in PATH GMSFS_FAKE_CUDA ASAN_OPTIONS LD_LIBRARY_PATH; do # the driver's variables come last
        [[ -z ${!name-} ]] || variables+=("$name=${!name}")
    done
    triton_spawn env -i "${variables[@]}" "$GMSFS" triton --http 127.0.0.1:0 --grpc 127.0.0.1:0 "$M"
    share_as
    run_logged -0 curl -s -d "{\"raw_handle\":{\"b64\":\"$HANDLE\"},\"device_id\":0,\"byte_size\":128}" \
        "http://$HTTP/v2/cudasharedmemory/region/c/register"
    assert_eq "$output" ''
    exec 7>&-
    stop_triton
}

@test "root's front end opens CUDA memory as the user that owns the region" {
    requires root curl
    python_with ctypes
    start_mount allow_other
    start_triton
    share_as "$TEST_UID"
    local url=http://$HTTP/v2/cudasharedmemory/region/c helper
    local body="{\"raw_handle\":{\"b64\":\"$HANDLE\"},\"device_id\":0,\"byte_size\":128}"
    run_logged -0 as_user curl -s -d "$body" "$url/register"
    assert_eq "$output" ''
    helper=$(helpers_of "$TRITON")
    assert_match "$(grep ^Uid: "/proc/$helper/status")" "^Uid:.$TEST_UID.$TEST_UID.$TEST_UID.$TEST_UID\$"
    assert_match "$(grep NoNewPrivs "/proc/$helper/status")" 1
    assert_eq "$(jq -r .kind "$M/regions/$TEST_UID/c")" cuda
    assert_eq "$(curl -s "http://$HTTP/v2/cudasharedmemory/status")" '[]' # root's own
    assert_match "$(curl -s "$url/status")" 'Unable to find cuda'
    as_user curl -s -d '{"inputs":[{"name":"INPUT0","shape":[1,16],"datatype":"INT32","parameters":{
        "shared_memory_region":"c","shared_memory_byte_size":64}},{"name":"INPUT1","shape":[1,16],
        "datatype":"INT32","parameters":{"shared_memory_region":"c","shared_memory_byte_size":64}}]}' \
        "http://$HTTP/v2/models/simple/infer" >"$T/answer"
    assert_eq "$(jq -c '.outputs[0].data[:3]' "$T/answer")" '[2,4,6]'
    # A user's handles do not open for another user; the fake ones go by the rights of files.
    if [[ ${GMSFS_GPU-} != real ]]; then
        share_as_other
        run_logged -0 as_user curl -s -d "$body" "http://$HTTP/v2/cudasharedmemory/region/d/register"
        assert_match "$output" 'failed to register shared memory region: invalid args'
    fi
    exec 7>&-
    stop_triton
    wait_until 5 process_gone "$helper"
}

share_as_other() { # sets `body` for memory of root's
    exec 7>&-
    wait_exit "$SHARER"
    rm "$T/commands"
    share_as
    body="{\"raw_handle\":{\"b64\":\"$HANDLE\"},\"device_id\":0,\"byte_size\":128}"
}

@test "a helper that has nothing open any more ends, and a driver that fails once is asked again" {
    requires fake-gpu curl
    python_with ctypes
    start_mount
    start_triton
    share_as
    local url=http://$HTTP/v2/cudasharedmemory/region/c
    local body="{\"raw_handle\":{\"b64\":\"$HANDLE\"},\"device_id\":0,\"byte_size\":128}"
    fake_gpus 'devices 2' 'memory 64' 'fail cuDevicePrimaryCtxRetain 2'
    run_logged -0 curl -s -d "$body" "$url/register"
    assert_match "$output" 'out of memory'
    fake_gpus 'devices 2' 'memory 64'
    run_logged -0 curl -s -d "$body" "$url/register"
    assert_eq "$output" ''
    curl -s -X POST "$url/unregister"
    wait_until 20 has_no_helper
    exec 7>&-
    stop_triton
    ! grep -q 'CUDA memory of user' "$T/spawn-$TRITON" || fail 'an end that was wanted is told as a failure'
}

@test "a region outlives its front end, and the next one opens it anew" {
    requires curl
    python_with ctypes
    start_mount
    start_triton
    share_as
    local url=http://$HTTP/v2/cudasharedmemory/region/c
    curl -s -d "{\"raw_handle\":{\"b64\":\"$HANDLE\"},\"device_id\":0,\"byte_size\":128}" "$url/register"
    local helper
    helper=$(helpers_of "$TRITON")
    kill -KILL "$TRITON"
    wait_until 5 process_gone "$helper"
    start_triton
    assert_match "$(curl -s "http://$HTTP/v2/cudasharedmemory/status")" '"name":"c"'
    curl -s -d '{"inputs":[{"name":"INPUT0","shape":[1,16],"datatype":"INT32","parameters":{
        "shared_memory_region":"c","shared_memory_byte_size":64}},{"name":"INPUT1","shape":[1,16],
        "datatype":"INT32","parameters":{"shared_memory_region":"c","shared_memory_byte_size":64}}]}' \
        "http://$HTTP/v2/models/simple/infer" >"$T/answer"
    assert_eq "$(jq -c '.outputs[0].data[:3]' "$T/answer")" '[2,4,6]'
    exec 7>&-
    stop_triton
}

@test "--drain-timeout closes CUDA memory that is unregistered and in use" {
    requires curl
    python_with ctypes
    start_mount
    start_triton --test-delay 30 --drain-timeout 0.5
    share_as
    local url=http://$HTTP/v2/cudasharedmemory/region/c
    curl -s -d "{\"raw_handle\":{\"b64\":\"$HANDLE\"},\"device_id\":0,\"byte_size\":128}" "$url/register"
    spawn curl -s -d '{"inputs":[{"name":"INPUT0","shape":[1,16],"datatype":"INT32","parameters":{
        "shared_memory_region":"c","shared_memory_byte_size":64}},{"name":"INPUT1","shape":[1,16],
        "datatype":"INT32","parameters":{"shared_memory_region":"c","shared_memory_byte_size":64}}]}' \
        "http://$HTTP/v2/models/simple/infer"
    local request=$SPAWNED
    is_used() {
        [[ $(jq .references "$M/regions/$(id -u)/c") == 1 ]]
    }
    wait_until 5 is_used
    curl -s -X POST "$url/unregister"
    wait_exit "$request"
    assert_match "$(output_of "$request")" "Unable to find shared memory region: 'c'"
    wait_until 20 has_no_helper # nothing is open
    exec 7>&-
    stop_triton
}

@test "an allocation of a store on a GPU is a region with bytes that an inference reads" {
    requires curl
    python_with ctypes
    # shellcheck disable=SC2034 # start_mount's
    BACKEND=cuda SIZE=32M
    start_mount
    mkdir -p "$M/weights"
    exec 5<>"$M/weights/lock"
    "$PYTHON" -c 'import struct, sys
sys.stdout.buffer.write(struct.pack("<32i", *range(100, 132)))' >"$M/weights/allocations/a"
    commit_5
    start_triton
    local url=http://$HTTP/v2/systemsharedmemory/region/w request
    run_logged -0 curl -s -d '{"key":"weights/a","byte_size":128}' "$url/register"
    assert_eq "$output" ''
    request='{"inputs":[{"name":"INPUT0","shape":[1,16],"datatype":"INT32","parameters":{
        "shared_memory_region":"w","shared_memory_offset":64,"shared_memory_byte_size":64}},{"name":"INPUT1",
        "shape":[1,16],"datatype":"INT32","parameters":{"shared_memory_region":"w","shared_memory_byte_size":64}}]'
    curl -s -d "$request}" "http://$HTTP/v2/models/simple/infer" >"$T/answer"
    assert_eq "$(jq -c '.outputs[0].data[:3]' "$T/answer")" '[216,218,220]'
    assert_eq "$(jq -c '.outputs[1].data | unique' "$T/answer")" '[16]'
    curl -s -d "$request,\"outputs\":[{\"name\":\"OUTPUT0\",\"parameters\":{\"shared_memory_region\":\"w\",
        \"shared_memory_byte_size\":64}}]}" "http://$HTTP/v2/models/simple/infer" >"$T/answer"
    assert_match "$(jq -r .error "$T/answer")" 'may only be read'
    assert_eq "$(helpers_of "$TRITON")" '' 'helpers that open CUDA memory for it'
    rm "$M/regions/$(id -u)/w"
    stop_triton
}

# patient_triton: one that gives a helper up only after hours, however slow the test is.
patient_triton() {
    export GMSFS_TRITON_PATIENCE=1000
    start_triton
}

@test "a helper that is stopped holds up its own user alone" {
    requires root curl
    python_with ctypes
    start_mount allow_other
    patient_triton
    share_as "$TEST_UID"
    local url=http://$HTTP/v2/cudasharedmemory/region
    local body="{\"raw_handle\":{\"b64\":\"$HANDLE\"},\"device_id\":0,\"byte_size\":128}"
    as_user curl -s -d "$body" "$url/a/register"
    as_user kill -STOP "$(helpers_of "$TRITON")"
    spawn "${AS_USER[@]}" curl -s -d "$body" "$url/b/register"
    local waiting=$SPAWNED
    head -c 64 /dev/zero >"/dev/shm/$GMSFS_TEST_SHM"
    for _ in {1..200}; do
        run_logged -0 curl -s -m $((20 * HANG)) -d "{\"key\":\"$GMSFS_TEST_SHM\",\"byte_size\":64}" \
            "http://$HTTP/v2/systemsharedmemory/region/r/register"
        assert_eq "$output" ''
        curl -s -m $((20 * HANG)) -X POST "http://$HTTP/v2/systemsharedmemory/unregister"
    done
    process_lives "$waiting" || fail "it was answered: $(output_of "$waiting")"
    as_user kill -CONT "$(helpers_of "$TRITON")"
    wait_exit "$waiting"
    assert_eq "$(output_of "$waiting")" ''
    exec 7>&-
    stop_triton
}

# both_inputs REGION: an inference with 64 bytes of it as both inputs
both_inputs() {
    local place="\"parameters\":{\"shared_memory_region\":\"$1\",\"shared_memory_byte_size\":64}"
    echo "{\"inputs\":[{\"name\":\"INPUT0\",\"shape\":[1,16],\"datatype\":\"INT32\",$place},
        {\"name\":\"INPUT1\",\"shape\":[1,16],\"datatype\":\"INT32\",$place}]}"
}

@test "inferences that wait for a helper that is stopped hold up its own user alone" {
    requires root curl
    python_with ctypes
    start_mount allow_other
    patient_triton
    share_as "$TEST_UID"
    as_user curl -s -d "{\"raw_handle\":{\"b64\":\"$HANDLE\"},\"device_id\":0,\"byte_size\":128}" \
        "http://$HTTP/v2/cudasharedmemory/region/a/register"
    head -c 64 /dev/zero >"/dev/shm/$GMSFS_TEST_SHM"
    curl -s -d "{\"key\":\"$GMSFS_TEST_SHM\",\"byte_size\":64}" "http://$HTTP/v2/systemsharedmemory/region/r/register"
    as_user kill -STOP "$(helpers_of "$TRITON")"
    spawn "${AS_USER[@]}" curl -s -Z --parallel-immediate --parallel-max 40 -d "$(both_inputs a)" "http://$HTTP/v2/models/simple/infer#[1-40]"
    local waiting=$SPAWNED
    wait_until 10 is_held_up
    run_logged -0 curl -s -m $((20 * HANG)) -d "$(both_inputs r)" "http://$HTTP/v2/models/simple/infer"
    assert_match "$output" '"model_name":"simple"'
    as_user kill -CONT "$(helpers_of "$TRITON")"
    wait_exit "$waiting"
    assert_eq "$(output_of "$waiting" | grep -o '"model_name":"simple"' | wc -l)" 40
    exec 7>&-
    stop_triton
}

is_held_up() { # threads of the server wait for the helper
    [[ $(find "/proc/$(triton_server | head -1)/task" -mindepth 1 -maxdepth 1 | wc -l) -ge 9 ]]
}

@test "the helper is no command of a user's" {
    run_logged -2 "$GMSFS" triton-cuda
    assert_match "$output" 'started by gmsfs triton, not by hand'
}
