#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Stores that move while something goes wrong: the GPU or its memory, the copier, a client. Over the
# fake driver, with host memory beside it.
#
# shellcheck disable=SC2154 # output is set by bats' run
# shellcheck disable=SC2016 # bodies of shells

load helpers
load gpu
load places

OUT_OF_MEMORY=2 # CUDA_ERROR_OUT_OF_MEMORY

prepare() {
    fake_gpus
    start_tiers size=64M,host_size=32M
}

# ---- the GPU ---------------------------------------------------------------------------------

@test "a lost GPU takes its copies only: copies on the host are read, summed and saved" {
    mkdir "$M/spare" "$M/bare"
    committed bare
    committed spare
    move_to +host 'device host' spare
    committed
    cp "$T/bytes" "$T/wanted"
    cli sum --allocations "$W" >"$T/sum"
    move_to host host
    fake_gpus 'lost 0'
    wait_until 10 device_is .health lost
    at host
    at host spare
    assert_eq "$(jq -r .state "$M/bare/info")" EMPTY
    assert_eq "$(jq -r .state "$M/spare/info")" COMMITTED
    cmp -n 5000000 "$W/allocations/a" "$T/wanted"
    expect ENODEV reader "$W"
    expect ENODEV open "$W/residency" w write device
    cli sum --allocations "$W" >"$T/sum.lost"
    assert_eq "$(cat "$T/sum.lost")" "$(cat "$T/sum")"
    cli image save "$W" "$T/image"
    cli image ls --check "$T/image"
}

@test "a model on the host is saved and verified when the GPU is lost" {
    make_model 4M 1 7
    cli load "$W" "$MODEL"
    cli sum "$W" >"$T/sum"
    move_to host host
    fake_gpus 'lost 0'
    wait_until 10 device_is .health lost
    cli sum "$W" >"$T/sum.lost"
    assert_eq "$(cat "$T/sum.lost")" "$(cat "$T/sum")"
    cli save "$W" "$T/saved.safetensors"
    cli verify "$W" "$T/saved.safetensors"
    cli verify "$W" "$MODEL"
}

@test "a GPU that is lost in the middle of a demotion takes the store, in a promotion it does not" {
    mkdir "$M/up"
    committed up
    move_to host host up
    committed
    touch "$T/gate"
    order host
    order device up
    fake_gpus 'lost 0'
    wait_until 10 device_is .health lost
    rm "$T/gate"
    wait_until 10 at host up
    assert_state weights EMPTY
    assert_state up COMMITTED
    has_event move_failed ENODEV
}

@test "suspect memory is dropped where there is a spare, and the store is sound again" {
    committed
    move_to +host 'device host'
    fake_gpus 'xid 0 48'
    wait_until 10 at host
    assert_eq "$(info_of weights .suspect)" false
    assert_eq "$(device_get .health)" ok
    has_event healed host
    bytes_are_right
    ctl reader "$W"
    at 'device host'
    bytes_are_right
}

@test "suspect memory that readers have is dropped when the last of them goes" {
    committed
    move_to +host 'device host'
    hold reader "$W"
    fake_gpus 'xid 0 48'
    wait_until 10 device_is .health suspect
    at 'device host'
    assert_eq "$(info_of weights .suspect)" true
    let_go "$HOLDER"
    wait_until 10 at host
    assert_eq "$(device_get .health)" ok
    ctl reader "$W"
    bytes_are_right
}

with_disk() { # [FAULT]
    stop_mount
    mkdir "$T/spill"
    GMSFS_FAULT=${1-} start_tiers "size=64M,spill=$T/spill,spill_size=48M"
    committed
    move_to +disk 'device disk'
}

reads_disk() { # [STORE]
    grep -q '^moving disk ' "$M/${1-weights}/residency"
}

heal_at_gate() { # the reading of a spare on the disk waits at the gate
    with_disk
    touch "$T/gate"
    fake_gpus 'xid 0 48'
    wait_until 10 reads_disk
}

@test "suspect memory is dropped for a spare on the disk when all of that was read, and readers wait for it" {
    heal_at_gate
    is_at 'device disk'
    assert_eq "$(info_of weights .suspect)" true
    wait_for_lock reader "$W"
    expect EIO open "$W/allocations/a" r
    expect EAGAIN open "$W/lock" rn
    cli -3 run -n "$W" -- true
    assert_match "$output" "its memory may be damaged, and its copy on the disk is read first: 'residency' in it"
    rm "$T/gate"
    wait_until 10 granted "$WAITER"
    has_event healed disk
    assert_eq "$(device_get .health)" ok
    at 'device disk'
    bytes_are_right
    let_go "$WAITER"
}

@test "a spare on the disk that cannot be read in its middle heals nothing, and the device's copy stays" {
    with_disk pread:after=3:errno=EIO:in=worker
    touch "$T/gate"
    fake_gpus 'xid 0 48'
    wait_until 10 reads_disk
    wait_for_lock reader "$W"
    rm "$T/gate"
    wait_exit "$WAITER"
    assert_match "$(output_of "$WAITER")" EIO
    at device
    has_event copy_dropped EIO
    assert_eq "$(info_of weights .suspect)" true
    cli -0 clear-suspect "$W"
    bytes_are_right
}

@test "a spare that a worker dies over is read again by the next one, and waiters are let in" {
    heal_at_gate
    wait_for_lock reader "$W"
    kill -KILL "$(worker_of "$KEEPER")"
    wait_until 10 has_event worker_resumed
    reads_disk
    assert_eq "$(info_of weights .suspect)" true
    rm "$T/gate"
    wait_until 10 granted "$WAITER"
    has_event healed disk
    at 'device disk'
    bytes_are_right
    let_go "$WAITER"
}

