#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# A daemon with limited memory: every client's excess is refused in time, and nothing is lost.
#
# shellcheck disable=SC2034,SC2153 # variables that the helpers read and set
# bats file_tags=slow

load helpers
load python
load gms
load memcg

HOG=$BUILD/tests/tools/hog

prepare() {
    gms_setup
    requires memory-cgroup jq no-sanitizer
}

teardown() {
    common_teardown
    memcg_remove
}

# Root's store has all memory that the daemon gives away for allocations.
fill_weights() { # BYTES of each allocation
    local i=0
    exec 5<>"$M/weights/lock"
    printf 'important' >"$T/important"
    while truncate -s "$1" "$M/weights/allocations/a$i" 2>/dev/null; do
        dd if="$T/important" of="$M/weights/allocations/a$i" conv=notrunc status=none
        i=$((i + 1))
    done
    rm -f "$M/weights/allocations/a$i"
    echo value >"$M/weights/metadata/key"
    commit_5
    ALLOCATIONS=$i
    ((i > 1)) || fail "there was no memory for allocations"
}

weights_are_there() {
    assert_match "$(<"$M/weights/state")" '^(COMMITTED|RO)$'
    assert_eq "$(<"$M/weights/metadata/key")" value
    assert_eq "$(find "$M/weights/allocations" -type f | wc -l)" "$ALLOCATIONS"
}

weights_are_whole() {
    local i
    weights_are_there
    for ((i = 0; i < ALLOCATIONS; i++)); do
        assert_eq "$(head -c 9 "$M/weights/allocations/a$i")" important
    done
}

# A store of this user, with an allocation and a long value, and one more for documents and one for entries.
make_stores() { # NAME UID
    local name
    mkdir "$M/$1" "$M/$1-documents" "$M/$1-entries" "$M/$1-gathered" "$M/$1-names" "$M/$1-waiting-allocs"
    (
        exec 3<>"$M/$1/lock"
        truncate -s 4096 "$M/$1/allocations/a"
        head -c 100000 /dev/zero >"$M/$1/metadata/large"
        echo 1 >"$M/$1/commit"
    )
    for name in "$1" "$1-documents" "$1-entries" "$1-gathered" "$1-names" "$1-waiting-allocs"; do
        chown "$2:$2" "$M/$name"
    done
}

