#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs load, verify and image load from http://, s3:// and hf://: the bytes of the files, or no store.
#
# bats file_tags=slow

load helpers
load web
load image

prepare() {
    start_web
    start_mount size=256M
    "$ROOT/scripts/make-model" --out "$T/www/org/model" --size 24M --shards 3 >/dev/null
    echo '{}' >"$T/www/org/model/config.json"
    INDEX=$(cd "$T/www/org/model" && echo *.index.json)
    cli load "$M/path" "$T/www/org/model"
    export AWS_ENDPOINT_URL=$WEB/s3 AWS_ACCESS_KEY_ID=AKIDEXAMPLE AWS_SECRET_ACCESS_KEY=SECRET \
        AWS_REGION=eu-test-1 HF_ENDPOINT=$WEB/hub
    unset AWS_PROFILE AWS_SESSION_TOKEN HF_HOME HF_HUB_CACHE HF_TOKEN HF_HUB_OFFLINE XDG_CACHE_HOME
}

same() { # STORE PLACE
    cli load "$M/$1" "$2"
    assert_eq "$(cat "$M/$1/layout_hash")" "$(cat "$M/path/layout_hash")" "hash from $2"
    assert_eq "$("$GMSFS" sum "$M/$1")" "$("$GMSFS" sum "$M/path")" "sums from $2"
}

# bats test_tags=quick
@test "a model from each kind of place is the same as from its path" {
    same http "$WEB/plain/org/model/$INDEX"
    same hub hf://org/model
    same s3 s3://org/model
    cli verify "$M/path" hf://org/model
    cli verify "$M/path" "$WEB/plain/org/model/$INDEX"
}

@test "two repositories of a hub, and two folders of a bucket, are listed in one load" {
    local kind rank
    cp -r "$T/www/org/model" "$T/www/org/other"
    for kind in hf s3; do
        cli load --group "$M/$kind-a=$kind://org/model" "$M/$kind-b=$kind://org/other"
        for rank in a b; do
            assert_eq "$("$GMSFS" sum "$M/$kind-$rank")" "$("$GMSFS" sum "$M/path")" "sums of $kind-$rank"
        done
    done
}

count_fetched() { # prints the bytes of all ranges
    grep -oP '"range": "bytes=\K[0-9]+-[0-9]+' "$WEB_LOG" | awk -F- '{ sum += $2 - $1 + 1 } END { printf "%d", sum }'
}

assert_fetched_once() {
    local fetched whole
    fetched=$(count_fetched)
    whole=$(du -bc "$T/www/org/model/"*.safetensors | tail -n 1 | cut -f 1)
    ((fetched >= whole && fetched < whole * 5 / 4)) || fail "$fetched bytes fetched of $whole from $place"
}

@test "the bytes of a model's files are fetched once, by all kinds of loads" {
    local place
    for place in hf://org/model s3://org/model "$WEB/plain/org/model/$INDEX"; do
        : >"$WEB_LOG"
        cli load "$M/plain" "$place"
        assert_fetched_once
        : >"$WEB_LOG"
        [[ $place != http* ]] || continue
        cli load --files "$M/kept" "$place"
        assert_fetched_once
    done
}

@test "files that a server announces larger than the device are refused before they are fetched" {
    truncate -s 1G "$T/www/org/model/zeros.bin"
    : >"$WEB_LOG"
    cli -1 load --files "$M/new" "$WEB/plain/org/model/zeros.bin"
    assert_match "$output" 'does not fit: 1.0 GiB needed'
    cli -1 load --files "$M/new" s3://org/model
    assert_match "$output" 'does not fit: 1.0 GiB needed'
    (($(count_fetched) < 1 << 20)) || fail "$(count_fetched) bytes fetched"
    [[ ! -e $M/new ]] || fail 'a store is left'
}

@test "commands that read the hub's cache alone say so" {
    local cache=$T/.cache/huggingface/hub/models--org--model commit=0123456789abcdef0123456789abcdef01234567
    mkdir -p "$cache/snapshots" "$cache/refs"
    cp -r "$T/www/org/model" "$cache/snapshots/$commit"
    printf %s "$commit" >"$cache/refs/main"
    HF_ENDPOINT=http://127.0.0.1:1 same cache hf://org/model
    HF_ENDPOINT=http://127.0.0.1:1 cli load "$M/cache2" hf://org/model
    local told="hf://org/model: files may be missing \(only the hub's cache was read: the server cannot"
    assert_match "$output" "$told"
    HF_ENDPOINT=http://127.0.0.1:1 cli verify "$M/cache2" hf://org/model
    assert_match "$output" "$told"
    "$GMSFS" image save "$M/cache2" "$cache/snapshots/$commit/image"
    HF_ENDPOINT=http://127.0.0.1:1 cli image load "$M/image" hf://org/model/image
    assert_match "$output" 'hf://org/model/image: files may be missing'
}

