#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Commands with unreadable output: a closed pipe, a full disk, descriptors that are not open.
#
# bats file_tags=slow

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers

# A shell that starts others may have chosen otherwise.
GMSFS_AS_STARTED=(env "--default-signal=PIPE,XFSZ" timeout $((60 * HANG)) "$GMSFS")

# Descriptor 9 is the write end of a pipe without a reader.
prepare() {
    mkfifo "$T/pipe"
    exec 8<>"$T/pipe"
    exec 9>"$T/pipe"
    exec 8>&-
}

# unheard STATUS WHY ARGUMENT...: to a full disk, with the reason on standard error.
unheard() {
    local want=$1 why=$2
    shift 2
    status=0
    "${GMSFS_AS_STARTED[@]}" "$@" >/dev/full 2>"$T/said" || status=$?
    printf '$ gmsfs %s >/dev/full: %s\n%s\n' "$*" "$status" "$(<"$T/said")"
    assert_eq "$status" "$want" "exit status of $*"
    assert_match "$(<"$T/said")" "$why"
}

# broken STATUS ARGUMENT...: runs it with a pipe without a reader.
broken() {
    local want=$1
    shift
    status=0
    "${GMSFS_AS_STARTED[@]}" "$@" >&9 2>"$T/said" || status=$?
    printf '$ gmsfs %s | true: %s\n%s\n' "$*" "$status" "$(<"$T/said")"
    assert_eq "$status" "$want" "exit status of $*"
    assert_match "$(<"$T/said")" 'cannot write the output: Broken pipe'
}

generation() {
    jq -r .generation "$M/weights/info"
}

# ---- commands that change something ----------------------------------------------------------

DONE='done, but cannot write the output: No space left on device'

@test "a load that is committed but cannot say so exits with 4" {
    requires jq
    start_mount
    make_model 4M 1
    unheard 4 "$DONE" load "$M/weights" "$MODEL"
    assert_eq "$(generation)" 1 generation
    broken 4 load "$M/weights" "$MODEL"
    assert_eq "$(generation)" 2 generation
    broken 4 load --group --force "$M/weights=$MODEL"
    assert_eq "$(generation)" 3 generation
    unheard 4 "$DONE" load --group "$M/weights=$MODEL" # as it is
    assert_eq "$(generation)" 3 generation
    "$GMSFS" verify "$M/weights" "$MODEL"
}

@test "a load that has nothing to say is not asked whether it could" {
    start_mount
    make_model 4M 1
    "${GMSFS_AS_STARTED[@]}" load -q "$M/weights" "$MODEL" >&9 2>&9
    assert_state weights COMMITTED
}

@test "a save that cannot print its result exits with 4, and is whole" {
    start_mount
    make_model 4M 1
    "$GMSFS" load -q "$M/weights" "$MODEL"
    unheard 4 "$DONE" save "$M/weights" "$T/saved.safetensors"
    "$GMSFS" verify "$M/weights" "$T/saved.safetensors"
    rm "$T/saved.safetensors"
    broken 4 save "$M/weights" "$T/saved.safetensors"
    "$GMSFS" verify "$M/weights" "$T/saved.safetensors"
}

@test "an image that is saved, or loaded, but cannot be said exits with 4" {
    requires jq
    start_mount
    make_model 4M 1
    "$GMSFS" load -q "$M/weights" "$MODEL"
    unheard 4 "$DONE" image save "$M/weights" "$T/image"
    "$GMSFS" image ls --check "$T/image"
    broken 4 image save --force "$M/weights" "$T/image"
    "$GMSFS" image ls --check "$T/image"
    unheard 4 "$DONE" image load "$M/weights" "$T/image"
    assert_eq "$(generation)" 2 generation
    broken 4 image load "$M/weights" "$T/image"
    assert_eq "$(generation)" 3 generation
}

@test "a drain, a clearing and an upgrade that cannot be said exit with 4" {
    start_mount
    unheard 4 "$DONE" upgrade "$M"
    broken 4 upgrade "$M"
    unheard 4 "$DONE" log "$M" debug
    broken 4 log "$M" info
    unheard 4 "$DONE" clear-suspect "$M/weights"
    broken 4 clear-suspect "$M"
    broken 4 drain "$M"
    unheard 4 "$DONE" drain --undo "$M"
    "$GMSFS" run -w "$M/weights" -- true # it serves
}

@test "a move that cannot be said exits with 4" {
    start_mount size=64M,host_size=32M
    make_model 4M 1
    "$GMSFS" load -q "$M/weights" "$MODEL"
    unheard 4 "$DONE" demote "$M/weights"
    broken 4 promote "$M/weights"
    assert_eq "$(cat "$M/weights/residency")" 'device host'
}

