#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The front end for clients of NVIDIA Triton, with NVIDIA's own client and with clients that mean no
# good. Where no mount is needed the registry is a table in memory (tests/tools/triton_table).
#
# bats file_tags=slow

load helpers
load python
load triton

prepare() { triton_setup; }

teardown() {
    triton_teardown
}

@test "halves, floods, resets and connections that do not read harm no other client" {
    python_with ctypes
    start_table
    GMSFS_TEST_SERVER=$(triton_server)
    export GMSFS_TEST_SERVER
    triton_tests test_triton_raw
    stop_triton
}

@test "requests, answers and the pauses between them have time limits" {
    python_with ctypes
    export GMSFS_TRITON_HASTE=60
    start_table 3000
    triton_tests test_triton_times
    stop_triton
}

# tokens: a file of them, of the other user's
tokens() {
    export GMSFS_TEST_TOKEN=0123456789abcdef0123456789abcdef GMSFS_TEST_UID=$TEST_UID
    (umask 077 && printf '# of the tests\n\n%s %s\n' "$GMSFS_TEST_TOKEN" "$TEST_UID" >"$T/tokens")
}

@test "connections of unknown users make room, and take nothing from known users" {
    requires root netns
    python_with ctypes
    tokens
    ulimit -n "$(ulimit -Hn)"
    run_logged -0 timeout $((120 * HANG)) unshare --net "$PYTHON" "$ROOT/tests/python/test_triton_strangers.py" \
        "$BUILD/tests/tools/triton_table" "$T/tokens"
    assert_match "$output" 'OK'
}

@test "connections that wait for a stopped opener keep no other one out" {
    python_with ctypes
    ulimit -n 1100 # for 518 connections, half of them for one user
    start_table
    kill -STOP "$TRITON" # the opener
    spawn "$PYTHON" -c 'from triton_raw import Http
held = []
for _ in range(150):
    held.append(Http())
    held[-1].request("GET", "/v2/systemsharedmemory/status")
print("asked", flush=True)
assert Http().ask("GET", "/v2/health/live")[0] == 200
print("served", flush=True)
assert {http.answer()[0] for http in held} == {200}'
    local client=$SPAWNED
    wait_until 20 grep -q asked "$T/spawn-$client"
    wait_until 20 grep -q served "$T/spawn-$client"
    kill -CONT "$TRITON"
    wait_exit "$client"
    output_of "$client"
    assert_eq "$status" 0 'the client'
    stop_triton
}

ask() { # METHOD PATH: the status that HTTP answers
    curl -s -o /dev/null -w '%{http_code}' -X "$1" "http://$HTTP$2"
}

@test "a user's own front end serves him alone" {
    requires root curl
    start_table_as_user
    assert_eq "$(as_user curl -s "http://$HTTP/v2/systemsharedmemory/status")" '[]'
    run_logged -0 curl -s "http://$HTTP/v2/systemsharedmemory/status"
    assert_match "$output" 'serves only the user that runs it, not user 0'
    assert_eq "$(ask GET /v2/health/live)" 200
    stop_triton
}

@test "the file of tokens is its owner's alone, and well formed" {
    tokens
    chmod 640 "$T/tokens"
    run_logged -1 timeout $((10 * HANG)) "$BUILD/tests/tools/triton_table" 127.0.0.1:0 127.0.0.1:0 0 "$T/tokens"
    assert_match "$output" 'must be a regular file of this user with mode 0600'
    chmod 600 "$T/tokens"
    local line
    for line in 'short 0' '0123456789abcdef' '0123456789abcdef 0 1' '0123456789abcdef x' '0123456789abcdef -1' \
        '0123456789abcdef 4294967295'; do
        echo "$line" >"$T/tokens"
        run_logged -1 timeout $((10 * HANG)) "$BUILD/tests/tools/triton_table" 127.0.0.1:0 127.0.0.1:0 0 "$T/tokens"
        assert_match "$output" 'tokens: line 1: '
    done
}

@test "an address that is not of the loopback needs tokens, and one that is taken says so" {
    run_logged -1 timeout $((10 * HANG)) "$BUILD/tests/tools/triton_table" 0.0.0.0:0 127.0.0.1:0
    assert_match "$output" 'its clients need tokens: give --token-file'
    run_logged -1 timeout $((10 * HANG)) "$BUILD/tests/tools/triton_table" 127.0.0.1 127.0.0.1:0
    assert_match "$output" "'127.0.0.1' is not ADDRESS:PORT"
    start_table
    run_logged -1 timeout $((10 * HANG)) "$BUILD/tests/tools/triton_table" "$HTTP" 127.0.0.1:0
    assert_match "$output" 'another server is there, name another port'
    stop_triton
}

