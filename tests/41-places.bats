#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Models and images from places that are no paths: test:// (tests/source_test.c), whose server is
# slow, breaks, lies or hangs. A store gets the right bytes, or none.

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers
load image

make_model() { # SIZE SHARDS [SEED]: sets MODEL, its directory
    requires python3 || return 1
    local shape=(--single)
    (($2 == 1)) || shape=(--shards "$2")
    MODEL=$T/model-$1-$2-${3:-0}
    "$ROOT/scripts/make-model" --out "$MODEL" --size "$1" --seed "${3:-0}" "${shape[@]}" >/dev/null
}

sum_of() { # STORE
    "$GMSFS" sum "$M/$1"
}

@test "a model from another place is the same as from its path: a tree, files, an index" {
    start_mount size=128M
    make_model 8M 3
    cli load "$M/path" "$MODEL"
    local places=("test://$MODEL" "test://$MODEL?slow=2") file
    for file in "$MODEL"/*.safetensors; do places+=("test://$file"); done
    cli load "$M/tree" "${places[0]}"
    cli load "$M/slow" "${places[1]}"
    cli load "$M/files" "${places[@]:2}"
    cli load "$M/index" "test://$(echo "$MODEL"/*.index.json)"
    for store in tree slow files index; do
        assert_eq "$(cat "$M/$store/layout_hash")" "$(cat "$M/path/layout_hash")" "hash of $store"
        assert_eq "$(sum_of $store)" "$(sum_of path)" "sums of $store"
    done
    cli verify "$M/tree" "$MODEL"
    cli verify "$M/path" "test://$MODEL"
    cli verify --threads 1 "$M/path" "test://$(echo "$MODEL"/*.index.json)"
}

@test "a file that verify cannot read ends the reads that wait" {
    start_mount size=64M
    make_model 8M 2
    cli load "$M/path" "$MODEL"
    local places
    places=("test://$(echo "$MODEL"/*-00001-*)?hang=100000" "test://$(echo "$MODEL"/*-00002-*)?fail=4000000")
    cli -1 verify --threads 2 "$M/path" "${places[@]}"
    assert_match "$output" '-00002-of-.*: cannot read: the server answered 503'
}

@test "all files of another place are kept byte for byte" {
    start_mount size=64M
    make_model 4M 2
    mkdir "$MODEL/sub"
    echo "{}" >"$MODEL/sub/config.json"
    : >"$MODEL/empty"
    cli load --files "$M/kept" "test://$MODEL"
    diff -r "$MODEL" "$M/kept/files"
    cli verify "$M/kept" "test://$MODEL"
    cli load --files "$M/named" "test://$(echo "$MODEL"/*-00001-of-*.safetensors)?slow=1"
    assert_match "$output" "1 files with [1-9][0-9]* tensors"
    cli -1 load --files "$M/new" "test://$MODEL?fail=1000000"
    assert_match "$output" "test://$MODEL/[^ ]+: cannot read: the server answered 503"
    [[ ! -e $M/new ]] || fail "the store is still there"
}

@test "a place that fails in the middle is named with its words, and the store is as it was" {
    start_mount size=128M
    make_model 8M 1
    cli load "$M/old" "$MODEL"
    local before
    before=$(sum_of old)
    make_model 8M 1 7
    cli -1 load "$M/old" "test://$MODEL?fail=3000000"
    assert_match "$output" "load: test://$MODEL/model.safetensors: tensor '[^']+': cannot read: the server answered 503; try again later"
    assert_match "$output" 'nothing was committed; .*old has its earlier layout again'
    assert_eq "$(sum_of old)" "$before" 'the sums after it'
    cli -1 load "$M/new" "test://$MODEL?fail=3000000"
    assert_match "$output" 'new, which was made for this, is removed again'
    [[ ! -e $M/new ]] || fail "the store is still there"
    cli -1 load "$M/new" "test://$MODEL?fail=3"
    assert_match "$output" "safetensors: cannot read it: the server answered 503"
    [[ ! -e $M/new ]] || fail "the store is still there"
    wait_until 5 eval '[[ $(cat "$M/old/state") == COMMITTED ]]'
    cli -1 verify "$M/old" "test://$MODEL?fail=3000000"
    assert_match "$output" "verify: test://.*tensor '[^']+': cannot read: the server answered 503"
}

@test "a place that announces another size than it has is refused before memory is taken" {
    start_mount size=128M
    make_model 4M 1
    cli -1 load "$M/new" "test://$MODEL?size=100"
    assert_match "$output" 'the last 100 bytes of the file belong to no tensor'
    cli -1 load "$M/new" "test://$MODEL?huge=1"
    assert_match "$output" 'is announced with more bytes than a file can have'
    cli -1 load "$M/new" "test://$MODEL?names=../../etc/passwd"
    assert_match "$output" "announces the file '../../etc/passwd', whose name has the part '..'"
    [[ ! -e $M/new ]] || fail "a store was made"
    # Its index is right, but a file behind it is shorter than its header says.
    truncate -s -1000 "$(echo "$MODEL"/*.safetensors)"
    cli -1 load "$M/new" "test://$MODEL?size=1000"
    assert_match "$output" "tensor '[^']+': the file became shorter while it was read"
    [[ ! -e $M/new ]] || fail "the store is still there"
}

@test "before the first byte of a tensor lock and memory are held, or the load ends" {
    start_mount size=16M
    make_model 24M 1
    # Every read of a tensor waits for ever; only the headers can be read.
    cli -1 load "$M/new" "test://$MODEL?hang=1000000"
    assert_match "$output" 'the model does not fit: .*mount with a larger size='
    make_model 8M 1
    mkdir "$M/busy"
    spawn "$GMSFS" run -w "$M/busy" -- sleep 60
    wait_until 5 state_is busy RW
    cli -3 load --timeout 0 "$M/busy" "test://$MODEL?hang=1000000"
}

@test "a load that waits for a place ends by a signal at once, and leaves nothing" {
    start_mount size=64M
    make_model 8M 1
    local signal
    for signal in TERM HUP; do
        spawn "$GMSFS" load "$M/new" "test://$MODEL?hang=3000000"
        wait_until 5 state_is new RW
        wait_until 5 eval '(($(device_get .used_bytes) > 0))'
        kill -"$signal" "$SPAWNED"
        wait_exit "$SPAWNED" 5
        assert_match "$(output_of "$SPAWNED")" 'stopped by a signal'
        wait_until 5 eval '[[ ! -e $M/new ]]'
        wait_until 5 used_is 0
    done
}

@test "a load whose sums are checked ends by a signal at once, and leaves nothing" {
    start_mount size=64M
    make_model 8M 1
    spawn "$GMSFS" load "$M/new" "test://$MODEL?check=1"
    wait_until 5 state_is new RW
    wait_until 5 eval '(($(device_get .used_bytes) >= 8 << 20))'
    sleep 0.5 # all is copied by then
    kill -TERM "$SPAWNED"
    wait_exit "$SPAWNED" 5
    assert_match "$(output_of "$SPAWNED")" 'stopped by a signal'
    wait_until 5 eval '[[ ! -e $M/new ]]'
}

@test "an image from another place is the same, and a wrong or missing byte of it is refused" {
    start_mount size=128M
    mkdir "$M/from"
    fill_store from
    cli image save "$M/from" "$T/image"
    cli image load "$M/to" "test://$T/image"
    same from to
    cli image load "$M/slow" "test://$T/image?slow=2"
    same from slow
    cli image ls --check "test://$T/image"
    mkdir "$M/other"
    refused other "test://$T/image?fail=2000000" \
        "image: test://$T/image/data-00000: cannot read: the server answered 503; try again later"
    refused other "test://$T/image?size=1" 'manifest: cannot read: the file is shorter than it was written'
    flip "$T/image/data-00000" 2000000
    refused other "test://$T/image" 'are not the saved bytes: the image is damaged'
    cli -1 image save "$M/from" "test://$T/image2"
    assert_match "$output" 'an image is saved into a directory; name its path'
    cli -1 image load "$M/other" "test://$T/nothing"
    assert_match "$output" 'it has no image'
}

@test "a scheme that is not known, or not in this build, is named before a store is made" {
    start_mount size=16M
    local command
    for command in "load $M/new" "image load $M/new" 'image ls'; do
        # shellcheck disable=SC2086 # words
        cli -1 $command ftp://host/model
        assert_match "$output" 'ftp://host/model: ftp:// is not known; name a path, http://, https://, s3:// or hf://'
    done
    [[ ! -e $M/new ]] || fail "a store was made"
    make_model 1M 1
    cli load "$M/there" "$MODEL"
    cli -1 verify "$M/there" ftp://host/model
    assert_match "$output" 'ftp:// is not known'
    # A path that looks like a place.
    (cd "$T" && mkdir -p ftp:/host && cp -r "$MODEL" ftp:/host/model)
    (cd "$T" && cli load "$M/new" ./ftp://host/model)
}
