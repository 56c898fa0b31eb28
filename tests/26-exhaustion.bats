#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# One user takes all that it can have of one thing, and holds it: the others and root go on.
#
# bats file_tags=slow

load helpers
load python
load gms

HOG=$BUILD/tests/tools/hog
OTHER_UID=$((TEST_UID - 1))
WORKER_MAX_KB=$((64 << 10))

setup_file() {
    "$ROOT/scripts/make-model" --single --size 1M --out "$BATS_FILE_TMPDIR/model" >"$BATS_FILE_TMPDIR/name"
}

prepare() {
    requires root
    if [[ $BATS_TEST_DESCRIPTION == *spools* ]]; then
        fake_gpus 'memory 512' # elsewhere they are of the device's memory at once
    fi
    if [[ $BATS_TEST_DESCRIPTION == *descriptors* ]]; then
        # shellcheck disable=SC2016 # for the inner shell
        MOUNT_VIA=(bash -c 'ulimit -n 300; exec "$@"' -)
    fi
    case $BATS_TEST_DESCRIPTION in
    *'told so'*) export GMSFS_STALL_MS=2000 ;;
    *'comes before'*) export GMSFS_STALL_MS=12000 ;; # a third is long
    esac
    if [[ $BATS_TEST_DESCRIPTION == *'held up'* ]]; then
        export GMSFS_GATE=$T/gate # transfers wait while it is there
    fi
    if [[ $BATS_TEST_DESCRIPTION == *frames* ]]; then
        gms_setup
        start_gms_mount size=256M,spool_max=4M,gms_mode=0666
    else
        start_mount size=256M,spool_max=4M
    fi
    # shellcheck disable=SC2034 # start_mount reads it
    MOUNT_VIA=()
    mkdir "$M/hogged" "$M/mine"
    chmod 0777 "$M/hogged"
    commit_something hogged
    commit_something mine
    MODEL=$(tail -n 1 "$BATS_FILE_TMPDIR/name")
}

commit_something() { # STORE
    (
        cd "$M/$1" || exit
        exec 3<>lock
        truncate -s 4096 allocations/a
        printf value >metadata/key
        echo 1 >commit
    )
}

AS_OTHER=(setpriv --reuid="$OTHER_UID" --regid="$OTHER_UID" --clear-groups --inh-caps=-all)

as_other() {
    "${AS_OTHER[@]}" "$@"
}

is_full() {
    grep -q '^full ' "$T/spawn-$SPAWNED" || ! kill -0 "$SPAWNED"
}

# hog RESOURCE ERRNO [MOUNT]: takes it until it is refused with ERRNO.
hog() {
    spawn "${AS_USER[@]}" "$HOG" "${3-$M}" hogged "$1"
    wait_until $((60 * SLOW)) is_full
    assert_match "$(output_of "$SPAWNED")" "^full [0-9]+ $2\$"
}

# bound_is_told NAME: by an event, with the user and the errno
bound_is_told() {
    assert_match "$(jq -r 'select(.event == "bound") | "\(.bound) \(.uid)"' "$M/events" | sort -u)" \
        "$1 $TEST_UID"
}

root_commits() {
    local generation
    generation=$(jq .generation "$M/mine/info")
    (
        exec 3<>"$M/mine/lock"
        echo "$RANDOM" >"$M/mine/metadata/key"
        echo 1 >"$M/mine/commit"
    )
    assert_eq "$(jq .generation "$M/mine/info")" $((generation + 1))
}

others_attach() {
    run_logged -0 as_other "$GMSCTL" open "$M/mine/ctl" r acquire ro 5000 export 0 0 connect "$M" \
        redeem last 253
}

status_is_told() {
    run timeout $((20 * HANG)) "$GMSFS" status "$M"
    [[ $status -eq 0 ]]
}

