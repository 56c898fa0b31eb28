#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs fence: weights and kv_cache are closed while the device is checkpointed. That GMS's clients
# do and meet the same is in tests/python/test_gms_v1_checkpoints.py.
#
# shellcheck disable=SC2154 # output is set by bats' run
# bats file_tags=slow

load helpers

prepare() {
    start_weights
    K=$M/kv_cache
    mkdir "$K"
}

UUID='[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}'

# put_up: commits weights and fences the mount; sets TOKEN.
put_up() {
    commit_store
    cli fence -q "$M"
    TOKEN=$output
}

refuses() { # WORDS [ARGUMENT...]: gmsfs fence fails, and says so
    cli -1 fence "${@:2}" "$M"
    assert_match "$output" "$1"
}

serves() {
    cli fence --status "$M"
    assert_eq "$output" serving
    assert_eq "$(device_get .fenced)" false fenced
}

# refused_by_fence COMMAND...: it fails, and names the fence and the command that ends it.
refused_by_fence() {
    run_logged -1 timeout $((30 * HANG)) "$@"
    assert_match "$output" "fenced for a checkpoint.*gmsfs fence --status $M'.*--complete TOKEN or --abort TOKEN"
}

# ---- putting it up and taking it away --------------------------------------------------------

@test "fence prints a token, stands when the command has ended, and ends by the token alone" {
    commit_store
    TOKEN=$("$GMSFS" fence "$M" 2>"$T/said") # the token alone is for others to read
    assert_match "$TOKEN" "^$UUID$"
    assert_match "$(<"$T/said")" 'is fenced.*--complete TOKEN'
    cli fence --status "$M"
    assert_eq "$output" "fenced $TOKEN"
    cli fence -q "$M" # the same again
    assert_eq "$output" "$TOKEN"
    refuses 'another token' --abort 12345678-1234-4234-8234-123456789abc
    refuses 'another token' --complete 00000000-0000-0000-0000-000000000000
    cli fence --complete "$TOKEN" "$M"
    assert_eq "$output" "$M serves"
    serves
    unchanged
}

@test "the same end succeeds again, the other one and an older token do not" {
    put_up
    cli fence --abort "$TOKEN" "$M"
    cli fence --abort "$TOKEN" "$M"
    refuses 'the fence of this token is over' --complete "$TOKEN"
    local older=$TOKEN
    cli fence -q "$M"
    TOKEN=$output
    [[ $TOKEN != "$older" ]]
    refuses 'another token' --abort "$older"
    cli fence --complete "${TOKEN^^}" "$M"
    refuses 'the fence of this token is over' --complete "$older"
    serves
}

@test "a command that makes no sense is refused before any request" {
    local token=12345678-1234-4234-8234-123456789abc
    cli -2 fence
    cli -2 fence "$M" "$M"
    cli -2 fence --abort wrong "$M"
    assert_match "$output" "'wrong' is no token"
    cli -2 fence --complete '' "$M"
    cli -2 fence --complete "${token//-/}" "$M"
    cli -2 fence --complete "$token-" "$M"
    cli -2 fence --complete "x${token#1}" "$M"
    cli -2 fence --abort "$token" --complete "$token" "$M"
    cli -2 fence --status --abort "$token" "$M"
    cli -1 fence "$W"
    assert_match "$output" "not a gmsfs mount, but in the one at $M;"
    cli -1 fence "$T"
    assert_match "$output" 'not a gmsfs mount'
    serves
}

@test "it names the obstacle to putting it up, and the remedy" {
    refuses 'weights must be committed before checkpoint; .*gmsfs load'
    hold open "$W/lock" rw
    refuses "weights has active or waiting sessions; 'gmsfs status' names the processes"
    let_go "$HOLDER"
    commit_store
    hold open "$W/lock" r
    refuses 'weights has active or waiting sessions'
    let_go "$HOLDER"
    hold open "$K/lock" rw
    refuses 'kv_cache has active or waiting sessions'
    let_go "$HOLDER"
    commit_store kv_cache
    refuses "kv_cache must not be committed before checkpoint; 'rmdir kv_cache'"
    rmdir "$K"
    serves
    cli fence -q "$M" # without any
    cli fence --abort "$output" "$M"
    ctl open "$W/ctl" rw acquire rw 0 clear commit
    refuses 'weights must contain committed allocations; .*gmsfs load'
    rmdir "$W"
    refuses 'it has no store weights'
}

