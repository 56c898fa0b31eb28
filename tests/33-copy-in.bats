#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Attributes that tools set when they copy into a store: times are kept or refused, temporary names are
# accepted, modes and owners are the store's.
#
# Everything that writes is run by `gmsfs run -w`, which commits.
#
# shellcheck disable=SC2016 # bodies of shells

load helpers

prepare() {
    start_weights
    mkdir "$T/from"
    head -c 100000 /dev/urandom >"$T/from/small"
    head -c 3000000 /dev/urandom >"$T/from/large"
    chmod 644 "$T/from"/*
    touch -d '2020-02-03 04:05:06.000000789' "$T/from/small"
    touch -d 1960-01-01 "$T/from/large"
    touch -d 2001-05-05 "$T/from"
    export T W
}

# writes [-STATUS] SCRIPT: a writer's shell in allocations/.
writes() {
    local want=-0
    case $1 in -[0-9]*)
        want=$1
        shift
        ;;
    esac
    cli "$want" run -w "$W" -- bash -ec "cd '$W/allocations'; $1"
}

time_of() { # FILE
    stat -c %y "$1"
}

same_time() { # NAME: below $T/from and in allocations/
    assert_eq "$(time_of "$W/allocations/$1")" "$(time_of "$T/from/$1")" "the time of $1"
}

# bats test_tags=host
@test "rsync -a copies into a store, and finds nothing to do the second time, after the commit, too" {
    requires rsync
    writes 'rsync -ai "$T/from/" .'
    cmp "$T/from/large" "$W/allocations/large"
    cmp "$T/from/small" "$W/allocations/small"
    same_time small
    same_time large
    same_time .
    writes 'test -z "$(rsync -ai "$T/from/" .)"'
    echo more >>"$T/from/small"
    writes 'rsync -ai "$T/from/" .'
    assert_match "$output" '^>f.st...... small'
    [[ $output != *large* ]]
    cmp "$T/from/small" "$W/allocations/small"
}

@test "a temporary name is taken where a writer holds the store, and is not committed" {
    writes 'truncate -s 1000 .big.AbC019; chmod 600 .big.AbC019 || :; ls -A; mv .big.AbC019 big'
    assert_match "$output" '.big.AbC019'
    assert_eq "$(names "$W/allocations")" big
    writes -1 'truncate -s 1000 .other.AbC019'
    assert_match "$output" "allocation .other.AbC019 has the name of a temporary file: rename it, or remove it"
    assert_eq "$(names "$W/allocations")" big
    writes 'for name in .hidden .a.b .a.1234567 ..AbC019; do ! touch "$name"; done'
    ctl open "$W/lock" rw try open "$W/metadata/.big.AbC019" rwc
    assert_match "$output" EINVAL
}

@test "a mode that a tool gives its temporary file before it writes is taken, a later one only if it is the store's" {
    writes 'touch .big.AbC019; chmod 600 .big.AbC019; truncate -s 1000 .big.AbC019
        ! chmod 600 .big.AbC019; chmod 644 .big.AbC019; mv .big.AbC019 big; ! chmod 600 big'
    assert_eq "$(stat -c %a "$W/allocations/big")" 644
}

# bats test_tags=host
@test "cp -p, tar x and touch -d keep times" {
    writes 'cp -p "$T/from/small" small
        tar -C "$T/from" -cf - large | tar -xf -
        cp "$T/from/small" touched; touch -d 2011-11-11 touched; touch -a -d 2012-12-12 touched'
    same_time small
    same_time large
    assert_match "$(stat -c '%x %y' "$W/allocations/touched")" '^2012-12-12 .*2011-11-11'
}

# bats test_tags=host
@test "a mode or an owner that is not the store's is refused, and said so" {
    chmod 600 "$T/from/small"
    writes 'if cp -p "$T/from/small" small; then exit 9; fi; if install -m 600 "$T/from/large" large; then exit 9; fi'
    assert_match "$output" 'Operation not permitted'
    assert_eq "$(stat -c %a "$W/allocations/small")" 644
}

# bats test_tags=host
@test "rsync, told of the modes and owners of a store, copies files that have others" {
    requires rsync root
    chmod 600 "$T/from/small"
    chmod 700 "$T/from"
    chown "$TEST_UID" "$T/from"/*
    writes 'rsync -a --chmod=D755,F644 --no-owner --no-group "$T/from/" .'
    same_time small
    cmp "$T/from/large" "$W/allocations/large"
}

# bats test_tags=host
@test "times that were set outlive the worker, commits and moves, and go with writing" {
    stop_mount
    start_weights host_size=32M
    writes 'for name in kept written resized exported moved; do
        head -c 1000 "$T/from/large" >$name; touch -d 2011-11-11 $name; done'
    kill_worker
    ctl open "$W/residency" rw write host rest write device rest
    assert_match "$(time_of "$W/allocations/moved")" '^2011-11-11'
    writes 'printf x | dd of=written conv=notrunc status=none; truncate -s 0 resized; truncate -s 5 resized
        mv moved moved.2'
    kill_worker
    assert_match "$(time_of "$W/allocations/kept")" '^2011-11-11'
    assert_match "$(time_of "$W/allocations/moved.2")" '^2011-11-11'
    [[ $(time_of "$W/allocations/written") != 2011-* ]]
    [[ $(time_of "$W/allocations/resized") != 2011-* ]]
    # A descriptor handed out for writing counts as written.
    ctl open "$W/lock" rw open "$W/allocations/exported" rw export-rw 0 0 stat "$W/allocations/exported" use 0 commit
    [[ $(time_of "$W/allocations/exported") != 2011-* ]]
    assert_match "$(time_of "$W/allocations/kept")" '^2011-11-11'
}

# bats test_tags=host
@test "an abort goes back to the times that were committed" {
    writes 'cp -p "$T/from/small" small'
    writes -7 'touch -d 2011-11-11 small; exit 7'
    same_time small
}

@test "times that are not kept are refused: of entries, of directories but allocations/, outside of a writer's session" {
    commit_store
    cli run -w "$W" -- bash -ec 'cd "$1"
        ! touch -d 2011-11-11 metadata/key; ! touch -d 2011-11-11 metadata
        ! touch -d 2011-11-11 .; ! touch -d 2011-11-11 state
        touch metadata/key metadata allocations .' - "$W"
    expect_message ENOLCK touch -c -d 2011-11-11 "$W/allocations"
    expect_message EPERM touch -c -d 2011-11-11 "$W/info"
}
