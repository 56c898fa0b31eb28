#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs pull: a store of other nodes, from those that send it well. The nodes are a web server that
# misbehaves as the address says; each address of it is a node.
# bats file_tags=slow

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers
load image
load web

prepare() {
    start_mount size=128M
    start_web
}

# share STORE [NAME]: serves it as $WEB/FAULT/NAME; sets ID
share() {
    "$GMSFS" image save -q "$M/$1" "$T/image-${2-$1}"
    ID=$("$BUILD/tests/tools/store_tree" "$T/image-${2-$1}" "$T/www/${2-$1}")
}

# make_store NAME BYTES
make_store() {
    mkdir -p "$M/$1"
    "$GMSFS" run -w "$M/$1" -- bash -c 'head -c "$1" /dev/urandom >"$GMSFS_STORE/allocations/a"' _ "$2"
}

# nodes FAULT...: sets NODES to the addresses of the store `weights` of nodes with these faults
nodes() {
    local fault
    NODES=()
    for fault; do NODES+=("$WEB/$fault/weights/"); done
}

# pulls FAULT...: from such nodes, all of the store, and anew
pulls() {
    [[ ! -e $M/other ]] || rmdir "$M/other"
    nodes "$@"
    cli pull --timeout 20 "$M/other" "${NODES[@]}"
    same weights other
}

# fails REGEX FAULT...: a pull from such nodes fails so, and leaves no store
fails() {
    [[ ! -e $M/other ]] || rmdir "$M/other"
    nodes "${@:2}"
    cli -1 pull --timeout 1 "$M/other" "${NODES[@]}"
    assert_match "$output" "$1"
    [[ ! -e $M/other ]] || fail 'a store was left'
}

# ends_at_once REGEX FAULT...: a pull from such nodes fails so, long before its timeout
ends_at_once() {
    local start_ms
    start_ms=$(now_ms)
    nodes "${@:2}"
    cli -1 pull --timeout 100 "$M/other" "${NODES[@]}"
    assert_match "$output" "$1"
    (($(now_ms) - start_ms < 20000 * SLOW)) || fail 'too late'
}

# ---- there ------------------------------------------------------------------------------------

# bats test_tags=quick
@test "a store of another node comes whole, with any content" {
    fill_store weights
    share weights
    cli pull "$M/other" "$WEB/plain/weights"
    assert_match "$output" "contents $ID: "
    assert_match "$output" 'committed .*: 4 allocations and 7 entries, generation 1, layout '
    same weights other
    # Each byte once; the texts from one node.
    assert_eq "$(count_requests "by-id/$ID/allocations/")" 4 'requests of pieces'
    assert_eq "$(count_requests '/(pieces|layout)"')" 3 'requests of texts'
}

@test "pieces of 16M, from several nodes at once, into a store of any granularity" {
    make_store weights 40000001
    share weights
    start_mount size=64M,granularity=64k
    nodes plain of=x of=y of=z
    cli pull -q --threads 3 "$M/other" "${NODES[@]}"
    assert_eq "$output" '' output
    assert_eq "$("$GMSFS" sum "$M/other")" "$("$GMSFS" sum "${MOUNTS[0]}/weights")" sums
    assert_eq "$(count_requests '"range": "bytes=(0-16777215|16777216-33554431|33554432-40000000)"')" 3 ranges
}

@test "the first answer decides, and --id refuses others" {
    make_store weights 100000
    make_store second 100001
    share second
    share weights
    cli -1 pull --timeout 0.5 --id "$ID" "$M/other" "$WEB/plain/second"
    assert_match "$output" "/plain/second: it has other contents"
    cli pull --timeout 5 --id "$ID" "$M/other" "$WEB/plain/second" "$WEB/plain/weights"
    same weights other
}

@test "an entry that does not fit here is told by the id, without the address's password" {
    start_mount size=64M,granularity=64K
    ctl open "$M/weights/ctl" rw acquire rw 0 alloc 5 1 a0 '' put end/1 value 0 65535 commit
    share weights
    start_mount size=64M,granularity=4K
    cli -1 pull "$M/other" "${WEB/\/\////user:secret@}/plain/weights"
    assert_match "$output" "pull: contents $ID: metadata 'end/1' points at byte 65535 of allocation 0"
    [[ $output != *secret* ]] || fail 'the password was told'
}

