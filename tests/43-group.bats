#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs load --group: a model of several ranks, each on a mount of its own, whole or not at all.

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers
load web

RANKS=4

# start_ranks [OPTIONS]: a mount for each rank; sets STORES.
start_ranks() {
    local rank
    requires python3 jq || return 1
    STORES=()
    for ((rank = 0; rank < RANKS; rank++)); do
        start_mount "size=64M${1:+,$1}" "$T/rank$rank"
        STORES+=("$T/rank$rank/weights")
    done
}

# make_group SEED [SIZE]: a model for each rank; sets GROUP (operands) and MODELS.
make_group() {
    local rank model
    GROUP=() MODELS=()
    for ((rank = 0; rank < RANKS; rank++)); do
        model=$("$ROOT/scripts/make-model" --out "$T/model-$1-$rank" --size "${2:-1M}" --shards 2 \
            --seed $(($1 * 10 + rank)) | tail -n 1)
        MODELS+=("$model")
        GROUP+=("${STORES[rank]}=$model")
    done
}

group_ids() { # of all stores, on one line
    local store
    for store in "${STORES[@]}"; do
        jq -r .group "$store/info"
    done | sort -u | paste -sd ' '
}

holds_group() { # all stores hold MODELS, committed with one id
    local rank
    assert_match "$(group_ids)" '^[0-9a-f]{32}$'
    for ((rank = 0; rank < RANKS; rank++)); do
        cli verify -q "${STORES[rank]}" "${MODELS[rank]}"
    done
}

generations() {
    local store
    for store in "${STORES[@]}"; do
        jq -r .generation "$store/info"
    done | paste -sd ' '
}

@test "a group is loaded with one id, left as it is the next time, and loaded anew by force" {
    start_ranks
    make_group 1
    cli load --group "${GROUP[@]}"
    assert_eq "$(grep -c '^committed .* tensors in 1 allocations, generation 1$' <<<"$output")" $RANKS
    assert_match "$output" "group [0-9a-f]{32} of $RANKS stores"
    assert_match "$output" '[0-9]+ bytes \(4\.[0-9] MiB\)'
    holds_group
    local first
    first=$(group_ids)
    cli ls --json "${STORES[1]}"
    assert_eq "$(jq -r .group <<<"$output")" "$first" 'group of ls'
    cli status "$T/rank1"
    assert_match "$output" "weights +COMMITTED .* ${first:0:8} "
    cli load --group "${GROUP[@]}"
    assert_match "$output" 'left as it is: one load is committed in all of the stores'
    assert_eq "$(group_ids)" "$first" group
    make_group 2
    cli load --group "${GROUP[@]}"
    assert_eq "$(generations)" '1 1 1 1' generations
    cli load --group --force -q "${GROUP[@]}"
    assert_eq "$output" '' output
    assert_eq "$(generations)" '2 2 2 2' generations
    holds_group
    [[ $(group_ids) != "$first" ]]
}

# bats test_tags=slow
@test "a rank has the layout that its model has alone, however many allocations the others have" {
    local small=2097152
    start_ranks
    write_tensors "$T/little.safetensors" 10
    # shellcheck disable=SC2046 # sizes
    write_tensors "$T/model.safetensors" 5242880 $(printf "$small %.0s" {1..18}) 5242880
    cli load -q --chunk 2M --group "${STORES[0]}=$T/little.safetensors" "${STORES[1]}=$T/model.safetensors"
    cli load -q --chunk 2M "${STORES[2]}" "$T/model.safetensors"
    assert_eq "$(cat "${STORES[1]}/layout_hash")" "$(cat "${STORES[2]}/layout_hash")" hash
}

# bats test_tags=slow
@test "a rank may be named by several operands, with its shards" {
    start_ranks
    make_group 1
    local operands=() rank shard
    for shard in 1 2; do
        for ((rank = 0; rank < RANKS; rank++)); do
            operands+=("${STORES[rank]}=$(find "$T/model-1-$rank" -name "*-0000$shard-of-*")")
        done
    done
    cli load --group "${operands[@]}"
    holds_group
}

