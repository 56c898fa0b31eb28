#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# How mounts begin and end: in order, refused, and by SIGKILL.
#
# shellcheck disable=SC2016 # bodies of shells
# shellcheck disable=SC2034,SC2153 # variables that the helpers read and set
# bats file_tags=cuda

load helpers

SHARER=$BUILD/tests/tools/sharer
DEAD='Transport endpoint is not connected'
# The kernel's error for requests under way when no process is left to answer: ENOTCONN.
CUT='Software caused connection abort'

# mount_daemon WORDS...: the command that leaves a daemon; its end leaves freeing to the kernel.
mount_daemon() {
    ASAN_OPTIONS=${GMSFS_DAEMON_ASAN_OPTIONS:-${ASAN_OPTIONS:-}} \
        timeout $((20 * HANG)) "$GMSFS" "$@" 3>&- 4>&-
}

# park COUNT: that many opens of `lock` that wait, their pids in PARKED.
park() {
    local i
    PARKED=()
    for ((i = 0; i < $1; i++)); do
        spawn env LC_ALL=C dd "of=$M/weights/lock" conv=notrunc count=0 status=none
        PARKED+=("$SPAWNED")
    done
    wait_for_waiters weights "$1"
}

# parked_ended [WORDS]: all of them end, each before wait_exit gives up, and print WORDS.
parked_ended() {
    local pid
    for pid in "${PARKED[@]}"; do
        wait_exit -1 "$pid"
        assert_match "$(output_of "$pid")" "${1-$DEAD}"
    done
}

# keeper_ends STATUS | keeper_ends '!': waits for it.
keeper_ends() {
    local code=0
    wait_until_any 5 process_gone "$KEEPER"
    wait "$KEEPER" || code=$?
    if [[ $1 == '!' ]]; then
        [[ $code -ne 0 ]] || fail 'the keeper ended with 0'
    else
        assert_eq "$code" "$1" "the keeper's exit status"
    fi
}

memory_of() { # PID: how many descriptors of memory it holds
    find "/proc/$1/fd" -lname '*memfd:*' ! -lname '*memfd:journal*' 2>/dev/null | wc -l
}

# Two descriptors of each: for writers, and for readers.
holds() { # PID COUNT
    [[ $(memory_of "$1") -eq $((2 * $2)) ]]
}

answers_enotconn() { # FILE
    local said
    said=$(LC_ALL=C cat "$1" 2>&1) || [[ $said == *"$DEAD"* ]]
}

@test "no worker can be started any more: clients get ENOTCONN, the mount goes, the keeper says why" {
    start_mount
    commit_store
    hold open "$M/weights/lock" rw
    park 10
    exec 5<"$M/weights/info"
    spawn timeout $((20 * HANG)) "$SHARER" attach "$M/weights"
    library=$SPAWNED
    wait_for_waiters weights 11
    kill_last_worker
    parked_ended
    wait_exit "$library" 1
    assert_match "$(output_of "$library")" "$DEAD"
    run_logged '!' env LC_ALL=C cat <&5
    assert_match "$output" "$DEAD"
    exec 5<&-
    keeper_ends '!'
    not_mounted "$M"
    run_logged -0 cat "$LOG"
    assert_match "$output" '(signal 9|SIGKILL|[Kk]illed)'
    assert_match "$output" '[Ll]ost'
    assert_match "$output" '(1 allocation|2097152|2\.0 M|2 M)'

    start_mount '' "$M"
    assert_state weights EMPTY
    assert_eq "$(device_get .used_bytes)" 0 'memory of the new mount'
}

has_said() { # BYTES
    [[ $(stat -c %s "$T/said") -eq $1 ]]
}

# bats test_tags=host
@test "a graph pool wakes at its addresses on a mount that was made anew" {
    start_mount
    spawn env GMSFS_TEST_STORE="$M/weights" GMSFS_GRAPH_DEED=survive \
        "$BUILD/tests/api/test_graph_turns" deed_of_another_process 9>"$T/said"
    pool=$SPAWNED
    for deaths in 1 2; do # asleep, and awake
        wait_until 10 has_said "$deaths"
        kill_last_worker
        keeper_ends '!'
        not_mounted "$M"
        start_mount '' "$M"
        kill -USR1 "$pool"
    done
    wait_exit -0 "$pool"
}

# bats test_tags=host
@test "the last worker ends in the middle of a transfer" {
    export GMSFS_GATE=$T/gate
    start_mount
    commit_store
    touch "$GMSFS_GATE"
    spawn env LC_ALL=C dd "if=$M/weights/allocations/a" of=/dev/null bs=64k count=1 status=none
    reader=$SPAWNED
    wait_until 5 grep -q '^gmsfs_transfers_in_flight 1$' "$M/metrics"
    kill_last_worker
    wait_exit "$reader" 1
    assert_match "$(output_of "$reader")" "$DEAD"
    keeper_ends '!'
}

