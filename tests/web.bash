# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# A web server that misbehaves, and a client of src/source: tests/tools/web_server.py, source_get.c.

# start_web [OPTION...]: serves $T/www; sets WEB to its address, WEB_PORT, and WEB_LOG
start_web() {
    requires python3 || return 1
    local n=${#SPAWNS[@]}
    WEB_LOG=$T/web-$n.log
    mkdir -p "$T/www"
    : >"$WEB_LOG"
    spawn python3 "$ROOT/tests/tools/web_server.py" "$T/www" "$T/web-$n.port" --log "$WEB_LOG" "$@"
    wait_until 10 test -s "$T/web-$n.port"
    WEB_PORT=$(<"$T/web-$n.port")
    WEB=http://127.0.0.1:$WEB_PORT
    own_settings
}

# make_file NAME BYTES: random ones, in $T/www
make_file() {
    mkdir -p "$T/www/$(dirname "$1")"
    head -c "$2" /dev/urandom >"$T/www/$1"
}

# get PLACE [NAME] [THREADS PIECE]: into $T/out; sets output, status
get() {
    run_logged timeout $((60 * HANG)) "$BUILD/tests/tools/source_get" "$@"
}

# gets PLACE FILE [THREADS PIECE]: the bytes are those of $T/www/FILE
gets() {
    get "$1" "$T/out" "${3:-4}" "${4:-100000}"
    assert_eq "$status" 0 status
    cmp "$T/out" "$T/www/$2" || fail "$1 has other bytes"
}

# refuses PLACE REGEX [THREADS PIECE]: the failure has these words
refuses() {
    get "$1" "$T/out" "${3:-4}" "${4:-100000}"
    assert_eq "$status" 1 status
    assert_match "$output" "$2"
}

# count_requests REGEX: requests in the server's log that match
count_requests() {
    grep -cE "$1" "$WEB_LOG" || true
}

# make_certificate NAME SUBJECT_ALT_NAME: $T/NAME.pem and .key, signed by itself
make_certificate() {
    requires openssl || return 1
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=$1" -addext "subjectAltName=$2" \
        -keyout "$T/$1.key" -out "$T/$1.pem" 2>/dev/null
}
