#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs governor: small shell programs stand in for engines. They hold their store while they are awake,
# let it go when they are put to sleep, and say how many requests wait as a file of theirs says.
#
# shellcheck disable=SC2154 # output is set by bats' run
# shellcheck disable=SC2016 # bodies of shells
# bats file_tags=slow

load helpers

prepare() {
    mkdir -p "$T/engines"
    export ENGINES=$T/engines
    write_engine
}

# The requests to the stand-ins are in $ENGINES/log.
write_engine() {
    cat >"$ENGINES/engine" <<'EOF'
#!/bin/bash
cd "$ENGINES" || exit
case $2 in
metrics)
    [[ ! -e $1.broken ]] || { echo "$1 is out of order" >&2; exit 1; }
    echo "vllm:num_requests_waiting{engine=\"0\"} $(cat "$1.waiting")"
    echo "vllm:num_requests_running{engine=\"0\"} $(cat "$1.running")"
    ;;
sleep)
    [[ ! -e $1.stuck ]] || { echo "$1 does not sleep" >&2; exit 1; }
    kill "$(cat "$1.pid")"
    while grep -q " held " "$MOUNT/$1/sessions"; do sleep 0.01; done
    echo 0 >"$1.running"
    echo "$1 sleeps" >>log
    ;;
wake)
    echo "$1 wakes" >>log
    sleep 1000 <"$MOUNT/$1/lock" >/dev/null 2>&1 &
    echo $! >"$1.pid"
    cp "$1.waiting" "$1.running" # it serves some, and more come
    ;;
esac
EOF
    chmod +x "$ENGINES/engine"
}

start() { # [OPTIONS]
    start_mount "${1:-size=12M,host_size=64M,min_stay=0}"
    export MOUNT=$M
}

have() { # MODEL BYTES [asleep]: a store of so many bytes, and an engine that holds it unless it sleeps
    mkdir "$M/$1"
    ctl open "$M/$1/lock" rw alloc "$2" 1 a '' commit
    echo 0 >"$ENGINES/$1.waiting"
    echo 0 >"$ENGINES/$1.running"
    [[ ${3-} == asleep ]] || wake "$1"
}

wake() { # MODEL
    spawn bash -c 'exec sleep 1000 <"$1"' - "$M/$1/lock"
    echo "$SPAWNED" >"$ENGINES/$1.pid"
    wait_until 10 is_held "$1"
}

is_held() { # MODEL
    [[ $(info_of "$1" .held) == 1 ]]
}

# configure [LINE...]: the two models, and statements before them.
configure() {
    {
        printf '%s\n' "interval 200ms; cooldown ${COOLDOWN-0}" "$@"
        hooks code "class=${CLASS-critical}"
        hooks batch "class=batch ${BATCH-}"
    } >"$T/conf"
}

hooks() { # MODEL WORDS
    local engine="$ENGINES/engine $1"
    printf "model %s store=%s %s sleep='%s sleep' wake='%s wake' metrics='%s metrics'\n" \
        "$1" "$1" "$2" "$engine" "$engine" "$engine"
}

govern() { # in the background
    spawn "$GMSFS" governor -c "$T/conf" "$M"
    GOVERNOR=$SPAWNED
}

once() { # [-STATUS] [OPTIONS...]: one round
    local want=()
    case ${1-} in -[0-9]*)
        want=("$1")
        shift
        ;;
    esac
    cli "${want[@]}" governor --once -c "$T/conf" "$@" "$M"
}

ask() { # MODEL REQUESTS: so many wait; with 0 none is served any more, either
    echo "$2" >"$ENGINES/$1.waiting"
    [[ $2 != 0 ]] || echo 0 >"$ENGINES/$1.running"
}

is_at() { # TIERS STORE
    [[ $(cat "$M/$2/residency") == "$1" ]]
}

at() { # TIERS STORE
    assert_eq "$(cat "$M/$2/residency")" "$1" "$2"
}

has_said() { # REGEX: the governor in the background did
    output_of "$GOVERNOR" | grep -qE "$1"
}

times_said() { # REGEX
    output_of "$GOVERNOR" | grep -cE "$1" || :
}

