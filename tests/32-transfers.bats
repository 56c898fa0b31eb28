#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Bytes in and out of allocations by ordinary programs, spools, and the hash of a layout.
#
# bats file_tags=cuda

load helpers

prepare() { start_weights; }

random_file() { # NAME BYTES
    head -c "$2" /dev/urandom >"$T/$1"
}

# ---- round trips -----------------------------------------------------------------------------

@test "cp in, cat, cp, dd and sha256sum out, of odd sizes" {
    for size in 1 511 4095 4097 1048575 1048576 1048577 5000001; do
        random_file "$size" "$size"
    done
    exec 5<>"$W/lock"
    for size in 1 511 4095 4097 1048575 1048576 1048577 5000001; do
        cp "$T/$size" "$W/allocations/f$size"
        assert_eq "$(stat -c %s "$W/allocations/f$size")" "$size" size
    done
    commit_5
    for size in 1 511 4095 4097 1048575 1048576 1048577 5000001; do
        file=$W/allocations/f$size
        cmp "$file" "$T/$size"
        # shellcheck disable=SC2002 # the way of cat
        cat "$file" | cmp - "$T/$size"
        cp "$file" "$T/copy"
        cmp "$T/copy" "$T/$size"
        dd if="$file" bs=70001 status=none | cmp - "$T/$size"
        assert_eq "$(sha256sum <"$file")" "$(sha256sum <"$T/$size")"
    done
}

@test "dd in with odd blocks, with and without a size" {
    random_file bytes 3333333
    exec 5<>"$W/lock"
    dd if="$T/bytes" of="$W/allocations/spool" bs=77777 status=none
    truncate -s 3333333 "$W/allocations/sized"
    dd if="$T/bytes" of="$W/allocations/sized" bs=77777 conv=notrunc status=none
    fallocate -l 3333333 "$W/allocations/allocated"
    dd if="$T/bytes" of="$W/allocations/allocated" bs=1M conv=notrunc status=none
    commit_5
    for name in spool sized allocated; do
        cmp "$W/allocations/$name" "$T/bytes"
    done
}

@test "dd in parts and out of order into a sized allocation" {
    random_file bytes 1000000
    exec 5<>"$W/lock"
    truncate -s 1000000 "$W/allocations/a"
    for part in 3 0 9 1 8 2 7 4 6 5; do
        dd if="$T/bytes" of="$W/allocations/a" bs=100000 skip=$part seek=$part count=1 \
            conv=notrunc status=none
    done
    cmp "$W/allocations/a" "$T/bytes"
    exec 5>&-
}

@test "new memory is zeroed" {
    exec 5<>"$W/lock"
    cp <(tr '\0' 'x' </dev/zero | head -c 8M) "$W/allocations/dirty"
    rm "$W/allocations/dirty"
    truncate -s 8M "$W/allocations/clean"
    cmp -n 8388608 "$W/allocations/clean" /dev/zero
    exec 5>&-
}

@test "several programs transfer at once" {
    exec 5<>"$W/lock"
    for i in 1 2 3 4 5 6; do
        random_file "f$i" 4000000
        cp "$T/f$i" "$W/allocations/f$i" &
        pids[i]=$!
    done
    wait "${pids[@]}"
    for i in 1 2 3 4 5 6; do
        cmp "$T/f$i" "$W/allocations/f$i" &
        pids[i]=$!
    done
    for pid in "${pids[@]}"; do
        wait "$pid"
    done
    exec 5>&-
}

# bats test_tags=host
@test "others read the bytes that a program writes through a descriptor" {
    ctl open "$W/ctl" rw acquire rw 0 alloc 10000 1 a '' export-rw 0 0 connect "$M" redeem last 1 \
        poke 0 5000 'by descriptor' commit
    assert_eq "$(dd if="$W/allocations/a" bs=1 skip=5000 count=13 status=none)" 'by descriptor'
    ctl open "$W/ctl" r acquire-export ro 5000 connect "$M" redeem last 1 peek 0 5000 13
    assert_match "$output" 'by descriptor'
    expect EBADF open "$W/ctl" r acquire-export ro 5000 connect "$M" redeem last 1 poke 0 0 x
}

# bats test_tags=host
@test "EXPORT of an open allocation is that allocation, of a spool the written bytes" {
    ctl open "$W/lock" rw open "$W/allocations/a" rwc ftruncate 1 open "$W/allocations/b" rwc \
        write spooled export 0 0 connect "$M" redeem last 9 peek 0 0 7 try write more use 0 commit
    assert_match "$output" 'item rank=1 slot=1 size=7 '
    assert_match "$output" $'spooled\nENOSPC' # an exported size is final
}

# ---- the end of an allocation -----------------------------------------------------------------

@test "a write past the end is short, then ENOSPC" {
    expect ENOSPC open "$W/lock" rw open "$W/allocations/a" rwc ftruncate 1000 pwrite 990 fill:20 \
        pwrite 1000 x
    assert_match "$output" 'written=10'
    expect ENOSPC open "$W/lock" rw open "$W/allocations/a" rwc ftruncate 3000000 fill 4000000
    assert_match "$output" 'written=3000000'
}

