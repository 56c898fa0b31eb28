# SPDX-License-Identifier: Apache-2.0
# For tests in which another process continues a mount: a store with bytes and an entry, and a check
# that it is unchanged.
# shellcheck shell=bash disable=SC2153 # M is start_mount's

publish() { # in W, the first store of $M
    W=$M/weights
    head -c 3000000 /dev/urandom >"$T/a"
    exec 5<>"$W/lock"
    cp "$T/a" "$W/allocations/a"
    echo value >"$W/metadata/key"
    echo 1 >"$W/commit"
    exec 5>&-
}

start_published() { # [OPTIONS]
    start_mount "$@" || return 1
    publish
}

is_whole() {
    cmp "$T/a" "$W/allocations/a"
    assert_eq "$(<"$W/metadata/key")" value 'the entry'
}