@test "kill -9 of the keeper takes the worker along; a dead mount is cleared by the next" {
    start_mount
    commit_store
    hold open "$M/weights/lock" rw
    park 3
    worker=$(worker_of "$KEEPER")
    expect_death
    kill -KILL "$KEEPER"
    parked_ended "$DEAD|$CUT"
    wait_until_any 2 process_gone "$worker"
    let_go "$HOLDER"
    answers_enotconn "$M/device"

    run_logged -0 mount_daemon mount -o backend=host,size=64M "$M"
    assert_state weights EMPTY
    assert_eq "$(grep -c " $M " /proc/self/mountinfo)" 1 'mounts at the place'
    KEEPER=$(keeper_of "$M")
    run_logged -0 umount "$M"
    wait_until_any 5 process_gone "$KEEPER"
}

# bats test_tags=host
@test "the keeper holds all of an ALLOC of many, and none when they are freed" {
    start_mount granularity=64K
    hold open "$M/weights/lock" rw alloc 65536 600 '' ''
    holds "$KEEPER" 600
    let_go "$HOLDER"
    wait_until 5 holds "$KEEPER" 0
    wait_until 5 holds "$(worker_of "$KEEPER")" 0
}

# bats test_tags=host
@test "the keeper holds new memory before ALLOC is answered" {
    start_mount granularity=64K
    run_logged -0 timeout $((30 * HANG)) "$SHARER" kept "$M/weights" 40 "$KEEPER"
    wait_until 5 holds "$KEEPER" 0
    wait_until 5 holds "$(worker_of "$KEEPER")" 0

    exec 5<>"$M/weights/lock"
    for i in 1 2 3; do
        truncate -s 64K "$M/weights/allocations/t$i"
        holds "$KEEPER" "$i"
    done
    rm "$M/weights/allocations/t1"
    wait_until 5 holds "$KEEPER" 2
    head -c 100K /dev/zero >"$M/weights/allocations/spool"
    wait_until 5 holds "$KEEPER" 3
    commit_5
    holds "$KEEPER" 3
    assert_state weights COMMITTED
}

@test "SIGTERM and SIGINT end in order, even with open files" {
    local signal
    for signal in TERM INT; do
        start_mount '' "$T/m-$signal"
        commit_store
        hold open "$M/weights/lock" rw
        park 2
        worker=$(worker_of "$KEEPER")
        expect_death
        kill -"$signal" "$KEEPER"
        parked_ended
        keeper_ends 0
        process_gone "$worker"
        not_mounted "$M"
        let_go "$HOLDER"
    done
}

# The kernel closes such files in the middle of execve(2), and then the process cannot be looked at:
# a daemon that looks at the closing process would wait for a process that waits for the daemon.
@test "a program is executed while files of the mount are open" {
    local name
    start_mount
    commit_store
    for name in state:r info:r ctl:r ctl:rw lock:r lock:rw auto:rw allocations/a:r; do
        run_logged -0 timeout $((10 * HANG)) "$SHARER" exec "$M/weights" "$M/weights/${name%:*}" "${name#*:}"
        assert_eq "$output" executed
    done
    wait_until 2 state_is weights COMMITTED
}

# bats test_tags=slow
@test "the daemon holds nothing of the process that started it" {
    requires fuse
    mkdir "$T/m"
    M=$T/m
    # A pipe that stayed open would keep this substitution waiting.
    output=$(mount_daemon mount -o backend=host,size=64M "$M" 2>&1)
    cat "$M/device"
    keeper=$(keeper_of "$M")
    assert_eq "$(readlink "/proc/$keeper/cwd")" / 'working directory'
    [[ $(ps -o sid= -p "$keeper") -ne $(ps -o sid= -p $$) ]]
    run_logged -0 umount "$M"
    wait_until 5 process_gone "$keeper"
}

# bats test_tags=slow
@test "a daemonized mount tells its own failure" {
    requires fuse
    mkdir "$T/m"
    run_logged '!' mount_daemon mount -o backend=host,size=1T,granularity=3 "$T/m"
    not_mounted "$T/m"
    [[ -z $(keeper_of "$T/m") ]]
}

@test "umount refuses while clients hold files, and leaves the socket usable" {
    start_mount
    commit_store
    exec 5<"$M/weights/state"
    run_logged '!' umount "$M"
    assert_match "$output" busy
    run_logged '!' "$GMSFS" umount "$M"
    assert_match "$output" busy
    is_mounted "$M"
    cat "$M/device"
    run_logged -0 timeout $((20 * HANG)) "$GMSCTL" reader "$M/weights" export 0 0 connect "$M" redeem last 16
    exec 5<&-
    forget_mount "$M"
    wait_until_any 2 "$GMSFS" umount "$M"
    not_mounted "$M"
    keeper_ends 0
}

# bats test_tags=slow
@test "the form of fstab" {
    requires fuse
    mkdir "$T/m"
    M=$T/m
    run_logged -0 mount_daemon gmsfs "$M" -o rw,nosuid,nodev,backend=host,size=64M
    cat "$M/device"
    keeper=$(keeper_by_cwd "$M")
    run_logged -0 umount "$M"
    [[ -z $keeper ]] || wait_until 5 process_gone "$keeper"
}