# ---- meanwhile -------------------------------------------------------------------------------

@test "behind a fence no client gets a session, other stores go on, and looking is free" {
    mkdir "$M/other"
    put_up
    local store
    for store in "$W" "$K"; do
        expect ENODEV open "$store/lock" rw
        expect ENODEV open "$store/lock" r
        expect ENODEV open "$store/lock" rn
        expect ENODEV open "$store/auto" rw
        expect ENODEV open "$store/ctl" rw acquire rw 60000
        expect ENODEV open "$store/ctl" r acquire ro 60000
        expect ENODEV open "$store/allocations/new" rwc
        expect EBUSY rmdir "$store"
        expect EBUSY rename "$store" "$M/elsewhere"
    done
    expect ENODEV open "$W/allocations/a" r
    expect EBUSY rename "$M/other" "$W"
    commit_store other
    assert_state weights COMMITTED
    assert_eq "$(cat "$W/metadata/key")" value
    assert_eq "$(info_of weights .generation)" 1 generation
    cli fence --abort "$TOKEN" "$M"
    hold open "$K/lock" rw
    unchanged
}

@test "a fenced mount is not drained, and a drained one not fenced" {
    put_up
    cli -1 drain --revoke "$M"
    assert_match "$output" "fenced for a checkpoint.*gmsfs fence --status $M'"
    assert_eq "$(device_get .draining)" false draining
    cli fence --complete "$TOKEN" "$M"
    unchanged
    cli drain "$M"
    refuses "drained.*gmsfs drain --undo $M'"
    cli drain --undo "$M"
    put_up
}

@test "the mount, its stores and the commands show the fence" {
    put_up
    assert_eq "$(device_get .fenced)" true
    assert_eq "$(info_of weights .fenced) $(info_of kv_cache .fenced)" 'true true'
    mkdir "$M/other"
    assert_eq "$(info_of other .fenced)" false
    cli status "$M"
    assert_match "$output" 'used, fenced for a checkpoint'
    assert_match "$output" 'weights +COMMITTED FENCED '
    assert_match "$output" 'kv_cache +EMPTY FENCED '
    assert_match "$output" 'other +EMPTY +'
    cli status --json "$M"
    assert_eq "$(jq -c '[.[0].device.fenced, (.[0].stores[] | select(.name == "weights") | .fenced)]' <<<"$output")" \
        '[true,true]'
    cli ls "$W"
    assert_match "$output" 'is fenced for a checkpoint'
    cli ls --json "$W"
    assert_eq "$(jq .fenced <<<"$output")" true
    cli ls --json "$M/other"
    assert_eq "$(jq .fenced <<<"$output")" false
    refused_by_fence "$GMSFS" run "$W" -- true
    refused_by_fence "$GMSFS" run -w "$K" -- true
    refused_by_fence "$GMSFS" sum --allocations "$W"
    refused_by_fence "$GMSFS" image save "$W" "$T/image"
}

@test "a load into a fenced store fails at once, with the remedy" {
    make_model 1M 1
    put_up
    refused_by_fence "$GMSFS" load "$W" "$MODEL"
    refused_by_fence "$GMSFS" load --group --force "$W=$MODEL"
    cli fence --abort "$TOKEN" "$M"
    cli load "$W" "$MODEL"
}

@test "status --watch tells when a fence comes and goes" {
    commit_store
    spawn "$GMSFS" status --watch=60 "$M"
    wait_until 5 grep -q "weights  COMMITTED  " "$T/spawn-$SPAWNED"
    cli fence -q "$M"
    wait_until 5 grep -q "weights  COMMITTED FENCED  " "$T/spawn-$SPAWNED"
    let_go "$SPAWNED"
}

