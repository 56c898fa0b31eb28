#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Byte transfers and waiters never delay the control path.
#
# bats file_tags=slow

load helpers

@test "state is read and a free lock taken while 100 waiters and 12 transfers stand still" {
    export GMSFS_GATE=$T/gate
    start_mount
    run_logged -0 timeout $((20 * HANG)) "$BUILD/tests/tools/sharer" load "$M/weights" 1 1000000
    mkdir "$M/quiet"
    run_logged -0 timeout $((60 * HANG)) "$BUILD/tests/tools/load_many" "$M" "$M/weights" \
        "$M/quiet" "$GMSFS_GATE"
    assert_state weights COMMITTED
    wait_until 5 no_sessions
}