keeper_by_cwd() { # MOUNTPOINT: of a daemon that has no word `mount` among its arguments
    local pid
    for pid in $(stray_processes); do
        if tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF " $1 "; then
            echo "$pid"
            return
        fi
    done
}

refused_mount() { # ARGUMENTS...: fails, and in $output is why
    run_logged '!' mount_daemon mount "$@"
    [[ -n $output ]] || fail 'no reason was given'
    [[ ${#lines[@]} -le 3 ]] || fail 'too many words'
}

# bats test_tags=slow
@test "mounts that cannot be" {
    requires fuse
    mkdir "$T/m"
    touch "$T/file"
    refused_mount -o backend=host,size=64M "$T/none"
    assert_match "$output" "$T/none.*(No such file|does not exist)"
    refused_mount -o backend=host,size=64M "$T/file"
    assert_match "$output" "$T/file.*([Nn]ot a directory)"
    refused_mount -o backend=host,size=64M
    refused_mount -o backend=host,size=64M "$T/m" "$T/m" extra
    refused_mount -o backend=host,size=64M,colour=blue "$T/m"
    assert_match "$output" colour
    refused_mount -o backend=tape,size=64M "$T/m"
    assert_match "$output" 'tape.*host'
    refused_mount -o backend=host,size=many "$T/m"
    assert_match "$output" 'size.*many'
    refused_mount -o backend=host,size=-1 "$T/m"
    refused_mount -o backend=host,size=0 "$T/m"
    refused_mount -o backend=host,size=64M,granularity=3000 "$T/m"
    assert_match "$output" granularity
    refused_mount -o backend=host,size=64M,uuid=xyz "$T/m"
    assert_match "$output" uuid
    refused_mount -o backend=host,size=64M,alloc_timeout=soon "$T/m"
    refused_mount -o backend=host,size=1000P "$T/m"
    not_mounted "$T/m"
}

# bats test_tags=host,slow
@test "without a driver the default backend tells how to mount host memory" {
    requires fuse no-nvidia
    mkdir "$T/m"
    refused_mount "$T/m"
    assert_match "$output" 'backend=host'
    assert_match "$output" 'size='
}

# bats test_tags=slow
@test "a mount over a mount is refused or stands above it, and both end" {
    start_mount
    run mount_daemon mount -o backend=host,size=64M "$M"
    echo "$output"
    if [[ $status -eq 0 ]]; then
        run_logged -0 umount "$M"
    fi
    assert_state weights EMPTY
}

# bats test_tags=slow
@test "a store of a mount, and its content, is no mount point" {
    start_mount
    local at
    for at in weights weights/allocations; do
        refused_mount -o backend=host,size=64M "$M/$at"
        assert_match "$output" "$M/$at: cannot be a mount point: it lies in the gmsfs mount $M, "
    done
    cli status "$M"
    assert_match "$output" weights
    stop_mount
}

# ---- an ordinary user ------------------------------------------------------------------------

# fusermount3 wants a user with a name.
user_mount() {
    requires user-fuse
    TEST_UID=$(id -u nobody)
    AS_USER=(setpriv --reuid="$TEST_UID" --regid="$TEST_UID" --clear-groups --inh-caps=-all)
    MOUNT_VIA=("${AS_USER[@]}")
    mkdir "$T/u"
    chown "$TEST_UID:$TEST_UID" "$T/u"
    start_mount 'size=64M' "$T/u"
}

# bats test_tags=slow
@test "an ordinary user mounts, and is alone with it" {
    user_mount
    run_logged -0 as_user bash -c '
        cd "$1/weights" && exec 5<>lock && truncate -s 1M allocations/a && echo 1 >commit' _ "$M"
    wait_until 5 as_user grep -qx COMMITTED "$M/weights/state"
    run_logged -0 as_user "$GMSFS" status "$M"
    run_logged -0 as_user timeout $((20 * HANG)) "$GMSCTL" reader "$M/weights" \
        export 0 0 connect "$M" redeem last 16
    run_logged '!' cat "$M/device"
    assert_match "$output" 'Permission denied'
    forget_mount "$M"
    run_logged -0 as_user "$GMSFS" umount "$M"
    not_mounted "$M"
    keeper_ends 0
}

# bats test_tags=slow
@test "an ordinary user's mount is refused while files are open, and dies like any other" {
    user_mount
    spawn as_user "$GMSCTL" open "$M/weights/state" r say held pause
    holder=$SPAWNED
    wait_until 5 said "$holder" held
    run_logged '!' as_user "$GMSFS" umount "$M"
    is_mounted "$M"
    let_go "$holder"
    kill_last_worker
    keeper_ends '!'
    not_mounted "$M"
    start_mount 'size=64M' "$M"
    forget_mount "$M"
    run_logged -0 as_user "$GMSFS" umount "$M"
    keeper_ends 0
}
