#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs image: a store into a directory and back, exactly, or not at all.

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers
load gmsctl

# fill_store STORE [SEED]: allocations of odd sizes, tags, names and entries of every kind.
fill_store() {
    "$GMSFS" run -w "$M/$1" -- bash -euc 'cd "$GMSFS_STORE"
        head -c 100000 /dev/zero | tr "\0" "$1" >allocations/tiny
        printf "%s" "$1" >allocations/one
        head -c 3000001 /dev/urandom >"allocations/with space, ä and "$'\''\n'\''
        head -c 5242880 /dev/urandom >"allocations/%2Fslash\\"
        gmsfs=$2; put() { "$gmsfs" metadata put . "$@"; }
        put note "hello $1"; put a/b "" --allocation tiny --offset 99999
        put .dot x --allocation one
        put "%percent" "{\"dtype\":\"torch.int8\",\"shape\":[7]}" --allocation tiny --offset 1
        head -c 1048576 /dev/urandom | put large -
        head -c 64 /dev/urandom >metadata/nul%00in
        put binary "$(printf "\\377\\376")"' _ "${2:-s}" "$GMSFS"
    if machine_has setfattr; then
        "$GMSFS" run -w "$M/$1" -- setfattr -n user.gmsfs.tag -v 'wéights 1' "$M/$1/allocations/tiny"
    fi
}

sums() { # STORE
    timeout $((60 * SLOW)) "$GMSFS" sum --allocations "$M/$1"
}

# same STORE STORE: structure, names, all bytes and all entries.
same() {
    assert_eq "$(cat "$M/$2/layout_hash")" "$(cat "$M/$1/layout_hash")" layout_hash
    cmp "$M/$1/layout" "$M/$2/layout" || fail "the layouts differ"
    assert_eq "$(sums "$2")" "$(sums "$1")" sums
    diff -r "$M/$1/allocations" "$M/$2/allocations" || fail "the allocations differ"
    diff -r "$M/$1/metadata" "$M/$2/metadata" || fail "the entries differ"
}