@test "addresses come from a file, too" {
    local line
    make_store weights 100000
    share weights
    printf '# nodes\n\nhttp://127.0.0.1:1/none/\r\n \t%s \t# the second' "$WEB/plain/weights" >"$T/nodes"
    cli pull -q "$M/other" "@$T/nodes"
    same weights other
    for line in node7 'http://a/b http://c/d' "@$T/nodes" ftp://a/b; do
        printf '%s\n  %s\n' "$WEB/plain/weights" "$line" >"$T/wrong"
        cli -1 pull "$M/third" "@$T/wrong"
        assert_match "$output" "$T/wrong: line 2: '$line' is no URL of a store; write one URL a line"
    done
    printf '%s\n\0http://a/b\n' "$WEB/plain/weights" >"$T/wrong"
    cli -1 pull "$M/third" "@$T/wrong"
    assert_match "$output" 'wrong: is no text: it has a byte 0'
    cli -1 pull "$M/other" "@$T/none"
    assert_match "$output" "none: cannot read: No such file.*; behind '@' stands a file with a URL on each line"
    echo '# none' >"$T/empty"
    cli -1 pull "$M/other" "@$T/empty"
    assert_match "$output" 'empty: it has no URL'
}

# bats test_tags=quick
@test "addresses that are none, and public ones without TLS, are refused" {
    local url
    for url in "$T/image" s3://bucket/x http:// "$WEB/x?y"; do
        cli -1 pull "$M/other" "$url"
        assert_match "$output" 'is no (valid )?address'
    done
    for url in ABCDEF01234567890123456789ABCDEF abc; do
        cli -2 pull --id "$url" "$M/other" "$WEB/plain/weights"
        assert_match "$output" "32 hex digits in lower case .*, not '$url'"
    done
    cli -1 pull "$M/other" http://192.0.2.1/gpu0/weights
    assert_match "$output" '192.0.2.1.*: its address is not private, .*use https://, or --insecure'
    [[ ! -e $M/other ]] || fail 'a store was left'
}

@test "a store with the contents is made immutable by no pull, which says so" {
    make_store weights 100000
    share weights
    cli pull -q "$M/other" "$WEB/plain/weights"
    for id in '' "--id=$ID"; do
        cli -1 pull --immutable ${id:+"$id"} "$M/other" "$WEB/plain/weights"
        assert_match "$output" "other: has the contents $ID already, but was committed without --immutable; remove it"
    done
    rmdir "$M/other"
    cli pull -q --immutable "$M/other" "$WEB/plain/weights"
    assert_eq "$(info_of other .immutable)" true
    cli pull --immutable "$M/other" "$WEB/plain/weights"
    assert_match "$output" "other has the contents $ID already"
}

# ---- nodes that fail --------------------------------------------------------------------------

@test "a node that is dead, or without the store, is left for others" {
    make_store weights 100000
    share weights
    pulls fail=404:99 plain
    cli pull -q "$M/third" http://127.0.0.1:1/weights "$WEB/plain/weights"
    same weights third
}

@test "an answer that never changes ends the pull at once, or bars its node" {
    make_store weights 100000
    share weights
    ends_at_once 'no node sends the contents: .*password.*: the server answers 401 Unauthorized: .*netrc' password
    ends_at_once '400 Bad Request: it may ask for a certificate of this client; .*--tls-cert' fail=400:9
    pulls fail=403:1 # its mount may have been away
    fails '403 Forbidden: its server may not read the store' fail=403:99
    ends_at_once 'answers 302: it leads to another address, which is not followed' to=loop
    make_file index/pieces 200
    cli -1 pull --timeout 100 "$M/other" "$WEB/plain/index"
    assert_match "$output" "plain/index: its 'pieces' is not one of a store; give the address of a store"
    cli pull "$M/other" "$WEB/password/weights" "$WEB/plain/weights"
    same weights other
}

@test "a node that may get the contents yet is told once, but not to -q" {
    make_store weights 100000
    share weights
    cli pull "$M/other" "$WEB/fail=404:4+of=weights%2Fpieces/weights"
    assert_eq "$(grep -c 'weights: it has no committed store there; it is asked again' <<<"$output")" 1 lines
    same weights other
    cli pull -q "$M/third" "$WEB/fail=503:2+retry=1/weights"
    assert_eq "$output" '' output
    same weights third
}

# bats test_tags=quick
@test "wrong bytes are asked elsewhere, and bar their node" {
    make_store weights 40000000
    share weights
    pulls swap=0+of=allocations plain
    [[ $output != *"no longer used"* || $output == *"swap=0"*"no longer used: sent bytes with another sum"* ]]
    fails 'swap=0.*: sent bytes with another sum \(allocation 0, from byte' swap=0+of=allocations
    assert_match "$output" 'nothing was committed'
}

