#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The programs of tests/api while the workers of their mounts are killed, again and again: they pass, so
# callers of libgmsfs notice nothing. The programs of groups, graph pools and places are in
# 57-group-kills.
#
# bats file_tags=slow

load helpers
load api

SHARER=$BUILD/tests/tools/sharer

@test "api under kills: cuda" { api_killed cuda; }
@test "api under kills: errors" { api_killed errors; }
@test "api under kills: lock" { api_killed lock; }
@test "api under kills: many" { api_killed many; }
# bats test_tags=quick
@test "api under kills: memory" { api_killed memory; }
@test "api under kills: metadata" { api_killed metadata; }
@test "api under kills: regions" { api_killed regions; }
@test "api under kills: regions_refused" { api_killed regions_refused; }
@test "api under kills: regions_threads" { api_killed regions_threads; }
# bats test_tags=quick
@test "api under kills: seal" { api_killed seal; }
@test "api under kills: sizes" { api_killed sizes; }
@test "api under kills: slabs" { api_killed slabs; }
@test "api under kills: sleep" { api_killed sleep; }
# bats test_tags=quick
@test "api under kills: store" { api_killed store; }
@test "api under kills: user" { api_killed user; }
@test "api under kills: wait" { api_killed wait; }

went_on() { # COUNT: so many have gone on
    [[ $(grep -c ' serves, ' "$LOG") -ge $1 ]]
}

# It runs for a moment with each of them, which is then killed: none gets to the end of its requests.
# bats test_tags=quick
@test "one attach goes on over worker after worker" {
    local kills=0 worker
    start_mount size=64M,granularity=4K
    run_logged -0 timeout $((60 * HANG)) "$SHARER" load "$M/weights" 6000 4096
    # shellcheck disable=SC2016 # that shell's own number
    spawn bash -c 'ulimit -n 24; kill -STOP $$; exec "$@"' _ "$SHARER" attach "$M/weights" 6000
    wait_until 5 process_stopped "$SPAWNED"
    until process_gone "$SPAWNED"; do
        worker=$(worker_of "$KEEPER")
        kill -CONT "$SPAWNED"
        sleep 0.003
        kill -KILL "$worker"
        kill -STOP "$SPAWNED" 2>/dev/null || break
        kills=$((kills + 1))
        wait_until_any 10 went_on "$kills"
    done
    wait_exit -0 "$SPAWNED" 60
    [[ $kills -ge 3 ]] || fail "the worker was killed $kills times only"
}