# The batch model has the device, and a copy on the host; the critical one sleeps there.
batch_serves() {
    start
    have code $((8 << 20)) asleep
    cli demote -q "$M/code"
    have batch $((8 << 20))
    echo +host >"$M/batch/residency"
    wait_until 10 is_at 'device host' batch
    echo 3 >"$ENGINES/batch.running"
}

in_turn() { # WORDS: these lines are in the log of the engines, in this order
    assert_eq "$(paste -sd, "$ENGINES/log")" "$1" 'engines were asked'
}

@test "a critical model that gets requests takes the room of a batch model, which is put to sleep before" {
    batch_serves
    configure
    govern
    never_within 1 test -e "$ENGINES/log"
    ask code 4
    wait_until 20 is_held code
    at 'device host' code
    assert_match "$(cat "$M/batch/residency")" '^host'
    in_turn 'batch sleeps,code wakes'
    wait_until 5 has_said '^wake code \([0-9]+ ms\): '
    has_said '^put batch to sleep \([0-9]+ ms\): '
    kill "$GOVERNOR"
    wait_exit -0 "$GOVERNOR"
}

@test "a dry run prints the commands that it would run, and changes nothing" {
    batch_serves
    configure
    ask code 4
    local before
    before=$(jq -c 'del(.last_used_ms)' "$M"/*/info)
    once --dry-run
    assert_eq "$(jq -c 'del(.last_used_ms)' "$M"/*/info)" "$before" info
    refute_log
    printf '%s\n' "${lines[@]}" >"$T/dry"
    assert_match "$output" "sh -c '.*engine batch sleep' && # "
    assert_match "$output" "gmsfs promote -q --timeout 300 $M/code && # "
    assert_match "${lines[-1]}" "^sh -c '.*engine code wake' # "
    # A shell can run them.
    mkdir "$T/bin"
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$GMSFS" >"$T/bin/gmsfs"
    chmod +x "$T/bin/gmsfs"
    PATH=$T/bin:$PATH bash -e "$T/dry"
    wait_until 10 is_held code
    in_turn 'batch sleeps,code wakes'
}

refute_log() {
    [[ ! -e $ENGINES/log ]] || fail "engines were asked: $(cat "$ENGINES/log")"
}

@test "a model whose metrics fail is left alone, reported once, and governed when they come" {
    batch_serves
    configure
    touch "$ENGINES/batch.broken"
    ask code 4
    govern
    wait_until 10 has_said 'batch: its metrics .*batch is out of order'
    never_within 1 test -e "$ENGINES/log"
    at 'device host' batch
    assert_eq "$(times_said 'batch is out of order')" 1 'times told'
    rm "$ENGINES/batch.broken"
    wait_until 20 is_held code
    has_said 'batch: its metrics are there again'
}

@test "metrics are fetched from an address; one that does not answer is like a hook that fails" {
    requires curl
    requires python3
    batch_serves
    echo 'vllm:num_requests_waiting 4' >"$T/metrics"
    echo 'vllm:num_requests_running 0' >>"$T/metrics"
    spawn python3 -u -m http.server --bind 127.0.0.1 --directory "$T" 0
    wait_until 10 grep -q 'port [0-9]' "$T/spawn-$SPAWNED"
    local port
    port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$T/spawn-$SPAWNED")
    configure
    sed -i "s,metrics='[^']*code metrics',metrics=http://127.0.0.1:$port/metrics," "$T/conf"
    once --dry-run
    assert_match "$output" 'promote'
    kill "$SPAWNED"
    wait_until 10 process_gone "$SPAWNED"
    once --dry-run
    assert_match "$output" "code: its metrics \(http://127.0.0.1:$port/metrics\): failed with status 7"
    assert_match "$output" '# nothing to do'
}

@test "killed in the middle, and started again, it goes on" {
    batch_serves
    configure
    ask code 4
    # The engine that has to wake cannot, until it was killed.
    cp "$ENGINES/engine" "$T/engine"
    sed -i 's/^wake)/wake) while [[ -e stop ]]; do sleep 0.01; done/' "$ENGINES/engine"
    touch "$ENGINES/stop"
    govern
    wait_until 20 is_at 'device host' code
    kill -9 "$GOVERNOR"
    wait_until 10 process_gone "$GOVERNOR"
    cp "$T/engine" "$ENGINES/engine"
    rm "$ENGINES/stop"
    govern
    wait_until 20 is_awake code
    assert_match "$(cat "$M/batch/residency")" '^host'
}

