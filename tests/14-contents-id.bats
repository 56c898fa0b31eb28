#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The id of a store's contents, the sums that it is made of, and the files under it.
#
# bats file_tags=cuda,slow
#
# shellcheck disable=SC2016,SC2030,SC2031 # jq programs; each test is a subshell

load helpers
load places
load image

prepare() {
    export GMSFS_GATE=$T/gate # transfers wait while it is there
    start_weights
}

# fill STORE: an allocation of 20 MiB that the aligned size equals, and one of some bytes.
fill() {
    [[ -d $1 ]] || mkdir "$1"
    [[ -e $T/bytes ]] || head -c $((20 * MIB)) /dev/urandom >"$T/bytes"
    (
        exec 3<>"$1/lock"
        cp "$T/bytes" "$1/allocations/${2-a}"
        [[ ${3-} != both ]] || printf hello >"$1/allocations/b"
        echo 1 >"$1/commit"
    )
}

id_of() { # STORE
    jq -r .contents_id "$M/$1/info"
}

bytes_of() { # of hex digits
    # shellcheck disable=SC2001 # no pattern of bash does so
    printf '%b' "$(sed 's/../\\x&/g' <<<"$1")"
}

sum_of() { # of standard input
    xxhsum -H2 - | cut -d' ' -f1
}

gate_is_held() {
    [[ -e $T/gate.held ]]
}

# hold_sums COUNT: so many pieces are summed, and no more until $T/gate is removed.
hold_sums() {
    rm -f "$T/gate.held"
    echo "$1" >"$T/gate"
}

# bats test_tags=quick
@test "pieces has the sums of the bytes, and the id follows from them and the layout" {
    fill "$W"
    assert_eq "$(id_of weights)" null
    assert_eq "$(stat -c %s "$W/pieces")" "$(wc -c <"$W/pieces")"
    cat "$W/pieces" >"$T/pieces"
    first=$(head -c $((16 * MIB)) "$T/bytes" | sum_of)
    second=$(tail -c $((4 * MIB)) "$T/bytes" | sum_of)
    id=$(bytes_of "$(cat "$W/layout_hash")$first$second" | sum_of)
    assert_eq "$(head -n -1 "$T/pieces")" "gmsfs-pieces 1
id $id
piece_bytes 16777216
allocations 1
allocation 0 20971520 a
pieces 2
piece 0 0 16777216 $first
piece 0 16777216 4194304 $second"
    assert_eq "$(tail -n 1 "$T/pieces")" "end $(head -n -1 "$T/pieces" | sum_of)"
    assert_eq "$(id_of weights)" "$id"
}

@test "the id outlives the worker and a rename, and the sums are made again" {
    fill "$W"
    cat "$W/pieces" >"$T/pieces"
    id=$(id_of weights)
    kill_worker
    assert_eq "$(id_of weights)" "$id"
    mv "$W" "$M/other"
    cmp "$M/other/by-id/$id/allocations/0" "$T/bytes"
    cmp "$M/other/pieces" "$T/pieces"
    assert_eq "$(id_of other)" "$id"
}

# bats test_tags=host
@test "the same contents have the same id at another granularity and under other names" {
    fill "$W" a both
    cat "$W/pieces" >/dev/null
    id=$(id_of weights)
    start_mount granularity=4K
    fill "$M/weights" other both
    cat "$M/weights/pieces" >/dev/null
    assert_eq "$(id_of weights)" "$id"
    (
        exec 3<>"$M/weights/lock"
        printf j | dd of="$M/weights/allocations/b" conv=notrunc status=none
        echo 1 >"$M/weights/commit"
    )
    assert_eq "$(id_of weights)" null
    cat "$M/weights/pieces" >/dev/null
    [[ $(id_of weights) != "$id" ]] || fail 'other bytes have the same id'
}

