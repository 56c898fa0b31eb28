#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Clients in other namespaces: containers.
#
# shellcheck disable=SC2016 # bodies of shells
# shellcheck disable=SC2034,SC2153 # variables that the helpers read and set
# bats file_tags=slow

load helpers

SHARER=$BUILD/tests/tools/sharer

# contained COMMAND...: without privilege, in a mount, pid and network namespace of its own, where
# the mount is to be seen at $T/inside.
contained() {
    mkdir -p "$T/inside"
    unshare --mount --pid --net --fork --mount-proc bash -c '
        mount --bind "$1" "$2" && shift 2 && exec "$@"' _ "$M" "$T/inside" "${AS_USER[@]}" "$@"
}

container_mount() {
    requires fuse root mountns pidns netns
    start_mount granularity=64K
    cp "$SHARER" "$T/sharer"
    cp "$GMSCTL" "$T/gmsctl"
    chmod 755 "$T/sharer" "$T/gmsctl"
}

@test "in other mount, pid and network namespaces: look, read, lock, attach" {
    container_mount
    run_logged -0 timeout $((30 * HANG)) "$SHARER" load "$M/weights" 300 1000
    run_logged -0 contained cat "$T/inside/weights/state"
    assert_eq "$output" COMMITTED
    run_logged -0 contained cmp "$T/inside/weights/layout" "$T/inside/weights/layout"
    run_logged -0 contained dd if="$T/inside/weights/allocations/a000000" bs=1000 of=/dev/null \
        status=none
    run_logged -0 contained bash -c 'exec 5<"$1/lock"; cat "$1/state"; head -c 2 <&5' _ \
        "$T/inside/weights"
    assert_eq "${lines[0]}" RO
    assert_eq "${lines[1]}" RO
    run_logged -0 contained timeout $((20 * HANG)) "$T/sharer" attach "$T/inside/weights" 300
    assert_eq "$output" 300
    assert_state weights COMMITTED
}

@test "a store that was bind-mounted alone can be looked at, and gives out no memory" {
    container_mount
    run_logged -0 timeout $((30 * HANG)) "$SHARER" load "$M/weights" 3 1000
    run_logged '!' in_mountns '
        mkdir "$2" && mount --bind "$1" "$2" && cat "$2/state" && "$3" attach "$2" 3' \
        "$M/weights" "$T/alone" "$T/sharer"
    assert_eq "${lines[0]}" COMMITTED
    assert_match "$output" 'No route to host'
    assert_state weights COMMITTED
}

@test "a contained writer, by path and by the library" {
    container_mount
    run_logged '!' contained timeout 20 "$T/sharer" load "$T/inside/weights" 1 1
    assert_match "$output" 'Permission denied'
    chown "$TEST_UID" "$M/weights"
    run_logged -0 contained timeout $((20 * HANG)) "$T/sharer" load "$T/inside/weights" 20 1000
    assert_state weights COMMITTED
    # Children of a member join it, also as pid 3 of a namespace.
    run_logged -0 contained bash -c '
        cd "$1" && exec 5<>lock && truncate -s 1000 allocations/b && echo value >metadata/k &&
        (echo 1 >commit)' _ "$T/inside/weights"
    assert_state weights COMMITTED
    assert_eq "$(cat "$M/weights/metadata/k")" value
    assert_eq "$(find "$M/weights/allocations" -type f | wc -l)" 21
}

@test "a contained holder that is killed leaves nothing behind" {
    container_mount
    run_logged -0 timeout $((30 * HANG)) "$SHARER" load "$M/weights" 3 1000
    spawn contained "$T/gmsctl" open "$T/inside/weights/ctl" r acquire ro 0 say held pause
    holder=$SPAWNED
    wait_until 5 said "$holder" held
    assert_state weights RO
    spawn contained "$T/gmsctl" open "$T/inside/weights/lock" r say held pause
    wait_until 5 sessions_are weights RO 2
    spawn contained "$T/gmsctl" open "$T/inside/weights/lock" r say held pause
    wait_until 5 sessions_are weights RO 3
    kill_clients
    assert_state weights COMMITTED
    assert_eq "$(wc -c <"$M/weights/sessions")" 0 sessions
}

share_directory() {
    mkdir "$T/shared"
    mount --bind "$T/shared" "$T/shared"
    mount --make-private "$T/shared"
    mount --make-shared "$T/shared"
}

# The daemon in a pid namespace of its own, with a mount that the outside sees: to it, the
# processes out here have no pid.
hidden_mount() {
    requires fuse root mountns pidns
    share_directory
    MOUNT_VIA=(unshare --mount --pid --fork --kill-child --propagation unchanged bash -c
        'mount --make-private /proc && mount -t proc proc /proc && exec "$@"' _)
    mkdir "$T/shared/m"
    start_mount_via granularity=64K "$T/shared/m"
}

