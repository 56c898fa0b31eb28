#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Clients of the GMS protocols: their messages are tested by the unittest files of tests/python that the
# first tests run; the rest tests their sockets as files, and a shell's view of them.
#
# bats file_tags=slow

load helpers
load python
load gms

prepare() { gms_setup; }

# bats test_tags=quick
@test "the test client speaks as the reference does, and finds answers that are wrong" {
    python_with msgpack
    python -m unittest -v test_gms_client
    assert_match "$output" 'OK'
}

# bats test_tags=quick
@test "V0: grants, waits and their time limits" { gms_tests test_gms_locks; }
@test "V0: every request in every state by every kind of session" { gms_tests test_gms_v0; }
# bats test_tags=quick
@test "V0: allocations, bytes, entries and the hash of a layout, and memory that there is not" { gms_tests test_gms_v0_content; }
@test "V1: every request in every state by every kind of session, locks, identity" { gms_tests test_gms_v1; }
@test "V1: checkpoints need unused stores, turn all requests away, and end by their token" { gms_tests test_gms_v1_checkpoints; }
@test "V0 and V1: malformed frames, floods and many connections harm no other client" { gms_tests test_gms_frames; }
@test "V0 and V1: random frames, connects and exports, very many, leave the daemon as it was" { gms_tests test_gms_many; }
@test "V0 and V1: the sender of a request on a connection is known, and descriptors are not taken" { gms_tests test_gms_senders; }
# bats test_tags=quick
@test "V0, V1, files and commands share one lock, one queue, one layout and one event log" { gms_tests test_gms_mixed; }

# ---- the sockets -----------------------------------------------------------------------------

@test "a client beyond the last connection is closed, which costs neither the keeper nor others" {
    # shellcheck disable=SC2016,SC2034 # for the inner shell; start_mount reads it
    MOUNT_VIA=(bash -c 'ulimit -n 300; exec "$@"' -)
    start_gms_mount
    gms v0 weights lock rw - allocate 100 - commit
    python -c 'if True:
        import sys, gms_client

        def is_refused(held):
            client = gms_client.V0(sys.argv[1])
            try:
                client.lock("ro", 0)
            except gms_client.Closed:
                return True
            held.append(client)
            return False

        def woke(): # the keeper, which sleeps until it is told something
            with open(f"/proc/{sys.argv[2]}/status", encoding="ascii") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("voluntary"))

        held = []
        before = woke()
        while not is_refused(held):
            pass
        kept, before = woke() - before, woke()
        for _ in range(200):
            assert is_refused([])
        refused = woke() - before
        for client in held:
            client.lock_state()
        assert kept > len(held) / 2 > refused, (kept, len(held), refused)
        print("held", len(held))' "$(v0_socket weights)" "$KEEPER"
    assert_match "$output" '^held [1-9][0-9]'
    assert_match "$(<"$LOG")" 'GMS socket of weights: connection refused: .*connection.*LIMITS.*end some'
    assert_match "$(jq -r 'select(.event == "bound") | .bound' "$M/events")" connections
}

@test "the log names the remedy where the daemon has no descriptor left, and clients wait for one" {
    local worker limits
    start_gms_mount
    worker=$(worker_of "$KEEPER")
    limits=$(prlimit --pid "$worker" --nofile --raw --noheadings --output SOFT,HARD)
    prlimit --pid "$worker" --nofile=3:
    gms_command v0 weights state
    spawn "${COMMAND[@]}"
    wait_until 10 grep -q 'cannot accept: the daemon has no descriptor left: raise its limit of open files' "$LOG"
    prlimit --pid "$worker" --nofile="${limits/ /:}"
    wait_exit "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" 'state=EMPTY'
}

# ---- from a shell ----------------------------------------------------------------------------

