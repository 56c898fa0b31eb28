#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs save and gmsfs sum, against files and against xxhsum; gmsfs status --watch.
#
# bats file_tags=slow

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers

# split_file FILE DIR: the bytes of each tensor as a file of its name.
split_file() {
    python3 - "$@" <<'EOF'
import json, struct, sys
raw = open(sys.argv[1], "rb").read()
length, = struct.unpack("<Q", raw[:8])
for name, tensor in json.loads(raw[8:8 + length]).items():
    if name != "__metadata__":
        begin, end = tensor["data_offsets"]
        open(sys.argv[2] + "/" + name, "wb").write(raw[8 + length + begin:8 + length + end])
EOF
}

sums() { # STORE
    timeout $((60 * HANG)) "$GMSFS" sum "$M/$1"
}

# same_as FILE: loading it gives the layout and the bytes that the store `weights` has.
same_as() {
    mkdir -p "$M/again"
    cli load -q "$M/again" "$1"
    assert_eq "$(cat "$M/again/layout_hash")" "$(cat "$M/weights/layout_hash")" hash
    assert_eq "$(sums again)" "$(sums weights)" sums
}

only_files() { # DIR NAME...: those and nothing else, hidden ones included
    local dir=$1
    shift
    assert_eq "$(find "$dir" -mindepth 1 -printf '%f\n' | sort | tr '\n' ' ')" "$*${*:+ }" files
}

# ---- sum -------------------------------------------------------------------------------------

# bats test_tags=quick
@test "sum gives what xxhsum gives for the bytes of each tensor" {
    requires xxhsum jq
    start_mount size=64M
    make_model 4M 1
    local file=$MODEL
    [[ $file != *.json ]] || file=$(find "${MODEL%/*}" -name '*.safetensors')
    cli load -q "$M/weights" "$MODEL"
    mkdir "$T/split"
    split_file "$file" "$T/split"
    assert_eq "$(sums weights | sort)" "$(cd "$T/split" && xxhsum -q -H2 -- * | sort)" sums
    assert_eq "$("$GMSFS" sum --threads 1 "$M/weights")" "$(sums weights)" 'sums by one thread'
    cli sum --json "$M/weights"
    assert_eq "$(jq -r '.tensors[] | .hash + "  " + .name' <<<"$output")" "$(sums weights)" JSON
    assert_eq "$(jq -r .layout_hash <<<"$output")" "$(cat "$M/weights/layout_hash")" hash
    assert_eq "$(jq '[.tensors[].bytes] | add' <<<"$output")" \
        "$(find "$T/split" -type f -printf '%s\n' | jq -s add)" bytes
    assert_state weights COMMITTED
}

@test "sum of allocations, asked for or where there are no tensors" {
    requires xxhsum
    start_mount
    cli -1 sum "$M/weights"
    assert_match "$output" 'EMPTY'
    "$GMSFS" run -w "$M/weights" -- bash -euc 'cd "$GMSFS_STORE"
        head -c 3000001 /dev/urandom >allocations/a; truncate -s 5M allocations/b
        echo hello >metadata/note'
    local want
    want=$(cd "$M/weights/allocations" && xxhsum -q -H2 a b)
    assert_eq "$(sums weights)" "$want" sums
    cli sum --allocations "$M/weights"
    assert_eq "$output" "$want" sums
}

# bats test_tags=quick
@test "sum waits for the lock, gives up in time, and shares it with readers" {
    start_mount
    make_model 1M
    cli load -q "$M/weights" "$MODEL"
    exec 5<"$M/weights/lock"
    cli sum -q --timeout 0 "$M/weights"
    exec 5<&-
    exec 5<>"$M/weights/lock"
    cli -3 sum --timeout 0.2 "$M/weights"
    cli -3 save --timeout 0 "$M/weights" "$T/x.safetensors"
    exec 5>&-
    cli -2 sum
    cli -2 sum a b
}

