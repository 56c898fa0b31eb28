#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The health of a GPU, over the fake driver: the effects of its errors on stores, readers and writers.
#
# shellcheck disable=SC2016 # bodies of shells
# bats file_tags=slow

load helpers
load gpu

prepare() {
    fake_gpus
    export GMSFS_GATE=$T/gate # transfers wait while it is there
    start_weights
}

committed() { # STORE
    ctl open "$M/$1/lock" rw alloc $((2 * MIB)) 3 '' '' commit
}

load_anew() { # STORE
    ctl open "$M/$1/lock" rw clear alloc $((2 * MIB)) 3 '' '' commit
}

events_named() { # EVENT: how many
    jq -rs --arg event "$1" 'map(select(.event == $event)) | length' <"$M/events"
}

go_suspect() {
    fake_gpus 'xid 0 48'
    wait_until 10 device_is .health suspect
}

go_lost() {
    fake_gpus 'lost 0'
    wait_until 10 device_is .health lost
}

@test "an error of memory makes stores suspect: no new readers until they are loaded anew" {
    committed weights
    mkdir "$M/empty"
    go_suspect
    assert_eq "$(device_get .health_reason)" 'Xid 48: uncorrectable memory error'
    assert_eq "$(jq .suspect "$W/info")" true
    assert_eq "$(jq .suspect "$M/empty/info")" false
    metric_is 'gmsfs_device_health{health="suspect"}' 1
    metric_is 'gmsfs_store_suspect{store="weights"}' 1
    expect EIO open "$W/lock" r
    expect EIO open "$W/lock" rn
    expect EIO open "$W/auto" rw
    expect EIO open "$W/ctl" rw acquire ro 60000
    expect EIO open "$W/allocations/a000000" r
    assert_state weights COMMITTED
    ls -l "$W/allocations"
    load_anew weights
    wait_until 5 device_is .health ok
    assert_eq "$(device_get .health_reason)" null
    assert_eq "$(jq .suspect "$W/info")" false
    ctl open "$W/lock" r
    assert_eq "$(jq -rs 'map(.event | select(. == "suspect" or . == "healthy")) | join(" ")' \
        <"$M/events")" 'suspect healthy'
}

@test "clear-suspect lets readers into one store, or all of a mount" {
    committed weights
    mkdir "$M/other"
    committed other
    go_suspect
    run_logged -0 "$GMSFS" clear-suspect "$W"
    assert_match "$output" 'is not suspect'
    ctl open "$W/lock" r
    expect EIO open "$M/other/lock" r
    assert_eq "$(device_get .health)" suspect
    run_logged -0 "$GMSFS" clear-suspect -q "$M"
    assert_eq "$output" ''
    ctl open "$M/other/lock" r
    assert_eq "$(device_get .health)" ok
    assert_eq "$(events_named trusted)" 2
    run_logged -0 "$GMSFS" clear-suspect "$M" # again is no error
    run_logged -1 "$GMSFS" clear-suspect "$T"
    assert_match "$output" 'no store of a gmsfs mount'
    run_logged -1 "$GMSFS" clear-suspect "$M/nothing"
    assert_match "$output" 'no store of a gmsfs mount'
    run_logged -2 "$GMSFS" clear-suspect
}

@test "a store that is trusted again has an id again, made of the bytes as they are now" {
    local id

    committed weights
    id=$(sed -n 's/^id //p' "$W/pieces")
    assert_eq "$(jq -r .contents_id "$W/info")" "$id"
    go_suspect
    assert_eq "$(jq -r .contents_id "$W/info")" null
    expect EIO open "$W/pieces" r
    "$GMSFS" clear-suspect -q "$W"
    cat "$W/pieces" >"$T/pieces"
    assert_eq "$(jq -r .contents_id "$W/info")" "$id"
    cmp "$T/pieces" "$W/by-id/$id/pieces"
}

@test "sums that run while a store becomes suspect end, also if it is trusted again meanwhile" {
    committed weights
    echo 0 >"$T/gate"
    spawn bash -c '! cat "$1/pieces" 2>"$2/error"' - "$W" "$T"
    wait_until 5 test -e "$T/gate.held"
    go_suspect
    "$GMSFS" clear-suspect -q "$W"
    rm "$T/gate"
    wait_exit "$SPAWNED"
    grep 'Input/output error' "$T/error"
    assert_eq "$(jq -r .contents_id "$W/info")" null
    cat "$W/pieces" >/dev/null
    [[ $(jq -r .contents_id "$W/info") != null ]]
}

@test "clear-suspect is for root, the user that mounted, and the store's owner" {
    requires root setpriv
    committed weights
    mkdir "$M/other"
    committed other
    chown 65534:65534 "$M/other"
    go_suspect
    local nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups --)
    run_logged -1 "${nobody[@]}" "$GMSFS" clear-suspect "$W"
    assert_match "$output" "only root, the user that mounted it and the store's owner"
    run_logged -1 "${nobody[@]}" "$GMSFS" clear-suspect "$M"
    assert_match "$output" "only root and the user that mounted it can clear all of a mount"
    expect EIO open "$W/lock" r
    run_logged -0 "${nobody[@]}" "$GMSFS" clear-suspect "$M/other"
    ctl open "$M/other/lock" r
}

