# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# For tests of the front end for Triton clients, over a mount (gmsfs triton) or over a table in memory
# (tests/tools/triton_table), which needs none. Needs helpers.bash and python.bash.

TRITONCLIENT=${GMSFS_TRITONCLIENT:-${XDG_CACHE_HOME:-$HOME/.cache}/gmsfs/tritonclient}

triton_setup() {
    python_setup
    TRITON=''
    export GMSFS_TEST_SHM=gmsfs-test-${T##*/}
}

# Removes objects of shared memory that a client has left behind.
triton_teardown() {
    rm -f /dev/shm/"$GMSFS_TEST_SHM"*
    common_teardown
}

# python_with for NVIDIA's client, which scripts/deps has installed together with its Python.
tritonclient() {
    requires tritonclient || return 1
    PYTHON=$(cat "$TRITONCLIENT/python")
    export PYTHONPATH=$TRITONCLIENT:$PYTHONPATH
}

# start_table [DELAY_MS [TOKEN_FILE]]: sets HTTP and GRPC to its addresses.
start_table() {
    triton_spawn "$BUILD/tests/tools/triton_table" 127.0.0.1:0 127.0.0.1:0 "$@"
}

start_table_as_user() {
    triton_spawn "${AS_USER[@]}" "$BUILD/tests/tools/triton_table" 127.0.0.1:0 127.0.0.1:0
}

# start_triton [OPTION...]: gmsfs triton on $M, on free ports.
start_triton() {
    triton_spawn "$GMSFS" triton --http 127.0.0.1:0 --grpc 127.0.0.1:0 --test-models "$@" "$M"
}

triton_spawn() {
    ASAN_OPTIONS=${GMSFS_DAEMON_ASAN_OPTIONS:-${ASAN_OPTIONS:-}} spawn "$@"
    TRITON=$SPAWNED
    wait_until 10 triton_serves || {
        output_of "$TRITON" >&2
        return 1
    }
    HTTP=$(output_of "$TRITON" | sed -n 's/.*serving .*: http \([^,]*\).*/\1/p')
    GRPC=$(output_of "$TRITON" | sed -n 's/.*serving .* grpc \([^,]*\).*/\1/p')
    export GMSFS_TEST_HTTP=$HTTP GMSFS_TEST_GRPC=$GRPC
}

triton_serves() {
    output_of "$TRITON" | grep -q serving || process_gone "$TRITON"
}

# stop_triton: it ends by itself, cleanly, and its log shows no bug.
stop_triton() {
    kill -TERM "$TRITON"
    wait_exit -0 "$TRITON" 10
    scan_log "$T/spawn-$TRITON"
}

# triton_tests FILE [TEST]: all its tests pass, against the server.
triton_tests() {
    python -m unittest -v "$@"
    assert_match "$output" 'OK'
}

# Prints the process that serves clients.
triton_server() {
    worker_of "$TRITON" | sed -n 1p # the oldest child; a look-up of a user may run beside it
}