@test "a node that sends too little, too much or another range is left for others" {
    local fault
    make_store weights 40000000
    share weights
    for fault in cut=1000000 longer=5 grow=0 noranges shifted more encoded headers late=404:1; do
        pulls "$fault+of=allocations" plain
    done
}

@test "a full node is asked later, and others meanwhile" {
    make_store weights 40000000
    share weights
    pulls fail=429:1000+retry=1+of=allocations plain
    pulls fail=503:2+retry=1+of=allocations
    pulls fail=503:2+retry=1
    fails 'no node sends the contents: .*503 Service Unavailable' fail=503:1000+of=allocations
}

@test "a node that is silent or slow is left within seconds" {
    local start_ms
    make_store weights 40000000
    share weights
    start_ms=$(now_ms)
    pulls stall=100000+of=allocations plain
    pulls slow=300+of=allocations plain
    (($(now_ms) - start_ms < 25000 * SLOW)) || fail "too late"
}

@test "a node that is killed or stopped in the middle is left for others" {
    local signal first
    make_store weights 40000000
    share weights
    first=$WEB
    for signal in KILL STOP; do
        start_web
        spawn "$GMSFS" pull -q "$M/other" "$first/slow=20/weights" "$WEB/slow=20/weights"
        wait_until 10 grep -q 'allocations' "$WEB_LOG"
        kill -"$signal" "${SPAWNS[-2]}"
        wait_exit -0 "$SPAWNED" 30
        same weights other
        kill -KILL "${SPAWNS[-2]}" 2>/dev/null || true
        rmdir "$M/other"
    done
}

@test "texts that lie bar their node" {
    make_store weights 100000
    make_store second 100001
    share second
    share weights
    pulls swap=0+of=layout plain
    fails 'swap=0.*it is not a canonical layout' swap=0+of=layout
    fails "swap=0.*its 'pieces' is not one of a store" swap=0+of=pieces
    # The id of one store before the sums of another one.
    sed "s/^id .*/id $ID/" "$T/www/second/pieces" >"$T/www/weights/pieces"
    cp "$T/www/weights/pieces" "$T/www/weights/by-id/$ID/pieces"
    fails "plain.*: its 'pieces' is not one of a store" plain
}

@test "without a node for so long, the pull ends, and what was there is back" {
    make_store weights 100000
    share weights
    make_store other 5000
    cp "$M/other/allocations/a" "$T/before"
    cli -1 pull --timeout 0.5 "$M/other" "$WEB/cut=1000+of=allocations/weights"
    assert_match "$output" 'no node sends the contents: .*the connection was cut'
    assert_match "$output" 'nothing was committed; .*/other has its earlier layout again'
    cmp "$M/other/allocations/a" "$T/before"
}

@test "a certificate of another is no node, and the right one is" {
    make_certificate right IP:127.0.0.1
    make_certificate wrong DNS:elsewhere
    make_store weights 100000
    share weights
    start_web --tls "$T/wrong.pem" "$T/wrong.key"
    WEB=https://127.0.0.1:$WEB_PORT
    export CURL_CA_BUNDLE=$T/wrong.pem
    ends_at_once "https://.*/plain/weights/: the server's certificate is not trusted; .*CURL_CA_BUNDLE" plain
    start_web --tls "$T/right.pem" "$T/right.key"
    WEB=https://127.0.0.1:$WEB_PORT
    CURL_CA_BUNDLE=$T/right.pem
    pulls plain
}

@test "nodes that ask for a client's certificate get it" {
    make_certificate node IP:127.0.0.1
    make_certificate client DNS:client
    make_store weights 100000
    share weights
    start_web --tls "$T/node.pem" "$T/node.key" --client-ca "$T/client.pem"
    WEB=https://127.0.0.1:$WEB_PORT
    export CURL_CA_BUNDLE=$T/node.pem
    fails 'https://.*weights' plain
    cli pull -q --tls-cert "$T/client.pem" --tls-key "$T/client.key" "$M/other" "$WEB/plain/weights"
    same weights other
    cli -2 pull --tls-cert "$T/client.pem" "$M/third" "$WEB/plain/weights"
    rmdir "$M/other"
    cli -1 pull --timeout 0 --tls-cert "$T/none" --tls-key "$T/none" "$M/other" "$WEB/plain/weights"
    assert_match "$output" "this client's own certificate or key cannot be used"
}

says() { # PID REGEX
    output_of "$1" | grep -Eq "$2"
}

# ---- mounts -----------------------------------------------------------------------------------