# bats test_tags=quick
@test "by-id has the store's files under its id, for reading, and no listing shows it" {
    fill "$W" a both
    [[ ! -e $W/by-id/00000000000000000000000000000000 ]]
    cat "$W/pieces" >"$T/pieces"
    id=$(id_of weights)
    D=$W/by-id/$id
    assert_eq "$(names "$D") $(names "$D/allocations")" 'allocations layout pieces 0 1'
    [[ $(names "$W") != *by-id* ]]
    cmp "$D/allocations/0" "$T/bytes"
    assert_eq "$(cat "$D/allocations/1")" hello
    cmp "$D/pieces" "$T/pieces"
    cmp "$D/layout" "$W/layout"
    run_logged -0 find "$D" -type f -size +0
    assert_eq "${#lines[@]}" 4
    expect ENOENT stat "$W/by-id/${id^^}"
    expect ENOENT stat "$D/allocations/00"
    expect ENOENT stat "$D/allocations/a"
    expect ENOENT stat "$D/info"
    expect EACCES open "$D/allocations/0" rw
    expect EACCES open "$D/pieces" w
    expect EPERM open "$D/allocations/2" rwc
    expect EPERM unlink "$D/allocations/0"
    run_logged '!' setfattr -n user.gmsfs.tag -v x "$D/allocations/0"
    assert_eq "$(id_of weights)" "$id"
}

@test "by-id is gone while a writer holds the store, and for good once the contents change" {
    fill "$W"
    cat "$W/pieces" >/dev/null
    id=$(id_of weights)
    exec 5<"$W/by-id/$id/allocations" # a directory that was opened before
    hold open "$W/lock" rw
    expect ENOENT stat "$W/by-id/$id"
    expect EAGAIN open "$W/pieces" r
    assert_eq "$(id_of weights)" null
    let_go "$HOLDER"
    cmp "/proc/self/fd/5/0" "$T/bytes"
    (
        exec 3<>"$W/lock"
        printf x | dd of="$W/allocations/a" conv=notrunc status=none
        echo 1 >"$W/commit"
    )
    cat "$W/pieces" >/dev/null
    [[ $(id_of weights) != null && $(id_of weights) != "$id" ]]
    expect ENOENT stat "$W/by-id/$id"
    run_logged '!' cat "/proc/self/fd/5/0"
    assert_match "$output" 'No such file'
    exec 5<&-
}

@test "cat of pieces can be interrupted, and the sums end with it" {
    fill "$W"
    hold_sums 1
    timeout -s INT 2 cat "$W/pieces" >"$T/out" || true
    gate_is_held
    assert_eq "$(wc -c <"$T/out")" 0
    assert_eq "$(id_of weights)" null
    rm "$T/gate"
    wait_until 5 sessions_are weights RO 0
    cat "$W/pieces" >/dev/null
    [[ $(id_of weights) != null ]]
}

@test "readers of pieces wait for the same sums" {
    fill "$W"
    hold_sums 1
    spawn bash -c 'cat "$1/pieces" >"$2/one"' - "$W" "$T"
    one=$SPAWNED
    wait_until 5 gate_is_held
    spawn bash -c 'cat "$1/pieces" >"$2/two"' - "$W" "$T"
    wait_until 5 sessions_are weights RO 2
    kill -KILL "$one" # the other one goes on with the sums
    rm "$T/gate"
    wait_exit "$SPAWNED"
    assert_eq "$(wc -c <"$T/two")" "$(stat -c %s "$W/pieces")"
}

@test "a worker killed in the middle of a sum costs its reader nothing" {
    fill "$W"
    hold_sums 1
    spawn bash -c 'cat "$1/pieces" >"$2/text"' - "$W" "$T"
    wait_until 5 gate_is_held
    kill_worker
    rm "$T/gate"
    wait_exit "$SPAWNED"
    cmp "$T/text" "$W/pieces"
    assert_eq "$(id_of weights)" "$(sed -n 's/^id //p' "$T/text")"
}

@test "a session that is revoked while its bytes are summed ends after a piece" {
    fill "$W"
    hold_sums 1
    spawn bash -c 'cat "$1/pieces" 2>"$2/error"' - "$W" "$T"
    wait_until 5 gate_is_held
    number=$(awk '$2 == "RO" { print $1 }' "$W/sessions")
    spawn bash -c 'echo "revoke $1" >"$2/abort"' - "$number" "$W"
    revoker=$SPAWNED
    sleep 0.2
    rm "$T/gate"
    wait_exit "$revoker"
    wait_until 5 sessions_are weights RO 0
    wait_until 5 grep -q 'Stale file handle' "$T/error"
    assert_eq "$(id_of weights)" null
}

