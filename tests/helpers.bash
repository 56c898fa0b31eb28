# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The base of every bats file here: after `load helpers` each test gets a directory of its own in
# $T, mounts by start_mount, background processes by spawn, and a teardown that leaves nothing
# behind, however the test ended. What a file does before each of its tests is its `prepare`; a
# setup or teardown of its own calls common_setup or common_teardown.
#
# 01-helpers.bats tests the helpers.

bats_require_minimum_version 1.5.0

ROOT=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd)
BUILD=${GMSFS_BUILD:-$ROOT/build}
GMSFS=${GMSFS:-$BUILD/test/gmsfs}
# Sanitized programs are slower; every limit and duration in seconds is multiplied by this.
SLOW=${GMSFS_TEST_SLOW:-1}
# Limits that only end a hang are multiplied by this: a machine that runs other work is no hang.
HANG=$((4 * SLOW))
# shellcheck disable=SC2034 # for tests
MIB=$((1 << 20))

prepare() { :; }

setup() {
    common_setup
    prepare
}

teardown() {
    common_teardown
}

# Settings of the machine and of its user are not this test's.
own_settings() {
    export HOME=$T
    unset http_proxy https_proxy all_proxy no_proxy HTTPS_PROXY ALL_PROXY NO_PROXY
}

common_setup() {
    T=$(mktemp -d "${TMPDIR:-/tmp}/t.XXXXXX")
    chmod 755 "$T" # tests act as other users, which must reach the mount
    export GMSFS_TEST_DIR=$T
    M='' W='' KEEPER='' LOG='' SPAWNED=''
    MOUNTS=() SPAWNS=() MOUNT_VIA=()
    declare -gA KEEPER_OF=() LOG_OF=()
    BACKEND=host
    case ${GMSFS_TEST_BACKEND-} in
    cuda) BACKEND=cuda ;;
    fake-cuda) fake_gpus 'devices 1' ;;
    esac
}

# ---- messages --------------------------------------------------------------------------------

fail() {
    printf 'failed: %s\n' "$*" >&2
    return 1
}

assert_eq() { # GOT WANT [NAME]
    [[ $1 == "$2" ]] || fail "${3:-value} is '$1', expected '$2'"
}

assert_match() { # TEXT REGEX
    [[ $1 =~ $2 ]] || fail "'$1' does not match '$2'"
}

# run_logged [-STATUS | !] COMMAND...: bats' `run`, with the command and its output in the test's
# log; checks the expected exit status after showing the output.
run_logged() {
    local want=''
    case ${1-} in
    -[0-9]*)
        want=${1#-}
        shift
        ;;
    '!')
        want=$1
        shift
        ;;
    esac
    printf '$ %s\n' "$*"
    run "$@"
    [[ -z $output ]] || printf '%s\n' "$output"
    [[ $status -eq 0 ]] || printf '[exit status %s]\n' "$status"
    case $want in
    '') return 0 ;;
    '!') [[ $status -ne 0 ]] || fail "succeeded, expected to fail: $*" ;;
    *) [[ $status -eq $want ]] || fail "exit status $status, expected $want: $*" ;;
    esac
}

# shellcheck source=tests/abilities.bash
source "$ROOT/tests/abilities.bash"
# shellcheck source=tests/models.bash
source "$ROOT/tests/models.bash"
# shellcheck source=tests/gmsctl.bash
source "$ROOT/tests/gmsctl.bash"

# ---- users, commands and files ----------------------------------------------------------------

# A uid with a name: fusermount3 refuses other uids.
TEST_UID=${GMSFS_TEST_UID:-$(id -u nobody)}

AS_USER=(setpriv --reuid="$TEST_UID" --regid="$TEST_UID" --clear-groups --inh-caps=-all)

# as_user COMMAND...: without any privilege, with a uid that owns nothing.
as_user() {
    "${AS_USER[@]}" "$@"
}

# cli [-STATUS] ARGUMENT...: runs gmsfs, which has to end with this status (0).
cli() {
    local want=-0
    case $1 in -[0-9]*)
        want=$1
        shift
        ;;
    esac
    run_logged "$want" timeout $((60 * HANG)) "$GMSFS" "$@"
}

