#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs web: what nginx sends of a mount, and to which clients. 36-web-server.bats tests the server itself.
#
# bats file_tags=slow
# shellcheck disable=SC2016 # shells within shells have variables of their own
# shellcheck disable=SC2034,SC2153 # variables that the helpers read and set

load helpers
load web
load served

prepare() { served_setup; }

teardown() {
    served_teardown
}

# Commits 3 MB as an allocation with odd letters in its name, as a file in a directory, and an entry.
commit_model() {
    head -c 3000000 /dev/urandom >"$T/bytes"
    exec 9<>"$W/lock"
    cp "$T/bytes" "$W/allocations/a b%2F\"\$c;{é}"
    put_file 'one/two/m odel.bin' "a b%2F\"\$c;{é}" 100 '{"bytes":2000000}'
    printf value >"$W/metadata/key"
    echo 1 >"$W/commit"
    exec 9>&-
}

# commit_zeros BYTES: an allocation `a` of so many
commit_zeros() {
    ctl open "$W/lock" rw open "$W/allocations/a" rwc ftruncate "$1" use 0 commit
}

ALLOCATION='allocations/a%20b%252F%22%24c%3B%7B%C3%A9%7D'

says_where() {
    output_of "$SERVER" | grep -qxF "gmsfs web: $M is http://127.0.0.1:$PORT/host/"
}

# bats test_tags=quick
@test "a store's bytes, texts and entries are served, with ranges, and nothing of them may be cached" {
    start_weights size=64M
    commit_model
    serve host="$M"
    wait_until 5 says_where
    [[ $EUID -ne 0 || $SERVED_DIR == /tmp/gmsfs-web-* ]] || fail "root's server uses TMPDIR: $SERVED_DIR"
    ask 200 "host/weights/$ALLOCATION"
    cmp "$T/body" "$T/bytes"
    has_header 'Cache-Control: no-store'
    has_header 'Accept-Ranges: bytes'
    lacks_header ETag
    lacks_header Last-Modified
    ask 206 "host/weights/$ALLOCATION" -r 1000000-1999999
    cmp "$T/body" <(tail -c +1000001 "$T/bytes" | head -c 1000000)
    has_header 'Content-Range: bytes 1000000-1999999/3000000'
    has_header 'Connection: keep-alive'
    ask 206 "host/weights/files/one/two/m%20odel.bin" -r 1999000-
    cmp "$T/body" <(tail -c +1999101 "$T/bytes" | head -c 1000)
    ask 416 "host/weights/files/one/two/m%20odel.bin" -r 2000000-
    ask 200 host/weights/state
    assert_eq "$(cat "$T/body")" "$(cat "$W/state")"
    has_header 'Connection: close' # its process could soon wait for another mount that hangs
    ask 206 host/weights/state -r 1-3
    ask 200 host/weights/layout
    cmp "$T/body" "$W/layout"
    ask 200 host/weights/metadata/key
    assert_eq "$(cat "$T/body")" value
    ask 200 host/weights/info
    jq -e '.bytes == 4194304' "$T/body"
    ask 200 host/device
    jq -e '.health == "ok"' "$T/body"
    ask 200 host/metrics
    has_header 'Content-Type: text/plain; version=0.0.4; charset=utf-8'
    grep -q '^gmsfs_store_bytes{store="weights"}' "$T/body"
    wait_until 2 state_is weights COMMITTED
    stop_serving
    wait_until 5 leaves_nothing
}

@test "lists of stores, allocations, entries and files are JSON" {
    start_weights size=64M
    commit_model
    mkdir "$M/q wen'"
    serve --pages "$ROOT/web" host="$M"
    ask 200 ui/mounts.json
    assert_eq "$(jq -c . "$T/body")" '["host"]'
    ask 200 host/
    assert_eq "$(jq -r '.[] | select(.type == "directory") | .name' "$T/body" | sort | tr '\n' ,)" "q wen',regions,weights,"
    ask 200 host/weights/allocations/
    jq -e '.[0].name == "a b%2F\"$c;{é}" and .[0].size == 3000000' "$T/body"
    ask 200 host/weights/metadata/
    jq -e 'any(.name == "key" and .size == 5)' "$T/body"
    ask 200 host/weights/files/one/
    jq -e '.[0].name == "two" and .[0].type == "directory"' "$T/body"
    ask 301 host/weights/files
    ask 302 ''
    has_header 'Location: /ui/'
}