@test "gRPC on a unix socket knows its peer, and takes a dead socket over but no live one" {
    python_with ctypes
    triton_spawn "$BUILD/tests/tools/triton_table" 127.0.0.1:0 "unix:$T/s"
    [[ -S $T/s ]]
    assert_eq "$(stat -c %a "$T/s")" "$( ((EUID)) && echo 600 || echo 666)" 'the mode of the socket'
    run_logged -1 timeout $((10 * HANG)) "$BUILD/tests/tools/triton_table" 127.0.0.1:0 "unix:$T/s"
    assert_match "$output" 'Address already in use'
    python -c 'from triton_raw import H2
with H2() as h2:
    assert h2.answer(h2.call("SystemSharedMemoryStatus"))
    assert b"\x08\x01" in h2.answer(h2.call("ServerReady"))'
    kill -KILL "$TRITON"
    wait_exit "$TRITON"
    [[ -S $T/s ]]
    triton_spawn "$BUILD/tests/tools/triton_table" 127.0.0.1:0 "unix:$T/s"
    stop_triton
    [[ ! -e $T/s ]]
}

@test "a path that is no socket, or too long for one, is refused and left alone" {
    echo mine >"$T/file"
    ln -s "$T/nowhere" "$T/link"
    mkdir "$T/dir"
    local name
    for name in file link dir; do
        run_logged -1 timeout $((10 * HANG)) "$BUILD/tests/tools/triton_table" 127.0.0.1:0 "unix:$T/$name"
        assert_match "$output" 'the file there is not a socket, name another path'
    done
    assert_eq "$(cat "$T/file")" mine
    [[ -L $T/link && -d $T/dir ]]
    for name in '' "$(printf '%108s' '' | tr ' ' x)"; do
        run_logged -1 timeout $((10 * HANG)) "$BUILD/tests/tools/triton_table" 127.0.0.1:0 "unix:$name"
        assert_match "$output" 'a path has 1 to 107 bytes'
    done
}

@test "a token that is taken out of the file counts until the next start, and no signal reads it again" {
    requires root curl
    tokens
    start_table 0 "$T/tokens"
    asks() { curl -s -o /dev/null -w '%{http_code}' -H "gmsfs-session: $GMSFS_TEST_TOKEN" "http://$HTTP/v2/systemsharedmemory/status"; }
    assert_eq "$(asks)" 200
    : >"$T/tokens"
    assert_eq "$(asks)" 200
    kill -HUP "$TRITON"
    wait_exit -0 "$TRITON" 10
    start_table 0 "$T/tokens"
    assert_eq "$(asks)" 401
    stop_triton
}

@test "the end: pending requests are answered, idle clients are let go, and nothing stays" {
    python_with ctypes
    start_table 1000
    spawn "$PYTHON" -c 'import json, time
from triton_raw import Http
idle, busy = Http(), Http()
assert idle.ask("GET", "/v2")[0] == 200
one = {"shape": [1, 16], "datatype": "INT32", "data": [1] * 16}
busy.request("POST", "/v2/models/simple/infer", json.dumps({"inputs": [
    dict(one, name="INPUT0"), dict(one, name="INPUT1")]}).encode())
print("asked", flush=True)
status, headers, body = busy.answer()
assert (status, headers["connection"]) == (200, "close"), (status, headers)
assert idle.is_closed() and busy.is_closed()'
    local client=$SPAWNED server
    wait_until 10 grep -q asked "$T/spawn-$client"
    server=$(triton_server)
    stop_triton
    wait_exit "$client"
    output_of "$client"
    assert_eq "$status" 0 'the client'
    process_gone "$server"
}

@test "when one of the two processes dies the other one ends as well" {
    start_table
    local server
    server=$(triton_server)
    kill -KILL "$server"
    wait_exit -1 "$TRITON"
    assert_match "$(output_of "$TRITON")" 'ended by signal 9'
    start_table
    server=$(triton_server)
    kill -KILL "$TRITON"
    wait_until 5 process_gone "$server"
}

# ---- over a mount ----------------------------------------------------------------------------