is_awake() { # MODEL: by either waker or both: the hook of a killed one may go on, too
    (($(info_of "$1" .held) > 0))
}

@test "the cooldown holds over a restart" {
    batch_serves
    configure
    ask code 4
    once
    wait_until 10 is_held code
    CLASS=batch COOLDOWN=1h configure
    ask code 0
    ask batch 7
    once
    in_turn 'batch sleeps,code wakes'
    assert_match "$(cat "$M/batch/residency")" '^host'
    CLASS='batch' configure
    once
    wait_until 10 is_held batch
}

@test "a deed longer than the interval is followed by another look, not by older decisions" {
    start size=64M,host_size=64M,min_stay=0
    local model
    for model in code batch other; do
        have "$model" $((4 << 20)) asleep
        ask "$model" 4
    done
    configure
    hooks other class=batch >>"$T/conf"
    sed -i 's/^wake)/wake) [[ $1 != code ]] || touch asked; while [[ -e stop ]]; do sleep 0.01; done/' \
        "$ENGINES/engine"
    touch "$ENGINES/stop"
    spawn "$GMSFS" governor --once -c "$T/conf" "$M"
    wait_until 10 test -e "$ENGINES/asked"
    ask batch 0
    never_within 1 process_gone "$SPAWNED" # the interval is over
    rm "$ENGINES/stop"
    wait_exit -0 "$SPAWNED"
    in_turn 'code wakes,other wakes'
}

@test "a failed deed is reported with its cause, later ones are not done, and it is tried after the cooldown" {
    batch_serves
    touch "$ENGINES/batch.stuck"
    configure
    ask code 4
    once -1
    assert_match "$output" 'cannot put batch to sleep: failed with status 1: batch does not sleep'
    at 'device host' batch
    at host code
    COOLDOWN=1 configure
    govern
    wait_until 10 has_said 'batch does not sleep'
    rm "$ENGINES/batch.stuck"
    wait_until 20 is_held code
}

# ---- one governor a mount ----------------------------------------------------------------------

governs() { # PID: the daemon has let it
    grep -q ": process $1 (uid [0-9]*) governs the mount" "$LOG"
}

governed_times() { # PID
    grep -c ": process $1 (uid [0-9]*) governs the mount" "$LOG" || :
}

governs_again() { # PID TIMES
    [[ $(governed_times "$1") -gt $2 ]]
}

# is_kept_out_by PID [COMMAND...]: another governor, run by COMMAND, is refused and told of this one.
is_kept_out_by() {
    run_logged -1 "${@:2}" timeout $((60 * HANG)) "$GMSFS" governor --once -c "$T/conf" "$M"
    assert_match "$output" "$M: process $1 governs it already; end that process first"
}

start_governed() { # a mount with a governor that has nothing to do
    start
    echo 'interval 200ms' >"$T/conf"
    govern
    wait_until 10 governs "$GOVERNOR"
}

@test "one governor is on a mount, and the next one is told which" {
    start_governed
    local first=$GOVERNOR
    is_kept_out_by "$first"
    once --dry-run # only looks
    kill -9 "$first"
    wait_until 10 process_gone "$first"
    once
}

@test "a governor in another network namespace is kept out as well" {
    requires netns
    start_governed
    is_kept_out_by "$GOVERNOR" unshare --net
}

@test "a user without rights in the mount can neither govern it nor keep others from it" {
    requires root
    start
    echo 'interval 200ms' >"$T/conf"
    spawn python3 -c 'import os, socket, sys, time
mount, uid = sys.argv[1], int(sys.argv[2])
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
name = socket.socket(socket.AF_UNIX)
name.bind("\0gmsfs-governor-%d" % os.stat(mount).st_dev) # by which governors once knew of one another
name.listen()
print("bound", flush=True)
time.sleep(1000)' "$M" "$TEST_UID"
    wait_until 10 grep -q bound "$T/spawn-$SPAWNED"
    spawn "${AS_USER[@]}" "$GMSCTL" connect "$M" try ask govern 0 say asked pause
    wait_until 10 grep -q asked "$T/spawn-$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" EPERM
    run_logged -1 as_user "$GMSFS" governor --once -c "$T/conf" "$M"
    assert_match "$output" "$M: permission denied: only root and the user that mounted it can govern it"
    once
    govern
    wait_until 10 governs "$GOVERNOR"
    is_kept_out_by "$GOVERNOR"
}