@test "a store that a writer has is 503, a missing file 404" {
    start_weights size=64M
    commit_model
    serve host="$M"
    hold open "$W/lock" rw
    ask 503 "host/weights/$ALLOCATION"
    has_header 'Retry-After: 2'
    has_header 'Cache-Control: no-store'
    ask 503 "host/weights/files/one/two/m%20odel.bin"
    ask 200 host/weights/state
    assert_eq "$(cat "$T/body")" RW
    ask 200 host/weights/metadata/key
    ask 200 host/weights/info
    ask 404 host/weights/allocations/none
    ask 404 host/none/state
    ask 404 none/weights/state
    # Names that the mount refuses with EINVAL.
    local name
    for name in %25zz %2541 %252f a%252Eb .a %FF '%C3' '%ED%A0%80'; do
        ask 404 "host/weights/metadata/$name"
    done
    has_header 'Cache-Control: no-store'
    lacks_header Retry-After
    ask 404 host/weights/allocations/%25zz
}

@test "methods that could change something are refused, and cross-site requests and other hosts with them" {
    local method
    start_weights size=64M
    commit_model
    serve host="$M"
    for method in POST PUT DELETE PATCH OPTIONS TRACE CONNECT MKCOL MOVE COPY PROPFIND LOCK; do
        ask 405 host/weights/state -X "$method"
    done
    ask 405 host/weights/state -X POST
    has_header 'Allow: GET, HEAD'
    ask 200 host/weights/state -I
    ask 405 host/weights/commit -X PUT -d 1
    state_is weights COMMITTED
    ask 421 host/weights/state -H 'Host: evil.example'
    ask 421 host/weights/state -H 'Host: 127.0.0.1.evil.example'
    ask 421 host/weights/state --request-target http://evil.example/host/weights/state -H 'Host: localhost'
    ask 200 host/weights/state -H 'Host: localhost:1234'
    ask 200 host/weights/state -H 'Host: [::1]'
    ask 200 host/weights/state -H 'Origin: http://evil.example'
    lacks_header Access-Control-Allow-Origin
    has_header "Content-Security-Policy: default-src 'none'; sandbox"
    has_header 'X-Content-Type-Options: nosniff'
}

@test "users and processes are shown on this machine alone, and not behind a proxy" {
    start_weights size=64M
    serve host="$M"
    local path header proxy
    for path in host/events host/weights/info host/weights/sessions; do
        ask 200 "$path"
        for header in 'X-Forwarded-For: 127.0.0.1' 'X-Forwarded-For: 127.0.0.1, 127.0.0.1' 'Via: 1.1 proxy' 'Forwarded: for=127.0.0.1' \
            'X-Forwarded-Host: localhost' 'X-Forwarded-Proto: http' 'X-Real-IP: ::1' 'X-Client-IP: 127.0.0.1' \
            'True-Client-IP: 127.0.0.1' 'CF-Connecting-IP: 127.0.0.1'; do
            ask 403 "$path" -H "$header"
        done
        ask 403 "$path" -0
        ask 403 "$path" -0 -H 'Host:'
    done
    ask 200 host/device -H 'Via: 1.1 proxy'
    ask 200 host/device -0 -H 'Host:'
    proxy=$(free_port)
    echo "server { listen 127.0.0.1:$proxy; location / { proxy_pass http://127.0.0.1:$PORT; } }" >"$T/before"
    start_nginx proxy "$T/before" "$proxy"
    SERVED=http://127.0.0.1:$proxy
    ask 200 host/device
    ask 403 host/weights/info # as nginx is without further settings
}