# bats test_tags=quick
@test "a tensor that is no contiguous piece of memory is named" {
    requires setfattr
    start_mount
    "$GMSFS" run -w "$M/weights" -- bash -euc 'cd "$GMSFS_STORE"
        truncate -s 2M allocations/a
        gmsfs=$1; shift
        "$gmsfs" metadata put . t "{\"dtype\":\"torch.int8\",\"shape\":[2,3],\"stride\":[1,2]}" \
            --allocation a --offset 0' _ "$GMSFS"
    cli -1 sum "$M/weights"
    assert_match "$output" "tensor 't': its strides .*--allocations"
    cli -1 save "$M/weights" "$T/x.safetensors"
    assert_match "$output" "tensor 't': its strides .*nothing was saved"
    cli sum --allocations "$M/weights"
    [[ ! -e $T/x.safetensors ]]
}

# ---- save ------------------------------------------------------------------------------------

# bats test_tags=quick
@test "a saved store is loaded again, whole or in shards" {
    requires jq
    start_mount size=64M
    make_model 12M 3
    cli load -q "$M/weights" "$MODEL"
    mkdir "$T/out"
    cli save "$M/weights" "$T/out/one.safetensors"
    assert_match "$output" 'saved .*: [0-9]+ tensors in 1 file, .*one.safetensors'
    only_files "$T/out" one.safetensors
    same_as "$T/out/one.safetensors"
    cli verify "$M/again" "$MODEL"
    assert_eq "$(stat -c %a "$T/out/one.safetensors")" "$(printf '%o' $((0666 & ~$(umask))))" mode

    cli save -q --threads 3 --shard-size 5M "$M/weights" "$T/out/m.safetensors"
    assert_eq "$output" '' output
    same_as "$T/out/m.safetensors.index.json"
    assert_eq "$(jq .metadata.total_size "$T/out/m.safetensors.index.json")" \
        "$("$GMSFS" sum --json "$M/weights" | jq '[.tensors[].bytes] | add')" total_size
    (($(find "$T/out" -name 'm-0000?-of-0000?.safetensors' | wc -l) > 2)) || fail 'no shards'
    (cd "$T" && cli save --shard-size 1 "$M/weights" here.safetensors && [[ -e here.safetensors.index.json ]])
    same_as "$T/here.safetensors.index.json"
}

# bats test_tags=quick
@test "tensors of every kind, and __metadata__, are the same after save and load" {
    requires python3
    start_mount
    write_file "$T/x.safetensors" '{"__metadata__":{"format":"pt","é":"a\"\\\n"},
        "scalar":{"dtype":"F64","shape":[],"data_offsets":[0,8]},
        "none":{"dtype":"I8","shape":[0,4],"data_offsets":[8,8]},
        "none4":{"dtype":"F4","shape":[0,3],"data_offsets":[8,8]},
        "f8":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[8,11]},
        "f4":{"dtype":"F4","shape":[2,4],"data_offsets":[11,15]},
        "f4flat":{"dtype":"F4","shape":[4,3],"data_offsets":[15,21]},
        "f6":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[21,24]},
        "f6b":{"dtype":"F6_E3M2","shape":[2,2],"data_offsets":[24,27]},
        "e8":{"dtype":"F8_E8M0","shape":[1],"data_offsets":[27,28]},
        "c64":{"dtype":"C64","shape":[1],"data_offsets":[28,36]},
        "a/b%.c\\\u001b":{"dtype":"BOOL","shape":[1],"data_offsets":[36,37]},
        ".dot":{"dtype":"BF16","shape":[1,1],"data_offsets":[37,39]}}' 39
    cli load "$M/weights" "$T/x.safetensors"
    cli verify "$M/weights" "$T/x.safetensors"
    cli ls --json "$M/weights"
    assert_eq "$(jq -c '[.tensors[] | select(.allocation and .bytes < 3) | [.tensor, .bytes]]' <<<"$output")" \
        '[[".dot",2],["a/b%.c\\\u001b",1],["e8",1],["none",0],["none4",0]]'
    cli save "$M/weights" "$T/y.safetensors"
    same_as "$T/y.safetensors"
    assert_eq "$("$GMSFS" metadata get "$M/again" __metadata__)" \
        "$("$GMSFS" metadata get "$M/weights" __metadata__)" metadata
    cli save --shard-size 4 "$M/weights" "$T/z.safetensors"
    same_as "$T/z.safetensors.index.json"
    cli load --chunk 2M "$M/weights" "$T/z.safetensors.index.json"
    cli save "$M/weights" "$T/y.safetensors" # and replaces
    same_as "$T/y.safetensors"
    [[ $(sums weights) == *$'a/b%.c\\\\\e'* ]] || fail 'a name is not as it is'
}