# has_open PID DIR: the process has a file in DIR open, with a name or without; or it has gone
has_open() {
    process_gone "$1" || readlink "/proc/$1/fd/"* 2>/dev/null | grep -q "^$2/"
}

# cached_bytes FILE: prints how many of its bytes are in the page cache
cached_bytes() {
    fincore --bytes --noheadings --output RES "$1" | tr -d ' '
}

# drop_cached FILE...: writes the files to disk and drops them from the page cache
drop_cached() {
    sync "$@"
    local file
    for file in "$@"; do
        dd if="$file" iflag=nocache count=0 status=none
    done
}

# in_mountns SCRIPT ARGUMENT...: as bash -c, in a mount namespace of its own. tests/run keeps the
# mounts of other files out of it, because a copy of a mount keeps its daemon alive.
in_mountns() {
    unshare --mount --propagation private bash -c "$1" _ "${@:2}"
}

# ---- waiting ---------------------------------------------------------------------------------

now_ms() {
    local us=${EPOCHREALTIME//[!0-9]/}
    echo $((us / 1000))
}

# wait_until SECONDS COMMAND...: until COMMAND succeeds. Fails when the time is over, and at once
# when a daemon of this test died, because waiting is useless then.
wait_until() {
    local limit_s=$1 end_us
    shift
    end_us=$((${EPOCHREALTIME//[!0-9]/} + limit_s * HANG * 1000000))
    until "$@" >/dev/null 2>&1; do
        if [[ -z ${outlives_daemons-} ]] && ! daemons_live; then
            fail "a daemon died while waiting for: $*"
            return 1
        fi
        if ((${EPOCHREALTIME//[!0-9]/} > end_us)); then
            fail "still not so after $((limit_s * HANG)) s: $*"
            return 1
        fi
        sleep 0.02
    done
}

# never_within SECONDS COMMAND...: COMMAND stays false that long.
never_within() {
    local end_us=$((${EPOCHREALTIME//[!0-9]/} + $1 * 1000000))
    shift
    while ((${EPOCHREALTIME//[!0-9]/} < end_us)); do
        if "$@" >/dev/null 2>&1; then
            fail "happened, and must not: $*"
            return 1
        fi
        sleep 0.02
    done
}

# stat_of PID: sets STAT to the fields of /proc/PID/stat from the third on (the state, the parent).
# Starts no process, because each turn of each wait calls it.
stat_of() {
    local line=''
    { IFS= read -rd '' line <"/proc/$1/stat"; } 2>/dev/null || [[ -n $line ]] || return
    read -ra STAT <<<"${line##*) }"
}

process_lives() { # PID; a zombie does not
    local STAT
    stat_of "$1" && [[ ${STAT[0]} != [ZX] ]]
}

process_gone() {
    ! process_lives "$1"
}

process_stopped() { # PID: by a signal
    local STAT
    stat_of "$1" && [[ ${STAT[0]} == T ]]
}

daemons_live() {
    local at
    for at in "${MOUNTS[@]}"; do
        process_lives "${KEEPER_OF[$at]}" || return 1
    done
}

# ---- background processes --------------------------------------------------------------------

# spawn COMMAND...: runs it in the background, with its output in $T/spawn.PID (see output_of), and
# sets SPAWNED to its pid. Teardown kills the processes that remain.
spawn() {
    local n=${#SPAWNS[@]}
    "$@" </dev/null >"$T/spawn.$n" 2>&1 3>&- 4>&- &
    SPAWNED=$!
    SPAWNS+=("$SPAWNED")
    ln -s "spawn.$n" "$T/spawn-$SPAWNED"
}

output_of() { # PID
    cat "$T/spawn-$1"
}

# wait_exit [-STATUS] PID [SECONDS]: sets status to its exit status; checks the expected one.
wait_exit() {
    local want=''
    case $1 in -[0-9]*)
        want=${1#-}
        shift
        ;;
    esac
    wait_until_any "${2:-10}" process_gone "$1" || return 1
    status=0
    wait "$1" || status=$?
    [[ ${want:-$status} -eq $status ]] ||
        fail "process $1: exit status $status, expected $want; output: $(output_of "$1" 2>/dev/null)"
}

# As wait_until, for waits that outlive the daemon.
wait_until_any() {
    local outlives_daemons=1
    wait_until "$@"
}

# Prints every process that this test started and that then executed a program, in any session: its
# environment shows it.
stray_processes() {
    (
        unset GMSFS_TEST_DIR # or grep would find itself
        { grep -lzsxF "GMSFS_TEST_DIR=$T" /proc/[0-9]*/environ || true; } | tr -dc '0-9\n'
    )
}

kill_strays() {
    local pid
    for pid in $(stray_processes); do
        kill -KILL "$pid" 2>/dev/null || true
    done
}

# Kills everything but the daemons that are still to be stopped, and their workers. A process that
# cannot even be killed hangs in a mount that does not answer interrupts: that is a bug.
kill_clients() {
    local pid hanging=()
    ! clients_gone || return 0
    for pid in "${SPAWNS[@]}" $(stray_processes); do
        belongs_to_daemon "$pid" || kill -KILL "$pid" 2>/dev/null || true
    done
    wait_until_any 20 clients_gone 2>/dev/null && return
    for pid in "${SPAWNS[@]}" $(stray_processes); do
        belongs_to_daemon "$pid" || process_gone "$pid" || hanging+=("$pid")
    done
    [[ ${#hanging[@]} -eq 0 ]] || fail "processes cannot be killed, they hang in a mount: ${hanging[*]}"
}

clients_gone() {
    local pid
    for pid in "${SPAWNS[@]}" $(stray_processes); do
        belongs_to_daemon "$pid" || process_gone "$pid" || return 1
    done
}

belongs_to_daemon() { # PID
    local at pid=$1 STAT
    while [[ -n $pid && $pid -gt 1 ]]; do
        for at in "${MOUNTS[@]}"; do
            [[ $pid != "${KEEPER_OF[$at]}" ]] || return 0
        done
        stat_of "$pid" || return 1
        pid=${STAT[1]}
    done
    return 1
}

fds_of() { # PID
    find "/proc/$1/fd" -mindepth 1 | wc -l
}

fds_are() { # PID COUNT
    [[ $(fds_of "$1") -le $2 ]]
}

# ---- mounts ----------------------------------------------------------------------------------

# start_mount [OPTIONS [DIRECTORY]]: mounts host memory (or that of $BACKEND) in the foreground of a
# background process and waits until the mount answers. Sets M, KEEPER and LOG; a test may have
# several. MOUNT_VIA holds words to put before the command, for example ("${AS_USER[@]}").
start_mount() {
    local opts=${1-}
    requires fuse || return 1
    case ,$opts, in *,backend=*) ;; *) opts=backend=$BACKEND${opts:+,$opts} ;; esac
    case ,$opts, in *,size=*) ;; *) opts=$opts,size=256M ;; esac
    M=${2:-$T/m${#KEEPER_OF[@]}}
    LOG=$T/log${#KEEPER_OF[@]}
    export GMSFS_LAST_WORKER=$T/last-worker
    rm -f "$GMSFS_LAST_WORKER"
    mkdir -p "$M"
    [[ ${#MOUNT_VIA[@]} -eq 0 ]] || chmod 777 "$M"
    printf '$ gmsfs mount -f -o %s %s\n' "$opts" "$M"
    ASAN_OPTIONS=${GMSFS_DAEMON_ASAN_OPTIONS:-${ASAN_OPTIONS:-}} \
        "${MOUNT_VIA[@]}" "$GMSFS" mount -f -o "$opts" "$M" </dev/null >"$LOG" 2>&1 3>&- 4>&- &
    KEEPER=$!
    MOUNTS+=("$M")
    KEEPER_OF[$M]=$KEEPER
    LOG_OF[$M]=$LOG
    wait_until 10 mount_answers "$M" || {
        tail -n 20 "$LOG" >&2
        return 1
    }
}

# start_weights [OPTIONS [PATH]]: start_mount; W is the first store.
start_weights() {
    start_mount "$@" || return 1
    # shellcheck disable=SC2034 # for tests
    W=$M/weights
}

# fake_gpus LINE...: from here on the driver is that of tests/fake_cuda, its machine is as the lines
# say (fake.h lists them), and mounts use its GPUs. Another call changes the machine at once.
fake_gpus() {
    export GMSFS_FAKE_CUDA=$T/gpus LD_LIBRARY_PATH=$BUILD/tests/fake_cuda
    BACKEND=cuda
    mkdir -p "$GMSFS_FAKE_CUDA"
    chmod 777 "$GMSFS_FAKE_CUDA"
    printf '%s\n' "$@" >"$GMSFS_FAKE_CUDA/control.new"
    mv "$GMSFS_FAKE_CUDA/control.new" "$GMSFS_FAKE_CUDA/control" # whole, for others read it
}

# The tree can be seen a moment before `.fds` takes connections; the daemon logs when both work.
mount_answers() {
    local log=''
    IFS= read -rd '' log <"${LOG_OF[$1]}" || true
    [[ $log == *': mounted ('* ]] &&
        [[ -n $("${MOUNT_VIA[@]}" timeout 5 cat "$1/device") ]] || return
    [[ -e $1/device ]] || true # waits until the kernel has released the file that was read
}

is_mounted() {
    local at
    while read -r _ _ _ _ at _; do
        [[ $at != "$1" ]] || return 0
    done </proc/self/mountinfo
    return 1
}

not_mounted() {
    ! is_mounted "$1"
}

worker_of() { # KEEPER: the process that serves
    local pid pids=()
    read -ra pids < <(cat "/proc/$1/task/"*/children) || true
    for pid in "${pids[@]}"; do
        if process_lives "$pid"; then echo "$pid"; fi
    done
}

# keeper_of MOUNTPOINT: also for a daemon that start_mount did not start.
keeper_of() {
    local dir pid ppid
    for dir in /proc/[0-9]*; do
        pid=${dir#/proc/}
        is_gmsfs_mount "$pid" "$1" || continue
        ppid=$(awk '$1 == "PPid:" { print $2 }' "$dir/status" 2>/dev/null)
        is_gmsfs_mount "$ppid" "$1" || echo "$pid"
    done
}

is_gmsfs_mount() { # PID MOUNTPOINT
    local args=()
    mapfile -d '' -t args 2>/dev/null <"/proc/$1/cmdline" || return 1
    [[ ${args[0]-} == *gmsfs* && " ${args[*]} " == *" mount "* && " ${args[*]} " == *" $2 "* ]]
}

unmount_once() {
    if [[ $EUID -eq 0 ]]; then umount "$1"; else fusermount3 -u "$1"; fi
}

# stop_mount [MOUNTPOINT]: unmounts, waits for the keeper, and fails unless it exits with 0 and its
# log shows no bug. Open files get a moment, because the kernel releases them some time after
# close(2).
stop_mount() {
    local at=${1:-$M} keeper log code=0
    keeper=${KEEPER_OF[$at]}
    log=${LOG_OF[$at]}
    if ! wait_until 5 unmount_once "$at"; then
        unmount_once "$at" || true
        holders_of "$at" >&2
        return 1
    fi
    forget_mount "$at"
    wait_until_any 10 process_gone "$keeper" || return 1
    wait "$keeper" || code=$?
    [[ $code -eq 0 ]] || fail "the keeper of $at ended with exit status $code" || return 1
    scan_log "$log"
}

# Kills the worker and keeps others from replacing it. The test expects that the keeper gives up.
kill_last_worker() {
    forget_mount "$M"
    touch "$GMSFS_LAST_WORKER"
    kill -KILL "$(worker_of "$KEEPER")"
}

# expect_death [MOUNTPOINT]: from here on the daemon may die; teardown only cleans up, and still
# checks the log.
expect_death() {
    forget_mount "${1:-$M}"
}

forget_mount() {
    local at kept=()
    for at in "${MOUNTS[@]}"; do
        [[ $at == "$1" ]] || kept+=("$at")
    done
    MOUNTS=("${kept[@]}")
}

scan_log() {
    if grep -nE '\bBUG\b|Sanitizer|runtime error:|[Aa]ssertion .*failed|dumped core' "$1" >&2; then
        fail "the daemon's log $1 shows a bug"
    fi
}

holders_of() { # DIRECTORY: the processes with files open below it
    local link target
    for link in /proc/[0-9]*/fd/* /proc/[0-9]*/cwd; do
        target=$(readlink "$link" 2>/dev/null) || continue
        [[ $target != "$1"* ]] || echo "held: $link -> $target"
    done
}

# ---- reading a mount -------------------------------------------------------------------------

store_path() { # a store's name in $M, or its path
    case $1 in /*) echo "$1" ;; *) echo "$M/$1" ;; esac
}

state_is() {
    [[ $(cat "$(store_path "$1")/state") == "$2" ]]
}

# assert_state STORE STATE [SECONDS]: fails unless the store gets this state in time (2 s): locks
# are released just after close returned.
assert_state() {
    wait_until "${3:-2}" state_is "$1" "$2" 2>/dev/null ||
        fail "$1 is $(cat "$(store_path "$1")/state"), expected $2"
}

nothing_committed() { # STORE
    assert_state "$1" EMPTY
    assert_eq "$(cat "$(store_path "$1")/layout_hash")" '' hash
}

# no_sessions [PATH...]: none of these stores, or of weights alone, has a session.
no_sessions() {
    [[ $# -gt 0 ]] || set -- "$M/weights"
    [[ -z $(cat "${@/%//sessions}") ]]
}

mode_of() { # PATH
    stat -c %a "$1"
}

device_get() { # a jq filter over the device's JSON
    jq -r "$1" "$M/device"
}

device_is() { # JQ VALUE
    [[ $(device_get "$1") == "$2" ]]
}

used_is() { # BYTES
    device_is .used_bytes "$1"
}

metric_is() { # NAME VALUE
    grep -qxF "$1 $2" "$M/metrics"
}

# Succeeds if more workers than this have resumed the mount so far.
resumed_more_than() { # COUNT
    [[ $(grep -c ' serves, ' "$LOG") -gt $1 ]]
}

# Kills the worker and waits until another one serves.
kill_worker() {
    local before
    before=$(grep -c ' serves, ' "$LOG" || true)
    kill -KILL "$(worker_of "$KEEPER")"
    wait_until_any 10 resumed_more_than "$before"
}

# take_over [PROGRAM]: another keeper for $M, in the background of the test; the former has to end in order.
take_over() {
    local former=$KEEPER code=0
    ASAN_OPTIONS=${GMSFS_DAEMON_ASAN_OPTIONS:-${ASAN_OPTIONS:-}} \
        "${1-$GMSFS}" mount -f --takeover "$M" </dev/null >"$LOG.next" 2>&1 3>&- 4>&- 6>&- 7>&- &
    KEEPER=$!
    wait_until_any 20 grep -q ': taken over (' "$LOG.next"
    KEEPER_OF[$M]=$KEEPER
    wait_until_any 20 process_gone "$former"
    wait "$former" || code=$?
    assert_eq "$code" 0 "the former keeper's exit status"
    grep -q 'another process is the keeper now' "$LOG"
    LOG=$LOG.next
    LOG_OF[$M]=$LOG
}

# api_test NAME ARGUMENTS...: a program of tests/api.
api_test() {
    local name=$1
    shift
    run_logged -0 timeout $((60 * HANG)) "$BUILD/tests/api/test_$name" "$@"
}

# ---- the end ---------------------------------------------------------------------------------

# After a test that passed every mount must end cleanly; after one that failed its logs are shown,
# and everything is removed.
common_teardown() {
    local at log result=0
    [[ -n ${T:-} ]] || return 0
    kill_clients || result=1
    if [[ -n ${BATS_TEST_COMPLETED:-} && $result -eq 0 ]]; then
        for at in "${MOUNTS[@]}"; do
            stop_mount "$at" || result=1
        done
    fi
    kill_strays
    unmount_below "$T"
    for log in "${LOG_OF[@]}"; do
        scan_log "$log" || result=1
        [[ $result -eq 0 && -n ${BATS_TEST_COMPLETED:-} ]] || show_log "$log"
    done
    rm -rf --one-file-system "$T"
    return "$result"
}

show_log() {
    echo "--- the end of $1"
    tail -n 40 "$1"
}

# Aborts the connection first: a client that hangs in the mount cannot even be killed before.
unmount_below() {
    local at dev
    grep -qF " $1/" /proc/self/mountinfo || return 0
    while read -r at dev; do
        { echo 1 >"/sys/fs/fuse/connections/${dev#*:}/abort"; } 2>/dev/null || true
        umount -l "$at" 2>/dev/null || fusermount3 -uz "$at" 2>/dev/null || true
    done < <(awk -v dir="$1/" 'index($5, dir) == 1 { print $5, $3 }' /proc/self/mountinfo | tac)
}