@test "a store that other users may not read is not served" {
    start_weights size=64M
    commit_model
    serve host="$M"
    chmod 750 "$W"
    ask 403 host/weights/state
    ask 403 "host/weights/$ALLOCATION"
    ask 403 host/weights/metadata/
    ask 200 host/
    chmod 755 "$W"
    ask 200 host/weights/state
}

@test "a client that asks too much at a time is told to come again" {
    start_weights size=64M
    commit_zeros $((48 << 20))
    serve host="$M"
    run_logged -0 python3 - "$PORT" <<'END'
import socket, sys
request = b"GET /host/weights/allocations/a HTTP/1.1\r\nHost: localhost\r\n\r\n"
def ask(source):
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), source_address=(source, 0))
    connection.sendall(request)
    return connection, connection.recv(4096)
held = [ask("127.0.2.1") for _ in range(32)]
assert all(answer.startswith(b"HTTP/1.1 200 ") for _, answer in held), held
_, answer = ask("127.0.2.1")
assert answer.startswith(b"HTTP/1.1 429 ") and b"\r\nRetry-After: 1\r\n" in answer, answer
assert ask("127.0.2.2")[1].startswith(b"HTTP/1.1 200 ")
held.pop()[0].close()
while not ask("127.0.2.1")[1].startswith(b"HTTP/1.1 200 "):
    pass
END
}

# reads_by_id PORT ID ADDRESS...: the first line of the answer that each address gets for bytes, and keeps
reads_by_id() {
    run_logged -0 python3 - "$@" <<'END'
import socket, sys
request = f"GET /host/weights/by-id/{sys.argv[2]}/allocations/0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
kept = []
for source in sys.argv[3:]:
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), source_address=(source, 0))
    connection.sendall(request.encode())
    answer = connection.recv(4096)
    kept.append(connection)
    head = answer.split(b"\r\n\r\n")[0].decode().split("\r\n")
    print(head[0].split()[1], *(line for line in head if line.startswith("Retry-After")))
for path in ("allocations/a", "pieces", "layout", f"by-id/{sys.argv[2]}/pieces"):
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    connection.sendall(f"GET /host/weights/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    print(connection.recv(4096).split()[1].decode(), path)
END
    OTHERS=$'200 allocations/a\n200 pieces\n200 layout\n200 by-id/'$2/pieces
}

@test "bytes by an id have a bound with --pulls alone, of which an address has half" {
    start_weights size=64M
    commit_zeros $((48 << 20))
    serve --pulls 2 host="$M"
    read_id
    reads_by_id "$PORT" "$ID" 127.0.2.1 127.0.2.1 127.0.2.2 127.0.2.3
    assert_eq "$output" $'200\n429 Retry-After: 1\n200\n429 Retry-After: 1\n'"$OTHERS" 'answers with --pulls 2'
    stop_serving
    serve --pulls 3 host="$M"
    reads_by_id "$PORT" "$ID" 127.0.2.1 127.0.2.2 127.0.2.3 127.0.2.4
    assert_eq "$output" $'200\n200\n200\n429 Retry-After: 1\n'"$OTHERS" 'answers with --pulls 3'
    stop_serving
    serve host="$M"
    reads_by_id "$PORT" "$ID" 127.0.2.1 127.0.2.1 127.0.2.1 127.0.2.1
    assert_eq "$output" $'200\n200\n200\n200\n'"$OTHERS" 'answers without --pulls'
}

# Stores with every odd letter, also with the names of files: each has an allocation and entries.
make_odd_stores() {
    local name stores=(files lock state info by-id metadata allocations ctl 'a b' "it's \"q\"" '%41' '%2e%2e' '..a' 'end.' '$x' 'a;{b}'
        'é' '?x' '#x' $'new\nline' '\back' '*' '.dot' '-d' '<script>')
    for name in "${stores[@]}"; do
        mkdir "$M/$name"
        exec 9<>"$M/$name/lock"
        printf '%s' "$name" >"$M/$name/allocations/lock"
        printf 'allocation' >"$M/$name/allocations/a%2F..%2F${name//%/%25}"
        printf 'value' >"$M/$name/metadata/%2E.%2Flock"
        echo 1 >"$M/$name/commit"
        exec 9>&-
    done
}

