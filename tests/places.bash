# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2016,SC2034,SC2154 # bodies of shells; W, SUM; M, T are of helpers.bash
# For tests of the places of stores' bytes: a store with bytes, orders to it, its place, and a small
# disk. STORE is a name in the mount $M, `weights` if none is given.
#
# A step of a move waits as long as $GMSFS_MOVE_GATE exists.

start_tiers() { # OPTIONS [DIRECTORY]: a mount whose moves wait at $T/gate; W is its store `weights`
    export GMSFS_MOVE_GATE=$T/gate
    start_weights "$@"
}

# ---- a small disk ----------------------------------------------------------------------------

mount_disk() { # SIZE: a tmpfs of the test's own, at $SPILL
    requires root
    SPILL=$T/spill
    mkdir "$SPILL"
    mount -t tmpfs -o "size=$1" spill "$SPILL"
}

umount_disk() { # for teardown
    umount -l "$SPILL" 2>/dev/null || : # if it is still there
}

on_disk() { # bytes of blocks that the directory's file system has given away
    df -B 1 --output=used "$SPILL" | tail -n 1
}

disk_is_empty() {
    [[ $(on_disk) -eq 0 ]]
}

# ---- stores ----------------------------------------------------------------------------------

committed() { # [STORE [BYTES]]: one allocation of random bytes; SUM is their checksum
    local store=$M/${1-weights}
    [[ -d $store ]] || mkdir "$store"
    head -c "${2-5000000}" /dev/urandom >"$T/bytes"
    bash -c 'exec 4<>"$1/lock"; cat "$2" >"$1/allocations/a"; echo >"$1/commit"' _ "$store" "$T/bytes"
    SUM=$(sha256sum <"$T/bytes")
}

committed_on_host() {
    committed weights
    move_to host host
}

bytes_are_right() { # [STORE]: of all its allocations
    local allocation
    for allocation in "$M/${1-weights}"/allocations/*; do
        assert_eq "$(sha256sum <"$allocation")" "$SUM" "$allocation"
    done
}

order() { # WORD [STORE]
    ctl open "$M/${2-weights}/residency" w write "$1"
}

is_at() { # TIERS [STORE]
    [[ $(head -n 1 "$M/${2-weights}/residency") == "$1" ]]
}

at() { # TIERS [STORE]: and nothing is under way
    [[ $(cat "$M/${2-weights}/residency") == "$1" ]]
}

move_to() { # WORD TIERS [STORE]
    order "$1" "${3-weights}"
    wait_until 20 at "$2" "${3-weights}"
}

# ---- messages --------------------------------------------------------------------------------

host_is_free() {
    [[ $(device_get .host_used_bytes) -eq 0 ]]
}

has_event() { # EVENT [TIER | ERROR]
    jq -es --arg event "$1" --arg why "${2-}" \
        'any(.event == $event and ($why == "" or .tier == $why or .error == $why))' <"$M/events"
}
