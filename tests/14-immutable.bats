#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Immutable layouts: what is committed never changes, whoever asks and whatever ends.
#
# bats file_tags=cuda
#
# shellcheck disable=SC2016,SC2030,SC2031 # jq programs; each test is a subshell

load helpers

prepare() {
    start_weights
    # a writer with a descriptor of one allocation
    WRITER=(open "$W/ctl" rw acquire rw 0 alloc 4096 1 a '' export-rw 0 0 connect "$M" redeem last 1)
}

# make_immutable: an immutable layout with one allocation `a`, through files alone.
make_immutable() {
    (
        exec 3<>"$W/lock"
        printf 'hello' >"$W/allocations/a"
        echo immutable >"$W/commit"
    )
    assert_state weights COMMITTED
}

# is_immutable: `info` says that it is, and mapped as well.
is_immutable() {
    assert_eq "$(info_of weights '"\(.immutable) \(.mappable) \(.mappable_reason)"')" 'true true null'
    assert_eq "$(head -c 5 "$W/allocations/a")" hello
}

# bats test_tags=host
@test "the word immutable on commit makes the layout immutable, any other does not" {
    (
        exec 3<>"$W/lock"
        printf 'hello' >"$W/allocations/a"
        echo commit >"$W/commit"
    )
    assert_eq "$(info_of weights .immutable)" false
    make_immutable
    is_immutable
    assert_eq "$(info_of weights .last_error)" null
}

# bats test_tags=host
@test "a text that resembles the word immutable commits nothing" {
    (
        exec 3<>"$W/lock"
        printf 'hello' >"$W/allocations/a"
        for word in IMMUTABLE Immutable immutable! 'immutable now'; do
            run_logged '!' bash -c 'printf "%s\n" "$1" >"$2/commit"' sh "$word" "$W"
            assert_match "$output" 'Invalid argument'
        done
    )
    assert_eq "$(cat "$W/state")" EMPTY
}

@test "on any kind of memory the layout is immutable, and info says where it cannot be mapped" {
    ctl open "$W/ctl" rw acquire rw 0 alloc 4096 1 a '' commit-flags 16
    assert_eq "$(info_of weights .immutable)" true
    expect EPERM open "$W/allocations/a" rw
    if [[ $BACKEND == host ]]; then
        assert_eq "$(info_of weights .mappable)" true
    else
        assert_match "$(info_of weights .mappable_reason)" 'this device'
    fi
}

# bats test_tags=host
@test "an allocation of an immutable layout cannot be opened for writing, by root neither" {
    make_immutable
    run_logged '!' bash -c 'echo x >>"$1/allocations/a"' sh "$W"
    assert_match "$output" 'Operation not permitted'
    run_logged '!' truncate -s 0 "$W/allocations/a"
    run_logged '!' rm "$W/allocations/a"
    run_logged '!' mv "$W/allocations/a" "$W/allocations/b"
    run_logged '!' touch "$W/allocations/a"
    run_logged '!' setfattr -n user.gmsfs.tag -v x "$W/allocations/a"
    is_immutable
}

# bats test_tags=host
@test "a process that has the memory mapped for writing fails the commit, and is named" {
    expect EBUSY "${WRITER[@]}" map-memory 0 commit-flags 16
    assert_eq "$(info_of weights '"\(.state) \(.immutable)"')" 'EMPTY false'
    assert_match "$(info_of weights .last_error)" \
        '^process [0-9]+ \(gmsctl\) has allocation a mapped for writing: unmap it, then commit again$'
    ctl "${WRITER[@]}" map-memory 0 unmap-memory commit-flags 16
    assert_eq "$(info_of weights '"\(.mappable) \(.last_error)"')" 'true null'
}

# bats test_tags=host
@test "the process that wrote the memory cannot write it after an immutable commit" {
    expect EPERM "${WRITER[@]}" poke 0 0 hello commit-flags 16 poke 0 0 jello
    is_immutable
    expect EPERM "${WRITER[@]}" commit-flags 16 map-memory 0
}

# bats test_tags=host
@test "memory committed before without the word is immutable by promise, and info says so" {
    ctl "${WRITER[@]}" poke 0 0 hello commit
    ctl open "$W/ctl" rw acquire rw 0 commit-flags 16
    assert_eq "$(info_of weights '"\(.immutable) \(.mappable)"')" 'true false'
    assert_match "$(info_of weights .mappable_reason)" 'committed before'
    run_logged '!' bash -c 'echo x >>"$1/allocations/a"' sh "$W"
}

# bats test_tags=host
@test "a user who may only read gets memory that cannot be written, and no writer's open" {
    requires root
    make_immutable
    run_logged '!' as_user bash -c 'echo x >>"$1/allocations/a"' sh "$W"
    assert_match "$output" 'Permission denied'
    run_logged -0 as_user cat "$W/allocations/a"
    chmod 777 "$W"
    run_logged '!' as_user bash -c 'echo x >>"$1/allocations/a"' sh "$W"
    assert_match "$output" 'Operation not permitted'
    is_immutable
}

# bats test_tags=host
@test "kill -9 of the worker, before and after the commit, loses no seal" {
    (
        exec 3<>"$W/lock"
        printf 'hello' >"$W/allocations/a"
        kill_worker
        echo immutable >"$W/commit"
    )
    is_immutable
    kill_worker
    is_immutable
    run_logged '!' bash -c 'echo x >>"$1/allocations/a"' sh "$W"
}

# ---- by the command --------------------------------------------------------------------------

# bats test_tags=host
@test "load --immutable seals, a load replaces it whole, and a failed one leaves it" {
    write_tensors "$T/one.safetensors" 5000000 3
    write_tensors "$T/two.safetensors" 4096
    cli -0 load --immutable "$W" "$T/one.safetensors"
    assert_eq "$(info_of weights '"\(.immutable) \(.mappable) \(.entries)"')" 'true true 2'
    cli -1 load "$W" "$T/none.safetensors"
    assert_eq "$(info_of weights '"\(.immutable) \(.entries)"')" 'true 2'
    cli -0 load "$W" "$T/two.safetensors"
    assert_eq "$(info_of weights '"\(.immutable) \(.mappable) \(.entries)"')" 'false false 1'
}

# bats test_tags=host
@test "image load --immutable seals the memory that it makes" {
    make_immutable
    cli -0 image save "$W" "$T/image"
    cli -0 image load --immutable "$M/other" "$T/image"
    assert_eq "$(info_of other '"\(.immutable) \(.mappable)"')" 'true true'
    cmp "$W/allocations/a" "$M/other/allocations/a"
    cli -0 image load "$W" "$T/image"
    assert_eq "$(info_of weights .immutable)" false
}

# bats test_tags=host
@test "ls and status say that a store is immutable" {
    make_immutable
    cli -0 ls "$W"
    assert_match "$output" 'is immutable: this layout never changes'
    assert_eq "$("$GMSFS" ls --json "$W" | jq .immutable)" true
    cli -0 status "$M"
    assert_match "$output" 'weights +COMMITTED immutable '
    assert_eq "$("$GMSFS" status --json "$M" | jq '[.. | .immutable? // empty] | any')" true
}

# bats test_tags=host
@test "load --group --immutable seals each store" {
    write_tensors "$T/one.safetensors" 5000
    mkdir "$M/other"
    cli -0 load --group --immutable "$W=$T/one.safetensors" "$M/other=$T/one.safetensors"
    assert_eq "$(info_of weights .mappable)$(info_of other .mappable)" truetrue
}
