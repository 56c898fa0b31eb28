#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs image: a store into a directory and back, exactly, and the requirements on the directory.
# 43-image-faults.bats tests faults of images.

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers
load image

# ---- there and back --------------------------------------------------------------------------

@test "a store comes back exactly, with any content" {
    start_filled
    mkdir "$M/other"
    cli image save "$M/weights" "$T/image"
    assert_match "$output" 'saved .*: 4 allocations and 7 entries in .*, layout [0-9a-f]{32}'
    assert_eq "$(files_in "$T/image")" 'data-00000 layout manifest ' files
    cmp "$M/weights/layout" "$T/image/layout"
    cli image load "$M/other" "$T/image"
    assert_match "$output" 'committed .*: 4 allocations and 7 entries, generation 1, layout '
    assert_state other COMMITTED
    same weights other
}

# bats test_tags=slow
@test "image load makes the store that is not there, and leaves none where it fails" {
    start_mount size=64M
    fill_store weights
    cli image save -q "$M/weights" "$T/image"
    cli image load "$M/other" "$T/image"
    same weights other
    rmdir "$M/other"
    flip "$T/image/data-00000" 5
    cli -1 image load "$M/other" "$T/image"
    [[ ! -e $M/other ]] || fail "a store was left"
    cli -1 image load "$M/other" "$T/none"
    [[ ! -e $M/other ]] || fail "a store was left"
    mkdir "$M/mine"
    cli -1 image load "$M/mine" "$T/image"
    assert_state mine EMPTY # one that was there stays
    cli -1 image load "$T/none/other" "$T/image"
    assert_match "$output" 'there is no gmsfs mount'
}

@test "others' commits in a store that image load made outlive that load" {
    start_mount size=64M
    "$GMSFS" run -w "$M/weights" -- bash -c 'truncate -s 40M "$GMSFS_STORE/allocations/a"'
    cli image save -q "$M/weights" "$T/image"
    spawn env -i "$GMSFS" image load "$M/other" "$T/image"
    wait_until 10 grep -q 'waiting for' "$T/spawn-$SPAWNED"
    ctl open "$M/other/lock" w commit # a writer without a reservation passes it
    kill -TERM "$SPAWNED"
    wait_exit -143 "$SPAWNED" 20
    assert_state other COMMITTED
}

@test "files and pieces of any size hold the same store" {
    start_filled
    mkdir "$M/other"
    cli image save -q --threads 3 --file-size 70001 "$M/weights" "$T/image"
    (($(find "$T/image" -name 'data-*' -size -70002c | wc -l) > 100)) || fail 'no small files'
    cli image load -q --threads 5 "$M/other" "$T/image"
    assert_eq "$output" '' output
    same weights other
    cli image save -q --threads 1 "$M/other" "$T/again"
    cli image load -q --threads 1 "$M/weights" "$T/again"
    same other weights
}

@test "a layout without anything in it is an image too, and an empty store is none" {
    start_mount
    cli -1 image save "$M/weights" "$T/image"
    assert_match "$output" 'EMPTY'
    [[ ! -e $T/image ]] || fail 'a directory was made'
    "$GMSFS" run -w "$M/weights" -- true
    assert_state weights COMMITTED
    mkdir "$M/other"
    cli image save "$M/weights" "$T/image"
    cli image load "$M/other" "$T/image"
    assert_eq "$(cat "$M/other/layout_hash")" "$(cat "$M/weights/layout_hash")" layout_hash
    assert_state other COMMITTED
}

@test "the group of a commit comes back with its image" {
    requires jq
    local group=00112233445566778899aabbccddeeff
    start_mount
    mkdir "$M/other"
    ctl open "$M/weights/ctl" rw acquire rw 0 alloc 1 1 a '' commit-group "$group"
    cli image save "$M/weights" "$T/image"
    cli image load "$M/other" "$T/image"
    assert_eq "$(jq -r .group "$M/other/info")" "$(jq -r .group "$M/weights/info")" group
    assert_match "$("$GMSFS" image ls "$T/image")" "group +$group"
}

@test "bytes that a client left behind the size of an allocation are kept" {
    start_mount granularity=64K
    mkdir "$M/other"
    ctl open "$M/weights/ctl" rw acquire rw 0 alloc 5 2 a0 '' export-rw 0 2 connect "$M" \
        redeem last 2 poke 0 2 within poke 1 60000 behind commit
    cli image save "$M/weights" "$T/image"
    assert_eq "$(grep '^allocation ' "$T/image/manifest")" \
        $'allocation 0 5 65536 a0\nallocation 1 5 65536 a1' 'the stored lines'
    cli image load "$M/other" "$T/image"
    ctl open "$M/other/ctl" r acquire-export ro 5000 connect "$M" redeem last 2 \
        peek 0 0 9 peek 1 60000 6
    assert_match "$output" 'behind'
    start_mount granularity=4K
    refused weights "$T/image" 'granularity=65536'
    cli -1 image load --realign "$M/weights" "$T/image"
    assert_match "$output" "allocation 0 .'a0'. has bytes behind its size.*granularity=65536"
}

