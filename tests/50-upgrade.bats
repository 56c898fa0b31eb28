#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs upgrade: the worker becomes the program that is installed now, and clients notice a pause only.
#
# shellcheck disable=SC2034,SC2153 # variables that the helpers read and set

load helpers
load publish

RANDOM_OPS=$BUILD/tests/tools/random_ops

# A mount whose program is the test's own, $T/gmsfs: install puts another one in its place.
start() { # [OPTIONS]
    install_program
    GMSFS=$T/gmsfs start_weights "$@"
}

start_published() {
    start
    publish
}

# install_program [NAME NUMBER OLDEST]...: a copy of the program, which writes these versions of shared
# formats and reads those since the oldest
install_program() {
    rm -f "$T/gmsfs.abi"
    [[ $# -eq 0 ]] || printf '%s %s %s\n' "$@" >"$T/gmsfs.abi"
    cp "$GMSFS" "$T/gmsfs.new"
    mv "$T/gmsfs.new" "$T/gmsfs" # the former may be running
}

# Which file the worker runs; a program that was replaced is another one.
program_of_worker() {
    stat -L -c %i "/proc/$(worker_of "$KEEPER")/exe"
}

runs_installed() {
    [[ $(program_of_worker) == "$(stat -c %i "$T/gmsfs")" ]]
}

@test "the worker becomes the program that is installed, and all is as it was" {
    local before
    start_published
    exec 6<"$W/lock" 7<"$W/allocations/a"
    head -c 1000 <&7 >"$T/part"
    before=$(jq -c '[.id, .layout_hash, .generation, .bytes, .state]' "$W/info")
    install_program
    run_logged ! runs_installed
    cli upgrade "$M"
    assert_match "$output" 'worker [0-9]+ goes on'
    runs_installed
    assert_eq "$(jq -c '[.id, .layout_hash, .generation, .bytes, .state]' "$W/info")" "$before" info
    head -c 3000000 <&7 >>"$T/part"
    cmp "$T/a" "$T/part"
    is_whole
    exec 6<&- 7<&-
    wait_until 5 state_is weights COMMITTED
    kill -0 "$KEEPER"
}

@test "a waiter for a lock waits on through an upgrade" {
    start
    hold open "$W/lock" rw
    spawn "$GMSCTL" open "$W/lock" rw say held until "$T/go"
    wait_for_waiters weights 1
    install_program
    cli upgrade "$M"
    let_go "$HOLDER"
    wait_until 5 said "$SPAWNED" held
    touch "$T/go"
    wait_exit -0 "$SPAWNED"
}

@test "a worker that is killed after an upgrade is followed by the program that it was" {
    start_published
    install_program
    cli upgrade "$M"
    kill -KILL "$(worker_of "$KEEPER")"
    run_logged -0 timeout $((20 * HANG)) cat "$W/state"
    runs_installed
    is_whole
}

# bats test_tags=host
@test "random clients notice nothing of upgrades forth and back" {
    start granularity=64K,writer_patience=0.05
    mkdir "$M/other"
    spawn "$RANDOM_OPS" -s 1 -c 3 -r 3 -m 1000 "$M/weights" "$M/other"
    local i ops=$SPAWNED
    for i in {1..6}; do
        if ! process_gone "$ops"; then
            install_program
            cli upgrade "$M"
        fi
    done
    wait_exit -0 "$ops" 60
}

# bats test_tags=slow
@test "a program with other formats is refused before anything goes" {
    local worker
    start_published
    worker=$(worker_of "$KEEPER")
    install_program state 999 999
    cli -1 upgrade "$M"
    assert_match "$output" 'an encoded state: the mount has version [0-9]+ of it, this gmsfs \(.*\) version 999'
    install_program kernel 2 2 wire 7 7
    cli -1 upgrade "$M"
    cp /bin/true "$T/gmsfs.new"
    mv "$T/gmsfs.new" "$T/gmsfs"
    cli -1 upgrade "$M"
    assert_match "$output" 'it is not a gmsfs that can upgrade mounts'
    rm "$T/gmsfs"
    cli -1 upgrade "$M"
    assert_match "$output" 'cannot open'
    assert_eq "$(worker_of "$KEEPER")" "$worker" 'the worker'
    is_whole
    install_program
    cli upgrade "$M"
    is_whole
}

@test "a program with newer formats that reads the mount's goes on, and none that does not read its own follows" {
    local number newer
    start_published
    number=$("$GMSFS" version --json | jq .shared.state)
    newer=$((number + 2))
    install_program state "$newer" "$((number + 1))"
    cli -1 upgrade "$M"
    assert_match "$output" "an encoded state: the mount has version $number of it, this gmsfs .* versions $((number + 1)) to $newer"
    install_program state "$newer" "$number"
    cli upgrade "$M"
    runs_installed
    is_whole
    install_program
    cli -1 upgrade "$M"
    assert_match "$output" "an encoded state: the mount has version $newer of it, this gmsfs .* versions? ([0-9]+ to )?$number"
    is_whole
}

# bats test_tags=slow
@test "a program that hangs before it serves is given up, and the former goes on" {
    local before
    export GMSFS_HANG_WORKER=$T/hang GMSFS_TRIAL_MS=1000
    start_published
    before=$(program_of_worker)
    install_program
    touch "$GMSFS_HANG_WORKER"
    spawn "$GMSFS" upgrade "$M"
    wait_until_any 10 grep -q 'not upgraded: the new worker did not serve in time' "$LOG"
    rm "$GMSFS_HANG_WORKER"
    wait_exit -1 "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" 'did not serve in time and was killed; the former program continues'
    run_logged -0 timeout $((20 * HANG)) cat "$W/state"
    assert_eq "$(program_of_worker)" "$before" 'the program'
    is_whole
}

# The keeper's fourth process: after a worker, what binds .fds, and what asks the program.
# bats test_tags=slow
@test "a program for which no process can be had is given up in its time as well" {
    local before
    export GMSFS_FAULT=fork:after=3:errno=EAGAIN:in=keeper GMSFS_TRIAL_MS=50
    start_published
    before=$(program_of_worker)
    install_program
    cli -1 upgrade "$M"
    assert_match "$output" 'the new worker cannot be started; the former program continues'
    grep -q 'cannot start another worker' "$LOG"
    run_logged -0 timeout $((20 * HANG)) cat "$W/state"
    assert_eq "$(program_of_worker)" "$before" 'the program'
    is_whole
}

@test "an upgrade that a worker has not passed on before it ends is asked for again" {
    export GMSFS_DIE_PASSING=$T/deaths
    start_published
    install_program
    printf x >"$T/deaths"
    cli upgrade "$M"
    assert_eq "$(stat -c %s "$T/deaths")" 0 'deaths that are left'
    runs_installed
    is_whole
}

@test "a program that does not serve gives way to the former" {
    local before
    start_published
    before=$(program_of_worker)
    install_program
    touch "$GMSFS_LAST_WORKER"
    # The former would not serve either, as long as that is there.
    spawn "$GMSFS" upgrade "$M"
    wait_until_any 10 grep -q 'not upgraded: the new worker' "$LOG"
    rm "$GMSFS_LAST_WORKER"
    wait_exit -1 "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" 'the former program continues'
    run_logged -0 timeout $((20 * HANG)) cat "$W/state"
    assert_eq "$(program_of_worker)" "$before" 'the program'
    is_whole
}

# bats test_tags=slow
@test "an upgrade of a mount that hangs says so, and goes on when its worker was killed" {
    start_published
    kill -STOP "$(worker_of "$KEEPER")"
    spawn "$GMSFS" upgrade "$M"
    wait_until 10 grep -q 'does not answer, and is waited for' "$T/spawn-$SPAWNED"
    kill -KILL "$(worker_of "$KEEPER")"
    wait_exit "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" 'worker [0-9]+ goes on'
    is_whole
}

# bats test_tags=slow
@test "only root and the user that mounted may ask for it" {
    start
    run_logged -1 as_user "$GMSFS" upgrade "$M"
    assert_match "$output" "$M: not upgraded: only root and the user who mounted it may: run this as one of them"
    requires user-fuse || return 1
    local of_root=$M
    install_program
    MOUNT_VIA=("${AS_USER[@]}")
    GMSFS=$T/gmsfs start_mount
    run_logged -0 as_user "$GMSFS" upgrade "$M"
    run_logged -0 as_user timeout $((20 * HANG)) cat "$M/weights/state"
    forget_mount "$M"
    run_logged -0 as_user "$GMSFS" umount "$M"
    M=$of_root
}

# bats test_tags=slow
@test "an upgrade goes on without its caller, and one at a time" {
    start_published
    install_program
    kill -STOP "$(worker_of "$KEEPER")"
    spawn "$GMSFS" upgrade "$M"
    local asker=$SPAWNED worker
    worker=$(worker_of "$KEEPER")
    sleep 0.2
    kill -INT "$asker"
    kill -CONT "$worker"
    wait_exit "$asker"
    run_logged -0 timeout $((20 * HANG)) cat "$W/state"
    is_whole
}

@test "either of the two is killed in the middle" {
    start_published
    install_program
    local worker
    worker=$(worker_of "$KEEPER")
    kill -STOP "$KEEPER"
    spawn "$GMSFS" upgrade "$M"
    wait_until 5 connected "$SPAWNED"
    kill -KILL "$worker"
    kill -CONT "$KEEPER"
    wait_exit "$SPAWNED" 20
    run_logged -0 timeout $((20 * HANG)) cat "$W/state"
    is_whole
}

connected() { # PID: waits in recv
    grep -q recv "/proc/$1/wchan" 2>/dev/null || [[ $(awk '{ print $1 }' "/proc/$1/syscall") == 45 ]]
}

# bats test_tags=slow
@test "version --json tells the versions that builds share" {
    cli version --json
    jq -e '.version and .shared.state > 0 and .shared.kernel > 0 and (.shared | keys) == (.meaning | keys)' <<<"$output"
}