@test "a governor takes its place again from the next worker, and one alone does" {
    start_governed
    local times
    times=$(governed_times "$GOVERNOR")
    kill_worker
    wait_until 10 governs_again "$GOVERNOR" "$times"
    is_kept_out_by "$GOVERNOR"
}

@test "of two governors that come to the next worker exactly one goes on" {
    start_governed
    local first=$GOVERNOR second
    kill -STOP "$first"
    kill_worker
    govern
    second=$GOVERNOR
    wait_until 10 governs "$second"
    kill -CONT "$first"
    wait_exit -1 "$first"
    assert_match "$(output_of "$first")" "$M: process $second governs it already"
    is_kept_out_by "$second"
}

@test "a governor does not keep the user of a mount from unmounting it" {
    requires user-fuse
    # shellcheck disable=SC2034 # start_mount reads it
    MOUNT_VIA=("${AS_USER[@]}")
    start size=12M
    echo 'interval 200ms' >"$T/conf"
    spawn "${AS_USER[@]}" "$GMSFS" governor -c "$T/conf" "$M"
    GOVERNOR=$SPAWNED
    wait_until 10 governs "$GOVERNOR"
    wait_until 10 as_user "$GMSFS" umount "$M" # the governor may have a file open for a moment
    wait_exit -0 "$GOVERNOR"
    has_said "$M: it was unmounted"
    expect_death
}

@test "other connections of its user leave a governor its place" {
    start_governed
    local i many=()
    for ((i = 0; i < 1100; i++)); do many+=(connect "$M"); done # the mount has 1024
    assert_eq "$(ulimit -Sn 2048 && "$GMSCTL" "${many[@]}" ask govern 0)" EBUSY 'the answer'
    assert_eq "$(governed_times "$GOVERNOR")" 1 'times'
}

# A server in the place of the daemon's answers as a daemon does that does not know the request.
@test "a daemon that knows of no lock of governors is told with the way out" {
    requires mountns
    start
    echo 'interval 200ms' >"$T/conf"
    spawn python3 -c 'import socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.bind(sys.argv[1])
server.listen()
while True:
    asking = server.accept()[0]
    asking.recv(64)
    asking.send((1).to_bytes(4, "little") + (-22).to_bytes(4, "little", signed=True) + bytes(16)) # EINVAL' "$T/old"
    wait_until 10 test -S "$T/old"
    run_logged -1 in_mountns 'mount --bind "$1" "$2/.fds" && shift 2 && exec "$@"' "$T/old" "$M" \
        timeout $((60 * HANG)) "$GMSFS" governor --once -c "$T/conf" "$M"
    assert_match "$output" "$M: its daemon is of an older build.*'gmsfs upgrade $M' replaces it"
}

@test "a round without memory fails, and the next one decides anew" {
    batch_serves
    configure
    ask code 4
    export GMSFS_FAULT=open_memstream:after=0:in=command
    once -1
    assert_match "$output" 'this process is out of memory'
    refute_log
    govern
    unset GMSFS_FAULT
    wait_until 20 is_held code
    has_said 'this process is out of memory'
    in_turn 'batch sleeps,code wakes'
}

@test "SIGHUP lets it read its file anew, and a bad file leaves the old settings" {
    batch_serves
    configure
    printf 'interval 10m\n' >"$T/conf"
    govern
    wait_until 10 governs "$GOVERNOR"
    echo 'modle code' >"$T/conf"
    kill -HUP "$GOVERNOR"
    wait_until 10 has_said "$T/conf: line 1: .*modle.*; the old configuration stays in force"
    configure
    ask code 4
    kill -HUP "$GOVERNOR"
    wait_until 10 has_said 'was read again'
    wait_until 20 is_held code
    kill -INT "$GOVERNOR" # ignored: a shell started it in the background
    never_within 1 process_gone "$GOVERNOR"
    kill -TERM "$GOVERNOR"
    wait_exit -0 "$GOVERNOR"
}