@test "an entry that points behind the size of its allocation is kept, and needs the granularity" {
    start_mount granularity=64K
    mkdir "$M/other"
    ctl open "$M/weights/ctl" rw acquire rw 0 alloc 5 1 a0 '' put end/1 value 0 65535 commit
    cli image save "$M/weights" "$T/image"
    cli image ls --check "$T/image"
    cli image load "$M/other" "$T/image"
    cmp "$M/weights/layout" "$M/other/layout"
    start_mount granularity=4K
    run_logged -1 "$GMSFS" image load --realign "$M/weights" "$T/image"
    assert_match "$output" "metadata 'end/1' points at byte 65535 of allocation 0 .'a0'., which takes 4096 bytes.*granularity=65536"
    assert_state weights EMPTY
}

# bats test_tags=slow
@test "100,000 entries and 3,000 allocations come back" {
    requires python3
    start_mount granularity=4K,size=64M
    mkdir "$M/other"
    python3 - "$T/document" <<'PY'
import struct, sys
rows = bytearray()
for i in range(100000):
    key = b"layer/%d.weight" % i
    rows += b"\x94" + bytes([0xa0 | len(key)]) + key + b"\xcd" + struct.pack(">H", i % 3000)
    rows += b"\x00\xc4" + bytes([len(key)]) + key
open(sys.argv[1], "wb").write(b"\x82\xa1v\x01\xa8metadata\xdd" + struct.pack(">I", 100000) + rows)
PY
    ctl open "$M/weights/ctl" rw acquire rw 0 alloc 1 3000 a0000 '' writefile "$T/document" apply commit
    cli image save "$M/weights" "$T/image"
    assert_match "$output" '3000 allocations and 100000 entries'
    cli image load "$M/other" "$T/image"
    cmp "$M/weights/layout" "$M/other/layout"
    assert_eq "$(sums other)" "$(sums weights)" sums
}

# bats test_tags=slow
@test "another granularity is refused with both named, and accepted on request" {
    start_mount granularity=2M
    fill_store weights
    cli image save -q "$M/weights" "$T/image"
    local first=$M
    start_mount granularity=64K
    refused weights "$T/image" '2\.0 MiB .*64\.0 KiB .*granularity=2097152, .*--realign'
    cli image load --realign "$M/weights" "$T/image"
    assert_match "$output" 'realigned: not the saved one'
    assert_eq "$(sums weights)" "$(M=$first sums weights)" sums
    diff -r "$M/weights/metadata" "$first/weights/metadata"
    [[ $(cat "$M/weights/layout_hash") != $(cat "$first/weights/layout_hash") ]] ||
        fail 'the same hash'
}

# bats test_tags=slow
@test "an image goes past the page cache, and comes back from it so" {
    requires direct-io fincore
    start_filled
    mkdir "$M/other" "$M/third"
    cli image save --direct always "$M/weights" "$T/image"
    (($(cached_bytes "$T/image/data-00000") < 1 << 20)) ||
        fail "$(cached_bytes "$T/image/data-00000") bytes are cached"
    cli image load --direct always "$M/other" "$T/image"
    same weights other
    cli image ls --check --direct always "$T/image"
    # Files that meet within a block, some of them of less than one.
    cli image save --direct always --force --file-size 70001 --threads 5 "$M/weights" "$T/image"
    cli image load --direct never "$M/third" "$T/image"
    same weights third
    flip "$T/image/data-00003" 70000
    refused other "$T/image" 'the image is damaged'
}