# write_metadata PATH BYTES [SEED]: a file of one tensor, and a value of so many bytes of every kind.
write_metadata() {
    python3 - "$@" <<'END'
import json, random, struct, sys
path, size, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
letters = random.Random(seed).choices('ab"\\\n\t\x1f/é日𝄞', k=size)
header = {"__metadata__": {"long": "".join(letters), "short": "s"},
          "t": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}}
text = json.dumps(header, ensure_ascii=False).encode()
open(path, "wb").write(struct.pack("<Q", len(text)) + text + b"abc")
END
}

metadata_of() { # PATH: of a safetensors file, in one form
    python3 -c 'import json, struct, sys
file = open(sys.argv[1], "rb")
header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
print(json.dumps(header["__metadata__"], sort_keys=True))' "$1"
}

@test "__metadata__ of any size is loaded, verified, summed and saved as it was" {
    local size
    requires python3
    start_mount size=64M
    mkdir "$M/again"
    for size in 10 340000 600000 3000000; do
        write_metadata "$T/x.safetensors" "$size"
        cli load "$M/weights" "$T/x.safetensors"
        assert_match "$output" ': 1 tensors in'
        cli verify "$M/weights" "$T/x.safetensors"
        cli sum "$M/weights"
        assert_match "$output" '^[0-9a-f]{32}  t$'
        cli save "$M/weights" "$T/y.safetensors"
        [[ $output != *' not saved'* ]] || fail 'not all was saved'
        cmp <(metadata_of "$T/x.safetensors") <(metadata_of "$T/y.safetensors") || fail "of $size bytes"
        cli load -q "$M/again" "$T/y.safetensors"
        assert_eq "$(cat "$M/again/layout_hash")" "$(cat "$M/weights/layout_hash")" hash
        write_metadata "$T/x.safetensors" "$size" 1
        cli -1 verify "$M/weights" "$T/x.safetensors"
        assert_match "$output" '__metadata__.*: the store has another'
    done
    cli save --shard-size 1 "$M/again" "$T/z.safetensors"
    cli load -q "$M/weights" "$T/z.safetensors.index.json"
    cli verify "$M/again" "$T/z.safetensors.index.json"
    cli image save -q "$M/again" "$T/image"
    cli image load -q "$M/weights" "$T/image"
    cli save -q "$M/weights" "$T/w.safetensors"
    cmp "$T/w.safetensors" "$T/y.safetensors" || fail 'by an image'
    # A name of such a value that is none is refused, not read beyond its allocation.
    cli run -w "$M/again" -- "$GMSFS" metadata put "$M/again" __metadata__ --allocation "$(find "$M/again/allocations" -type f -printf '%f\n' | head -n 1)" \
        '{"bytes":99999999,"format":"safetensors"}'
    cli -1 save "$M/again" "$T/w.safetensors"
    assert_match "$output" "'bytes' in the entry __metadata__ is not a string"
}