@test "from mount to mount; two pulls of one store are one, and what is there is not pulled" {
    local id first second
    fill_store weights
    id=$(sed -n 's/^id //p' "$M/weights/pieces")
    ln -s "$M" "$T/www/mount"
    start_mount size=64M,granularity=64k
    spawn "$GMSFS" pull "$M/other" "$WEB/slow=20/mount/weights"
    first=$SPAWNED
    wait_until 10 grep -q 'allocations' "$WEB_LOG"
    spawn "$GMSFS" pull "$M/other" "$WEB/slow=20/mount/weights"
    second=$SPAWNED
    wait_exit "$first" 20
    assert_match "$(output_of "$first")" 'committed .*: 4 allocations and 7 entries'
    wait_exit -0 "$second" 20
    assert_match "$(output_of "$second")" "other has the contents $id already"
    assert_eq "$(sed -n 's/^id //p' "$M/other/pieces")" "$id" id
    assert_eq "$(count_requests "by-id/$id/allocations/")" 4 'requests of pieces'
    : >"$WEB_LOG"
    cli pull --id "$id" "$M/other" http://127.0.0.1:1/x
    assert_match "$output" 'has the contents .* already'
    assert_eq "$(jq -r .generation "$M/other/info")" 1 generation
}

@test "a pull says once that it waits for a writer's store, unless --timeout is 0" {
    local writer
    make_store weights 100000
    mkdir "$M/held"
    ln -s "$M" "$T/www/mount"
    spawn "$GMSFS" run -w "$M/held" -- sleep infinity
    writer=$SPAWNED
    wait_until 10 grep -q RW "$M/held/state"
    cli pull --timeout 0 "$M/first" "$WEB/plain/mount/weights" "$WEB/plain/mount/held"
    [[ $output != *waiting* ]] || fail 'it waited'
    spawn "$GMSFS" pull "$M/other" "$WEB/plain/mount/weights" "$WEB/plain/mount/held"
    wait_until 20 says "$SPAWNED" 'held: a writer has its store, .* at most 11 s for it, and at most [56][0-9]+ s'
    never_within 2 test -e "$M/other/pieces"
    kill "$writer"
    wait_exit -0 "$SPAWNED" 20
    assert_eq "$(output_of "$SPAWNED" | grep -c waiting)" 1 lines
}

# ---- groups -----------------------------------------------------------------------------------

# two_ranks: stores rank0 and rank1 of other nodes; sets IDS, and GROUP to the operands for $M/a and
# a store `b` of a second mount, OTHER
two_ranks() {
    local rank
    IDS=()
    for rank in 0 1; do
        make_store "rank$rank" $((20000001 + rank))
        share "rank$rank"
        IDS+=("$ID")
    done
    start_mount size=64M,granularity=64k
    OTHER=${MOUNTS[0]}
    GROUP=("$M/a=$WEB/plain/rank0" "$OTHER/b=$WEB/${1-plain}/rank1")
}

# has_group: both stores have the contents, and one group id, which it sets
has_group() {
    assert_eq "$(sed -n 's/^id //p' "$M/a/pieces" "$OTHER/b/pieces" | paste -sd ' ')" "${IDS[*]}" ids
    assert_eq "$(jq -r .group "$OTHER/b/info")" "$(jq -r .group "$M/a/info")" group
    GROUP_ID=$(jq -r .group "$M/a/info")
    assert_match "$GROUP_ID" '^[0-9a-f]{32}$'
    [[ $GROUP_ID != 00000000000000000000000000000000 ]] || fail 'no group'
}

@test "a group comes whole with one id, and is left as it is the next time" {
    local id
    two_ranks
    printf '%s\n' "$WEB/plain/rank0" >"$T/nodes"
    cli pull --group "$M/a=http://127.0.0.1:1/none" "${GROUP[1]}" "$M/a=@$T/nodes"
    assert_eq "$(grep -c '^committed .*: 1 allocations and 0 entries, generation 1, ' <<<"$output")" 2 lines
    has_group
    id=$GROUP_ID
    assert_match "$output" "group $id of 2 stores"
    : >"$WEB_LOG"
    cli pull --group "${GROUP[@]}"
    assert_match "$output" "/a has the contents ${IDS[0]} already"
    assert_match "$output" "/b has the contents ${IDS[1]} already"
    assert_eq "$(count_requests "/allocations/")" 0 'requests of pieces'
    # One of them alone is another group.
    rmdir "$OTHER/b"
    cli pull -q "$OTHER/b" "$WEB/plain/rank1"
    cli pull --group "${GROUP[@]}"
    has_group
    [[ $GROUP_ID != "$id" ]] || fail 'the same group'
}

