#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Paths inside a mount, existing or not, as sources and targets of commands: a source in the store that
# is being loaded, an image in a mount, a store that is not there.

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers

prepare() {
    requires python3 jq
    start_mount
    "$ROOT/scripts/make-model" --out "$T/model" --size 1M --shards 1
    MODEL=$(find "$T/model" -name '*.safetensors')
}

# put_files STORE FILE...: each as an allocation of that name
put_files() {
    "$GMSFS" run -w "$M/$1" -- cp "${@:2}" "$M/$1/allocations"
}

# refused MESSAGE COMMAND...: at once
refused() {
    run_logged -1 timeout $((10 * HANG)) "$GMSFS" "${@:2}"
    assert_match "$output" "$1"
}

@test "a model that lies in the store is not loaded into it, and nothing waits for itself" {
    put_files weights "$MODEL"
    local generation source=$M/weights/allocations/${MODEL##*/}
    generation=$(jq .generation "$M/weights/info")
    refused "weights: Resource deadlock avoided: '$source' lies in this very store" load -q "$M/weights" "$source"
    ln -s "$source" "$T/link.safetensors"
    refused 'lies in this very store.*copy it out' load "$M/weights" "$T/link.safetensors"
    assert_eq "$(jq .generation "$M/weights/info")" "$generation" generation
    assert_state weights COMMITTED
}

@test "a model that lies in another store of the mount is loaded" {
    mkdir "$M/other"
    put_files other "$MODEL"
    run_logged -0 timeout $((30 * HANG)) "$GMSFS" load -q "$M/weights" "$M/other/allocations/${MODEL##*/}"
    run_logged -0 "$GMSFS" verify "$M/weights" "$MODEL"
}

@test "no model of a group lies in any of the stores that are loaded" {
    mkdir "$M/other"
    put_files other "$MODEL"
    local source=$M/other/allocations/${MODEL##*/}
    refused "other: Resource deadlock avoided: '$source'" load --group "$M/weights=$source" "$M/other=$MODEL"
    assert_state weights EMPTY
    assert_state other COMMITTED
}

@test "an image that lies in the store is not loaded into it" {
    "$GMSFS" load -q "$M/weights" "$MODEL"
    "$GMSFS" image save -q "$M/weights" "$T/image"
    mkdir "$M/other"
    put_files other "$T/image/"*
    refused 'other: Resource deadlock avoided' image load "$M/other" "$M/other/allocations"
    assert_state other COMMITTED
    run_logged -0 timeout $((30 * HANG)) "$GMSFS" image load -q "$M/weights" "$M/other/allocations"
}

@test "no image is saved into a mount, and no store is made" {
    "$GMSFS" load -q "$M/weights" "$MODEL"
    mkdir "$M/other"
    ln -s "$M" "$T/link"
    local dir
    for dir in "$M/new" "$T/link/new" "$M/other" "$M/weights/allocations" "$M"; do
        refused 'lies in a gmsfs mount.*choose a directory on a disk' image save "$M/weights" "$dir"
    done
    cd "$M"
    refused 'lies in a gmsfs mount' image save weights new
    cd "$T"
    assert_eq "$(echo "$M"/*/)" "$M/other/ $M/regions/ $M/weights/" stores
    assert_state weights COMMITTED
    # A directory that only has such a name is like others.
    mkdir "$T/device" "$T/.fds"
    run_logged -0 "$GMSFS" image save -q "$M/weights" "$T/new"
}

@test "no model is saved into a mount either, as a store or as an allocation" {
    "$GMSFS" load -q "$M/weights" "$MODEL"
    mkdir "$M/other"
    local file
    for file in "$M/x" "$M/other/x" "$M/weights/allocations/x" "$M/other/allocations/x"; do
        refused 'lies in a gmsfs mount.*choose a directory on a disk' save "$M/weights" "$file.safetensors"
    done
    cd "$M/other/allocations"
    refused 'lies in a gmsfs mount' run -w "$M/other" -- "$GMSFS" save "$M/weights" x.safetensors
    cd "$T"
    assert_state other EMPTY
}