@test "headers that the reference implementation reads are loaded and saved" {
    local tensor='"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    requires python3
    start_mount size=64M
    write_file "$T/x.safetensors" "{\"__metadata__\":null,$tensor}" 1
    cli load -q "$M/weights" "$T/x.safetensors"
    write_file "$T/x.safetensors" " {$tensor}" 1
    cli load -q "$M/weights" "$T/x.safetensors"
    cli verify -q "$M/weights" "$T/x.safetensors"
    write_file "$T/x.safetensors" '{"__metadata__":{"a":"1"}}' 0 # and nothing else
    cli load -q "$M/weights" "$T/x.safetensors"
    cli save "$M/weights" "$T/y.safetensors"
    assert_match "$output" '0 tensors in 1 file'
    cmp <(metadata_of "$T/x.safetensors") <(metadata_of "$T/y.safetensors")
    write_file "$T/x.safetensors" "{$tensor,$tensor}" 1
    cli -1 load "$M/weights" "$T/x.safetensors"
    assert_match "$output" "tensor 't': occurs twice in the header; write the file again"
    write_file "$T/x.safetensors" "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"},$tensor}" 1
    cli -1 load "$M/weights" "$T/x.safetensors"
    assert_match "$output" "a name occurs twice in the header: .*\"a\""
}

@test "an index that names __metadata__ as a tensor is refused, however long that is" {
    requires python3
    start_mount size=64M
    write_metadata "$T/x.safetensors" 2000000
    echo '{"weight_map":{"t":"x.safetensors","__metadata__":"x.safetensors"}}' >"$T/i.json"
    cli -1 load "$M/weights" "$T/i.json"
    assert_match "$output" "tensor '__metadata__': the index says that it is in"
}

# bats test_tags=quick
@test "the reference implementation reads the saved file" {
    requires safetensors
    start_mount size=64M
    make_model 2M
    cli load -q "$M/weights" "$MODEL"
    cli save "$M/weights" "$T/y.safetensors"
    run_logged -0 "${GMSFS_TEST_PYTHON:-python3}" - "$T/y.safetensors" "$(dirname "$MODEL")" <<'EOF'
import glob, safetensors, sys
def read(path):
    return dict(safetensors.deserialize(open(path, "rb").read()))
want = {}
for path in glob.glob(sys.argv[2] + "/*.safetensors"):
    want.update(read(path))
assert read(sys.argv[1]) == want
EOF
}

@test "entries that are no tensors are counted, and a store without tensors is not saved" {
    start_mount
    make_model 1M
    cli load -q "$M/weights" "$MODEL"
    cli run -w "$M/weights" -- "$GMSFS" metadata put "$M/weights" note hello
    cli save "$M/weights" "$T/x.safetensors"
    assert_match "$output" '1 entry that describes no tensor in memory was not saved'
    cli save -q "$M/weights" "$T/x.safetensors"
    assert_eq "$output" ''
    cli run -w "$M/weights" -- "$GMSFS" metadata put "$M/weights" __metadata__ '{"a":1}'
    cli -1 save "$M/weights" "$T/y.safetensors"
    assert_match "$output" "'a' in the entry __metadata__ is not a string"
    mkdir "$M/other"
    "$GMSFS" run -w "$M/other" -- truncate -s 2M "$M/other/allocations/a"
    cli -1 save "$M/other" "$T/y.safetensors"
    assert_match "$output" 'no tensors'
    [[ ! -e $T/y.safetensors ]]
}