@test "tritonclient, http, grpc and aio of both: regions, inference on them, and Triton's own errors" {
    tritonclient
    start_mount
    start_triton
    triton_tests test_triton_client
    stop_triton
    assert_eq "$(ls "$M/regions" 2>/dev/null)" ''
}

@test "over a mount a region that is unregistered in use serves until its last request ends" {
    tritonclient
    start_mount
    start_triton --test-delay 1
    triton_tests test_triton_drain
    stop_triton
}

@test "--drain-timeout bounds how long a region that is unregistered serves" {
    tritonclient
    start_mount
    start_triton --test-delay 20 --drain-timeout 1
    GMSFS_TEST_REGIONS=$M/regions/$(id -u)
    export GMSFS_TEST_REGIONS
    triton_tests test_triton_bound
    stop_triton
}

# bats test_tags=quick
@test "over a mount every user has regions of his own" {
    requires root
    python_with ctypes
    tokens
    ulimit -n "$(ulimit -Hn)"
    start_mount allow_other
    start_triton --token-file "$T/tokens"
    triton_tests test_triton_users
    assert_eq "$(stat -c %u "/proc/$(triton_server)/maps")" 0 'the owner of a private file'
    assert_match "$(grep ^Uid: "/proc/$(triton_server)/status")" "$(id -u nobody)"
    stop_triton
}

# publish NAME VALUES...: a store of 32-bit integers in one allocation `a`, committed
publish() {
    local store=$M/$1
    shift
    mkdir -p "$store"
    exec 5<>"$store/lock"
    "$PYTHON" -c 'import struct, sys
sys.stdout.buffer.write(struct.pack(f"<{len(sys.argv) - 1}i", *map(int, sys.argv[1:])))' "$@" >"$store/allocations/a"
    echo 1 >"$store/commit"
    exec 5>&-
}

# bats test_tags=quick
@test "an allocation of a store is a region by its name, read-only, under a reader's lock" {
    tritonclient
    start_mount
    publish weights $(seq 100 131)
    start_triton
    python -c '
import numpy as np
from triton_support import Client, TritonTest
for kind in ("http", "grpc"):
    with Client(kind) as client:
        client.register_system_shared_memory("w", "weights/a", 128)
        inputs, outputs = client.tensors()
        inputs[0].set_shared_memory("w", 64)
        inputs[1].set_shared_memory("w", 64, offset=64)
        result = client.infer("simple", inputs)
        np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), np.full((1, 16), -16))
        outputs[0].set_shared_memory("w", 64)
        try:
            client.infer("simple", inputs, outputs=outputs)
            raise SystemExit("written")
        except Exception as error:
            assert "may only be read" in str(error), error
        assert client.status()["w"]["key"] == "weights/a"
        if kind == "http":
            client.unregister_system_shared_memory("w")
        for key in ("weights/b", "gone/a", "weights/a/b", "weights/"):
            try:
                client.register_system_shared_memory("x", key, 64)
                raise SystemExit(key)
            except Exception as error:
                assert "Unable to open shared memory region" in str(error), error'
    assert_state weights RO
    grep -qF 'region\040w' "$M/weights/sessions"
    rm "$M/regions/$(id -u)/w"
    assert_state weights COMMITTED
    stop_triton
}

@test "a region of a store's allocation takes the rights of its user" {
    requires root
    python_with ctypes
    start_mount allow_other
    publish weights $(seq 32)
    chmod 700 "$M/weights"
    start_triton
    local url=http://$HTTP/v2/systemsharedmemory/region/w body='{"key":"weights/a","byte_size":64}'
    run_logged -0 as_user curl -s -d "$body" "$url/register"
    assert_match "$output" 'Unable to open shared memory region'
    chmod 755 "$M/weights"
    run_logged -0 as_user curl -s -d "$body" "$url/register"
    assert_eq "$output" ''
    run_logged -0 as_user curl -s "$url/status"
    assert_match "$output" '"key":"weights/a"'
    assert_eq "$(jq -r .key "$M/regions/$TEST_UID/w")" weights/a
    run_logged -0 as_user curl -s -X POST "$url/unregister"
    stop_triton
}