@test "of a group with a rank that does not come, nothing is committed" {
    local before
    two_ranks cut=1000+of=allocations
    make_store a 5000
    cp "$M/a/allocations/a" "$T/before"
    before=$(jq -c '[.generation, .group]' "$M/a/info")
    cli -1 pull --group --timeout 0.5 "${GROUP[@]}"
    assert_match "$output" 'no node sends the contents: .*the connection was cut'
    assert_match "$output" 'nothing was committed'
    assert_match "$output" '/a has its earlier layout again'
    cmp "$M/a/allocations/a" "$T/before"
    assert_eq "$(jq -c '[.generation, .group]' "$M/a/info")" "$before" info
    [[ ! -e $OTHER/b ]] || fail 'a store was left'
}

@test "two pulls of one group are one, and a killed one leaves nothing" {
    local first second
    two_ranks slow=20
    spawn "$GMSFS" pull -q --group "${GROUP[@]}"
    wait_until 10 grep -q 'rank1.*allocations' "$WEB_LOG"
    kill -KILL "$SPAWNED"
    wait_exit "$SPAWNED" 10
    assert_state a EMPTY
    assert_eq "$(<"$OTHER/b/state")" EMPTY state
    : >"$WEB_LOG"
    spawn "$GMSFS" pull --group "${GROUP[@]}"
    first=$SPAWNED
    wait_until 10 grep -q 'allocations' "$WEB_LOG"
    spawn "$GMSFS" pull --group "${GROUP[@]}"
    second=$SPAWNED
    wait_exit "$first" 30
    assert_eq "$status" 0
    wait_exit "$second" 30
    assert_eq "$status" 0
    assert_match "$(output_of "$second")" "b has the contents ${IDS[1]} already"
    has_group
    assert_eq "$(count_requests '/allocations/')" 4 'requests of pieces'
}

# spawn_writer NAME: writes to $M/a, and commits once $T/NAME is there
spawn_writer() {
    spawn "$GMSFS" run -w "$M/a" -- bash -c 'head -c 5000 /dev/urandom >"$GMSFS_STORE/allocations/a"
        until [[ -e $1 ]]; do sleep 0.05; done' _ "$T/$1"
}

@test "a group tells its wait once, also where others commit to its stores meanwhile" {
    local pull
    two_ranks
    mkdir "$M/a"
    spawn_writer first
    wait_until 10 grep -q ' RW held ' "$M/a/sessions"
    spawn "$GMSFS" pull --group "${GROUP[@]}"
    pull=$SPAWNED
    wait_until 10 says "$pull" 'waiting for the locks of 2 stores; .*/a is RW'
    spawn_writer second
    wait_until 10 eval '(($(grep -c " RW waiting " "$M/a/sessions") == 2))'
    touch "$T/first"
    wait_until 10 grep -q " RW held $SPAWNED " "$M/a/sessions"
    wait_until 10 grep -q ' RW waiting ' "$M/a/sessions"
    touch "$T/second"
    wait_exit -0 "$pull" 30
    assert_eq "$(output_of "$pull" | grep -c waiting)" 1 lines
    has_group
}

@test "operands that make no group of pulls are refused" {
    cli -2 pull --group
    cli -2 pull --group "$M/a" "$WEB/plain/x"
    assert_match "$output" 'with --group, STORE=URL is needed'
    cli -2 pull --group --id 0123456789abcdef0123456789abcdef "$M/a=$WEB/plain/x"
    assert_match "$output" '--id is of one store'
    cli -2 pull "$M/a"
    assert_match "$output" 'a STORE and the URL'
}

# ---- ends -------------------------------------------------------------------------------------

@test "a pull that is interrupted or killed leaves no bytes" {
    local signal
    make_store weights 40000000
    share weights
    for signal in HUP TERM KILL; do
        spawn "$GMSFS" pull -q "$M/other" "$WEB/slow=20/weights"
        wait_until 10 grep -q 'allocations' "$WEB_LOG"
        kill -"$signal" "$SPAWNED"
        wait_exit "$SPAWNED" 10
        [[ $signal == KILL ]] || assert_eq "$status" $((128 + $(kill -l "$signal")))
        [[ $signal == KILL && -e $M/other ]] && assert_state other EMPTY
        [[ $signal == KILL || ! -e $M/other ]] || fail 'a store was left'
        : >"$WEB_LOG"
    done
}
