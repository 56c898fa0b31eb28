#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Unused stores leave the device for others.
#
# shellcheck disable=SC2154 # output is set by bats' run
# bats file_tags=fake,slow:fake

load helpers

teardown() {
    common_teardown
    umount -l "$T/spill" 2>/dev/null || : # where a test has mounted it
}

mount_small() { # [OPTION...]: room for three stores of 8 MiB
    start_mount "size=24M,host_size=96M,alloc_timeout=5,min_stay=0${1+,$1}"
}

committed() { # STORE [MIB]
    [[ -d $M/$1 ]] || mkdir "$M/$1"
    # shellcheck disable=SC2016 # the other shell expands it
    bash -c 'exec 4<>"$1/lock"; head -c "$2M" /dev/urandom >"$1/allocations/a"
        echo >"$1/commit"' _ "$M/$1" "${2-8}"
}

place() { # STORE
    head -n 1 "$M/$1/residency" | cut -d' ' -f1
}

is_at() { # PLACE STORE
    [[ $(place "$2") == "$1" ]]
}

# a, b and c fill the device; d is beside it. Their last uses were in that order.
fill_device() {
    local store
    committed d
    echo host >"$M/d/residency"
    wait_until 10 is_at host d
    for store in a b c; do
        committed "$store"
    done
}

use() { # STORE
    timeout $((10 * HANG)) "$GMSCTL" reader "$M/$1"
}

@test "for a reader that lacks room, the store used longest ago leaves, and an event says so" {
    mount_small
    fill_device
    use d
    assert_eq "$(place a) $(place b) $(place c) $(place d)" 'host device device device'
    jq -e -s 'any(.event == "evicted" and .store == "a" and .for == "d" and .tier == "host")' <"$M/events"
    grep -qx 'gmsfs_evictions_total{pool="default"} 1' "$M/metrics"
    use a
    assert_eq "$(place a) $(place b) $(place c) $(place d)" 'device device device host' # d: a drop beats a copy
}

@test "for a store that is ordered to the device others leave, too" {
    mount_small
    fill_device
    echo device >"$M/d/residency"
    wait_until 10 is_at device d
    assert_eq "$(place a) $(place b) $(place c)" 'host device device'
    run_logged -0 "$GMSFS" promote "$M/a"
    assert_eq "$(place a) $(place b) $(place c) $(place d)" 'device device device host'
    for store in a b c; do
        setfattr -n user.gmsfs.pin -v 1 "$M/$store"
    done
    expect ENOMEM open "$M/d/residency" w write device
}

@test "a store that is ordered into a pool without a free slot comes when another has left" {
    mount_small
    fill_device
    echo 'few slots=1' >"$M/pools"
    setfattr -n user.gmsfs.pool -v few "$M/a" "$M/d"
    expect EAGAIN open "$M/d/residency" w write device
    wait_until 10 is_at host a
    run_logged -0 "$GMSFS" promote "$M/d"
    assert_eq "$(place a) $(place d)" 'host device'
}

@test "a store that cannot leave does not keep others from leaving" {
    requires root || return 0
    mkdir "$T/spill"
    mount -t tmpfs -o size=2M spill "$T/spill"
    start_mount "size=24M,host_size=8M,min_stay=0,spill=$T/spill,spill_size=64M"
    committed d 4
    echo host >"$M/d/residency"
    wait_until 10 is_at host d
    committed a 10 # too large for the host, and for the disk, too, which is smaller than it was said to be
    committed b 4
    committed c 8
    setfattr -n user.gmsfs.pin -v 1 "$M/c"
    use d
    assert_eq "$(place a) $(place b) $(place d)" 'device host device'
    jq -e -s 'any(.event == "move_failed" and .store == "a")' <"$M/events"
}

@test "a pool's max is of the device alone: beside it there may be more" {
    local store
    mount_small
    echo 'few max=8M' >"$M/pools"
    for store in a b c; do
        mkdir "$M/$store"
        setfattr -n user.gmsfs.pool -v few "$M/$store"
        committed "$store"
        echo host >"$M/$store/residency"
        wait_until 10 is_at host "$store"
        grep -q '^few .* used=0 resident=0$' "$M/pools"
    done
    use a
    use b # a leaves for it: the pool has room for one
    assert_eq "$(place a) $(place b) $(place c)" 'host device host'
    grep -q "^few .* stores=3 used=$((8 << 20)) resident=1\$" "$M/pools"
}

