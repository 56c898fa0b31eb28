#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The examples of gmsfs-models(7), each taken from the page and run as it stands there: on host memory,
# with MiB for GiB, models of a few MiB, and programs that stand in for engines.
#
# shellcheck disable=SC2154,SC2153,SC2030,SC2031 # output is set by bats' run; each test has an M of its own
# shellcheck disable=SC2016 # bodies of shells
# bats file_tags=slow

load helpers
load python

PAGE=$ROOT/man/gmsfs-models.7

prepare() {
    python_setup
    mkdir -p "$T/bin" "$T/models" "$T/run/models" "$T/spill"
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$GMSFS" >"$T/bin/gmsfs"
    chmod +x "$T/bin/gmsfs"
    WORDS=()
}

make_model() { # NAME SIZE [SEED]: a model that the examples find at /models/NAME
    requires python3 || return 1
    "$ROOT/scripts/make-model" --out "$T/models/$1" --size "$2" --shards 2 --seed "${3:-0}" >/dev/null
}

make_adapter() { # NAME
    mkdir -p "$T/models/adapters"
    "$ROOT/scripts/make-model" --out "$T/adapter" --size 1M --shards 1 --seed 1 >/dev/null
    mv "$(find "$T/adapter" -name '*.safetensors')" "$T/models/adapters/$1.safetensors"
    rm -r "$T/adapter"
}

start() { # [OPTIONS]: the mount of the examples
    start_mount "${1:-size=64M,host_size=64M,spill=$T/spill,spill_size=64M}"
}

have() { # STORE SIZE: a model of this name, loaded
    make_model "$1" "$2"
    mkdir "$M/$1"
    cli load -q "$M/$1" "$T/models/$1/model.safetensors.index.json"
}

# blocks: "SECTION, number of the block in it", a line for each of the page's examples.
blocks() {
    awk '/^\.Sh / { section = substr($0, 5); n = 0 }
         /^\.Bd / { print section ", " ++n }' "$PAGE"
}

# block SECTION N: the lines of it, as the page shows them.
block() {
    awk -v want="$1" -v nth="$2" '
        /^\.Sh / { section = substr($0, 5); n = 0 }
        /^\.Ed/ { inside = 0 }
        inside { gsub(/\\e/, "\\"); print }
        /^\.Bd / { inside = section == want && ++n == nth }' "$PAGE"
}

