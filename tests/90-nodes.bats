#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs pull between nodes: network namespaces at one bridge, each with a mount and nginx. `make
# check-nodes` runs this file alone.
#
# shellcheck disable=SC2016 # bodies of shells
# bats file_tags=nodes

load helpers
load image

prepare() {
    requires nodes root netns nginx ip
    NS=() NODE=() AT_ONCE=()
}

# ---- nodes ------------------------------------------------------------------------------------

in_namespace() { # PID COMMAND...
    nsenter --target "$1" --net -- "${@:2}"
}

in_node() { # NUMBER COMMAND...
    in_namespace "${NS[$1]}" "${@:2}"
}

# spawn_in_node NUMBER COMMAND...: SPAWNED is the command itself, not a shell around it
spawn_in_node() {
    spawn nsenter --target "${NS[$1]}" --net -- "${@:2}"
}

# has_namespace PID: it has left this one
has_namespace() {
    [[ $(readlink "/proc/$1/ns/net") != "$(readlink "/proc/$$/ns/net")" ]]
}

# spawn_namespace: sets SPAWNED to a process of it
spawn_namespace() {
    spawn unshare --net sleep infinity
    wait_until 10 has_namespace "$SPAWNED"
    in_namespace "$SPAWNED" ip link set lo up
}

# start_nodes COUNT: node N has the address 10.77.0.N+1 and the mount NODE[N]
start_nodes() {
    local n
    spawn_namespace
    SWITCH=$SPAWNED
    in_namespace "$SWITCH" ip link add br0 type bridge
    in_namespace "$SWITCH" ip link set br0 up
    for ((n = 0; n < $1; n++)); do
        spawn_namespace
        NS[n]=$SPAWNED
        in_namespace "$SWITCH" ip link add "v$n" type veth peer name eth0 netns "$SPAWNED"
        in_namespace "$SWITCH" ip link set "v$n" master br0 up
        in_node "$n" ip addr add "10.77.0.$((n + 1))/24" dev eth0
        in_node "$n" ip link set eth0 up
        start_mount size=160M
        NODE[n]=$M
    done
}

# serve NUMBER [LINES]: nginx on the mount of this node, with more lines of its server; sets SERVER
serve() {
    local dir=$T/nginx$1
    mkdir -p "$dir"
    cat >"$dir/conf" <<CONF
user root; master_process off; daemon off; pid $dir/pid; error_log $dir/errors;
events { worker_connections 512; }
http {
    access_log $dir/log; sendfile on; sendfile_max_chunk 1m; limit_conn_zone \$server_port zone=all:1m;
    server {
        listen 10.77.0.$(($1 + 1)):80; root ${NODE[$1]}; limit_conn_status 429; ${2-}
        # An open of a store that has a writer is EAGAIN, nginx's 500; gmsfs web answers the same.
        error_page 500 = @busy; location @busy { add_header Retry-After 1 always; return 503; }
    }
}
CONF
    spawn_in_node "$1" nginx -p "$dir" -c "$dir/conf"
    SERVER=$SPAWNED
    wait_until 10 test -s "$dir/pid"
}

# serve_web NUMBER: gmsfs web, without options that bound it
serve_web() {
    mkdir -p "$T/nginx$1"
    spawn_in_node "$1" "$GMSFS" web --user nobody --insecure --listen "10.77.0.$(($1 + 1)):80" \
        --access-log "$T/nginx$1/log" mount="${NODE[$1]}"
    wait_until 20 has_address "$SPAWNED"
}

has_address() { # PID
    output_of "$1" | grep -q 'gmsfs web: .* is http'
}

# url NUMBER: of the store `weights` there
url() {
    echo "http://10.77.0.$(($1 + 1))/${AT-}weights/"
}

make_store() { # NODE BYTES
    mkdir -p "${NODE[$1]}/weights"
    "$GMSFS" run -w "${NODE[$1]}/weights" -- bash -c '
        head -c "$1" /dev/urandom >"$GMSFS_STORE/allocations/a"' _ "$2"
}

# spawn_pull NODE FROM...: by numbers
spawn_pull() {
    local n urls=()
    for n in "${@:2}"; do urls+=("$(url "$n")"); done
    spawn_in_node "$1" "${AT_ONCE[@]}" "$GMSFS" pull -q --threads "${THREADS:-8}" "${NODE[$1]}/weights" "${urls[@]}"
}

id_of() { # NODE
    sed -n 's/^id //p' "${NODE[$1]}/weights/pieces"
}

# sent NODE: bytes of pieces that it has sent, in the log's combined format
sent() {
    awk '/allocations/ && $9 == 206 { sent += $10 } END { print sent + 0 }' "$T/nginx$1/log"
}

# ---- many --------------------------------------------------------------------------------------

@test "of sixteen nodes with one source, all get the store, and the source sends it four times at most" {
    local n pids=() bytes=$((64 << 20)) id
    start_nodes 16
    make_store 0 "$bytes"
    id=$(id_of 0)
    AT=mount/
    # All begin at the same time, also where this machine starts processes slowly.
    AT_ONCE=(bash -c 'until [[ -e $0 ]]; do sleep 0.05; done; exec "$@"' "$T/begin")
    for ((n = 0; n < 16; n++)); do serve_web "$n"; done
    for ((n = 1; n < 16; n++)); do
        spawn_pull "$n" {0..15}
        pids+=("$SPAWNED")
    done
    touch "$T/begin"
    for n in "${pids[@]}"; do
        wait_exit -0 "$n" 60
    done
    for ((n = 1; n < 16; n++)); do
        assert_eq "$(id_of "$n")" "$id" "the id on node $n"
    done
    n=$(sent 0)
    printf 'the source sent %s bytes, %s %% of the store\n' "$n" $((100 * n / bytes))
    ((n >= bytes && n <= 4 * bytes)) || fail "the source sent $n bytes of a store of $bytes"
}