@test "memory that a writer asks for is made room for" {
    mount_small
    fill_device
    mkdir "$M/e"
    # shellcheck disable=SC2016 # the other shell expands it
    bash -c 'exec 4<>"$1/lock"; head -c 8388608 /dev/zero >"$1/allocations/a"
        echo >"$1/commit"' _ "$M/e"
    assert_eq "$(place a) $(place b) $(place c) $(place e)" 'host device device device'
}

@test "memory kept by a graph pool is given up, not copied" {
    mount_small
    committed d
    echo host >"$M/d/residency"
    wait_until 10 is_at host d
    mkdir "$M/graph"
    ctl open "$M/graph/ctl" rw acquire rw 0 alloc 4194304 6 '' gmsfs.graph commit
    use d
    assert_eq "$(place graph) $(place d)" 'none device'
    grep -qx 'gmsfs_moves_total{from="device",to="none"} 1' "$M/metrics"
}

spare_of() { # STORE
    ctl open "$M/$1/residency" w write +host
    wait_until 10 shows "$1" 'device host'
}

shows() { # STORE TEXT
    [[ $(cat "$M/$1/residency") == "$2" ]]
}

both_beside() { # STORE: it is on the host, and on the disk as well
    committed "$1"
    ctl open "$M/$1/residency" w write +disk
    wait_until 10 shows "$1" 'device disk'
    ctl open "$M/$1/residency" w write host
    wait_until 10 shows "$1" 'host disk'
}

# bats test_tags=slow
@test "when the host is short, stores there that are on the disk, too, go down to it, the longest unused first" {
    mkdir "$T/spill"
    start_mount "size=24M,host_size=24M,spill=$T/spill,spill_size=64M"
    local store
    for store in a b c; do
        both_beside "$store"
    done
    setfattr -n user.gmsfs.pin -v 1 "$M/a"
    committed d
    ctl open "$M/d/residency" w write host
    wait_until 10 shows d host
    assert_eq "$(head -n 1 "$M/a/residency")" 'host disk'
    assert_eq "$(cat "$M/b/residency") $(cat "$M/c/residency")" 'disk host disk'
    jq -e -s 'any(.event == "demoted" and .store == "b" and .tier == "disk")' <"$M/events"
    grep -qx 'gmsfs_moves_total{from="host",to="disk"} 1' "$M/metrics"
    use b
    assert_eq "$(head -c 1M "$M/b/allocations/a" | wc -c)" $((1 << 20))
}

@test "a spare gives way before a victim goes to the disk, and those of pinned stores before others" {
    mkdir "$T/spill"
    start_mount "size=32M,host_size=16M,spill=$T/spill,spill_size=32M,min_stay=0"
    local store
    committed e
    ctl open "$M/e/residency" w write disk
    wait_until 10 shows e disk
    for store in a b c d; do
        committed "$store"
    done
    spare_of a
    spare_of b
    setfattr -n user.gmsfs.pin -v 1 "$M/a"
    setfattr -n user.gmsfs.pin -v 1 "$M/d"
    exec 5<"$M/b/lock"
    use e
    assert_eq "$(cat "$M/c/residency") $(cat "$M/a/residency")" 'host device'
    assert_eq "$(cat "$M/b/residency")" 'device host'
    exec 5<&-
}

# bats test_tags=slow
@test "status --pool shows in which places a store is" {
    mount_small
    committed a
    committed b
    spare_of a
    ctl open "$M/b/residency" w write host
    wait_until 10 shows b host
    run_logged -0 "$GMSFS" status --pool default "$M"
    assert_match "$output" 'STORE +STATE +PLACES +BYTES'
    assert_match "$output" 'a +COMMITTED +device host +8.0 MiB'
    assert_match "$output" 'b +COMMITTED on host +host +8.0 MiB'
    ctl open "$M/a/residency" w write none
    run_logged -0 "$GMSFS" status --pool default "$M"
    assert_match "$output" 'a +COMMITTED on none +none +8.0 MiB'
}

reads() { # STORE: spawns a reader, which exits when it has had the lock
    spawn timeout $((20 * HANG)) "$GMSCTL" reader "$M/$1" say granted
}

