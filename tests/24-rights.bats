#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Rights are decided by the process that opened a file, and by the mode of the open.
#
# shellcheck disable=SC2016,SC2153 # bodies of shells; variables that the helpers set

load helpers

prepare() {
    requires root
    start_weights size=64M
}

# A committed store `weights` with an entry and an allocation, of this mode.
store_with_mode() {
    (
        cd "$W" || exit
        exec 3<>lock
        truncate -s 4096 allocations/a
        printf secret >metadata/key
        echo 1 >commit
    )
    chmod "$1" "$W"
}

second_is_over() { # SINCE
    (($(date +%s) > $1))
}

# has_only PID SET CAPABILITY...: nothing else is in that set of its capabilities
has_only() {
    local pid=$1 set=$2 bits=0 capability
    for capability in "${@:3}"; do
        bits=$((bits | 1 << capability))
    done
    bits=$((16#$(awk -v set="$set:" '$1 == set { print $2 }' "/proc/$pid/status") & ~bits))
    assert_eq "$bits" 0 "$set of $pid, beyond ${*:3}"
}

has_what_it_needs() {
    local dac_override=1 dac_read_search=2 fowner=3 setpcap=8 ptrace=19 admin=21 resource=24
    local most=("$dac_override" "$dac_read_search" "$fowner" "$setpcap" "$ptrace" "$admin" "$resource") set thread
    for set in CapPrm CapBnd CapInh; do
        has_only "$KEEPER" "$set" "${most[@]}"
    done
    has_only "$KEEPER" CapEff "$dac_read_search" "$resource"
    for thread in "/proc/$(worker_of "$KEEPER")/task/"*; do
        for set in CapPrm CapEff CapBnd CapInh; do
            has_only "${thread##*/}" "$set" "$dac_read_search" "$ptrace" "$resource"
        done
        assert_match "$(<"$thread/status")" $'\nNoNewPrivs:\t1\n'
    done
}

@test "keeper and worker have no more of root than they need, also their successors" {
    has_what_it_needs
    kill -KILL "$(worker_of "$KEEPER")"
    run_logged -0 timeout $((20 * HANG)) cat "$W/state"
    has_what_it_needs
    cli upgrade "$M"
    has_what_it_needs
    cli status "$M"
}

@test "as many requests are in the background as root's mount asks for" {
    requires fusectl
    local connections=$T/connections minor
    mkdir "$connections"
    mount -t fusectl none "$connections"
    minor=$(mountpoint -d "$M")
    run_logged -0 cat "$connections/${minor#*:}/max_background" "$connections/${minor#*:}/congestion_threshold"
    umount "$connections"
    assert_eq "$output" $'65535\n49151' 'requests, and from when on they are many'
}

@test "a handle that is open for writing alone reads nothing, by no ioctl" {
    local file op
    store_with_mode 0733
    for file in commit abort ctl; do
        for op in 'get key' info 'list 0 0 0'; do
            # shellcheck disable=SC2086 # words of an operation
            run_logged -1 as_user "$GMSCTL" open "$W/$file" w $op
            assert_eq "${lines[-1]}" EBADF "$op on $file"
        done
    done
    for op in 'export 0 0' 'export-rw 0 0' info 'list 0 0 0'; do
        # shellcheck disable=SC2086
        run_logged -1 as_user "$GMSCTL" open "$W/lock" w $op
        assert_eq "${lines[-1]}" EBADF "$op on lock"
    done
}

@test "a writer that may not read is told no hash of others' commits" {
    store_with_mode 0733
    run_logged -0 as_user "$GMSCTL" open "$W/ctl" w acquire 3 0
    assert_match "$output" '^RO .* hash=0{32}'
    run_logged -0 as_user "$GMSCTL" open "$W/ctl" w acquire 2 0 commit-flags 0
    assert_match "${lines[1]}" ' hash=0{32}'
    chmod 0777 "$W"
    run_logged -0 as_user "$GMSCTL" open "$W/ctl" rw acquire 3 0
    assert_match "$output" " hash=$(cat "$W/layout_hash")"
}

@test "a set-uid program's write to abort counts as that of the process that opened it" {
    local deputy=$T/deputy
    cp "$BUILD/tests/tools/deputy" "$deputy"
    chmod 4755 "$deputy"
    run_logged -0 as_user "$deputy" text # it can be run
    chmod 0777 "$W"
    hold open "$W/lock" rw
    as_user bash -c '"$1" "revoke $2" 2>"$3"' - "$deputy" "$(waiter_id "$HOLDER")" "$W/abort" || true
    assert_state weights RW
    run_logged -0 "$GMSCTL" open "$W/abort" w write "revoke $(waiter_id "$HOLDER")"
    assert_state weights EMPTY
}

@test "a writer's child that may not write the store does not join, and does not wait" {
    store_with_mode 0755
    run_logged -1 "$GMSCTL" open "$W/lock" rw setuid "$TEST_UID" try read 9 open "$W/lock" r
    assert_eq "${lines[-1]}" EACCES
    spawn "$GMSCTL" open "$W/lock" rw fork-until "$T/over" setuid "$TEST_UID" \
        try open "$W/allocations/a" r say over
    wait_until 10 said "$SPAWNED" over
    said "$SPAWNED" EACCES
    touch "$T/over"
}

@test "a writer's child that may write the store joins" {
    store_with_mode 0777
    run_logged -0 "$GMSCTL" open "$W/lock" rw setuid "$TEST_UID" open "$W/lock" r read 99
    assert_match "${lines[-1]}" '^RW '
}

@test "a reader's child joins, regardless of its own rights" {
    store_with_mode 0755
    run_logged -0 "$GMSCTL" open "$W/lock" r setuid "$TEST_UID" open "$W/lock" r read 99
    assert_match "${lines[-1]}" '^RO '
}

@test "further groups count" {
    local group=47001
    store_with_mode 0770
    chgrp "$group" "$W"
    run_logged -1 as_user cat "$W/state"
    run_logged -0 setpriv --reuid="$TEST_UID" --regid="$TEST_UID" --groups=47000,"$group" \
        --inh-caps=-all cat "$W/state" "$W/metadata/key"
    run_logged -0 setpriv --reuid="$TEST_UID" --regid="$TEST_UID" --groups="$group" \
        --inh-caps=-all "$GMSCTL" open "$W/lock" rw setxattr "$W/allocations/a" user.gmsfs.tag t
}

@test "a handle keeps its rights of the open when the store's mode changes" {
    store_with_mode 0777
    mkfifo "$T/go"
    spawn as_user "$GMSCTL" open "$W/ctl" rw say open until "$T/changed" acquire 2 0 put k v none 0
    wait_until 10 said "$SPAWNED" open
    chmod 0700 "$W"
    touch "$T/changed"
    wait_exit "$SPAWNED"
}

@test "touch says that a store was changed now, and sets no other time" {
    local before
    before=$(stat -c %Y "$W")
    wait_until 5 second_is_over "$before"
    touch "$W"
    [[ $(stat -c %Y "$W") -gt $before ]]
    expect_message EPERM touch -d '2020-01-01' "$W"
    run_logged -1 as_user touch "$W"
    expect_message ENOLCK touch "$W/allocations"
}

revoked() { # FILTER: of the last revocation in events
    grep '"event":"revoked"' "$M/events" | tail -n 1 | jq -c "$1"
}

@test "a revocation's event names its caller, a waiter's too" {
    hold open "$W/lock" rw
    local writer=$HOLDER id
    spawn "$GMSCTL" open "$W/lock" rw
    wait_until 10 waiters_are weights 1
    id=$(waiter_id "$SPAWNED")
    echo "revoke $id" >"$W/abort"
    wait_exit "$SPAWNED"
    assert_eq "$(revoked '[.waiter, .session, .pid, .uid, .by_pid, .by_uid]')" \
        "[${id#w},0,$SPAWNED,0,$$,0]"
    chmod 777 "$W"
    chown "$TEST_UID" "$W"
    run_logged -0 as_user "$GMSCTL" open "$W/abort" w write "revoke $(waiter_id "$writer")"
    assert_eq "$(revoked '[.pid, .uid, .by_uid]')" "[$writer,0,$TEST_UID]"
}

@test "users share no open file description of memory: a position that one sets is not the other's" {
    store_with_mode 0755
    spawn "$GMSCTL" open "$W/ctl" r acquire ro 0 export 0 0 connect "$M" redeem last 253 seek-memory 0 4096 \
        say held until "$T/go" position 0
    wait_until 5 said "$SPAWNED" held
    run_logged -0 as_user "$GMSCTL" open "$W/ctl" r acquire ro 0 export 0 0 connect "$M" \
        redeem last 253 position 0 seek-memory 0 8192
    assert_match "$output" 'position=0'
    touch "$T/go"
    wait_exit "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" 'position=4096'
}