# bats test_tags=quick
@test "a store that cannot be written is refused at once, and nothing is left or replaced" {
    start_mount
    make_model 1M
    cli load -q "$M/weights" "$MODEL"
    mkdir "$T/out" "$T/out/dir.safetensors"
    cli -2 save "$M/weights" "$T/out/x.bin"
    cli -2 save "$M/weights" "$T/out/.safetensors"
    cli -2 save "$M/weights"
    cli -1 save "$M/weights" "$T/out/dir.safetensors"
    assert_match "$output" 'not a regular file'
    cli -1 save "$M/weights" "$M/x.safetensors"
    assert_match "$output" 'lies in a gmsfs mount, which has stores and no files of models'
    cli -1 save "$M/weights" "$T/nowhere/x.safetensors"
    assert_match "$output" 'make its directory first'
    cli -1 save "$M/weights" "$T/nowhere/x.safetensors"
    assert_match "$output" 'No such file or directory'
    echo old >"$T/out/x.safetensors"
    run_logged -1 bash -c 'ulimit -f 100; exec "$@"' _ "$GMSFS" save "$M/weights" "$T/out/x.safetensors"
    assert_match "$output" 'x.safetensors: larger than a file may be here'
    assert_eq "$(cat "$T/out/x.safetensors")" old 'the older file'
    only_files "$T/out" dir.safetensors x.safetensors
    cli -1 save "$M/weights" "$M/weights/allocations/x.safetensors"
}

# bats test_tags=quick
@test "a full disk is said with numbers before anything is copied" {
    requires root mountns
    start_mount
    make_model 4M
    cli load -q "$M/weights" "$MODEL"
    mkdir "$T/disk"
    local threads
    for threads in 1 4; do
        run_logged -1 in_mountns '
        mount -t tmpfs -o size=3M tmpfs "$1" && "$2" save --shard-size 1M --threads "$4" "$3" "$1/x.safetensors"
        status=$?; find "$1" -mindepth 1; exit "$status"' "$T/disk" "$GMSFS" "$M/weights" "$threads"
        assert_match "$output" \
            'the disk is full, .*: [45].[0-9] MiB needed for all files, 3.0 MiB free, [12].[0-9] MiB missing'
        [[ $output != *$'\n'"$T/disk/"* ]] || fail 'something was left'
    done
}

# bats test_tags=quick
@test "of a save that is stopped or killed nothing is left, and the older file is as it was" {
    local signal
    start_mount size=128M
    make_model 64M 1
    cli load -q "$M/weights" "$MODEL"
    mkdir "$T/out"
    for signal in TERM KILL; do
        [[ $signal == TERM ]] || requires unnamed-files || return 1
        for _ in 1 2 3 4 5 6 7 8; do
            echo old >"$T/out/x.safetensors"
            spawn nice -n 19 "$GMSFS" save --threads 1 "$M/weights" "$T/out/x.safetensors"
            wait_until 5 has_open "$SPAWNED" "$T/out"
            kill "-$signal" "$SPAWNED" 2>/dev/null || true
            wait_exit "$SPAWNED"
            only_files "$T/out" x.safetensors
            [[ $status -eq 0 ]] || break # it was faster than the signal
        done
        assert_eq "$status" $((128 + $(kill -l "$signal"))) "status by SIG$signal"
        assert_eq "$(cat "$T/out/x.safetensors")" old 'the older file'
        [[ $signal == KILL ]] || assert_match "$(output_of "$SPAWNED")" 'nothing was saved'
        wait_until 5 state_is weights COMMITTED
    done
}

@test "more files are saved than the process may have open" {
    start_mount size=64M
    make_model 4M 1
    cli load -q "$M/weights" "$MODEL"
    mkdir "$T/out"
    run_logged -0 bash -c 'ulimit -n 24; exec "$@"' _ \
        "$GMSFS" save -q --shard-size 1 "$M/weights" "$T/out/x.safetensors"
    (($(find "$T/out" -name 'x-*.safetensors' | wc -l) > 24)) || fail 'too few files to tell'
    same_as "$T/out/x.safetensors.index.json"
}

