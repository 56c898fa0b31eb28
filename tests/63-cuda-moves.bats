#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The copier's moves between GPU memory and the host tier, over the fake driver: its lanes, its death,
# failing calls, and its leftovers. 12-residency, which runs on fake GPUs as well, tests a store's view of
# moves.
#
# shellcheck disable=SC2154 # output, status are set by bats' run

load helpers
load gpu
load places

BROKEN=999     # CUDA_ERROR_UNKNOWN: another context may do
BYTES=20000003 # of an allocation: parts of 4 MiB, and a rest

prepare() { fake_gpus; }

start_gpu() { # [OPTIONS]
    start_weights "size=128M,host_size=128M${1:+,$1}"
}

# Mappings of the copier, which root alone may look at.
count_maps() {
    wc -l <"/proc/$(copier)/maps"
}

fewer_maps_than() { # COUNT
    (($(count_maps) < $1))
}

publish() { # STORE [BYTES]: random, in $T/STORE and committed
    [[ -d $M/$1 ]] || mkdir "$M/$1"
    head -c "${2-$BYTES}" /dev/urandom >"$T/$1"
    # shellcheck disable=SC2016
    bash -c 'exec 4<>"$1/lock"; truncate -s "$(stat -c %s "$2")" "$1/allocations/a"
        cat "$2" 1<>"$1/allocations/a"; echo >"$1/commit"' _ "$M/$1" "$T/$1"
}

start_gpu_with() { # STORE [BYTES]
    start_gpu
    publish "$@"
}

moves() {
    grep -q moving "$W/residency"
}

bytes_are_right() { # [STORE]
    cmp -n "$(stat -c %s "$T/${1-weights}")" "$M/${1-weights}/allocations/a" "$T/${1-weights}"
}

# The copy on the device is given up, and made anew from the host's.
there_and_back() { # [STORE]
    move_to host host "$@"
    bytes_are_right "$@"
    move_to device 'device host' "$@"
    bytes_are_right "$@"
}

@test "bytes that a driver copies late are waited for, in parts and to the last one" {
    start_gpu_with weights
    publish small 1
    publish even $((8 << 20))
    fake_gpus 'lazy 1'
    for store in weights small even; do
        there_and_back "$store"
    done
}

takes_huge_pages() { # PID: 1 or 0
    sed -n 's/^THP_enabled:[[:space:]]*//p' "/proc/$1/status"
}

@test "keeper and worker take no transparent huge pages, and the copier does" {
    start_gpu
    wait_until 10 copier
    assert_eq "$(takes_huge_pages "$KEEPER") $(takes_huge_pages "$(worker_of "$KEEPER")")" '0 0' 'keeper and worker'
    assert_eq "$(takes_huge_pages "$(copier)")" 1 'the copier'
}

# bats test_tags=slow
@test "with a host tier the copier is there before it is needed, and stays" {
    local pid
    start_gpu copier_idle=0.05
    wait_until 10 copier
    pid=$(copier)
    never_within 1 no_copier
    publish weights
    there_and_back
    never_within 1 no_copier
    assert_eq "$(copier)" "$pid"
}

# bats test_tags=slow
@test "without a host tier no copier starts at mount" {
    start_mount size=64M
    never_within 1 copier
}

# bats test_tags=slow
@test "lanes give back all that they had of the GPU" {
    start_gpu_with weights
    there_and_back
    stop_mount
    assert_eq "$(find "$GMSFS_FAKE_CUDA" -name 'leaked.*' -o -name 'context.*')" ''
}

@test "a copier killed in the middle of a move, each way, is replaced unnoticed" {
    local way pid
    start_gpu_with weights
    for way in '+host DtoH' 'device HtoD'; do
        [[ $way != device* ]] || move_to host host
        wait_until 10 copier
        pid=$(copier)
        fake_gpus "hold cuMemcpy${way#* }Async_v2"
        order "${way% *}"
        wait_until 5 moves
        kill -KILL "$pid"
        fake_gpus
        wait_until 20 at 'device host'
        [[ $(copier) != "$pid" ]]
        bytes_are_right
        assert_eq "$(device_get .host_used_bytes)" $((20 << 20))
    done
}

kill_copiers_while() { # COMMAND...
    local pid
    while "$@"; do
        ! pid=$(copier) || kill -KILL "$pid" 2>/dev/null || :
        sleep 0.02
    done
}

has_failed_with() { # ERRNO
    jq -es --arg error "$1" 'any(.event == "move_failed" and .error == $error)' <"$M/events"
}

@test "a copier that is killed again and again fails the move: the source is whole, and nothing else is left" {
    start_gpu_with weights
    wait_until 10 copier
    fake_gpus 'hold cuMemcpyDtoHAsync_v2'
    order +host
    wait_until 5 moves
    kill_copiers_while moves
    at device
    has_failed_with EIO
    wait_until 10 host_is_free
    fake_gpus
    bytes_are_right
    there_and_back
}

@test "a reader whose store cannot be copied back is told EIO, and the store's copy stays whole" {
    local reader
    start_gpu_with weights
    move_to host host
    fake_gpus 'hold cuMemcpyHtoDAsync_v2'
    spawn "$GMSCTL" reader "$W"
    reader=$SPAWNED
    wait_until 5 moves
    kill_copiers_while process_lives "$reader"
    wait_exit "$reader"
    assert_match "$(output_of "$reader")" EIO
    at host
    has_failed_with EIO
    wait_until 10 used_is 0
    bytes_are_right
    fake_gpus "fail cuMemcpyHtoDAsync_v2 $BROKEN"
    expect EIO reader "$W"
    at host
    wait_until 10 used_is 0
    fake_gpus
    ctl reader "$W"
    at 'device host'
    bytes_are_right
}