# bats test_tags=slow
@test "operands that make no group are refused" {
    start_ranks
    make_group 1
    cli -2 load --group
    cli -2 load --group "${STORES[0]}" "${MODELS[0]}"
    assert_match "$output" 'STORE=FILE is needed'
    cli -2 load --group "${STORES[0]}="
    cli -2 load --force "${STORES[0]}" "${MODELS[0]}"
    assert_match "$output" 'force is for --group'
    cli -1 load --group "${GROUP[@]}" "$T/rank0/./weights=${MODELS[0]}"
    assert_match "$output" 'two of the stores are one and the same'
    cli -1 load --group "${GROUP[@]}" "$T/none=${MODELS[0]}"
    assert_match "$output" 'there is no gmsfs mount'
    no_sessions "${STORES[@]}"
    assert_eq "$(generations)" '0 0 0 0' generations
}

@test "one bad rank and nothing of the group is committed" {
    start_ranks alloc_timeout=0
    make_group 1
    cli load --group "${GROUP[@]}"
    local first models=("${MODELS[@]}")
    first=$(group_ids)
    make_group 2
    printf 'short' >"$T/bad.safetensors"
    cli -1 load --group --force "${GROUP[@]:1}" "${STORES[0]}=$T/bad.safetensors"
    assert_match "$output" 'bad.safetensors'
    # One that fits on its device, but for another store there.
    mkdir "$T/rank2/other"
    cli load "$T/rank2/other" "$("$ROOT/scripts/make-model" --out "$T/big" --size 40M | tail -n 1)"
    MODELS[2]=$T/big/$(basename "$(find "$T/big" -name '*.json')")
    cli -3 load --group --force --timeout 0 "${GROUP[@]:0:2}" "${STORES[2]}=${MODELS[2]}" "${GROUP[3]}"
    assert_match "$output" "${STORES[2]}: the model does not fit"
    no_sessions "${STORES[@]}"
    MODELS=("${models[@]}")
    assert_eq "$(generations)" '1 1 1 1' generations
    assert_eq "$(cat "${STORES[0]}/state" "${STORES[1]}/state" "${STORES[3]}/state" | sort -u)" COMMITTED
    assert_eq "$(jq -r .group "${STORES[0]}/info")" "$first" group
}

# bats test_tags=slow
@test "a group waits for all its locks, holding them or none, and gives up after its timeout" {
    start_ranks
    make_group 1
    spawn bash -c 'exec 5<>"$1/lock"; exec sleep 60' _ "${STORES[3]}"
    local holder=$SPAWNED
    assert_state "${STORES[3]}" RW
    cli -3 load --group --timeout 0 "${GROUP[@]}"
    cli -3 load --group --timeout 0.3 "${GROUP[@]}"
    assert_match "$output" "waiting for the locks of 4 stores; ${STORES[3]} is RW"
    assert_match "$output" "${STORES[3]}: not free in the time given"
    spawn "$GMSFS" load --group "${GROUP[@]}"
    wait_until 5 grep -q waiting "$T/spawn-$SPAWNED"
    kill -KILL "$holder"
    wait_exit -0 "$SPAWNED" 30
    holds_group
}

reserved_is() { # BYTES, on the mount of rank 0
    [[ $(jq -r .reserved_bytes "$T/rank0/device") -eq $1 ]]
}

# bats test_tags=slow
@test "a group waits for memory with nothing in hand, and loads when it is there" {
    start_ranks
    make_group 1 40M
    mkdir "$T/rank3/other"
    spawn "$BUILD/tests/tools/gmsctl" open "$T/rank3/other/ctl" rw acquire-reserve rw 0 $((40 << 20)) \
        say got pause
    local holder=$SPAWNED
    wait_until 5 grep -q got "$T/spawn-$holder"
    cli -3 load --group --timeout 0.3 "${GROUP[@]}"
    assert_match "$output" "waiting for memory for ${STORES[3]}: "
    assert_match "$output" "${STORES[3]}: the model does not fit: .*; that did not change in the time given;"
    spawn "$GMSFS" load --group "${GROUP[@]}"
    wait_until 5 grep -q waiting "${STORES[3]}/sessions"
    reserved_is 0
    assert_eq "$(cat "${STORES[0]}/state")" EMPTY state
    kill -KILL "$holder"
    wait_exit -0 "$SPAWNED" 30
    holds_group
}

# bats test_tags=slow
@test "a group does not wait for the run around it" {
    start_ranks
    make_group 1
    cli -1 run -w "${STORES[2]}" -- "$GMSFS" load --group "${GROUP[@]}"
    assert_match "$output" "${STORES[2]}: the 'gmsfs run' around this command holds it"
}