# The words before the command are for the daemon alone.
start_mount_via() {
    mount_answers() { [[ -n $(timeout 5 cat "$1/device") ]]; }
    start_mount "$@"
}

@test "a process whose pid the daemon cannot see joins by token" {
    hidden_mount
    mkfifo "$T/in"
    spawn bash -c 'exec "$1" hold "$2" rw <"$3"' _ "$SHARER" "$M/weights" "$T/in"
    holder=$SPAWNED
    exec 6>"$T/in"
    wait_until 5 test -s "$T/spawn-$holder"
    token=$(head -n 1 "$T/spawn-$holder")
    assert_match "$(cat "$M/weights/sessions")" '^[0-9]+ RW held 0 '

    # By path no process is known: neither this shell nor another joins.
    run_logged '!' dd if=/dev/zero of="$M/weights/allocations/a" bs=1 count=1 status=none
    run_logged -0 timeout $((20 * HANG)) "$SHARER" join "$M/weights" "$token" 1000
    echo add >&6
    wait_until 5 said "$holder" 'done'
    echo commit >&6
    wait_until 5 state_is weights COMMITTED
    exec 6>&-
    wait_exit -0 "$holder"
    assert_eq "$(find "$M/weights/allocations" -type f | wc -l)" 2

    run_logged -0 timeout $((20 * HANG)) "$SHARER" attach "$M/weights" 2
    assert_state weights COMMITTED
}

@test "a process whose pid the daemon cannot see holds the lock by its file alone" {
    hidden_mount
    run_logged -0 timeout $((20 * HANG)) "$SHARER" load "$M/weights" 2 1000
    exec 5<>"$M/weights/lock"
    assert_state weights RW
    run_logged '!' touch "$M/weights/allocations/b"
    run_logged '!' dd if="$M/weights/lock" iflag=nonblock count=0 status=none
    run_logged '!' timeout 20 "$SHARER" join "$M/weights" 00000000000000000000000000000000
    exec 5>&-
    assert_state weights COMMITTED
    # Two that cannot be told apart are still two.
    hold open "$M/weights/lock" r
    first=$HOLDER
    hold open "$M/weights/lock" r
    wait_until 5 sessions_are weights RO 2
    let_go "$first" "$HOLDER"
    assert_state weights COMMITTED
}

@test "a process whose pid the daemon cannot see has the rights of its further groups, known to the kernel" {
    hidden_mount
    local group=47001
    local member=(setpriv --reuid="$TEST_UID" --regid="$TEST_UID" --groups="$group" --inh-caps=-all)
    chgrp "$group" "$M/weights"
    chmod 0770 "$M/weights"
    run_logged -0 "${member[@]}" "$GMSCTL" open "$M/weights/lock" rw
    run_logged -1 as_user "$GMSCTL" open "$M/weights/lock" rw
    assert_match "$output" EACCES
    chmod 0707 "$M/weights"
    run_logged -0 as_user "$GMSCTL" open "$M/weights/lock" rw
    run_logged -1 "${member[@]}" "$GMSCTL" open "$M/weights/lock" rw
    assert_match "$output" EACCES
}

# Root's capabilities are few, and but for one more /proc would hide everybody (privileges.c) whose group is not root's.
@test "where /proc hides the processes of others, the caller is known, to a next worker too" {
    requires fuse root mountns
    share_directory
    MOUNT_VIA=(unshare --mount --propagation unchanged bash -c
        'mount --make-private /proc && mount -t proc -o hidepid=2,gid=47001 proc /proc && exec "$@"' _)
    mkdir "$T/shared/m"
    start_mount_via granularity=64K "$T/shared/m"
    chown "$TEST_UID" "$M/weights"
    spawn "${AS_USER[@]}" bash -c 'cd "$1" && exec 5<>lock && echo held && until [[ -e $2 ]]; do sleep 0.05; done &&
        (truncate -s 1000 allocations/b) && (echo 1 >commit)' _ "$M/weights" "$T/go"
    wait_until 5 said "$SPAWNED" held
    assert_match "$(<"$M/weights/sessions")" "^[0-9]+ RW held $SPAWNED $TEST_UID bash "
    kill -KILL "$(worker_of "$KEEPER")"
    run_logged -0 timeout $((20 * HANG)) cat "$M/weights/sessions"
    assert_match "$output" "^[0-9]+ RW held $SPAWNED $TEST_UID bash "
    touch "$T/go" # its children are known as such
    wait_exit -0 "$SPAWNED"
    assert_state weights COMMITTED
    spawn "$GMSCTL" open "$M/weights/ctl" r acquire ro 0 say held pause
    wait_until 5 said "$SPAWNED" held
    kill -KILL "$SPAWNED"
    assert_state weights COMMITTED
}

