#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The place of a store's bytes: the file `residency`, moves between tiers, and the clients let in
# meanwhile. GMSFS_TEST_BACKEND=fake-cuda runs all of it over a GPU.
#
# A step of a move waits as long as $GMSFS_MOVE_GATE exists.
#
# shellcheck disable=SC2034,SC2154 # SUM is read by places.bash; output is set by bats' run
# shellcheck disable=SC2016 # bodies of shells
# bats file_tags=fake,slow:fake

load helpers
load places

prepare() { start_tiers size=64M,host_size=32M; }

committed() { # [STORE [BYTES]]: with random bytes; SUM is their checksum
    local store=$M/${1-weights}
    head -c "${2-5000000}" /dev/urandom >"$T/bytes"
    bash -c 'exec 4<>"$1/lock"; cat "$2" >"$1/allocations/a"; cp "$2" "$1/allocations/b"
        echo >"$1/commit"' _ "$store" "$T/bytes"
    SUM=$(sha256sum <"$T/bytes")
}

refused() { # ERRNO WORD [STORE]
    expect "$1" open "$M/${3-weights}/residency" w write "$2"
}

layout_of() {
    cat "$W/layout_hash"
    sha256sum <"$W/layout"
    info_of weights '"\(.generation) \(.id)"'
    names "$W/allocations"
    getfattr -d -m user.gmsfs "$W"/allocations/* 2>/dev/null
}

# bats test_tags=slow
@test "residency is empty until something is committed, then it is the device" {
    assert_eq "$(cat "$W/residency")" ''
    assert_eq "$(stat -c %a "$W/residency")" 644
    refused ENODATA host
    committed
    assert_eq "$(cat "$W/residency")" device
    assert_eq "$(info_of weights '"\(.residency) \(.moving) \(.moves) \(.held)"')" \
        '["device"] null 0 0'
}

@test "a demoted store gives its memory back and is read from the host; nothing else of it changes" {
    committed
    local before used
    before=$(layout_of)
    used=$(device_get .used_bytes)
    move_to host host
    wait_until 5 used_is 0
    assert_eq "$(device_get .host_used_bytes)" "$used"
    assert_eq "$(layout_of)" "$before"
    assert_state weights COMMITTED
    bytes_are_right
    is_at host
    assert_eq "$(info_of weights '"\(.residency) \(.moves)"')" '["host"] 1'
    has_event demoted host
    jq -es --argjson bytes "$used" \
        'any(.event == "demoted" and .bytes == $bytes and .ms >= 0)' <"$M/events"
}

@test "a reader that waits is granted by the record that ends the promotion" {
    committed
    local before
    before=$(layout_of)
    move_to host host
    touch "$T/gate"
    wait_for_lock reader "$W"
    wait_until 5 grep -q '^moving device 0 ' "$W/residency"
    assert_eq "$(info_of weights .moving.to)" device
    assert_state weights COMMITTED
    rm "$T/gate"
    wait_until 10 granted "$WAITER"
    is_at 'device host'
    bytes_are_right
    assert_eq "$(layout_of)" "$before"
    let_go "$WAITER"
    # the copy was kept, so this only drops
    touch "$T/gate"
    order host
    at host
    wait_until 5 used_is 0
    rm "$T/gate"
}

# bats test_tags=slow
@test "moved_ms is when the place last changed, and a spare changes none" {
    committed
    assert_eq "$(info_of weights .moved_ms)" null
    order +host
    wait_until 10 is_at 'device host'
    assert_eq "$(info_of weights .moved_ms)" null
    local since moved
    since=$(date +%s%3N)
    move_to host host
    moved=$(info_of weights .moved_ms)
    ((moved >= since && moved <= $(date +%s%3N)))
    since=$(date +%s%3N)
    move_to device 'device host'
    moved=$(info_of weights .moved_ms)
    ((moved >= since && moved <= $(date +%s%3N)))
}

# bats test_tags=slow
@test "a reader that may not wait starts nothing" {
    committed_on_host
    expect EAGAIN open "$W/lock" rn
    expect EAGAIN open "$W/ctl" rw acquire ro 0
    expect EAGAIN open "$W/ctl" rw acquire rw 0
    expect EAGAIN open "$W/allocations/a" rw
    at host
    assert_eq "$(info_of weights .moves)" 1
}

@test "a writer waits for its store, too, and finds the committed bytes" {
    committed_on_host
    ctl open "$W/lock" rw
    at 'device host'
    bytes_are_right
}

@test "a holder of the lock keeps the store where it is; a path's reader does not" {
    committed
    hold reader "$W"
    refused EBUSY host
    refused EBUSY none
    assert_eq "$(info_of weights .held)" 1
    let_go "$HOLDER"
    hold open "$W/allocations/a" r
    assert_eq "$(info_of weights .held)" 0
    move_to host host
    let_go "$HOLDER"
    hold open "$W/lock" rw
    refused EBUSY +host
    refused EBUSY host
}

@test "a reader by a path beside the device has no lock that could be joined, through lock or by token" {
    committed_on_host
    expect EAGAIN open "$W/allocations/a" r pread 0 4 open "$W/lock" r
    hold open "$W/allocations/a" r info
    expect EAGAIN open "$W/ctl" r join "$(output_of "$HOLDER" | sed -n 's/.*token=\([0-9a-f]*\).*/\1/p')"
    at host
    let_go "$HOLDER"
}

