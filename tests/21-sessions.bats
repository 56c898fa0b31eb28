#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The ends of sessions and waits, and the state kept after them: commit, abort, death, places, revocation.
#
# bats file_tags=cuda,slow:cuda

load helpers

prepare() {
    export GMSFS_UNREAD=$T/unread
    start_weights writer_patience=2
}

# ---- the end of a session -----------------------------------------------------------------------

@test "after commit the writer's files are ESTALE, and closing them is not" {
    for op in 'write x' 'read 1' 'ftruncate 5' 'pwrite 0 x' 'fallocate 0 0 10' 'export 0 0'; do
        # shellcheck disable=SC2086 # words
        expect ESTALE open "$W/lock" rw open "$W/allocations/f$RANDOM" rwc ftruncate 4 \
            use 0 commit use 1 $op
    done
    for op in 'alloc 1 1 x _' 'free 0' 'clear' 'put k v none 0' 'delete k' 'commit' 'abort'; do
        # shellcheck disable=SC2086 # words
        expect ESTALE open "$W/lock" rw commit $op
    done
    expect ESTALE open "$W/lock" rw commit pread 0 10
    ctl open "$W/lock" rw open "$W/allocations/g" rwc ftruncate 1 use 0 commit use 1 close use 0 close
}

@test "an open after the session's end is a new one, never ESTALE" {
    ctl open "$W/lock" rw commit open "$W/lock" rwn read 10 open "$W/allocations/a" rwc
    assert_match "$output" 'RW '
}

@test "a committed session lets go of the lock although its files stay open" {
    hold open "$W/lock" rw commit
    assert_eq "$(cat "$W/state")" COMMITTED
    ctl open "$W/lock" rwn
}

# bats test_tags=host
@test "an unchanged structure keeps its hash, and every commit counts" {
    commit_store
    hash=$(cat "$W/layout_hash")
    ctl open "$W/lock" rw open "$W/allocations/a" rw pwrite 0 other use 0 commit
    assert_eq "$(cat "$W/layout_hash")" "$hash"
    assert_eq "$(info_of weights .generation)" 2
    assert_eq "$(head -c 5 "$W/allocations/a")" other
}

# bats test_tags=host
@test "abort rolls back to the committed layout when its bytes were not touched" {
    commit_store
    hash=$(cat "$W/layout_hash")
    ctl open "$W/lock" rw unlink "$W/allocations/a" open "$W/allocations/b" rwc ftruncate 1 \
        open "$W/metadata/new" wc write x close open "$W/abort" w write 1
    assert_eq "$(last_event .event)" rolled_back
    unchanged
    assert_eq "$(cat "$W/layout_hash")" "$hash"
    ctl open "$W/ctl" rw acquire rw 5000 free 0 abort
    assert_match "$output" rolled_back=1
    unchanged
}

# bats test_tags=host
@test "abort leads to EMPTY when committed bytes were written" {
    commit_store
    ctl open "$W/lock" rw open "$W/allocations/a" rw pwrite 5 x use 0 abort
    assert_match "$output" rolled_back=0
    assert_state weights EMPTY
    assert_eq "$(last_event .event)" aborted
    assert_eq "$(names "$W/allocations")$(names "$W/metadata")" ''
    wait_until 5 used_is 0
}

@test "abort leads to EMPTY when a writable descriptor of committed memory was handed out" {
    commit_store
    ctl open "$W/ctl" rw acquire rw 5000 export 0 0 abort
    assert_match "$output" rolled_back=1
    ctl open "$W/ctl" rw acquire rw 5000 export-rw 0 0 abort
    assert_match "$output" rolled_back=0
    assert_state weights EMPTY
}

# bats test_tags=host
@test "a stray rm of a writer that is killed loses nothing" {
    commit_store
    hold open "$W/lock" rw unlink "$W/metadata/key" unlink "$W/allocations/a"
    kill -KILL "$HOLDER"
    unchanged
}