others_look() {
    assert_eq "$(as_other cat "$M/mine/state")" COMMITTED
    assert_match "$(as_other ls "$M/mine/metadata")" key
    as_other cat "$M/device" "$M/metrics" "$M/mine/layout" >"$T/looked"
    wait_until 20 status_is_told # its own patience of 3 s with a busy machine is short
    assert_match "$output" mine
    assert_match "$output" hogged
}

others_write() {
    mkdir -p "$M/others"
    chown "$OTHER_UID" "$M/others"
    (
        exec 3<>"$M/others/lock"
        as_other dd if=/dev/zero of="$M/others/allocations/a" bs=64K count=8 status=none
        echo 1 >"$M/others/commit"
    )
    rmdir "$M/others"
}

root_loads() {
    run_logged -0 timeout $((30 * HANG)) "$GMSFS" load "$M/mine" "$MODEL"
}

sessions_of_hog() {
    awk -v uid="$TEST_UID" '$5 == uid && $1 ~ /^[0-9]+$/ { print $1 }' "$M/hogged/sessions"
}

root_revokes() {
    local session
    session=$(sessions_of_hog | head -n 1)
    [[ -z $session ]] || echo "revoke $session" >"$M/hogged/abort"
}

worker_is_small() {
    local worker kb
    worker=$(worker_of "$KEEPER")
    kb=$(awk '$1 == "RssAnon:" { print $2 }' "/proc/$worker/status")
    [[ -n ${SANITIZE:-} ]] || ((kb < WORKER_MAX_KB)) || fail "the worker has $kb kB"
}

others_go_on() {
    root_commits
    others_attach
    others_look
    others_write
    worker_is_small
    root_loads
    root_revokes
}

# leaves_theirs RESOURCE ERRNO [BOUND]: a user takes all of it that it may have, and others go on.
leaves_theirs() {
    hog "$1" "$2"
    [[ -z ${3-} ]] || bound_is_told "$3"
    others_go_on
}

@test "one user's open files leave the others theirs" { leaves_theirs files EDQUOT files; }
@test "one user's open directories leave the others theirs" { leaves_theirs directories EDQUOT directories; }
@test "one user's texts leave the others theirs" { leaves_theirs texts EDQUOT texts; }
@test "one user's sessions by ACQUIRE leave the others theirs" { leaves_theirs sessions EDQUOT; }
@test "one user's sessions by lock leave the others theirs" { leaves_theirs locks EDQUOT; }
@test "one user's waiters leave the others theirs" { leaves_theirs waiters EDQUOT; }
@test "one user's tickets leave the others theirs" { leaves_theirs tickets EDQUOT tickets; }

others_register() {
    run_logged -0 as_other "$GMSCTL" connect "$M" region-register self r /key memfd:4096 0 1
    run_logged -0 "$GMSCTL" connect "$M" region-register self r /key memfd:4096 0 1
}

@test "one user's regions leave the others theirs" {
    hog regions EDQUOT
    bound_is_told regions
    others_register
    others_go_on
    run_logged -0 "$GMSCTL" connect "$M" region-unregister-all "$TEST_UID" 0
    assert_eq "$(ls "$M/regions")" "$(printf '%s\n' 0 "$OTHER_UID")"
}

@test "where the daemon has few descriptors one user's regions leave the others theirs" {
    hog regions EDQUOT
    others_register
    others_go_on
}

@test "one user's documents leave the others theirs" { leaves_theirs gathered EDQUOT; }
# The daemon closes this user's oldest connections for its new ones.
@test "one user's connections leave the others theirs" { leaves_theirs connections EINPROGRESS connections; }
@test "one user's spools leave the others theirs" { leaves_theirs spools EDQUOT spools; }