# big, at the host, needs all of the device; of p and q, each a third of it, p is held.
big_and_small() {
    mount_small
    mkdir "$M/big"
    ctl open "$M/big/ctl" rw acquire rw 0 alloc 8388608 3 '' '' commit
    ctl open "$M/big/residency" w write host
    wait_until 10 is_at host big
    committed p
    committed q
    hold reader "$M/p"
    HOLDER=$SPAWNED
    wait_until 5 said "$HOLDER" held
    ctl open "$M/q/residency" w write host
    wait_until 10 is_at host q
}

# bats test_tags=slow
@test "a waiter for all of the device holds others up for writer_patience, not as long as the device is used" {
    mount_small writer_patience=4
    committed p
    committed q
    ctl open "$M/q/residency" w write host
    wait_until 10 is_at host q
    mkdir "$M/all" "$M/new"
    hold reader "$M/p"
    local holder=$SPAWNED
    spawn "$GMSCTL" open "$M/all/ctl" rw acquire-reserve rw 60000 $((24 << 20)) say there
    local all=$SPAWNED
    wait_for_waiters "$M/all" 1
    assert_eq "$(jq -r .behind "$M/q/info") $(jq -r .behind "$M/all/info")" 'all null'
    reads q
    local small=$SPAWNED
    spawn timeout $((20 * HANG)) "$GMSCTL" open "$M/new/ctl" rw acquire-reserve rw 15000 $((4 << 20)) say there
    local loader=$SPAWNED
    wait_exit "$small"
    wait_exit "$loader"
    wait_for_waiters "$M/all" 1
    let_go "$holder"
    wait_exit "$all"
}

@test "a reader of a small store does not overtake an ALLOC that waits for much, and goes on behind it" {
    big_and_small
    mkdir "$M/new"
    spawn "$GMSCTL" open "$M/new/ctl" rw acquire rw 0 alloc 25165824 1 '' '' say there pause
    local loader=$SPAWNED
    wait_until 5 has_alloc_waiting
    reads q
    local small=$SPAWNED
    wait_for_waiters "$M/q" 1
    expect EAGAIN open "$M/q/residency" w write device
    assert_eq "$(cat "$M/q/residency")" host
    let_go "$HOLDER"
    wait_until 10 said "$loader" there
    assert_eq "$(cat "$M/q/residency")" host
    let_go "$loader"
    wait_exit "$small"
}

has_alloc_waiting() {
    grep -qx 'gmsfs_allocs_waiting 1' "$M/metrics"
}

# bats test_tags=slow
@test "a waiter behind an ALLOC goes on when the ALLOC gives up" {
    big_and_small
    mkdir "$M/new"
    spawn "$GMSCTL" open "$M/new/ctl" rw acquire rw 0 alloc 25165824 1 '' ''
    local loader=$SPAWNED
    wait_until 5 has_alloc_waiting
    reads q
    local small=$SPAWNED
    wait_for_waiters "$M/q" 1
    kill "$loader"
    wait_exit "$small"
    wait_exit "$loader"
}

alloc_waits() { # STORE: spawns a writer that asks for 8 MiB, says so when it has them, and waits
    mkdir "$M/$1"
    spawn "$GMSCTL" open "$M/$1/ctl" rw acquire rw 0 alloc 8388608 1 '' '' say there pause
    wait_until 5 has_alloc_waiting
}

@test "an ALLOC goes on when a store has stayed long enough, though nothing else happens" {
    start_mount size=8M,host_size=96M,alloc_timeout=20,min_stay=2
    committed a
    ctl open "$M/a/residency" w write host
    wait_until 10 is_at host a
    ctl open "$M/a/residency" w write device
    wait_until 10 is_at device a
    alloc_waits b
    assert_eq "$(place a)" device
    wait_until 10 said "$SPAWNED" there
    assert_eq "$(place a)" host
}

# bats test_tags=slow
@test "an ALLOC goes on when an eviction that failed succeeds, though nothing else happens" {
    requires root
    mkdir "$T/spill"
    mount -t tmpfs -o size=4M spill "$T/spill"
    start_mount "size=8M,spill=$T/spill,spill_size=48M,alloc_timeout=20,min_stay=0"
    committed a
    alloc_waits b
    wait_until 10 move_failed a
    assert_eq "$(place a)" device
    mount -o remount,size=32M "$T/spill"
    wait_until 10 said "$SPAWNED" there
    assert_eq "$(place a)" disk
}

move_failed() { # STORE
    jq -e -s --arg store "$1" 'any(.event == "move_failed" and .store == $store)' <"$M/events"
}