@test "kill -9 of a writer frees the lock and the memory it made" {
    hold open "$W/lock" rw open "$W/allocations/a" rwc ftruncate 10000000
    wait_for_lock open "$W/lock" rw
    kill -KILL "$HOLDER"
    wait_until 5 granted "$WAITER"
    assert_eq "$(names "$W/allocations")" ''
    wait_until 5 used_is 0
}

@test "kill -9 of a reader lets the writer in" {
    commit_store
    hold open "$W/ctl" r acquire ro 0
    wait_for_lock open "$W/lock" rw
    kill -KILL "$HOLDER"
    wait_until 5 granted "$WAITER"
}

@test "a waiter that is killed is forgotten, and never granted" {
    hold open "$W/lock" rw
    wait_for_lock open "$W/lock" rw
    first=$WAITER
    wait_for_lock open "$W/lock" rw
    kill -KILL "$first"
    wait_exit "$first"
    wait_for_waiters weights 1
    let_go "$HOLDER"
    wait_until 5 granted "$WAITER"
    assert_eq "$(wc -l <"$W/sessions")" 1
}

@test "an ACQUIREd session ends with its owner, although a forked child holds the file" {
    spawn "$GMSCTL" open "$W/ctl" rw acquire rw 0 say held fork say child \
        until "$T/go" alloc 1 1 a ''
    wait_until 5 said "$SPAWNED" child
    assert_state weights EMPTY
    touch "$T/go"
    wait_until 5 said "$SPAWNED" ESTALE
}

@test "a session of the lock lives as long as its open files, in any process" {
    spawn "$GMSCTL" open "$W/lock" rw say held fork say child until "$T/go"
    wait_until 5 said "$SPAWNED" child
    wait_exit "$SPAWNED"
    never_within 1 state_is weights EMPTY
    assert_eq "$(cat "$W/state")" RW
    touch "$T/go"
    assert_state weights EMPTY
}

# bats test_tags=host,slow
@test "exec closes files as close does, and hangs no process" {
    commit_store
    ctl open "$W/lock" rw open "$W/allocations/a" rw open "$W/metadata/key" rw write new \
        exec "cat $W/state"
    assert_match "${lines[-1]}" '^(RW|COMMITTED)$'
    ctl open "$W/allocations/a" rw exec 'echo through'
    assert_eq "${lines[-1]}" through
    ctl open "$W/ctl" rw acquire rw 5000 exec 'echo through'
    unchanged
}

# bats test_tags=slow
@test "closing a duplicate does not end a session" {
    hold open "$W/lock" rw dupclose dupclose
    assert_eq "$(cat "$W/state")" RW
    kill "$HOLDER"
    assert_state weights EMPTY
}

# ---- places ------------------------------------------------------------------------------------

waiting_pids() { # in the order of the queue
    awk '$3 == "waiting" { print $4 }' "$W/sessions"
}

# keep_places: none expires, however late this machine lets a client ask again.
keep_places() { : >"$GMSFS_UNREAD"; }

# bats test_tags=slow
@test "SIGSTOP and SIGCONT keep a waiter's place" {
    keep_places
    hold open "$W/lock" rw
    wait_for_lock open-retry "$W/lock" rw
    first=$WAITER
    wait_for_lock open "$W/lock" rw
    for _ in 1 2 3; do
        kill -STOP "$first"
        kill -CONT "$first"
        wait_for_waiters weights 2
    done
    assert_eq "$(waiting_pids | head -n 1)" "$first"
    let_go "$HOLDER"
    wait_until 5 granted "$first"
    not_granted "$WAITER"
}

runs_as() { # LETTER PID
    [[ $(awk '$1 == "State:" { print $2 }' "/proc/$2/status") == "$1" ]]
}