# bats test_tags=slow
@test "clear-suspect ends the reading of a spare that would heal, and so does a writer" {
    heal_at_gate
    hold open "$W/lock" rw
    at 'device disk'
    has_event move_failed ECANCELED
    let_go "$HOLDER"
    wait_until 10 reads_disk
    wait_for_lock reader "$W"
    cli -0 clear-suspect "$W"
    wait_until 10 granted "$WAITER"
    rm "$T/gate"
    at 'device disk'
    assert_eq "$(device_get .health)" ok
    bytes_are_right
    let_go "$WAITER"
}

# bats test_tags=slow
@test "the reading of a spare that would heal is not cancelled by order" {
    heal_at_gate
    expect EBUSY open "$W/residency" w write cancel
    reads_disk
    rm "$T/gate"
    wait_until 10 at disk
    assert_eq "$(jq -s 'map(select(.event == "move_failed")) | length' <"$M/events")" 0
}

reading() { # prints the stores with spares being read
    local store
    for store in weights second third; do
        ! reads_disk "$store" || printf '%s ' "$store"
    done
}

# bats test_tags=slow
@test "spares that heal are read one by one, except those of stores that are waited for" {
    with_disk
    for store in second third; do
        committed "$store" 500000
        move_to +disk 'device disk' "$store"
    done
    touch "$T/gate"
    fake_gpus 'xid 0 48'
    wait_until 10 reads_disk
    assert_eq "$(reading)" 'weights '
    spawn "$GMSCTL" reader "$M/third" say granted pause
    wait_until 10 reads_disk third
    assert_eq "$(reading)" 'weights third '
    rm "$T/gate"
    wait_until 10 granted "$SPAWNED"
    wait_until 10 at disk second
    wait_until 10 at disk
    assert_eq "$(device_get .health)" ok
    let_go "$SPAWNED"
}

@test "suspect bytes are never copied away from the device, by order or in the middle of a move" {
    committed
    touch "$T/gate"
    order host
    fake_gpus 'xid 0 48'
    wait_until 10 device_is .health suspect
    rm "$T/gate"
    at device
    has_event move_failed EIO
    wait_until 10 host_is_free
    expect EIO open "$W/residency" w write host
    expect EIO open "$W/residency" w write +host
    order none
}

@test "a store on the host is not suspect" {
    committed_on_host
    mkdir "$M/other"
    committed other
    fake_gpus 'xid 0 48'
    wait_until 10 device_is .health suspect
    assert_eq "$(info_of weights .suspect)" false
    assert_eq "$(info_of other .suspect)" true
}

# bats test_tags=slow
@test "a device that others fill keeps a reader waiting, visibly, until they leave" {
    committed_on_host
    fake_gpus 'others 1022'
    wait_for_lock reader "$W"
    wait_until 10 has_event move_failed ENOMEM
    never_within 2 granted "$WAITER"
    assert_eq "$(grep -c "^w[0-9]* RO waiting $WAITER " "$W/sessions")" 1 'lines of the waiter'
    wait_until 10 device_is .other_bytes $((1022 << 20))
    assert_eq "$(jq -s 'map(select(.event == "move_failed")) | length' <"$M/events")" 1 'told as often'
    bytes_are_right
    fake_gpus 'others 900'
    wait_until 10 granted "$WAITER"
    at 'device host'
    let_go "$WAITER"
}

# idle STORE: it fills the device with others, and is unused; weights, and its waiter, need
# less than it has.
idle() {
    committed "$1" $((20 << 20))
    fake_gpus 'others 1002'
    wait_until 10 device_is .other_bytes $((1002 << 20))
}

# bats test_tags=slow
@test "on a device that others fill, an idle store leaves for a store that is waited for" {
    committed_on_host
    idle other
    ctl reader "$W"
    at 'device host'
    at host other
}

# bats test_tags=slow
@test "and for memory that is waited for" {
    idle other
    ctl open "$W/lock" rw alloc $((6 << 20)) 1 a '' commit
    wait_until 10 at host other
}

failed_twice() {
    [[ $(failures_of weights) -eq 2 ]]
}

failures_of() { # STORE
    jq -s --arg store "$1" 'map(select(.event == "move_failed" and .store == $store)) | length' <"$M/events"
}

# bats test_tags=slow
@test "a lack of memory that lasts is told once for each store that waits, and anew after it has come" {
    mkdir "$M/other"
    committed
    committed other
    move_to host host
    move_to host host other
    fake_gpus "fail cuMemCreate $OUT_OF_MEMORY 1 0"
    wait_for_lock reader "$W"
    local first=$WAITER
    spawn "$GMSCTL" reader "$M/other" say granted pause
    wait_for_waiters other 1
    local second=$SPAWNED
    never_within 2 granted "$first"
    assert_eq "$(failures_of weights) $(failures_of other)" '1 1'
    fake_gpus
    wait_until 10 granted "$first"
    wait_until 10 granted "$second"
    let_go "$first" "$second"
    move_to host host
    fake_gpus "fail cuMemCreate $OUT_OF_MEMORY 1 0"
    wait_for_lock reader "$W"
    wait_until 5 failed_twice
    fake_gpus
    wait_until 10 granted "$WAITER"
    let_go "$WAITER"
}

# bats test_tags=slow
@test "a promotion by order that lacks memory of the device fails, and is told" {
    committed_on_host
    fake_gpus "fail cuMemCreate $OUT_OF_MEMORY 1 0"
    cli -1 promote "$W"
    assert_match "$output" 'stays at host'
    has_event move_failed ENOMEM
    bytes_are_right
}
