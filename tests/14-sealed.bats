#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Sealed layouts: the shape is final; the bytes outlive each writer and go to the next one when no other
# process can write them any more.
#
# shellcheck disable=SC2016 # jq programs
# shellcheck disable=SC2153 # HOLDER and SPAWNED come from helpers
# bats file_tags=cuda,slow:cuda

load helpers

prepare() { start_weights writer_patience=2; }

# seal_store: a sealed allocation `kv` of 1 MiB that begins with "cached" and an entry `shape`; no session
# remains, and no client ever had its memory.
seal_store() {
    local bytes=(pwrite 0 cached)
    [[ $BACKEND == host ]] || bytes=()
    ctl open "$W/data" rw open "$W/allocations/kv" rwc ftruncate 1048576 "${bytes[@]}" \
        use 0 put shape '2x4' 0 16 open "$W/seal" w write 1
    wait_until 5 state_is weights LAYOUT_COMMITTED
}

# seal_and_keep: the same by a process of its own, which was handed the memory and goes on; sets HOLDER.
seal_and_keep() {
    local bytes=(poke 0 0 cached)
    [[ $BACKEND == host ]] || bytes=()
    hold open "$W/ctl" rw acquire data 0 alloc 1048576 1 kv '' export-rw 0 0 connect "$M" redeem last 1 \
        "${bytes[@]}" put shape '2x4' 0 16 seal
}

# sealed_unchanged: the sealed layout is complete, and no session holds it.
sealed_unchanged() {
    assert_state weights LAYOUT_COMMITTED
    assert_eq "$(names "$W/allocations")" kv allocations
    assert_eq "$(cat "$W/metadata/shape")" 2x4 entry
    assert_eq "$(info_of weights .generation)" 1 generation
    [[ $BACKEND != host ]] || ctl open "$W/allocations/kv" rw pread 0 6
    [[ $BACKEND != host ]] || assert_match "$output" 'cached'
    assert_state weights LAYOUT_COMMITTED
}

# ---- through files alone -----------------------------------------------------------------------

@test "a shell seals, is killed, and the next one finds the same bytes in the same layout" {
    spawn bash -ec 'exec 3<>"$1/data"; cat <&3
        truncate -s 3000000 "$1/allocations/kv"
        printf cached | dd of="$1/allocations/kv" conv=notrunc status=none
        printf 2x4 >"$1/metadata/shape"; echo 1 >"$1/seal"
        printf more | dd of="$1/allocations/kv" bs=1 seek=6 conv=notrunc status=none
        cat "$1/layout_hash"; echo sealed; exec sleep 1000' sh "$W"
    writer=$SPAWNED
    wait_until 10 said "$writer" sealed
    assert_match "$(output_of "$writer")" '^RW [0-9]+'
    assert_state weights RW
    assert_match "$(cat "$W/sessions")" "^[0-9]+ RW_DATA held $writer "
    hash=$(cat "$W/layout_hash")
    said "$writer" "$hash"
    kill -KILL "$writer"
    assert_state weights LAYOUT_COMMITTED
    assert_eq "$(cat "$W/layout_hash")" "$hash"
    exec 5<>"$W/data"
    assert_match "$(cat <&5)" '^RW_DATA [0-9]+$'
    assert_eq "$(cat "$W/layout_hash")" "$hash" 'hash while it is written'
    assert_eq "$(head -c 10 "$W/allocations/kv")" cachedmore
    assert_eq "$(cat "$W/metadata/shape")" 2x4
    assert_eq "$(stat -c %s "$W/allocations/kv")" 3000000
    printf again | dd of="$W/allocations/kv" conv=notrunc status=none
    exec 5>&-
    assert_state weights LAYOUT_COMMITTED
    exec 5<>"$W/data"
    assert_eq "$(head -c 10 "$W/allocations/kv")" againdmore
    exec 5>&-
}