# interrupt_waiters PID...: they ask again while the worker, which has answered them, does not run for more than a
# second. took_ms: the time from the signal until the worker was stopped, or until they wait again after it went on, if
# that is longer.
interrupt_waiters() {
    local worker pid start back_ms
    worker=$(worker_of "$KEEPER")
    start=$(now_ms)
    kill -STOP "$@"
    wait_for_waiters weights 0
    kill -STOP "$worker"
    wait_until 5 runs_as T "$worker"
    took_ms=$(($(now_ms) - start))
    kill -CONT "$@"
    for pid; do
        wait_until 5 runs_as S "$pid" # in its open
    done
    sleep 1.2
    start=$(now_ms)
    kill -CONT "$worker"
    wait_for_waiters weights $#
    back_ms=$(($(now_ms) - start))
    ((took_ms > back_ms)) || took_ms=$back_ms
}

# bats test_tags=slow
@test "a waiter that asks again at once keeps its place, though the worker does not run for more than a second" {
    local waiters=() took_ms=1000
    hold open "$W/lock" rw
    for _ in {1..5}; do
        wait_for_lock open-retry "$W/lock" rw
        waiters+=("$WAITER")
    done
    while ((took_ms >= 1000)); do # else their second, or the one after the worker's stop, was over before they asked
        mapfile -t waiters < <(waiting_pids)
        interrupt_waiters "${waiters[@]}"
    done
    assert_eq "$(waiting_pids)" "$(printf '%s\n' "${waiters[@]}")"
}

# While it is between two tries it is passed over, so who is granted is a matter of luck; its
# number and its row are not.
# bats test_tags=slow
@test "a storm of signals does not cost a waiter its place" {
    keep_places
    hold open "$W/lock" rw
    spawn "$GMSCTL" alarms 20 open-retry "$W/lock" rw say granted pause
    first=$SPAWNED
    has_place() { id=$(waiter_id "$first") && [[ $id ]]; } # it is away between two tries
    wait_until 5 has_place
    wait_for_lock open "$W/lock" rw
    for _ in {1..40}; do
        rows=$(awk '$3 == "waiting" { print $1 }' "$W/sessions" | tr '\n' ' ')
        assert_match "$rows" "^($id )?$(waiter_id "$WAITER") $"
        sleep 0.02
    done
    kill -KILL "$WAITER"
    let_go "$HOLDER"
    wait_until 5 granted "$first"
}

# bats test_tags=slow
@test "a place whose process does not come back is given up after a second" {
    hold open "$W/lock" rw
    spawn "$GMSCTL" alarm 0 try open "$W/lock" rw say interrupted pause
    first=$SPAWNED
    wait_until 5 grep -q "waiting $first " "$W/sessions"
    wait_for_lock open "$W/lock" rw
    kill -ALRM "$first"
    wait_until 5 said "$first" interrupted
    assert_match "$(output_of "$first")" EINTR
    let_go "$HOLDER"
    wait_until 3 granted "$WAITER"
}

# bats test_tags=slow
@test "close, then an O_NONBLOCK open, 2000 times: never EAGAIN" {
    ctl repeat 2000 open "$W/lock" rwn close
    ctl repeat 500 open "$W/allocations/a" rwc try close
    run_logged '!' grep -q EAGAIN <<<"$output"
    commit_store
    ctl repeat 1000 open "$W/lock" rn close open "$W/lock" rwn close
}

# ---- revocation --------------------------------------------------------------------------------

@test "root revokes a session: its files are ESTALE, the lock is free" {
    requires root
    spawn "$GMSCTL" open "$W/lock" rw say held until "$T/go" try alloc 1 1 a '' close
    wait_until 5 said "$SPAWNED" held
    echo "revoke $(waiter_id "$SPAWNED")" >"$W/abort"
    assert_eq "$(cat "$W/state")" EMPTY
    ctl open "$W/lock" rwn
    touch "$T/go"
    wait_exit -0 "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" ESTALE
    run_logged -0 grep -c '"event":"revoked"' "$M/events"
}

# bats test_tags=host
@test "a revoked writer of a committed store: rolled back or not, as any abort" {
    requires root
    commit_store
    hold open "$W/lock" rw unlink "$W/allocations/a"
    echo "revoke $(waiter_id "$HOLDER")" >"$W/abort"
    unchanged
    hold open "$W/lock" rw open "$W/allocations/a" rw pwrite 0 x
    echo "revoke $(waiter_id "$HOLDER")" >"$W/abort"
    assert_state weights EMPTY
}