# bats test_tags=host
@test "a user that may not read the store learns neither sums nor bytes" {
    requires root
    fill "$W"
    cat "$W/pieces" >/dev/null
    id=$(id_of weights)
    chmod 750 "$W"
    for file in pieces "by-id/$id/pieces" "by-id/$id/allocations/0"; do
        run_logged -1 as_user cat "$W/$file"
        assert_match "$output" 'Permission denied'
    done
    chmod 755 "$W"
    as_user cmp "$W/by-id/$id/allocations/0" "$T/bytes"
}

# bats test_tags=host
@test "the id stays while the store moves to the host and back" {
    start_weights host_size=64M
    fill "$W"
    cat "$W/pieces" >"$T/pieces"
    id=$(id_of weights)
    order host
    wait_until 10 at host
    assert_eq "$(id_of weights)" "$id"
    cmp "$W/by-id/$id/allocations/0" "$T/bytes"
    kill_worker
    cmp "$W/pieces" "$T/pieces" # of the bytes in the tier
    order device
    wait_until 10 at 'device host'
    cmp "$W/pieces" "$T/pieces"
    order none
    wait_until 10 at none
    assert_eq "$(id_of weights)" null
    assert_eq "$(stat -c %s "$W/pieces")" "$(wc -c <"$T/pieces")"
    run_logged -1 cat "$W/pieces"
    assert_match "$output" 'Input/output error'
}

# bats test_tags=host
@test "a store without allocations has an id, and an empty or sealed one none" {
    assert_eq "$(wc -c <"$W/pieces")" 0
    (
        exec 3<>"$W/lock"
        echo value >"$W/metadata/key"
        echo 1 >"$W/commit"
    )
    assert_match "$(cat "$W/pieces")" 'pieces 0'
    assert_eq "$(id_of weights)" "$(bytes_of "$(cat "$W/layout_hash")" | sum_of)"
    mkdir "$M/kv"
    ctl open "$M/kv/data" rw open "$M/kv/allocations/a" rwc ftruncate 4096 open "$M/kv/seal" w write 1
    assert_eq "$(stat -c %s "$M/kv/pieces")" 0
    assert_eq "$(id_of kv)" null
}

# bats test_tags=host
@test "by-id shows files, and those of an immutable store can be mapped" {
    mkdir -p "$T/model/sub"
    head -c 5000 /dev/urandom >"$T/model/sub/part.bin"
    echo '{}' >"$T/model/config.json"
    write_tensors "$T/model/model.safetensors" 300000
    cli load -q --files --immutable "$W" "$T/model"
    cat "$W/pieces" >/dev/null
    D=$W/by-id/$(id_of weights)
    assert_eq "$(names "$D")" 'allocations files layout pieces'
    diff -r "$D/files" "$T/model"
    python3 -c 'import mmap, sys
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as at:
    assert bytes(at) == open(sys.argv[2], "rb").read()' "$D/files/model.safetensors" "$T/model/model.safetensors"
}

# ---- commands --------------------------------------------------------------------------------

# bats test_tags=quick
@test "sum --id prints the id, verify --id compares it" {
    fill "$W"
    cli sum --id "$W"
    id=$output
    assert_eq "$(sed -n 's/^id //p' "$W/pieces")" "$id"
    cli verify --id "$id" "$W"
    other=0${id:1}
    [[ $other != "$id" ]] || other=1${id:1}
    cli -1 verify --id "$other" "$W"
    assert_match "$output" "has the contents $id, not $other"
    cli -2 verify --id 123 "$W"
    assert_match "$output" '32 hex digits'
    cli -2 verify --id "$id" "$W" "$T/bytes"
    cli -2 verify "$W"
    cli -2 sum --id --json "$W"
    hold open "$W/lock" rw
    cli -3 sum --id --timeout 0 "$W"
}

# bats test_tags=host
@test "an image has the id of its store, and image load --id refuses another" {
    fill_store weights
    cli sum --id "$W"
    id=$output
    cli image save -q "$W" "$T/image"
    cli image ls "$T/image"
    assert_match "$output" "contents_id $id"
    cli image ls --json "$T/image"
    assert_eq "$(jq -r .contents_id <<<"$output")" "$id"
    other=0${id:1}
    [[ $other != "$id" ]] || other=1${id:1}
    cli -1 image load --id "$other" "$M/other" "$T/image"
    assert_match "$output" "image: has the contents $id, not $other"
    [[ ! -e $M/other ]]
    cli image load -q --id "$id" "$M/other" "$T/image"
    cli sum --id "$M/other"
    assert_eq "$output" "$id"
}
