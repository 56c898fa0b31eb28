#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The lock as processes meet it: its holders, its waiters, the members of a session. 21-sessions.bats
# tests the ends of sessions; tests/unit/test_lock_states explores the rules themselves.
#
# bats file_tags=cuda,slow:cuda

load helpers

prepare() { start_weights writer_patience=2; }

# ---- the shell -------------------------------------------------------------------------------

# bats test_tags=host
@test "a shell writes: exec, truncate, dd, setfattr, commit" {
    head -c 3000000 /dev/urandom >"$T/bytes"
    exec 5<>"$W/lock"
    assert_match "$(cat <&5)" '^RW [0-9]+$'
    truncate -s 3000000 "$W/allocations/layers"
    dd if="$T/bytes" of="$W/allocations/layers" bs=1M conv=notrunc status=none
    printf '{"dtype":"f16"}' >"$W/metadata/model.weight"
    setfattr -n user.gmsfs.allocation -v layers "$W/metadata/model.weight"
    setfattr -n user.gmsfs.offset -v 512 "$W/metadata/model.weight"
    setfattr -n user.gmsfs.tag -v weights "$W/allocations/layers"
    commit_5
    assert_state weights COMMITTED
    cmp "$W/allocations/layers" "$T/bytes"
    assert_eq "$(cat "$W/metadata/model.weight")" '{"dtype":"f16"}'
}

@test "closing the lock without commit leaves nothing" {
    exec 5<>"$W/lock"
    truncate -s 1M "$W/allocations/a"
    exec 5>&-
    assert_state weights EMPTY
    assert_eq "$(names "$W/allocations")" ''
}

@test "a subshell, a pipeline and a script's children write in the session of their parent" {
    exec 5<>"$W/lock"
    (printf sub >"$W/metadata/a")
    printf pipe | cat >"$W/metadata/b"
    bash -c "printf script | tee $W/metadata/c" >/dev/null
    bash -c "bash -c 'echo 1 >$W/commit'"
    exec 5>&-
    assert_eq "$(cat "$W/metadata/"{a,b,c})" subpipescript
}

# bats test_tags=host,slow
@test "exec onto an allocation takes the lock, and commit publishes" {
    exec 7>"$W/allocations/a"
    printf 'hello ' >&7
    assert_state weights RW
    bash -c 'printf world' >&7
    echo 1 >"$W/commit"
    exec 7>&-
    assert_state weights COMMITTED
    assert_eq "$(cat "$W/allocations/a")" 'hello world'
}

# bats test_tags=host
@test "reading a committed allocation takes and gives back a reader's lock" {
    commit_store
    hold open "$W/allocations/a" r
    assert_eq "$(cat "$W/state")" RO
    sessions_are weights RO 1
    let_go "$HOLDER"
    assert_state weights COMMITTED
    assert_eq "$(head -c 9 "$W/allocations/a")" committed
}

# ---- readers and writers ----------------------------------------------------------------------

@test "readers share, a writer excludes" {
    commit_store
    hold open "$W/lock" rn
    first=$HOLDER
    hold open "$W/lock" rn
    sessions_are weights RO 2
    expect EAGAIN open "$W/lock" rwn
    let_go "$first" "$HOLDER"
    assert_state weights COMMITTED
    hold open "$W/lock" rwn
    expect EAGAIN open "$W/lock" rwn
    expect EAGAIN open "$W/lock" rn
}

@test "a reader waits for the first commit" {
    wait_for_lock reader "$W"
    assert_eq "$(cat "$W/state")" EMPTY
    ctl open "$W/lock" rw open "$W/allocations/a" rwc ftruncate 1 use 0 close use 0 close
    not_granted "$WAITER"
    ctl open "$W/ctl" rw acquire rw 5000 alloc 1 1 a '' commit
    wait_until 5 granted "$WAITER"
    assert_eq "$(cat "$W/state")" RO
}

@test "a writer waits for readers to leave" {
    commit_store
    hold open "$W/lock" r
    wait_for_lock open "$W/lock" rw
    assert_eq "$(cat "$W/state")" RO
    let_go "$HOLDER"
    wait_until 5 granted "$WAITER"
    assert_eq "$(cat "$W/state")" RW
}

# bats test_tags=slow
@test "looking never waits while a writer holds and others wait" {
    commit_store
    hold open "$W/lock" rw
    wait_for_lock open "$W/lock" rw
    wait_for_lock reader "$W"
    run_logged -0 timeout $((5 * HANG)) ls -lR "$M"
    for file in state layout layout_hash info sessions metadata/key; do
        timeout $((5 * HANG)) cat "$W/$file" >/dev/null
    done
    timeout $((5 * HANG)) cat "$M/device" "$M/metrics" "$M/events" >/dev/null
    timeout $((5 * HANG)) df "$M"
    timeout $((5 * HANG)) du -s "$M"
    ctl open "$W/ctl" r info
    not_granted "$WAITER"
}

