#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Status of a mount of which the caller cannot see all: errors that are answers, stores of others, stores
# with names that begin with a dot.
#
# bats file_tags=slow

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers

# open_share FILE: another user opens FILE until its share of open files is used up, and keeps
# that, by as many processes as it takes
open_share() {
    requires root python3 || return 1
    spawn python3 -c '
import errno, os, resource, sys, time
uid = int(sys.argv[2])
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
held = []
said = "EMFILE"
while said == "EMFILE":
    ends = os.pipe()
    if os.fork() == 0:
        os.close(ends[0])
        try:
            while True:
                held.append(os.open(sys.argv[1], os.O_RDONLY))
        except OSError as error:
            os.write(ends[1], errno.errorcode[error.errno].encode())
        os.close(ends[1])
        while True:
            time.sleep(60)
    os.close(ends[1])
    said = os.read(ends[0], 100).decode()
print(said, flush=True)
while True:
    time.sleep(60)
' "$1" "$TEST_UID"
    wait_until 60 grep -q . "$T/spawn-$SPAWNED"
    assert_eq "$(output_of "$SPAWNED")" EDQUOT 'the error that ended the opening'
}

status_json() { # FILTER, of what gmsfs said
    jq -c "$1" <<<"$output"
}

@test "a mount that answers by an error is not called dead, and the error is named with a way out" {
    requires jq
    start_mount
    open_share "$M/device"
    run_logged -1 as_user "$GMSFS" status "$M"
    assert_match "$output" "UNKNOWN: cannot be looked at: Disk quota exceeded .EDQUOT.; your share"
    [[ $output != *DEAD* && $output != *umount* ]] || fail 'a healthy mount is called dead'
    run_logged -1 as_user "$GMSFS" status --json "$M"
    assert_eq "$(status_json '.[0] | [.health, .errno, .error, .device]')" \
        '["unknown","EDQUOT","Disk quota exceeded",null]'
    run_logged -0 "$GMSFS" status "$M" # of others there is enough
    spawn "${AS_USER[@]}" "$GMSFS" status --watch "$M"
    wait_until 5 grep -q 'unknown: Disk quota exceeded (EDQUOT)' "$T/spawn-$SPAWNED"
}

@test "stores that cannot be listed are said to be so, and it is a failure" {
    requires jq
    start_mount
    open_share "$M"
    run_logged -1 as_user "$GMSFS" status "$M"
    assert_match "$output" "^$M  .*  ok"
    assert_match "$output" 'its stores cannot be listed: Disk quota exceeded .EDQUOT.; your share'
    run_logged -1 as_user "$GMSFS" status --json "$M"
    assert_eq "$(status_json '.[0] | [.health, .errno, .stores]')" '["ok","EDQUOT",[]]'
    run_logged -0 "$GMSFS" status "$M"
}

@test "a process that may not open or start anything more says so, of itself" {
    requires jq
    start_mount
    run_logged -1 bash -c 'exec 3>&- 4>&- && ulimit -n 4 && exec "$@"' _ "$GMSFS" status "$M"
    assert_match "$output" 'UNKNOWN: cannot be looked at: Too many open files .EMFILE.; .*ulimit -n'
    run_logged -1 bash -c 'exec 3>&- 4>&- && ulimit -n 4 && exec "$@"' _ "$GMSFS" status --json "$M"
    assert_eq "$(status_json '.[0] | [.health, .errno]')" '["unknown","EMFILE"]'
}

@test "a store that one may not look into is listed, and it is a failure" {
    requires jq root
    start_mount
    mkdir -m 700 "$M/private"
    run_logged -1 as_user "$GMSFS" status "$M"
    assert_match "$output" $'\n  private +NO ACCESS +- .*Permission denied .EACCES.'
    assert_match "$output" $'\n  weights +EMPTY '
    run_logged -1 as_user "$GMSFS" status --json "$M"
    assert_eq "$(status_json '.[0].stores | map([.name, .state, .errno])')" \
        '[["private",null,"EACCES"],["weights","EMPTY",null]]'
    run_logged -0 "$GMSFS" status "$M"
    rmdir "$M/private"
    run_logged -0 as_user "$GMSFS" status "$M"
}

@test "stores whose names begin with a dot are shown, and their holders named for every caller" {
    requires jq
    start_mount
    mkdir "$M/.dot" "$M/..."
    spawn bash -c 'exec 5<>"$1/lock"; exec sleep 60' _ "$M/.dot"
    wait_until 5 grep -q held "$M/.dot/sessions"
    run_logged -0 "$GMSFS" status "$M"
    assert_match "$output" $'\n  \\.dot +RW '
    assert_match "$output" $'\n  \\.\\.\\. +EMPTY '
    run_logged -0 "$GMSFS" status --json "$M"
    assert_eq "$(status_json '.[0].stores | map(.name) | sort')" '["...",".dot","weights"]'
    run_logged -3 "$GMSFS" drain --timeout 0.1 "$M"
    assert_match "$output" "\\.dot +RW +held +pid $SPAWNED"
    run_logged -1 "$GMSFS" umount "$M"
    assert_match "$output" "\\.dot +RW +held +pid $SPAWNED"
}

# graph_entry TEXT: as the entry of a graph pool that is awake.
graph_entry() {
    echo "$1" >"$M/weights/metadata/gmsfs.graph"
}

@test "info, metrics and status show the graph pool that holds a store, and nothing that is none" {
    requires jq
    start_mount
    exec 5<>"$M/weights/lock"
    assert_eq "$(jq .graph "$M/weights/info")" null
    graph_entry '{"chunk_bytes":33554432,"spaces":24,"address_bytes":3221225472,"high_bytes":67108864}'
    assert_eq "$(jq -c .graph "$M/weights/info")" \
        '{"chunk_bytes":33554432,"spaces":24,"address_bytes":3221225472,"high_bytes":67108864}'
    run_logged -0 cat "$M/metrics"
    grep -qxF 'gmsfs_store_graph_spaces{store="weights"} 24' <<<"$output"
    grep -qxF 'gmsfs_store_graph_address_bytes{store="weights"} 3221225472' <<<"$output"
    grep -qxF 'gmsfs_store_graph_high_bytes{store="weights"} 67108864' <<<"$output"
    run_logged -0 "$GMSFS" status "$M"
    assert_match "$output" 'graph of 24 spaces, 3.0 GiB of addresses'
    graph_entry '{"chunk_bytes":-1,"spaces":24,"address_bytes":1,"high_bytes":1}'
    assert_eq "$(jq .graph "$M/weights/info")" null
    graph_entry '{"chunk_bytes":1,"spaces":24,"address_bytes":1,"high_bytes":1}'
    commit_5
    assert_eq "$(jq .graph "$M/weights/info")" null
    run_logged -0 cat "$M/metrics"
    [[ $output != *'gmsfs_store_graph_spaces{'* ]] || fail "a store without a pool has numbers of one"
}

@test "status names a holder of many sessions once, with their number, and no more than one can read" {
    start_mount
    (
        exec 5<>"$M/weights/lock"
        echo 1 >"$M/weights/commit"
    )
    hold open "$M/weights/ctl" r acquire ro 0 open "$M/weights/ctl" r acquire ro 0 \
        open "$M/weights/ctl" r acquire ro 0
    run_logged -0 "$GMSFS" status "$M"
    assert_match "$output" "RO $HOLDER gmsctl x3"
    for _ in {1..20}; do
        hold open "$M/weights/ctl" r acquire ro 0
    done
    run_logged -0 "$GMSFS" status "$M"
    assert_match "$output" ', and 5 more'
}