# Each answer that it does not read is held for it: half of what there is, and no more.
@test "one user's frames leave the others theirs" {
    WORKER_MAX_KB=$(((64 + 128 + 64) << 10))
    gms v0 weights lock rw 0 allocate 1 - put long last 0 "$(printf 'v%060000d' 0)" put large last 0 '' commit
    (
        exec 3<>"$M/weights/lock"
        dd if=/dev/zero of="$M/weights/metadata/large" bs=1M count=1 status=none
        echo 1 >"$M/weights/commit"
    )
    hog frames EDQUOT "$(v0_socket weights)"
    bound_is_told frames
    gms v0 weights lock ro 0 entry long
    assert_match "$output" v0000
    gms v0 kv_cache lock rw 0 allocate 1 - put long last 0 "$(printf '%060000d' 0)" commit
    cp "$ROOT"/tests/python/gms*.py "$T"
    run_logged -0 as_other timeout $((20 * HANG)) "$PYTHON" "$T/gms.py" v0 "$(v0_socket weights)" \
        lock ro 0 entry long
    assert_match "$output" v0000
    others_go_on
}

@test "one user's writes leave the others theirs" { leaves_theirs transfers EINPROGRESS; }
@test "one user's writes that are held up are few of the worker's bytes" {
    touch "$T/gate"
    spawn "${AS_USER[@]}" "$HOG" "$M" hogged transfers
    wait_until 20 transfers_are_under_way
    never_within 2 worker_is_large
    rm "$T/gate"
    wait_until 60 is_full
}

transfers_are_under_way() {
    (($(awk '$1 == "gmsfs_transfers_in_flight" { print $2 }' "$M/metrics") > 0))
}

worker_is_large() {
    ! worker_is_small
}

@test "where the daemon has few descriptors one user's sessions and connections leave the others theirs" {
    hog sessions EDQUOT
    hog connections EINPROGRESS
    others_go_on
}

@test "a ticket that comes while the worker has no descriptor left is answered once it has one" {
    local worker limits redeemed
    worker=$(worker_of "$KEEPER")
    ctl open "$M/mine/ctl" r acquire ro 5000 export 0 0 connect "$M" redeem last 253
    redeemed=$(tickets_redeemed)
    spawn as_other "$GMSCTL" open "$M/mine/ctl" r acquire ro 5000 export 0 0 connect "$M" say ready \
        until "$T/go" redeem last 253
    wait_until 10 said "$SPAWNED" ready
    limits=$(prlimit --pid "$worker" --nofile --raw --noheadings --output SOFT,HARD)
    prlimit --pid "$worker" --nofile=3:
    touch "$T/go"
    wait_until 10 has_redeemed $((redeemed + 1))
    prlimit --pid "$worker" --nofile="${limits/ /:}"
    wait_exit "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" 'message count=1 descriptors=1 remaining=0'
    assert_eq "$status" 0
}

# Of root and the mount's owner as many are under way as their sockets take.
@test "few descriptors are under way to a user that does not read, and a reader gets its own" {
    local worker limits i clients=()
    worker=$(worker_of "$KEEPER")
    mkdir "$M/many"
    ctl open "$M/many/ctl" rw acquire rw 5000 alloc 4096 20 '' '' commit
    limits=$(prlimit --pid "$worker" --nofile --raw --noheadings --output SOFT,HARD)
    prlimit --pid "$worker" --nofile=120:
    for i in {1..6}; do
        spawn as_other "$GMSCTL" open "$M/many/ctl" r acquire ro 5000 export 0 0 connect "$M" \
            request last 20 say asked until "$T/go"
        clients+=("$SPAWNED")
        wait_until 10 said "$SPAWNED" asked
    done
    wait_until 10 has_unread 20
    ctl open "$M/many/ctl" r acquire ro 5000 export 0 0 connect "$M" redeem last 20
    has_unread 20
    touch "$T/go"
    for i in "${clients[@]}"; do
        wait_exit "$i"
    done
    wait_until 10 has_unread 0
    prlimit --pid "$worker" --nofile="${limits/ /:}"
}

# as_reader COUNT [OP...]: a process of that user that asks for so many descriptors and does what follows; READER
as_reader() {
    spawn "${AS_OTHER[@]}" "$GMSCTL" open "$M/many/ctl" r acquire ro 5000 export 0 "$1" \
        connect "$M" "${@:2}"
    READER=$SPAWNED
}