@test "a sealed layout shows its text, its hash and that it is not committed" {
    seal_store
    assert_eq "$(info_of weights '"\(.state) \(.committed) \(.sealed) \(.generation) \(.allocations)"')" \
        'LAYOUT_COMMITTED false true 1 1'
    hash=$(cat "$W/layout_hash")
    assert_match "$hash" '^[0-9a-f]{32}$'
    assert_eq "$(info_of weights .layout_hash)" "$hash"
    assert_eq "$(xxhsum -H2 "$W/layout" | cut -d ' ' -f 1)" "$hash"
    ctl open "$W/state" r info
    assert_match "$output" "state=LAYOUT_COMMITTED .*committed=0 sealed=1 .*hash=$hash"
    grep -q 'gmsfs_store_state{store="weights",state="LAYOUT_COMMITTED"} 1' "$M/metrics"
    hold open "$W/data" rw
    assert_match "$(cat "$W/sessions")" '^[0-9]+ RW_DATA held '
    assert_eq "$(info_of weights '"\(.state) \(.committed) \(.sealed) \(.layout_hash)"')" "RW false true $hash"
    let_go "$HOLDER"
}

# bats test_tags=host
@test "data is a whole writer's where nothing is sealed" {
    ctl open "$W/data" rw say granted read 64
    assert_match "$output" 'RW [0-9]+'
    commit_store
    ctl open "$W/data" rw info close
    assert_match "$output" 'mode=RW '
    unchanged
}

@test "a sealed layout changes its bytes alone" {
    seal_store
    exec 5<>"$W/data"
    expect_message ENOLCK touch "$W/allocations/new"
    expect_message ENOLCK rm "$W/allocations/kv"
    expect_message ENOLCK mv "$W/allocations/kv" "$W/allocations/other"
    expect_message ENOLCK truncate -s 0 "$W/allocations/kv"
    expect_message ENOLCK setfattr -n user.gmsfs.tag -v t "$W/allocations/kv"
    expect_message ENOLCK rm "$W/metadata/shape"
    expect ENOLCK open "$W/metadata/new" wc
    expect ENOLCK open "$W/metadata/shape" wt
    expect ENOLCK open "$W/allocations/kv" rwt
    expect ENOLCK open "$W/commit" w write 1
    expect ENOLCK open "$W/seal" w write 1
    exec 5>&-
    for op in 'alloc 4096 1 b0 x' 'free 0' clear 'put k v 0 0' 'delete shape' 'reserve 4096 0' commit seal; do
        # shellcheck disable=SC2086 # words
        expect ENOLCK open "$W/ctl" rw acquire data 5000 $op
    done
    expect ENOLCK open "$W/ctl" rw acquire data 5000 write fill:10
    expect ENOLCK open "$W/ctl" rw acquire data 5000 apply
    sealed_unchanged
}

@test "an abort on a sealed layout gives the lock back and keeps everything" {
    seal_store
    ctl open "$W/data" rw open "$W/allocations/kv" rw open "$W/abort" w write 1
    sealed_unchanged
    ctl open "$W/ctl" rw acquire data 5000 abort
    assert_match "$output" 'rolled_back=0'
    sealed_unchanged
    hold open "$W/data" rw
    echo "revoke $(awk '$2 == "RW_DATA" { print $1 }' "$W/sessions")" >"$W/abort"
    sealed_unchanged
    let_go "$HOLDER"
}

# bats test_tags=host
@test "only a writer seals, and with everything in order" {
    expect ENOLCK open "$W/seal" w write 1
    expect ENOLCK open "$W/ctl" rw seal
    commit_store
    expect ENOLCK open "$W/lock" r open "$W/seal" w write 1
    expect EINVAL open "$W/ctl" rw acquire rw 5000 commit-flags 9
    expect EINVAL open "$W/lock" rw open "$W/allocations/empty" rwc open "$W/seal" w write 1
    assert_match "$(info_of weights .last_error)" empty
    unchanged
}

@test "a committed layout that is sealed is committed no more" {
    commit_store
    ctl open "$W/lock" rw open "$W/seal" w write 1 use 0 info
    assert_match "$output" 'mode=RW_DATA state=RW .*committed=0 sealed=1 generation=2'
    assert_state weights LAYOUT_COMMITTED
    expect EAGAIN open "$W/lock" rn
}

# ---- the next holder ---------------------------------------------------------------------------

