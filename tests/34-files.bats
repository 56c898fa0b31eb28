#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# files/: files of a model that a store keeps byte for byte.
#
# shellcheck disable=SC2016 # shells within shells have variables of their own
# shellcheck disable=SC2034,SC2153 # variables that the helpers read and set

load helpers

prepare() {
    start_weights size=64M
    F=$W/files
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
    wait_until 10 grep -q '^disk' "$W/residency"
    assert_eq "$(stat -c %s "$F/whole")" 10000
    cmp "$F/one/two/part" <(tail -c +101 "$T/bytes" | head -c 4097)
    assert_state weights COMMITTED # the reader's close has arrived
    echo device >"$W/residency"
    wait_until 10 grep -q '^device' "$W/residency"
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

# ---- gmsfs load --files ----------------------------------------------------------------------

@test "gmsfs run -r and a held lock pin the files while a writer waits" {
    local writer reader
    mkdir "$T/first" "$T/second"
    echo first >"$T/first/model.txt"
    echo second >"$T/second/model.txt"
    cli load -q --files "$W" "$T/first"
    spawn "$GMSFS" run -r "$W" -- sh -c \
        'cat "$0/model.txt"; until [ -e "$1" ]; do sleep 0.05; done; cat "$0/model.txt"' "$F" "$T/go"
    reader=$SPAWNED
    wait_until 5 grep -q first "$T/spawn-$reader"
    spawn "$GMSFS" load -q --files "$W" "$T/second"
    writer=$SPAWNED
    wait_for_waiters weights 1
    touch "$T/go"
    wait_exit "$reader"
    assert_eq "$(output_of "$reader")" $'first\nfirst'
    wait_exit -0 "$writer"
    assert_eq "$(cat "$F/model.txt")" second

    exec 8<"$W/lock"
    cli -3 load -q --files --timeout 0 "$W" "$T/first"
    assert_eq "$(cat "$F/model.txt")" second
    exec 8>&-
    cli load -q --files "$W" "$T/first"
    assert_eq "$(cat "$F/model.txt")" first
}

# A directory with a model and files of all kinds of sizes: sets D.
make_directory() {
    local size
    requires python3 || return 1
    D=$T/model
    mkdir -p "$D/onnx/a/b" "$D/.cache"
    for size in 0 1 4095 4096 4097 2097153; do
        head -c "$size" /dev/urandom >"$D/$size.bin"
        head -c "$size" /dev/urandom >"$D/onnx/a/$size.bin"
    done
    printf '{"a":1}' >"$D/config.json"
    printf x >"$D/.cache/hidden"
    printf y >"$D/onnx/a/b/gewicht ä%.txt"
    python3 - "$D/model.safetensors" <<'PYTHON'
import json, os, struct, sys
head = json.dumps({"__metadata__": {"format": "pt"},
                   "odd": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
                   "wide": {"dtype": "F32", "shape": [1000], "data_offsets": [3, 4003]},
                   "none": {"dtype": "F32", "shape": [0], "data_offsets": [4003, 4003]}}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + os.urandom(4003))
PYTHON
    find "$D" -type f -exec touch -d '2001-02-03 04:05:06.123456789' {} +
}

load_directory() {
    make_directory
    cli load --files "$W" "$D"
    assert_match "$output" 'committed .* 16 files with 3 tensors in [0-9]+ allocations, generation 1'
}

# bats test_tags=quick
@test "a directory is kept byte for byte, with its times" {
    load_directory
    diff -r "$D" "$F"
    assert_eq "$(info_of weights .immutable)" true
    assert_eq "$(cd "$F" && find . -type f -printf '%P %s %T@\n' | sort)" \
        "$(cd "$D" && find . -type f -printf '%P %s %T@\n' | sort)"
}

# The memory of the file of 2 MiB and a byte ends with the file.
has_odd_memory() {
    find "/proc/$KEEPER/fd" -lname '/memfd:gmsfs *' -exec stat -L -c %s {} + | grep -qx 2097153
}

@test "a daemon of an earlier release, without memory of an exact length, keeps files too" {
    load_directory
    has_odd_memory || fail 'no memory of an exact length'
    cli image save "$W" "$T/image"
    cp -a "$D" "$T/before"
    export GMSFS_NO_EXACT=1
    start_weights size=64M
    F=$W/files
    load_directory
    ! has_odd_memory || fail 'memory of an exact length'
    diff -r "$D" "$F"
    cli image load --immutable "$M/image" "$T/image"
    diff -r "$T/before" "$M/image/files"
    assert_eq "$(info_of image .immutable)" true
}

@test "tools that copy, pack and sum see the files of the directory" {
    load_directory
    (cd "$D" && find . -type f -exec sha256sum {} +) >"$T/sums"
    (cd "$F" && sha256sum --quiet -c "$T/sums")
    cp -a "$F" "$T/copy"
    diff -r "$D" "$T/copy"
    tar -C "$F" -c . | tar -C "$(mktemp -d "$T/tar.XXXX")" -x
    diff -r "$D" "$T"/tar.*
    assert_eq "$(stat -c %.Y "$T/copy/config.json")" 981173106.123456789
    ! type -P rsync >/dev/null || {
        rsync -a "$F/" "$T/rsync/"
        diff -r "$D" "$T/rsync"
        assert_eq "$(rsync -ain --omit-dir-times "$D/" "$F/" | grep -c '^>')" 0
    }
    ! type -P busybox >/dev/null || {
        busybox cp -a "$F" "$T/busybox"
        diff -r "$D" "$T/busybox"
        (cd "$F" && busybox sha256sum -c "$T/sums") >/dev/null
    }
}

@test "several threads fill one large file, and no mapping of theirs keeps it from being sealed" {
    mkdir "$T/large"
    head -c $(((50 << 20) + 5001)) /dev/urandom >"$T/large/model.bin"
    cli load --files --threads 4 "$W" "$T/large"
    assert_eq "$(info_of weights .immutable)" true
    cmp "$F/model.bin" "$T/large/model.bin"
}

@test "ls tells the bytes of files beside the tensors" {
    load_directory
    cli ls "$W"
    assert_match "$output" "gmsfs:file:config.json +file +- +$(stat -c %s "$D/config.json") +a[0-9]+ +[0-9]+"
    assert_match "$output" 'wide +[a-z0-9]+ +[0-9x]+ +[0-9]+ +a'
    assert_match "$output" 'is immutable: this layout never changes'
}

@test "a large file and one with tensors is an allocation, small files share one" {
    load_directory
    assert_eq "$(find "$W/allocations" -type f -printf '%s\n' | sort -n | tail -n 2 | sort -u)" 2097153
    assert_eq "$(find "$W/allocations" -type f | wc -l)" 4
    assert_eq "$(getfattr --only-values -n user.gmsfs.offset "$W/metadata/wide")" \
        "$(($(stat -c %s "$D/model.safetensors") - 4000))"
    cli save -q "$W" "$T/saved.safetensors"
    cli load -q "$M/plain" "$D/model.safetensors"
    cli verify "$M/plain" "$T/saved.safetensors"
    assert_match "$output" 'verified .* 3 tensors'
}

@test "an image keeps names, times and bytes" {
    load_directory
    cli image save "$W" "$T/image"
    cli image load "$M/again" "$T/image"
    diff -r "$D" "$M/again/files"
    assert_eq "$(stat -c %.Y "$M/again/files/config.json")" 981173106.123456789
}

@test "verify compares the files of a store with those of a directory" {
    load_directory
    cli verify "$W" "$D"
    assert_match "$output" 'verified .* 16 files'
    rm "$D/onnx/a/1.bin"
    cli verify "$W" "$D"
    assert_match "$output" '1 more files of the store are not among these'
    tail -c 1 "$D/onnx/a/4097.bin" | tr '\000-\377' '\001-\377\000' | # it is random
        dd of="$D/onnx/a/4097.bin" bs=1 seek=4096 conv=notrunc status=none
    truncate -s 5 "$D/config.json"
    echo new >"$D/new"
    cli -1 verify "$W" "$D"
    assert_match "$output" "'onnx/a/4097.bin' .* byte 4096 of 4097 is the first that differs"
    assert_match "$output" "'config.json' .* another size"
    assert_match "$output" "'new' .* not in the store"
}

@test "files are refused by name, before the lock" {
    local path
    make_directory
    hold open "$W/lock" rw
    refused() { # FAULT
        cli -1 load --files --timeout 0 "$W" "$D"
        assert_match "$output" "$1"
    }
    path=$D/$'line\nbreak'
    touch "$path"
    refused 'control character'
    rm "$path"
    path=$D/$'\xff'
    touch "$path"
    refused 'not UTF-8'
    rm "$path"
    path=$D/$(printf '%0250d' 0)
    touch "$path"
    refused 'takes more than 244 bytes'
    rm "$path"
    ln -s "$T/log0" "$D/link"
    refused "link to '.*log0', outside of the directory"
    ln -sfn nowhere "$D/link"
    refused 'cannot follow this link'
    ln -sfn ../model "$D/link"
    refused 'link to a directory that it lies in'
    rm "$D/link"
    mkfifo "$D/fifo"
    refused 'neither a file nor a directory'
    rm "$D/fifo"
    cli -1 load --files --timeout 0 "$W" "$D/4095.bin" "$D/onnx/a/4095.bin"
    assert_match "$output" "a store keeps one '4095.bin'"
    cli -1 load --files --timeout 0 "$W" "$D/4095.bin" "$D/onnx"
    cli -2 load --files --chunk 64M "$W" "$D"
    cli -2 load --files --group "$W=$D"
    cli -3 load --files --timeout 0 "$W" "$D"
    let_go "$HOLDER"
    assert_state weights EMPTY
}

@test "links are followed inside the directory and into the blobs of a hub's cache" {
    make_directory
    ln -s 4095.bin "$D/link.bin"
    ln -s onnx "$D/linked"
    cli load -q --files "$W" "$D"
    diff -r "$D" "$F"
    local hub="$T/models--x--y"
    mkdir -p "$hub/blobs" "$hub/snapshots/rev/sub" "$T/outside"
    mv "$D/config.json" "$hub/blobs/1234"
    mv "$D/4097.bin" "$hub/blobs/5678"
    ln -s ../../blobs/1234 "$hub/snapshots/rev/config.json"
    ln -s ../../../blobs/5678 "$hub/snapshots/rev/sub/file.bin"
    cli load -q --files "$W" "$hub/snapshots/rev"
    diff -r "$hub/snapshots/rev" "$F"
    ln -s "$T/outside" "$hub/snapshots/rev/more"
    cli -1 load --files "$W" "$hub/snapshots/rev"
    assert_match "$output" 'outside of the directory'
}

@test "files of any kind are kept, several models too, and a model that is not whole is refused" {
    make_directory
    rm "$D/model.safetensors"
    cli load --files "$W" "$D"
    assert_match "$output" '15 files with 0 tensors'
    diff -r "$D" "$F"
    mkdir "$T/empty"
    cli -1 load --files "$W" "$T/empty"
    assert_match "$output" 'has no files'
    head -c 100 /dev/zero >"$D/model-00001-of-00002.safetensors"
    cli -1 load --files "$W" "$D"
    assert_match "$output" 'not whole'
    : >"$T/none"
    cli load --files "$W" "$T/none"
    assert_match "$output" '1 files with 0 tensors in 0 allocations'
    assert_eq "$(find "$F" -type f -printf '%P %s')" 'none 0'
}

@test "files of several models are kept without tensors, and the command says why" {
    make_directory
    cp "$D/model.safetensors" "$D/a.safetensors"
    mv "$D/model.safetensors" "$D/b.safetensors"
    cli load --files "$W" "$D"
    assert_match "$output" "the files are kept without tensors: .*more than one model: 'a.safetensors', 'b.safetensors'"
    assert_match "$output" '17 files with 0 tensors'
}

@test "an index without the files that it names does not replace a store" {
    local index=$T/model.safetensors.index.json
    load_directory
    printf '{"weight_map":{"x":"model-00001-of-00001.safetensors"}}' >"$index"
    cli -1 load --files "$W" "$index"
    assert_match "$output" 'this index would be kept without the files that it names; name these'
    diff -r "$D" "$F"
}

@test "gmsfs save tells of the files that a store keeps besides its tensors" {
    load_directory
    cli save "$W" "$T/saved.safetensors"
    assert_match "$output" "the store keeps 16 files besides: 'cp -a $W/files DIRECTORY' copies them"
}
