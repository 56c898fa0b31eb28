#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# hf:// as a place: a hub's repositories, and its local cache.
#
# bats file_tags=slow

load helpers
load web

prepare() {
    start_web
    export HF_ENDPOINT=$WEB/hub
    unset HF_TOKEN HF_TOKEN_PATH HF_HOME HF_HUB_CACHE HF_HUB_OFFLINE XDG_CACHE_HOME
    make_file org/model/model.safetensors 300000
    make_file org/model/config.json 100
    make_file 'org/model/sub/a b.json' 100
    CACHE=$T/.cache/huggingface/hub/models--org--model
    COMMIT=0123456789abcdef0123456789abcdef01234567
}

make_repository() { # OWNER/MODEL
    mkdir -p "$T/www/${1%/*}"
    cp -r "$T/www/org/model" "$T/www/$1"
}

# bats test_tags=quick
@test "files of a repository are listed and read at one commit" {
    local place
    get -l hf://org/model
    assert_eq "$output" $'100 config.json\n300000 model.safetensors\n100 sub/a b.json'
    for place in hf://org/model hf://org/model@main hf://org/model@refs/pr/1 hf://org/model@refs%2Fpr%2F1; do
        get "$place" model.safetensors "$T/out" 4 100000
        assert_eq "$status" 0 status
        cmp "$T/out" "$T/www/org/model/model.safetensors"
    done
    gets "hf://org/model/sub/a b.json" 'org/model/sub/a b.json'
    assert_eq "$(count_requests '/resolve/main')" 0 'requests without a commit'
    # The hub is asked once for each file, its store for all ranges.
    assert_eq "$(count_requests '/resolve/')" 5 'requests to the hub'
}

@test "the token goes to the hub alone, from the environment or its file" {
    make_repository org/private
    refuses hf://org/private/config.json '^EACCES: .*401 .*private or gated, set HF_TOKEN'
    HF_TOKEN=wrong refuses hf://org/private/config.json "^EACCES: .*whether HF_TOKEN's user may read it"
    HF_TOKEN=hf_test gets hf://org/private/config.json org/private/config.json
    mkdir -p "$T/.cache/huggingface"
    echo hf_test >"$T/.cache/huggingface/token"
    gets hf://org/private/config.json org/private/config.json
}

@test "the token does not go on to another host" {
    local hub_log=$WEB_LOG
    start_web
    make_repository "org/at-$WEB_PORT"
    HF_TOKEN=hf_test gets "hf://org/at-$WEB_PORT/model.safetensors" org/model/model.safetensors
    assert_eq "$(grep -c '"authorization": "Bearer hf_test"' "$hub_log")" 2 'requests with the token to the hub'
    (($(count_requests '/plain/') > 1)) || fail 'the other host was not asked'
    assert_eq "$(count_requests 'hf_test|authorization')" 0 'requests with the token to the other host'
}

@test "an address of the hub without a scheme is refused, and its slashes at the end do not count" {
    export HF_TOKEN=hf_test
    HF_ENDPOINT=127.0.0.1:$WEB_PORT/hub refuses hf://org/model/config.json \
        "^EINVAL: .*'127.0.0.1:$WEB_PORT/hub' .*HF_ENDPOINT to https://HOST"
    assert_eq "$(wc -l <"$WEB_LOG")" 0 requests
    HF_ENDPOINT=$WEB/hub// gets hf://org/model/config.json org/model/config.json
    assert_eq "$(count_requests '"path": "/hub/(api|org)/')" 2 'requests to the hub'
}

@test "a file of the cache is not fetched, also without a network" {
    mkdir -p "$CACHE/snapshots/$COMMIT" "$CACHE/blobs" "$CACHE/refs"
    cp "$T/www/org/model/model.safetensors" "$CACHE/blobs/sum"
    ln -s ../../blobs/sum "$CACHE/snapshots/$COMMIT/model.safetensors"
    printf %s "$COMMIT" >"$CACHE/refs/main"
    gets hf://org/model/model.safetensors org/model/model.safetensors
    gets hf://org/model/config.json org/model/config.json
    assert_eq "$(count_requests '/resolve/.*safetensors')" 0 'requests for the cached file'
    export HF_HUB_OFFLINE=1
    gets hf://org/model/model.safetensors org/model/model.safetensors
    refuses hf://org/model/config.json '^ENOENT: .*not in the cache .*hub was not asked: HF_HUB_OFFLINE is set'
    refuses hf://org/other/config.json '^ENOENT: .*not in the cache .*HF_HUB_OFFLINE is set'
    get -l hf://org/model
    assert_match "$output" '^-?[0-9]+ model.safetensors$'
    HF_HUB_OFFLINE=False gets hf://org/model/config.json org/model/config.json
    unset HF_HUB_OFFLINE
    HF_ENDPOINT=http://127.0.0.1:1 gets hf://org/model/model.safetensors org/model/model.safetensors
    HF_ENDPOINT=http://127.0.0.1:1 refuses hf://org/model/config.json \
        '^ENOENT: .*not in the cache .*hub was not asked: the server cannot be reached'
    # A file of the cache that is not whole is fetched.
    truncate -s 5 "$CACHE/blobs/sum"
    gets hf://org/model/model.safetensors org/model/model.safetensors
}

# bats test_tags=quick
@test "errors of a hub name the cause and the way out" {
    local place
    refuses hf://org/none/config.json '^ENOENT: hf://org/none/config.json: .*404 Not Found: Repository not found: look'
    refuses hf://org/model/none.json '^ENOENT: .*no such file at this revision'
    make_file api/models/org/model/revision/main 10
    HF_ENDPOINT=$WEB/headers refuses hf://org/model/config.json '^E2BIG: .*headers of the server.s answer'
    refuses hf://org/model@other/config.json '^ENOENT: .*404'
    for place in hf:// hf://.. hf://org/.. hf://org/m@ hf://org/m@../x hf://org/m@a%00 hf://a--b/c; do
        get -l "$place"
        assert_match "$output" '^EINVAL: .*no model of a hub'
    done
}

@test "answers that lie are refused" {
    local model
    for model in broken climbs; do
        make_repository "org/$model"
        get -l "hf://org/$model"
        assert_eq "$status" 1 "status of $model"
    done
    assert_match "$output" 'announces the file .*\.\./up.json'
    make_repository org/badsum
    refuses hf://org/badsum/config.json '^EPROTO: .*a sha256 in it is not 64 hex digits'
    make_repository org/huge
    refuses hf://org/huge/config.json '^E2BIG: .*answer has more than 33554432 bytes'
    make_repository org/lies
    refuses hf://org/lies/config.json '^EPROTO: .*has 100 bytes on the server, but the hub announced 101'
    make_repository org/unsized
    gets hf://org/unsized/config.json org/unsized/config.json
}
