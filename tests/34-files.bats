#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# files/: files of a model that a store keeps byte for byte.
#
# shellcheck disable=SC2016 # shells within shells have variables of their own
# shellcheck disable=SC2034,SC2153 # variables that the helpers read and set

load helpers
load gmsctl

setup() {
    common_setup
    start_mount size=64M
    W=$M/weights
    F=$W/files
}

# put_file PATH ALLOCATION OFFSET VALUE: an entry of a file; the caller has the writer's lock.
put_file() {
    local name="$W/metadata/gmsfs:file:${1//\//%2F}"
    printf %s "$4" >"$name"
    setfattr -n user.gmsfs.allocation -v "$2" "$name"
    setfattr -n user.gmsfs.offset -v "$3" "$name"
}

# Files of a whole allocation, of a part, and of no bytes, in two directories.
commit_files() {
    head -c 10000 /dev/urandom >"$T/bytes"
    exec 9<>"$W/lock"
    cp "$T/bytes" "$W/allocations/a"
    put_file whole a 0 '{"bytes":10000,"mtime_ns":1700000000123456789}'
    put_file one/two/part a 100 '{"bytes":4097}'
    put_file one/three a 9999 '{"bytes":1}'
    put_file one-more - 0 '{"bytes":0}'
    put_file beyond a 1 '{"bytes":10000}'
    put_file ../up a 0 '{"bytes":1}'
    echo 1 >"$W/commit"
    exec 9>&-
}

# bats test_tags=quick
@test "a store without entries of files has no files" {
    assert_eq "$(names "$W" | tr ' ' '\n' | grep -c files)" 0
    expect ENOENT stat "$F"
    expect ENOENT stat "$F/config.json"
    commit_files
    assert_match "$(names "$W")" 'data files info'
}

# bats test_tags=quick
@test "entries of files are files, in directories" {
    commit_files
    assert_eq "$(cd "$F" && find . -printf '%P %y %s\n' | sort | tr '\n' ,)" \
        ' d 0,one d 0,one-more f 0,one/three f 1,one/two d 0,one/two/part f 4097,whole f 10000,'
    cmp "$F/whole" "$T/bytes"
    cmp "$F/one/two/part" <(tail -c +101 "$T/bytes" | head -c 4097)
    cmp "$F/one/three" <(tail -c 1 "$T/bytes")
    cmp "$F/one-more" /dev/null
    assert_eq "$(stat -c %.Y "$F/whole")" 1700000000.123456789
    assert_eq "$(stat -c %a "$F/whole")" 444
    chmod 750 "$W"
    assert_eq "$(stat -c %a "$F/whole") $(stat -c %a "$F/one")" '440 750'
    expect ENOENT stat "$F/beyond"
    expect ENOENT stat "$F/one/none"
    expect ENOTDIR stat "$F/whole/x"
    assert_eq "$(names "$F/one/two/..")" 'three two'
    assert_eq "$(stat -c %i "$F/one/two/..")" "$(stat -c %i "$F/one")"
}

@test "nothing in files can be changed" {
    local before
    commit_files
    before=$(cat "$W/layout_hash")
    expect EACCES open "$F/whole" w
    expect EACCES open "$F/whole" rw
    expect EACCES open "$F/one-more" w
    expect EPERM open "$F/new" rwc
    run ! rm "$F/whole"
    run ! rm -r "$F/one"
    run ! mv "$F/whole" "$F/other"
    run ! mkdir "$F/dir"
    run ! ln -s x "$F/link"
    run ! truncate -s 0 "$F/whole"
    run ! touch -d yesterday "$F/whole"
    run ! chmod 600 "$F/whole"
    exec 9<>"$W/lock"
    run ! rm "$F/whole"
    exec 9>&-
    assert_eq "$(cat "$W/layout_hash")" "$before"
    cmp "$F/whole" "$T/bytes"
}

@test "an open file holds the reader's lock, one without bytes does not" {
    commit_files
    hold open "$F/one/three" r
    assert_state weights RO
    expect EAGAIN open "$W/lock" rwn
    let_go "$HOLDER"
    hold open "$F/one-more" r
    assert_state weights COMMITTED
    let_go "$HOLDER"
    hold open "$W/lock" rw
    expect EAGAIN open "$F/whole" r
    cat "$F/one-more"
    let_go "$HOLDER"
    cmp "$F/whole" "$T/bytes"
}

@test "files move with their store, to other places and to other names" {
    stop_mount
    start_mount size=64M,spill="$T",spill_size=64M
    W=$M/weights F=$W/files
    commit_files
    echo disk >"$W/residency"
    wait_until 10 grep -q disk "$W/residency"
    assert_eq "$(stat -c %s "$F/whole")" 10000
    cmp "$F/one/two/part" <(tail -c +101 "$T/bytes" | head -c 4097)
    echo device >"$W/residency"
    wait_until 10 grep -q device "$W/residency"
    cmp "$F/whole" "$T/bytes"
    mv "$W" "$M/other"
    cmp "$M/other/files/whole" "$T/bytes"
}

@test "files are there after a worker has died, open ones too" {
    commit_files
    hold open "$F/one/two/part" r read 4
    kill_worker
    cmp "$F/whole" "$T/bytes"
    assert_state weights RO
    let_go "$HOLDER"
    wait_until 5 assert_state weights COMMITTED
}

@test "another user reads files if the mode of the store lets it" {
    requires root
    commit_files
    chmod 755 "$W"
    as_user cmp "$F/whole" "$T/bytes"
    chmod 700 "$W"
    run ! as_user cat "$F/whole"
    run ! as_user ls "$F"
}
