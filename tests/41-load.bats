#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs load and gmsfs verify, with real files.

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers

seconds_of() { # PART: of the last load, in hundredths
    [[ $output =~ [\(\ ]$1\ ([0-9]+)\.([0-9]{2})\ s ]] && echo $((10#${BASH_REMATCH[1]}${BASH_REMATCH[2]}))
}

# bats test_tags=slow
@test "a load reports its times, also the wait for the lock" {
    local holder
    start_mount size=64M
    make_model 8M 3
    spawn bash -c 'exec 5<>"$1/lock"; exec sleep 60' _ "$M/weights"
    holder=$SPAWNED
    wait_until 5 assert_state weights RW
    spawn timeout $((60 * HANG)) "$GMSFS" load "$M/weights" "$MODEL"
    wait_until 10 grep -q 'waiting for the RW lock' "$T/spawn-$SPAWNED"
    never_within 1 process_gone "$SPAWNED"
    kill "$holder"
    wait_exit -0 "$SPAWNED" 20
    output=$(output_of "$SPAWNED")
    (($(seconds_of 'lock and memory') >= 100))
    (($(seconds_of 'copy') + $(seconds_of 'commit') <= $(seconds_of 'in') + 1)) # what is cut off
    assert_match "$output" 'plan [0-9]+\.[0-9]{2} s'
}

@test "a sharded model is loaded, listed and verified" {
    requires jq xxhsum
    start_mount size=64M
    make_model 8M 3
    cli load "$M/weights" "$MODEL"
    assert_match "$output" 'committed .* [0-9]+ tensors in 1 allocations, generation 1'
    assert_match "$output" '[0-9]+ bytes \([0-9.]+ MiB\) in [0-9.]+ s, [0-9.]+ GB/s \(plan '
    assert_state weights COMMITTED
    run_logged -0 xxhsum -q -H2 "$M/weights/layout"
    assert_eq "${output%% *}" "$(cat "$M/weights/layout_hash")" hash
    cli verify "$M/weights" "$MODEL"
    assert_match "$output" '^verified'

    cli ls --json "$M/weights"
    assert_eq "$(jq '[.tensors[] | select(.allocation and .offset % 512 != 0)] | length' <<<"$output")" 0
    assert_eq "$(jq -c '.tensors[] | select(.tensor == "model.norm.weight") | .value | keys' <<<"$output")" \
        '["dtype","shape","stride","tensor_type"]'
    assert_eq "$(jq -r '.tensors[] | select(.tensor == "__metadata__") | .allocation' <<<"$output")" null
    assert_eq "$(jq -r '.tensors[] | select(.tensor == "__metadata__") | .value | type' <<<"$output")" object
}

@test "the same model twice gives the same hash, with any number of threads; other chunks another" {
    start_mount size=64M
    make_model 8M
    local first
    cli load --threads 1 -q "$M/weights" "$MODEL"
    assert_eq "$output" '' output
    first=$(cat "$M/weights/layout_hash")
    mkdir "$M/other"
    cli load --threads 7 "$M/other" "$MODEL"
    assert_eq "$(cat "$M/other/layout_hash")" "$first" hash
    cli load --chunk 2M "$M/other" "$MODEL"
    [[ $(cat "$M/other/layout_hash") != "$first" ]]
    (($(find "$M/other/allocations" -type f | wc -l) > 2)) || fail "it made no chunks"
    cli verify --threads 3 "$M/other" "$MODEL"
}

# bats test_tags=slow
@test "a tensor too large for a chunk is asked for behind sixteen chunks, so these are filled meanwhile" {
    requires python3 jq
    start_mount size=64M
    # shellcheck disable=SC2046 # sizes
    write_tensors "$T/large.safetensors" 5242880 $(printf '2097152 %.0s' {1..18})
    cli load --chunk 2M "$M/weights" "$T/large.safetensors"
    cli ls --json "$M/weights"
    assert_eq "$(jq -c '.tensors[] | select(.tensor == "t0").allocation' <<<"$output")" '"a000016"' 'where it is'
    cli verify "$M/weights" "$T/large.safetensors"
}

@test "loading replaces the layout, and keeps it when loading fails" {
    start_mount size=64M
    make_model 4M
    cli load "$M/weights" "$MODEL"
    local first=$MODEL hash
    hash=$(cat "$M/weights/layout_hash")
    make_model 4M 2 1
    cli load "$M/weights" "$MODEL"
    assert_eq "$(cat "$M/weights/layout_hash")" "$hash" hash # structure is the same
    cli verify "$M/weights" "$MODEL"
    cli -1 verify "$M/weights" "$first"
    assert_match "$output" "tensor '[^']*' of .*: byte [0-9]+ of [0-9]+ is the first that differs"

    write_file "$T/bad.safetensors" '{"t":{"dtype":"F32","shape":[4],"data_offsets":[0,12]}}' 12
    cli -1 load "$M/weights" "$T/bad.safetensors"
    assert_match "$output" "bad.safetensors: tensor 't'"
    assert_state weights COMMITTED
    cli verify "$M/weights" "$MODEL"
}

@test "bad files are refused before the lock is taken, with file and tensor named" {
    start_mount
    local f=$T/x.safetensors
    exec 5<>"$M/weights/lock" # so that taking the lock would be noticed
    printf 'short' >"$f"
    cli -1 load "$M/weights" "$f"
    assert_match "$output" "^gmsfs load: $f: "
    write_file "$f" '{"t":{"dtype":"NO","shape":[4],"data_offsets":[0,16]}}' 16
    cli -1 load "$M/weights" "$f"
    assert_match "$output" "$f: tensor 't'"
    write_file "$f" '{"t":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}' 15
    cli -1 load "$M/weights" "$f"
    write_file "$f" "{\"$(head -c 300 /dev/zero | tr '\0' n)\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}" 16
    cli -1 load "$M/weights" "$f"
    assert_match "$output" 'takes names of 1 to 255 bytes'
    cli -1 load "$M/weights" "$T/nothing.safetensors"
    assert_match "$output" 'nothing.safetensors'
    exec 5>&-
    nothing_committed weights
}

@test "a model beyond the device is refused with the numbers" {
    start_mount size=8M
    make_model 12M
    cli -1 load "$M/weights" "$MODEL"
    assert_match "$output" 'does not fit: [0-9.]+ MiB needed, 8.0 MiB free of 8.0 MiB'
    nothing_committed weights

    # One that another store leaves no room for.
    stop_mount
    start_mount size=16M
    mkdir "$M/other"
    cli load "$M/other" "$MODEL"
    cli -3 load --timeout 0 "$M/weights" "$MODEL"
    assert_match "$output" 'does not fit: [0-9.]+ MiB needed, [0-9.]+ MiB free of 16.0 MiB'
    nothing_committed weights
    assert_state other COMMITTED
}

@test "load waits for the lock, and gives up after its timeout" {
    start_mount
    make_model 1M
    spawn bash -c 'exec 5<>"$1/lock"; exec sleep 30' _ "$M/weights"
    assert_state weights RW
    cli -3 load --timeout 0 "$M/weights" "$MODEL"
    cli -3 load --timeout 0.3 "$M/weights" "$MODEL"
    assert_match "$output" 'waiting for the RW lock'
    assert_match "$output" 'not free in the time given'
    local holder=$SPAWNED
    spawn "$GMSFS" load "$M/weights" "$MODEL"
    wait_until 5 grep -q waiting "$T/spawn-$SPAWNED"
    kill -KILL "$holder"
    wait_exit -0 "$SPAWNED"
    assert_state weights COMMITTED
}

# bats test_tags=slow
@test "load and verify do not wait for the run around them" {
    start_mount
    make_model 1M
    local mode
    cli load "$M/weights" "$MODEL"
    for mode in -w -r; do
        cli -1 run "$mode" "$M/weights" -- "$GMSFS" load "$M/weights" "$MODEL"
        assert_match "$output" "the 'gmsfs run' around this command holds it"
    done
    cli -1 run -w "$M/weights" -- "$GMSFS" verify "$M/weights" "$MODEL"
    assert_match "$output" "call it without 'gmsfs run'"
    cli run -r "$M/weights" -- "$GMSFS" verify "$M/weights" "$MODEL"
    # The attempt does not end the session of the run.
    cli run -w "$M/weights" -- sh -c '"$1" load "$2" "$3"; "$1" metadata put "$2" k v' \
        _ "$GMSFS" "$M/weights" "$MODEL"
    assert_eq "$("$GMSFS" metadata get "$M/weights" k)" v
}

@test "a signal while waiting for the lock ends load at once, and is said" {
    start_mount
    make_model 1M
    spawn bash -c 'exec 5<>"$1/lock"; exec sleep 30' _ "$M/weights"
    assert_state weights RW
    # bash ignores SIGINT in background processes, so TERM stands for both.
    spawn "$GMSFS" load "$M/weights" "$MODEL"
    wait_until 5 grep -q waiting "$T/spawn-$SPAWNED"
    kill -TERM "$SPAWNED"
    wait_exit -143 "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" 'stopped by a signal .Terminated.; nothing was committed'
}

@test "a signal in the midst of loading commits nothing" {
    start_mount size=64M
    make_model 32M 1
    cli load "$M/weights" "$MODEL"
    local tries signalled=0
    for tries in 1 2 3 4 5 6 7 8; do
        spawn nice -n 19 "$GMSFS" load --threads 1 "$M/weights" "$MODEL"
        wait_until 5 state_is weights RW || true
        kill -TERM "$SPAWNED" 2>/dev/null || true
        wait_exit "$SPAWNED"
        if [[ $status -eq 143 ]]; then
            signalled=1
            assert_match "$(output_of "$SPAWNED")" 'nothing was committed'
            break
        fi
        assert_eq "$status" 0 "status of try $tries"
    done
    [[ $signalled -eq 1 ]] || fail "every load was faster than the signal"
    wait_until 5 eval 'state_is weights EMPTY || state_is weights COMMITTED'
}

@test "verify finds a wrong byte, a missing tensor and another shape" {
    start_mount
    local f=$T/x.safetensors
    write_file "$f" '{"a":{"dtype":"U8","shape":[1000],"data_offsets":[0,1000]},
        "b":{"dtype":"U8","shape":[1000],"data_offsets":[1000,2000]}}' 2000
    cli -1 verify "$M/weights" "$f"
    assert_match "$output" 'EMPTY'
    cli load "$M/weights" "$f"
    printf X | dd of="$f" bs=1 seek=$(($(stat -c %s "$f") - 1000 + 123)) conv=notrunc status=none
    cli -1 verify "$M/weights" "$f"
    assert_match "$output" "tensor 'b' of $f: byte 123 of 1000 is the first that differs"
    assert_match "$output" '1 differences'
    write_file "$f" '{"a":{"dtype":"U8","shape":[10,100],"data_offsets":[0,1000]},
        "c":{"dtype":"U8","shape":[1000],"data_offsets":[1000,2000]}}' 2000
    cli -1 verify "$M/weights" "$f"
    assert_match "$output" "tensor 'a' of $f: the store has another dtype or shape"
    assert_match "$output" "tensor 'c' of $f: not in the store"
    assert_match "$output" '2 differences'
    write_file "$f" '{"a":{"dtype":"U8","shape":[1000],"data_offsets":[0,1000]}}' 1000
    cli verify "$M/weights" "$f"
    assert_match "$output" '1 more tensors'
    assert_state weights COMMITTED
}

# bats test_tags=slow
@test "where no thread can start, load, verify, save and sum say so, and which limits there are" {
    local command
    start_mount size=64M
    make_model 1M 1
    cli load -q "$M/weights" "$MODEL"
    export GMSFS_FAULT=pthread_create:after=0:errno=EAGAIN:in=command
    for command in "sum $M/weights" "verify $M/weights $MODEL" "save $M/weights $T/x.safetensors" \
        "load $M/weights $MODEL"; do
        # shellcheck disable=SC2086 # words
        cli -1 $command
        assert_match "$output" "no thread could be started; raise the limit .*'ulimit -v'.*'ulimit -u'"
    done
}

@test "a name of a store that is too long is refused with its bound" {
    start_mount
    cli -1 sum "$M/$(printf 'n%.0s' {1..256})"
    assert_match "$output" 'File name too long; a name has at most 255 bytes'
}

@test "where a process may have no more memory, the message names its limit" {
    local command n
    start_mount size=64M
    make_model 1M 1
    cli load -q "$M/weights" "$MODEL"
    for command in "sum $M/weights" "verify $M/weights $MODEL" "save $M/weights $T/x.safetensors" \
        "copy $M/weights $M/other" "image save $M/weights $T/image"; do
        for n in {0..5}; do
            # shellcheck disable=SC2086 # words
            GMSFS_FAULT=mmap:after=$n:errno=ENOMEM:in=command run_logged "$GMSFS" $command
            [[ $output != *'cannot map the memory'* ]] || break
        done
        assert_match "$output" "cannot map the memory: $M/weights: memory is short, of this process .*'ulimit -v'"
    done
}

@test "a load without memory for a text leaves no store, or has committed and succeeds" {
    local n loaded=0
    requires hooked-printf
    start_mount size=64M
    make_model 1M 1
    for ((n = 0; loaded < 3; n++)); do
        GMSFS_FAULT=vasprintf:after=$n:in=command run_logged "$GMSFS" load "$M/w$n" "$MODEL"
        if ((status == 0)); then
            assert_state "w$n" COMMITTED
            loaded=$((loaded + 1))
        else
            assert_match "$output" 'this process is out of memory'
            [[ ! -e $M/w$n ]] || fail "call $n left a store"
        fi
    done
    ((n > 3)) || fail 'no text was missed'
}

# bats test_tags=slow
@test "load shows a bar on a terminal and plain lines elsewhere" {
    requires script
    start_mount size=64M
    make_model 16M 1
    run_logged -0 script -qec "stty cols 100; '$GMSFS' load '$M/weights' '$MODEL'" /dev/null
    assert_match "$output" 'copying  \[#+-*\] +[0-9]+%'
    cli load "$M/weights" "$MODEL"
    [[ $output != *$'\r'* && $output != *$'\e'* ]] || fail "control characters in a log"
}

@test "a model is loaded and verified past the page cache, and is not in it then" {
    requires direct-io fincore
    start_mount size=64M
    make_model 24M 1
    local file bytes
    file=$(find "${MODEL%/*}" -name '*.safetensors')
    bytes=$(stat -c %s "$file")
    drop_cached "$file"
    cli load --direct always "$M/weights" "$MODEL"
    cli verify --direct=always "$M/weights" "$MODEL"
    (($(cached_bytes "$file") < bytes / 4)) || fail "$(cached_bytes "$file") of $bytes bytes are cached"
    # The same bytes as through it.
    cli verify --direct never "$M/weights" "$MODEL"
    cli load --direct never "$M/weights" "$MODEL"
    cli verify --direct always --threads 1 "$M/weights" "$MODEL"
}

@test "tensors that begin anywhere in the file, some empty, are read past the page cache" {
    start_mount size=64M
    local f=$T/x.safetensors
    write_random_tensors "$f" 1 0 65535 4096 70001 3000001 5 2097152 0 131072 4194305
    cli load --direct always "$M/weights" "$f"
    cli verify --direct never "$M/weights" "$f"
    cli verify --direct always "$M/weights" "$f"
    printf X | dd of="$f" bs=1 seek=$(($(stat -c %s "$f") - 123)) conv=notrunc status=none
    cli -1 verify --direct always "$M/weights" "$f"
    assert_match "$output" "tensor 't10' of $f: byte 4194182 of 4194305 is the first that differs"
}

@test "where the memory of a store cannot be written, load names the store and not the model" {
    requires direct-io
    start_mount size=64M
    make_model 8M 1
    GMSFS_FAULT=pwrite:after=0:errno=EIO:in=command cli -1 load --direct always "$M/weights" "$MODEL"
    assert_match "$output" "load: $M/weights: cannot write the memory of tensor '[^']+': Input/output"
    [[ $output != *"${MODEL%/*}"* ]] || fail "it names a file of the model"
    assert_state weights EMPTY
}

# bats test_tags=slow
@test "where no file may be written that far, a model is loaded through mappings" {
    start_mount size=64M
    make_model 24M 2
    run_logged -0 bash -c 'ulimit -f 100; exec "$@"' _ "$GMSFS" load "$M/weights" "$MODEL"
    cli verify "$M/weights" "$MODEL"
}

# bats test_tags=slow
@test "--direct takes three words" {
    cli -2 load --direct=sometimes x y
    assert_match "$output" "--direct: 'sometimes': one of auto, always and never is needed"
    cli -2 verify --direct x y z
    cli -2 save --direct '' x y.safetensors
    cli -2 image save --direct x y z
}