# ---- auto ------------------------------------------------------------------------------------

# bats test_tags=slow
@test "auto: a writer if nothing is committed, else a reader" {
    hold open "$W/auto" rw read 100
    assert_match "$(output_of "$HOLDER")" '^RW '
    let_go "$HOLDER"
    commit_store
    hold open "$W/auto" rw read 100
    assert_match "$(output_of "$HOLDER")" '^RO '
    let_go "$HOLDER"
    hold open "$W/auto" r read 100
    assert_match "$(output_of "$HOLDER")" '^RO '
}

# bats test_tags=slow
@test "an open of lock or auto for reading alone never waits, and never makes a writer" {
    for file in lock auto; do
        expect EAGAIN open "$W/$file" r
    done
    assert_eq "$(cat "$W/state")" EMPTY
    assert_eq "$(grep -c connected "$M/events")" 0 'sessions that there were'
    hold open "$W/lock" rw
    for file in lock auto; do
        expect EAGAIN open "$W/$file" r
    done
    assert_eq "$(grep -c waiting "$W/sessions")" 0 waiters
    let_go "$HOLDER"
    commit_store
    for file in lock auto; do
        ctl open "$W/$file" r read 9
        assert_match "$output" '^RO '
    done
    hold reader "$W"
    wait_for_lock open "$W/lock" rw
    for file in lock auto; do
        expect EAGAIN open "$W/$file" r
    done
}

# bats test_tags=slow
@test "a reader's lock that was waited for on ctl is joined by process, and by descendants" {
    commit_store
    spawn "$GMSCTL" reader "$W" fork-until "$T/end" say held until "$T/go" open "$W/lock" r \
        read 9 open "$W/auto" r open "$W/allocations/a" r say joined until "$T/end"
    reader=$SPAWNED
    wait_until 5 said "$reader" held
    wait_for_lock open "$W/lock" rw # a process that is no member is not let in any more
    expect EAGAIN open "$W/lock" r
    touch "$T/go"
    wait_until 5 said "$reader" joined
    assert_match "$(output_of "$reader")" 'RO [0-9]+'
    assert_match "$(grep ' held ' "$W/sessions")" ' RO held .* 4$'
    touch "$T/end"
    wait_until 5 granted "$WAITER"
}

# ---- members of a session ---------------------------------------------------------------------

@test "a member joins its own session, past all waiters" {
    spawn "$GMSCTL" open "$W/lock" rw say held until "$T/go" open "$W/lock" rwn read 100 \
        open "$W/auto" rwn open "$W/allocations/a" rwcn say joined pause
    member=$SPAWNED
    wait_until 5 said "$member" held
    wait_for_lock open "$W/lock" rw
    touch "$T/go"
    wait_until 5 said "$member" joined
    assert_match "$(grep held "$W/sessions")" ' 4$'
}

@test "a read-only open in a writer's session gives a read-only handle" {
    ctl open "$W/lock" rw open "$W/lock" r read 100
    assert_match "$output" '^RW '
    expect EBADF open "$W/lock" rw open "$W/lock" r alloc 1 1 a ''
    expect EBADF open "$W/lock" rw open "$W/allocations/a" rwc ftruncate 1 open "$W/allocations/a" r \
        export-rw 0 0
}

@test "a reader joins its session read-only, and is EDEADLK when it wants to write" {
    commit_store
    ctl open "$W/lock" r open "$W/lock" rn open "$W/allocations/a" rn open "$W/auto" rwn read 10
    assert_match "$output" '^RO '
    expect EDEADLK open "$W/lock" r open "$W/lock" rw
    expect EDEADLK open "$W/lock" r open "$W/allocations/a" rw
    expect EDEADLK open "$W/allocations/a" r open "$W/lock" rw
}

# bats test_tags=slow
@test "a descendant of a reader that wants to write is EDEADLK" {
    commit_store
    exec 5<"$W/lock"
    expect EDEADLK open "$W/lock" rw
    bash -c 'exec "$@"; true' - "$GMSCTL" open "$W/lock" r read 9
    exec 5<&-
    wait_until 5 "$GMSCTL" open "$W/lock" rwn
}

# bats test_tags=slow
@test "a descendant becomes a member: it may write when its ancestor is gone" {
    spawn "$GMSCTL" open "$W/lock" rw fork-until "$T/joined" open "$W/lock" rw use 0 close \
        say joined until "$T/go" open "$W/metadata/k" wc write v close open "$W/commit" w write 1
    wait_until 5 said "$SPAWNED" joined
    touch "$T/joined"
    wait_exit "$SPAWNED"
    assert_eq "$(cat "$W/state")" RW
    touch "$T/go"
    assert_state weights COMMITTED 5
    assert_eq "$(cat "$W/metadata/k")" v
}