teardown() {
    common_teardown || return
    ! grep -q " $T/shared " /proc/self/mountinfo || umount "$T/shared"
}

# ---- without /proc ---------------------------------------------------------------------------

# without_proc COMMAND...: as in a chroot without a mounted /proc
without_proc() {
    unshare --mount bash -c '
        mount -t tmpfs none /proc && exec "$@"' _ timeout $((30 * HANG)) "$@"
}

proc_is_not_there() {
    requires fuse root mountns no-sanitizer python3 || return 1
    "$ROOT/scripts/make-model" --out "$T/model" --size 1M --shards 1
    MODEL=$(find "$T/model" -name '*.safetensors')
}

@test "without /proc: all commands that name a path do their work" {
    proc_is_not_there
    start_mount
    local store=$M/weights
    run_logged -0 without_proc "$GMSFS" load -q "$store" "$MODEL"
    run_logged -0 without_proc "$GMSFS" verify "$store" "$MODEL"
    run_logged -0 without_proc "$GMSFS" sum "$store"
    run_logged -0 without_proc "$GMSFS" save -q "$store" "$T/saved.safetensors"
    "$GMSFS" verify "$store" "$T/saved.safetensors"
    run_logged -0 without_proc "$GMSFS" image save -q "$store" "$T/image"
    run_logged -0 without_proc "$GMSFS" image load -q "$store" "$T/image"
    run_logged -0 without_proc "$GMSFS" load -q --group --force "$store=$MODEL"
    run_logged -0 without_proc "$GMSFS" status "$store"
    assert_match "$output" "^$M  .*weights +COMMITTED"
    cd "$store"
    run_logged -0 without_proc "$GMSFS" status .
    assert_match "$output" "^$M  "
    cd "$T"
    run_logged -1 without_proc "$GMSFS" status "$T"
    assert_match "$output" 'not in a gmsfs mount'
    run_logged -0 without_proc "$GMSFS" clear-suspect "$store" "$M"
    run_logged -0 without_proc "$GMSFS" drain "$M"
    run_logged -0 without_proc "$GMSFS" drain --undo "$M"
    run_logged -0 without_proc "$GMSFS" fence --status "$M"
}

@test "without /proc: commands that need it say so" {
    proc_is_not_there
    local long=$T/a-name-that-is-so-long-that-a-socket-in-it-cannot-be-reached-by-its-path/as-an-address-holds-107-bytes
    mkdir -p "$long"
    start_mount '' "$long"
    run_logged -1 without_proc "$GMSFS" load -q "$M/weights" "$MODEL"
    assert_match "$output" 'File name too long.*there is no /proc'
    run_logged -1 without_proc "$GMSFS" drain "$M"
    assert_match "$output" 'the path is too long.*there is no /proc'
    run_logged -1 without_proc "$GMSFS" status
    assert_match "$output" '/proc/self/mountinfo: No such file or directory; mount /proc here'
    run_logged -1 without_proc "$GMSFS" umount "$M"
    assert_match "$output" '/proc/self/mountinfo: No such file or directory; mount /proc here'
    mkdir "$T/new"
    run_logged -1 without_proc "$GMSFS" mount -o backend=host "$T/new"
    assert_match "$output" "$T/new: cannot be served: /proc/self/mountinfo: No such file or directory; mount /proc here"
    run_logged -1 without_proc "$GMSFS" mount --takeover "$M"
    assert_match "$output" '/proc/self/mountinfo: No such file or directory; mount /proc here'
    run_logged -0 "$GMSFS" load -q "$M/weights" "$MODEL" # with it, paths may be as long as they like
    run_logged -0 "$GMSFS" drain "$M"
}

@test "memory that an unseen process may write is not sealed, and not lent when sealed" {
    hidden_mount
    W=$M/weights
    expect EOPNOTSUPP open "$W/ctl" rw acquire rw 0 alloc 4096 1 kv '' export-rw 0 0 connect "$M" redeem last 1 seal
    assert_state weights EMPTY
    ctl open "$W/ctl" rw acquire rw 0 alloc 4096 1 kv '' seal
    assert_state weights LAYOUT_COMMITTED
    expect EOPNOTSUPP open "$W/ctl" rw acquire data 0 export-rw 0 0 connect "$M" redeem last 1
    ctl open "$W/ctl" rw acquire data 5000 export 0 0 connect "$M" redeem last 1
    assert_match "$output" 'access=r '
    assert_state weights LAYOUT_COMMITTED
}