@test "bytes are handed on only when the process that has the memory has exited" {
    seal_and_keep
    writer=$HOLDER
    assert_eq "$(info_of weights '.may_write | join(" ")')" "$writer"
    wait_for_lock open "$W/data" rw read 64
    assert_eq "$(awk '$3 == "waiting" { print $2 }' "$W/sessions")" DATA
    id=$(awk '$2 == "RW_DATA" { print $1 }' "$W/sessions")
    echo "revoke $id" >"$W/abort"
    assert_state weights LAYOUT_COMMITTED
    never_within 1 granted "$WAITER"
    kill -KILL "$writer"
    wait_until 5 granted "$WAITER"
    assert_match "$(output_of "$WAITER")" 'RW_DATA [0-9]+'
    assert_eq "$(info_of weights '.may_write | length')" 0
    let_go "$WAITER"
    sealed_unchanged
}

# bats test_tags=slow
@test "a child that asks on its parent's connection is the process to wait for" {
    # The parent takes the lock and connects; its child redeems the ticket, and outlives it.
    spawn "$GMSCTL" open "$W/ctl" rw acquire data 0 alloc 4096 1 kv '' seal export-rw 0 0 connect "$M" \
        fork-until "$T/done" redeem last 1 say child pause
    wait_until 10 said "$SPAWNED" child
    child=$(info_of weights '.may_write | join(" ")')
    [[ -n $child && $child != "$SPAWNED" ]]
    touch "$T/done"
    wait_exit "$SPAWNED"
    assert_state weights LAYOUT_COMMITTED
    expect EAGAIN open "$W/data" rwn
    kill -KILL "$child"
    wait_until 5 process_gone "$child"
    ctl open "$W/data" rw
}

# ---- events that keep it, and events that destroy it -------------------------------------------

@test "touch, cp, rm, dd and truncate outside a session lose nothing that is sealed" {
    seal_store
    head -c 100 /dev/zero >"$T/zeros"
    expect_message ENOLCK touch "$W/allocations/new"
    expect_message ENOLCK cp "$T/zeros" "$W/allocations/new"
    expect_message ENOLCK cp "$T/zeros" "$W/allocations/kv"
    expect_message ENOLCK bash -c ": >'$W/allocations/kv'"
    expect_message ENOLCK rm "$W/allocations/kv"
    expect_message ENOLCK truncate -s 100 "$W/allocations/kv"
    expect_message ENOLCK truncate -s 0 "$W/allocations/kv"
    expect_message ENOLCK touch "$W/metadata/new"
    expect_message ENOLCK rm "$W/metadata/shape"
    run touch "$W/allocations/kv"
    sealed_unchanged
}

# bats test_tags=host
@test "writing to allocations outside a session writes bytes, and closing keeps them" {
    seal_store
    printf X | dd of="$W/allocations/kv" bs=1 conv=notrunc status=none
    assert_state weights LAYOUT_COMMITTED
    assert_eq "$(names "$W/allocations")" kv
    exec 5<>"$W/data"
    assert_eq "$(head -c 6 "$W/allocations/kv")" Xached
    exec 5>&-
}

@test "an acquire may begin with nothing" {
    commit_store
    expect EINVAL open "$W/ctl" rw acquire-fresh ro 0
    ctl open "$W/ctl" rw acquire-fresh rw 5000 info
    assert_match "$output" 'mode=RW .*committed=0 sealed=0 generation=1 allocations=0'
    assert_state weights EMPTY
    assert_eq "$(jq -r .event "$M/events" | tail -n 3 | paste -sd ' ')" 'cleared rw_connected aborted'
}

@test "a member joins by data, and by no other lock than it has" {
    exec 5<>"$W/lock"
    exec 6<>"$W/data"
    id=$(cat <&6)
    assert_eq "$id" "$(cat <&5)"
    exec 6>&-
    truncate -s 1M "$W/allocations/kv"
    echo 1 >"$W/seal"
    exec 6<>"$W/data"
    assert_eq "$(cat <&6)" "${id/RW/RW_DATA}"
    expect EDEADLK open "$W/lock" rw
    ctl open "$W/lock" r open "$W/auto" rw info
    assert_match "$output" 'mode=RW_DATA'
    exec 5>&- 6>&-
    assert_state weights LAYOUT_COMMITTED
    commit_store
    exec 5<"$W/lock"
    expect EDEADLK open "$W/data" rw
    exec 5<&-
}

