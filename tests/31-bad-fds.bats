#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Invalid uses of tickets and of .fds: an errno for their clients, no effect on others.
#
# shellcheck disable=SC2153 # HOLDER and SPAWNED come from helpers
# bats file_tags=slow

load helpers
load bad_input

prepare() { setup_bad_input; }

open_files_of_worker() {
    find "/proc/$(worker_of "$KEEPER")/fd" -mindepth 1 | wc -l
}

# ---- tickets ---------------------------------------------------------------------------------

@test "a ticket that was never made or was used, or whose session or memory is gone, is ESTALE" {
    expect ESTALE connect "$M" redeem 00000000000000000000000000000000 1
    expect ESTALE connect "$M" redeem ffffffffffffffffffffffffffffffff 253
    expect ESTALE open "$W/ctl" rw acquire rw 0 alloc 4096 1 a '' export 0 0 connect "$M" \
        redeem last 253 redeem last 253
    assert_eq "$(grep -c '^item' <<<"$output")" 1
    expect ESTALE open "$W/ctl" rw acquire rw 5000 alloc 4096 1 a '' export 0 0 free 0 connect "$M" \
        redeem last 1
    spawn "$GMSCTL" open "$W/ctl" rw acquire rw 5000 alloc 4096 1 a '' export 0 0 say held
    wait_exit -0 "$SPAWNED"
    output=$(output_of "$SPAWNED")
    expect ESTALE connect "$M" redeem "$(field ticket)" 1
}

@test "a ticket of another user is EACCES, and stays good for its owner" {
    requires root
    spawn "$GMSCTL" open "$W/ctl" rw acquire rw 0 alloc 4096 1 a '' export 0 0 say held \
        until "$T/go" connect "$M" redeem last 1
    wait_until 5 said "$SPAWNED" held
    output=$(output_of "$SPAWNED")
    run_logged -1 as_user "$GMSCTL" connect "$M" redeem "$(field ticket)" 1
    assert_eq "${lines[-1]}" EACCES
    touch "$T/go"
    wait_exit "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" 'item rank=0'
}

@test "a ticket expires" {
    hold open "$W/ctl" rw acquire rw 0 alloc 4096 1 a '' export 0 0
    run output_of "$HOLDER"
    sleep 31 # CORE_TICKET_MS; nothing tells from outside
    expect ESTALE connect "$M" redeem "$(field ticket)" 1
}

@test "a batch takes as many descriptors as it says, in rank order" {
    ctl open "$W/ctl" rw acquire rw 0 alloc 4096 600 a0 '' export 0 0 connect "$M" redeem last 253
    assert_eq "$(grep -c '^item' <<<"$output")" 600
    assert_eq "$(sed -n 's/^item rank=\([0-9]*\) .*/\1/p' <<<"$output" | sort -cn && echo sorted)" sorted
    assert_eq "$(grep -o '^message count=[0-9]*' <<<"$output" | tr '\n' ' ')" \
        'message count=253 message count=253 message count=94 '
    ctl open "$W/ctl" rw acquire rw 5000 alloc 4096 5 a0 '' export 1 3 connect "$M" redeem last 2
    assert_eq "$(sed -n 's/^item rank=\([0-9]*\) .*/\1/p' <<<"$output" | tr '\n' ' ')" '1 2 3 '
}

@test "readers get read-only descriptors of sealed memory without mode bits" {
    requires root
    chmod 777 "$W"
    ctl open "$W/ctl" rw acquire rw 0 alloc 4096 1 a '' export-rw 0 0 connect "$M" redeem last 1 commit
    # F_SEAL_SHRINK | F_SEAL_GROW, after a commit F_SEAL_SEAL, and F_SEAL_EXEC where there is one
    assert_match "$output" 'access=rw mode=0 seals=2?6 shrink=EPERM reopen=ok'
    run_logged -0 as_user "$GMSCTL" open "$W/ctl" r acquire-export ro 5000 connect "$M" redeem last 1
    assert_match "$output" 'access=r mode=0 seals=2?7 shrink=E[A-Z]+ reopen=EACCES'
    run_logged -0 as_user "$GMSCTL" open "$W/ctl" rw acquire rw 5000 export 0 0 connect "$M" redeem last 1
    assert_match "$output" 'access=r mode=0'
}

# ---- .fds ------------------------------------------------------------------------------------

