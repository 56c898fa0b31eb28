#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Models in several files: the directories and files that are a whole model, and the errors for others.
#
# bats file_tags=slow

load helpers

# write_part PATH...: a safetensors file each, of one tensor with the file's own name.
write_part() {
    requires python3 || return 1
    python3 - "$@" <<'END'
import json, os, struct, sys
for path in sys.argv[1:]:
    name = os.path.basename(path)
    header = json.dumps({name: {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    open(path, "wb").write(struct.pack("<Q", len(header)) + header + b"abcd")
END
}

# write_index DIRECTORY SHARD...: the index of such files.
write_index() {
    python3 - "$@" <<'END'
import json, sys
with open(sys.argv[1] + "/model.safetensors.index.json", "w") as file:
    json.dump({"weight_map": {name: name for name in sys.argv[2:]}}, file)
END
}

new_directory() { # sets D
    D=$T/model
    rm -rf "$D"
    mkdir "$D"
}

refused() { # WORDS FILE...: nothing is made for them, and verify, of a directory, agrees
    local words=$1
    cli -1 load "$M/new" "${@:2}"
    assert_match "$output" "$words"
    [[ ! -e $M/new ]] || fail "a store was left"
    [[ -d $2 ]] || return 0
    cli -1 verify "$M/any" "${@:2}"
    assert_match "$output" "$words"
}

loaded() { # TENSORS FILE...
    cli load "$M/new" "${@:2}"
    assert_match "$output" ": $1 tensors"
    cli verify "$M/new" "${@:2}"
    rmdir "$M/new"
}

@test "a directory with some parts of a model is refused, and the others are named" {
    local format
    start_mount size=64M
    write_part "$T/any.safetensors"
    cli load -q "$M/any" "$T/any.safetensors"
    for format in model-%05d-of-00003 x-%05d-of-000003 model-%d-of-3; do
        new_directory
        # shellcheck disable=SC2059 # the format is the point
        part() { printf "$format.safetensors" "$1"; }
        for number in 1 2 3; do
            write_part "$D/$(part "$number")"
            refused "of 3 parts these are missing: .*'$(part $((number % 3 + 1)))'.*download may not have finished" "$D"
            rm "$D/"*
        done
        write_part "$D/$(part 1)" "$D/$(part 3)"
        refused "these are missing: '$(part 2)';" "$D"
        write_part "$D/$(part 2)"
        loaded 3 "$D"
    done
}

@test "parts that are counted from 0, or beyond ten without zeros, are one model in their order" {
    start_mount size=64M
    new_directory
    write_part "$D/"m-{1..11}-of-11.safetensors
    cli load -q "$M/any" "$D"
    assert_eq "$(cd "$M/any/metadata" && for entry in *; do
        echo "$(getfattr --only-values -n user.gmsfs.offset "$entry") $entry"
    done | sort -n | sed -n '2s/.* //p; 11s/.* //p' | xargs)" \
        'm-2-of-11.safetensors m-11-of-11.safetensors' 'second and last'
    new_directory
    write_part "$D/"m-0000{0,1,2}-of-00003.safetensors
    loaded 3 "$D"
    write_part "$D/"m-1-of-00003.safetensors
    refused "are both part 1 of 3" "$D"
}

@test "one part of a model that is named alone is refused, and all of them are loaded" {
    start_mount size=64M
    new_directory
    write_part "$D/"model-0000{1,2,3}-of-00003.safetensors
    refused "is one part of a model, and of 3 parts these are not named: '.*model-00002-of-.*'.*model-00003-of" \
        "$D/model-00001-of-00003.safetensors"
    refused "these are not named: '[^']*model-00003-of-00003.safetensors';" \
        "$D/"model-0000{1,2}-of-00003.safetensors
    loaded 3 "$D/"model-*
    # Of a whole store one part can be compared, and another name says what it is.
    cli load -q "$M/any" "$D"
    cli verify "$M/any" "$D/model-00002-of-00003.safetensors"
    assert_match "$output" '2 more tensors'
    ln -s "$D/model-00002-of-00003.safetensors" "$T/stage2.safetensors"
    loaded 1 "$T/stage2.safetensors"
}

@test "the parts of a model may be spread over the stores of a group, and none is left out" {
    start_mount size=64M
    new_directory
    write_part "$D/"m-{1,2}-of-2.safetensors
    cli -1 load --group "$M/a=$D/m-1-of-2.safetensors" "$M/b=$D/m-1-of-2.safetensors"
    assert_match "$output" "these are not named: '[^']*m-2-of-2.safetensors'"
    [[ ! -e $M/a ]] || fail "a store was left"
    cli load -q --group "$M/a=$D/m-1-of-2.safetensors" "$M/b=$D/m-2-of-2.safetensors"
    cli load -q --group --force "$M/a=$D" "$M/b=$D/m-1-of-2.safetensors" "$M/b=$D/m-2-of-2.safetensors"
}

@test "of a GGUF model in several files some are refused, and the others are named" {
    requires python3
    start_mount size=64M
    new_directory
    write_part "$T/any.safetensors"
    cli load -q "$M/any" "$T/any.safetensors"
    python3 "$ROOT/tests/tools/make_gguf.py" "$D/m" --split 3
    loaded 8 "$D"
    mv "$D/m-00001-of-00003.gguf" "$T/away"
    refused "these are missing: 'm-00001-of-00003.gguf'" "$D"
    refused "these are not named: '[^']*m-00001-of-00003.gguf'" "$D/"*.gguf
    # Under any name, the file says itself that it is one of several.
    refused 'is one of 3 files of a model, and 1 are given' "$T/away"
}

@test "shards that the index names and that are not there are told with the index" {
    start_mount size=64M
    new_directory
    write_part "$T/any.safetensors" "$D/"model-0000{1,3}-of-00003.safetensors
    cli load -q "$M/any" "$T/any.safetensors"
    write_index "$D" model-0000{1,2,3}-of-00003.safetensors
    refused "index.json: of the 3 shards that this index names these are not there: 'model-00002-of-00003.safetensors'; the download may not have finished" "$D"
    refused "index.json: .* these are not there" "$D/model.safetensors.index.json"
    (cd "$D" && cli -1 load "$M/new" model.safetensors.index.json)
    write_index "$D" shard-{1..9}.safetensors
    refused "'shard-4.safetensors' and 5 more;" "$D"
}

@test "leftovers of a download are named where a model is not whole" {
    local hub=$T/models--org--name snapshot=$T/models--org--name/snapshots/0123
    start_mount size=64M
    new_directory
    write_part "$T/any.safetensors"
    cli load -q "$M/any" "$T/any.safetensors"
    mkdir -p "$D/.cache/huggingface/download"
    : >"$D/.cache/huggingface/download/abc.123.incomplete"
    refused "has no safetensors.*may not have finished \('.cache/huggingface/download/abc.123.incomplete' is still there\)" "$D"
    write_part "$D/model-00001-of-00002.safetensors"
    refused "these are missing: 'model-00002-of-00002.safetensors'.*abc.123.incomplete' is still" "$D"
    write_part "$D/model-00002-of-00002.safetensors"
    loaded 2 "$D" # the unfinished download is of another file
    : >"$D/model-00002-of-00002.safetensors.aria2"
    refused "model-00002-of-00002.safetensors: is not whole: aria2 has not finished" "$D"

    # The hub's cache: links into blobs, the last of which is under way, and then was cleaned.
    mkdir -p "$hub/blobs" "$snapshot"
    write_part "$hub/blobs/"{a,b}
    ln -s ../../blobs/a "$snapshot/model-00001-of-00002.safetensors"
    : >"$hub/blobs/b.incomplete"
    refused "these are missing: 'model-00002-of-.*'../../blobs/b.incomplete' is still there" "$snapshot"
    rm "$hub/blobs/b.incomplete"
    ln -s ../../blobs/b "$snapshot/model-00002-of-00002.safetensors"
    loaded 2 "$snapshot"
    rm "$hub/blobs/b"
    refused 'model-00002-of-00002.safetensors: is a symbolic link to a file that is not there' "$snapshot"
    write_index "$snapshot" a b
    refused "these are not there: 'a', 'b'" "$snapshot"
}

@test "of several models in a directory the one called model is loaded where it is whole, and no other" {
    start_mount size=64M
    new_directory
    write_part "$T/any.safetensors" "$D/"model-0000{1,2}-of-00002.safetensors "$D/adapter.safetensors"
    cli load -q "$M/any" "$T/any.safetensors"
    loaded 2 "$D"
    write_part "$D/model-00001-of-00003.safetensors" # of a version with other parts
    refused "has more than one model: 'adapter.safetensors', 'model-\*-of-00002.safetensors' \(all 2 parts\), 'model-\*-of-00003.safetensors' \(1 of 3 parts, not whole\)" "$D"
    rm "$D/model-00001-of-00002.safetensors" "$D/adapter.safetensors"
    refused "no model in it is whole: .*download may not have finished" "$D"
    new_directory
    write_part "$D/"x-0000{1,2}-of-00002.safetensors "$D/y.safetensors"
    refused "'x-\*-of-00002.safetensors' \(all 2 parts\), 'y.safetensors'; name all files of one .* as in '$D/x-\*-of-00002.safetensors'" "$D"
    loaded 2 "$D"/x-*-of-00002.safetensors
    new_directory
    write_part "$D/"{a..f}.safetensors
    refused "'a.safetensors', .* 'd.safetensors' and 2 more;" "$D"
}

@test "a directory that has models below it says which folder to name" {
    local hub=$T/hub/models--org--name commit=0123456789abcdef0123456789abcdef01234567
    start_mount size=64M
    new_directory
    write_part "$T/any.safetensors"
    cli load -q "$M/any" "$T/any.safetensors"
    mkdir "$D"/{unet,vae,scheduler}
    write_part "$D/unet/diffusion_pytorch_model.safetensors" "$D/vae/diffusion_pytorch_model.safetensors"
    echo '{}' >"$D/model_index.json"
    refused "is a pipeline of diffusers: .* folders that have: 'unet', 'vae'; name one of them" "$D"
    loaded 1 "$D/unet"
    mkdir -p "$hub"/{blobs,refs,"snapshots/$commit"}
    write_part "$hub/snapshots/$commit/model.safetensors"
    printf %s "$commit" >"$hub/refs/main"
    refused "is a model in the hub's cache; name its snapshot, '$hub/snapshots/$commit'" "$hub"
    refused "is the hub's cache of many models; name a snapshot of one, '$T/hub/models--org--name/snapshots/" "$T/hub"
    refused "folders that have: '$commit'" "$hub/snapshots"
    loaded 1 "$hub/snapshots/$commit"
}