@test "cp of too much into a sized allocation fails visibly" {
    random_file bytes 5000
    exec 5<>"$W/lock"
    truncate -s 4000 "$W/allocations/a"
    expect_message ENOSPC dd if="$T/bytes" of="$W/allocations/a" bs=4096 conv=notrunc
    cmp -n 4000 "$W/allocations/a" "$T/bytes"
    exec 5>&-
}

@test "a read at the end is empty, across it short" {
    commit_store
    ctl open "$W/allocations/a" r pread 1048576 10 pread 1048570 100
    assert_eq "$(dd if="$W/allocations/a" bs=1M count=2 status=none | wc -c)" 1048576
    ctl open "$W/lock" rw open "$W/allocations/hollow" rwc pread 0 10
    assert_eq "$output" ''
}

# ---- spools ----------------------------------------------------------------------------------

@test "bytes left out of a spool are zeros, in the middle and at its end" {
    ctl open "$W/lock" rw open "$W/allocations/a" rwc write abc pwrite 3 d pwrite 1 XY pread 0 10
    assert_eq "${lines[-1]}" aXYd
    (
        exec 5<>"$W/lock"
        "$GMSCTL" open "$W/allocations/b" rwc pwrite 5 x
        "$GMSCTL" open "$W/allocations/c" rwc write abc pwrite 3000000 y ftruncate 5000000
        "$GMSCTL" open "$W/allocations/d" rwc ftruncate 7 # nothing was written: its size
        echo 1 >"$W/commit"
    )
    assert_eq "$(od -An -c "$W/allocations/b" | tr -d ' ')" '\0\0\0\0\0x'
    {
        printf abc
        head -c 2999997 /dev/zero
        printf y
        head -c 1999999 /dev/zero
    } | cmp - "$W/allocations/c"
    assert_eq "$(stat -c %s "$W/allocations/d")" 7
    expect EBUSY open "$W/lock" rw open "$W/allocations/e" rwc write abc ftruncate 2
}

@test "cp, mv, tar and dd bring files with holes" {
    local file
    truncate -s 8M "$T/holes"
    printf one | dd of="$T/holes" bs=1 seek=3000000 conv=notrunc status=none
    printf two | dd of="$T/holes" bs=1 seek=5000000 conv=notrunc status=none
    cp --sparse=always "$T/holes" "$T/moved"
    (
        cd "$W"
        exec 5<>lock
        cp --sparse=always "$T/holes" allocations/cp
        mv "$T/moved" allocations/mv 2>"$T/said" || true # it cannot set the times of what it made
        dd if="$T/holes" of=allocations/dd bs=64K conv=sparse status=none
        tar -C "$T" -cSf - holes | tar -C allocations -xSmf - --no-same-owner --no-same-permissions
        echo 1 >commit
    )
    for file in cp mv dd holes; do
        cmp "$T/holes" "$W/allocations/$file"
    done
}

@test "a spool goes on over the closes of duplicates" {
    exec 5<>"$W/lock"
    exec 7>"$W/allocations/a"
    printf one >&7
    bash -c 'printf two' >&7
    (printf three >&7)
    printf four | cat >&7
    exec 7>&-
    assert_eq "$(cat "$W/allocations/a")" onetwothreefour
    commit_5
    assert_eq "$(cat "$W/allocations/a")" onetwothreefour
}

@test "{ ...; ...; } > file and >> append one after the other" {
    exec 5<>"$W/lock"
    {
        echo first
        cat <<<second
        sh -c 'echo third'
    } >"$W/allocations/a"
    assert_eq "$(tr '\n' ' ' <"$W/allocations/a")" 'first second third '
    exec 5>&-
}

@test "a spool is readable while it grows, and becomes memory at fsync" {
    ctl open "$W/lock" rw open "$W/allocations/a" rwc write hello pread 0 99 fsync pread 0 99 \
        stat "$W/allocations/a"
    assert_match "$output" $'hello\nhello\nsize=5 blocks=4096 '
}

@test "a spool that is open at commit is published as it was" {
    ctl open "$W/lock" rw open "$W/allocations/a" wc write spooled use 0 commit
    assert_state weights COMMITTED
    assert_eq "$(cat "$W/allocations/a")" spooled
    assert_eq "$(getfattr --only-values -n user.gmsfs.aligned_size "$W/allocations/a" 2>/dev/null)" \
        $((2 << 20))
}

@test "a spool is charged as it grows and given back when it goes" {
    hold open "$W/lock" rw open "$W/allocations/a" wc fill 5000000
    [[ $(device_get .used_bytes) -ge 5000000 ]]
    let_go "$HOLDER"
    assert_state weights EMPTY
    wait_until 5 used_is 0
}

@test "truncating to 0 gives the memory back and keeps the entries; then it may have another size" {
    exec 5<>"$W/lock"
    truncate -s 3M "$W/allocations/a"
    ctl fd 5 put key v 0 100
    truncate -s 0 "$W/allocations/a"
    wait_until 5 used_is 0
    assert_eq "$(names "$W/metadata")" key
    assert_eq "$(stat -c '%s %b' "$W/allocations/a")" '0 0'
    truncate -s 5000 "$W/allocations/a"
    commit_5
    assert_eq "$(stat -c %s "$W/allocations/a") $(cat "$W/metadata/key")" '5000 v'
}

