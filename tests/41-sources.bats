#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Sources of gmsfs load: GGUF files, directories, and a store that is not there yet; and its errors for
# other files.
#
# bats file_tags=slow

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers

make_gguf() { # NAME [OPTION...]: sets MODEL
    requires python3 || return 1
    MODEL=$T/$1
    python3 "$ROOT/tests/tools/make_gguf.py" "$MODEL" "${@:2}"
}

make_model() { # DIRECTORY SHARDS: a directory as Hugging Face has them
    requires python3 || return 1
    "$ROOT/scripts/make-model" --out "$1" --size 1M --shards "$2" >"$T/made"
    echo '{}' >"$1/config.json"
}

refused() { # WORDS FILE...: nothing is made for them
    local words=$1
    cli -1 load "$M/new" "${@:2}"
    assert_match "$output" "$words"
    [[ ! -e $M/new ]] || fail "a store was left"
}

zip_of() { # PATH MEMBER
    python3 -c 'import sys, zipfile
zipfile.ZipFile(sys.argv[1], "w").writestr(sys.argv[2], b"bytes")' "$1" "$2"
}

# ---- GGUF ------------------------------------------------------------------------------------

# bats test_tags=quick
@test "a GGUF file goes in and comes out, byte for byte" {
    start_mount size=64M
    make_gguf m.gguf
    cli load "$M/weights" "$MODEL"
    assert_match "$output" 'committed .*: 8 tensors in 1 allocations'
    cli verify "$M/weights" "$MODEL"
    assert_match "$output" '^verified .*: 8 tensors'
    cli save "$M/weights" "$T/out.gguf"
    [[ $output != *' not saved'* ]] || fail "not all was saved"
    cmp "$MODEL" "$T/out.gguf" || fail "the file is another one"
}

# bats test_tags=quick
@test "a GGUF file without tensors, a vocabulary alone, comes out as it was" {
    start_mount size=64M
    python3 - "$ROOT/tests/tools" "$T/vocabulary.gguf" <<'END'
import sys
sys.path.insert(0, sys.argv[1])
import make_gguf
whole = make_gguf.model([("general.name", "string", "words")], [])
open(sys.argv[2], "wb").write(whole.rstrip(b"\0"))
END
    cli load -q "$M/weights" "$T/vocabulary.gguf"
    cli save -q "$M/weights" "$T/out.gguf"
    cmp "$T/vocabulary.gguf" "$T/out.gguf" || fail "the file is another one"
    cli -1 save "$M/weights" "$T/out.safetensors"
    assert_match "$output" 'it has no tensors'
}

# bats test_tags=quick
@test "a GGUF file of another alignment, version or without any value comes out as it was" {
    start_mount size=64M
    make_gguf m.gguf --alignment 4096 --tokens 3
    cli load -q "$M/weights" "$MODEL"
    cli save -q --threads 1 "$M/weights" "$T/out.gguf"
    cmp "$MODEL" "$T/out.gguf" || fail "of another alignment"
    python3 - "$ROOT/tests/tools" "$T/two.gguf" <<'END'
import sys
sys.path.insert(0, sys.argv[1])
import make_gguf
open(sys.argv[2], "wb").write(make_gguf.model([], make_gguf.TENSORS[:2], version=2))
END
    cli load -q "$M/weights" "$T/two.gguf"
    cli save -q "$M/weights" "$T/out.gguf"
    cmp "$T/two.gguf" "$T/out.gguf" || fail "of version 2"
}

# gguf_of PATH VALUES... : a GGUF file of tensors NAME:NUMBER:ELEMENTS:BYTES:DIM,DIM in their order,
# types that ggml has or may have one day.
gguf_of() {
    python3 - "$ROOT/tests/tools" "$@" <<'END'
import sys
sys.path.insert(0, sys.argv[1])
import make_gguf
tensors = []
for word in sys.argv[3:]:
    name, number, elements, size, dims = word.split(":")
    make_gguf.TYPES[word] = (int(number), int(elements), int(size))
    tensors.append((name, word, [int(dim) for dim in dims.split(",")]))
open(sys.argv[2], "wb").write(make_gguf.model([("general.name", "string", "new")], tensors))
END
}

comes_back() { # FILE
    cli load -q "$M/weights" "$1"
    cli verify -q "$M/weights" "$1"
    cli save -q "$M/weights" "$T/out.gguf"
    cmp "$1" "$T/out.gguf" || fail "the file is another one"
}

