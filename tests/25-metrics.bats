#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# `metrics`: Prometheus' conventions, and numbers that go on over a worker's death.

load helpers

metric() { # SAMPLE: its value
    sed -n "s/^gmsfs_$1 //p" "$M/metrics"
}

@test "promtool has nothing against the names, units and labels" {
    requires promtool
    start_mount size=16M,audit="$T/audit",host_size=16M
    ctl mkdir "$M/odd \"name\\"
    ctl mkdir "$M/two"$'\n'"lines"
    run_logged -0 promtool check metrics <"$M/metrics"
    assert_eq "$output" ''
}

@test "waits for the lock are counted by their length, and so are recoveries" {
    start_weights size=16M
    commit_store
    assert_eq "$(metric 'lock_wait_seconds_bucket{mode="RW",le="1e-05"}')" 1
    assert_eq "$(metric 'lock_wait_seconds_sum{mode="RW"}')" 0.000000
    hold open "$W/lock" r
    spawn "$GMSCTL" open "$W/lock" rw
    local writer=$SPAWNED
    wait_for_waiters weights 1
    kill_worker # the wait goes on
    wait_for_waiters weights 1
    sleep 0.2
    let_go "$HOLDER"
    wait_exit "$writer"
    assert_eq "$(metric 'lock_wait_seconds_bucket{mode="RW",le="0.1"}')" 1
    assert_eq "$(metric 'lock_wait_seconds_bucket{mode="RW",le="+Inf"}')" 2
    assert_eq "$(metric 'lock_wait_seconds_count{mode="RW"}')" 2
    assert_eq "$(metric 'lock_wait_seconds_count{mode="RO"}')" 1
    assert_eq "$(metric recovery_seconds_count)" 1
    assert_eq "$(metric recovery_seconds_sum)" "$(metric last_recovery_seconds)"
}

@test "requests are counted by kind, with their time in the loop" {
    start_mount size=16M
    ctl mkdir "$M/other"
    local before
    before=$(metric 'requests_total{kind="mkdir"}')
    assert_eq "$before" 1
    ctl mkdir "$M/third"
    kill_worker
    assert_eq "$(metric 'requests_total{kind="mkdir"}')" 2
    assert_match "$(metric 'request_loop_seconds_total{kind="mkdir"}')" '^0\.0*[1-9]'
    # One text's numbers fit together.
    cat "$M/metrics" >"$T/metrics"
    assert_eq "$(sed -n 's/^gmsfs_request_loop_seconds_count //p' "$T/metrics")" \
        "$(awk '/^gmsfs_requests_total/ { sum += $2 } END { print sum }' "$T/metrics")"
}

@test "counters go on when a worker is replaced" {
    start_weights size=16M,audit="$T/audit"
    commit_store
    cat "$W/allocations/"* >/dev/null
    local counters='^gmsfs_(transfers|read_bytes|exports|tickets_redeemed|audit_lines)_total '
    wait_until 5 bash -c "(( \$(sed -n 's/^gmsfs_audit_lines_total //p' '$M/metrics') > 2 ))"
    grep -E "$counters" "$M/metrics" >"$T/before"
    (($(metric read_bytes_total) > 0))
    kill_worker
    wait_until 5 bash -c "(( \$(sed -n 's/^gmsfs_audit_lines_total //p' '$M/metrics') > \
        $(sed -n 's/^gmsfs_audit_lines_total //p' "$T/before") ))" # `recovered` has a line too
    assert_eq "$(grep -E "$counters" "$M/metrics" | grep -v audit)" "$(grep -v audit "$T/before")"
    assert_eq "$(metric recoveries_total)" 1
}

# In time of a processor, so that a busy machine changes nothing.
# bats test_tags=slow
@test "metrics of 4,096 stores take the loop less than 200 ms" {
    local worker before after ticks
    start_mount size=16M
    seq 4095 | (cd "$M" && xargs mkdir)
    worker=$(worker_of "$KEEPER")
    cpu() { awk '{ print $14 + $15 }' "/proc/$worker/stat"; }
    ticks=$(getconf CLK_TCK)
    before=$(cpu)
    for _ in 1 2 3 4; do
        cat "$M/metrics" >"$T/metrics"
    done
    after=$(cpu)
    assert_eq "$(grep -c '^gmsfs_store_bytes{' "$T/metrics")" 4096
    (((after - before) * 1000 / ticks / 4 < 200 * SLOW)) || fail "$(((after - before) * 1000 / ticks / 4)) ms each"
}