@test "servers that are slow, cut, or have no ranges give the same store" {
    same slow "$WEB/slow=1/org/model/$INDEX"
    same cut "$WEB/cut=3000000/org/model/$INDEX"
    same stream "$WEB/noranges/org/model/$INDEX"
}

@test "files that change while they come, and lost connections, leave no store" {
    local fault
    export GMSFS_HTTP_STALL=1
    for fault in change=4 grow=4 late=404:4 stall=70000 more shifted; do
        cli -1 load "$M/new" "$WEB/$fault/org/model/$INDEX"
        assert_match "$output" "$WEB/$fault/org/model/"
        [[ ! -e $M/new ]] || fail "$fault left a store"
    done
}

@test "an image comes from a server as from its directory" {
    mkdir "$T/www/images"
    cli image save "$M/path" "$T/www/images/m"
    cli image load "$M/image" s3://images/m
    assert_eq "$("$GMSFS" sum "$M/image")" "$("$GMSFS" sum "$M/path")" sums
}

@test "bytes other than those whose sum was promised are refused" {
    cp -r "$T/www/org/model" "$T/www/org/wrongbytes"
    cli -1 load "$M/new" hf://org/wrongbytes
    assert_match "$output" 'hf://org/wrongbytes/model-.*safetensors: its bytes are not those that were promised: their sha256 is [0-9a-f]{64}, not f{64}'
    [[ ! -e $M/new ]] || fail 'a store is left'
    cli -1 load --threads 1 "$M/new" hf://org/wrongbytes
    assert_match "$output" 'their sha256 is'
    cli -1 verify --threads 1 "$M/path" hf://org/wrongbytes
    assert_match "$output" 'hf://org/wrongbytes/model-.*safetensors: .*their sha256 is [0-9a-f]{64}, not f{64}'
    cp -r "$T/www/org/model" "$T/www/org/wrongmd5"
    cli -1 load "$M/new" s3://org/wrongmd5
    assert_match "$output" 's3://org/wrongmd5/model.*: their md5 is [0-9a-f]{32}, not 0{32}'
    cp -r "$T/www/org/model" "$T/www/org/sums-crc32-wrong"
    cli -1 load "$M/new" s3://org/sums-crc32-wrong
    assert_match "$output" 's3://org/sums-crc32-wrong/model.*: their crc32 is [0-9a-f]{8}, not [0-9a-f]{8}'
    [[ ! -e $M/new ]] || fail 'a store is left'
    cp -r "$T/www/org/model" "$T/www/org/sums-sha1"
    same sha1 s3://org/sums-sha1
    same hub hf://org/model
}

@test "an S3 server that answers no HEAD serves without checksums, and is asked as seldom as can be" {
    local fault
    local -A heads=([405]=4 [503]=1 [silent]=1)
    for fault in 405 503 silent; do
        [[ $fault != silent ]] || export GMSFS_HTTP_STALL=1
        cp -r "$T/www/org/model" "$T/www/org/head-$fault"
        : >"$WEB_LOG"
        cli load --threads 1 "$M/$fault" "s3://org/head-$fault"
        assert_eq "$("$GMSFS" sum "$M/$fault")" "$("$GMSFS" sum "$M/path")" "sums of $fault"
        assert_eq "$(count_requests '"x-amz-checksum-mode": "ENABLED"')" "${heads[$fault]}" "HEADs of $fault"
        assert_eq "$(grep -c "further files are loaded without S3's checksums" <<<"$output")" \
            "$((heads[$fault] == 1))" "warnings of $fault"
    done
}

@test "a file of a server is kept under its decoded name" {
    cp "$T/www/org/model/config.json" "$T/www/org/model/a b%41+.json"
    cli load --files "$M/named" "$WEB/plain/org/model/a%20b%2541+.json" "$WEB/plain/org/model/c%6fnfig.json"
    cmp "$M/named/files/a b%41+.json" "$T/www/org/model/config.json"
    cmp "$M/named/files/config.json" "$T/www/org/model/config.json"
    cli -1 load --files "$M/other" "$WEB/plain/org/model%2Fconfig.json"
    assert_match "$output" 'encodes a slash, a NUL or nothing'
    cli -1 load --files "$M/other" "$WEB/plain/org/x%00.json"
    assert_match "$output" 'encodes a slash, a NUL or nothing'
    cli -1 load --files "$M/other" "$WEB/plain/org/%2e%2e"
    assert_match "$output" "has the component '..'"
    cli -1 load --files "$M/other" "$WEB/plain/org/model/"
    assert_match "$output" "ends in '/', so it names no file"
    [[ ! -e $M/other ]] || fail 'a store was left'
}
