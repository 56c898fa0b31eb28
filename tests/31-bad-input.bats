#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Invalid requests, by accident or on purpose: an errno for their clients, no effect on others.
#
# shellcheck disable=SC2153 # HOLDER and SPAWNED come from helpers
# bats file_tags=slow

load helpers
load bad_input

prepare() { setup_bad_input; }

# one_of "ERRNO ERRNO" OP...: fails with one of them.
one_of() {
    local wanted=$1
    shift
    run_logged -1 timeout $((30 * HANG)) "$GMSCTL" "$@"
    case " $wanted " in
    *" ${lines[-1]} "*) ;;
    *) fail "errno is ${lines[-1]}, expected one of $wanted" ;;
    esac
}

# ---- documents, in msgpack -------------------------------------------------------------------

hex() {
    printf %s "$1" | od -An -v -tx1 | tr -d ' \n'
}

str() { # of less than 32 bytes
    printf '%02x%s' $((0xa0 + ${#1})) "$(hex "$1")"
}

row() { # KEY RANK|nil OFFSET VALUE
    local rank=c0
    [[ $2 == nil ]] || rank=$(printf %02x "$2")
    printf '94%s%s%02xc4%02x%s' "$(str "$1")" "$rank" "$3" ${#4} "$(hex "$4")"
}

document() { # ROW...: of less than 16 rows
    printf '82%s01%s%02x' "$(str v)" "$(str metadata)" $((0x90 + $#))
    printf %s "$@"
}

apply() { # HEX OP...: on a fresh session with two allocations
    local bytes=$1
    shift
    timeout $((30 * HANG)) "$GMSCTL" open "$W/ctl" rw acquire rw 5000 alloc 4096 2 a0 '' \
        write "hex:$bytes" apply "$@"
}

# bats test_tags=quick
@test "a document is applied whole, by rank" {
    run_logged -0 apply "$(document "$(row one 0 5 first)" "$(row two 1 0 2nd)" "$(row free nil 0 x)")" \
        get one get two get free commit
    assert_match "$output" 'applied=3'
    assert_match "$output" 'slot=0 rank=0 offset=5 value=first'
    assert_match "$output" 'slot=1 rank=1 offset=0 value=2nd'
    assert_match "$output" 'slot=-1 rank=-1 offset=0 value=x'
}

@test "a document comes in any pieces, and a close without APPLY discards it" {
    whole=$(document "$(row one 0 5 first)" "$(row two 1 0 2nd)")
    words=()
    for ((i = 0; i < ${#whole}; i += 2)); do
        words+=(write "hex:${whole:i:2}")
    done
    ctl open "$W/ctl" rw acquire rw 0 alloc 4096 2 a0 '' "${words[@]}" apply get two
    ctl open "$W/ctl" rw acquire rw 5000 alloc 4096 2 a0 '' "${words[@]}" commit
    assert_eq "$(names "$W/metadata")" ''
}

# bats test_tags=quick
@test "a document with one bad row changes nothing and names the row" {
    good=$(row good 0 5 first)
    # a rank that is not there; an offset into nothing, or that is none; too few fields; no key; a
    # value of text
    for bad in "$(row bad 2 0 x)" "$(row bad nil 5 x)" "94$(str bad)00ffc40178" "93$(str bad)0000" "$(row '' 0 0 x)" \
        "94$(str bad)0000$(str x)"; do
        run_logged -1 apply "$(document "$good" "$bad" "$(row last nil 0 x)")"
        assert_match "$output" $'applied=0 culprit=1\nEINVAL$'
    done
    assert_state weights EMPTY
}

@test "rows may come in any order: the last of a key counts, and the first bad one is named" {
    run_logged -1 apply "$(document "$(row zz 0 0 x)" "$(row bb 3 0 x)" "$(row cc nil 0 x)" \
        "$(row aa 2 0 x)")"
    assert_match "$output" $'applied=0 culprit=1\nEINVAL$'
    run_logged -0 apply "$(document "$(row zz 1 5 one)" "$(row key 0 0 first)" "$(row aa nil 0 two)" \
        "$(row key 1 0 last)" "$(row mm nil 0 three)")" get zz get key get aa commit
    assert_match "$output" 'applied=5'
    assert_match "$output" 'slot=1 rank=1 offset=5 value=one'
    assert_match "$output" 'slot=1 rank=1 offset=0 value=last'
    assert_eq "$(names "$W/metadata")" 'aa key mm zz'
}

# bats test_tags=quick
@test "malformed documents are EINVAL and change nothing" {
    ok=$(document "$(row one 0 5 first)")
    for bytes in 00 80 c0 90 ff "${ok:0:-2}" "${ok}00" "81$(str v)01" "82$(str v)02${ok:8}" \
        "82$(str metadata)90$(str v)01$(str more)" "dfffffffff" "dbffffffff" "${ok:0:8}dfffffffff" \
        "83$(str v)01$(str metadata)90$(str metadata)90" "83$(str v)01$(str metadata)90$(str x)00" \
        "82$(str v)01$(str metadata)ddffffffff" "83$(str v)01$(str allocations)90$(str metadata)90"; do
        run_logged -1 apply "$bytes"
        assert_match "$output" $'applied=0 culprit=(-1|0)\nEINVAL$'
    done
    run_logged -1 apply ''
    still_works
}

# ---- ioctls ----------------------------------------------------------------------------------

@test "unknown ioctls are ENOTTY, of any number, size and type" {
    for nr in 0 17 21 63 64 127 128 254 255; do
        for size in 0 1 8 160 16383; do
            expect ENOTTY open "$W/ctl" rw raw "$nr" "$size" '' 0
        done
    done
    for file in "$W/ctl" "$M/device" "$W/state" "$M" "$W"; do
        expect ENOTTY open "$file" r command 0x5401 # TCGETS
        expect ENOTTY open "$file" r command 0xc0a05801
    done
    expect ENOTTY open "$W/lock" rw command 0x5401
}

@test "a region answers its own two ioctls, short, long and wrong, and no others" {
    ctl connect "$M" region-register self r /key memfd:4096 0 100
    region=$M/regions/$(id -u)/r
    ctl open "$region" r raw 17 0 '' 0 raw 17 4 '' 0 raw 17 921 '' 0 raw 17 16383 '' 0
    expect E2BIG open "$region" r raw 17 921 '' 1
    expect E2BIG open "$region" r region 1 raw 4 1 '' 1
    expect EINVAL open "$region" r raw 17 920 hex:02000000 0
    expect EINVAL open "$region" r raw 17 920 hex:0100000001000000 0
    for nr in {1..3} {5..16} 18; do
        expect ENOTTY open "$region" r region 1 raw "$nr" 560 '' 0
    done
    expect ENOLCK open "$region" r raw 4 0 '' 0
    expect ENOTTY open "$region" r command 0x5401
    assert_eq "$(jq .references "$region")" 0
    still_works
}

@test "a short ioctl is extended by zeros" {
    ctl open "$W/ctl" rw raw 2 4 hex:02000000 0 info # ACQUIRE RW, tried once
    assert_match "$output" 'mode=RW state=RW'
    ctl open "$W/ctl" rw acquire rw 5000 raw 12 4 '' 0 info # COMMIT
    assert_match "$output" 'state=COMMITTED'
    ctl open "$W/ctl" rw raw 1 0 '' 0 raw 1 8 '' 0 raw 1 1 '' 0
    expect EINVAL open "$W/ctl" rw raw 2 0 '' 0 # mode NONE
}

@test "a long ioctl that ends in zeros is accepted, one that does not is E2BIG" {
    ctl open "$W/ctl" rw raw 1 161 '' 0 raw 1 16383 '' 0 raw 2 16383 hex:02000000 0 info
    assert_match "$output" 'mode=RW'
    for nr in 1 2 3 5 6 8 12 13 14 15; do
        expect E2BIG open "$W/ctl" rw raw "$nr" 16383 '' 1
    done
    for nr in 4 7; do
        expect E2BIG open "$W/ctl" rw raw "$nr" 1 '' 1
    done
    for nr in 9 10 11; do
        expect E2BIG open "$W/ctl" rw raw "$nr" 15393 '' 1
    done
    expect E2BIG open "$W/ctl" rw raw 16 16369 '' 1
    still_works
}

@test "every ioctl of every size answers, on every kind of file, with and without a session" {
    words=()
    commit_store # REMOVE_UNUSED leaves the store
    for nr in {1..20}; do
        for size in 0 1 7 16 111 552 16383; do
            words+=(try raw "$nr" "$size" '' 0 try raw "$nr" "$size" "fill:$size" 0)
        done
    done
    for file in ctl lock auto; do
        run_logged -0 timeout $((60 * HANG)) "$GMSCTL" open "$W/$file" rwn "${words[@]}"
        assert_state weights EMPTY 5 || assert_state weights COMMITTED 5
    done
    for file in state info layout sessions; do
        run_logged -0 timeout $((60 * HANG)) "$GMSCTL" open "$W/$file" r "${words[@]}"
    done
    run_logged -0 timeout $((60 * HANG)) "$GMSCTL" open "$M/device" r "${words[@]}"
    run_logged '!' grep -q answer= <<<"$output"
    still_works
}

@test "LIST with unknown flags is EINVAL, and with no room for one allocation EFBIG" {
    for flags in 2 3 0x80000000; do
        expect EINVAL open "$W/ctl" rw list 0 $flags 0
    done
    ctl open "$W/ctl" rw acquire rw 5000 raw 16 48 '' 0 raw 16 0 '' 0 alloc 1 1 '' tag list 0 0 0
    assert_match "$output" 'tag=tag name=a000000'
    for size in 0 1 48 97; do # 48 and an item of 40 bytes, with 10 of text
        expect EFBIG open "$W/ctl" rw acquire rw 5000 alloc 1 1 '' tag raw 16 $size '' 0
    done
    ctl open "$W/ctl" rw acquire rw 5000 alloc 1 1 '' tag raw 16 104 '' 0
    for first in 1 0x7fffffffffffffff 0xffffffffffffffff; do
        ctl open "$W/ctl" rw acquire rw 5000 alloc 1 1 '' tag list $first 0 0 list $first 1 0
        assert_eq "$(grep -c 'count=0 more=0 allocations=1' <<<"$output")" 2
    done
    still_works
}

# ---- names -----------------------------------------------------------------------------------

@test "allocation names of every length" {
    long=$(printf 'n%.0s' {1..255})
    words=()
    for length in 1 2 100 254 255; do
        words+=(open "$W/allocations/${long:0:length}" wc ftruncate 1 close)
    done
    ctl open "$W/lock" rw "${words[@]}" use 0 commit
    assert_eq "$(find "$W/allocations" -type f | wc -l)" 5
    expect ENAMETOOLONG open "$W/lock" rw open "$W/allocations/${long}n" wc
    expect ENAMETOOLONG open "$W/lock" rw rename "$W/allocations/$long" "$W/allocations/${long}n"
}

@test "allocation names of every byte" {
    words=()
    for i in {1..255}; do
        [[ $i -ne 47 ]] || continue
        printf -v name '%b' "a\\x$(printf %02x "$i")"
        words+=(try open "$W/allocations/$name" wc)
    done
    run_logged -0 "$GMSCTL" open "$W/lock" rw "${words[@]}"
    assert_eq "$(sort -u <<<"$output")" EINVAL
    jq . "$M/device" >/dev/null
    still_works
}

@test "ALLOC's names: taken, counted up, too long, given by slot" {
    exec 5<>"$W/lock"
    ctl fd 5 alloc 1 1 '' '' alloc 1 3 x08 '' alloc 1 1 '' ''
    assert_eq "$(names "$W/allocations")" 'a000000 a000004 x08 x09 x10'
    expect EEXIST fd 5 alloc 1 1 x09 ''
    expect EEXIST fd 5 alloc 1 5 x06 ''
    assert_eq "$(names "$W/allocations")" 'a000000 a000004 x08 x09 x10'
    one_of 'EINVAL ENAMETOOLONG' fd 5 alloc 1 2 "$(printf '9%.0s' {1..255})" ''
    expect EINVAL fd 5 alloc 1 1 .. ''
    exec 5>&-
}

# ---- sizes -----------------------------------------------------------------------------------

@test "sizes by truncate: 0 is nothing, negative EINVAL, beyond the device ENOMEM" {
    exec 5<>"$W/lock"
    ctl open "$W/allocations/a" rwc ftruncate 0
    assert_eq "$(stat -c '%s %b' "$W/allocations/a")" '0 0'
    expect EINVAL open "$W/allocations/a" rw ftruncate -1
    expect EINVAL truncate "$W/allocations/a" -9223372036854775808
    expect ENOMEM open "$W/allocations/a" rw ftruncate $(((64 << 20) + 1))
    one_of 'ENOMEM EINVAL EFBIG' open "$W/allocations/a" rw ftruncate 0x7fffffffffffffff
    one_of 'ENOMEM EINVAL EFBIG' open "$W/allocations/a" rw ftruncate 0x7ffffffffffff000
    one_of 'ENOMEM EINVAL EFBIG' open "$W/allocations/a" rw fallocate 0 0 0x7fffffffffffffff
    one_of 'ENOMEM EINVAL EFBIG' open "$W/allocations/a" rw fallocate 0 0x7ffffffffffffffe 1
    expect EINVAL open "$W/allocations/a" rw fallocate 0 0 0
    ctl open "$W/allocations/a" rw ftruncate $((64 << 20))
    assert_eq "$(device_get .used_bytes)" $((64 << 20))
    exec 5>&-
    wait_until 5 used_is 0
}

@test "sizes of ALLOC: 0 EINVAL, beyond the device ENOMEM, 2^63, 2^64-1, a count that overflows" {
    exec 5<>"$W/lock"
    expect EINVAL fd 5 alloc-nowait 0 1 '' ''
    expect ENOMEM fd 5 alloc-nowait $(((64 << 20) + 1)) 1 '' ''
    one_of 'ENOMEM EINVAL' fd 5 alloc-nowait 0x8000000000000000 1 '' ''
    one_of 'ENOMEM EINVAL' fd 5 alloc-nowait 0xffffffffffffffff 1 '' ''
    one_of 'ENOMEM EINVAL' fd 5 alloc-nowait 0x4000000000000000 4 '' ''
    one_of 'ENOMEM EINVAL ENOSPC' fd 5 alloc-nowait 0x100000000 0xffffffff '' ''
    one_of 'ENOMEM EINVAL ENOSPC' fd 5 alloc-nowait 1 0xffffffff '' ''
    assert_eq "$(device_get .used_bytes)" 0
    ctl fd 5 alloc-nowait $((64 << 20)) 1 '' ''
    exec 5>&-
}

# bats test_tags=quick
@test "ALLOC of several is all or nothing" {
    expect ENOMEM open "$W/ctl" rw acquire rw 0 alloc-nowait $((10 << 20)) 7 a0 ''
    assert_state weights EMPTY
    hold open "$W/ctl" rw acquire rw 5000 try alloc-nowait $((10 << 20)) 7 a0 '' \
        alloc-nowait $((10 << 20)) 6 a0 ''
    assert_eq "$(names "$W/allocations")" 'a0 a1 a2 a3 a4 a5'
    assert_match "$(output_of "$HOLDER")" 'name=a0 slot=0 rank=0'
    assert_eq "$(device_get .used_bytes)" $((60 << 20))
}

# bats test_tags=quick
@test "offsets at the end of the world" {
    exec 5<>"$W/lock"
    ctl open "$W/allocations/a" rwc ftruncate 4096
    expect ENOSPC open "$W/allocations/a" rw pwrite 0x7ffffffffffff000 x
    ctl open "$W/allocations/a" rw pread 0x7ffffffffffff000 10
    assert_eq "$output" ''
    one_of 'EINVAL EFBIG' open "$W/metadata/k" wc pwrite 0x7ffffffffffff000 x
    one_of 'EINVAL EFBIG' open "$W/allocations/b" wc pwrite 0x7ffffffffffff000 x
    ctl open "$W/ctl" rw fd 5 put k v 0 0xffffffffffffffff
    expect EINVAL fd 5 commit
    exec 5>&-
}

@test "metadata values at their bound" {
    exec 5<>"$W/lock"
    head -c 1048576 /dev/urandom >"$T/value"
    cp "$T/value" "$W/metadata/k"
    cmp "$T/value" "$W/metadata/k"
    expect_message EFBIG cp /dev/zero "$W/metadata/k2"
    expect_message EFBIG dd if=/dev/zero of="$W/metadata/k3" bs=1 seek=1048576 count=1
    one_of 'EFBIG EINVAL' truncate "$W/metadata/k" 1048577
    ctl fd 5 put k2 fill:15358 none 0 get k2
    commit_5
    cmp "$T/value" "$W/metadata/k"
}

# ---- a full device ---------------------------------------------------------------------------

# bats test_tags=quick
@test "a device that fills up under cp, dd or a shell's { ...; } > file: the writer hears of it" {
    truncate -s 80M "$T/big"
    expect_message ENOMEM cp "$T/big" "$W/allocations/a"
    assert_state weights EMPTY
    exec 5<>"$W/lock"
    expect_message ENOMEM cp --sparse=never "$T/big" "$W/allocations/a"
    exec 5>&-
    wait_until 5 used_is 0
    exec 5<>"$W/lock"
    expect_message ENOMEM dd if=/dev/zero of="$W/allocations/a" bs=7M count=10
    expect_message ENOMEM dd if=/dev/zero of="$W/allocations/b" bs=4k count=1
    truncate -s 0 "$W/allocations/a"
    wait_until 5 used_is 0
    dd if=/dev/zero of="$W/allocations/b" bs=4k count=1
    head -c 40M /dev/zero >"$T/half"
    # shellcheck disable=SC2016 # a script
    expect_message ENOMEM bash -c '{ cat "$1"; cat "$1"; } >"$2"' - "$T/half" "$W/allocations/c"
    exec 5>&-
}
