#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Stores that nobody uses leave the device for others.
#
# shellcheck disable=SC2154 # output is set by bats' run

load helpers
load gmsctl

setup() {
    common_setup
}

mount_small() { # [OPTION...]: room for three stores of 8 MiB
    start_mount "size=24M,host_size=96M,alloc_timeout=5,min_stay=0${1+,$1}"
}

committed() { # STORE
    [[ -d $M/$1 ]] || mkdir "$M/$1"
    # shellcheck disable=SC2016 # the other shell expands it
    bash -c 'exec 4<>"$1/lock"; head -c 8388608 /dev/urandom >"$1/allocations/a"
        echo >"$1/commit"' _ "$M/$1"
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
    # shellcheck disable=SC2016 # the other shell expands it
    timeout 10 bash -c 'exec 4<"$1/lock"' _ "$M/$1"
}

@test "for a reader who lacks room, who was used longest ago leaves, and it is told" {
    mount_small
    fill_device
    use d
    assert_eq "$(place a) $(place b) $(place c) $(place d)" 'host device device device'
    jq -e -s 'any(.event == "evicted" and .store == "a" and .for == "d" and .tier == "host")' <"$M/events"
    grep -qx 'gmsfs_evictions_total{pool="default"} 1' "$M/metrics"
    use a
    assert_eq "$(place a) $(place b) $(place c) $(place d)" 'device device device host' # d: a drop beats a copy
}

@test "who is pinned, held or more important stays" {
    mount_small
    fill_device
    echo 'top class=high' >"$M/pools"
    setfattr -n user.gmsfs.pin -v 1 "$M/a"
    setfattr -n user.gmsfs.pool -v top "$M/b"
    exec 5<"$M/c/lock"
    # shellcheck disable=SC2016 # the other shell expands it
    run timeout 1 bash -c 'exec 4<"$1/lock"' _ "$M/d"
    assert_eq "$status" 124
    assert_eq "$(place a) $(place b) $(place c)" 'device device device'
    exec 5<&-
    use d
    assert_eq "$(place a) $(place b) $(place c)" 'device device host'
}

@test "a store stays min_stay after it came" {
    start_mount size=24M,host_size=96M,min_stay=2
    fill_device
    use d
    use a
    assert_eq "$(place b)" host
    setfattr -n user.gmsfs.pin -v 1 "$M/c"
    local began=$EPOCHREALTIME
    use b
    assert_eq "$(place b) $(place c)" 'device device'
    ((${EPOCHREALTIME/./} - ${began/./} > 1000000))
}

@test "with evict=none nobody leaves, and who lacks room waits" {
    mount_small evict=none
    fill_device
    # shellcheck disable=SC2016 # the other shell expands it
    run timeout 1 bash -c 'exec 4<"$1/lock"' _ "$M/d"
    assert_eq "$status" 124
    assert_eq "$(place a) $(place b) $(place c)" 'device device device'
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

@test "what a graph pool keeps is given up, not copied" {
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

@test "when the host is short, spares of stores on the device give way, of the one used last first" {
    start_mount size=24M,host_size=16M
    local store
    for store in a b c; do
        committed "$store"
    done
    spare_of a
    spare_of b
    local sum
    sum=$(sha256sum <"$M/c/allocations/a")
    ctl open "$M/c/residency" w write host
    wait_until 10 shows c host
    assert_eq "$(cat "$M/a/residency") $(cat "$M/b/residency")" 'device host device'
    assert_eq "$(sha256sum <"$M/c/allocations/a")" "$sum"
    jq -e -s 'any(.event == "copy_dropped" and .store == "b")' <"$M/events"
}

@test "no spare goes where all of them would not do" {
    start_mount size=24M,host_size=8M
    committed a
    spare_of a
    mkdir "$M/big"
    ctl open "$M/big/ctl" rw acquire rw 0 alloc 8388608 2 '' '' commit
    expect ENOMEM open "$M/big/residency" w write host
    assert_eq "$(cat "$M/a/residency") $(cat "$M/big/residency")" 'device host device'
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

@test "a move that waits for a spare's memory can be cancelled, and a writer ends it" {
    export GMSFS_MOVE_GATE=$T/gate
    start_mount size=24M,host_size=8M
    local store
    for store in a b; do
        committed "$store"
    done
    spare_of a
    touch "$T/gate"
    ctl open "$M/b/residency" w write host
    ctl open "$M/b/residency" w write cancel
    rm "$T/gate"
    wait_until 10 shows b device
    ctl open "$M/b/residency" w write host
    wait_until 10 shows b host
}