@test "messages on .fds that are no requests are answered or dropped" {
    request=0100000001000000fd00000000000000
    id=$(printf '%032d' 0)
    for bytes in 00 "$request" "${request}00" 02000000"${request:8}$id" "${request:0:8}90000000${request:16}$id" \
        "${request:0:16}00000000${request:24}$id" "${request:0:16}fe000000${request:24}$id" \
        "${request:0:24}01000000$id" "$request${id}01" "$request$id$request$id$request$id"; do
        run_logged -1 timeout $((5 * HANG)) "$GMSCTL" connect "$M" send "hex:$bytes" receive receive
        assert_match "${lines[-1]}" '^(EINVAL|ECONNRESET)$'
    done
    run_logged '!' timeout 5 "$GMSCTL" connect "$M" send fill:60000 receive
    ctl connect "$M" disconnect
    still_works
}

@test "messages about regions that are none are answered or dropped" {
    head=010000000b0000000000000000000000$(printf '%032d' 0)
    none=$(printf '%02288d' 0) # what follows the first 32 of 1176 bytes
    ctl connect "$M" send "hex:${head/0b/0e}$none" receive # a list of no kind in particular
    for bytes in "$head" "$head${none:2}" "$head${none:8}01000000" "${head/0b/0f}$none" \
        "$head${none:0:-2}01" "${head}01${none:2}" "$head${none}01" "${head:0:16}01${head:18}$none"; do
        run_logged -1 timeout $((5 * HANG)) "$GMSCTL" connect "$M" send "hex:$bytes" receive receive
        assert_match "${lines[-1]}" '^(EINVAL|ECONNRESET)$'
    done
    run_logged '!' timeout 5 "$GMSCTL" connect "$M" send "hex:$head$none$none$none" receive
    still_works
}

@test "unrequested descriptors are not taken, and one is enough" {
    before=$(open_files_of_worker)
    expect EINVAL connect "$M" region-register self r /key "path:$M/device" 0 1
    expect EINVAL connect "$M" region-register self r /key "path:$BATS_TEST_FILENAME" 0 1
    expect EINVAL open "$W/ctl" r connect "$M" region-register self r /key file 0 1
    for _ in {1..50}; do
        ctl connect "$M" region-register-many r region-unregister self 0 r
    done
    wait_until 5 eval "[[ \$(open_files_of_worker) -le $((before + 4)) ]]" # it keeps some of who asked last
    still_works
}

@test "descriptors whose close never ends cost their user the next one, and other users nothing" {
    requires root
    local first=$M stuck
    start_mount size=16M
    stuck=$(worker_of "$KEEPER")
    # The end of a `ctl` asks its daemon, unlike that of a text; so this process waits as well.
    again=(try region-register self r /key file 0 1)
    spawn "$GMSCTL" open "$M/weights/ctl" r say ready until "$T/go" connect "$first" \
        "${again[@]}" "${again[@]}" "${again[@]}" "${again[@]}" say sent
    wait_until 10 said "$SPAWNED" ready
    kill -STOP "$stuck"
    touch "$T/go"
    wait_until 10 said "$SPAWNED" sent
    run_logged -1 timeout $((10 * HANG)) "$GMSCTL" connect "$first" region-register self r /key memfd:1 0 1
    assert_eq "${lines[-1]}" EINVAL # none is taken from this user now
    run_logged -0 as_user timeout $((10 * HANG)) "$GMSCTL" connect "$first" region-register self r /key memfd:1 0 1
    kill -CONT "$stuck"
    wait_exit "$SPAWNED"
    M=$first W=$first/weights
    wait_until 10 "$GMSCTL" connect "$M" region-register self r /key memfd:1 0 1
    still_works
}

@test "a client that never reads its descriptors harms no other, and does not pin them" {
    before=$(open_files_of_worker)
    hold open "$W/ctl" rw acquire rw 0 alloc 4096 4000 a0 '' connect "$M" export 0 0 request last 1
    hold connect "$M"
    run_logged -0 timeout $((5 * HANG)) cat "$W/state"
    output=$(output_of "${SPAWNS[0]}")
    token=$(field token)
    ctl open "$W/ctl" rw join "$token" export 0 2 connect "$M" redeem last 253
    let_go "${SPAWNS[@]}"
    assert_state weights EMPTY 5
    wait_until 5 used_is 0
    wait_until 5 eval "[[ \$(open_files_of_worker) -le $((before + 2)) ]]"
    still_works
}

@test "a client in a hurry: killed at any moment of attaching" {
    ctl open "$W/ctl" rw acquire rw 0 alloc 4096 500 a0 '' commit
    for i in {1..20}; do
        spawn "$GMSCTL" repeat 1000 open "$W/ctl" r acquire-export ro 1000 connect "$M" \
            redeem last 100 disconnect forget close
        sleep "0.0$((i % 10))"
        kill -KILL "$SPAWNED"
    done
    assert_state weights COMMITTED 5
    still_works
}
