#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs copy in host memory: the same store elsewhere, all of them or none. 63-cuda-copy.bats has GPUs.

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers
load image

start_two() { # [OPTIONS]: mounts $M and $OTHER; a store with contents of every kind in $M
    start_mount "size=64M${1:+,$1}" "$T/other"
    OTHER=$M
    start_mount "size=64M${1:+,$1}"
    fill_store weights
}

same_everywhere() { # PATH...: stores of any mounts
    local path
    for path in "$@"; do
        cmp "$M/weights/layout" "$path/layout"
        diff -r "$M/weights/allocations" "$path/allocations"
        diff -r "$M/weights/metadata" "$path/metadata"
        assert_eq "$(cat "$path/layout_hash")" "$(cat "$M/weights/layout_hash")" layout_hash
    done
}

@test "a store is copied exactly, to missing stores and over others, of two mounts, as one group" {
    start_two
    mkdir "$M/old"
    fill_store old t
    cli copy "$M/weights" "$OTHER/weights" "$M/old" "$M/new"
    assert_eq "$(grep -c '^committed .*: 4 allocations and 7 entries, generation [13], layout [0-9a-f]\{32\}$' \
        <<<"$output")" 3
    assert_match "$output" 'group [0-9a-f]{32} of 3 stores'
    same_everywhere "$OTHER/weights" "$M/old" "$M/new"
    assert_eq "$(jq -r .group "$OTHER/weights/info" "$M/old/info" "$M/new/info" | sort -u | wc -l)" 1
    assert_eq "$(cat "$M/weights/sessions")" ''
}

@test "what was loaded or copied gets its sums at the first question for them" {
    local store
    start_two
    make_model 20M
    cli load "$M/loaded" "$MODEL"
    cli copy "$M/loaded" "$OTHER/copied"
    for store in "$M/loaded" "$OTHER/copied"; do
        assert_eq "$(jq -r .contents_id "$store/info")" null "id of $store before"
        cli sum --id "$store"
        assert_eq "$(jq -r .contents_id "$store/info")" "$output" "id of $store"
    done
    cmp "$M/loaded/pieces" "$OTHER/copied/pieces"
    assert_match "$(<"$M/loaded/pieces")" $'\npiece 0 0 [0-9]+ [0-9a-f]{32}\n'
}

# bats test_tags=slow
@test "one copy keeps the group of its source; quiet and immutable are heeded" {
    start_two
    cli copy -q "$M/weights" "$M/a" "$M/b"
    assert_eq "$output" '' output
    cli copy -q --immutable "$M/a" "$OTHER/a"
    assert_eq "$(jq -r .group "$OTHER/a/info")" "$(jq -r .group "$M/a/info")" group
    assert_eq "$(jq -r .immutable "$OTHER/a/info")" true immutable
    same_everywhere "$OTHER/a"
    cli copy "$OTHER/a" "$M/back" # from an immutable one
    assert_eq "$(jq -r .immutable "$M/back/info")" false immutable
}

# bats test_tags=slow
@test "files that a store keeps are copied with it" {
    requires python3
    start_two
    mkdir "$T/model"
    write_tensors "$T/model/model.safetensors" 100000
    echo '{}' >"$T/model/config.json"
    cli load --files "$M/kept" "$T/model"
    cli copy "$M/kept" "$OTHER/kept"
    diff -r "$T/model" "$OTHER/kept/files"
}

# Three stores of 16 allocations are more files than this process may open.
@test "a low limit of open files makes the batches smaller" {
    start_two size=256M
    bash -c 'exec 4<>"$1/lock"
        for n in {1..16}; do
            head -c 70000 /dev/urandom >"$1/allocations/more$n"
        done
        echo >"$1/commit"' _ "$M/weights"
    run_logged -0 bash -c 'ulimit -n 48; exec "$@"' _ "$GMSFS" copy -q "$M/weights" "$M/a" "$M/b" "$OTHER/c"
    same_everywhere "$M/a" "$M/b" "$OTHER/c"
}

@test "stores that cannot be copied to are refused, and nothing is touched" {
    start_two
    mkdir "$M/old"
    fill_store old t
    local before
    before=$(cat "$M/old/layout_hash")
    cli -2 copy "$M/weights"
    assert_match "$output" 'a STORE to copy, and the STOREs that get it, are needed'
    cli -2 copy "$M/weights" "$OTHER/new" "$OTHER/new"
    assert_match "$output" 'new: is given twice; name each STORE once'
    cli -2 copy "$M/weights" "$M/weights"
    cli -1 copy "$M/weights" "$M/old" "$M/./weights"
    assert_match "$output" 'weights: is the store that is copied'
    cli -1 copy "$M/weights" "$M/old" "$OTHER/new" "$OTHER/../other/new"
    assert_match "$output" 'new: is the same store as .*/new; name each once'
    [[ ! -e $OTHER/new ]] || fail 'a store was left'
    cli -1 copy "$M/weights" "$M/old" "$T/nowhere/x"
    assert_match "$output" 'there is no gmsfs mount'
    mkdir "$M/empty"
    cli -1 copy "$M/empty" "$M/old"
    assert_match "$output" 'empty is EMPTY: nothing is committed in it'
    cli -1 copy "$M/none" "$M/old"
    assert_eq "$(cat "$M/old/layout_hash")" "$before" hash
    assert_eq "$(cat "$M/old/sessions" "$M/weights/sessions")" '' sessions
}

