# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154 # output, lines and status are set by bats' run
# For tests that use a mount by system calls: gmsctl (tests/tools/gmsctl.c), processes that hold or
# wait for a lock, and short ways to a store with contents.
#
# A process that is started while the test's own shell holds a lock is its descendant and joins it.
# So where processes compete, all of them are started by `hold` or `spawn`.

GMSCTL=${GMSCTL:-$BUILD/tests/tools/gmsctl}

ctl() { # OP...
    run_logged -0 timeout $((30 * HANG)) "$GMSCTL" "$@"
}

# expect ERRNO OP...: the last of the operations fails with this errno.
expect() {
    local want=$1 LC_ALL=C # the bytes of an allocation are no text
    shift
    run_logged -1 timeout $((30 * HANG)) "$GMSCTL" "$@"
    assert_eq "${lines[-1]-}" "$want" errno
}

# expect_message ERRNO COMMAND...: a command fails with the message of this errno.
expect_message() {
    local want=$1
    shift
    run_logged '!' "$@"
    assert_match "$output" "$(message_of "$want")"
}

message_of() {
    case $1 in
    EACCES) echo 'Permission denied' ;;
    EAGAIN) echo 'Resource temporarily unavailable' ;;
    EBUSY) echo 'Device or resource busy' ;;
    ECANCELED) echo 'Operation canceled' ;;
    EINVAL) echo 'Invalid argument' ;;
    ENOLCK) echo 'No locks available' ;;
    ENOMEM) echo 'Cannot allocate memory' ;;
    ENOSPC) echo 'No space left on device' ;;
    EPERM) echo 'Operation not permitted' ;;
    EFBIG) echo 'File too large' ;;
    EDQUOT) echo 'Disk quota exceeded' ;;
    ENOENT) echo 'No such file or directory' ;;
    EEXIST) echo 'File exists' ;;
    *) fail "no message for $1" ;;
    esac
}

# hold OP...: does the operations in the background, says "held" and stays; sets HOLDER.
hold() {
    spawn "$GMSCTL" "$@" say held pause
    HOLDER=$SPAWNED
    wait_until 10 said "$HOLDER" held || {
        output_of "$HOLDER"
        return 1
    }
}

# Commits the store of the lock at descriptor 5 of the test's shell, and closes the lock.
commit_5() {
    echo 1 >"${W:-$M/weights}/commit"
    exec 5>&-
}

said() { # PID LINE
    grep -qxF -e "$2" "$T/spawn-$1"
}

let_go() { # PID...
    local pid
    for pid in "$@"; do
        kill "$pid"
        wait_exit "$pid"
    done
}

# wait_for_waiters STORE COUNT: until that many processes wait for the lock.
wait_for_waiters() {
    wait_until 5 waiters_are "$1" "$2"
}

waiters_are() {
    [[ $(grep -c ' waiting ' "$(store_path "$1")/sessions") -eq ${2:?} ]]
}

sessions_are() { # STORE MODE COUNT
    [[ $(grep -c "^[0-9]* $2 held " "$(store_path "$1")/sessions") -eq ${3:?} ]]
}

field() { # NAME: of the last line that has NAME=VALUE, in $output
    sed -n "s/.*\\b$1=\\([^ ]*\\).*/\\1/p" <<<"$output" | tail -n 1
}

info_of() { # STORE FILTER
    jq -r "$2" "$(store_path "$1")/info"
}

# names DIRECTORY: prints its entries, sorted bytewise, on one line.
names() {
    find "$1" -mindepth 1 -maxdepth 1 -printf '%f\n' | LC_ALL=C sort | paste -sd ' '
}

# last_event FILTER: applies the filter to the newest line of events.
last_event() {
    tail -n 1 "$M/events" | jq -r "$1"
}

# commit_store [STORE]: commits an allocation `a` of 1 MiB that begins with "committed" (where bytes
# can be written) and an entry `key` of value "value" bound to it; the store is free afterwards.
commit_store() {
    local path bytes=(pwrite 0 committed)
    path=$(store_path "${1-weights}")
    [[ $BACKEND == host ]] || bytes=()
    ctl open "$path/lock" rw \
        open "$path/allocations/a" rwc ftruncate 1048576 "${bytes[@]}" \
        use 0 put key value 0 16 commit
    wait_until 5 state_is "$path" COMMITTED
}

# ---- waiting for the lock of $W ----------------------------------------------------------------

# wait_for_lock OP...: a process that waits; sets WAITER and waits until `sessions` shows it.
wait_for_lock() {
    local before
    before=$(grep -c ' waiting ' "$W/sessions" || true)
    spawn "$GMSCTL" "$@" say granted pause
    WAITER=$SPAWNED
    wait_for_waiters weights $((before + 1))
}

granted() { # PID
    said "$1" granted
}

not_granted() {
    ! said "$1" granted
}

waiter_id() { # PID
    awk -v pid="$1" '$4 == pid { print $1 }' "$W/sessions"
}

# unchanged: everything from commit_store is there, and no process holds the store.
unchanged() {
    assert_state weights COMMITTED
    assert_eq "$(names "$W/allocations")" a allocations
    assert_eq "$(head -c 9 "$W/allocations/a")" committed bytes
    assert_eq "$(cat "$W/metadata/key")" value
    assert_eq "$(info_of weights .generation)" 1 generation
}