@test "an ordinary user serves himself on a mount of his own" {
    requires user-fuse
    # shellcheck disable=SC2034 # start_mount looks at it
    MOUNT_VIA=("${AS_USER[@]}")
    start_mount
    triton_spawn "${AS_USER[@]}" "$GMSFS" triton --http 127.0.0.1:0 --grpc none --test-models "$M"
    as_user truncate -s 128 "/dev/shm/$GMSFS_TEST_SHM"
    local url=http://$HTTP/v2/systemsharedmemory body="{\"key\":\"$GMSFS_TEST_SHM\",\"byte_size\":128}"
    run_logged -0 as_user curl -s -d "$body" "$url/region/r/register"
    assert_eq "$output" ''
    run_logged -0 as_user cat "$M/regions/$TEST_UID/r"
    assert_match "$output" "\"key\":.*$GMSFS_TEST_SHM"
    run_logged -0 curl -s -d "$body" "$url/region/r/register" # root
    assert_match "$output" 'serves only the user that runs it'
    run_logged -0 as_user curl -s -X POST "$url/unregister"
    stop_triton
    expect_death # its socket is bound through the mount
    run_logged -0 as_user "$GMSFS" umount "$M"
}

@test "a front end that is killed leaves its regions, and the next one serves them" {
    python_with ctypes
    start_mount
    start_triton --test-delay 30
    head -c 128 /dev/zero >"/dev/shm/$GMSFS_TEST_SHM"
    local url=http://$HTTP/v2/systemsharedmemory/region
    curl -s -d "{\"key\":\"$GMSFS_TEST_SHM\",\"byte_size\":128}" "$url/kept/register"
    rm "/dev/shm/$GMSFS_TEST_SHM"
    infer_by kept
    wait_until 5 references_are kept 1
    kill -KILL "$TRITON"
    wait_until 5 references_are kept 0
    start_triton
    run_logged -0 curl -s "http://$HTTP/v2/systemsharedmemory/status"
    assert_match "$output" '"name":"kept"'
    rm "$M/regions/$(id -u)/kept"
    run_logged -0 curl -s "http://$HTTP/v2/systemsharedmemory/status"
    assert_eq "$output" '[]'
    stop_triton
}

references_are() { # NAME COUNT
    [[ $(jq .references "$M/regions/$(id -u)/$1") == "$2" ]]
}

@test "a thousand registrations, inferences and unregistrations leave nothing behind" {
    python_with ctypes
    start_mount
    start_triton
    head -c 128 /dev/zero >"/dev/shm/$GMSFS_TEST_SHM"
    python "$ROOT/tests/python/triton_rounds.py" "$HTTP" "$GMSFS_TEST_SHM" 1000 \
        "$TRITON" "$(triton_server)" "$KEEPER" "$(worker_of "$KEEPER")"
    [[ ! -e $M/regions/$(id -u) ]]
    stop_triton
}

@test "a mount that is drained, and one that is gone, are told from a server that is" {
    python_with ctypes
    start_mount
    start_triton
    assert_eq "$(ask GET /v2/health/ready)" 200
    head -c 128 /dev/zero >"/dev/shm/$GMSFS_TEST_SHM"
    spawn "$GMSFS" drain "$M"
    local drain=$SPAWNED
    local url=http://$HTTP/v2/systemsharedmemory/region/a body="{\"key\":\"$GMSFS_TEST_SHM\",\"byte_size\":128}"
    is_draining() { [[ $(device_get .draining) == true ]]; }
    # Before that the registration would be taken.
    wait_until 10 is_draining
    assert_match "$(curl -s -d "$body" "$url/register")" 'being drained'
    wait_exit "$drain"
    expect_death
    kill -KILL "$KEEPER" "$(worker_of "$KEEPER")"
    wait_until_any 5 process_gone "$KEEPER"
    assert_eq "$(ask GET /v2/health/live)" 200
    assert_eq "$(ask GET /v2/health/ready)" 400
    assert_eq "$(ask GET /v2/systemsharedmemory/status)" 503
    umount "$M" || fusermount3 -u "$M"
    start_mount '' "$M"
    assert_eq "$(ask GET /v2/health/ready)" 200
    assert_eq "$(ask GET /v2/systemsharedmemory/status)" 200
    stop_triton
}

# infer_by REGION: an inference by a region that has 128 bytes, in the background.
infer_by() {
    spawn curl -s -d '{"inputs":[{"name":"INPUT0","shape":[1,16],"datatype":"INT32","parameters":{
        "shared_memory_region":"'"$1"'","shared_memory_byte_size":64}},{"name":"INPUT1","shape":[1,16],
        "datatype":"INT32","parameters":{"shared_memory_region":"'"$1"'","shared_memory_byte_size":64}}]}' \
        "http://$HTTP/v2/models/simple/infer"
}

