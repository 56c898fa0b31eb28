# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # the tests read W, bats sets output
# For tests of wrong input from clients.

setup_bad_input() {
    start_weights size=64M,granularity=4K,alloc_timeout=1
}

# The mount continues: looking, locking, committing, descriptors.
still_works() {
    ctl open "$W/ctl" rw acquire rw 5000 clear alloc 4096 1 fine '' put k v none 0 commit-stay \
        export 0 0 connect "$M" redeem last 253
    assert_match "$output" 'item rank=0 '
}