# bats test_tags=slow
@test "ranks that do not fit together on their one mount are refused at once" {
    RANKS=1
    start_ranks
    mkdir "$T/rank0/other"
    make_group 1 40M
    # 40 MiB twice, in 64 MiB
    cli -1 load --group "${GROUP[0]}" "$T/rank0/other=${MODELS[0]}"
    assert_match "$output" "other: the model does not fit: .* needed, .* of 64"
    no_sessions "${STORES[@]}"
}

@test "a dead mount fails the group and leaves the others free" {
    start_ranks
    make_group 1
    expect_death "$T/rank1"
    kill -KILL "${KEEPER_OF[$T/rank1]}" "$(worker_of "${KEEPER_OF[$T/rank1]}")"
    wait_until_any 5 eval '! cat "$T/rank1/device"'
    cli -1 load --group "${GROUP[@]}"
    assert_match "$output" 'rank1/weights: the mount is dead'
    STORES=("${STORES[0]}" "${STORES[2]}" "${STORES[3]}")
    no_sessions "${STORES[@]}"
}

@test "a group whose loader is killed again and again is whole or is loaded anew" {
    start_ranks
    make_group 1 4M
    local first=("${MODELS[@]}") i
    cli load --group -q "${GROUP[@]}"
    make_group 2 4M
    for i in 1 2 3 4 5 6; do
        spawn "$GMSFS" load --group --force "${GROUP[@]}"
        sleep "0.0$((i * 2))"
        kill -KILL "$SPAWNED" 2>/dev/null || true
        wait_exit "$SPAWNED"
        wait_until 5 no_sessions "${STORES[@]}"
        cli load --group "${GROUP[@]}"
        if [[ $output == *'left as it is'* && $i -eq 1 && $(generations) == '1 1 1 1' ]]; then
            MODELS=("${first[@]}") # it died early: the first load is there still, and whole
            holds_group
            make_group 2 4M
        fi
    done
    cli load --group --force -q "${GROUP[@]}"
    holds_group
}

@test "a signal in the midst of a group commits nothing of it" {
    start_ranks
    make_group 1 24M
    cli load --group "${GROUP[@]}"
    local first
    first=$(group_ids)
    for _ in 1 2 3 4 5 6 7 8; do
        spawn "$GMSFS" load --group --force --threads 1 "${GROUP[@]}"
        # Stopped while it is at work, it cannot run away before the signal.
        wait_until 5 eval 'state_is "${STORES[3]}" RW || process_gone "$SPAWNED"'
        kill -STOP "$SPAWNED" 2>/dev/null || true
        kill -TERM "$SPAWNED" 2>/dev/null || true
        kill -CONT "$SPAWNED" 2>/dev/null || true
        wait_exit "$SPAWNED" 30
        [[ $status -eq 0 ]] || break
        first=$(group_ids)
    done
    assert_eq "$status" 143 status
    assert_match "$(output_of "$SPAWNED")" 'nothing was committed'
    wait_until 5 no_sessions "${STORES[@]}"
    assert_eq "$(group_ids)" "$first" group
    holds_group
}

# bats test_tags=slow
@test "files that are far are read once for the stores that want the same, and passed on" {
    start_ranks
    requires python3
    start_web
    mv "$("$ROOT/scripts/make-model" --single --size 9M --out "$T/made" | tail -n 1)" "$T/www/same.safetensors"
    write_tensors "$T/www/other.safetensors" 4000000
    cli load --immutable --group "${STORES[0]}=$WEB/plain/same.safetensors" "${STORES[1]}=$WEB/plain/other.safetensors" \
        "${STORES[2]}=$WEB/plain/same.safetensors" "${STORES[3]}=$WEB/plain/same.safetensors"
    assert_eq "$(count_requests 'same.*"range": "bytes=[1-9][0-9]{3,}-')" 1 'requests for tensors'
    cli verify -q "${STORES[0]}" "$T/www/same.safetensors"
    cli verify -q "${STORES[1]}" "$T/www/other.safetensors"
    cli verify -q "${STORES[2]}" "$T/www/same.safetensors"
    cli verify -q "${STORES[3]}" "$T/www/same.safetensors"
    assert_eq "$(cat "${STORES[3]}/layout_hash")" "$(cat "${STORES[0]}/layout_hash")" hash
}