@test "a spool that is truncated while it is being sealed stays truncated" {
    ctl open "$W/lock" rw repeat 100 open "$W/allocations/a" rwc write fill:1000001 close \
        open "$W/allocations/a" wt ftruncate 4096 pwrite 4095 x close unlink "$W/allocations/a" use 0
}

@test "cp over an allocation replaces it" {
    random_file old 3000000
    random_file new 500
    exec 5<>"$W/lock"
    cp "$T/old" "$W/allocations/a"
    cp "$T/new" "$W/allocations/a"
    cmp "$T/new" "$W/allocations/a"
    commit_5
    cmp "$T/new" "$W/allocations/a"
}

@test "cp -p and tar may set the owner and mode that the store gives anyhow" {
    requires root
    chmod 755 "$W"
    random_file new 5000
    chmod 644 "$T/new"
    exec 5<>"$W/lock"
    cp -p "$T/new" "$W/allocations/copied"
    tar c -C "$T" new | tar x -C "$W/allocations"
    for name in copied new; do
        cmp "$T/new" "$W/allocations/$name"
    done
    expect EPERM chmod "$W/allocations/copied" 0600
    exec 5>&-
}

@test "mv and rm of allocations, also of open ones" {
    exec 5<>"$W/lock"
    cp <(echo one) "$W/allocations/a"
    cp <(echo two) "$W/allocations/b"
    mv "$W/allocations/a" "$W/allocations/c"
    mv "$W/allocations/b" "$W/allocations/c"
    assert_eq "$(names "$W/allocations") $(cat "$W/allocations/c")" 'c two'
    exec 7<"$W/allocations/c"
    rm "$W/allocations/c"
    run cat <&7
    [[ $status -ne 0 || $output == two ]]
    exec 7<&- 5>&-
    assert_state weights EMPTY
    wait_until 5 used_is 0
}

# ---- the hash --------------------------------------------------------------------------------

# load_model [TAG [OP...]]: into an empty store; more operations come before the commit.
load_model() {
    local tag=${1-weights}
    ctl open "$W/ctl" rw acquire rw 5000 alloc 3000000 2 chunk0 "$tag" alloc 100 1 '' '' \
        put layer.0 bytes 0 0 put layer.1 x 1 512 put config '{}' none 0 "${@:2}" commit
}

@test "the hash of layout by xxhsum -H2 is layout_hash" {
    requires xxhsum
    load_model
    run_logged -0 xxhsum -q -H2 "$W/layout"
    assert_eq "${output%% *}" "$(cat "$W/layout_hash")"
    assert_eq "$(info_of weights .layout_hash)" "$(cat "$W/layout_hash")"
}

@test "layout is msgpack as documented" {
    ctl open "$W/ctl" rw acquire rw 0 alloc 5 1 a tag put k v 0 3 put free '' none 0 commit
    # {"v":1,"allocations":[[5,2097152,"tag"]],"metadata":[["free",nil,0,b""],["k",0,3,b"v"]]}
    want=83a17601ab616c6c6f636174696f6e73919305ce00200000a3746167
    want+=a86d65746164617461 want+=9294a466726565c000c400 want+=94a16b0003c40176
    assert_eq "$(od -An -v -tx1 "$W/layout" | tr -d ' \n')" "$want"
}

@test "the same load twice gives the same layout and hash, in another store too" {
    load_model
    cp "$W/layout" "$T/layout"
    hash=$(cat "$W/layout_hash")
    ctl open "$W/lock" rw open "$W/allocations/chunk0" rw pwrite 0 x
    assert_state weights EMPTY
    load_model
    cmp "$W/layout" "$T/layout"
    assert_eq "$(cat "$W/layout_hash")" "$hash"
    mkdir "$M/other"
    W=$M/other load_model
    assert_eq "$(cat "$M/other/layout_hash")" "$hash"
}

@test "another structure gives another hash" {
    load_model
    cat "$W/layout_hash" >"$T/hashes"
    for change in 'tag' 'weights put extra v none 0' 'weights delete layer.1' 'weights free 2' \
        'weights put layer.1 x 1 513' 'weights put layer.1 x 0 512' 'weights put layer.1 y 1 512' \
        'weights alloc 100 1 more _'; do
        W=$M/${change// /-}
        mkdir "$W"
        # shellcheck disable=SC2086 # words
        load_model $change
        cat "$W/layout_hash" >>"$T/hashes"
    done
    assert_eq "$(sort -u "$T/hashes" | wc -l)" 9
}

@test "names and slots are not part of the hash, order and bytes written neither" {
    load_model
    hash=$(cat "$W/layout_hash")
    ctl open "$W/lock" rw rename "$W/allocations/chunk0" "$W/allocations/renamed" \
        open "$W/allocations/renamed" rw pwrite 5 other use 0 commit
    assert_eq "$(cat "$W/layout_hash")" "$hash"
}
