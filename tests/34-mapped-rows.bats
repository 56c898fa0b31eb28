#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# What files/ and mappings are while a store is renamed, exchanged, saved, sealed, moved or drained: the rows of
# gmsfs(5), Mapped files, that 34-mapped.bats does not have.
#
# bats file_tags=slow
# shellcheck disable=SC2030,SC2031,SC2034 # variables that the helpers and bats read

load helpers
load python
load gms
load mapped

prepare() {
    gms_setup
    requires passthrough
}

# load_model STORE: a model of two files, which stay in $T/STORE; maps the large one.
load_model() {
    mkdir -p "$T/$1"
    random 4194304 "$T/$1/w.bin"
    random 100 "$T/$1/config.json"
    touch -d @981173106.123456789 "$T/$1/config.json"
    cli load -q --files "$M/$1" "$T/$1"
}

map_model() { # STORE: sets MODEL to the process and ORDERS
    map "$M/$1/files/w.bin"
    MODEL=("$MAPPER" "$ORDERS")
}

maps() { # STORE: the mapping has the bytes of the model that was loaded into it
    assert_eq "$(ask "${MODEL[@]}" sum)" "$(sum_of "$T/$1/w.bin")" 'the mapping'
}

@test "renamed and exchanged, files go with their store, and a mapping keeps its bytes" {
    start_mount
    load_model one
    load_model two
    map_model one
    mv "$M/one" "$M/other"
    diff -r "$T/one" "$M/other/files"
    expect ENOENT open "$M/one/files/w.bin" r
    ctl exchange "$M/other" "$M/two"
    diff -r "$T/one" "$M/two/files"
    diff -r "$T/two" "$M/other/files"
    maps one
    device_is .mapped_bytes 0 # it is a store's
    is_unmapped "${MODEL[@]}"
}

@test "an image keeps files and that they can be mapped; the mode is the new store's" {
    local fields='%P %s %T@ %m\n'
    start_mount
    load_model one
    cli image save "$M/one" "$T/image"
    cli image load --immutable "$M/again" "$T/image"
    diff -r "$T/one" "$M/again/files"
    assert_eq "$(find "$M/again/files" -type f -printf "$fields" | sort)" \
        "$(find "$M/one/files" -type f -printf "$fields" | sort)" 'names, sizes, times and modes'
    chmod 700 "$M/again"
    assert_eq "$(find "$M/again/files" -type f -printf '%m ')" '400 400 ' 'modes'
    map_model again
    assert_eq "$(ask "${MODEL[@]}" sum)" "$(sum_of "$T/one/w.bin")" 'the mapping'
    assert_eq "$(ask "${MODEL[@]}" pss)" '4096 4096' 'the pages of the mapping'
    is_unmapped "${MODEL[@]}"
    cli image load "$M/plain" "$T/image"
    assert_eq "$(info_of plain .immutable)" false
    diff -r "$T/one" "$M/plain/files"
}

@test "a GMS client reads a store with files, and one that writes it replaces them under a mapping" {
    start_gms_mount
    load_model weights
    map_model weights
    gms v0 weights lock ro - keys gmsfs:file: list
    assert_match "$output" 'gmsfs:file:w.bin'
    gms v0 weights lock rw - allocate 100 - commit
    expect ENOENT open "$M/weights/files/w.bin" r
    maps weights
    wait_until 5 device_is .mapped_bytes 4194304
    is_unmapped "${MODEL[@]}"
    wait_until 10 device_is .mapped_bytes 0
}

@test "each store of a group has its files" {
    local store
    start_mount
    "$ROOT/scripts/make-model" --single --size 1M --out "$T/model" >"$T/path"
    cli load -q --group --immutable "$M/a=$(<"$T/path")" "$M/b=$(<"$T/path")"
    for store in a b; do
        cli save -q "$M/$store" "$T/$store.safetensors"
        cmp "$T/$store.safetensors" "$M/$store/files/model.safetensors"
    done
}

@test "files of a sealed layout are seen, and read by its writer alone" {
    start_weights
    exec 5<>"$W/lock"
    random 4194304 "$T/a"
    cp "$T/a" "$W/allocations/a"
    put_file w.bin a 0 4194304
    echo 1 >"$W/seal"
    cmp "$T/a" "$W/files/w.bin"
    exec 5>&-
    wait_until 5 state_is "$W" LAYOUT_COMMITTED
    assert_eq "$(stat -c %s "$W/files/w.bin")" 4194304
    expect EAGAIN open "$W/files/w.bin" r
    assert_eq "$(info_of weights .mappable)" false
}

@test "given up and loaded again, files are mapped anew beside an old mapping" {
    local old
    start_mount
    load_model one
    map_model one
    maps one
    old=("${MODEL[@]}")
    cli demote --to none "$M/one"
    wait_until 5 device_is .mapped_bytes 4194304
    assert_eq "$(stat -c %s "$M/one/files/w.bin")" 4194304
    expect_message EIO cat "$M/one/files/w.bin"
    cli load -q --files "$M/one" "$T/one"
    map_model one
    maps one
    assert_eq "$(ask "${old[@]}" sum)" "$(sum_of "$T/one/w.bin")" 'the old mapping'
    is_unmapped "${old[@]}"
    wait_until 10 device_is .mapped_bytes 0
    is_unmapped "${MODEL[@]}"
}

@test "memory that only a mapping keeps counts for the mount and for no pool" {
    start_mount
    load_model one
    used_is $((4194304 + 2097152))
    map_model one
    rmdir "$M/one"
    wait_until 5 device_is .mapped_bytes 4194304
    assert_match "$(<"$M/pools")" ' used=0 '
    used_is 4194304
    assert_eq "$(($(stat -f -c '(%b - %f) * %S' "$M")))" 4194304 'what df shows'
    maps one
    is_unmapped "${MODEL[@]}"
    wait_until 10 used_is 0
}

@test "a drain names the process that maps a file, and waits for it" {
    start_mount
    load_model one
    map_model one
    cli -3 drain --timeout 1 "$M"
    assert_match "$output" "waiting for 4.0 MiB that processes have mapped or open:.*pid $MAPPER +maps 4194304 bytes"
    assert_match "$output" 'processes still have 4.0 MiB mapped or open after the time given; it serves again'
    maps one
    is_unmapped "${MODEL[@]}"
    cli drain "$M"
    used_is 0
}

start_gpu() { # a fake one that becomes suspect
    fake_gpus
    start_mount size=64M,host_size=64M
    load_model one
    diff -r "$T/one" "$M/one/files"
}

@test "files in GPU memory are refused while they may be damaged" {
    start_gpu
    fake_gpus 'xid 0 48'
    wait_until 10 device_is .health suspect
    expect EIO open "$M/one/files/w.bin" r
    cli clear-suspect "$M"
    diff -r "$T/one" "$M/one/files"
}

@test "files in GPU memory that may be damaged are healed from a copy on the host" {
    start_gpu
    echo +host >"$M/one/residency"
    wait_until 10 grep -q '^device host' "$M/one/residency"
    fake_gpus 'xid 0 48'
    wait_until 10 grep -q '"event":"healed"' "$M/events"
    diff -r "$T/one" "$M/one/files"
}
