# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Mounts served by `gmsfs web`; the server of tests/web.bash is another one, which misbehaves.

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# serve [OPTION...] [NAME=]MOUNT...: sets SERVED, the server's address, PORT, SERVER, its pid, and SERVED_DIR, its directory. A test may set SERVE_AT,
# an address other than 127.0.0.1, the array SERVE_VIA, words before the command, and SCHEME to https.
SERVER='' SERVED_DIR='' SERVE_AT=127.0.0.1 SCHEME=http SERVE_VIA=()
serve() {
    local try
    requires nginx curl python3 || return 1
    for try in 1 2 3; do
        PORT=$(free_port)
        TMPDIR=$T spawn "${SERVE_VIA[@]}" "$GMSFS" web --user nobody --listen "$SERVE_AT:$PORT" "$@"
        SERVER=$SPAWNED
        SERVED=$SCHEME://127.0.0.1:$PORT
        if wait_until 10 server_decided && process_lives "$SERVER"; then
            SERVED_DIR=$(tr '\0' ' ' <"/proc/$SERVER/cmdline" | sed -n 's/.* -p \([^ ]*\) .*/\1/p')
            [[ -n $SERVED_DIR ]] || fail 'the command line of nginx names no directory'
            return
        fi
        output_of "$SERVER" | grep -q 'another program listens there' || break
    done
    output_of "$SERVER" >&2
    fail "gmsfs web did not start"
}

# write_nginx NAME FILE: $T/NAME.conf, a configuration of another nginx that includes FILE in its http block
write_nginx() {
    PATH=$PATH:/usr/sbin
    mkdir "$T/$1"
    cat >"$T/$1.conf" <<END
daemon off;
pid $T/$1/pid;
events { }
http {
    access_log off;
    client_body_temp_path $T/$1/1; proxy_temp_path $T/$1/2; fastcgi_temp_path $T/$1/3;
    uwsgi_temp_path $T/$1/4; scgi_temp_path $T/$1/5;
    include $2;
}
END
}

# start_nginx NAME FILE PORT: another nginx; its pid goes to NGINXES
NGINXES=()
start_nginx() {
    write_nginx "$1" "$2"
    spawn nginx -e stderr -c "$T/$1.conf"
    NGINXES+=("$SPAWNED")
    wait_until 10 curl -s -o /dev/null "http://127.0.0.1:$3/" || {
        output_of "$SPAWNED" >&2
        return 1
    }
}

server_decided() {
    process_gone "$SERVER" || curl -sk --max-time 2 -o /dev/null "$SERVED/"
    # A certificate that it asks for: the handshake fails, but it is there.
    [[ $? -eq 0 || $? -eq 56 ]]
}

# ask CODE PATH [OPTION...]: GETs SERVED/PATH as it is, into $T/body and $T/headers
ask() {
    local want=$1 path=$2 code
    shift 2
    code=$(curl -sg --path-as-is --max-time $((20 * HANG)) -o "$T/body" -D "$T/headers" -w '%{http_code}' "$@" "$SERVED/$path") ||
        [[ $want == 000 ]] || fail "no answer to $path"
    assert_eq "$code" "$want" "answer to $path $*"
}

has_header() { # LINE: without the end of the line
    tr -d '\r' <"$T/headers" | grep -qixF "$1" || fail "no header '$1' in: $(cat "$T/headers")"
}

lacks_header() { # NAME
    ! grep -qi "^$1:" "$T/headers" || fail "a header $1: $(cat "$T/headers")"
}

leaves_nothing() { # the directory of the server that has ended
    [[ -n $SERVED_DIR && ! -e $SERVED_DIR ]]
}

stop_serving() {
    local server=$SERVER
    SERVER=''
    kill "$server"
    wait_exit -0 "$server" 5
}

served_setup() {
    own_settings
}

# The processes that serve would outlive one that is killed.
served_teardown() {
    local server
    [[ -z $SERVER ]] || stop_serving || true
    for server in "${NGINXES[@]}"; do
        kill "$server"
        wait_exit "$server" 5 || true
    done
    common_teardown
}
