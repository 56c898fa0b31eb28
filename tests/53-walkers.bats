#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Programs that read every file of a tree, over a mount with a store in every state at once: each comes to an
# end, reads every readable file whole, and changes nothing: no lock, no state, no place of a store.
#
# A walker is no member of a session, so every holder of a lock here is a process of its own.
#
# shellcheck disable=SC2016 # bodies of shells
# shellcheck disable=SC2154,SC2317 # variables that the helpers set, functions that they call
# bats file_tags=slow

load helpers
load gpu

# The test looks for a hang, not for a speed.
WALK_LIMIT_S=60
STATES=(empty held awaited committed read host disk none sealed draining)
# Stores whose allocation `a` can be read by its path.
READABLE=(committed read host disk)

make_store() { # STORE
    mkdir "$M/$1"
    head -c 300000 /dev/urandom >"$T/bytes.$1"
    bash -c 'exec 3<>"$1/lock" && cp "$2" "$1/allocations/a" && echo "$1" >"$1/metadata/key" &&
        echo 1 >"$1/commit"' - "$M/$1" "$T/bytes.$1"
}

move() { # STORE PLACE
    ctl open "$M/$1/residency" rw write "$2" rest
    assert_eq "$(cat "$M/$1/residency")" "$2" residency
}

# A mount that has a store in each of STATES, and regions.
mount_all_states() {
    local store
    mkdir "$T/spill"
    start_mount "host_size=32M,spill=$T/spill,spill_size=32M,keep_copy=no,evict=lru"
    rmdir "$M/weights"
    for store in "${STATES[@]}"; do
        make_store "$store"
    done
    ctl open "$M/empty/lock" rw clear abort
    rmdir "$M/empty"
    mkdir "$M/empty"
    hold open "$M/held/lock" rw open "$M/held/allocations/new" rwc ftruncate 70000 pwrite 0 fresh
    hold reader "$M/awaited"
    W=$M/awaited
    spawn "$GMSCTL" open "$W/lock" rw
    wait_for_waiters awaited 1
    hold reader "$M/read"
    move host host
    move disk disk
    move none none
    ctl open "$M/sealed/data" rw open "$M/sealed/seal" w write 1
    hold reader "$M/draining"
    spawn "$GMSFS" drain "$M/draining"
    wait_until 10 store_drains draining
    ctl connect "$M" region-register self one /key memfd:4096 64 1000
    ctl connect "$M" region-register self two committed/a none 0 8
}

store_drains() { # STORE
    [[ $(info_of "$1" .draining) == true ]]
}

# State that has to be the same before and after; releases come after close, so it is given a moment.
look() {
    local store
    for store in "$M"/*/state; do
        store=${store%/state}
        echo "${store##*/} $(<"$store/state") $(<"$store/residency")"
        awk '{ print $1, $2, $3, $4, $8 }' "$store/sessions"
        jq -c '[.generation, .allocations, .entries, .moves, .moved_ms, .draining, .suspect]' "$store/info"
    done
    jq -c '[.used_bytes, .regions, .region_references, .health, .draining]' "$M/device"
    jq -s 'map(.event | select(startswith("ro_") | not)) | length' "$M/events"
}

looks_as_before() {
    look 2>/dev/null | cmp -s - "$T/before"
}

# walk COMMAND...: ends by itself, with any status, for some files cannot be read now.
walk() {
    look >"$T/before"
    mkdir "$T/out"
    run_logged timeout $((WALK_LIMIT_S * SLOW)) "$@" </dev/null
    [[ $status -lt 124 ]] || fail "hung or crashed: $*"
    wait_until 5 looks_as_before || {
        look | diff "$T/before" - || true
        return 1
    }
}

# read_whole COMMAND...: prints the bytes of the file that it is given below $T/out.
read_whole() {
    local store
    for store in "${READABLE[@]}"; do
        "$@" "$M/$store/allocations/a" | cmp - "$T/bytes.$store"
        assert_eq "$("$@" "$M/$store/metadata/key")" "$M/$store" 'a value'
    done
}

copied() { # FILE of the mount
    cat "$T/out/${1#"$M/"}"
}

@test "rsync -a of a mount ends, reads all readable files, and changes nothing" {
    requires rsync
    mount_all_states
    walk rsync -a "$M/" "$T/out/"
    read_whole copied
}

@test "cp -a of a mount ends, reads all readable files, and changes nothing" {
    mount_all_states
    walk cp -a "$M/." "$T/out/"
    read_whole copied
}

@test "find -exec cat over a mount ends, and changes nothing" {
    mount_all_states
    walk bash -c 'find "$1" -type f -exec cat {} + >"$2"' - "$M" "$T/out/all"
    assert_eq "$(grep -c 'No such device' <<<"$output")" 0
}

