#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# A replacement worker over the fake driver, when the driver hangs or fails: existing memory is served;
# only requests that make memory wait or fail.

load helpers
load gpu

prepare() {
    fake_gpus
    start_weights
    ctl open "$W/lock" rw alloc $((2 * MIB)) 3 '' '' put key old none 0 commit
}

# resume CONTROL: another worker goes on, on a machine that is as these lines say.
resume() {
    fake_gpus "$@"
    kill_worker
}

jobs_are() { # COUNT
    grep -qx "gmsfs_jobs_in_flight $1" "$M/metrics"
}

serves_what_exists() { # VALUE SLOT: the one changes, the other goes
    assert_state weights COMMITTED
    assert_eq "$(device_get .granularity_bytes)" $((2 * MIB)) 'the granularity'
    ctl open "$W/lock" r export 0 0 connect "$M" redeem last 16
    ctl open "$W/lock" rw put key "$1" none 0 commit
    assert_eq "$(<"$W/metadata/key")" "$1" 'the entry'
    ctl open "$W/lock" rw free "$2" commit
}

@test "a driver that hangs holds up makers of memory only, and they go on when it answers" {
    resume 'hold cuInit'
    serves_what_exists new 2
    spawn "$GMSCTL" open "$W/lock" rw alloc $((2 * MIB)) 1 b '' commit say finished
    wait_until 5 jobs_are 1
    assert_state weights RW
    assert_eq "$(output_of "$SPAWNED")" '' 'output of the writer'
    fake_gpus
    wait_exit "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" finished
    assert_state weights COMMITTED
}

@test "a driver that does not open is an error for makers of memory, and not the worker's end" {
    local worker
    resume 'fail cuInit 999'
    worker=$(worker_of "$KEEPER")
    serves_what_exists new 2
    expect EIO open "$W/lock" rw alloc $((2 * MIB)) 1 b ''
    serves_what_exists newer 1
    assert_eq "$(device_get .health)" ok
    assert_eq "$(worker_of "$KEEPER")" "$worker" 'the worker'
    assert_match "$(<"$LOG")" 'cuInit: CUDA_ERROR_UNKNOWN'
    resume ''
    ctl open "$W/lock" rw alloc $((2 * MIB)) 1 b '' commit
}
