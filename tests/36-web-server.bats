#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs web: how its server starts, which orders are refused, and how it ends.
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

@test "an address that others reach needs TLS or --insecure, and certificates of clients open the rest" {
    start_weights size=64M
    run_logged -2 "$GMSFS" web --listen "0.0.0.0:24673" "$M"
    assert_match "$output" 'give --tls-cert and --tls-key, or --insecure'
    SERVE_AT=0.0.0.0
    serve --insecure host="$M"
    ask 200 host/weights/state -H 'Host: any.example'
    ask 403 host/weights/info -H 'Host: any.example' # perhaps a page that leads its name here
    stop_serving
    make_certificate server IP:127.0.0.1
    make_certificate client DNS:client
    make_certificate other DNS:other
    SERVE_AT=127.0.0.1 SCHEME=https
    serve --tls-cert "$T/server.pem" --tls-key "$T/server.key" host="$M"
    ask 200 host/weights/state --cacert "$T/server.pem"
    stop_serving
    SERVE_AT=0.0.0.0
    serve --tls-cert "$T/server.pem" --tls-key "$T/server.key" \
        --tls-client-ca "$T/client.pem" host="$M"
    ask 400 host/weights/state -k
    ask 400 host/weights/state -k --cert "$T/other.pem" --key "$T/other.key"
    ask 200 host/weights/state -k --cert "$T/client.pem" --key "$T/client.key"
    ask 200 host/weights/info -k --cert "$T/client.pem" --key "$T/client.key" -H 'Host: any.example'
}

no_answer() {
    ! curl -s -o /dev/null "$SERVED/"
}

# has_new_workers PIDS: nginx has other processes than these
has_new_workers() {
    [[ $(cat "/proc/$SERVER/task/$SERVER/children") != "$1" ]]
}

@test "a server that is killed leaves no process and no file" {
    start_weights size=64M
    serve host="$M"
    local old
    old=$(cat "/proc/$SERVER/task/$SERVER/children")
    kill -HUP "$SERVER"
    wait_until 5 has_new_workers "$old"
    sleep 1 # far below the 3 seconds between two looks for writers
    kill -KILL "$SERVER"
    wait_exit "$SERVER"
    SERVER=''
    wait_until 5 no_answer
    wait_until 5 leaves_nothing
}

# sets BESIDE to the process beside nginx
find_beside() {
    local pid pids
    pids=$(cat "/proc/$SERVER/task/$SERVER/children")
    for pid in $pids; do
        [[ $(cat "/proc/$pid/comm") != gmsfs-web ]] || BESIDE=$pid
    done
    [[ -n ${BESIDE-} ]]
}

@test "nginx does not go on without the process beside it" {
    start_weights size=64M
    serve host="$M"
    local all pid
    wait_until 5 find_beside
    all=$(cat "/proc/$SERVER/task/$SERVER/children")
    kill -KILL "$BESIDE"
    wait_exit "$SERVER" 5
    assert_eq "$status" 0 status
    assert_match "$(output_of "$SERVER")" "process $BESIDE exited on signal 9"
    SERVER=''
    for pid in $all; do wait_until 5 process_gone "$pid"; done
    no_answer
    rm -r "$SERVED_DIR" # nothing is left that could
}

says_pages() {
    output_of "$SERVER" | grep -q 'no pages lie beside this program.*--pages'
}