# bats test_tags=slow
@test "a copy to a store that is held waits, names it, and gives up in time; a member of its session is told" {
    start_two
    mkdir "$M/held"
    spawn bash -c 'exec 5<>"$1/lock"; exec sleep 60' _ "$M/held"
    local holder=$SPAWNED
    assert_state held RW
    cli -3 copy --timeout 0.2 "$M/weights" "$OTHER/new" "$M/held"
    assert_match "$output" "waiting for the locks of 2 stores; $M/held is RW"
    assert_match "$output" "$M/held: not free in the time given"
    cli -3 copy --timeout 0 "$M/weights" "$M/held"
    assert_match "$output" "cannot take the lock of 1 store: $M/held: not free; its file 'sessions' names"
    [[ ! -e $OTHER/new ]] || fail 'a store was left'
    kill -KILL "$holder"
    assert_state held EMPTY
    run_logged -1 "$GMSFS" run -w "$M/held" -- "$GMSFS" copy "$M/weights" "$M/held"
    assert_match "$output" "the 'gmsfs run' around this command holds it"
    cli copy -q "$M/weights" "$M/held"
    same_everywhere "$M/held"
}

# bats test_tags=slow
@test "one that is full and none is committed; what was there stays" {
    start_two alloc_timeout=0
    start_mount size=4M "$T/small"
    local small=$M
    M=${MOUNTS[1]}
    mkdir "$M/old"
    fill_store old t
    local before
    before=$(sums old)
    cli -1 copy "$M/weights" "$M/old" "$small/new"
    assert_match "$output" "$small/new: the model does not fit"
    assert_eq "$(sums old)" "$before" sums
    # It fits, but for another store there.
    cli copy -q "$M/weights" "$OTHER/a" "$OTHER/b" "$OTHER/c" "$OTHER/e"
    cli -3 copy --timeout 0 "$M/weights" "$M/old" "$OTHER/d"
    assert_match "$output" "$OTHER/d: the model does not fit"
    assert_eq "$(sums old)" "$before" sums
    [[ ! -e $OTHER/d ]] || fail 'a store was left'
}

# bats test_tags=slow
@test "a user without rights copies nothing" {
    requires root
    start_two allow_other
    mkdir "$M/old"
    fill_store old t
    chmod 755 "$M/weights" "$M/old"
    run_logged -1 as_user "$GMSFS" copy "$M/weights" "$M/old"
    assert_match "$output" "cannot open the store: $M/old: permission denied"
    chmod 700 "$M/weights"
    run_logged -1 as_user "$GMSFS" copy "$M/weights" "$M/new"
    assert_match "$output" 'permission denied'
}

# bats test_tags=slow
@test "another granularity is refused, and accepted with --realign" {
    start_two granularity=4K
    start_mount granularity=64K "$T/coarse"
    local coarse=$M
    M=${MOUNTS[1]}
    cli -1 copy "$M/weights" "$coarse/weights"
    assert_match "$output" '4\.0 KiB .*64\.0 KiB .*granularity=4096, .*--realign'
    cli copy --realign "$M/weights" "$coarse/weights" "$OTHER/weights"
    assert_match "$output" "committed $coarse/weights: .* \(realigned: not that of the source\)"
    same_everywhere "$OTHER/weights"
    diff -r "$M/weights/allocations" "$coarse/weights/allocations"
    diff -r "$M/weights/metadata" "$coarse/weights/metadata"
}

# bats test_tags=slow
@test "bytes that a client left behind the size of an allocation go along, or the copy is refused" {
    start_two granularity=4K
    start_mount granularity=64K "$T/coarse"
    mkdir "$M/behind"
    ctl open "$M/behind/ctl" rw acquire rw 0 alloc 5 2 a0 '' export-rw 0 2 connect "$M" \
        redeem last 2 poke 0 2 within poke 1 60000 behind commit
    cli copy "$M/behind" "$M/other"
    ctl open "$M/other/ctl" r acquire-export ro 5000 connect "$M" redeem last 2 \
        peek 0 0 9 peek 1 60000 6
    assert_match "$output" 'behind'
    cli -1 copy --realign "$M/behind" "$OTHER/new"
    assert_match "$output" "allocation 0 .'a0'. has bytes behind its size.*granularity=65536"
}