@test "events and audit name the users that set and ended the fence, and the kind of its end" {
    stop_mount
    start_mount audit="$T/audit"
    mkdir "$M/kv_cache"
    commit_store
    spawn "$GMSFS" fence -q "$M"
    local first=$SPAWNED
    wait_exit "$first"
    spawn "$GMSFS" fence --abort "$(output_of "$first")" "$M"
    wait_exit "$SPAWNED"
    assert_eq "$(jq -c 'select(.event | test("fenced")) | [.event, .store, .pid, .uid]' <"$M/events")" \
        "$(printf '["%s","%s",%s,%s]\n' fenced weights "$first" "$(id -u)" fenced kv_cache "$first" "$(id -u)" \
            unfenced weights "$SPAWNED" "$(id -u)" unfenced kv_cache "$SPAWNED" "$(id -u)")"
    wait_until 5 grep -q '"unfenced".*"resolved_by":"abort"' "$T/audit"
    cli fence -q "$M"
    cli fence --complete "$output" "$M"
    assert_eq "$(jq -r 'select(.event | test("fenced")) | .resolved_by' <"$M/events" | xargs)" \
        'null null abort abort null null complete complete'
}

# ---- owners ----------------------------------------------------------------------------------

@test "a user that may write both stores fences, ends it and is told the token; others are not" {
    requires root setpriv
    put_up
    chmod 0755 "$W"
    chmod 0777 "$K"
    cp "$GMSFS" "$T/gmsfs"
    chmod 0755 "$T/gmsfs"
    local argument
    for argument in '' --status "--abort $TOKEN" "--complete $TOKEN"; do
        # shellcheck disable=SC2086 # words
        run_logged -1 as_user timeout $((30 * HANG)) "$T/gmsfs" fence $argument "$M"
        assert_match "$output" 'it is fenced; only users with write permission on both weights and kv_cache'
        refute_token
    done
    chmod 0777 "$W"
    run_logged -0 as_user timeout $((30 * HANG)) "$T/gmsfs" fence --status "$M"
    assert_eq "$output" "fenced $TOKEN"
    run_logged -0 as_user timeout $((30 * HANG)) "$T/gmsfs" fence --complete "$TOKEN" "$M"
    run_logged -0 as_user timeout $((30 * HANG)) "$T/gmsfs" fence -q "$M"
    cli fence --abort "$output" "$M"
}

refute_token() {
    [[ $output != *"$TOKEN"* ]] || fail 'it tells the token'
}

@test "further groups count, however many there are" {
    requires root setpriv
    put_up
    chgrp 47000 "$W" "$K"
    chmod 0775 "$W" "$K"
    cp "$GMSFS" "$T/gmsfs"
    chmod 0755 "$T/gmsfs"
    local many
    many=$(seq -s , 48000 48299)
    run_logged -1 setpriv --reuid="$TEST_UID" --regid="$TEST_UID" --groups="$many" --inh-caps=-all \
        timeout 30 "$T/gmsfs" fence --status "$M"
    run_logged -0 setpriv --reuid="$TEST_UID" --regid="$TEST_UID" --groups="$many,47000" --inh-caps=-all \
        timeout 30 "$T/gmsfs" fence --status "$M"
    assert_eq "$output" "fenced $TOKEN"
}

@test "an ordinary user's own mount is that user's to fence" {
    requires root user-fuse
    # shellcheck disable=SC2034 # start_mount reads it
    MOUNT_VIA=("${AS_USER[@]}")
    start_mount '' "$T/own"
    as_user mkdir "$M/kv_cache"
    run_logged -0 as_user bash -c "exec 5<>$M/weights/lock; truncate -s 4096 $M/weights/allocations/a; echo 1 >$M/weights/commit"
    run_logged -0 as_user "$GMSFS" fence -q "$M"
    run_logged -0 as_user "$GMSFS" fence --abort "$output" "$M"
    wait_until 5 as_user "$GMSFS" umount "$M"
    expect_death
}

# ---- the end ---------------------------------------------------------------------------------

@test "a fence does not hold up unmounting" {
    put_up
    stop_mount
}
