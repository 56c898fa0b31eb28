#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The programs of tests/api: libgmsfs against a store that is theirs alone.

load helpers

# Some fill the device, and want to hear of it soon.
api() { # NAME [SECONDS]
    start_mount "alloc_timeout=${2-0.5}"
    export GMSFS_TEST_STORE=$M/weights
    api_test "$1"
}

@test "every program of tests/api is run here" {
    local source name
    for source in "$ROOT"/tests/api/test_*.c; do
        name=$(basename "$source" .c)
        grep -qE "^ .*api(_test)? ${name#test_}( |\$)" "$BATS_TEST_FILENAME" || fail "$source is not run"
    done
}

# Room for 32 adapters of 2 MiB; the others are at the host, where all of them have a copy. Who is where
# is decided alike whatever the memory is: the fake GPU gets fewer turns, and a sanitized daemon.
@test "api: adapters" {
    [[ $BACKEND == host && -z ${SANITIZE-} ]] || export GMSFS_USES=2000
    start_mount size=64M,host_size=208M,min_stay=0
    GMSFS_TEST_STORE=$M/weights api_test adapters
}

@test "api: graph" {
    api graph
}

@test "api: graph_cuda" {
    fake_gpus "devices 2" "memory 1024"
    start_mount device=1,alloc_timeout=0.5,size=512M
    GMSFS_TEST_STORE=$M/weights api_test graph_cuda
}

@test "api: graph_pair" {
    api graph_pair 10
}

@test "api: graph_random" {
    api graph_random 10 # what it gave back a moment ago it may want again
}

@test "api: graph_turns" {
    api graph_turns
}

# Two mounts with two stores each, and one more.
group_api() { # NAME
    local at stores=()
    for at in one two three; do
        start_mount size=64M,alloc_timeout=0.5 "$T/$at"
        stores+=("$T/$at/weights")
    done
    mkdir "$T/one/more" "$T/two/more"
    GMSFS_TEST_GROUP=$(IFS=: && echo "${stores[*]}:$T/one/more:$T/two/more")
    export GMSFS_TEST_GROUP
    api "$1"
}

@test "api: group" {
    group_api group
}

# Two mounts, each with room for the stores of one group.
@test "api: group_evict" {
    start_mount size=24M,host_size=64M,min_stay=2 "$T/one"
    start_mount size=24M,host_size=64M,min_stay=2 "$T/two"
    GMSFS_TEST_ONE=$T/one GMSFS_TEST_TWO=$T/two api_test group_evict
}

# Two mounts, each with room for the store of one group.
@test "api: group_places" {
    start_mount size=24M,host_size=64M,keep_copy=no "$T/one"
    start_mount size=24M,host_size=64M,keep_copy=no "$T/two"
    GMSFS_TEST_ONE=$T/one GMSFS_TEST_TWO=$T/two api_test group_places
}

@test "api: group_reserve" {
    group_api group_reserve
}

@test "api: group_wait" {
    group_api group_wait
}

# A store of the second GPU, so that no ordinal is right by chance.
@test "api: cuda" {
    fake_gpus "devices 2" "memory 1024"
    start_mount device=1,alloc_timeout=0.5
    GMSFS_TEST_STORE=$M/weights api_test cuda
}

@test "api: lock" {
    api lock
}

@test "api: many" {
    api many
}

@test "api: memory" {
    api memory
}

@test "api: metadata" {
    api metadata
}

@test "api: regions" {
    api regions
}

@test "api: regions in threads and children" {
    api regions_threads
}

@test "api: seal" {
    api seal
}

@test "api: slabs" {
    api slabs
}

# What is demoted by order is kept nowhere else: the programs ask where the bytes are.
@test "api: places" {
    start_mount size=64M,host_size=32M,keep_copy=no
    GMSFS_TEST_STORE=$M/weights api_test places
}

@test "api: places_cuda" {
    fake_gpus "devices 2" "memory 1024"
    start_mount device=1,size=256M,host_size=64M,keep_copy=no
    GMSFS_TEST_STORE=$M/weights api_test places_cuda
}

# Two of the larger stores do not fit on the device together.
@test "api: retarget" {
    start_mount size=24M "$T/elsewhere"
    start_mount size=24M,host_size=64M,keep_copy=no,alloc_timeout=2
    GMSFS_TEST_ELSEWHERE=$T/elsewhere/weights GMSFS_TEST_STORE=$M/weights api_test retarget
}

@test "api: retarget_cuda" {
    fake_gpus "devices 2" "memory 1024"
    start_mount device=0,size=64M "$T/elsewhere"
    start_mount device=1,size=64M,host_size=64M,keep_copy=no
    GMSFS_TEST_ELSEWHERE=$T/elsewhere/weights GMSFS_TEST_STORE=$M/weights api_test retarget_cuda
}

@test "api: sleep" {
    api sleep
}

@test "api: store" {
    api store
}

# bats test_tags=host
@test "api: user" {
    api user
}

# Waits for memory are ended by their makers: the mount's own bound is far away.
@test "api: wait" {
    start_mount size=64M,alloc_timeout=60
    GMSFS_TEST_STORE=$M/weights api_test wait
}