# Everything that one user can fill, at the same time; sets FILLERS.
fill() { # STORE COMMAND...: the command in front of each
    local kind store=$1
    shift
    for kind in files directories texts sessions tickets regions; do
        [[ $EUID -eq 0 && $# -eq 0 && ' files directories texts sessions ' == *" $kind "* ]] && continue
        spawn "$@" "$HOG" "$M" "$store" "$kind"
        FILLERS[SPAWNED]="$store $kind"
    done
    for kind in entries gathered names waiting-allocs; do
        spawn "$@" "$HOG" "$M" "$store-$kind" "$kind"
        FILLERS[SPAWNED]="$store $kind"
    done
    spawn "$@" "$HOG" "$(v0_socket weights)" "$store" frames
    FILLERS[SPAWNED]="$store frames"
    spawn "$@" "$PYTHON" "$T/put_documents.py" "$BUILD/libgmsfs.so.0" "$M/$store-documents" 300000
    FILLERS[SPAWNED]="$store documents"
}

are_full() {
    local filler
    for filler in "${!FILLERS[@]}"; do
        grep -q '^full ' "$T/spawn-$filler" || ! kill -0 "$filler" 2>/dev/null || return 1
    done
}

root_revokes() { # STORE
    local session
    session=$(awk '$1 ~ /^[0-9]+$/ { print $1 }' "$M/$1/sessions")
    [[ -z $session ]] || echo "revoke $session" >"$M/$1/abort"
    assert_eq "$(awk '$1 ~ /^[0-9]+$/ { print $1 }' "$M/$1/sessions")" ''
}

# Root looks again and again, until all are full.
look_until_full() {
    local end=$((SECONDS + 60 * HANG))
    until are_full; do
        timeout $((10 * HANG)) cat "$M/weights/state" "$M/device" >"$T/looked" || fail "root cannot look: $?"
        ((SECONDS < end)) || fail 'not all are full'
    done
    timeout $((10 * HANG)) cat "$M/weights/state" "$M/device" >"$T/looked" || fail "root cannot look: $?"
}

all_was_refused_in_time() { # MIB
    local filler
    FILLERS=()
    memcg_make "$1"
    start_gms_mount size=8G,gms_mode=0666
    cp "$ROOT/tests/tools/put_documents.py" "$T"
    make_stores his "$TEST_UID"
    make_stores mine 0
    fill_weights $(($1 << 20 >> 6))
    fill his "${AS_USER[@]}"
    fill mine
    look_until_full
    for filler in "${!FILLERS[@]}"; do
        printf '%s: %s\n' "${FILLERS[$filler]}" "$(output_of "$filler")"
    done
    # A client of a socket that cannot be served is told by the end of its connection.
    for filler in "${!FILLERS[@]}"; do
        assert_match "${FILLERS[$filler]}: $(output_of "$filler")" \
            '(ENOMEM|EDQUOT|ENOSPC|ENFILE|EPIPE|ECONNRE[A-Z]*|Cannot allocate memory|Disk quota exceeded)$'
    done
    jq -e '.daemon_memory.aside_bytes > 0 and .daemon_memory.free_bytes > 0' "$M/device"
    weights_are_there
    root_revokes his-entries
    kill_worker # the next one has to have room for the same state
    weights_are_there
    timeout $((10 * HANG)) cat "$M/weights/state" "$M/device" >"$T/looked" || fail "root cannot look: $?"
    assert_eq "$(memcg_kills)" 0 'processes that the kernel killed'
    kill -KILL "${!FILLERS[@]}"
    wait_until 20 as_user cat "$M/device" # and others find room again
    weights_are_whole
    assert_eq "$(memcg_kills)" 0 'processes that the kernel killed'
}

took_less() { # BEFORE MIB
    (($(memcg_usage) - $1 < $2 << 20))
}

# The kernel's buffers for a client that does not read are charged to the daemon.
unread_takes_little() { # MOUNT-OR-SOCKET WHAT MIB
    local before
    before=$(memcg_usage)
    spawn "${AS_USER[@]}" "$HOG" "$1" weights "$2"
    wait_until 60 grep -q '^full ' "$T/spawn-$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" 'full [0-9]{2,} (ECONNREFUSED|ECONNRESET|EPIPE)$'
    took_less "$before" "$3" || fail "$(($(memcg_usage) - before)) bytes are taken"
    timeout $((10 * HANG)) cat "$M/weights/state" "$M/device" >"$T/looked"
    kill -KILL "$SPAWNED"
    wait_until 10 took_less "$before" 8
    spawn "${AS_USER[@]}" "$HOG" "$M" weights connections # its places are free again
    wait_until 60 grep -q '^full [0-9]* EINPROGRESS' "$T/spawn-$SPAWNED"
    kill -KILL "$SPAWNED"
}

@test "unread answers take little of the daemon's memory" {
    memcg_make 256
    start_gms_mount size=64M,gms_mode=0666
    (
        exec 3<>"$M/weights/lock"
        truncate -s 4096 "$M/weights/allocations/a"
        echo 1 >"$M/weights/commit"
    )
    unread_takes_little "$M" unread 8
    unread_takes_little "$(v0_socket weights)" sessions-unread 32
}

@test "with 160 MiB everything that two users fill is refused in time" { all_was_refused_in_time 160; }
@test "with 256 MiB everything that two users fill is refused in time" { all_was_refused_in_time 256; }
@test "with 1 GiB everything that two users fill is refused in time" { all_was_refused_in_time 1024; }