@test "tar of a mount ends, reads all readable files, and changes nothing" {
    mount_all_states
    walk bash -c 'tar -C "$1" -cf - . | tar -C "$2" -xf -' - "$M" "$T/out"
    read_whole copied
}

@test "zip -r of a mount ends, reads all readable files, and changes nothing" {
    requires zip unzip
    mount_all_states
    walk bash -c 'cd "$1" && zip -qr "$2/all.zip" .' - "$M" "$T/out"
    zipped() { unzip -p "$T/out/all.zip" "${1#"$M/"}"; }
    read_whole zipped
}

@test "md5deep -r over a mount ends, reads all readable files, and changes nothing" {
    requires md5deep
    mount_all_states
    walk md5deep -r "$M"
    for store in "${READABLE[@]}"; do
        assert_match "$output" "$(md5sum <"$T/bytes.$store" | cut -d ' ' -f 1)  $M/$store/allocations/a"
    done
}

@test "grep -r over a mount ends, reads all readable files, and changes nothing" {
    mount_all_states
    walk grep -r "$M/committed" "$M"
    assert_match "$output" "$M/committed/metadata/key:$M/committed"
}

@test "BusyBox grep -r over a mount ends, reads all readable files, and changes nothing" {
    requires busybox
    mount_all_states
    walk busybox grep -r "$M/committed" "$M"
    assert_match "$output" "$M/committed/metadata/key:$M/committed"
}

@test "git grep --no-index over a mount ends, and changes nothing" {
    requires git
    mount_all_states
    walk git -C "$M" grep --no-index "$M/committed"
}

@test "updatedb over a mount ends, and changes nothing" {
    requires updatedb
    mount_all_states
    walk updatedb -U "$M" -o "$T/out/db" --prunefs '' --prunepaths '' -l no
}

@test "restic over a mount ends, reads all readable files, and changes nothing" {
    requires restic
    export RESTIC_PASSWORD=none RESTIC_CACHE_DIR=$T/cache RESTIC_REPOSITORY=$T/repository
    restic -q init
    mount_all_states
    walk restic -q backup "$M"
    restored() { restic -q dump latest "$1"; }
    read_whole restored
}

@test "borg over a mount ends, reads all readable files, and changes nothing" {
    requires borg
    export BORG_BASE_DIR=$T/borg
    borg init -e none "$T/repository"
    mount_all_states
    walk borg create "$T/repository::one" "$M"
    restored() { borg extract --stdout "$T/repository::one" "${1#/}"; }
    read_whole restored
}

@test "walks over a mount that is drained end, and change nothing" {
    mount_all_states
    make_store last
    hold reader "$M/last"
    spawn "$GMSFS" drain "$M"
    wait_until 10 device_is .draining true
    walk cp -a "$M/." "$T/out/"
    rm -r "$T/out"
    walk grep -r committed "$M"
}

@test "walks over a mount whose stores are suspect end, and change nothing" {
    fake_gpus
    start_mount
    ctl open "$M/weights/lock" rw alloc $((2 << 20)) 2 '' '' commit
    fake_gpus 'xid 0 48'
    wait_until 10 device_is .health suspect
    walk cp -a "$M/." "$T/out/"
    rm -r "$T/out"
    walk grep -r committed "$M"
}

@test "a release that may be on its way has no store brought to the device" {
    mount_all_states
    # A descriptor that a child has closed looks like a release that comes at once, and is waited for a moment.
    spawn "$GMSCTL" open "$M/host/allocations/a" r repeat 100000 dupclose
    run_logged -0 timeout $((30 * HANG)) "$GMSCTL" repeat 100 try open "$M/host/lock" r try open "$M/host/auto" rn
    assert_eq "$(cat "$M/host/residency")" host residency
    assert_eq "$(info_of host .moves)" 1 moves
}

@test "run -r waits for its turn, and where the store has left the device, until it is back" {
    mount_all_states
    spawn timeout $((30 * HANG)) "$GMSFS" run -r "$M/empty" -- bash -c 'cat "$GMSFS_STORE/lock"; cmp "$GMSFS_STORE/allocations/a" "$1"' \
        - "$T/bytes.host"
    reader=$SPAWNED
    wait_for_waiters empty 1
    bash -c 'exec 3<>"$1/lock" && cp "$2" "$1/allocations/a" && echo 1 >"$1/commit"' - "$M/empty" "$T/bytes.host"
    wait_exit -0 "$reader"
    assert_match "$(output_of "$reader")" '^RO [0-9]+$'
    cli run -r "$M/host" -- cat "$M/host/residency"
    assert_eq "$output" 'device'
    cli -3 run -r --timeout 0.2 "$M/held" -- true
    cli -3 run -r --nonblock "$M/held" -- true
}
