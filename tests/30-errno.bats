#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Each errno that gmsfs(5) promises, produced by a test of its name, in the ways a user meets it.
# ENODEV and EIO need a device that can be lost.
#
# bats file_tags=fake,slow:fake,slow

load helpers

prepare() { start_weights size=64M,alloc_timeout=1,spool_max=8M; }

# bats test_tags=quick
@test "EAGAIN: the lock is not free, and the open may not wait" {
    commit_store
    hold open "$W/lock" r
    expect EAGAIN open "$W/lock" rwn
    expect EAGAIN open "$W/auto" rn open "$W/ctl" rw acquire rw 0
    expect EAGAIN open "$W/allocations/a" rw
    expect EAGAIN open "$W/allocations/new" rwc
    let_go "$HOLDER"
    assert_state weights COMMITTED
    hold open "$W/lock" rw
    expect EAGAIN open "$W/lock" rn
    expect EAGAIN open "$W/auto" rwn
    expect EAGAIN open "$W/allocations/a" r
    expect EAGAIN open "$W/ctl" r acquire ro 0
}

@test "ETIMEDOUT: ACQUIRE's timeout passed" {
    hold open "$W/lock" rw
    start=$(now_ms)
    expect ETIMEDOUT open "$W/ctl" rw acquire rw 300
    took=$(($(now_ms) - start))
    [[ $took -ge 300 && $took -lt $((5000 * SLOW)) ]]
    expect ETIMEDOUT open "$W/ctl" r acquire ro 1
    expect ETIMEDOUT open "$W/ctl" rw acquire auto 1
    assert_eq "$(wc -l <"$W/sessions")" 1
}

# bats test_tags=quick
@test "ECANCELED: an implicit writer closed without commit" {
    expect ECANCELED open "$W/allocations/a" wc write x close
    assert_state weights EMPTY
    commit_store
    expect ECANCELED open "$W/allocations/a" rw close
    assert_state weights COMMITTED
}

@test "EINTR: a signal came" {
    hold open "$W/lock" rw
    expect EINTR alarm 200 open "$W/lock" rw
    expect EINTR alarm 200 open "$W/auto" rw
    expect EINTR alarm 200 open "$W/ctl" rw acquire rw forever
    expect EINTR alarm 200 reader "$W"
}

# bats test_tags=quick
@test "EDEADLK: the wait would be for oneself" {
    commit_store
    expect EDEADLK open "$W/lock" r open "$W/lock" rw
    expect EDEADLK open "$W/lock" r open "$W/lock" rwn
    expect EDEADLK open "$W/auto" r open "$W/allocations/a" rw
    expect EDEADLK open "$W/lock" r open "$W/allocations/new" rwc
    expect EDEADLK open "$W/ctl" r acquire ro 1000 acquire ro 1000
}

# bats test_tags=quick
@test "EACCES: mode bits or the direction say no" {
    requires root
    chmod 750 "$W"
    run_logged -1 as_user "$GMSCTL" open "$W/lock" r
    assert_eq "$output" EACCES
    chmod 755 "$W"
    run_logged -1 as_user "$GMSCTL" open "$W/lock" rw
    assert_eq "$output" EACCES
    expect EACCES open "$W/state" w
    expect EACCES open "$W/commit" r
}

@test "EPERM: not yours to do" {
    expect EPERM unlink "$W/lock"
    expect EPERM link "$W/lock" "$W/other"
    expect EPERM open "$M/file" wc
    expect EPERM chmod "$W/lock" 0777
    requires root
    chmod 777 "$W"
    run_logged -1 as_user "$GMSCTL" chmod "$W" 0700
    assert_eq "$output" EPERM
    run_logged -1 as_user "$GMSCTL" open "$W/abort" w write 'revoke 1'
    assert_eq "$output" EPERM
}

