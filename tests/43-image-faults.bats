#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs image: no part of a damaged or unfinished image is used, every interrupted save or load can be
# resumed, and a full disk is reported.

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers
load image

# seal FILE: a manifest that was changed gets the sum that it needs to be believed.
seal() {
    sed -i '/^end /d' "$1"
    echo "end $(xxhsum -q -H2 <"$1" | cut -d' ' -f1)" >>"$1"
}

# interrupt DIR PIECES: makes an image look like the leftovers of a save killed after so many pieces.
interrupt() {
    awk -v most="$2" '/^end /{ next } /^piece /{ if (n++ >= most) next } { print }' "$1/manifest" \
        >"$1/unfinished"
    rm "$1/manifest"
    printf 'piece 3 17' >>"$1/unfinished" # a line that was being written
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
    start_filled
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
    start_filled
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

@test "an image whose allocations cannot be files of one directory is refused by every command" {
    requires xxhsum
    start_filled
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
    refused weights "$T/bad" 'data-00000: .*are not the saved bytes'
    fill_store weights u # replaces some, so that there is something to see
    cli image load "$M/weights" "$T/image"
    cli image save -q "$M/weights" "$T/again"
    cmp "$T/image/layout" "$T/again/layout"
    cmp "$T/image/data-00000" "$T/again/data-00000"
}

# bats test_tags=slow
@test "an image that can never fit is refused with numbers" {
    start_mount size=64M
    fill_store weights
    cli image save -q "$M/weights" "$T/image"
    start_mount size=4M
    refused weights "$T/image" 'does not fit: 1[0-9.]+ MiB needed, 4.0 MiB free of 4.0 MiB'
}

# ---- interrupted -----------------------------------------------------------------------------

@test "an unfinished image is listed, is not loaded, and is gone on with" {
    requires jq
    start_filled
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

    # One file is missing, one has a wrong byte, and one is intact.
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
    start_filled
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
    start_filled
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

@test "a killed save leaves files that no load takes for an image, and that a save can resume" {
    start_mount size=128M
    "$GMSFS" run -w "$M/weights" -- bash -c 'head -c 64M /dev/urandom >"$GMSFS_STORE/allocations/a"'
    mkdir "$M/other"
    local i signal interrupted=0
    for i in 1 2 3 4 5 6 7 8; do
        signal=KILL
        ((i % 2)) || signal=TERM
        rm -rf "$T/image"
        spawn nice -n 19 "$GMSFS" image save --threads 1 --file-size 1M "$M/weights" "$T/image"
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
    [[ $interrupted -eq 1 ]] || fail 'every save was faster than the signal'
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
        spawn env -i nice -n 19 "$GMSFS" image load --threads 1 "$M/other" "$T/image"
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
    [[ $stopped -eq 1 ]] || fail 'every load was faster than the signal'
}

# ---- a full disk -----------------------------------------------------------------------------

# bats test_tags=slow
@test "a full disk is said with numbers, and nothing is left" {
    requires root mountns
    start_filled
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

@test "a disk that is full before the first byte leaves an unfinished image unchanged" {
    requires root mountns
    start_filled
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

@test "a resume on a full disk is reported with the existing pieces, and the image stays unfinished" {
    requires root mountns
    start_filled
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

# bats test_tags=slow
@test "a larger image that does not fit in the place of another says that that one is gone" {
    requires root mountns
    start_filled
    mkdir "$M/small" "$T/disk"
    ctl open "$M/small/ctl" w acquire rw 0 alloc 4096 1 - - commit
    run_logged -1 in_mountns '
        mount -t tmpfs -o size=6M tmpfs "$1" && "$2" image save -q "$3/small" "$1/image" || exit 9
        "$2" image save --force "$3/weights" "$1/image"' "$T/disk" "$GMSFS" "$M"
    assert_match "$output" "the disk is full, .*the image that was in $T/disk/image is gone"
}

# bats test_tags=slow
@test "a user that may open too few files for an image is told so at once, and the store is as it was" {
    start_mount
    "$GMSFS" run -w "$M/weights" -- bash -euc 'for i in {1..60}; do echo $i >"$GMSFS_STORE/allocations/a$i"; done'
    cli image save -q "$M/weights" "$T/image"
    mkdir "$M/other"
    run_logged -1 bash -c 'ulimit -n 20; exec "$@"' _ "$GMSFS" image load --threads 1 "$M/other" "$T/image"
    assert_match "$output" "cannot open its memory: $M/other: .*ulimit -n"
    assert_match "$output" 'nothing was committed'
    assert_state other EMPTY
}

# bats test_tags=slow
@test "where the memory of a store cannot be written, image load names the store and not the image" {
    start_mount size=64M
    mkdir "$M/other"
    write_tensors "$T/m.safetensors" 4000000
    cli load -q "$M/weights" "$T/m.safetensors"
    cli image save -q "$M/weights" "$T/image"
    GMSFS_FAULT=pwrite:after=0:errno=EIO:in=command cli -1 image load "$M/other" "$T/image"
    assert_match "$output" "image: $M/other: cannot write the memory of allocation 'a000000': Input/output"
    [[ $output != *"$T/image/"* ]] || fail "it names a file of the image"
}