@test "a reader that comes while its store leaves is let in, and the move ends as a spare" {
    committed
    touch "$T/gate"
    order host
    grep -q '^moving host 0 ' "$W/residency"
    refused EBUSY host
    hold reader "$W"
    rm "$T/gate"
    wait_until 10 at 'device host'
    let_go "$HOLDER"
    assert_eq "$(info_of weights .moves)" 0
    has_event copied host
}

@test "a writer ends a move away" {
    committed
    touch "$T/gate"
    order host
    hold open "$W/lock" rw
    at device
    let_go "$HOLDER"
    rm "$T/gate"
    wait_until 5 host_is_free
    bytes_are_right
    has_event move_failed ECANCELED
}

# bats test_tags=slow
@test "cancel ends a move, unless a process waits for it" {
    committed
    refused ENODATA cancel
    touch "$T/gate"
    order host
    order cancel
    at device
    rm "$T/gate"
    wait_until 5 host_is_free
    move_to host host
    touch "$T/gate"
    wait_for_lock reader "$W"
    wait_until 5 grep -q '^moving device' "$W/residency"
    refused EBUSY cancel
    rm "$T/gate"
    wait_until 10 granted "$WAITER"
}

@test "a spare is made while readers are in, and dropped" {
    committed
    hold reader "$W"
    move_to +host 'device host'
    bytes_are_right
    order +host # it is there
    at 'device host'
    order -host
    at device
    wait_until 5 host_is_free
    refused ENODATA -host
    has_event copy_dropped host
    let_go "$HOLDER"
    move_to host host
    refused EBUSY -host
}

@test "a commit drops the spares, for they are of another generation" {
    committed
    move_to +host 'device host'
    ctl open "$W/lock" rw commit
    at device
    wait_until 5 host_is_free
    assert_eq "$(info_of weights .generation)" 2
}

@test "abort after committed bytes were touched goes back to the spare" {
    committed
    move_to +host 'device host'
    ctl open "$W/allocations/a" rw write spoilt
    at host
    bytes_are_right
    assert_eq "$(info_of weights '"\(.state) \(.generation)"')" 'COMMITTED 1'
    has_event rolled_back
    ctl reader "$W"
    bytes_are_right
}

@test "none gives the bytes up and keeps the layout: committed, nothing to read, auto writes" {
    committed
    move_to +host 'device host'
    local hash
    hash=$(cat "$W/layout_hash")
    order none
    at none
    wait_until 5 used_is 0
    wait_until 5 host_is_free
    assert_eq "$(cat "$W/layout_hash")" "$hash"
    assert_state weights COMMITTED
    expect ENODATA reader "$W"
    expect ENODATA open "$W/ctl" rw acquire ro 1000
    expect EIO open "$W/allocations/a" r read 10
    refused ENODATA device
    refused ENODATA host
    ctl open "$W/auto" rw read 2
    assert_match "$output" RW
    # an abort leaves it as it was
    at none
    ctl open "$W/lock" rw clear alloc 100 1 anew '' commit
    at device
    ctl reader "$W"
}

# bats test_tags=slow
@test "there is no such tier" {
    committed
    refused ENOMEM disk
    refused ENOMEM +disk
    start_weights size=64M
    committed
    refused ENOMEM host
    refused ENOMEM +host
    assert_eq "$(device_get .host_total_bytes)" null
}

