#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# http:// and https:// as places: the right bytes from servers that misbehave, or a clear error.
#
# bats file_tags=slow

load helpers
load web

prepare() {
    start_web
    make_file a.bin 1000003
}

# ---- bytes -----------------------------------------------------------------------------------

# bats test_tags=quick
@test "a file comes by ranges, over several connections" {
    local size
    gets "$WEB/plain/a.bin" a.bin
    assert_eq "$(count_requests '"range": "bytes=0-99999"')" 1 'requests of the first piece'
    for size in 0 1 4095 65536; do
        make_file "size $size.bin" $size
        gets "$WEB/plain/size%20$size.bin" "size $size.bin"
    done
    gets "$WEB/empty416/size%200.bin" "size 0.bin"
}

@test "a server without ranges serves by one stream, also several threads" {
    gets "$WEB/noranges/a.bin" a.bin
    # One answer tells the size; the file is sent once.
    assert_eq "$(count_requests noranges)" 2 requests
    gets "$WEB/noranges/a.bin" a.bin 1 77777
    gets "$WEB/noranges+cut=400000:3/a.bin" a.bin
    gets "$WEB/noranges+slow=20/a.bin" a.bin 8 30000
}

@test "a write that fails ends a stream, also when the stream has waited for the next read" {
    local n
    for n in 1 2 3 4 5 6 7 8; do
        GET_FAIL=$n refuses "$WEB/noranges/a.bin" '^EIO' 1 77777
    done
}

@test "servers with weak ETags, none, or without If-Range" {
    gets "$WEB/weak/a.bin" a.bin
    gets "$WEB/noetag/a.bin" a.bin
    gets "$WEB/ifless/a.bin" a.bin
}

@test "a transfer that is cut goes on where it was cut" {
    gets "$WEB/cut=150000/a.bin" a.bin 2 500000
    assert_eq "$(count_requests '"range": "bytes=150000-499999", "if-range"')" 1 'requests that go on'
    refuses "$WEB/longer=10/a.bin" '^ECONNRESET: .*cut'
    refuses "$WEB/noranges+longer=10/a.bin" '^ECONNRESET: .*cut'
}

@test "errors that pass: 503, 429 with Retry-After, a slow server" {
    gets "$WEB/fail=503:2/a.bin" a.bin
    gets "$WEB/fail=429:1+retry=1/a.bin" a.bin
    gets "$WEB/slow=30/a.bin" a.bin
}

@test "redirects are followed, and not asked for again for each range" {
    gets "$WEB/to=%2Fplain%2F/a.bin" a.bin
    assert_eq "$(count_requests '/to=')" 1 'requests of the address before'
}

@test "an address of a redirect that expires is fetched again" {
    gets "$WEB/to=%2Fonce=4%2F/a.bin" a.bin 1 100000
    (($(count_requests '/to=') > 1)) || fail 'the address before was asked once'
    # The first answer of that address tells the size; the stream needs another.
    gets "$WEB/to=%2Fnoranges%252Bonce=1%2F/a.bin" a.bin
}

# ---- errors ----------------------------------------------------------------------------------

# bats test_tags=quick
@test "errors name the address, the cause and the way out" {
    refuses "$WEB/plain/none" "^ENOENT: $WEB/plain/none: cannot read it: the server answers 404 Not Found: nothing is at this address; look"
    refuses "http://me:geheim@127.0.0.1:$WEB_PORT/plain/none?token=geheim" \
        "^ENOENT: http://127.0.0.1:$WEB_PORT/plain/none: .*404"
    [[ $output != *geheim* ]] || fail 'a password is shown'
    refuses "$WEB/password/a.bin" '^EACCES: .*401 Unauthorized: .*~/.netrc'
    refuses "http://127.0.0.1:1/a" '^ECONNREFUSED: .*cannot be reached'
    refuses "http://no-such-host.invalid/a" '^EHOSTUNREACH: .*name of the server is unknown'
    refuses "$WEB/chunked/a.bin" '^EPROTO: .*does not tell its size'
    refuses "$WEB/encoded/a.bin" '^EPROTO: .*compressed'
    refuses "$WEB/headers/a.bin" '^E2BIG: .*headers'
    refuses "$WEB/to=loop/a.bin" '^ELOOP: .*too many redirects'
    refuses "$WEB/to=file:%2F%2F%2Fetc%2F/passwd" '^EPROTONOSUPPORT: .*scheme'
}