@test "a GGUF file of each type that ggml has comes out as it was" {
    local number=0 words=()
    requires python3
    start_mount size=64M
    # Number, elements and bytes of a block, of llama.cpp's GGML_QUANT_SIZES.
    for row in 0:1:4 1:1:2 2:32:18 3:32:20 6:32:22 7:32:24 8:32:34 9:32:36 10:256:84 11:256:110 12:256:144 \
        13:256:176 14:256:210 15:256:292 16:256:66 17:256:74 18:256:98 19:256:50 20:32:18 21:256:110 22:256:82 \
        23:256:136 24:1:1 25:1:2 26:1:4 27:1:8 28:1:8 29:256:56 30:1:2 34:256:54 35:256:66 39:32:17 40:64:36 \
        41:128:18 42:64:18; do
        words+=("t$((number++)):$row:512,3")
    done
    gguf_of "$T/all.gguf" "${words[@]}"
    comes_back "$T/all.gguf"
    [[ $("$GMSFS" ls "$M/weights") != *GGML* ]] || fail "a type has no name"
}

# bats test_tags=quick,slow
@test "a type that is not known is loaded where the file tells its size, and else refused by name" {
    requires python3 jq
    start_mount size=64M
    gguf_of "$T/new.gguf" a:77:48:20:96,40 b:0:1:4:7 c:77:48:20:48,3 d:4294967295:1:2:5,64 e:77:48:20:480,2
    comes_back "$T/new.gguf"
    assert_eq "$(jq -c '[.ggml_type, .dtype, .shape]' "$M/weights/metadata/a")" \
        '["GGML77[12:5]","torch.uint8",[40,40]]'
    cli ls "$M/weights"
    assert_match "$output" 'd +GGML4294967295\[1:2\]'
    head -c -64 "$T/new.gguf" >"$T/cut.gguf"
    refused 'truncated; fetch the file again' "$T/cut.gguf"
    # The last one has nothing behind it, few rows have several lengths, and other rows another block.
    for words in 'b:0:1:4:7 a:77:48:20:96,40' 'a:77:48:20:96,31 b:0:1:4:7'; do
        # shellcheck disable=SC2086 # several words
        gguf_of "$T/new.gguf" $words
        refused "tensor 'a': its type, number 77 of ggml, is not known, and the file does not tell its size" \
            "$T/new.gguf"
    done
    gguf_of "$T/new.gguf" a:77:48:20:96,40 c:77:50:27:100,40 b:0:1:4:7
    refused "tensor 'c': its rows are no whole blocks" "$T/new.gguf"
    gguf_of "$T/new.gguf" a:77:48:20:96,40 c:77:48:24:96,40 b:0:1:4:7
    refused "tensor 'b': does not begin where the one before it ends" "$T/new.gguf"
}

# bats test_tags=quick,slow
@test "types, shapes and values of a GGUF file are entries that others can read" {
    requires jq
    start_mount size=64M
    make_gguf m.gguf
    cli load -q "$M/weights" "$MODEL"
    assert_eq "$(jq -c . "$M/weights/metadata/token_embd.weight")" \
        '{"dtype":"torch.uint8","ggml_type":"Q4_K","shape":[40,144],"stride":[144,1],"tensor_type":"parameter"}'
    assert_eq "$(jq -c '[.dtype, .ggml_type, .shape]' "$M/weights/metadata/blk.0.half")" \
        '["torch.float16","F16",[2,2,1,3]]'
    assert_eq "$(jq -c '[.version, .alignment, .keys[0]]' "$M/weights/metadata/__gguf__")" \
        '[3,32,"general.architecture"]'
    # A string: number 8, its length, its bytes.
    assert_eq "$(od -An -tu1 "$M/weights/metadata/gguf:general.architecture" | xargs)" \
        '8 0 0 0 5 0 0 0 0 0 0 0 108 108 97 109 97'
    assert_eq "$(jq -c 'keys' "$M/weights/metadata/gguf:tokenizer.ggml.tokens")" '["bytes","format"]'
    cli ls "$M/weights"
    assert_match "$output" 'token_embd.weight +Q4_K'
}

# bats test_tags=quick
@test "sum sums the tensors of a GGUF file, and an image of its store comes back as the file" {
    requires xxhsum
    local sum
    start_mount size=64M
    make_gguf m.gguf
    cli load -q "$M/weights" "$MODEL"
    sum=$(dd if="$M/weights/allocations/a000000" status=none iflag=skip_bytes,count_bytes \
        skip="$(getfattr --only-values -n user.gmsfs.offset "$M/weights/metadata/output.weight")" \
        count=$((2 * 210 * 9)) | xxhsum -q -H2)
    cli sum "$M/weights"
    assert_match "$output" "${sum%% *}  output.weight"
    cli image save "$M/weights" "$T/image"
    cli image load "$M/weights" "$T/image"
    cli save -q "$M/weights" "$T/out.gguf"
    cmp "$MODEL" "$T/out.gguf" || fail "the file is another one"
}