@test "commands report the fault and the way out, status shows it" {
    committed weights
    go_suspect
    run_logged -1 "$GMSFS" run "$W" -- true
    assert_match "$output" "may be damaged.*gmsfs clear-suspect $W"
    run_logged -0 "$GMSFS" status "$M"
    assert_match "$output" 'suspect \(Xid 48: '
    assert_match "$output" 'weights +COMMITTED SUSPECT'
    run_logged -0 "$GMSFS" status --json "$M"
    assert_eq "$(jq -r '.[0].health' <<<"$output")" suspect
    go_lost
    run_logged -1 "$GMSFS" run -w "$W" -- true
    assert_match "$output" 'device is lost'
    run_logged -1 "$GMSFS" clear-suspect "$M"
    assert_match "$output" 'its device is lost'
    run_logged -0 "$GMSFS" status "$M"
    assert_match "$output" 'lost \(NVML says'
}

@test "a program's own fault changes nothing" {
    committed weights
    fake_gpus 'xid 0 13' 'xid 0 31' 'xid 0 45' 'xid 0 63'
    wait_until 10 grep -q 'Xid 63: .*not affected' "$LOG"
    assert_eq "$(device_get .health)" ok
    ctl open "$W/lock" r
}

@test "errors of another GPU change nothing" {
    stop_mount
    fake_gpus 'devices 2'
    start_weights device=0
    committed weights
    fake_gpus 'devices 2' 'xid 1 48' 'lost 1' 'xid 0 13'
    wait_until 10 grep -q 'Xid 13: ' "$LOG"
    assert_eq "$(device_get .health)" ok
    ctl open "$W/lock" r
}

@test "a lost device ends sessions, empties every store and grants nothing" {
    committed weights
    mkdir "$M/other"
    committed other
    hold open "$M/other/lock" rw
    local writer=$HOLDER
    hold open "$W/lock" r
    wait_for_lock open "$W/lock" rw
    go_lost
    wait_exit "$WAITER"
    assert_match "$(output_of "$WAITER")" ENODEV
    wait_until 10 device_is .used_bytes 0
    assert_state weights EMPTY
    assert_state other EMPTY
    assert_eq "$(grep -c . "$W/sessions")" 0
    expect ENODEV open "$W/lock" r
    expect ENODEV open "$W/lock" rw
    expect ENODEV open "$W/auto" rw
    expect ENODEV open "$W/ctl" rw acquire rw 60000
    expect ENODEV open "$W/allocations/a" rwc
    metric_is 'gmsfs_device_health{health="lost"}' 1
    assert_eq "$(events_named lost)" 1
    assert_eq "$(events_named dropped)" 2
    ls -R "$M" >/dev/null
    cat "$W/info" "$W/layout" "$M/events" >/dev/null
    fake_gpus # the bytes have changed
    expect ENODEV open "$W/lock" rw
    assert_eq "$(device_get .health)" lost
    let_go "$writer" "$HOLDER"
    stop_mount
    start_weights
    committed weights
    assert_eq "$(device_get .health)" ok
}

@test "sessions that a lost device ends are in the audit, without a caller" {
    stop_mount
    start_weights audit="$T/audit"
    committed weights
    hold open "$W/lock" r
    echo "revoke $(waiter_id "$HOLDER")" >"$W/abort"
    assert_state weights COMMITTED
    let_go "$HOLDER"
    hold open "$W/lock" r
    go_lost
    wait_until 10 audit_has_revoked "$HOLDER"
    assert_eq "$(jq -c 'select(.event == "revoked") | [.by_pid, .by_uid]' "$T/audit")" \
        "[$$,0]"$'\n''[null,null]'
    assert_eq "$(jq -c 'select(.event != "revoked" and (has("by_pid") or has("by_uid")))' "$T/audit")" ''
    let_go "$HOLDER"
}

audit_has_revoked() { # PID
    jq -e -s --argjson pid "$1" 'any(.[]; .event == "revoked" and .pid == $pid)' "$T/audit"
}

@test "a session on a lost device is told that it is over" {
    exec 5<>"$W/lock"
    truncate -s 2M "$W/allocations/a"
    fake_gpus 'xid 0 79'
    wait_until 10 device_is .health lost
    wait_until 10 device_is .used_bytes 0
    run_logged ! bash -c 'echo 1 >"$1/commit"' _ "$W"
    exec 5>&-
    assert_state weights EMPTY
    assert_match "$(cat "$LOG")" 'Xid 79: the GPU has fallen off the bus: the GPU is lost'
}

@test "without NVML health is not told, and the driver is believed when asked twice" {
    stop_mount
    mkdir "$T/only-cuda"
    cp "$BUILD/tests/fake_cuda/libcuda.so.1" "$T/only-cuda"
    export LD_LIBRARY_PATH=$T/only-cuda
    start_weights
    committed weights
    printf 'xid 0 48\n' >"$GMSFS_FAKE_CUDA/control"
    assert_match "$(cat "$LOG")" "the GPU's errors are unknown"
    ctl open "$W/lock" r
    assert_eq "$(device_get .health)" ok
    printf 'lost 0\n' >"$GMSFS_FAKE_CUDA/control"
    expect ENODEV open "$W/lock" rw alloc "$MIB" 1 a ''
    wait_until 10 device_is .health lost
    assert_eq "$(device_get .health_reason)" 'the driver says twice that there is no device'
    wait_until 10 device_is .used_bytes 0
}

@test "host memory is always well" {
    stop_mount
    # shellcheck disable=SC2034 # start_mount reads it
    BACKEND=host
    start_mount
    committed weights
    assert_eq "$(device_get .health)" ok
    run_logged -0 "$GMSFS" clear-suspect "$M"
}
