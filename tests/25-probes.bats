#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The static tracepoints of the daemon, and the commands of gmsfs-mount(8) that use them.

load helpers

MANUAL=man/gmsfs-mount.8

defined_probes() { # the names in probe.h
    sed -nE 's/.*DTRACE_PROBE[34]\(gmsfs, ([a-z_]+),.*/\1/p' "$ROOT/src/base/probe.h" | sort -u
}

# The bpftrace programs of the manual, one a line.
one_liners() {
    tr '\n' ' ' <"$ROOT/$MANUAL" | grep -oE "bpftrace -e '[^']*'" | sed -E "s/^bpftrace -e '(.*)'$/\1/"
}

@test "each tracepoint is in the program" {
    local name
    requires sdt readelf
    run_logged -0 readelf -n "$GMSFS"
    assert_eq "$(defined_probes | wc -l)" 6
    for name in $(defined_probes); do
        grep -A1 'Provider: gmsfs' <<<"$output" | grep -qx " *Name: $name" || fail "$name is not there"
    done
}

@test "the manual names each tracepoint, and uses none that is not there" {
    local name
    for name in $(defined_probes); do
        grep -qE "^\.It Cm .*\b$name\b" "$ROOT/$MANUAL" || fail "$name is not in the manual"
    done
    assert_eq "$(one_liners | wc -l)" 3
    for name in $(one_liners | grep -oE 'gmsfs:gmsfs:[a-z_]+' | sed 's/.*://' | sort -u); do
        defined_probes | grep -qx "$name" || fail "there is no tracepoint $name"
    done
}

@test "the commands of the manual run" {
    local program
    requires root sdt bpftrace tracing
    start_mount
    while IFS= read -r program; do
        spawn bpftrace -e "${program//\/usr\/bin\/gmsfs/$GMSFS} interval:s:5 { exit() }"
        for _ in {1..30}; do
            commit_store
            sleep 0.1
        done
        wait_exit -0 "$SPAWNED" 60
        # A map's content is printed at the end: @us and a histogram, or @[...]: COUNT.
        assert_match "$(output_of "$SPAWNED")" '@us(\[[0-9]+\])?:|@\[[0-9]+, [0-9]+, [01]\]: [1-9]'
    done < <(one_liners)
}