# bats test_tags=quick
@test "verify finds another byte, and another value, of a GGUF file" {
    start_mount size=64M
    make_gguf m.gguf
    cli load -q "$M/weights" "$MODEL"
    make_gguf m.gguf --seed 1
    cli -1 verify "$M/weights" "$MODEL"
    assert_match "$output" "tensor 'blk.0.ffn_up.weight' .*: byte [0-9]+ of .* is the first that differs"
    make_gguf m.gguf --tokens 3
    cli -1 verify "$M/weights" "$MODEL"
    assert_match "$output" "'gguf:tokenizer.ggml.tokens' of the file: the store has another value"
}

# bats test_tags=quick
@test "a GGUF model in several files is one model" {
    start_mount size=64M
    make_gguf m --split 3
    cli load "$M/weights" "$MODEL"-*.gguf
    assert_match "$output" ': 8 tensors'
    cli verify "$M/weights" "$MODEL"-*.gguf
    refused 'only the first file of a model may have' "$MODEL"-0000{2,1,3}-of-00003.gguf
    cli save -q "$M/weights" "$T/whole.gguf"
    cli load -q "$M/weights" "$T/whole.gguf"
    cli verify -q "$M/weights" "$T/whole.gguf"
}

# bats test_tags=quick
@test "a GGUF file cut off or damaged at any byte is refused" {
    local size
    start_mount size=64M
    make_gguf m.gguf --tokens 10
    size=$(stat -c %s "$MODEL")
    for length in 4 20 100 700 $((size - 64)); do
        head -c "$length" "$MODEL" >"$T/cut.gguf"
        refused 'truncated; fetch the file again' "$T/cut.gguf"
    done
    { cat "$MODEL"; head -c 64 /dev/zero; } >"$T/long.gguf"
    refused 'belong to no tensor' "$T/long.gguf"
    printf 'GGUF\0\0\0\3' >"$T/big.gguf"
    refused 'of a big-endian machine' "$T/big.gguf"
    printf 'GGUF\1\0\0\0' >"$T/old.gguf"
    refused 'of version 1' "$T/old.gguf"
}

@test "a store that is no GGUF model is not saved as one" {
    start_mount size=64M
    make_model "$T/model" 1
    cli load -q "$M/weights" "$T/model"
    cli -1 save "$M/weights" "$T/out.gguf"
    assert_match "$output" 'it has no entry __gguf__'
    [[ ! -e $T/out.gguf ]]
    cli -2 save --shard-size 1M "$M/weights" "$T/out.gguf"
    assert_match "$output" 'a GGUF file is one'
}

# ---- directories -----------------------------------------------------------------------------

@test "a directory is loaded as its index, its one file, or its GGUF files" {
    start_mount size=64M
    make_model "$T/sharded" 3
    cli load "$M/weights" "$T/sharded/"
    cli verify "$M/weights" "$T/sharded"
    make_model "$T/single" 1
    cli load "$M/weights" "$T/single"
    cli verify "$M/weights" "$T/single"
    mkdir "$T/gguf"
    make_gguf gguf/m --split 3
    cli load "$M/weights" "$T/gguf"
    assert_match "$output" ': 8 tensors'
    rm "$T/sharded/"*.index.json
    cli load -q "$M/weights" "$T/sharded"
    cli verify -q "$M/weights" "$T/sharded/"*.safetensors
}

@test "of several files of a directory the one called model is loaded, wherever it is among them" {
    local other
    start_mount size=64M
    requires python3
    "$ROOT/scripts/make-model" --single --size 1M --out "$T/one" >"$T/made"
    for other in aa zz; do
        cp "$T/one/model.safetensors" "$T/one/$other.safetensors"
    done
    cli load -q "$M/weights" "$T/one"
    cli verify "$M/weights" "$T/one/model.safetensors"
}

@test "a directory of several models, or of none, is refused by names" {
    start_mount size=64M
    make_model "$T/model" 3
    rm "$T/model/"*.index.json "$T/model/"*-00002-*
    cp "$T/model/model-00001-of-00003.safetensors" "$T/model/a.safetensors"
    cp "$T/model/a.safetensors" "$T/model/b.safetensors"
    refused "has more than one model: 'a.safetensors', 'b.safetensors', 'model-" "$T/model"
    mkdir "$T/torch"
    refused 'has no safetensors and no GGUF file' "$T/torch"
    : >"$T/torch/pytorch_model.bin"
    refused "'pytorch_model.bin' is of a format that gmsfs does not load" "$T/torch"
    refused 'is a directory; name it alone' "$T/model" "$T/torch"
}