# ---- faults ------------------------------------------------------------------------------------

# pair: a store on nodes 0 and 1, which send slowly, and a node 2
pair() {
    start_nodes 3
    make_store 0 $((64 << 20))
    serve 0
    SERVER0=$SERVER
    spawn_pull 1 0
    wait_exit -0 "$SPAWNED" 30
    ID=$(id_of 0)
    assert_eq "$(id_of 1)" "$ID"
    kill "$SERVER0"
    wait_until 10 process_gone "$SERVER0"
    : >"$T/nginx0/log"
    serve 0 'limit_rate 8m;'
    serve 1 'limit_rate 8m;'
}

# ends_well: the pull that was spawned
ends_well() {
    wait_exit -0 "$SPAWNED" 60
    assert_eq "$(id_of 2)" "$ID" id
}

begun() { # NODE: it has sent a piece, as its log says afterwards
    grep -q allocations "$T/nginx$1/log"
}

@test "a link that is lost in the middle" {
    pair
    THREADS=2
    spawn_pull 2 0 1
    wait_until 20 begun 0
    kill -STOP "$SPAWNED" # it ends only after the link
    in_namespace "$SWITCH" ip link set v0 down
    kill -CONT "$SPAWNED"
    ends_well
}

@test "a source that commits anew in the middle, with and without another one" {
    local pull writer
    pair
    THREADS=1 # the writer gets its lock between two pieces
    spawn_pull 2 0 1
    wait_until 20 begun 0
    make_store 0 5000
    ends_well
    rmdir "${NODE[2]}/weights"
    : >"$T/nginx1/log"
    spawn_in_node 2 "$GMSFS" pull -q --threads 1 --timeout 8 "${NODE[2]}/weights" "$(url 1)"
    wait_until 20 begun 1
    kill -STOP "$SPAWNED" # its next piece is asked for behind the writer
    pull=$SPAWNED
    spawn make_store 1 5000
    writer=$SPAWNED
    wait_until 20 grep -q " waiting " "${NODE[1]}/weights/sessions"
    kill -CONT "$pull"
    wait_exit -0 "$writer" 60
    SPAWNED=$pull
    wait_exit -1 "$SPAWNED" 60
    assert_match "$(output_of "$SPAWNED")" 'no node sends the contents: .*it (has other|no longer has the) contents'
}

@test "a source that is drained, or whose daemon is gone, in the middle" {
    local pid
    pair
    THREADS=2
    spawn_pull 2 0 1
    pid=$SPAWNED
    wait_until 20 begun 0
    "$GMSFS" drain --revoke "${NODE[0]}"
    SPAWNED=$pid
    ends_well
    "$GMSFS" drain --undo "${NODE[0]}"

    # From the one that is left to the drained one, until its daemon is gone.
    : >"$T/nginx1/log"
    spawn_in_node 0 "$GMSFS" pull -q --threads 2 --timeout 2 "${NODE[0]}/weights" "$(url 1)"
    pid=$SPAWNED
    wait_until 20 begun 1
    kill -STOP "$pid"
    expect_death "${NODE[1]}"
    touch "$GMSFS_LAST_WORKER"
    kill -KILL "$(worker_of "${KEEPER_OF[${NODE[1]}]}")"
    kill -CONT "$pid"
    wait_exit "$pid" 60
    rm -f "$GMSFS_LAST_WORKER"
    assert_eq "$status" 1
    assert_match "$(output_of "$pid")" 'no node sends the contents: '
    [[ ! -e ${NODE[0]}/weights || $(<"${NODE[0]}/weights/state") == EMPTY ]] || fail 'a store was left'
}

# worsen_link NUMBER OPTION...: the node's link becomes that of tests/tools/bad_link.py, SPAWNED
worsen_link() {
    in_node "$1" ip link del eth0
    spawn python3 "$ROOT/tests/tools/bad_link.py" "${NS[$1]}" eth0 "$SWITCH" "v$1" "${@:2}"
    wait_until 10 says "$SPAWNED" ready
    in_namespace "$SWITCH" ip link set "v$1" master br0 up
    in_node "$1" ip addr add "10.77.0.$(($1 + 1))/24" dev eth0
    in_node "$1" ip link set eth0 up
}

says() { # PID REGEX
    output_of "$1" | grep -Eq "$2"
}

@test "one packet of a hundred lost, and 50 ms of delay" {
    local links=() link
    requires tap python3 curl
    pair
    worsen_link 0 --loss 0.01 --delay 0.05
    links+=("$SPAWNED")
    worsen_link 1 --loss 0.01
    links+=("$SPAWNED")
    assert_match "$(in_node 2 curl -s -o "$T/state" -w '%{time_connect}' "$(url 0)state")" '^0\.0[5-9]|^0\.[1-9]|^[1-9]'
    spawn_pull 2 0 1
    ends_well
    rmdir "${NODE[2]}/weights"
    spawn_pull 2 0 # no better node is there
    ends_well
    for link in "${links[@]}"; do
        kill -TERM "$link"
        wait_until 10 says "$link" 'lost [1-9][0-9]* packets'
    done
}