# bats test_tags=slow
@test "many threads fill the files of an image on a tmpfs" {
    requires root mountns
    start_filled
    mkdir "$T/disk" "$T/copy"
    run_logged -0 in_mountns 'set -eu
        mount -t tmpfs -o size=40M tmpfs "$1"
        "$2" image save --threads 7 --file-size 3M "$3" "$1/image"
        "$2" image ls --check "$1/image"; cp "$1"/image/* "$4"' \
        "$T/disk" "$GMSFS" "$M/weights" "$T/copy"
    mkdir "$M/other"
    cli image load "$M/other" "$T/copy"
    same weights other
}

# bats test_tags=slow
@test "an image of many sizes comes back by more threads than it has files open" {
    start_mount size=1200M
    "$GMSFS" run -w "$M/weights" -- bash -euc 'cd "$GMSFS_STORE/allocations"
        truncate -s 66M large another; head -c 9M /dev/urandom | dd of=large bs=1M seek=50 conv=notrunc status=none
        for i in {1..90}; do head -c $((i * 977)) /dev/urandom >"small$i"; done
        truncate -s 70M last; head -c 1M /dev/urandom | dd of=last bs=1M seek=69 conv=notrunc status=none'
    cli image save -q "$M/weights" "$T/image"
    mkdir "$M/other"
    cli image load -q --threads 200 "$M/other" "$T/image"
    same weights other
}

# bats test_tags=slow
@test "where no file may be written that far, an image is loaded through mappings" {
    start_filled
    cli image save -q "$M/weights" "$T/image"
    mkdir "$M/other"
    run_logged -0 bash -c 'ulimit -f 2000; exec "$@"' _ "$GMSFS" image load "$M/other" "$T/image"
    same weights other
}

# ---- the directory ---------------------------------------------------------------------------

@test "a directory with something in it is not written to unless asked, and the rest is left alone" {
    start_filled
    mkdir "$T/dir"
    echo mine >"$T/dir/mine"
    cli -1 image save "$M/weights" "$T/dir"
    assert_match "$output" 'is not empty; .*--force'
    cli image save -q --force "$M/weights" "$T/dir"
    cli -1 image save "$M/weights" "$T/dir"
    assert_match "$output" 'has an image already'
    cli -1 image save --resume "$M/weights" "$T/dir"
    cli image save -q --force --file-size 1M "$M/weights" "$T/dir"
    cli image save -q --force "$M/weights" "$T/dir"
    assert_eq "$(files_in "$T/dir")" 'data-00000 layout manifest mine ' files
    assert_eq "$(cat "$T/dir/mine")" mine 'the old file'
    cli image ls --check "$T/dir"
}

@test "a file that only looks like a part of an image is not overwritten" {
    start_filled
    mkdir "$T/dir"
    echo mine >"$T/mine"
    ln -s "$T/mine" "$T/dir/data-00000"
    cli -1 image save --force "$M/weights" "$T/dir"
    assert_match "$output" 'data-00000: is in the way'
    assert_eq "$(cat "$T/mine")" mine 'the old file'
    cli -1 image save "$M/weights" "$T/mine"
    cli -1 image save "$M/weights" "$T/nowhere/image"
    assert_match "$output" 'No such file or directory'
    cli -1 image load "$M/weights" "$T"
    assert_match "$output" "it has no image: there is no file 'manifest'; 'gmsfs image save' makes an image"
}

# bats test_tags=slow
@test "errors name limits of the store and invalid words" {
    start_mount
    cli -2 image
    cli -2 image save "$M/weights"
    cli -2 image burn "$M/weights" x
    cli -2 image save --realign "$M/weights" x
    cli -2 image load --force "$M/weights" x
    cli -2 image ls --timeout 1 x
    cli -2 image save --force --resume "$M/weights" x
    cli image --help
    assert_match "$output" 'Usage: gmsfs image save'
    fill_store weights
    exec 5<>"$M/weights/lock"
    cli -3 image save --timeout 0.2 "$M/weights" "$T/image"
    exec 5>&-
    [[ ! -e $T/image ]] || fail 'a directory was made'
    cli image save -q "$M/weights" "$T/image"
    exec 5<"$M/weights/lock"
    cli -3 image load --timeout 0.2 "$M/weights" "$T/image"
    exec 5<&-
}

# bats test_tags=slow
@test "a save is alone, and readers are not held up" {
    requires flock
    start_filled
    cli image save -q "$M/weights" "$T/image"
    exec 5<"$T/image"
    flock 5
    cli -1 image save --force "$M/weights" "$T/image"
    assert_match "$output" "another 'gmsfs image' reads or writes it"
    cli -1 image load "$M/weights" "$T/image"
    assert_match "$output" "another 'gmsfs image' writes it"
    cli image ls "$T/image"
    flock --shared 5
    cli image load -q "$M/weights" "$T/image"
    exec 5<&-
}

# ---- ls --------------------------------------------------------------------------------------

# bats test_tags=slow
@test "ls lists allocations and entries, from where it stopped, with the sums that sum prints" {
    requires jq
    start_filled
    cli image save -q "$M/weights" "$T/image"
    cli image ls --json "$T/image"
    assert_eq "$(jq -r '.allocations[0] | .hash + "  " + .name' <<<"$output")" \
        "$(sums weights | head -n 1)" 'the first sum'
    assert_eq "$(jq -r .layout_hash <<<"$output")" "$(cat "$M/weights/layout_hash")" hash
    cli image ls --json --after 0 --limit 2 "$T/image"
    assert_eq "$(jq -c '[.allocations[].rank]' <<<"$output")" '[1,2]' ranks
    cli image ls --json --after 3 "$T/image"
    assert_eq "$(jq -c .allocations <<<"$output")" '[]' 'the rest'
    cli image ls --json --entries "$T/image"
    assert_eq "$(jq -c '[.entries[] | [.key, .rank, .offset, .bytes]]' <<<"$output")" \
        '[["%percent",0,1,34],[".dot",1,0,1],["a/b",0,99999,0],["binary",null,0,2],["large",null,0,1048576],["note",null,0,7],["nul\u0000in",null,0,64]]' \
        entries
    cli image ls --check "$T/image"
    assert_match "$output" 'all 83428[0-9]{2} bytes are as they were saved'
    cli image ls "$T/image"
    [[ $output != *$'\e'* ]] || fail 'control characters'
}