# A front end whose inferences do not end while $GMSFS_TRITON_GATE exists.
hold_inferences() {
    export GMSFS_TRITON_GATE=$T/gate
    touch "$GMSFS_TRITON_GATE"
    start_triton --test-delay 0.1
}

@test "a mount that hangs holds up only requests that need it" {
    python_with ctypes
    start_mount
    hold_inferences
    head -c 128 /dev/zero >"/dev/shm/$GMSFS_TEST_SHM"
    local url=http://$HTTP/v2/systemsharedmemory worker
    worker=$(worker_of "$KEEPER")
    curl -s -d "{\"key\":\"$GMSFS_TEST_SHM\",\"byte_size\":128}" "$url/region/r/register"
    infer_by r
    local inference=$SPAWNED
    wait_until 5 references_are r 1
    kill -STOP "$worker"
    rm "$GMSFS_TRITON_GATE"
    spawn curl -s -w '%{http_code}' "$url/status"
    local status_of_all=$SPAWNED
    for _ in {1..20}; do # also while that inference wants to let its region go
        assert_eq "$(ask GET /v2/health/live)" 200
        sleep 0.1
    done
    process_lives "$inference"
    process_lives "$status_of_all"
    kill -CONT "$worker"
    wait_exit "$inference"
    assert_match "$(output_of "$inference")" '"model_name":"simple"'
    wait_exit "$status_of_all"
    assert_match "$(output_of "$status_of_all")" '"name":"r".*200$'
    curl -s -X POST "$url/unregister"
    kill -STOP "$worker"
    spawn curl -sv "$url/status"
    wait_until 5 grep -q "^> GET" "$T/spawn-$SPAWNED"
    assert_eq "$(ask GET /v2/health/live)" 200 # behind it: it was read
    kill -TERM "$TRITON"
    wait_exit "$TRITON" 20 # as long as the mount hangs
    kill -CONT "$worker"
    assert_match "$(output_of "$TRITON")" 'the mount does not answer'
    assert_eq "$status" 1
}

@test "the command refuses bad arguments, and paths that are no mount" {
    start_mount
    cli -2 triton
    cli -2 triton --http none --grpc none "$M"
    cli -2 triton --test-delay x "$M"
    cli -2 triton --drain-timeout -1 "$M"
    cli -1 triton --http 127.0.0.1:0 --grpc none "$T"
    assert_match "$output" 'not the top of a gmsfs mount'
    assert_eq "${#lines[@]}" 1 lines
    cli -1 triton --http 127.0.0.1:0 --grpc none "$T/gone"
    assert_match "$output" "No such file .*'gmsfs status' lists"
}

@test "a front end goes on with a mount whose worker was replaced: regions, references and inferences stay" {
    python_with ctypes
    start_mount
    hold_inferences
    head -c 128 /dev/zero >"/dev/shm/$GMSFS_TEST_SHM"
    local url=http://$HTTP/v2/systemsharedmemory body="{\"key\":\"$GMSFS_TEST_SHM\",\"byte_size\":128}" i
    curl -s -d "$body" "$url/region/first/register"
    infer_by first
    wait_until 5 references_are first 1
    for i in 1 2; do
        kill -KILL "$(worker_of "$KEEPER")"
        wait_until_any 10 resumed_times "$i"
    done
    references_are first 1
    rm "$GMSFS_TRITON_GATE"
    wait_exit "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" '"model_name":"simple"'
    wait_until 5 references_are first 0
    for i in 3 4 5; do
        kill -KILL "$(worker_of "$KEEPER")"
        case $i in # at once, by any server
            3) assert_eq "$(curl -s -d "$body" "$url/region/second/register")" '' ;;
            4) assert_eq "$(ask GET /v2/health/ready)" 200 ;;
            5) infer_by second && wait_exit "$SPAWNED" && assert_match "$(output_of "$SPAWNED")" '"model_name"' ;;
        esac
        wait_until_any 10 resumed_times "$i"
    done
    run_logged -0 curl -s "$url/status"
    assert_match "$output" '"name":"first".*"name":"second"'
    kill -KILL "$(worker_of "$KEEPER")"
    assert_eq "$(curl -s -X POST "$url/unregister")" ''
    assert_eq "$(curl -s "$url/status")" '[]'
    stop_triton
}

resumed_times() { # COUNT
    [[ $(grep -c ' serves, ' "$LOG") -ge $1 ]]
}
