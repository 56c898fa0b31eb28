#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Budgets of stores: the file `pools`, and pool, pin and last use of a store.
#
# shellcheck disable=SC2154 # output is set by bats' run
# bats file_tags=slow

load helpers

prepare() {
    start_weights size=32M,alloc_timeout=0.2
    V=$M/other
    mkdir "$V"
}

pool_line() { # NAME
    grep "^$1 " "$M/pools"
}

in_pool() { # STORE POOL
    setfattr -n user.gmsfs.pool -v "$2" "$M/$1"
}

# Two stores of `adapters`, which may have 8 MiB.
make_adapters() {
    echo 'adapters max=8M' >"$M/pools"
    in_pool weights adapters
    in_pool other adapters
}

@test "pools has a line for each pool, and default is always there" {
    assert_eq "$(cat "$M/pools")" \
        'default min=0 max=max slots=max class=standard sm=100 stores=2 used=0 resident=0'
    echo 'chat min=2M max=1G class=high sm=60' >"$M/pools"
    echo 'adapters max=15G slots=240' >"$M/pools"
    assert_eq "$(pool_line chat)" \
        "chat min=$((2 * MIB)) max=$((1 << 30)) slots=max class=high sm=60 stores=0 used=0 resident=0"
    assert_eq "$(pool_line adapters)" \
        "adapters min=0 max=$((15 << 30)) slots=240 class=standard sm=100 stores=0 used=0 resident=0"
}

@test "a line changes only the budgets it names, and several lines are all done or none" {
    echo 'chat max=8M sm=60' >"$M/pools"
    printf 'chat max=max\n\nbatch class=batch\n' >"$T/lines"
    cat "$T/lines" >"$M/pools"
    assert_match "$(pool_line chat)" 'max=max .* sm=60 '
    assert_match "$(pool_line batch)" 'class=batch'
    printf 'chat sm=50\nbatch sm=0\n' >"$T/lines"
    expect_message EINVAL bash -c "cat '$T/lines' >'$M/pools'"
    assert_match "$(pool_line chat)" 'sm=60 '
}

@test "a pool that no store is in can be removed" {
    make_adapters
    expect_message EBUSY bash -c "echo 'adapters -' >'$M/pools'"
    setfattr -x user.gmsfs.pool "$W"
    rmdir "$V"
    echo 'adapters -' >"$M/pools"
    assert_eq "$(wc -l <"$M/pools")" 1
    expect_message EBUSY bash -c "echo 'default -' >'$M/pools'"
    expect_message ENOENT bash -c "echo 'adapters -' >'$M/pools'"
}

@test "the device has the bytes that pools are guaranteed, or it is ENOSPC" {
    echo 'chat min=20M' >"$M/pools"
    expect_message ENOSPC bash -c "echo 'batch min=13M' >'$M/pools'"
    echo 'batch min=12M' >"$M/pools"
}

@test "a store's owner changes its pin; pools and their members are for the user that mounted" {
    requires root
    echo 'chat max=8M' >"$M/pools"
    chmod 0777 "$W"
    run_logged '!' as_user bash -c "echo 'chat max=1G' >'$M/pools'"
    assert_match "$output" 'Permission denied'
    as_user cat "$M/pools" >"$T/seen"
    assert_match "$(cat "$T/seen")" 'chat'
    run_logged '!' as_user setfattr -n user.gmsfs.pool -v chat "$W"
    assert_match "$output" 'Operation not permitted'
    run_logged '!' as_user setfattr -n user.gmsfs.pin -v 1 "$W"
    assert_match "$output" 'Operation not permitted'
    chown "$(as_user id -u)" "$W"
    as_user setfattr -n user.gmsfs.pin -v 1 "$W"
    assert_eq "$(info_of weights '"\(.pool) \(.pinned)"')" 'default true'
    in_pool weights chat
    run_logged '!' as_user setfattr -x user.gmsfs.pool "$W"
    assert_match "$output" 'Operation not permitted'
    assert_eq "$(info_of weights .pool)" 'chat'
}

@test "a store's pool and pin are extended attributes that are absent where they say nothing" {
    echo 'chat max=8M' >"$M/pools"
    assert_eq "$(getfattr -d -m - --absolute-names "$W")" ''
    in_pool weights chat
    setfattr -n user.gmsfs.pin -v 1 "$W"
    assert_eq "$(getfattr -d -m - --absolute-names "$W" | grep '=' | sort | paste -sd ' ')" \
        'user.gmsfs.pin="1" user.gmsfs.pool="chat"'
    expect_message ENOENT setfattr -n user.gmsfs.pool -v none "$W"
    expect_message EINVAL setfattr -n user.gmsfs.pin -v 2 "$W"
    expect_message EPERM setfattr -n user.gmsfs.last_used -v 2 "$W"
    setfattr -x user.gmsfs.pool "$W"
    setfattr -x user.gmsfs.pin "$W"
    assert_eq "$(info_of weights '"\(.pool) \(.pinned)"')" 'default false'
    assert_eq "$(jq -r '.event' "$M/events" | grep pinned | paste -sd ' ')" 'pinned unpinned'
}