@test "pages come with a strict policy, and are looked for beside this program" {
    local path
    start_mount size=64M
    mkdir "$T/pages"
    echo '<p>page' >"$T/pages/index.html"
    echo 'one()' >"$T/pages/page.js"
    serve --pages "$T/pages" host="$M"
    ask 200 ui/
    assert_eq "$(cat "$T/body")" '<p>page'
    has_header 'Content-Type: text/html; charset=utf-8'
    has_header "Content-Security-Policy: default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    has_header 'Cache-Control: no-cache'
    ask 200 ui/page.js
    has_header 'Content-Type: text/javascript; charset=utf-8'
    ask 404 ui/none.html
    ask 200 ui/mounts.json
    stop_serving
    mkdir -p "$T/usr/bin" "$T/usr/share/gmsfs" "$T/usr/web" "$T/web"
    cp "$GMSFS" "$T/usr/bin/gmsfs"
    echo secret | tee "$T/usr/web/page.js" >"$T/web/page.js" # directories of other programs
    GMSFS=$T/usr/bin/gmsfs serve host="$M"
    ask 404 ui/page.js
    for path in '' ui/; do
        ask 404 "$path"
        assert_match "$(cat "$T/body")" 'no pages.*--pages.* /ui/mounts.json lists'
    done
    wait_until 5 says_pages
    stop_serving
    cp -r "$T/pages" "$T/usr/share/gmsfs/web"
    GMSFS=$T/usr/bin/gmsfs serve host="$M"
    ask 200 ui/page.js
    rm -r "$T/usr/share/gmsfs/web"
    for path in "$T" "$T/usr"; do # our tree, of build/test/gmsfs and of build/gmsfs
        stop_serving
        mkdir -p "$path/src/web"
        touch "$path/src/web/config.c"
        GMSFS=$T/usr/bin/gmsfs serve host="$M"
        ask 200 ui/page.js
        rm -r "$path/src"
    done
}

@test "wrong orders are refused with the way out" {
    start_mount size=64M
    local word text
    refused() { # STATUS TEXT ARGUMENT...
        run_logged "-$1" "$GMSFS" web "${@:3}"
        assert_match "$output" "$2"
    }
    refused 2 'a MOUNT is needed'
    refused 2 'would both be /m0/; give one another name, as NAME=' "$M" "$M"
    refused 2 "cannot be a mount's name .* as NAME=/x" "ui=/x"
    refused 2 "cannot be a mount's name" '.x=/x'
    refused 2 "cannot be a mount's name" '/mnt/a b'
    for word in 1.2.3.4 localhost:80 127.0.0.1:0 127.0.0.1:65536 127.0.0.1:1x ::1:80 '[::1]' '[127.0.0.1]:80' :80; do
        refused 2 'ADDRESS:PORT is needed|no numeric address' --listen "$word" x=/x
    done
    refused 2 'belong together' --tls-cert /x "$M"
    for word in 0 513; do refused 2 '1 to 512 are possible' --pulls "$word" "$M"; done
    refused 2 'needs --tls-cert' --tls-client-ca /x "$M"
    refused 1 "not a gmsfs mount" --user nobody "$T"
    refused 1 "No such file" --tls-cert "$T/none" --tls-key "$T/none" "$M"
    mkdir "$T/gone"
    run_logged -1 bash -c 'cd "$1" && rmdir "$1" && "$2" web --pages . "$3"' - "$T/gone" "$GMSFS" "$M"
    assert_match "$output" "--pages '.': no working directory: No such file"
    if [[ $EUID -eq 0 ]]; then
        refused 1 "there is no user 'no-such-user' .*useradd" --user no-such-user "$M"
        refused 1 "is root" --user root "$M"
        run_logged -1 as_user "$GMSFS" web --user daemon "$M"
        assert_match "$output" 'only root can start the server as another user'
    fi
    refused 1 'cannot serve 192.0.2.1:24673: this machine has no such address' --insecure --user nobody --listen 192.0.2.1:24673 "$M"
    serve host="$M"
    refused 1 "cannot serve 127.0.0.1:$PORT: another program listens there .*--listen" --user nobody --listen "127.0.0.1:$PORT" "$M"
    [[ $output != *http://* && $output != *emerg* ]] || fail "told where it is served, or nginx's own words"
}

@test "a mount that its user may not see is refused, and nginx is named where it is missing" {
    requires user-fuse nginx
    MOUNT_VIA=("${AS_USER[@]}")
    start_mount size=64M,no_allow_other
    run_logged -1 "$GMSFS" web --user daemon "$M"
    assert_match "$output" 'closed to the user that serves .*allow_other'
    chmod 1777 "$T"
    SERVE_VIA=("${AS_USER[@]}")
    serve host="$M"
    ask 200 host/device
    stop_serving
    run_logged -1 in_mountns 'mount --bind /dev/null "$(command -v nginx || echo /usr/sbin/nginx)" && exec "${@:1}"' \
        "${AS_USER[@]}" "$GMSFS" web "$M"
    assert_match "$output" "Debian's package nginx-light"
    forget_mount "$M"
    wait_until_any 5 as_user "$GMSFS" umount "$M"
}