# bats test_tags=quick
@test "requests are counted by kind in metrics, and go on with the next worker" {
    start_gms_mount
    gms v0 weights lock rw - allocate 65536 first allocate 65536 second commit
    local wanted='gms_(handshake"} 1|allocate"} 2|commit"} 1)$'
    assert_eq "$(grep -cE "^gmsfs_requests_total\{kind=\"$wanted" "$M/metrics")" 3
    kill_worker
    assert_eq "$(grep -cE "^gmsfs_requests_total\{kind=\"$wanted" "$M/metrics")" 3
    gms v0 weights lock ro -
    assert_match "$(grep 'loop_seconds_total{kind="gms_handshake"' "$M/metrics")" ' 0\.0*[1-9]'
    grep -qxF 'gmsfs_requests_total{kind="gms_handshake"} 2' "$M/metrics"
    cat "$M/metrics" >"$T/metrics"
    assert_eq "$(sed -n 's/^gmsfs_request_loop_seconds_count //p' "$T/metrics")" \
        "$(awk '/^gmsfs_requests_total/ { sum += $2 } END { print sum }' "$T/metrics")"
}

@test "a client that stands still in a frame does not hold up unmounting" {
    start_gms_mount
    exec 7< <("$PYTHON" -c 'import socket, sys, time
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.send(b"\0\0")
print("up", flush=True); time.sleep(60)' "$(v0_socket weights)")
    read -r -t 10 <&7
    stop_mount
    exec 7<&-
}

# bats test_tags=quick
@test "gms_keep: a writer finds the committed layout, until it clears it" {
    start_gms_mount gms_keep
    gms v0 weights lock rw - allocate 100 - put key last 0 value commit
    gms v0 weights lock rw - count keys -
    assert_match "$output" 'allocation_count=1 '
    assert_match "$output" 'key key'
    assert_state weights COMMITTED
    gms v0 weights lock rw - clear-all count
    assert_match "$output" 'cleared 1'
    assert_match "$output" 'allocation_count=0 '
}

@test "gmsfs fence is the checkpoint of V1" {
    start_gms_mount
    run_logged ! "$GMSFS" fence "$M"
    assert_match "$output" 'weights must be committed before checkpoint'
    gms v1 weights lock rw - allocate a 2097152 commit
    assert_state weights COMMITTED
    cli fence "$M"
    gms v1 kv_cache state
    assert_match "$output" '^checkpoint checkpoint_ready [0-9a-f-]{36}$'
    token=${output##* }
    gms_expect 'refused: GMS admission is fenced for checkpoint' v0 weights lock ro -
    run_logged ! "$GMSFS" fence --abort wrong "$M"
    cli fence --abort "$token" "$M"
    gms v0 weights lock ro - list
    assert_state weights COMMITTED
    cli fence "$M"
    gms v1 weights state
    cli fence --complete "${output##* }" "$M"
    gms v1 weights state
    assert_eq "$output" 'checkpoint serving None'
}

# bats test_tags=quick
@test "rights are those of the store's owner and mode" {
    requires root setpriv
    start_gms_mount gms_mode=0666
    cp "$ROOT"/tests/python/gms*.py "$T"
    gms v0 weights lock rw - allocate 100 - commit
    chmod 0700 "$M/weights"
    for version in v0 v1; do
        run_logged -1 as_user timeout $((20 * HANG)) "$PYTHON" "$T/gms.py" "$version" "$("${version}_socket" weights)" lock ro 0
        assert_match "${lines[-1]}" '^(refused:|closed)'
    done
    chmod 0755 "$M/weights"
    for version in v0 v1; do
        run_logged -0 as_user timeout $((20 * HANG)) "$PYTHON" "$T/gms.py" "$version" "$("${version}_socket" weights)" lock ro 0
        run_logged -1 as_user timeout $((20 * HANG)) "$PYTHON" "$T/gms.py" "$version" "$("${version}_socket" weights)" lock rw 0
        assert_match "${lines[-1]}" '^(refused:|closed)'
    done
    assert_state weights COMMITTED
}

# bats test_tags=quick
@test "an answer to a client is in the trace once, with the error of its request" {
    start_gms_mount log=debug
    gms v0 weights lock rw - allocate 100 - commit
    gms v0 weights lock ro - list
    assert_eq "$(grep -cE '\] answer GMS ListAllocationsResponse ok, [0-9]+ bytes' "$LOG")" 1
    gms_command v0 weights lock ro - allocate 100 -
    run_logged -1 timeout $((30 * HANG)) "${COMMAND[@]}"
    assert_eq "$(grep -c '\] answer GMS ErrorResponse EINVAL, ' "$LOG")" 1
}