# bats test_tags=quick
@test "a disk that fails is said so, also where it fails when all is in its place" {
    start_mount
    make_model 1M 1
    cli load -q "$M/weights" "$MODEL"
    mkdir "$T/out"
    GMSFS_FAULT=pwrite:after=0:errno=EIO:in=command cli -1 save "$M/weights" "$T/out/x.safetensors"
    assert_match "$output" 'x.safetensors: cannot write: Input/output error; the disk fails: '
    only_files "$T/out"
    local n
    for n in {0..40}; do
        rm -f "$T/out/x.safetensors"
        GMSFS_FAULT=open:after=$n:errno=EIO:in=command run_logged \
            "$GMSFS" save "$M/weights" "$T/out/x.safetensors"
        [[ $output != *'in its place'* ]] || break
    done
    assert_eq "$status" 1 status
    assert_match "$output" 'x.safetensors: is whole and in its place, but its directory cannot be flushed'
    same_as "$T/out/x.safetensors"
}

@test "saving goes past the page cache where the file system can" {
    requires direct-io fincore
    start_mount size=64M
    make_model 24M 1
    cli load -q "$M/weights" "$MODEL"
    cli save "$M/weights" "$T/x.safetensors"
    (($(cached_bytes "$T/x.safetensors") < 4 << 20)) ||
        fail "$(cached_bytes "$T/x.safetensors") bytes are cached"
    same_as "$T/x.safetensors"
    cli save --direct never --threads 3 "$M/weights" "$T/y.safetensors"
    cmp "$T/x.safetensors" "$T/y.safetensors"
}