@test "EBADF: the handle is not writable" {
    commit_store
    expect EBADF open "$W/ctl" r acquire rw 0
    expect EBADF open "$W/ctl" r acquire auto 0
    expect EBADF open "$W/ctl" rw acquire rw 0 open "$W/ctl" r join last
    for op in 'alloc 1 1 x _' 'free 0' 'clear' 'put k v none 0' 'delete key' 'commit' 'abort' \
        'export-rw 0 0'; do
        # shellcheck disable=SC2086 # words
        expect EBADF open "$W/lock" rw open "$W/lock" r $op
    done
    expect EBADF open "$W/lock" rw open "$W/allocations/a" r write x
    assert_state weights COMMITTED
}

@test "ENOLCK: a change, commit or abort outside a writer's session" {
    commit_store
    expect ENOLCK open "$W/commit" w write 1
    expect ENOLCK open "$W/abort" w write 1
    expect ENOLCK open "$W/metadata/new" wc
    expect ENOLCK open "$W/metadata/key" w
    expect ENOLCK unlink "$W/allocations/a"
    expect ENOLCK rename "$W/allocations/a" "$W/allocations/b"
    expect ENOLCK unlink "$W/metadata/key"
    expect ENOLCK rename "$W/metadata/key" "$W/metadata/other"
    expect ENOLCK truncate "$W/allocations/a" 0
    expect ENOLCK setxattr "$W/allocations/a" user.gmsfs.tag x
    for op in 'alloc 1 1 x _' 'free 0' 'clear' 'put k v none 0' 'delete key' 'commit' 'abort' \
        'release' 'write x' 'export 0 0'; do
        # shellcheck disable=SC2086 # words
        expect ENOLCK open "$W/ctl" rw $op
    done
    # A reader's session is none of a writer.
    expect ENOLCK open "$W/lock" r open "$W/commit" w write 1
    expect ENOLCK open "$W/lock" r unlink "$W/allocations/a"
    expect ENOLCK open "$W/ctl" rw acquire ro 0 put k v none 0
    assert_eq "$(names "$W/allocations") $(cat "$W/metadata/key") $(info_of weights .generation)" 'a value 1'
}

# bats test_tags=quick
@test "ESTALE: the session is over" {
    expect ESTALE open "$W/lock" rw commit commit
    expect ESTALE open "$W/lock" rw abort abort
    expect ESTALE open "$W/lock" rw open "$W/allocations/a" rwc use 0 abort use 1 write x
    expect ESTALE open "$W/ctl" rw acquire rw 5000 open "$W/ctl" rw join last use 0 release \
        use 1 alloc 1 1 a ''
    commit_store
    expect ESTALE open "$W/ctl" r acquire ro 5000 export 0 0 release connect "$M" redeem last 1
}

@test "EINVAL: bad size, offset, flag, key" {
    exec 5<>"$W/lock"
    expect EINVAL fd 5 alloc 0 1 a ''
    expect EINVAL fd 5 alloc 1 0 a ''
    expect EINVAL fd 5 alloc 1 2 name '' # no digits to count up
    expect EINVAL fd 5 alloc-as 1 0x80 0 0
    expect EINVAL fd 5 alloc 1 1 a/b ''
    expect EINVAL fd 5 export 1 0
    expect EINVAL fd 5 export 0 1
    expect EINVAL fd 5 put k v 77 0
    expect EINVAL fd 5 put hex:ff v none 0
    exec 5>&-
    assert_state weights EMPTY
    expect EINVAL open "$W/ctl" rw acquire 9 0
    expect EINVAL open "$W/ctl" rw acquire none 0
    expect EINVAL open "$W/lock" rw open "$W/metadata/a%" wc
}