@test "files of other formats are named by their format" {
    requires python3
    start_mount size=64M
    zip_of "$T/model.bin" archive/data.pkl
    refused 'is a ZIP archive, as PyTorch writes' "$T/model.bin"
    zip_of "$T/model.npz" weight.npy
    refused 'is an archive of NumPy arrays' "$T/model.npz"
    printf '\200\4\225\20\0\0\0\0\0\0\0' >"$T/model.pt"
    refused 'is a pickle' "$T/model.pt"
    printf '\10\12\22\7pytorch\32\0052.1.0:' >"$T/model.onnx"
    refused 'is an ONNX model' "$T/model.onnx"
    printf '\223NUMPY\1\0v\0' >"$T/model.npy"
    refused 'is a NumPy array' "$T/model.npy"
    printf '\37\213\10\0\0\0\0\0\0\3' >"$T/model.gz"
    refused 'is compressed by gzip' "$T/model.gz"
    make_gguf m.gguf --tokens 1
    make_model "$T/single" 1
    refused 'of more than one format' "$MODEL" "$T/single/"*.safetensors
}

@test "a file of unknown format is called so, instead of reading its first bytes as a header" {
    start_mount size=64M
    local beginning
    for beginning in '# A model\nIt is good.\n' '%%PDF-1.7 of a paper' '\177ELF\2\1\1\0\0\0\0\0' '\3\0\0\0\0\0\0\0[1]'; do
        # shellcheck disable=SC2059 # escapes of its own
        printf "$beginning" >"$T/file"
        refused "load: $T/file: is neither a safetensors nor a GGUF file, or its beginning is damaged; name" "$T/file"
        run_logged -1 "$GMSFS" verify "$M/weights" "$T/file"
        assert_match "$output" 'is neither a safetensors nor a GGUF file'
    done
    : >"$T/file"
    refused 'has 0 bytes, too few for a safetensors or GGUF file' "$T/file"
    printf '\377\377\377\1\0\0\0\0{"a":' >"$T/file"
    refused 'ends within its header of 33554431 bytes' "$T/file"
    printf '\377\377\377\377\0\0\0\0{"a":' >"$T/file"
    refused 'its header has 4294967295 bytes, more than' "$T/file"
}

# ---- a store that is not there ----------------------------------------------------------------

@test "load makes the store that is not there, and leaves none where it fails" {
    start_mount size=64M
    make_model "$T/model" 1
    cli load "$M/new" "$T/model"
    assert_state new COMMITTED
    rmdir "$M/new"
    cli load --group --chunk 1M "$M/new=$T/model" "$M/newer=$T/model"
    assert_state newer COMMITTED
    rmdir "$M/new" "$M/newer"
    refused 'the model does not fit: .*; choose a larger --chunk, or mount' --chunk 1 "$T/model"
    cli -1 load --group "$M/new=$T/model" "$M/a/b=$T/model"
    assert_match "$output" "$M/a/b: cannot be a store; a store is a directory at the top"
    [[ ! -e $M/new ]] || fail "a store was left"
    cli -1 load "$T/none/new" "$T/model"
    assert_match "$output" 'there is no gmsfs mount'
}

@test "of a store that load made and could not fill, it is said that it is removed again" {
    start_mount size=64M
    make_model "$T/model" 1
    cli load -q "$M/weights" "$T/model"
    cli image save -q "$M/weights" "$T/image"
    export GMSFS_FAULT=pthread_create:after=0:errno=EAGAIN:in=command
    local operands
    for operands in "load $M/new $T/model" "load --group $M/new=$T/model" "image load $M/new $T/image"; do
        # shellcheck disable=SC2086 # words
        cli -1 $operands
        assert_match "$output" "nothing was committed"$'\n'"$M/new, which was made for this, is removed again"
        [[ $output != *'is empty'* && ! -e $M/new ]] || fail "a store is there after: $operands"
    done
    exec 5<"$M/weights/lock"
    cli -3 load --timeout 0 "$M/weights" "$T/model"
    [[ $output != *'made for this'* ]] || fail 'a store that was there is said to be new'
    exec 5<&-
}