@test "a governor that cannot print its deeds exits with 4" {
    start_mount size=64M,host_size=64M,min_stay=0
    make_model 4M 1
    "$GMSFS" load -q "$M/weights" "$MODEL"
    "$GMSFS" demote -q "$M/weights"
    echo "cooldown 0; model w store=weights metrics='echo vllm:num_requests_waiting 1'" >"$T/conf"
    broken 4 governor --once -c "$T/conf" "$M"
    assert_eq "$(cat "$M/weights/residency")" 'device host'
    broken 1 governor --once --dry-run -c "$T/conf" "$M"
}

@test "a fence that cannot be said stands, exits with 4, and tells its token later" {
    start_mount
    make_model 4M 1
    "$GMSFS" load -q "$M/weights" "$MODEL"
    broken 4 fence "$M"
    run_logged -0 "$GMSFS" fence --status "$M"
    token=${output#fenced }
    broken 1 fence --status "$M"
    unheard 4 "$DONE" fence --complete "$token" "$M"
    "$GMSFS" run "$M/weights" -- true # it serves
}

@test "a load that cannot print its wait goes on, commits, and exits with 4" {
    requires jq
    start_mount
    make_model 4M 1
    exec 5<>"$M/weights/lock"
    spawn bash -c 'exec 2>&9 5>&-; exec "$@"' _ "${GMSFS_AS_STARTED[@]}" load "$M/weights" "$MODEL"
    wait_until 10 grep -q ' waiting ' "$M/weights/sessions"
    exec 5>&-
    wait_exit -4 "$SPAWNED" 30
    assert_eq "$(generation)" 1 generation
}

@test "a limit on files under the output is an error, not an end in the midst" {
    requires jq
    start_mount
    make_model 4M 1
    head -c 64K /dev/zero >"$T/out"
    status=0
    (ulimit -f 64 && exec "${GMSFS_AS_STARTED[@]}" load "$M/weights" "$MODEL" >>"$T/out" 2>"$T/said") ||
        status=$?
    cat "$T/said"
    assert_eq "$status" 4 status
    assert_match "$(<"$T/said")" 'File too large'
    assert_eq "$(generation)" 1 generation
}

@test "a commit by run is not undone by a pipe, and its COMMAND gets the signal as ever" {
    start_mount
    "${GMSFS_AS_STARTED[@]}" run -w "$M/weights" -- true >&9 2>&9
    assert_state weights COMMITTED
    status=0
    # The inner one says on standard error that it has joined.
    "${GMSFS_AS_STARTED[@]}" run -w "$M/weights" -- "$GMSFS" run -w "$M/weights" -- true 2>&9 || status=$?
    assert_eq "$status" 4 'status of the inner'
    run_logged -141 "${GMSFS_AS_STARTED[@]}" run -w "$M/weights" -- bash -c 'echo hello >&9'
    assert_match "$output" 'COMMAND failed with status 141, so nothing was committed'
}

@test "a failure stays one, whether it can be said or not" {
    start_mount
    printf short >"$T/bad.safetensors"
    status=0
    "${GMSFS_AS_STARTED[@]}" load "$M/weights" "$T/bad.safetensors" 2>&9 || status=$?
    assert_eq "$status" 1 status
    status=0
    "${GMSFS_AS_STARTED[@]}" load "$M/weights" 2>&9 || status=$?
    assert_eq "$status" 2 status
    assert_state weights EMPTY
}

# ---- commands that only look -----------------------------------------------------------------

@test "a command that only looks fails where its answer cannot be written, with the reason" {
    start_mount
    make_model 4M 1
    "$GMSFS" load -q "$M/weights" "$MODEL"
    "$GMSFS" image save -q "$M/weights" "$T/image"
    local words why='cannot write the output: No space left on device'
    for words in "ls $M/weights" "status $M" "status --watch $M" "sum $M/weights" "verify $M/weights $MODEL" \
        "image ls $T/image" "metadata ls $M/weights" "journal $M" "version" "help" "load --help" "mount --help"; do
        # shellcheck disable=SC2086 # words
        unheard 1 ": $why" $words
        # shellcheck disable=SC2086
        broken 1 $words
    done
}

@test "JSON that cannot be written names the reason, however much there is of it" {
    start_mount
    make_model 4M 1
    "$GMSFS" load -q "$M/weights" "$MODEL"
    "$GMSFS" run -w "$M/weights" -- bash -euc 'cd "$GMSFS_STORE/metadata"
        for i in {1..200}; do echo value >key-of-an-entry-that-fills-the-output-$i; done'
    "$GMSFS" image save -q "$M/weights" "$T/image"
    local words
    for words in "ls --json $M/weights" "status --json $M" "status --json --watch $M" \
        "sum --json $M/weights" "image ls --json $T/image" "metadata ls $M/weights"; do
        # shellcheck disable=SC2086 # words
        unheard 1 'cannot write the output: No space left on device' $words
        [[ $(<"$T/said") != *memory* && $(<"$T/said") != *Input/output* ]] || fail "wrong reason: $words"
    done
}

# ---- descriptors that are not open -----------------------------------------------------------

# Starts a program as a caller with closed standard streams does.
WITHOUT_STREAMS=(bash -c 'exec "$@" 0<&- 1>&- 2>&-' _)

# has_null_streams PID [REGEX]: what is in the place of its standard streams; that of the last.
has_null_streams() {
    local fd
    for fd in 0 1; do
        assert_eq "$(readlink "/proc/$1/fd/$fd")" /dev/null "descriptor $fd of $1" || return 1
    done
    assert_match "$(readlink "/proc/$1/fd/2")" "^${2-/dev/null}\$"
}

has_daemon() {
    mapfile -t DAEMON < <(pgrep -f "^$GMSFS .*$M( |\$)")
    ((${#DAEMON[@]} == 2))
}

# daemon_has_null_streams [REGEX]: keeper and worker of $M, however they were started
daemon_has_null_streams() {
    local pid
    wait_until 5 grep -q uuid "$M/device"
    wait_until 5 has_daemon # and those of an earlier mount have gone
    for pid in "${DAEMON[@]}"; do
        has_null_streams "$pid" "$@" || return 1
    done
}

# In the background it sends its messages to itself, to pass them on.
RELAY='pipe:.*'

@test "a command without standard streams puts no file of a store in their place" {
    requires jq
    start_mount
    make_model 4M 1
    exec 5<>"$M/weights/lock"
    spawn "${WITHOUT_STREAMS[@]}" bash -c 'exec 5>&-; exec "$@"' _ "$GMSFS" load "$M/weights" "$MODEL"
    wait_until 10 grep -q ' waiting ' "$M/weights/sessions"
    has_null_streams "$SPAWNED"
    exec 5>&-
    wait_exit -0 "$SPAWNED" 30
    assert_eq "$(generation)" 1 generation
}

@test "one stream that is closed is replaced, and the others are as they were" {
    start_mount
    run_logged -0 bash -c 'exec "$@" 2>&-' _ "$GMSFS" run -w "$M/weights" -- readlink /proc/self/fd/2
    assert_eq "$output" /dev/null 'standard error of COMMAND'
}

@test "a daemon without standard streams has nothing of its own in their place" {
    requires fuse
    M=$T/m
    mkdir "$M"
    "${WITHOUT_STREAMS[@]}" "$GMSFS" mount -o backend=host,size=16M "$M" 3>&- 4>&-
    daemon_has_null_streams "$RELAY"
    run_logged -0 "$GMSFS" umount "$M"
    "${WITHOUT_STREAMS[@]}" "$GMSFS" host "$M" -o rw,size=16M 3>&- 4>&- # as mount(8) calls it
    daemon_has_null_streams "$RELAY"
    run_logged -0 "$GMSFS" umount "$M"
    spawn "${WITHOUT_STREAMS[@]}" "$GMSFS" mount -f -o backend=host,size=16M "$M"
    wait_until 10 grep -q uuid "$M/device"
    daemon_has_null_streams
    run_logged -0 "$GMSFS" umount "$M"
    wait_exit -0 "$SPAWNED"
}

@test "a copier of a daemon without standard streams has none of its files in their place" {
    requires fuse
    local copier
    fake_gpus 'devices 1'
    M=$T/m
    mkdir "$M"
    "${WITHOUT_STREAMS[@]}" "$GMSFS" mount -o backend=cuda,size=64M,copier_idle=600 "$M" 3>&- 4>&-
    wait_until 5 grep -q uuid "$M/device"
    "$GMSFS" run -w "$M/weights" -- bash -euc 'cd "$GMSFS_STORE/allocations"
        truncate -s 2M a && echo hello | dd of=a conv=notrunc status=none'
    copier=$(pgrep -P "$(worker_of "$(keeper_of "$M")")")
    has_null_streams "$copier" "$RELAY"
    run_logged -0 "$GMSFS" umount "$M"
}
