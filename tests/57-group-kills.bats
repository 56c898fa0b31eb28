#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The programs of tests/api while the workers of their mounts are killed, again and again: they pass, so
# callers of libgmsfs notice nothing.
#
# bats file_tags=slow

load helpers
load api

# bats test_tags=quick
@test "every program of tests/api is run under kills" {
    local source name
    for source in "$ROOT"/tests/api/test_*.c; do
        name=$(basename "$source" .c)
        # It stops the worker that it was given the number of, which must be the mount's all the time.
        [[ $name != test_stopped ]] || continue
        grep -qE "[{] api_killed ${name#test_}[ ;]" "$ROOT"/tests/57-*-kills.bats || fail "$source is not"
    done
}

@test "api under kills: adapters" { api_killed adapters; }
@test "api under kills: ends" { api_killed ends; }
@test "api under kills: graph" { api_killed graph; }
@test "api under kills: graph_cuda" { api_killed graph_cuda; }
@test "api under kills: graph_pair" { api_killed graph_pair; }
@test "api under kills: graph_random" { api_killed graph_random; }
@test "api under kills: graph_sleep" { api_killed graph_sleep; }
@test "api under kills: graph_turns" { api_killed graph_turns; }
# bats test_tags=quick
@test "api under kills: group" { api_killed group; }
@test "api under kills: group_evict" { api_killed group_evict; }
@test "api under kills: group_places" { api_killed group_places; }
@test "api under kills: group_reserve" { api_killed group_reserve; }
@test "api under kills: group_wait" { api_killed group_wait; }
# bats test_tags=quick
@test "api under kills: places" { api_killed places; }
@test "api under kills: places_cuda" { api_killed places_cuda; }
@test "api under kills: retarget" { api_killed retarget; }
@test "api under kills: retarget_cuda" { api_killed retarget_cuda; }