# bats test_tags=slow
@test "an unknown word is EINVAL, and only the owner and root may order" {
    committed
    for word in ' ' nowhere hos hostx 'host disk' +device -device +none -none +cancel + -; do
        refused EINVAL "$word"
    done
    refused EINVAL "$(printf 'host%100s' '')x"
    order $' host\n'
    wait_until 10 at host
    chmod 777 "$W"
    run_logged ! as_user bash -c 'echo device >"$1"' _ "$W/residency"
    assert_match "$output" 'Operation not permitted'
    chown "$TEST_UID" "$W"
    as_user bash -c 'echo device >"$1"' _ "$W/residency"
    wait_until 10 at 'device host'
}

# bats test_tags=slow
@test "a poll on residency tells that the place has changed" {
    committed
    spawn "$GMSCTL" open "$W/residency" r read 100 poll pri 30000
    local poller=$SPAWNED
    never_within 1 process_gone "$poller"
    order host
    wait_exit "$poller"
}

# bats test_tags=slow
@test "metrics tell the places of stores, and the moved bytes" {
    value() { sed -n "s/^gmsfs_$1 //p" "$M/metrics"; }
    committed_on_host
    assert_eq "$(value 'store_copy{store="weights",tier="device"}')" 0
    assert_eq "$(value 'store_copy{store="weights",tier="host"}')" 1
    assert_eq "$(value 'moves_total{from="device",to="host"}')" 1
    assert_eq "$(value move_bytes_total)" "$(info_of weights .bytes)"
    assert_eq "$(value 'tier_used_bytes{tier="host"}')" "$(info_of weights .bytes)"
    hold reader "$W"
    assert_eq "$(value 'store_held{store="weights"}')" 1
    assert_eq "$(value 'moves_total{from="host",to="device"}')" 1
    assert_eq "$(value promote_waits_total)" 1
    let_go "$HOLDER"
    move_to host host
    touch "$T/gate"
    wait_for_lock reader "$W"
    never_within 1 granted "$WAITER"
    rm "$T/gate"
    wait_until 10 granted "$WAITER"
    assert_eq "$(value promote_waits_total)" 2
    [[ $(value promote_wait_seconds_total) != 0.* ]]
    assert_eq "$(value promotion_seconds_count)" 2
}

# bats test_tags=slow
@test "keep_copy=no leaves no spare behind" {
    start_weights size=64M,host_size=32M,keep_copy=no
    committed_on_host
    move_to device device
    wait_until 5 host_is_free
    bytes_are_right
}

@test "a promotion waits for memory that others give back" {
    committed weights $((10 * MIB))
    move_to host host
    mkdir "$M/other"
    hold open "$M/other/lock" rw alloc $((50 * MIB)) 1 '' ''
    local writer=$HOLDER
    wait_for_lock reader "$W"
    never_within 1 granted "$WAITER"
    let_go "$writer"
    wait_until 10 granted "$WAITER"
    bytes_are_right
}

@test "a store that is removed while it moves leaves nothing behind" {
    mkdir "$M/gone"
    committed gone
    touch "$T/gate"
    order host gone
    rmdir "$M/gone"
    rm "$T/gate"
    wait_until 5 host_is_free
    wait_until 5 used_is 0
}