# flip FILE OFFSET: one bit.
flip() {
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    # shellcheck disable=SC2059 # made here
    printf "\\x$(printf %02x $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# seal FILE: a manifest that was changed gets the sum that it needs to be believed.
seal() {
    sed -i '/^end /d' "$1"
    echo "end $(xxhsum -q -H2 <"$1" | cut -d' ' -f1)" >>"$1"
}

# interrupt DIR PIECES: makes an image what a save that was killed after so many pieces leaves.
interrupt() {
    awk -v most="$2" '/^end /{ next } /^piece /{ if (n++ >= most) next } { print }' "$1/manifest" \
        >"$1/unfinished"
    rm "$1/manifest"
    printf 'piece 3 17' >>"$1/unfinished" # a line that was being written
}

files_in() { # DIR
    find "$1" -mindepth 1 -printf '%f\n' | sort | tr '\n' ' '
}

# refused STORE DIR REGEX: load fails and says so, and the store is as it was.
refused() {
    local before after
    before=$(cat "$M/$1/layout_hash" "$M/$1/state"; [[ $(<"$M/$1/state") == EMPTY ]] || sums "$1")
    cli -1 image load -q "$M/$1" "$2"
    assert_match "$output" "$3"
    wait_until 5 eval '[[ $(<"$M/'"$1"'/state") != RW ]]'
    after=$(cat "$M/$1/layout_hash" "$M/$1/state"; [[ $(<"$M/$1/state") == EMPTY ]] || sums "$1")
    assert_eq "$after" "$before" 'the store after a refused load'
}

# ---- there and back --------------------------------------------------------------------------

@test "a store comes back exactly, whatever it holds" {
    start_mount
    fill_store weights
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

@test "what others commit in a store that image load made outlives that load" {
    start_mount size=64M
    "$GMSFS" run -w "$M/weights" -- bash -c 'truncate -s 40M "$GMSFS_STORE/allocations/a"'
    cli image save -q "$M/weights" "$T/image"
    spawn env -i "$GMSFS" image load "$M/other" "$T/image"
    wait_until 10 grep -q 'waiting for' "$T/spawn-$SPAWNED"
    ctl open "$M/other/lock" w commit # who reserves nothing passes it
    kill -TERM "$SPAWNED"
    wait_exit "$SPAWNED" 20
    assert_eq "$status" 143
    assert_state other COMMITTED
}

@test "files and pieces of any size hold the same store" {
    start_mount
    fill_store weights
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
        $'allocation 0 5 65536 a0\nallocation 1 5 65536 a1' 'what is stored'
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

@test "another granularity is refused with both named, and accepted on request" {
    start_mount granularity=2M
    fill_store weights
    cli image save -q "$M/weights" "$T/image"
    local first=$M
    start_mount granularity=64K
    refused weights "$T/image" '2\.0 MiB .*64\.0 KiB .*granularity=2097152, .*--realign'
    cli image load --realign "$M/weights" "$T/image"
    assert_match "$output" 'realigned: not the one that was saved'
    assert_eq "$(sums weights)" "$(M=$first sums weights)" sums
    diff -r "$M/weights/metadata" "$first/weights/metadata"
    [[ $(cat "$M/weights/layout_hash") != $(cat "$first/weights/layout_hash") ]] ||
        fail 'the same hash'
}

# ---- damage ----------------------------------------------------------------------------------

@test "every damaged byte of an image is found, and nothing of it is used" {
    requires xxhsum
    start_mount
    mkdir "$M/other"
    fill_store weights
    fill_store other t
    cli image save -q --file-size 1M "$M/weights" "$T/image"
    local file size at
    for file in data-00000 data-00003 layout manifest; do
        size=$(stat -c %s "$T/image/$file")
        for at in 0 $((size / 3)) $((size - 1)); do
            cp -r "$T/image" "$T/bad"
            flip "$T/bad/$file" "$at"
            refused other "$T/bad" "$file.*(damaged|expected|not a manifest|line)"
            cli -1 image ls --check "$T/bad"
            rm -r "$T/bad"
        done
    done
    cli image load -q "$M/other" "$T/image"
    same weights other
}

@test "an image that is cut off, or longer, or lacks a file, is refused before the lock is taken" {
    start_mount
    fill_store weights
    cli image save -q --file-size 1M "$M/weights" "$T/image"
    exec 5<"$M/weights/lock" # a load that wanted the lock would wait
    local file
    for file in data-00001 layout manifest; do
        cp -r "$T/image" "$T/bad"
        truncate -s -1 "$T/bad/$file"
        refused weights "$T/bad" "$file"
        truncate -s +7 "$T/bad/$file"
        refused weights "$T/bad" "$file"
        rm "$T/bad/$file"
        refused weights "$T/bad" "$file"
        ln -s "$T/image/$file" "$T/bad/$file"
        refused weights "$T/bad" 'symbolic link'
        rm "$T/bad/$file"
        mkfifo "$T/bad/$file"
        refused weights "$T/bad" 'not a regular file'
        rm -r "$T/bad"
    done
    refused weights "$T/nowhere" 'No such file or directory'
    exec 5<&-
}

@test "a manifest that lies, though its sum is right, is refused" {
    requires xxhsum
    start_mount
    fill_store weights
    cli image save -q --file-size 1M "$M/weights" "$T/image"
    local change
    for change in 's/^piece 0 0 100000 0 0/piece 0 0 100000 0 1/' \
        's/^piece 0 0 100000 0 0/piece 0 0 100000 9 0/' \
        's/^piece 3 1048576 /piece 3 18446744073709551615 /' \
        's/^allocation 0 100000 100000/allocation 0 100000 18446744073709551615/' \
        's/^allocation 0 100000 100000/allocation 0 100001 100001/' \
        's/^granularity .*/granularity 18446744073709551616/' \
        's/^piece_bytes .*/piece_bytes 0/' \
        's/^allocation 1 1 1 one/allocation 1 1 1 \\x2fetc/' \
        's/^allocations 4/allocations 65537/' 's/^gmsfs-image 1/gmsfs-image 2/'; do
        cp -r "$T/image" "$T/bad"
        sed -i "$change" "$T/bad/manifest"
        cmp -s "$T/image/manifest" "$T/bad/manifest" && fail "'$change' changes nothing"
        seal "$T/bad/manifest"
        refused weights "$T/bad" 'manifest: (line|a version|.layout. has)'
        rm -r "$T/bad"
    done
}

@test "an image whose allocations cannot be files of one directory is refused, by whoever looks at it" {
    requires xxhsum
    start_mount
    fill_store weights
    cli image save -q "$M/weights" "$T/image"
    local name why
    for name in ../../x / . .. a%zz tiny; do
        cp -r "$T/image" "$T/bad"
        sed -i "s|^allocation 1 1 1 one|allocation 1 1 1 $name|" "$T/bad/manifest"
        seal "$T/bad/manifest"
        why="no allocation can be called '$name'"
        [[ $name != tiny ]] || why="have the name 'tiny' twice"
        refused weights "$T/bad" "manifest: line [0-9]+: .*$why"
        cli -1 image ls "$T/bad"
        assert_match "$output" "$why"
        cli -1 image ls --check "$T/bad"
        rm -r "$T/bad"
    done
}

@test "where both do not fit, a damaged image is found before the old layout is given up" {
    start_mount size=16M
    fill_store weights
    cli image save -q "$M/weights" "$T/image"
    cp -r "$T/image" "$T/bad"
    flip "$T/bad/data-00000" 7000000
    refused weights "$T/bad" 'data-00000: .*are not those that were saved'
    fill_store weights u # replaces some, so that there is something to see
    cli image load "$M/weights" "$T/image"
    cli image save -q "$M/weights" "$T/again"
    cmp "$T/image/layout" "$T/again/layout"
    cmp "$T/image/data-00000" "$T/again/data-00000"
}

@test "an image that can never fit is refused with numbers" {
    start_mount size=64M
    fill_store weights
    cli image save -q "$M/weights" "$T/image"
    start_mount size=4M
    refused weights "$T/image" 'does not fit: 1[0-9.]+ MiB needed, 4.0 MiB free of 4.0 MiB'
}

# ---- the directory ---------------------------------------------------------------------------

@test "a directory with something in it is not written to unless asked, and the rest is left alone" {
    start_mount
    fill_store weights
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
    assert_eq "$(cat "$T/dir/mine")" mine 'what was there'
    cli image ls --check "$T/dir"
}

@test "what only looks like a part of an image is not overwritten" {
    start_mount
    fill_store weights
    mkdir "$T/dir"
    echo mine >"$T/mine"
    ln -s "$T/mine" "$T/dir/data-00000"
    cli -1 image save --force "$M/weights" "$T/dir"
    assert_match "$output" 'data-00000: is in the way'
    assert_eq "$(cat "$T/mine")" mine 'what was there'
    cli -1 image save "$M/weights" "$T/mine"
    cli -1 image save "$M/weights" "$T/nowhere/image"
    assert_match "$output" 'No such file or directory'
    cli -1 image load "$M/weights" "$T"
    assert_match "$output" "no image is in it, for there is no file 'manifest'"
}

@test "what the store or the words forbid is said" {
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

@test "who saves is alone, and who looks is not held up" {
    requires flock
    start_mount
    fill_store weights
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

# ---- interrupted -----------------------------------------------------------------------------

@test "an unfinished image is listed, is not loaded, and is gone on with" {
    requires jq
    start_mount
    fill_store weights
    mkdir "$M/other"
    cli image save -q --file-size 1M "$M/weights" "$T/whole"
    cp -r "$T/whole" "$T/image"
    interrupt "$T/image" 5
    cli -1 image ls "$T/image"
    assert_match "$output" 'unfinished: 5 of 10 pieces, '
    assert_match "$output" '3  5242880     0/5 '
    cli -1 image ls --json "$T/image"
    assert_eq "$(jq -c '[.finished, .pieces_there, .allocations[2].pieces_there]' <<<"$output")" \
        '[false,5,3]' JSON
    refused other "$T/image" 'not finished; .*--resume'
    cli -1 image save "$M/weights" "$T/image"
    assert_match "$output" 'not finished; --resume .*--force'

    # The file of one that was there is gone, one has another byte, and one is what it should be.
    rm "$T/image/data-00000"
    flip "$T/image/data-00001" 5
    printf garbage | dd of="$T/image/data-00006" conv=notrunc status=none
    cli image save --resume "$M/weights" "$T/image"
    assert_match "$output" ' (9[0-9]{2}|1\.[0-9])[^;]*were there'
    assert_eq "$(files_in "$T/image")" "$(files_in "$T/whole")" files
    cli image load "$M/other" "$T/image"
    same weights other
}

@test "replacing an image can be gone on with, whenever it was interrupted" {
    start_mount
    fill_store weights
    cli image save -q "$M/weights" "$T/new"
    cli image save -q --file-size 1M "$M/weights" "$T/image"
    cp "$T/new/manifest" "$T/new/whole"
    interrupt "$T/new" 0
    cp "$T/new/unfinished" "$T/image/unfinished" # the older manifest and its files are there yet
    cli image ls --check "$T/image"
    cli -1 image save "$M/weights" "$T/image"
    cli image save --resume "$M/weights" "$T/image"
    assert_eq "$(files_in "$T/image")" 'data-00000 layout manifest ' files
    cli image ls --check "$T/image"
    assert_eq "$(grep -v '^saved\|^end' "$T/image/manifest")" \
        "$(grep -v '^saved\|^end' "$T/new/whole")" manifest
}

@test "an unfinished image of another layout is not gone on with" {
    start_mount
    fill_store weights
    cli image save -q --file-size 1M "$M/weights" "$T/image"
    interrupt "$T/image" 5
    cli -1 image save --resume --file-size 2M "$M/weights" "$T/image"
    assert_match "$output" 'other sizes .*--force'
    "$GMSFS" run -w "$M/weights" -- "$GMSFS" metadata put "$M/weights" more x
    cli -1 image save --resume "$M/weights" "$T/image"
    assert_match "$output" 'another layout .*--force begins anew'
    cli -1 image ls "$T/image" # and it is still there
    assert_match "$output" '5 of 10 pieces'
    cli image save --force "$M/weights" "$T/image"
    cli image ls --check "$T/image"
}

@test "a save that is killed leaves what no load takes for an image, and what can be gone on with" {
    start_mount size=128M
    "$GMSFS" run -w "$M/weights" -- bash -c 'head -c 64M /dev/urandom >"$GMSFS_STORE/allocations/a"'
    mkdir "$M/other"
    local i signal interrupted=0
    for i in 1 2 3 4 5 6 7 8; do
        signal=KILL
        ((i % 2)) || signal=TERM
        rm -rf "$T/image"
        spawn "$GMSFS" image save --threads 1 --file-size 1M "$M/weights" "$T/image"
        wait_until 20 eval '[[ -e $T/image/data-00000 || -e $T/image/manifest ]]'
        kill "-$signal" "$SPAWNED" 2>/dev/null || true
        wait_exit "$SPAWNED" 30
        [[ ! -e $T/image/manifest ]] || continue
        interrupted=1
        assert_state weights COMMITTED
        cli -1 image load "$M/other" "$T/image"
        cli -1 image ls "$T/image"
        cli image save --resume "$M/weights" "$T/image"
        cli image load -q "$M/other" "$T/image"
        same weights other
    done
    [[ $interrupted -eq 1 ]] || skip 'every save was faster than the signal'
}

@test "a load that is stopped commits nothing" {
    start_mount size=256M
    "$GMSFS" run -w "$M/weights" -- bash -c 'head -c 64M /dev/urandom >"$GMSFS_STORE/allocations/a"'
    cli image save -q --file-size 1M "$M/weights" "$T/image"
    mkdir "$M/other"
    fill_store other
    local before i signal stopped=0
    before=$(cat "$M/other/layout_hash")
    for i in 1 2 3 4 5 6; do
        signal=KILL
        ((i % 2)) || signal=INT
        spawn env -i "$GMSFS" image load --threads 1 "$M/other" "$T/image"
        wait_until 20 eval '[[ $(<"$M/other/state") == RW || $(<"$M/other/layout_hash") != '"$before"' ]]'
        kill "-$signal" "$SPAWNED" 2>/dev/null || true
        wait_exit "$SPAWNED" 30
        assert_state other COMMITTED 10
        if [[ $(cat "$M/other/layout_hash") == "$before" ]]; then
            stopped=1
        else # it was faster
            "$GMSFS" run -w "$M/other" -- bash -euc 'cd "$GMSFS_STORE"; rm allocations/* metadata/*' || true
            fill_store other
            before=$(cat "$M/other/layout_hash")
        fi
    done
    [[ $stopped -eq 1 ]] || skip 'every load was faster than the signal'
}

@test "a full disk is said with numbers, and nothing is left" {
    requires root mountns
    start_mount
    fill_store weights
    mkdir "$T/disk"
    local threads
    for threads in 1 4; do
        run_logged -1 in_mountns '
            mount -t tmpfs -o size=6M tmpfs "$1" && "$2" image save --file-size 1M --threads "$4" "$3" "$1/image"
            status=$?; find "$1" -mindepth 1; exit "$status"' "$T/disk" "$GMSFS" "$M/weights" "$threads"
        assert_match "$output" \
            'the disk is full, .*the image has [78]\.[0-9] MiB, and (5\.9|6\.0) MiB were free at the start'
        [[ $output != *$'\n'"$T/disk/"* ]] || fail 'something was left'
    done
    run_logged -1 bash -c 'ulimit -f 100; exec "$@"' _ "$GMSFS" image save "$M/weights" "$T/image"
    assert_match "$output" 'larger than a file may be here .*--file-size'
    [[ ! -e $T/image ]] || fail 'something was left'
}

@test "a disk that is full before the first byte leaves an unfinished image what it is" {
    requires root mountns
    start_mount
    fill_store weights
    mkdir "$T/disk" # the image is larger than its disk, which is then filled up
    run_logged -0 in_mountns '
        mount -t tmpfs -o size=16M tmpfs "$1" || exit
        "$2" image save -q "$3" "$1/image" && mv "$1/image/manifest" "$1/image/unfinished" || exit
        sed -i -e /^piece\ /d -e /^end\ /d "$1/image/unfinished"
        "$2" image ls "$1/image" | head -n 1
        head -c 16M /dev/zero >"$1/rest" 2>/dev/null
        if "$2" image save --force "$3" "$1/image"; then exit 1; fi
        "$2" image ls "$1/image" | head -n 1
        rm "$1/rest"
        "$2" image save --resume "$3" "$1/image"' "$T/disk" "$GMSFS" "$M/weights"
    assert_match "$output" 'unfinished: .*the disk is full, .*unfinished: .*saved '
}

@test "a resumed image on a full disk is said with what is there, and stays unfinished" {
    requires root mountns
    start_mount
    fill_store weights
    mkdir "$T/disk"
    run_logged -0 in_mountns '
        mount -t tmpfs -o size=12M tmpfs "$1" || exit
        "$2" image save -q --file-size 1M "$3" "$1/image" && mv "$1/image/manifest" "$1/image/unfinished" || exit
        sed -i /^end\ /d "$1/image/unfinished"
        rm "$1"/image/data-0000[67]
        head -c 12M /dev/zero >"$1/rest" 2>/dev/null
        truncate -s -1M "$1/rest"
        if "$2" image save --resume --threads 1 "$3" "$1/image"; then exit 1; fi
        "$2" image ls "$1/image" | head -n 1' "$T/disk" "$GMSFS" "$M/weights"
    assert_match "$output" \
        'the image has [78]\.[0-9] MiB, [56]\.[0-9] MiB were there, and (0|1)[.0-9]* [KM]iB were free at.*unfinished: '
}

@test "a larger image that does not fit in the place of another says that that one is gone" {
    requires root mountns
    start_mount
    fill_store weights
    mkdir "$M/small" "$T/disk"
    ctl open "$M/small/ctl" w acquire rw 0 alloc 4096 1 - - commit
    run_logged -1 in_mountns '
        mount -t tmpfs -o size=6M tmpfs "$1" && "$2" image save -q "$3/small" "$1/image" || exit 9
        "$2" image save --force "$3/weights" "$1/image"' "$T/disk" "$GMSFS" "$M"
    assert_match "$output" "the disk is full, .*the image that was in $T/disk/image is gone"
}

# ---- ls --------------------------------------------------------------------------------------

@test "ls lists allocations and entries, from where it stopped, with the sums that sum prints" {
    requires jq
    start_mount
    fill_store weights
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

@test "an image goes past the page cache, and comes back from it so" {
    requires direct-io fincore
    start_mount
    fill_store weights
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

@test "many threads fill the files of an image on a tmpfs" {
    requires root mountns
    start_mount
    fill_store weights
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