@test "beyond a pool's max is EDQUOT, by every way to ask for memory, and events name the pool" {
    make_adapters
    hold open "$W/ctl" rw acquire rw 0 alloc $((6 * MIB)) 1 '' '' say ready
    assert_match "$(pool_line adapters)" "stores=2 used=$((6 * MIB)) resident=1"
    expect EDQUOT open "$V/ctl" rw acquire rw 0 alloc $((4 * MIB)) 1 '' ''
    expect EDQUOT open "$V/ctl" rw acquire rw 0 alloc $((2 * MIB)) 2 '' ''
    expect EDQUOT open "$V/lock" rw open "$V/allocations/a" rwc ftruncate $((4 * MIB))
    expect EDQUOT open "$V/ctl" rw acquire-reserve rw 0 $((4 * MIB))
    expect EDQUOT open "$V/ctl" rw acquire-reserve rw 5000 $((10 * MIB))
    assert_eq "$(jq -r 'select(.event == "over_quota") | "\(.store) \(.pool)"' "$M/events")" 'other adapters'
    ctl open "$V/ctl" rw acquire rw 0 alloc $((2 * MIB)) 1 '' ''
    assert_match "$(pool_line adapters)" "used=$((6 * MIB)) resident=1"
    mkdir "$M/free"
    ctl open "$M/free/ctl" rw acquire rw 0 alloc $((10 * MIB)) 1 '' ''
}

@test "bytes written without a size are bounded by the pool as well" {
    make_adapters
    {
        run_logged '!' dd if=/dev/zero of="$W/allocations/a" bs=1M count=16
        assert_match "$output" 'Disk quota exceeded'
        assert_eq "$(stat -c %s "$W/allocations/a")" $((8 * MIB))
        assert_match "$(pool_line adapters)" "used=$((8 * MIB)) resident=1"
        truncate -s 0 "$W/allocations/a"
        assert_match "$(pool_line adapters)" 'used=0 resident=0'
    } 5<>"$W/lock"
}

@test "a store is held while its lock is held, and was last used at the end of that" {
    local before after
    assert_eq "$(info_of other '"\(.held) \(.last_used_ms)"')" '0 null'
    commit_store
    before=$(info_of weights .last_used_ms)
    ((before > 0))
    assert_eq "$(getfattr -n user.gmsfs.last_used --only-values --absolute-names "$W")" "$before"
    cat "$W/allocations/a" >/dev/null
    assert_eq "$(info_of weights .last_used_ms)" "$before" 'by path'
    hold open "$W/lock" r
    assert_eq "$(info_of weights .held)" 1
    (($(info_of weights .last_used_ms) > before))
    grep -qx 'gmsfs_store_held{store="weights"} 1' "$M/metrics"
    let_go "$HOLDER"
    wait_until 5 state_is weights COMMITTED
    after=$(info_of weights .last_used_ms)
    ((after > before))
    assert_eq "$(info_of weights '"\(.held) \(.last_used_ms)"')" "0 $after"
}

@test "metrics have the pools, and when a store was last used" {
    make_adapters
    commit_store
    local used
    used=$(pool_line adapters | sed 's/.*used=\([0-9]*\).*/\1/')
    ((used > 0))
    grep -qx 'gmsfs_pool_min_bytes{pool="default"} 0' "$M/metrics"
    grep -qx "gmsfs_pool_max_bytes{pool=\"adapters\"} $((8 * MIB))" "$M/metrics"
    grep -qx "gmsfs_pool_used_bytes{pool=\"adapters\"} $used" "$M/metrics"
    run_logged -1 grep 'gmsfs_pool_max_bytes{pool="default"}' "$M/metrics"
    grep -qx "gmsfs_store_last_used_seconds{store=\"weights\"} $(($(info_of weights .last_used_ms) / 1000))" "$M/metrics"
    run_logged -1 grep 'gmsfs_store_last_used_seconds{store="other"}' "$M/metrics"
}

# ---- commands ----------------------------------------------------------------------------------

@test "status --pool shows the stores of a pool, its budget, and when each was last used" {
    requires jq
    make_adapters
    mkdir "$M/elsewhere"
    commit_store
    setfattr -n user.gmsfs.pin -v 1 "$V"
    hold open "$W/lock" r
    run_logged -0 "$GMSFS" status --pool adapters "$M"
    assert_match "$output" 'adapters: [0-9.]+ [KM]iB of 8.0 MiB used, 1 with memory, class standard'
    assert_match "$output" 'weights +RO +device +2.0 MiB +- +now +RO '
    assert_match "$output" 'other +EMPTY +- +0 B +pinned +never +-'
    [[ $output != *elsewhere* ]]
    let_go "$HOLDER"
    wait_until 5 state_is weights COMMITTED
    run_logged -0 "$GMSFS" status --pool adapters "$M"
    assert_match "$output" 'weights +COMMITTED +device +2.0 MiB +- +[0-9]+ s ago +-'
    run_logged -0 "$GMSFS" status --json --pool adapters "$M"
    assert_eq "$(jq -r '.[0].stores | map(.name) | sort | join(" ")' <<<"$output")" 'other weights'
    assert_eq "$(jq -c '.[0].pools[] | select(.name == "adapters") | [.max, .slots, .class]' <<<"$output")" \
        "[$((8 * MIB)),null,\"standard\"]"
    run_logged -1 "$GMSFS" status --pool none "$M"
    assert_match "$output" 'none: no mount that was looked at has a pool of this name'
}

@test "run --mps hands out the pool's part of the processors, and never more than is set already" {
    echo 'chat sm=60' >"$M/pools"
    in_pool weights chat
    commit_store
    commit_store other
    # shellcheck disable=SC2016 # the command's to expand
    percentage_of() { # STORE
        "$GMSFS" run --mps --read "$M/$1" -- sh -c 'echo "${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE-unset}"'
    }
    assert_eq "$(percentage_of weights)" 60
    assert_eq "$(percentage_of other)" unset
    assert_eq "$(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30 percentage_of weights)" 30
    assert_eq "$(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=90 percentage_of weights)" 60
    # shellcheck disable=SC2016
    run_logged -0 "$GMSFS" run --read "$W" -- sh -c 'echo "${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE-unset}"'
    assert_eq "${lines[-1]}" unset
}