@test "a user that may not make stores is told which users may" {
    requires root
    start_mount
    make_model "$T/model" 1
    run_logged -1 as_user "$GMSFS" load "$M/new" "$T/model"
    assert_match "$output" "$M/new: no such store, and only root and the mounting user can make one"
}

# hold_memory BYTES: of the mount's, in `weights`.
hold_memory() {
    spawn "$GMSFS" run -w "$M/weights" -- bash -c 'truncate -s "$0" "$GMSFS_STORE/allocations/all"; sleep 60' "$1"
    wait_until 5 test -e "$M/weights/allocations/all"
}

# wait_with COMMAND...: it waits for lock or memory.
wait_with() {
    spawn env -i "$GMSFS" "$@"
    wait_until 10 grep -q 'waiting for' "$T/spawn-$SPAWNED"
}

# bash makes its background processes ignore SIGINT and SIGQUIT.
# bats test_tags=quick
@test "every signal that stops a load, of one store, a group or an image, removes its stores" {
    start_mount size=64M
    make_model "$T/model" 1
    cli load -q "$M/new" "$T/model"
    cli image save -q "$M/new" "$T/image"
    rmdir "$M/new"
    hold_memory 64M
    local trial signal of
    for trial in 'TERM load N M' 'INT load N M' 'QUIT load N M' 'HUP load N M' 'QUIT load --group N=M' 'QUIT image load N I'; do
        of=${trial#* } of=${of//N/$M/new} signal=${trial%% *}
        of=${of/%M/$T/model} of=${of/%I/$T/image}
        # shellcheck disable=SC2086 # a list
        spawn env -i --default-signal="$signal" "$GMSFS" $of
        wait_until 10 grep -q 'waiting for' "$T/spawn-$SPAWNED"
        test -d "$M/new"
        kill -s "$signal" "$SPAWNED"
        wait_exit "$SPAWNED" 20
        assert_eq "$status" $((128 + $(kill -l "$signal"))) "status of $trial"
        assert_match "$(output_of "$SPAWNED")" 'nothing was committed' "words of $trial"
        [[ ! -e $M/new ]] || fail "a store was left by $trial"
    done
    mkdir "$M/mine"
    cli -3 load --timeout 0 "$M/mine" "$T/model"
    test -d "$M/mine" || fail "a store was removed that load had not made"
    cli -3 load --timeout 0 "$M/new" "$T/model"
    [[ ! -e $M/new ]] || fail "a store was left"
}

@test "others' commits in a store that load made outlive that load" {
    start_mount size=64M
    make_model "$T/model" 1
    "$ROOT/scripts/make-model" --out "$T/large" --size 32M --shards 1 >"$T/made"
    hold_memory 40M
    wait_with load "$M/new" "$T/large"
    local first=$SPAWNED second
    wait_with load "$M/new" "$T/model"
    second=$SPAWNED
    kill -TERM "$first"
    wait_exit -143 "$first" 20
    wait_exit -0 "$second" 20
    assert_state new COMMITTED
    cli verify -q "$M/new" "$T/model"
}

@test "a store that load made is removed under its new name, and no store that took its old name" {
    start_mount size=64M
    make_model "$T/model" 1
    hold_memory 64M
    wait_with load "$M/new" "$T/model"
    mv "$M/new" "$M/renamed"
    mkdir "$M/new"
    kill -TERM "$SPAWNED"
    wait_exit -143 "$SPAWNED" 20
    [[ ! -e $M/renamed ]] || fail "the store was left"
    [[ -e $M/new ]] || fail "a store of another process was removed"
}

# Each call of the mount fails once: nothing is left where nothing was committed, and all of it else.
# bats test_tags=quick
@test "a group that is committed half-way keeps the stores that it made" {
    start_mount size=64M
    make_model "$T/model" 1
    local n left halves=0
    for ((n = 0; n < 100 && halves == 0; n++)); do
        GMSFS_FAULT=ioctl:after=$n:errno=EIO:in=command run_logged \
            "$GMSFS" load --group "$M/a=$T/model" "$M/b=$T/model"
        left=$(cd "$M" && echo [ab])
        if [[ $status -ne 0 && $output != *' stores are committed'* ]]; then
            assert_eq "$left" '[ab]' "stores after fault $n"
            continue
        fi
        assert_eq "$left" 'a b' 'stores after a commit'
        if [[ $status -ne 0 ]]; then
            halves=1
            assert_eq "$(sort "$M/a/state" "$M/b/state" | paste -sd ' ')" 'COMMITTED EMPTY'
        fi
        rmdir "$M/a" "$M/b"
    done
    ((halves > 0)) || fail 'none was committed half-way'
}