@test "a signal ends it between deeds, and not in one" {
    batch_serves
    configure
    sed -i 's/^sleep)/sleep) touch asked; while [[ -e stop ]]; do sleep 0.01; done/' "$ENGINES/engine"
    touch "$ENGINES/stop"
    ask code 4
    govern
    wait_until 10 test -e "$ENGINES/asked"
    kill "$GOVERNOR"
    never_within 1 process_gone "$GOVERNOR"
    rm "$ENGINES/stop"
    wait_exit -0 "$GOVERNOR"
    in_turn 'batch sleeps'
    at host code
}

@test "a file with a mistake, a missing file, and a path that is no mount are named" {
    start
    echo 'model a store=b clas=high' >"$T/conf"
    once -1
    assert_match "$output" "$T/conf: line 1: .*clas"
    rm "$T/conf"
    once -1
    assert_match "$output" "$T/conf: cannot be read: No such file.*gmsfs-governor\\(8\\) has an example.*-c names"
    mkdir "$T/conf"
    once -1
    assert_match "$output" "$T/conf: is no regular file; name a file of statements by -c"
    rmdir "$T/conf"
    mkfifo "$T/conf"
    once -1
    assert_match "$output" "$T/conf: is no regular file; name a file of statements by -c"
    rm "$T/conf"
    echo >"$T/conf"
    cli -1 governor --once -c "$T/conf" "$T"
    assert_match "$output" "$T: not a gmsfs mount"
    cli -1 governor --once -c "$T/conf" "$M/weights"
    assert_match "$output" "$M/weights: not a gmsfs mount, but in the one at $M;"
    cli -2 governor --once
    cli -2 governor "$M" "$M"
    cli -2 governor --twice "$M"
}

@test "a daemon that died ends it, and an unmount does in peace" {
    start
    echo 'interval 200ms' >"$T/conf"
    govern
    wait_until 10 governs "$GOVERNOR"
    stop_mount "$M"
    wait_exit -0 "$GOVERNOR"
    has_said "$M: it was unmounted"
    start
    govern
    wait_until 10 governs "$GOVERNOR"
    expect_death
    kill -9 "$KEEPER"
    wait_until_any 10 process_gone "$GOVERNOR"
    wait_exit "$GOVERNOR"
    output_of "$GOVERNOR"
    [[ $status -eq 1 ]]
    has_said "$M: its daemon has ended"
    once -1
    assert_match "$output" "$M: its daemon has ended; 'gmsfs umount -l $M' clears it away"
}

@test "a daemon that does not answer holds it up for a moment, and it goes on when it answers" {
    batch_serves
    configure
    govern
    wait_until 10 governs "$GOVERNOR"
    kill -STOP "$(worker_of "$KEEPER")"
    ask code 4
    wait_until_any 20 has_said "$M: it does not answer"
    kill -CONT "$(worker_of "$KEEPER")"
    wait_until 20 is_held code
}

@test "a pool that the mount lacks is named once for each reading of the file" {
    start
    have code 65536
    have batch 65536
    printf '%s\n' 'interval 100ms' 'adapters pool=adapters' 'model code store=code pool=chat' >"$T/conf"
    govern
    wait_until 10 has_said 'pool=adapters: the mount has no such pool'
    never_within 1 eval '(($(times_said "pool=(adapters|chat): the mount has no such pool") > 2))'
    echo 'chat max=32M' >"$M/pools"
    kill -HUP "$GOVERNOR"
    wait_until 10 eval '(($(times_said "pool=adapters: the mount has no such pool") == 2))'
    assert_eq "$(times_said 'pool=chat')" 1 'times told'
}

@test "spares are made ahead of stores that may have to leave, and adapters in use come" {
    start size=64M,host_size=64M,min_stay=0
    echo 'adapters max=32M' >"$M/pools"
    have batch $((8 << 20))
    local name
    for name in one two; do
        mkdir "$M/$name"
        setfattr -n user.gmsfs.pool -v adapters "$M/$name"
        ctl open "$M/$name/lock" rw alloc 1048576 1 a '' commit
    done
    ctl open "$M/two/lock" r
    ctl open "$M/two/lock" r
    cli demote -q "$M/one" "$M/two"
    configure 'adapters pool=adapters prefetch=1'
    sed -i /store=code/d "$T/conf"
    once
    wait_until 10 is_at 'device host' batch
    wait_until 10 is_at 'device host' two
    at host one
}