# bats test_tags=slow
@test "events tell of each step" {
    seal_store
    ctl open "$W/data" rw
    assert_state weights LAYOUT_COMMITTED
    assert_eq "$(jq -r 'select(.store == "weights") | .event' "$M/events" | tail -n +2 | paste -sd ' ')" \
        'rw_connected layout_committed rw_data_disconnected rw_data_connected rw_data_disconnected'
    assert_eq "$(last_event '"\(.allocations) \(.generation)"')" '1 1'
}

@test "writers of a store are those of its users' rights" {
    requires root
    seal_store
    chmod 755 "$W"
    run_logged -1 as_user "$GMSCTL" open "$W/data" rw
    assert_eq "${lines[-1]}" EACCES
    run_logged -1 as_user "$GMSCTL" open "$W/seal" w
    assert_eq "${lines[-1]}" EACCES
    sealed_unchanged
    chmod 777 "$W"
    run_logged -0 as_user "$GMSCTL" open "$W/data" rw
    assert_state weights LAYOUT_COMMITTED
}

@test "a store that is sealed is replaced by no rename, and goes with rmdir" {
    seal_store
    mkdir "$M/next"
    run_logged '!' mv -T "$M/next" "$W"
    assert_match "$output" 'Directory not empty'
    sealed_unchanged
    mv -T "$W" "$M/kv_cache"
    assert_state kv_cache LAYOUT_COMMITTED
    rmdir "$M/kv_cache"
    wait_until 5 used_is 0
}

# ---- the commands --------------------------------------------------------------------------------

@test "gmsfs run --data seals the layout its command made, and the next one adopts it" {
    cli run --data "$W" -- bash -c 'echo "$GMSFS_MODE" && truncate -s 1M "$GMSFS_STORE/allocations/kv" &&
        printf cached | dd of="$GMSFS_STORE/allocations/kv" conv=notrunc status=none'
    assert_eq "$output" RW
    assert_state weights LAYOUT_COMMITTED
    cli -7 run -d "$W" -- bash -c 'echo "$GMSFS_MODE" && head -c 6 "$GMSFS_STORE/allocations/kv" && exit 7'
    assert_eq "$output" "$(printf 'RW_DATA\ncached')"
    assert_state weights LAYOUT_COMMITTED
    cli -5 run -w "$W" -- bash -c 'echo 1 >"$GMSFS_STORE/seal"; exit 5'
    assert_state weights LAYOUT_COMMITTED
    assert_eq "$(names "$W/allocations")" ''
}

@test "gmsfs run --data whose command fails before it seals leaves nothing" {
    cli -3 run --data "$W" -- bash -c 'truncate -s 1M "$GMSFS_STORE/allocations/kv"; exit 3'
    assert_match "$output" 'nothing was committed'
    assert_state weights EMPTY
}

# bats test_tags=slow
@test "gmsfs run --data names the processes that can still write" {
    seal_and_keep
    echo "revoke $(awk '$2 == "RW_DATA" { print $1 }' "$W/sessions")" >"$W/abort"
    assert_state weights LAYOUT_COMMITTED
    cli -3 run --data --nonblock "$W" -- true
    assert_match "$output" "may_write"
    let_go "$HOLDER"
    cli run --data --nonblock "$W" -- true
}

# bats test_tags=slow
@test "commands show the state, and commands that read say why they cannot" {
    seal_store
    cli ls "$W"
    assert_match "$output" 'shape .* kv '
    cli ls --json "$W"
    assert_eq "$(jq -r .state <<<"$output")" LAYOUT_COMMITTED
    cli status "$M"
    assert_match "$output" 'weights +LAYOUT_COMMITTED'
    cli wait --timeout 0 "$W" LAYOUT_COMMITTED
    cli -3 wait --timeout 0 "$W" COMMITTED,RO
    for command in "save $W $T/out.safetensors" "sum $W" "image save $W $T/image"; do
        # shellcheck disable=SC2086 # words
        cli -1 $command
        assert_match "$output" 'LAYOUT_COMMITTED: its layout is sealed'
    done
    hold open "$W/data" rw
    cli status "$M"
    assert_match "$output" "RW_DATA $HOLDER"
    cli -3 sum --timeout 0.1 "$W"
    assert_match "$output" 'its layout is sealed'
    let_go "$HOLDER"
    sealed_unchanged
}

# bats test_tags=slow
@test "gmsfs drain gives back sealed memory" {
    seal_store
    cli drain "$M"
    wait_until 5 used_is 0
    assert_state weights EMPTY
}