# bats test_tags=slow
@test "processes that are no descendants do not join" {
    hold open "$W/lock" rw
    expect EAGAIN open "$W/lock" rwn
    expect EAGAIN open "$W/allocations/a" rwc
    expect ENOLCK open "$W/metadata/k" wc
    expect ENOLCK open "$W/commit" w write 1
    expect ENOLCK open "$W/abort" w write 1
}

# bats test_tags=slow
@test "opens and path operations do not see an ACQUIREd session" {
    expect EAGAIN open "$W/ctl" rw acquire rw 0 open "$W/lock" rwn
    expect EAGAIN open "$W/ctl" rw acquire rw 0 open "$W/allocations/a" rwc
    expect ENOLCK open "$W/ctl" rw acquire rw 0 open "$W/metadata/k" wc
    expect ENOLCK open "$W/ctl" rw acquire rw 0 open "$W/commit" w write 1
}

# bats test_tags=slow
@test "a token lets a process that is no descendant join" {
    hold open "$W/ctl" rw acquire rw 0
    output=$(output_of "$HOLDER")
    token=$(field token) session=$(field session)
    ctl open "$W/ctl" rw join "$token" info alloc 1 1 a '' put k v 0 0
    assert_match "$output" "session=$session "
    assert_eq "$(names "$W/allocations")" a
    ctl open "$W/ctl" rw join "$token" commit
    assert_state weights COMMITTED
}

# bats test_tags=slow
@test "a token of a writer needs a writable handle, and a wrong one is ESTALE" {
    hold open "$W/ctl" rw acquire rw 0
    output=$(output_of "$HOLDER")
    token=$(field token)
    expect EBADF open "$W/ctl" r join "$token"
    expect ESTALE open "$W/ctl" rw join 00112233445566778899aabbccddeeff
    expect ESTALE open "$W/ctl" rw join 00000000000000000000000000000000
    mkdir "$M/other"
    expect ESTALE open "$M/other/ctl" rw join "$token"
    let_go "$HOLDER"
    assert_state weights EMPTY
    expect ESTALE open "$W/ctl" rw join "$token"
}

@test "RELEASE gives the lock back before it returns" {
    ctl repeat 200 open "$W/ctl" rw acquire rw 0 release acquire rw 0 release close
}

# bats test_tags=host
@test "the ticket of ACQUIRE redeems the store's allocations" {
    commit_store
    ctl open "$W/ctl" r acquire-export ro 0 connect "$M" redeem last 253
    assert_match "$output" 'count=1 '
    assert_match "$output" 'item rank=0 slot=0 size=1048576 aligned=2097152 access=r '
}

# bats test_tags=host
@test "EXPORT by slot is of that allocation, at any rank" {
    ctl open "$W/ctl" rw acquire rw 0 alloc 1000 3 x0 odd alloc 2000 1 y0 even free 1 commit
    ctl open "$W/ctl" r acquire ro 0 connect "$M" export-slot 3 0 redeem last 253
    assert_match "$output" 'ticket=.* count=1 '
    assert_match "$output" 'item rank=2 slot=3 size=2000 aligned=2097152 access=r .* tag=even'
    expect ENOENT open "$W/ctl" r acquire ro 0 export-slot 1 1
    expect EINVAL open "$W/ctl" r acquire ro 0 export-slot 0 2
}

# ---- implicit sessions -------------------------------------------------------------------------

@test "cp, truncate, touch and tee outside a lock fail visibly and leave nothing" {
    local command
    head -c 3M /dev/urandom >"$T/bytes"
    for command in "cp $T/bytes" 'truncate -s 1M' touch tee; do
        # shellcheck disable=SC2086 # words
        expect_message ECANCELED $command "$W/allocations/new" <"$T/bytes"
        assert_state weights EMPTY
        assert_eq "$(names "$W/allocations")" ''
    done
}

# bats test_tags=host
@test "cp, truncate, touch and tee over a committed allocation outside a lock change nothing" {
    local command
    head -c 3M /dev/urandom >"$T/bytes"
    commit_store
    for command in "cp $T/bytes" 'truncate -s 0' tee; do
        # shellcheck disable=SC2086 # words
        expect_message ECANCELED $command "$W/allocations/a" <"$T/bytes"
        unchanged
    done
    run_logged '!' truncate -s 5M "$W/allocations/a"
    unchanged
    run_logged touch "$W/allocations/a"
    unchanged
}

# bats test_tags=host
@test "a session that another file joined does not fail the first close" {
    exec 7>"$W/allocations/a"
    printf x >&7
    ctl open "$W/allocations/b" rwc ftruncate 1 close
    echo 1 >"$W/commit"
    exec 7>&-
    assert_state weights COMMITTED
    assert_eq "$(names "$W/allocations")" 'a b'
}