@test "many small allocations and a large one move together" {
    ctl open "$W/lock" rw alloc 4096 10 '' '' alloc $((4 * MIB)) 1 big '' commit
    local before
    before=$(sha256sum "$W"/allocations/*)
    start=$(layout_of)
    move_to host host
    assert_eq "$(sha256sum "$W"/allocations/*)" "$before"
    move_to device 'device host'
    assert_eq "$(sha256sum "$W"/allocations/*)" "$before"
    assert_eq "$(layout_of)" "$start"
}

# ---- readers that take the store where it is ---------------------------------------------------

moves_are() { # COUNT
    assert_eq "$(info_of weights .moves)" "$1"
}

@test "a reader of any place is let in at once, moves nothing, and keeps the bytes that it reads" {
    committed_on_host
    hold open "$W/ctl" rw acquire-any ro 0 export 0 0
    moves_are 1
    at host
    refused EBUSY none
    # others wait for the device all the same; the first one's copy stays until it goes
    ctl reader "$W"
    at 'device host'
    refused EBUSY -host
    let_go "$HOLDER"
    order -host
}

@test "a writer that replaces all waits for no move; allocations elsewhere it can neither use nor commit" {
    committed_on_host
    hold open "$W/ctl" rw acquire-replace rw 0
    at host
    let_go "$HOLDER"
    expect EAGAIN open "$W/ctl" rw acquire-replace rw 0 export 0 0
    expect EINVAL open "$W/ctl" rw acquire-replace rw 0 commit
    assert_match "$(info_of weights .last_error)" 'is not on the device'
    moves_are 1
    bytes_are_right
    ctl open "$W/ctl" rw acquire-replace rw 0 clear alloc 100 1 anew '' commit
    at device
    wait_until 5 host_is_free
    moves_are 1
}

@test "the commands that read take a store where it is; those that load replace it there" {
    make_model 4M 1 7
    cli load "$W" "$MODEL"
    cli sum "$W" >"$T/sum"
    move_to host host
    cli sum "$W" >"$T/sum.host"
    assert_eq "$(cat "$T/sum.host")" "$(cat "$T/sum")"
    cli verify "$W" "$MODEL"
    cli save "$W" "$T/saved.safetensors"
    cli image save "$W" "$T/image"
    at host
    moves_are 1
    cli load "$W" "$MODEL"
    at device
    moves_are 1
    cli verify "$W" "$T/saved.safetensors"
}

# bats test_tags=slow
@test "a load of a store that has left says how much the device lacks, and counts nothing that is elsewhere" {
    make_model 20M 1
    cli load -q "$W" "$MODEL"
    move_to host host
    mkdir "$M/other"
    bash -c 'exec 4<>"$1/lock"; truncate -s 56M "$1/allocations/a"; echo >"$1/commit"' _ "$M/other"
    cli -3 load --timeout 0 "$W" "$MODEL"
    assert_match "$output" 'does not fit: [0-9.]+ MiB needed, 8.0 MiB free of 64.0 MiB'
    at host
}

# bats test_tags=slow
@test "a store that comes back obeys the budget of its pool, and its waiter comes in when there is room" {
    echo 'adapters max=16M slots=1' >"$M/pools"
    mkdir "$M/other"
    committed_on_host
    setfattr -n user.gmsfs.pool -v adapters "$W" "$M/other"
    committed other
    setfattr -n user.gmsfs.pin -v 1 "$M/other" # or it would be evicted
    refused EDQUOT device
    setfattr -n user.gmsfs.pin -v 1 "$M/other" # so it leaves only by our order
    spawn timeout $((20 * HANG)) "$GMSCTL" reader "$W"
    wait_for_waiters weights 1
    is_at host
    move_to host host other
    wait_until 10 is_at 'device host'
}

# ---- swap ------------------------------------------------------------------------------------

# swapping MOUNT OPTIONS LOG: a mount on a machine with 3 GiB of swap, which no cgroup forbids; it ends again.
swapping() {
    sed 's/^SwapTotal:.*/SwapTotal: 3145728 kB/' /proc/meminfo >"$T/meminfo"
    mkdir "$1"
    # shellcheck disable=SC2016 # the other shell expands it
    spawn unshare --mount --propagation private bash -c 'mount --bind "$1" /proc/meminfo
        [[ ! -d /sys/fs/cgroup ]] || mount -t tmpfs none /sys/fs/cgroup
        shift; exec "$@"' _ "$T/meminfo" "$GMSFS" mount -f -o "backend=host,size=32M,$2" "$1"
    wait_until 10 grep -q ' mounted ' "$T/spawn-$SPAWNED"
    kill -TERM "$SPAWNED"
    wait_exit "$SPAWNED"
    output_of "$SPAWNED" >"$3"
}

# bats test_tags=slow
@test "a mount whose stores on the host may be swapped out warns of it, and says how to keep them" {
    requires root
    swapping "$T/one" host_size=32M "$T/warned"
    assert_eq "$(grep -c 'host_size=: up to 3.0 GiB .*swapped out.*MemorySwapMax=0.*host_hugepages=2M' "$T/warned")" 1 warnings
    swapping "$T/two" "spill=$T,spill_size=32M" "$T/quiet"
    assert_eq "$(grep -c 'swapped out' "$T/quiet")" 0 'warnings without memory of the host'
}

@test "memory of a graph pool is never copied: it can be given up, and moves nowhere else" {
    local word
    mkdir "$M/graph"
    ctl open "$M/graph/ctl" rw acquire rw 0 alloc 4194304 2 '' gmsfs.graph commit
    assert_eq "$(info_of graph .scratch) $(info_of weights .scratch)" 'true false'
    for word in host disk +host +disk; do
        refused EINVAL "$word" graph
    done
    run_logged -1 "$GMSFS" demote "$M/graph"
    assert_match "$output" "it is memory of CUDA graphs, .*'gmsfs demote --to none' gives it up"
    at device graph
    assert_eq "$(device_get .host_used_bytes)" 0
    run_logged -0 "$GMSFS" demote --to none "$M/graph"
    at none graph
}
