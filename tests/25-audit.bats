#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The audit: a file with a line for every event, in spite of faults of its disk. And signals without a
# meaning for a mount.
#
# bats file_tags=slow
# shellcheck disable=SC2034,SC2004 # helpers.bash declares and reads KEEPER_OF

load helpers

audit_has() { # FILE FILTER: some line for which this is true
    jq -e -s "any(.[]; $2)" "$1" >/dev/null
}

audit_counts() { # FILE EVENT COUNT
    [[ $(grep -c "\"$2\"" "$1") -eq $3 ]]
}

did() { # EVENT COMMAND...: a line of this event has the command's process and our user
    local event=$1
    shift
    spawn "$@"
    wait_exit -0 "$SPAWNED"
    wait_until 5 audit_has "$T/audit" \
        ".event == \"$event\" and .pid == $SPAWNED and .uid == $(id -u)"
}

# Starts a mount whose audit was renamed, and whose child that opens it again hangs while $T/hold is there.
hold_audit() {
    export GMSFS_HOLD_AUDIT=$T/hold
    touch "$T/hold"
    start_mount size=16M,audit="$T/audit"
    mv "$T/audit" "$T/audit.1"
    kill -HUP "$KEEPER"
    wait_until 5 bash -c "(( \$(wc -w <'/proc/$KEEPER/task/$KEEPER/children') == 2 ))"
}

some_are_dropped() {
    (($(awk '/^gmsfs_audit_dropped_total/ { print $2 }' "$M/metrics") > 0))
}

@test "grants, ends and revocations are lines, with their callers" {
    start_weights size=16M,audit="$T/audit"
    commit_store
    hold open "$W/lock" r
    echo "revoke $(waiter_id "$HOLDER")" >"$W/abort"
    assert_state weights COMMITTED
    wait_until 5 audit_has "$T/audit" '.event == "revoked"'
    audit_has "$T/audit" '.event == "rw_connected" and .uid == 0 and .comm == "gmsctl" and .pid > 1'
    audit_has "$T/audit" '.event == "committed" and .generation == 1'
    audit_has "$T/audit" ".event == \"ro_connected\" and .pid == $HOLDER and .session > 0"
    audit_has "$T/audit" ".event == \"revoked\" and .pid == $HOLDER and .by_pid == $$ and .by_uid == 0"
    audit_has "$T/audit" ".event == \"ro_disconnected\" and .pid == $HOLDER"
    assert_eq "$(stat -c %a "$T/audit")" 600
}

@test "lines name the user that makes, renames and removes a store" {
    start_mount size=16M,audit="$T/audit"
    did store_created mkdir "$M/first"
    did store_created mkdir "$M/second"
    did store_renamed mv -T "$M/first" "$M/third"
    did store_renamed "$GMSCTL" exchange "$M/second" "$M/third"
    did store_removed mv -T "$M/third" "$M/second" # replaces it
    did store_removed rmdir "$M/second"
}

@test "many grants by one release all have their line" {
    local readers=600
    start_weights size=16M,audit="$T/audit"
    commit_store
    hold open "$W/lock" rw
    spawn "$BUILD/tests/tools/many_waiters" "$W" "$readers"
    wait_until 20 waiters_are weights "$readers"
    kill "$HOLDER"
    wait_exit "$SPAWNED" 20
    wait_until 10 audit_counts "$T/audit" ro_connected "$readers"
    assert_eq "$(grep -c '"lost"' "$T/audit" || true)" 0
}

@test "SIGHUP to the keeper opens the file again" {
    start_mount size=16M,audit="$T/audit"
    mkdir "$M/before"
    wait_until 5 audit_has "$T/audit" '.store == "before"'
    mv "$T/audit" "$T/audit.1"
    kill -HUP "$(keeper_of "$M")"
    wait_until 5 bash -c "rmdir '$M/before'; mkdir '$M/before'; [[ -s '$T/audit' ]]"
    mkdir "$M/after"
    wait_until 5 audit_has "$T/audit" '.store == "after"'
    assert_eq "$(grep -c after "$T/audit.1" || true)" 0
    rm -rf "$T/audit"
    mkdir "$T/audit" # cannot be opened: the one before goes on
    kill -HUP "$(keeper_of "$M")"
    wait_until 5 grep -q 'cannot open the audit .* again: Is a directory' "$LOG"
    rmdir "$M/after"
    mount_answers "$M"
}

@test "a disk that hangs while the audit is opened again keeps no worker from starting" {
    local children
    hold_audit
    mapfile -t children < <(worker_of "$KEEPER")
    kill -HUP "$KEEPER" # is not lost
    kill -KILL "${children[0]}"
    wait_until 10 mkdir "$M/other"
    wait_until 5 audit_has "$T/audit.1" '.store == "other"'
    kill -KILL "${children[1]}" # opens nothing
    wait_until 5 process_gone "${children[1]}"
    rm "$T/hold"
    wait_until 5 bash -c "rmdir '$M/other'; mkdir '$M/other'; [[ -s '$T/audit' ]]"
}

@test "another keeper opens the audit again that the former one could not open" {
    local former
    hold_audit
    former=$KEEPER
    "$GMSFS" mount -f --takeover "$M" </dev/null >"$LOG.next" 2>&1 3>&- 4>&- &
    KEEPER=$!
    KEEPER_OF[$M]=$KEEPER
    wait_until_any 10 process_gone "$former"
    wait "$former"
    mkdir "$M/other"
    wait_until 5 audit_has "$T/audit.1" '.store == "other"'
    rm "$T/hold"
    wait_until 5 bash -c "rmdir '$M/other'; mkdir '$M/other'; [[ -s '$T/audit' ]]"
}

@test "on a full disk lines are dropped and counted, and the mount goes on" {
    requires root
    mkdir "$T/disk"
    mount -t tmpfs -o size=16k gmsfs-test "$T/disk"
    start_weights size=16M,audit="$T/disk/audit"
    for ((i = 0; i < 200; i++)); do
        mkdir "$M/store$i" && rmdir "$M/store$i"
    done
    commit_store
    wait_until 5 some_are_dropped
    grep -q 'the audit cannot be written: No space left on device' "$LOG"
    mount -o remount,size=1M "$T/disk"
    mkdir "$M/last"
    wait_until 5 audit_has "$T/disk/audit" '.store == "last"'
    audit_has "$T/disk/audit" '.lost > 0'
    stop_mount
    umount "$T/disk"
}

@test "an audit that cannot be opened is no mount" {
    mkdir "$T/m"
    run_logged -1 "$GMSFS" mount -f -o backend=host,size=16M,audit="$T/none/audit" "$T/m"
    assert_match "$output" "not mounted: option audit=$T/none/audit: cannot open it: No such file"
    run_logged -2 "$GMSFS" mount -o backend=host,audit=relative "$T/m"
    assert_match "$output" 'option audit=relative: expected an absolute path'
    not_mounted "$T/m"
}

@test "signals other than TERM and INT do not end a mount" {
    local signal keeper worker
    start_mount size=16M
    keeper=$(keeper_of "$M")
    worker=$(worker_of "$keeper")
    for signal in HUP QUIT USR1 USR2 PIPE ALRM VTALRM PROF IO PWR XCPU XFSZ RTMIN RTMAX; do
        kill -s "$signal" "$keeper" "$worker"
    done
    kill -s TERM "$worker"
    kill -s INT "$worker"
    mount_answers "$M"
    mkdir "$M/store"
    process_lives "$keeper"
    process_lives "$worker"
}
