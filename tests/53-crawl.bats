#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Programs that walk through everything: none hangs, none leaves a lock, none loses anything.
#
# They are run by this shell, which must not be a descendant of the lock's holder.
#
# shellcheck disable=SC2016 # bodies of shells
# shellcheck disable=SC2034,SC2153 # variables that the helpers read and set
# bats file_tags=slow

load helpers

CRAWL_LIMIT_S=20

# crawl COMMAND...: ends by itself, with any status.
crawl() {
    run_logged timeout $((CRAWL_LIMIT_S * SLOW)) "$@"
    [[ $status -lt 124 ]] || fail "hung or crashed: $*"
}

crawl_all() {
    crawl grep -r committed "$M"
    # To a pipe: tar looks for /dev/null and then reads nothing.
    crawl bash -c 'set -o pipefail; tar -C "$1" -cf - . | cat >"$2"' _ "$M" "$T/tar"
    crawl find "$M" -printf '%i %y %s %b %m %u %g %T@ %p\n'
    crawl find "$M" -xdev -type d -empty
    crawl ls -lAR "$M"
    crawl du -a "$M"
    crawl stat -f "$M"
    crawl getfattr -R -d -m - "$M"
    crawl find "$M" -type f -name 'state' -exec cat {} +
}

# A process that tries to remove everything without a lock removes nothing.
vandalize() {
    crawl rm -rf "$M/weights"
    [[ $status -ne 0 ]]
    crawl rm -rf "$M/weights/allocations" "$M/weights/metadata" "$M/weights/lock"
    [[ $status -ne 0 ]]
    crawl find "$M/weights" -mindepth 1 -depth -delete
    crawl bash -c 'for f in "$1"/weights/*; do mv "$f" "$1/weights/moved"; done' _ "$M"
}

# State that must be the same before and after.
snapshot() { # STORE
    (
        cd "$(store_path "$1")" || exit
        cat state layout_hash
        awk '{ print $1, $2, $3, $4, $6 }' sessions
        jq -c '[.generation, .allocations, .entries, .bytes, .committed]' info
        ls allocations metadata
        stat -c '%n %s %b %a %u' allocations/* metadata/*
    )
}

settled() { # FILE: releases come after close
    snapshot weights 2>/dev/null | cmp -s - "$1"
}

unchanged_by() { # COMMAND...
    snapshot weights >"$T/before"
    "$@"
    wait_until 2 settled "$T/before" || {
        snapshot weights | diff "$T/before" -
        return 1
    }
}

committed_is_whole() {
    assert_state weights COMMITTED
    assert_eq "$(head -c 9 "$M/weights/allocations/a")" committed
    assert_eq "$(cat "$M/weights/metadata/key")" value
    assert_eq "$(wc -c <"$M/weights/sessions")" 0 sessions
}

@test "crawling a committed store reads it whole, rm -rf removes nothing of it, and neither leaves a lock" {
    start_mount
    commit_store
    mkdir "$M/other"
    unchanged_by crawl_all
    mkdir "$T/out"
    crawl tar -C "$M" -cf "$T/whole.tar" weights/allocations weights/metadata
    assert_eq "$status" 0 'exit status of tar'
    tar -C "$T/out" -xf "$T/whole.tar"
    cmp "$T/out/weights/allocations/a" "$M/weights/allocations/a"
    crawl grep -rl committed "$M/weights/allocations"
    assert_eq "$output" "$M/weights/allocations/a"
    wait_until 2 state_is weights COMMITTED
    unchanged_by vandalize
    committed_is_whole
}

@test "rm -rf and crawls while a writer works" {
    start_mount
    commit_store
    hold open "$M/weights/lock" rw open "$M/weights/allocations/new" rwc ftruncate 70000 \
        pwrite 0 fresh open "$M/weights/allocations/empty" rwc use 0 put more words none 0
    assert_state weights RW
    unchanged_by crawl_all
    unchanged_by vandalize
    assert_state weights RW
    let_go "$HOLDER"
    committed_is_whole
}

@test "a writer's work during crawls is committed whole" {
    start_mount
    spawn "$GMSCTL" open "$M/weights/lock" rw open "$M/weights/allocations/a" rwc \
        ftruncate 1048576 pwrite 0 committed use 0 put key value 0 16 say held \
        until "$T/go" commit
    holder=$SPAWNED
    wait_until 5 said "$holder" held
    crawl_all
    vandalize
    touch "$T/go"
    wait_exit -0 "$holder"
    committed_is_whole
}

@test "crawls while many wait for the lock" {
    start_mount
    commit_store
    hold open "$M/weights/lock" r
    waiters=()
    for i in 1 2 3 4 5; do
        spawn "$GMSCTL" open "$M/weights/lock" rw
        waiters+=("$SPAWNED")
    done
    wait_for_waiters weights 5
    unchanged_by crawl_all
    unchanged_by vandalize
    wait_for_waiters weights 5
    let_go "$HOLDER"
    for i in "${waiters[@]}"; do
        wait_exit -0 "$i"
    done
    committed_is_whole
}

@test "several crawls at once, while the lock changes hands" {
    start_mount
    commit_store
    crawlers=()
    for i in 1 2 3; do
        spawn bash -c 'for i in 1 2 3 4 5; do
            timeout 20 grep -rs x "$1"; timeout 20 tar -C "$1" -cf - . | cat; timeout 20 ls -lAR "$1"
            timeout 20 rm -rf "$1/weights"; done >/dev/null 2>&1; [[ $? -lt 124 ]]' _ "$M"
        crawlers+=("$SPAWNED")
    done
    for i in 1 2 3 4 5 6 7 8 9 10; do
        ctl open "$M/weights/lock" rw open "$M/weights/allocations/b$i" rwc ftruncate 1000 \
            use 0 commit
    done
    for i in "${crawlers[@]}"; do
        wait_exit -0 "$i" 60
    done
    committed_is_whole
    assert_eq "$(jq .generation "$M/weights/info")" 11 generation
    assert_eq "$(find "$M/weights/allocations" -type f | wc -l)" 11
}