# bats test_tags=slow
@test "root revokes a waiter, in an open or in ACQUIRE: ECANCELED" {
    local wait id
    requires root
    hold open "$W/lock" rw
    for wait in "open $W/lock rw" "open $W/ctl rw acquire rw forever"; do
        # shellcheck disable=SC2086 # words
        spawn "$GMSCTL" $wait
        wait_for_waiters weights 1
        id=$(waiter_id "$SPAWNED")
        assert_match "$id" '^w[0-9]+$'
        echo "revoke $id" >"$W/abort"
        wait_exit "$SPAWNED"
        assert_eq "$(output_of "$SPAWNED")" ECANCELED
    done
    assert_eq "$(cat "$W/state")" RW
}

# bats test_tags=slow
@test "the store's owner may revoke, others may not" {
    requires root
    chmod 777 "$W"
    hold open "$W/lock" rw
    id=$(waiter_id "$HOLDER")
    run_logged -1 as_user "$GMSCTL" open "$W/abort" w write "revoke $id"
    assert_eq "$output" EPERM
    chown "$TEST_UID" "$W"
    run_logged -0 as_user "$GMSCTL" open "$W/abort" w write "revoke $id"
    assert_state weights EMPTY
}

# bats test_tags=slow
@test "revoking an unknown session, or nonsense, is an error" {
    requires root
    expect ENOENT open "$W/abort" w write 'revoke 999999'
    expect ENOENT open "$W/abort" w write 'revoke w999999'
    for text in revoke 'revoke ' 'revoke x' 'revoke -1' 'revoke 1 2' 'revoke 99999999999999999999999' \
        revoker "revoke $(printf '%070d' 1)"; do
        expect EINVAL open "$W/abort" w write "$text"
    done
}

# bats test_tags=slow
@test "a revoked session of another store stays" {
    requires root
    mkdir "$M/other"
    hold open "$W/lock" rw
    expect ENOENT open "$M/other/abort" w write "revoke $(waiter_id "$HOLDER")"
    assert_eq "$(cat "$W/state")" RW
}

# ---- commit of invalid layouts -----------------------------------------------------------------

@test "commit with an allocation without memory is EINVAL, names it, and changes nothing" {
    exec 5<>"$W/lock"
    truncate -s 4096 "$W/allocations/good"
    touch "$W/allocations/hollow"
    expect EINVAL open "$W/commit" w write 1
    assert_match "$(info_of weights .last_error)" hollow
    assert_eq "$(cat "$W/state")" RW
    truncate -s 1 "$W/allocations/hollow"
    commit_5
    assert_state weights COMMITTED
}

@test "commit with an entry outside its allocation is EINVAL, names it, and changes nothing" {
    # The driver's granularity, of which host memory's is a part: all that is mapped counts.
    local piece=2097152
    expect EINVAL open "$W/ctl" rw acquire rw 0 alloc "$piece" 1 a '' put good v 0 $((piece - 1)) \
        put wayward v 0 "$piece" commit
    assert_match "$(info_of weights .last_error)" wayward
    assert_state weights EMPTY
    ctl open "$W/ctl" rw acquire rw 5000 alloc "$piece" 1 a '' put wayward v 0 9999999 try commit \
        put wayward v 0 0 commit
    assert_state weights COMMITTED
}

# bats test_tags=slow
@test "a removed allocation takes its entries with it, truncating to 0 keeps them" {
    ctl open "$W/lock" rw open "$W/allocations/a" rwc ftruncate 4096 \
        open "$W/allocations/b" rwc ftruncate 4096 use 0 put of-a v 0 0 put of-b v 1 5 \
        put free v none 0 truncate "$W/allocations/b" 0 unlink "$W/allocations/a" \
        truncate "$W/allocations/b" 8192 commit
    assert_eq "$(names "$W/metadata")" 'free of-b'
}