@test "many threads fill one file on a tmpfs" {
    requires root mountns
    start_mount size=64M
    make_model 24M 1
    cli load -q "$M/weights" "$MODEL"
    cli save --threads 1 "$M/weights" "$T/x.safetensors"
    mkdir "$T/disk"
    run_logged -0 in_mountns 'set -eu
        mount -t tmpfs -o size=40M tmpfs "$1"
        "$2" save --threads 7 "$3" "$1/x.safetensors"; cmp "$1/x.safetensors" "$4"; rm "$1"/*
        "$2" save --threads 2 "$3" "$1/x.safetensors"; cmp "$1/x.safetensors" "$4"' \
        "$T/disk" "$GMSFS" "$M/weights" "$T/x.safetensors"
}

@test "save shows a bar on a terminal" {
    requires script
    start_mount size=64M
    make_model 32M 1
    cli load -q "$M/weights" "$MODEL"
    run_logged -0 script -qec "stty cols 100; '$GMSFS' save '$M/weights' '$T/x.safetensors'" /dev/null
    assert_match "$output" 'saving  \[#+-*\] +[0-9]+%'
    run_logged -0 script -qec "'$GMSFS' sum '$M/weights' >/dev/null" /dev/null
    assert_match "$output" '[0-9]+ tensors, [0-9]+ bytes'
}

# ---- status --watch --------------------------------------------------------------------------

# watched REGEX: the output so far matches.
watched() {
    [[ $(output_of "$WATCH") =~ $1 ]]
}

@test "status --watch prints a line for each change, by events and not by time" {
    start_mount
    spawn "$GMSFS" status --watch=3600 "$M"
    WATCH=$SPAWNED
    wait_until 5 watched "Z  $M/weights  EMPTY  "
    sleep 0.5
    exec 5<>"$M/weights/lock"
    wait_until 5 watched "Z  $M/weights  RW  .*RW [0-9]+ "
    exec 5>&-
    mkdir "$M/other"
    wait_until 5 watched "Z  $M/other  EMPTY  "
    rmdir "$M/other"
    wait_until 5 watched "Z  $M/other  gone"
    [[ $(output_of "$WATCH") != *$'\e'* ]] || fail 'control characters in a log'
    kill -TERM "$WATCH"
    wait_exit -0 "$WATCH"
}

@test "status --watch --json prints a line of JSON for each change" {
    requires jq
    start_mount
    spawn "$GMSFS" status --watch=0.2 --json "$M"
    WATCH=$SPAWNED
    wait_until 5 watched '"EMPTY"'
    exec 5<>"$M/weights/lock"
    wait_until 5 watched '"RW"'
    exec 5>&-
    kill -HUP "$WATCH"
    wait_exit -0 "$WATCH"
    assert_eq "$(output_of "$WATCH" | jq -r '.[0].stores[0].state' | head -n 2 | tr '\n' ' ')" 'EMPTY RW '
    cli -2 status --watch=soon
}

# has_lasting_zombie PID: one of its children has ended, and for two seconds was not waited for.
has_lasting_zombie() {
    local child children=() now
    now=$(now_ms)
    read -ra children < <(cat "/proc/$1/task/$1/children") || true
    for child in "${children[@]}"; do
        [[ $(awk '$1 == "State:" { print $2 }' "/proc/$child/status") == Z ]] || continue
        ZOMBIE_SINCE[child]=${ZOMBIE_SINCE[child]-$now}
        ((now - ZOMBIE_SINCE[child] < 2000)) || return 0
    done
    return 1
}

# A process that stays, not one of the short-lived lookers.
has_watcher() { # PID
    WATCHER=$(cat "/proc/$1/task/$1/children")
    [[ $WATCHER =~ ^[0-9]+\ $ ]] && process_lives "${WATCHER% }"
}

@test "status --watch leaves no zombies" {
    local mounts=()
    declare -ga ZOMBIE_SINCE=()
    for _ in 1 2 3 4; do # each look is a child for each
        start_mount size=16M
        mounts+=("$M")
    done
    spawn "$GMSFS" status --watch=0.1 "${mounts[@]}"
    WATCH=$SPAWNED
    wait_until 5 watched EMPTY
    never_within 8 has_lasting_zombie "$WATCH"
}

@test "status --watch ends no stranger that has the number of a child which is gone" {
    requires root pidns
    start_mount
    local inner pid
    # In a namespace of their own the next number can be chosen.
    spawn unshare --pid --fork bash -c '
        "$1" status --watch=3600 "$2" &
        until [[ -s $3/number ]]; do sleep 0.05; done
        echo $(($(<"$3/number") - 1)) >/proc/sys/kernel/ns_last_pid
        sleep 600 &
        echo $! >"$3/stranger"
        wait -n %1
        kill -0 %2 && echo "the stranger lives"
        kill %2' _ "$GMSFS" "$M" "$T"
    WATCH=$SPAWNED
    wait_until 5 watched EMPTY
    pid=$(pgrep -xf "$GMSFS status --watch=3600 $M" --oldest)
    wait_until 5 has_watcher "$pid"
    WATCHER=${WATCHER% }
    inner=$(awk '$1 == "NSpid:" { print $NF }' "/proc/$WATCHER/status")
    kill -KILL "$WATCHER"
    wait_until 5 [ ! -e "/proc/$WATCHER" ]
    echo "$inner" >"$T/number"
    wait_until 5 [ -s "$T/stranger" ]
    assert_eq "$(<"$T/stranger")" "$inner" 'number of the stranger'
    kill -TERM "$pid"
    wait_exit "$WATCH"
    assert_match "$(output_of "$WATCH")" 'the stranger lives'
}

@test "status --watch paints a terminal anew, outlives a daemon, and ends with its mount" {
    requires script
    start_mount
    spawn script -qefc "stty cols 100; exec '$GMSFS' status --watch=0.3 '$M'" /dev/null
    WATCH=$SPAWNED
    wait_until 5 watched $'\e\\[H.* EMPTY '
    exec 5<>"$M/weights/lock"
    wait_until 5 watched $'\e\\[H.* RW '
    exec 5>&-
    kill -STOP "$KEEPER" # or it would take the mount away
    kill_last_worker
    wait_until 8 watched 'DEAD|SILENT'
    kill -CONT "$KEEPER"
    wait_until 10 watched 'not in a gmsfs mount'
    wait_exit -1 "$WATCH"
}