@test "a server that lies about ranges is refused" {
    refuses "$WEB/shifted/a.bin" '^EPROTO: .*another range than it was asked for; download it'
    refuses "$WEB/more/a.bin" '^EPROTO: .*more bytes than it was asked for' 1 100000
    HANG=1 refuses "$WEB/endless/a.bin" '^EPROTO: .*more bytes than it was asked for' 1 100000
}

@test "a file that changes in the middle is never mixed" {
    local fault
    for fault in change=3 change=1 grow=2 ifless+change=3 weak+change=2 cut=50000+change=4 \
        noranges+cut=300000:2+change=2 noranges+noetag+cut=300000:2+grow=2; do
        refuses "$WEB/$fault/a.bin" '^ESTALE: .*has changed' 2 100000
    done
    # Without an ETag and a date only the size tells.
    refuses "$WEB/swap=9+grow=2/a.bin" '^ESTALE: .*has changed' 2 100000
}

@test "errors that stay end after some attempts" {
    refuses "$WEB/late=503:2/a.bin" '^EAGAIN: .*503 Service Unavailable: it is busy'
    refuses "$WEB/fail=429:9+retry=3600/a.bin" '^EBUSY: .*429'
    assert_eq "$(count_requests 'fail=429')" 1 'requests to a server that wants an hour'
}

@test "a server that falls silent is left after GMSFS_HTTP_STALL seconds" {
    export GMSFS_HTTP_STALL=1
    make_file b.bin 200000
    refuses "$WEB/stall=50/b.bin" '^ETIMEDOUT: .*silent' 1 200000
}

@test "cancelling ends reads at once, whatever they wait for" {
    local before
    export GET_END=300
    for fault in stall=50000 noranges+stall=50000 late=503:1 noranges+late=503:1; do
        before=$(now_ms)
        refuses "$WEB/$fault/a.bin" '^ECANCELED'
        (($(now_ms) - before < 2000 * SLOW)) || fail "cancelling took $(($(now_ms) - before)) ms"
    done
}

# ---- credentials -----------------------------------------------------------------------------

@test "passwords come from ~/.netrc or the address" {
    gets "http://user:secret@127.0.0.1:$WEB_PORT/password/a.bin" a.bin
    echo 'machine 127.0.0.1 login user password secret' >"$T/.netrc"
    gets "$WEB/password/a.bin" a.bin
}

@test "credentials of one host never go to another" {
    local first=$WEB_PORT first_log=$WEB_LOG
    start_web
    gets "http://user:secret@127.0.0.1:$first/password+to=http:%2F%2Flocalhost:$WEB_PORT%2Fplain%2F/a.bin" a.bin
    assert_eq "$(grep -c '"authorization"' "$first_log")" 1 'requests with the password'
    assert_eq "$(count_requests '"authorization"')" 0 'requests with the password to the other host'
    # Another port is another server.
    : >"$WEB_LOG"
    echo 'machine localhost login user password secret' >"$T/.netrc"
    gets "http://localhost:$first/password+to=http:%2F%2F127.0.0.1:$WEB_PORT%2Fplain%2F/a.bin" a.bin
    assert_eq "$(count_requests '"authorization"')" 0 'requests with the password to the other host'
}

@test "a proxy of the environment is used" {
    export http_proxy=$WEB
    get http://far.example/plain/a.bin "$T/out" 1 100000
    assert_eq "$(count_requests '"path": "http://far.example/plain/a.bin"')" 1 'requests to the proxy'
}

# ---- https -----------------------------------------------------------------------------------

@test "certificates are verified: strangers, wrong names, and trusted ones" {
    make_certificate own IP:127.0.0.1
    make_certificate wrong DNS:other.example
    start_web --tls "$T/own.pem" "$T/own.key"
    refuses "https://127.0.0.1:$WEB_PORT/plain/a.bin" '^EKEYREJECTED: .*certificate is not trusted.*CURL_CA_BUNDLE'
    export CURL_CA_BUNDLE=$T/own.pem
    gets "https://127.0.0.1:$WEB_PORT/plain/a.bin" a.bin
    local plain=http://127.0.0.1:1/plain
    refuses "https://127.0.0.1:$WEB_PORT/to=${plain//\//%2F}%2F/a.bin" '^EPROTONOSUPPORT: .*scheme'
    refuses "http://127.0.0.1:$WEB_PORT/plain/a.bin" 'cannot read it'
    start_web --tls "$T/wrong.pem" "$T/wrong.key"
    export CURL_CA_BUNDLE=$T/wrong.pem
    refuses "https://127.0.0.1:$WEB_PORT/plain/a.bin" '^EKEYREJECTED: .*certificate'
}