@test "EINVAL: a commit that is only checked tells its outcome, and publishes nothing" {
    expect EINVAL open "$W/lock" rw open "$W/allocations/hollow" rwc use 0 commit-flags 4
    assert_match "$(info_of weights .last_error)" hollow
    expect EINVAL open "$W/lock" rw commit-flags 32
    expect EINVAL open "$W/lock" rw commit-flags 9
    expect ENOLCK open "$W/ctl" rw commit-flags 4
    ctl open "$W/lock" rw open "$W/allocations/spool" rwc pwrite 0 bytes use 0 commit-flags 5 use 1 \
        pwrite 5 more use 0 commit-flags 4
    assert_match "$output" 'RW generation=0'
    assert_state weights EMPTY
    ctl open "$W/lock" rw open "$W/allocations/spool" rwc pwrite 0 bytes use 0 commit-flags 4 commit
    assert_eq "$(info_of weights .generation)" 1 generation
}

# bats test_tags=quick
@test "EBUSY: resize of an allocation with memory" {
    expect EBUSY open "$W/lock" rw open "$W/allocations/a" rwc ftruncate 4096 ftruncate 4096 ftruncate 8192
    expect EBUSY open "$W/lock" rw open "$W/allocations/a" rwc ftruncate 4096 ftruncate 1
    expect EBUSY open "$W/lock" rw open "$W/allocations/a" rwc ftruncate 4096 \
        fallocate 0 0 9000000
    exec 5<>"$W/lock"
    truncate -s 5000 "$W/allocations/b"
    run_logged -1 truncate -s 8192 "$W/allocations/b"
    assert_eq "$(stat -c %s "$W/allocations/b")" 5000
    exec 5>&-
}

# bats test_tags=quick
@test "ENOMEM: device memory, at once by truncate, fallocate and write" {
    exec 5<>"$W/lock"
    ctl open "$W/allocations/a" rwc ftruncate $((60 << 20))
    expect ENOMEM open "$W/allocations/b" rwc ftruncate $((8 << 20))
    expect ENOMEM open "$W/allocations/b" rwc fallocate 0 0 $((8 << 20))
    expect ENOMEM open "$W/allocations/b" wc fill $((8 << 20))
    exec 5>&-
}

# bats test_tags=quick
@test "ENOMEM: ALLOC, after the time that it may wait, or at once" {
    start=$(now_ms)
    expect ENOMEM open "$W/ctl" rw acquire rw 0 alloc $((65 << 20)) 1 a ''
    [[ $(($(now_ms) - start)) -lt $((900 * SLOW)) ]] # nothing could ever come
    hold open "$W/ctl" rw acquire rw 5000 alloc $((60 << 20)) 1 a ''
    mkdir "$M/other"
    start=$(now_ms)
    expect ENOMEM open "$M/other/ctl" rw acquire rw 0 alloc $((8 << 20)) 1 a ''
    [[ $(($(now_ms) - start)) -ge 1000 ]]
    expect ENOMEM open "$M/other/ctl" rw acquire rw 1000 alloc-nowait $((8 << 20)) 1 a ''
}

# bats test_tags=quick
@test "ENOSPC: writing past the end of an allocation" {
    expect ENOSPC open "$W/lock" rw open "$W/allocations/a" rwc ftruncate 4096 pwrite 4096 x
}

@test "EFBIG: the bound of a spool" {
    expect EFBIG open "$W/lock" rw open "$W/allocations/a" wc fill $((9 << 20))
    assert_match "$output" "written=$((8 << 20))"
}

@test "EFBIG: a value that is too large for METADATA_GET" {
    expect EFBIG open "$W/lock" rw open "$W/metadata/k" wc write fill:100000 close use 0 get k
}

@test "EOPNOTSUPP: requests that the backend does not support" {
    expect EOPNOTSUPP open "$W/ctl" rw acquire rw 0 alloc-as 1 0 1 0
    expect EOPNOTSUPP open "$W/ctl" rw acquire rw 5000 alloc-as 1 0 0 1
    # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
    expect EOPNOTSUPP open "$W/lock" rw open "$W/allocations/a" rwc ftruncate 4096 fallocate 3 0 4096
}