# have_unread COUNT: 20 are all of the share; SILENT has asked for them
have_unread() {
    mkdir "$M/many"
    ctl open "$M/many/ctl" rw acquire rw 5000 alloc 4096 20 '' '' commit
    as_reader "$1" request last 20 say asked until "$T/go"
    SILENT=$READER
    wait_until 10 said "$SILENT" asked
    wait_until 10 has_unread "$1"
}

limit_descriptors() {
    prlimit --pid "$(worker_of "$KEEPER")" --nofile=120:
}

# They are under way as ever.
@test "a user's unread answers count over a worker's death until they are read or its connection closed" {
    local sockets
    have_unread 20
    sockets=$(sockets_of_keeper) # one of them is the connection
    kill_worker
    limit_descriptors
    has_unread_at_least 20
    wait_until 10 keeper_has_sockets "$sockets"
    as_reader 20 request last 20 say asked receive say came
    wait_until 10 said "$READER" asked
    never_within 2 said "$READER" came
    as_user "$GMSCTL" open "$M/many/ctl" r acquire ro 5000 export 0 0 connect "$M" redeem last 20
    let_go "$SILENT"
    wait_exit "$READER"
    assert_match "$(output_of "$READER")" came
    wait_until 10 has_unread 0
    wait_until 10 keeper_has_sockets $((sockets - 1))
}

# Two of another user's that have something under way at once.
@test "a worker's death does not keep others from their descriptors, where a user is within his share" {
    local i
    have_unread 1
    for i in {1..9}; do
        as_reader 1 request last 1 say asked until "$T/go"
        wait_until 10 said "$READER" asked
    done
    wait_until 10 has_unread 10
    prlimit --pid "$KEEPER" --nofile=120: # and so of the next worker
    kill_worker
    for i in 'until' 'receive say'; do
        # shellcheck disable=SC2086 # a list
        spawn "${AS_USER[@]}" "$GMSCTL" open "$M/many/ctl" r acquire ro 5000 export 0 5 \
            connect "$M" request last 5 say asked $i "$T/go"
        wait_until 10 said "$SPAWNED" asked
    done
    wait_exit "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" 'descriptors=5'
    let_go "$SILENT"
}

@test "a user that waits too long for its share is told so" {
    have_unread 20
    limit_descriptors
    as_reader 20 request last 20 say asked receive
    wait_until 10 said "$READER" asked
    wait_until 10 grep -q "process $READER (uid $OTHER_UID) waited too long for its user's share" "$LOG"
    wait_exit "$READER"
    let_go "$SILENT"
}

@test "a request that has waited long for its share comes before others of the same user" {
    local first
    have_unread 10
    limit_descriptors
    as_reader 20 request last 20 say asked receive say came
    first=$READER
    wait_until 10 said "$first" asked
    never_within 5 said "$first" came
    as_reader 5 request last 5 say asked receive say came
    wait_until 10 said "$READER" asked
    never_within 1 said "$READER" came
    let_go "$SILENT"
    wait_exit "$first"
    assert_match "$(output_of "$first")" 'descriptors=20'
    wait_exit "$READER"
    assert_match "$(output_of "$READER")" 'descriptors=5'
}

# COMMAND...: is done before
goes_with_unread() {
    mkdir "$M/many"
    ctl open "$M/many/ctl" rw acquire rw 5000 alloc 4096 20 '' '' commit
    as_reader 20 request last 20 until "$T/close" close say closed pause
    wait_until 10 has_unread 20
    touch "$T/close"
    wait_until 10 said "$READER" closed
    "$@"
    stop_mount
    let_go "$READER"
}

@test "a mount whose descriptors a client has not read goes as any other" {
    goes_with_unread true
}

@test "a mount whose descriptors a client has not read goes as any other, also when its worker has died since" {
    goes_with_unread kill_worker
}

