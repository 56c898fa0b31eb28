#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Nothing is left of ended objects: descriptors, mappings, memory.
#
# shellcheck disable=SC2016 # bodies of shells
# bats file_tags=slow

load helpers

SHARER=$BUILD/tests/tools/sharer

sharer() {
    run_logged -0 timeout $((60 * HANG)) "$SHARER" "$@"
}

@test "1000 cycles of attaching leave nothing in client, worker and keeper" {
    start_mount granularity=64K
    worker=$(worker_of "$KEEPER")
    sharer load "$M/weights" 20 1000
    sharer cycle "$M/weights" 20
    keeper_fds=$(fds_of "$KEEPER")
    worker_fds=$(fds_of "$worker")
    sharer cycle "$M/weights" 1000
    wait_until 5 fds_are "$KEEPER" "$keeper_fds"
    wait_until 5 fds_are "$worker" "$worker_fds"
    assert_state weights COMMITTED
}

@test "200 loads leave nothing but the last one" {
    start_mount granularity=64K,size=16M
    worker=$(worker_of "$KEEPER")
    keeper_fds='' worker_fds=''
    for ((i = 0; i < 200; i++)); do
        timeout $((20 * HANG)) "$SHARER" load "$M/weights" 1 1000
        (
            exec 5<>"$M/weights/lock"
            rm "$M/weights/allocations/"*
            echo 1 >"$M/weights/commit"
        )
        if ((i == 5)); then
            wait_until 5 used_is 0
            keeper_fds=$(fds_of "$KEEPER")
            worker_fds=$(fds_of "$worker")
        fi
    done
    wait_until 5 used_is 0
    wait_until 5 fds_are "$KEEPER" "$keeper_fds"
    wait_until 5 fds_are "$worker" "$worker_fds"
    assert_eq "$(jq .generation "$M/weights/info")" 400 generation
}

@test "memory of a store is given back although a sleeper has mapped it once" {
    start_mount granularity=64K
    sharer load "$M/weights" 10 100000
    mkfifo "$T/in"
    spawn bash -c 'exec "$1" sleep "$2" <"$3"' _ "$SHARER" "$M/weights" "$T/in"
    sleeper=$SPAWNED
    exec 6>"$T/in"
    wait_until 10 grep -qx asleep "$T/spawn-$sleeper"
    rmdir "$M/weights"
    wait_until 5 used_is 0
    echo wake >&6
    wait_exit -1 "$sleeper"
    assert_match "$(output_of "$sleeper")" 'Stale file handle'
    exec 6>&-
}

# ---- the worker's heap -------------------------------------------------------------------------

HEAP_MAX_KB=$((64 << 10)) # a layout and its encoding, which have 75 MB together, are not kept twice

entries_document() { # COUNT VALUE_BYTES: for APPLY
    python3 -c 'if True:
        import struct, sys
        count, size = int(sys.argv[1]), int(sys.argv[2])
        out = sys.stdout.buffer
        out.write(b"\x82\xa1v\x01\xa8metadata\xdd" + struct.pack(">I", count))
        for i in range(count):
            row = b"\x94\xa8k%07d\xc0\x00\xc5" % i
            out.write(row + struct.pack(">H", size) + bytes(size))' "$@"
}

heap_is_small() { # PID
    (($(awk '$1 == "Anonymous:" { print $2 }' "/proc/$1/smaps_rollup") <= HEAP_MAX_KB))
}

@test "100,000 entries that are gone again leave the worker little heap, however often they come" {
    requires python3 no-sanitizer
    local ctl=("$BUILD/tests/tools/gmsctl" open "$T/m0/weights/ctl" rw acquire rw 0) worker i
    entries_document 100000 300 >"$T/document"
    start_mount
    worker=$(worker_of "$KEEPER")
    for ((i = 0; i < 2; i++)); do
        run_logged -0 "${ctl[@]}" writefile "$T/document" apply commit
        run_logged -0 "${ctl[@]}" clear commit
    done
    wait_until 5 heap_is_small "$worker"
}
