# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154 # output, lines and status are set by bats' run
#
# For tests that speak to the GMS sockets of a mount, with tests/python/gms.py. Needs python.bash.

GMS_UUID=8f3c0d5e-5a57-4b0e-9c11-3d0e6a1f2b4c

# start_gms_mount [OPTIONS [MOUNTPOINT]]: with sockets in $SOCKETS, which are for ordinal 0 unless OPTIONS say so.
start_gms_mount() {
    local opts=gms,gms_dir=$SOCKETS
    python_with msgpack
    case ,${1-}, in *,gms_ordinal=*) ;; *) opts+=,gms_ordinal=0 ;; esac
    [[ $BACKEND != host ]] || opts+=,uuid=$GMS_UUID
    start_mount "$opts${1:+,$1}" "${@:2}" || return 1
    wait_until 10 test -S "$(v1_socket weights)"
}

gms_setup() {
    python_setup
    SOCKETS=$T/s
    mkdir "$SOCKETS"
}

v0_socket() { # STORE
    compgen -G "$SOCKETS/gms_GPU-*_$1.sock"
}

v1_socket() { # STORE
    compgen -G "$SOCKETS/gms_[0-9]_$1.sock"
}

gms_command() { # v0|v1 STORE OP...: sets COMMAND
    python_preload # for GPU memory the client loads a library of ours, the fake driver
    COMMAND=("${PRELOAD[@]}" "$PYTHON" "$ROOT/tests/python/gms.py" "$1" "$("$1_socket" "$2")" "${@:3}")
}

gms() { # v0|v1 STORE OP...
    gms_command "$@"
    run_logged -0 timeout $((30 * HANG)) "${COMMAND[@]}"
}

# in_background v0|v1 STORE OP...: as gms, and sets CLIENT
in_background() {
    gms_command "$@"
    spawn "${COMMAND[@]}"
    CLIENT=$SPAWNED
}

# gms_expect LINE v0|v1 STORE OP...: the last of the operations fails with this message.
gms_expect() {
    local want=$1
    gms_command "${@:2}"
    run_logged -1 timeout $((30 * HANG)) "${COMMAND[@]}"
    assert_eq "${lines[-1]-}" "$want" answer
}

# hold_gms v0|v1 STORE OP...: does the operations in the background, says "held" and stays; sets HOLDER.
hold_gms() {
    gms_command "$@" say held pause
    spawn "${COMMAND[@]}"
    HOLDER=$SPAWNED
    wait_until 10 grep -qx held "$T/spawn-$HOLDER" || {
        output_of "$HOLDER"
        return 1
    }
}

# gms_tests FILE: all tests of a file of tests/python pass, on one mount for all of them
gms_tests() {
    start_gms_mount "size=256M,writer_patience=$((2 * SLOW)),alloc_timeout=2"
    GMSFS_TEST_MOUNT=$M GMSFS_TEST_GMS_DIR=$SOCKETS GMSFS_TEST_WORKER=$(worker_of "$KEEPER") \
        GMSFS_TEST_KEEPER=$KEEPER GMSFS_TEST_SLOW=$SLOW python -m unittest -v "$1"
    assert_match "$output" 'OK'
}