sockets_of_keeper() {
    find "/proc/$KEEPER/fd" -lname 'socket:*' -printf '.' | wc -c
}

keeper_has_sockets() { # COUNT
    [[ $(sockets_of_keeper) -eq $1 ]]
}

# At least so many.
has_unread_at_least() {
    [[ $(awk '$1 == "gmsfs_descriptors_unread" { print $2 }' "$M/metrics") -ge $1 ]]
}

has_unread() {
    [[ $(awk '$1 == "gmsfs_descriptors_unread" { print $2 }' "$M/metrics") -eq $1 ]]
}

tickets_redeemed() {
    awk '$1 == "gmsfs_tickets_redeemed_total" { print $2 }' "$M/metrics"
}

has_redeemed() {
    [[ $(tickets_redeemed) -eq $1 ]]
}

@test "a user's share is there again when its holder is gone" {
    local first
    hog files EDQUOT
    first=$(output_of "$SPAWNED")
    let_go "$SPAWNED"
    wait_until 10 device_files_are_few
    hog files EDQUOT
    assert_eq "$(output_of "$SPAWNED")" "$first"
}

device_files_are_few() {
    (($(awk '$1 == "gmsfs_open_files" { print $2 }' "$M/metrics") < 10))
}

# The machine's memory that the journal's files use.
journal_kb() {
    find "/proc/$WORKER/fd/" -lname '/memfd:journal*' -exec stat -L -c %b {} + |
        awk '{ blocks += $1 } END { print int(blocks / 2) }'
}

journal_is_small() {
    (($(journal_kb) < 4096))
}

held() { # bytes of the device, descriptors of keeper and worker
    echo "$(device_get .used_bytes) $(fds_of "$KEEPER") $(fds_of "$WORKER")"
}

write_much() {
    local i
    exec 3<>"$M/hogged/lock"
    for i in {1..24}; do
        dd if=/dev/zero of="$M/hogged/metadata/$i" bs=1M count=1 status=none
    done
    dd if=/dev/zero of="$M/hogged/allocations/b" bs=1M count=2 status=none
    exec sleep infinity
}

@test "memory and descriptors that a crowd took are there again a while after its end" {
    local before kind crowd=()
    WORKER=$(worker_of "$KEEPER")
    before=$(held)
    for kind in tickets sessions; do
        hog "$kind" EDQUOT
        crowd+=("$SPAWNED")
    done
    spawn "${AS_OTHER[@]}" "$GMSCTL" open "$M/hogged/ctl" r acquire ro 5000 export 0 0 \
        connect "$M" request last 1 say asked pause
    crowd+=("$SPAWNED")
    wait_until 10 said "$SPAWNED" asked
    kill -KILL "${crowd[@]}"
    spawn "${AS_USER[@]}" bash -c "M=$M; $(declare -f write_much); write_much"
    wait_until 20 test -s "$M/hogged/allocations/b"
    (($(journal_kb) > 16 << 10)) || fail "the journal has $(journal_kb) kB"
    kill -KILL "$SPAWNED"
    wait_until 20 journal_is_small
    assert_eq "$(held)" "$before"
    worker_is_small
}

load_something() {
    local i
    exec 3<>"$M/mine/lock"
    for i in {1..3}; do
        dd if=/dev/zero of="$M/mine/metadata/$i" bs=1M count=1 status=none
        rm "$M/mine/metadata/$i"
    done
    echo 1 >"$M/mine/commit"
}

journal_is_tiny() {
    (($(journal_kb) < 1024))
}

@test "records of filling a store are not kept once it is quiet" {
    WORKER=$(worker_of "$KEEPER")
    (load_something)
    (($(journal_kb) > 3 << 10)) || fail "the journal has $(journal_kb) kB"
    wait_until 20 journal_is_tiny
    kill -KILL "$WORKER"
    run_logged -0 timeout $((20 * HANG)) cat "$M/mine/state"
    assert_eq "$output" COMMITTED
}
