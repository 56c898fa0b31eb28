#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The journal as a person reads it: of a running mount, and of a dead one.

load helpers

kept_journal() { # the one file in $T/kept
    set -- "$T"/kept/*
    [[ $# -eq 1 && -f $1 ]] && echo "$1"
}

@test "the journal of a mount shows its state and its records" {
    start_mount
    mkdir "$M/seen"
    commit_store
    run_logged -0 "$GMSFS" journal "$M"
    assert_match "$output" "record [0-9]+ [0-9T:.-]+Z store_create .* free=[1-9][0-9]* .*name='seen'"
    assert_match "$output" 'record [0-9]+ [0-9T:.-]+Z commit session='
    assert_match "$output" 'answer r[0-9]+ ok'
    run_logged -0 "$GMSFS" journal --replay "$M"
    assert_match "$output" '^[0-9]+ records, and the state holds after each$'
}

@test "a snapshot is shown as the state that it is" {
    export GMSFS_SNAPSHOT_BYTES=4096
    start_mount
    for i in {1..40}; do
        mkdir "$M/store$i"
    done
    shows_snapshot() {
        "$GMSFS" journal "$M" | grep -q '^snapshot, [0-9]* bytes'
    }
    wait_until 10 shows_snapshot
    run_logged -0 "$GMSFS" journal "$M"
    assert_match "$output" "  store [0-9]+ 'weights' EMPTY generation=0 place=device"
    assert_match "$output" '  event .*"event":"store_created"'
    run_logged -0 "$GMSFS" journal --replay "$M"
}

@test "the journal is for root and the mount's owner" {
    requires root
    start_mount
    run_logged -1 as_user "$GMSFS" journal "$M"
    assert_match "$output" 'permission denied: only root may read its journal.*; run this as root'
}

@test "an ordinary user reads the journal of a mount of its own" {
    # fusermount3 wants a user that has a name.
    AS_USER=(setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all)
    requires user-fuse
    # shellcheck disable=SC2034 # start_mount reads it
    MOUNT_VIA=("${AS_USER[@]}")
    start_mount size=16M
    run_logged -0 "${AS_USER[@]}" "$GMSFS" journal "$M"
    assert_match "$output" "store_create .*name='weights'"
    run_logged -0 "${AS_USER[@]}" "$GMSFS" log "$M" debug
    wait_until 5 "${AS_USER[@]}" "$GMSFS" umount "$M"
    expect_death
}

@test "a mount that ends by a failure leaves its journal, for its user alone" {
    local file
    mkdir "$T/kept"
    start_mount keep_journal="$T/kept"
    mkdir "$M/lost"
    kill_last_worker
    wait_exit "$KEEPER" 20
    file=$(kept_journal)
    assert_eq "$(stat -c '%a %u' "$file")" "600 $(id -u)"
    grep -q "its journal is kept in $file, which 'gmsfs journal' prints" "$LOG"
    run_logged -0 "$GMSFS" journal "$file"
    assert_match "$output" "store_create .*name='lost'"
    run_logged -0 "$GMSFS" journal --replay "$file"
    truncate -s -1 "$file"
    run_logged -1 "$GMSFS" journal "$file"
    assert_match "$output" 'the copy is damaged or cut off'
}

@test "a mount that ends in order leaves no journal" {
    mkdir "$T/kept"
    start_mount keep_journal="$T/kept"
    stop_mount
    assert_eq "$(ls "$T/kept")" ''
}

@test "a directory for journals that cannot be written to is no mount" {
    mkdir "$T/m"
    run_logged -1 "$GMSFS" mount -f -o "backend=$BACKEND,size=16M,keep_journal=$T/none" "$T/m"
    assert_match "$output" 'option keep_journal=.*/none: cannot write there: No such file'
    install -m 700 /dev/null "$T/file"
    run_logged -1 "$GMSFS" mount -f -o "backend=$BACKEND,size=16M,keep_journal=$T/file" "$T/m"
    assert_match "$output" 'option keep_journal=.*/file: cannot write there: Not a directory'
}

@test "a file that is no journal is refused in one line" {
    head -c 100000 /dev/urandom >"$T/random"
    : >"$T/empty"
    for file in "$T/random" "$T/empty" /dev/null "$T"; do
        run_logged -1 "$GMSFS" journal "$file"
        assert_match "$output" "^gmsfs journal: $file: neither a gmsfs mount nor a copy of a journal, which the mount option keep_journal=DIR makes$"
    done
    run_logged -1 "$GMSFS" journal "$T/nothing"
    assert_match "$output" 'cannot open it: No such file'
    run_logged -2 "$GMSFS" journal
}
