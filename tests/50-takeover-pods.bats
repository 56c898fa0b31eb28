#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs mount --takeover from another container: another mount namespace, with another root, and with the
# directory of the mounts shared, as pods of one node have it.
#
# shellcheck disable=SC2016 # bodies of shells
# bats file_tags=slow

load helpers

prepare() {
    requires fuse root mountns || return
    mkdir "$T/shared"
    mount --bind "$T/shared" "$T/shared"
    mount --make-private "$T/shared"
    mount --make-shared "$T/shared"
    mkdir "$T/shared/m"
    M=$T/shared/m
}

teardown() {
    common_teardown || return
    ! grep -q " $T/shared " /proc/self/mountinfo || umount "$T/shared"
}

# As runc does it: the volume keeps its propagation, the root of the host is left behind.
BECOME_POD='
    root=$1 shared=$2 volume=$3 && shift 3 && mount --rbind / "$root" && mount --make-rslave "$root" &&
    mount --rbind "$shared" "$root$volume" && cd "$root" && pivot_root . ".$volume.old" && cd / &&
    mount --make-rslave "$volume.old" && umount -l "$volume.old" &&
    { [[ -z ${POD_PROC-} ]] || mount -t proc proc /proc; } && exec "$@"'

# pod NAME COMMAND...: in the background, with $T/shared at $T/NAME; sets SPAWNED. POD_FLAGS are more of unshare's.
pod() {
    local name=$1
    mkdir -p "$T/root-$name" "$T/$name" "$T/$name.old"
    spawn unshare --mount --propagation unchanged "${POD_FLAGS[@]}" \
        bash -c "$BECOME_POD" _ "$T/root-$name" "$T/shared" "$T/$name" "${@:2}"
}

says() { # PID REGEX
    output_of "$1" | grep -qE "$2"
}

# pod_mounts [OPTIONS]: the first one; sets FIRST
pod_mounts() {
    pod first "$GMSFS" mount -f -o "backend=host,size=64M${1+,$1}" "$T/first/m"
    FIRST=$SPAWNED
    wait_until 10 says "$FIRST" ': mounted \('
    exec 5<>"$M/weights/lock"
    echo bytes >"$M/weights/allocations/a"
    commit_5
}

# goes_on NAME: as a keeper in a pod of this name; the former one ends in order. Sets NEXT.
goes_on() {
    local former=$1
    pod "$2" "$GMSFS" mount -f --takeover "$T/$2/m"
    NEXT=$SPAWNED
    wait_until_any 10 says "$NEXT" ': taken over \('
    wait_exit -0 "$former"
}

is_refused() { # REGEX: the pod that was started last, and the first one goes on
    wait_exit "$SPAWNED"
    output_of "$SPAWNED"
    assert_eq "$status" 1 'exit status of the other'
    assert_match "$(output_of "$SPAWNED")" "$1"
    assert_eq "$(<"$M/weights/allocations/a")" bytes
    process_lives "$FIRST"
}

@test "a keeper in another mount namespace goes on when the first namespace is gone, and ends the mount for all" {
    local text
    pod_mounts
    exec 6<"$M/weights/lock"
    text=$(jq 'del(.last_used_ms)' "$M/weights/info")
    goes_on "$FIRST" second
    assert_eq "$(jq 'del(.last_used_ms)' "$M/weights/info")" "$text" info
    assert_eq "$(device_get .keeper_pid)" "$NEXT" 'the keeper, by device'
    exec 6<&-
    wait_until 5 state_is weights COMMITTED
    kill -KILL "$(worker_of "$NEXT")"
    run_logged -0 timeout $((20 * HANG)) cat "$M/weights/allocations/a"
    assert_eq "$output" bytes
    run_logged -0 timeout $((20 * HANG)) "$GMSCTL" reader "$M/weights" export 0 0 connect "$M" redeem last 16
    cli upgrade "$M"
    goes_on "$NEXT" third
    assert_eq "$(<"$M/weights/allocations/a")" bytes
    cli umount "$M"
    wait_exit -0 "$NEXT"
    not_mounted "$M"
}

@test "SIGTERM to a keeper that has taken over in another namespace unmounts for all" {
    pod_mounts
    goes_on "$FIRST" second
    kill "$NEXT"
    wait_exit -0 "$NEXT"
    not_mounted "$M"
}

@test "a keeper in another PID namespace is refused before anything goes" {
    requires pidns
    local worker
    pod_mounts
    worker=$(worker_of "$FIRST")
    POD_FLAGS=(--pid --fork --kill-child)
    POD_PROC=1 pod second "$GMSFS" mount -f --takeover "$T/second/m"
    is_refused 'another PID namespace'
    assert_eq "$(worker_of "$FIRST")" "$worker" 'the worker'
}

# The former can see nothing of the next one there, which has taken the owner's rights.
@test "a keeper in another PID namespace is refused where /proc hides it, too" {
    requires pidns user-fuse
    # shellcheck disable=SC2034 # start_mount reads it
    MOUNT_VIA=(unshare --mount --propagation unchanged bash -c
        'mount --make-private /proc && mount -t proc -o hidepid=2 proc /proc && exec "$@"' _ "${AS_USER[@]}")
    start_mount '' "$M"
    local former=$KEEPER worker
    worker=$(worker_of "$former")
    run_logged -1 unshare --pid --fork --kill-child --mount-proc --propagation slave "$GMSFS" mount -f --takeover "$M"
    assert_match "$output" 'this is another PID namespace than pid:\[[0-9]+\], the mount.s, '
    assert_eq "$(worker_of "$former")" "$worker" 'the worker'
    as_user "$GMSFS" umount "$M"
    expect_death
}

@test "a keeper in another user namespace, where users have other numbers, is refused" {
    requires userns
    start_mount
    run_logged -1 unshare --user --map-root-user "$GMSFS" mount -f --takeover "$M"
    assert_match "$output" 'this is another user namespace than user:\[[0-9]+\], the mount.s, '
    cat "$M/weights/state"
}

@test "a keeper that does not see the directory of the disk tier does not go on" {
    mkdir -p "$T/disk/spill"
    pod_mounts "spill=$T/disk/spill,spill_size=64M"
    pod second bash -c 'mount -t tmpfs none "$1" && exec "${@:2}"' _ "$T/disk" "$GMSFS" mount -f --takeover "$T/second/m"
    is_refused "option spill=$T/disk/spill: cannot be opened here"
}