@test "a crawler and an attacker get nothing but what the list has" {
    start_weights size=128M
    commit_model
    make_odd_stores
    serve host="$M"
    run_logged -0 timeout $((120 * HANG)) python3 "$ROOT/tests/tools/crawl_served.py" "$PORT" "$M"
    assert_match "$output" '[0-9]{4} requests: [0-9]{3} files sent'
    state_is weights COMMITTED
    process_lives "$SERVER"
}

@test "a writer gets its lock within its patience, while 100 slow clients read and ask again" {
    local begun_ms
    start_weights size=128M
    commit_zeros $((64 << 20))
    serve host="$M"
    spawn python3 "$ROOT/tests/tools/slow_readers.py" "$PORT" /host/weights/allocations/a 100 100000
    wait_until 20 said "$SPAWNED" begun
    begun_ms=$(now_ms)
    cli run -w --timeout $((30 * HANG)) "$W" -- true
    (($(now_ms) - begun_ms < 30000 * SLOW)) || fail "the writer waited for $(($(now_ms) - begun_ms)) ms"
    echo "the writer waited for $(($(now_ms) - begun_ms)) ms"
    kill "$SPAWNED"
    wait_exit "$SPAWNED"
    output_of "$SPAWNED" | tail -n 1
    process_lives "$SERVER"
    ask 200 host/weights/state
}

NO_ID=0123456789abcdef0123456789abcdef

# copy_under DIRECTORY: files and links with the names that a mount has
copy_under() {
    mkdir -p "$1"/first/{allocations,metadata,files,"by-id/$NO_ID/allocations"}
    echo under | tee "$1"/{device,first/{state,allocations/a,metadata/key}} "$1/first/by-id/$NO_ID"/{pieces,allocations/0} >/dev/null
    ln -s /etc/passwd "$1/first/layout"
    ln -s / "$1/first/files/root"
}

@test "a mount at an odd path is served, also after it was gone, and nothing that lies under it" {
    requires fuse
    local at="$T/o d;{}'\$x\"#\\" path
    mkdir "$at"
    start_mount size=64M "$at"
    mkdir "$M/first"
    serve odd="$M"
    ask 200 odd/first/state
    assert_eq "$(cat "$T/body")" EMPTY
    kill_last_worker
    wait_until_any 10 process_gone "$KEEPER"
    ask 503 odd/first/state
    umount -l "$M" || true
    ask 503 odd/
    chmod 600 "$at" # closed to the server, also to one of its owner
    ask 503 odd/first/state
    has_header 'Retry-After: 2'
    has_header 'Cache-Control: no-store'
    chmod 755 "$at"
    copy_under "$at"
    for path in device '' first/state first/allocations/a first/metadata/ "first/by-id/$NO_ID/allocations/0" \
        "first/by-id/$NO_ID/pieces" first/allocations/none; do
        ask 503 "odd/$path"
        has_header 'Cache-Control: no-store'
    done
    # Also a copy of all that a list of the mount has: no link.
    mkdir "$at/regions"
    ask 403 odd/first/layout
    ask 503 odd/first/files/root/etc/passwd
    ask 503 odd/first/files/root/
    rm -r "${at:?}/"*
    rm -f "$GMSFS_LAST_WORKER"
    start_mount size=64M "$at"
    mkdir "$M/second"
    ask 200 odd/second/state
    ask 404 odd/first/state
    expect_death "$M"
    "$GMSFS" umount "$M"
    ask 503 odd/second/state
}

@test "events are read from an offset, also when the first ones are forgotten" {
    local at
    start_mount size=64M
    serve host="$M"
    python3 -c 'import os, sys
for _ in range(600):
    os.mkdir(sys.argv[1])
    os.rmdir(sys.argv[1])' "$M/x"
    ask 200 host/device
    at=$(jq .events_from "$T/body")
    ((at > 0))
    ask 206 host/events -r "$at-"
    cmp "$T/body" <(tail -c "+$((at + 1))" "$M/events")
    ask 416 host/events -r "$(stat -c %s "$M/events")-"
}

