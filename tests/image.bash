# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # bodies of shells; M, T are of helpers.bash
# For tests of `gmsfs image`: a store with contents of every kind, a comparison of two stores, an
# image with a wrong bit, and a load that is refused.

# fill_store STORE [SEED]: allocations of odd sizes, tags, names and entries of every kind.
fill_store() {
    "$GMSFS" run -w "$M/$1" -- bash -euc 'cd "$GMSFS_STORE"
        head -c 100000 /dev/zero | tr "\0" "$1" >allocations/tiny
        printf "%s" "$1" >allocations/one
        head -c 3000001 /dev/urandom >"allocations/with space, ä and "$'\''\n'\''
        head -c 5242880 /dev/urandom >"allocations/%2Fslash\\"
        gmsfs=$2; put() { "$gmsfs" metadata put . "$@"; }
        put note "hello $1"; put a/b "" --allocation tiny --offset 99999
        put .dot x --allocation one
        put "%percent" "{\"dtype\":\"torch.int8\",\"shape\":[7]}" --allocation tiny --offset 1
        head -c 1048576 /dev/urandom | put large -
        head -c 64 /dev/urandom >metadata/nul%00in
        put binary "$(printf "\\377\\376")"' _ "${2:-s}" "$GMSFS"
    if machine_has setfattr; then
        "$GMSFS" run -w "$M/$1" -- setfattr -n user.gmsfs.tag -v 'wéights 1' "$M/$1/allocations/tiny"
    fi
}

start_filled() { # [OPTIONS]
    start_mount "$@" || return 1
    fill_store weights
}

sums() { # STORE
    timeout $((60 * HANG)) "$GMSFS" sum --allocations "$M/$1"
}

# same STORE STORE: compares structure, names, all bytes and all entries.
same() {
    assert_eq "$(cat "$M/$2/layout_hash")" "$(cat "$M/$1/layout_hash")" layout_hash
    cmp "$M/$1/layout" "$M/$2/layout" || fail "the layouts differ"
    assert_eq "$(sums "$2")" "$(sums "$1")" sums
    diff -r "$M/$1/allocations" "$M/$2/allocations" || fail "the allocations differ"
    diff -r "$M/$1/metadata" "$M/$2/metadata" || fail "the entries differ"
}

# flip FILE OFFSET: flips one bit.
flip() {
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    # shellcheck disable=SC2059 # made here
    printf "\\x$(printf %02x $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

files_in() { # DIR
    find "$1" -mindepth 1 -printf '%f\n' | sort | tr '\n' ' '
}

# refused STORE DIR REGEX: load fails with this message, and the store is unchanged.
refused() {
    local before after
    before=$(cat "$M/$1/layout_hash" "$M/$1/state"; [[ $(<"$M/$1/state") == EMPTY ]] || sums "$1")
    cli -1 image load -q "$M/$1" "$2"
    assert_match "$output" "$3"
    wait_until 5 eval '[[ $(<"$M/'"$1"'/state") != RW ]]'
    after=$(cat "$M/$1/layout_hash" "$M/$1/state"; [[ $(<"$M/$1/state") == EMPTY ]] || sums "$1")
    assert_eq "$after" "$before" 'the store after a refused load'
}