# example [-STATUS] SECTION N: runs it in the mount's directory. WORDS are for sed, for what is not here.
example() {
    local want=-0 script
    case $1 in -*)
        want=$1
        shift
        ;;
    esac
    script=$(block "$1" "$2" | sed -E -e "s,/mnt/gms/gpu0,$M,g; s,(/run)?/models/,$T\\1/models/,g" \
        -e 's/\b([0-9]+)G\b/\1M/g' "${WORDS[@]}")
    [[ -n $script ]] || fail "gmsfs-models(7), $1: no example $2"
    (
        cd "$M"
        PATH=$T/bin:$PATH exec bash -eu -c "$script"
    ) >"$T/example" 2>&1 && status=0 || status=$?
    printf '$ %s, %s:\n%s\n%s\n' "$1" "$2" "$script" "$(cat "$T/example")"
    output=$(cat "$T/example")
    [[ $status -eq ${want#-} ]] || fail "exit status $status: $1, $2"
}

at() { # TIERS STORE
    assert_eq "$(cat "$M/$2/residency")" "$1"
}

is_at() { # TIERS STORE
    [[ $(cat "$M/$2/residency") == "$1" ]]
}

verify() { # STORE [MODEL]
    cli verify -q "$M/$1" "$T/models/${2:-$1}/model.safetensors.index.json"
}

@test "every example of the page is run by a test of this file" {
    local ran
    ran=$(sed -nE "s/^    example (-[0-9]+ )?'([^']*)' ([0-9]+)\$/\2, \3/p" "$BATS_TEST_FILENAME" | sort -u)
    assert_eq "$(blocks | sort)" "$ran" examples
}

@test "the page's mount has a model, and host memory and a disk beside the device" {
    requires fuse
    M=$T/m
    mkdir "$M"
    make_model llama 4M
    # The daemon stays behind, and must not keep the streams that bats waits for.
    WORDS=(-e "s,^gmsfs mount (.*),gmsfs mount \1 3>\&- 4>\&- >'$T/mounted' 2>\&1,"
        -e 's/device=0/backend=host,size=64M/' -e "s,/nvme/spill,$T/spill,")
    example 'A MOUNT WITH ROOM BESIDE THE DEVICE' 1
    assert_match "$output" 'llama +COMMITTED'
    verify llama
    assert_eq "$(device_get '.host_total_bytes, .spill_total_bytes' | paste -sd ' ')" \
        "$((128 << 20)) $((500 << 20))" tiers
    cli umount "$M"
}

@test "one model takes the place of another, comes back, and is loaded anew without a copy" {
    start size=12M,host_size=64M
    have llama 8M
    make_model qwen 8M 1
    mkdir "$M/qwen"
    example 'ONE MODEL IN PLACE OF ANOTHER' 1
    at host llama
    at device qwen
    verify qwen
    example 'ONE MODEL IN PLACE OF ANOTHER' 2
    at 'device host' llama
    at host qwen
    verify llama
    local before
    before=$(cat "$M/llama/layout_hash")
    example 'ONE MODEL IN PLACE OF ANOTHER' 3
    at device llama
    verify llama
    assert_eq "$(cat "$M/llama/layout_hash")" "$before" hash
}

@test "a new version takes the place of the old one, by an exchange and by a link" {
    start
    have qwen 4M
    make_model qwen-2 6M 2
    if ! mv --help | grep -q -- --exchange; then
        printf '#!/bin/sh\n[ "$1" != --exchange ] || exec "%s" exchange "$3" "$4"\nexec %s "$@"\n' \
            "$GMSCTL" "$(command -v mv)" >"$T/bin/mv"
        chmod +x "$T/bin/mv"
    fi
    hold open "$M/qwen/lock" r
    example 'A NEW VERSION OF A MODEL' 1
    verify qwen qwen-2
    verify qwen.next qwen
    ln -s "$M/qwen.next" "$T/run/models/current"
    example 'A NEW VERSION OF A MODEL' 2
    assert_eq "$(readlink "$T/run/models/current")" "$M/qwen"
    cli verify -q "$T/run/models/current" "$T/models/qwen-2/model.safetensors.index.json"
}

@test "an engine sleeps, its model leaves the device, and another one wakes with its own" {
    requires curl
    python_with json
    python_preload
    start size=12M,host_size=64M
    have qwen 8M
    engine qwen
    local qwen=$PORT llama before
    before=$(asked "$qwen")
    curl -sf -X POST "http://localhost:$qwen/sleep"
    cli demote "$M/qwen"
    have llama 8M
    engine llama
    llama=$PORT
    WORDS=(-e "s/localhost:8001/localhost:$llama/; s/localhost:8002/localhost:$qwen/")
    example 'ENGINES THAT SLEEP' 1
    at host llama
    at 'device host' qwen
    assert_eq "$(asked "$qwen")" "$before" bytes
}

@test "pools give budgets and shares of the processors" {
    start
    have llama 4M
    have qwen 4M
    example 'BUDGETS AND SHARES' 1
    assert_match "$output" "chat min=$((20 << 20)) max=$((40 << 20)) slots=max class=high sm=60 stores=2"
    assert_match "$output" "batch min=0 max=$((30 << 20)) .* sm=40"
    expect EDQUOT open "$M/llama/lock" rw alloc $((38 << 20)) 1 a ''
    printf '#!/bin/sh\necho "$GMSFS_MODE, $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE per cent: $*"\n' >"$T/bin/vllm"
    chmod +x "$T/bin/vllm"
    example 'BUDGETS AND SHARES' 2
    assert_eq "$output" "RO, 60 per cent: serve $T/models/llama"
}

@test "adapters rest on the host, and come when they are asked for" {
    start
    make_adapter alice
    make_adapter bob
    make_adapter carol
    example 'ADAPTERS' 1
    local name
    for name in alice bob carol; do
        at host "lora.$name"
        assert_eq "$(info_of "lora.$name" .pool)" adapters pool
    done
    example 'ADAPTERS' 2
    at 'device host' lora.carol
    assert_eq "$(getfattr --only-values -n user.gmsfs.pin "$M/lora.carol")" 1
    assert_match "$output" 'gmsfs_evictions_total\{pool="adapters"\} 0'
    cli demote "$M/lora.carol"
    example 'ADAPTERS' 3
    assert_match "$output" 'STORE +STATE +PLACES'
    assert_match "$output" 'lora.bob'
    wait_until 10 is_at 'device host' lora.alice
    at 'device host' lora.bob
    at host lora.carol
    cli verify -q "$M/lora.carol" "$T/models/adapters/carol.safetensors"
}

@test "a model that has to go leaves the device before any process is let in" {
    start
    have qwen 4M
    hold open "$M/qwen/lock" r
    WORDS=(-e 's/--timeout 30/--timeout 0.2/')
    example -3 'A MODEL THAT HAS TO GO' 1
    at device qwen
    let_go "$HOLDER"
    example 'A MODEL THAT HAS TO GO' 1
    at host qwen
}

@test "a governor prints its plan, from engines' metrics" {
    requires curl
    requires python3
    start size=12M,host_size=64M,min_stay=0
    have llama 8M
    cli demote -q "$M/llama"
    have qwen 8M
    mkdir "$T/8001" "$T/8002"
    echo vllm:num_requests_waiting 4 >"$T/8001/metrics"
    echo vllm:num_requests_waiting 0 >"$T/8002/metrics"
    spawn python3 -u -m http.server --bind 127.0.0.1 --directory "$T" 0
    wait_until 10 grep -q 'port [0-9]' "$T/spawn-$SPAWNED"
    local port
    port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$T/spawn-$SPAWNED")
    WORDS=(-e "s,/etc/gmsfs/,$T/,g; s,localhost:(800[12]),127.0.0.1:$port/\\1,; s/cooldown 30/cooldown 0/")
    example 'A GOVERNOR' 1
    assert_match "$output" "gmsfs demote -q --to host --timeout 300 $M/qwen && # llama has 4 requests waiting"
    assert_match "$output" "gmsfs promote -q --timeout 300 $M/llama # llama has 4 requests waiting"
    at host llama
    at device qwen
}

@test "a model goes from place to place, and its bytes can be read at each" {
    start
    have llama 4M
    have qwen 4M
    example 'BETWEEN THE PLACES' 1
    assert_match "$(cat "$M/llama/residency")" '^device'
    verify llama
    local before
    before=$(cd "$M" && sha256sum llama/allocations/*)
    example 'BETWEEN THE PLACES' 2
    assert_eq "${output#*$'\n'}" "$before" sums
    at 'host disk' llama # a store from there keeps its copy
    wait_until 10 is_at 'device host' qwen
}