@test "a copy that fails for good leaves the store where it is, tells why, and the next one works" {
    start_gpu_with weights
    fake_gpus "fail cuMemcpyDtoHAsync_v2 $BROKEN"
    run_logged ! "$GMSFS" demote "$W"
    at device
    wait_until 10 host_is_free
    grep -q 'cannot read [0-9]* bytes at 0 of an allocation: cuMemcpyDtoHAsync_v2: CUDA_ERROR_UNKNOWN' \
        "$LOG"
    fake_gpus
    bytes_are_right
    move_to host host
    fake_gpus "fail cuMemcpyHtoDAsync_v2 $BROKEN"
    run_logged ! "$GMSFS" promote "$W"
    at host
    bytes_are_right
    fake_gpus
    move_to device 'device host'
    bytes_are_right
}

@test "an error that a new context repairs fails no move" {
    local pid
    start_gpu_with weights 1000
    publish other 1000
    wait_until 10 copier
    pid=$(copier)
    fake_gpus "fail cuMemcpyDtoHAsync_v2 $BROKEN 2" # from the second call of each process on
    move_to +host 'device host'
    assert_eq "$(copier)" "$pid"
    move_to +host 'device host' other
    [[ $(copier) != "$pid" ]]
    fake_gpus
    there_and_back
    there_and_back other
}

# bats test_tags=slow
@test "a driver that pins no memory moves bytes all the same" {
    fake_gpus 'fail cuMemHostRegister_v2 2'
    start_gpu_with weights
    there_and_back
}

@test "a copy on the host stays mapped in the copier until it goes" {
    local with_copy
    requires root || return 0
    start_gpu_with weights
    move_to +host 'device host'
    there_and_back # all lanes are there
    with_copy=$(count_maps)
    there_and_back
    assert_eq "$(count_maps)" "$with_copy"
    move_to -host device
    wait_until 5 fewer_maps_than "$with_copy"
}

@test "a copy on the host outlives its copier, and comes back through the next one" {
    local pid
    start_gpu_with weights
    move_to host host
    pid=$(copier)
    kill -KILL "$pid"
    wait_until 10 process_gone "$pid"
    move_to device 'device host'
    bytes_are_right
    move_to -host device
    wait_until 10 host_is_free
}

# bats test_tags=slow
@test "a copier that does not let a copy go is killed for it, and the memory is free" {
    local pid
    export GMSFS_COPIER_HANG_MS=$((2000 * SLOW))
    start_gpu_with weights
    move_to +host 'device host'
    pid=$(copier)
    kill -STOP "$pid"
    order -host
    wait_until 20 host_is_free
    wait_until 10 process_gone "$pid"
    bytes_are_right
    move_to +host 'device host'
    there_and_back
}

@test "a lane that cannot be had leaves its work to the others, and none at all is an error" {
    start_gpu_with weights
    wait_until 10 copier
    fake_gpus "fail cuEventCreate $BROKEN 1 1"
    move_to +host 'device host'
    fake_gpus "fail cuEventCreate $BROKEN"
    move_to host host
    run_logged ! "$GMSFS" promote "$W"
    at host
    grep -q 'cuEventCreate' "$LOG"
    fake_gpus
    move_to device 'device host'
    bytes_are_right
}

@test "a cancelled move ends after its step, its memory is given back, and the copier stays" {
    local pid
    start_gpu_with weights
    wait_until 10 copier
    pid=$(copier)
    fake_gpus 'hold cuMemcpyDtoHAsync_v2'
    order +host
    wait_until 5 moves
    order cancel
    fake_gpus
    wait_until 10 at device
    wait_until 10 host_is_free
    assert_eq "$(copier)" "$pid"
    there_and_back
}

# bats test_tags=slow
@test "a move one way does not wait for one the other way" {
    start_gpu_with up 3000000
    publish weights 3000000
    move_to host host up
    fake_gpus 'hold cuMemcpyDtoHAsync_v2'
    order +host
    wait_until 5 moves
    order device up
    wait_until 4 at 'device host' up
    moves
    fake_gpus
    wait_until 20 at 'device host'
    bytes_are_right
    bytes_are_right up
}

@test "freeing a store in the middle of its move ends both, and all memory is free" {
    start_gpu_with weights
    publish other
    fake_gpus 'hold cuMemcpyDtoHAsync_v2'
    order +host
    wait_until 5 moves
    rmdir "$W"
    fake_gpus
    wait_until 10 host_is_free
    bytes_are_right other
    there_and_back other
}

# bats test_tags=slow
@test "a mount that ends while many stores move waits for the steps under way, not for the moves" {
    local i
    requires taskset
    # shellcheck disable=SC2034 # start_mount
    MOUNT_VIA=(taskset -c "$(taskset -cp $$ | grep -o '[0-9]*$')") # one lane
    start_mount size=256M,host_size=256M
    for i in {1..80}; do
        publish "s$i" 2000000
    done
    fake_gpus 'slow cuMemcpyDtoHAsync_v2 100'
    for i in {1..80}; do
        echo host >"$M/s$i/residency"
    done
    stop_mount
    run_logged ! grep 'transfers hang' "$LOG"
}