# Sets ID, the id of the contents, which the first reading of `pieces` makes.
read_id() {
    ask 200 host/weights/pieces
    has_header 'Cache-Control: no-store'
    cmp "$T/body" "$W/pieces"
    ID=$(sed -n 's/^id //p' "$T/body")
    assert_match "$ID" '^[0-9a-f]{32}$'
}

@test "bytes by the id of the contents are there until others are committed" {
    start_weights size=64M
    commit_model
    serve host="$M"
    ask 404 host/weights/by-id/0123456789abcdef0123456789abcdef/layout
    read_id
    ask 206 "host/weights/by-id/$ID/allocations/0" -r 1000000-1999999
    cmp "$T/body" <(tail -c +1000001 "$T/bytes" | head -c 1000000)
    has_header 'Cache-Control: public, max-age=31536000, immutable'
    ask 200 "host/weights/by-id/$ID/files/one/two/m%20odel.bin"
    cmp "$T/body" <(tail -c +101 "$T/bytes" | head -c 2000000)
    ask 200 "host/weights/by-id/$ID/layout"
    cmp "$T/body" "$W/layout"
    ask 200 "host/weights/by-id/$ID/pieces"
    has_header 'Cache-Control: public, max-age=31536000, immutable'
    ask 404 "host/weights/by-id/$ID/allocations/1"
    has_header 'Cache-Control: no-store'
    ask 416 "host/weights/by-id/$ID/allocations/0" -r 3000000-
    has_header 'Cache-Control: no-store'
    for path in "${ID^^}/allocations/0" "$ID/" "$ID/lock" "$ID/allocations/" "$ID/files/" ''; do
        ask 404 "host/weights/by-id/$path"
    done
    hold open "$W/lock" rw
    ask 404 "host/weights/by-id/$ID/allocations/0"
    ask 503 host/weights/pieces
    kill "$HOLDER"
    wait_until 5 state_is weights COMMITTED
    ask 200 "host/weights/by-id/$ID/layout"
    commit_model
    ask 404 "host/weights/by-id/$ID/layout"
}

asked_for() { # REGEX: how often, in the source's log
    grep -cE "\"GET $1 " "$T/access.log" || true
}

@test "a cache in between asks the source once for bytes by their id, and each time for anything else" {
    local cache
    start_weights size=64M
    commit_model
    serve --access-log "$T/access.log" host="$M"
    read_id
    cache=$(free_port)
    # The manual's own example.
    sed -n '/^proxy_cache_path/,/^\.Ed/p' "$ROOT/man/gmsfs-web.8" | sed '$d' |
        sed "s|10.0.0.1:24673|127.0.0.1:$PORT|; s|listen 24673|listen 127.0.0.1:$cache|; s|/var/cache/gmsfs|$T/cache|" >"$T/between"
    start_nginx cache-server "$T/between" "$cache"
    : >"$T/access.log"
    SERVED=http://127.0.0.1:$cache
    for _ in 1 2 3; do
        ask 206 "host/weights/by-id/$ID/allocations/0" -r 1000000-1999999
        has_header 'Cache-Control: public, max-age=31536000, immutable'
        cmp "$T/body" <(tail -c +1000001 "$T/bytes" | head -c 1000000)
        ask 200 "host/weights/by-id/$ID/layout"
        ask 404 "host/weights/by-id/$ID/allocations/1"
        ask 416 "host/weights/by-id/$ID/allocations/0" -r 3000000-
        ask 200 host/weights/state
    done
    ask 206 "host/weights/by-id/$ID/allocations/0" -r 0-999999
    cmp "$T/body" <(head -c 1000000 "$T/bytes")
    assert_eq "$(asked_for ".*/$ID/allocations/0")" $((2 + 3)) 'requests for bytes by their id, and for none'
    assert_eq "$(asked_for ".*/$ID/layout")" 1 'requests for the layout by its id'
    assert_eq "$(asked_for ".*/$ID/allocations/1")" 3 'requests for missing bytes'
    assert_eq "$(asked_for /host/weights/state)" 3 'requests for the state'
}
