#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The programs of tests/api: libgmsfs against a store that is theirs alone.
#
# bats file_tags=fake,slow:fake

load helpers
load api

api() { # NAME
    start_api "$1"
    api_test "$1"
}

@test "every program of tests/api is run here" {
    local source name
    for source in "$ROOT"/tests/api/test_*.c; do
        name=$(basename "$source" .c)
        grep -q "{ api ${name#test_}; }\$" "$BATS_TEST_FILENAME" || fail "$source is not run"
    done
}

# bats test_tags=slow
@test "api: adapters" { api adapters; }
@test "api: graph" { api graph; }
# bats test_tags=slow
@test "api: graph_cuda" { api graph_cuda; }
# bats test_tags=slow
@test "api: graph_pair" { api graph_pair; }
# bats test_tags=slow
@test "api: graph_random" { api graph_random; }
# bats test_tags=slow
@test "api: graph_sleep" { api graph_sleep; }
# bats test_tags=slow
@test "api: graph_turns" { api graph_turns; }
@test "api: group" { api group; }
# bats test_tags=slow
@test "api: group_evict" { api group_evict; }
@test "api: group_places" { api group_places; }
# bats test_tags=slow
@test "api: group_reserve" { api group_reserve; }
# bats test_tags=slow
@test "api: group_wait" { api group_wait; }
@test "api: cuda" { api cuda; }
@test "api: lock" { api lock; }
# bats test_tags=slow
@test "api: many" { api many; }
@test "api: memory" { api memory; }
@test "api: ends" { api ends; }
@test "api: errors" { api errors; }
@test "api: metadata" { api metadata; }
@test "api: regions" { api regions; }
# bats test_tags=slow
@test "api: regions that are refused" { api regions_refused; }
# bats test_tags=slow
@test "api: regions in threads and children" { api regions_threads; }
@test "api: seal" { api seal; }
# bats test_tags=slow
@test "api: sizes" { api sizes; }
@test "api: slabs" { api slabs; }
@test "api: places" { api places; }
@test "api: places_cuda" { api places_cuda; }
@test "api: retarget" { api retarget; }
# bats test_tags=slow
@test "api: retarget_cuda" { api retarget_cuda; }
@test "api: sleep" { api sleep; }
# bats test_tags=slow
@test "api: stopped" { api stopped; }
@test "api: store" { api store; }
# bats test_tags=host,slow
@test "api: user" { api user; }
# bats test_tags=slow
@test "api: wait" { api wait; }
