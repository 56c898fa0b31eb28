/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the HTTP/1.1 parser of the front end for Triton clients. */
#include "tap.h"
#include "triton/wire_http.h"

#include <errno.h>
#include <stdlib.h>

static struct wire_http_head head;
static struct wire_http_refusal refusal;

static int parse(const char *text)
{
    size_t scanned = 0;

    return wire_http_parse(text, strlen(text), &scanned, &head, &refusal);
}

static unsigned refuse(const char *text)
{
    check_int(parse(text), -EPROTO);
    return refusal.status;
}

static void check_text(struct wire_text text, const char *expected)
{
    check_bytes(text.at, text.bytes, expected, strlen(expected));
}

#define HOSTLESS "GET /v2 HTTP/1.1\r\n"
#define GET      HOSTLESS "Host: localhost\r\n"

TAP_TEST(a_request_of_the_python_client_is_read)
{
    static const char text[] =
        "POST /v2/models/simple/infer?a=b+c&l=1 HTTP/1.1\r\nUser-Agent: python/geventhttpclient\r\n"
        "Host: localhost:8000\r\nInference-Header-Content-Length: 285\r\n"
        "GMSFS-session:  abc \t\r\nContent-Length: 413\r\n\r\nbody";
    check_int(parse(text), 0);
    check_text(head.method, "POST");
    check_text(head.path, "/v2/models/simple/infer");
    check_text(head.session, "abc");
    check(head.is_kept && !head.is_chunked && !head.wants_continue && head.has_json_bytes);
    check_int(head.length_bytes, 413);
    check_int(head.json_bytes, 285);
    check_int(head.head_bytes, sizeof text - 1 - 4);
}

TAP_TEST(a_head_may_come_in_any_pieces)
{
    static const char text[] = "\r\nGET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    size_t scanned = 0;
    for (size_t size = 0; size < sizeof text - 1; size++)
        check_int(wire_http_parse(text, size, &scanned, &head, &refusal), -EAGAIN);
    check_int(wire_http_parse(text, sizeof text - 1, &scanned, &head, &refusal), 0);
    check_text(head.path, "/v2/health/live");
    check_int(head.head_bytes, sizeof text - 1);
}

TAP_TEST(whether_another_request_may_follow)
{
    check_int(parse(GET "\r\n"), 0);
    check(head.is_kept);
    check_int(parse(GET "Connection: keep-alive, Close\r\n\r\n"), 0);
    check(!head.is_kept);
    check_int(parse("GET /v2 HTTP/1.0\r\n\r\n"), 0);
    check(!head.is_kept);
}

TAP_TEST(a_path_may_come_with_its_origin)
{
    check_int(parse("GET http://localhost:8000/v2?x HTTP/1.1\r\nHost: localhost\r\n\r\n"), 0);
    check_text(head.path, "/v2");
}

TAP_TEST(ambiguous_requests_are_refused)
{
    check_int(refuse("GET /v2 HTTP/1.1\nHost: localhost\n\n"), 400);
    check_int(refuse(HOSTLESS "Host: localhost\n\r\n"), 400);
    check_int(refuse(HOSTLESS "Host : localhost\r\n\r\n"), 400);
    check_int(refuse(GET "A: b\rc\r\n\r\n"), 400);
    check_int(refuse(HOSTLESS "\r\n"), 400);
    check_int(refuse(GET "Host: localhost\r\n\r\n"), 400);
    check_int(refuse("GET /v2 HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
    check_int(parse("GET /v2 HTTP/1.0\r\n\r\n"), 0);
    check_int(refuse(GET "A: b\r\n folded\r\n\r\n"), 400);
    check_int(refuse(GET ": a\r\n\r\n"), 400);
    check_int(refuse(GET "A\r\n\r\n"), 400);
    check_int(refuse(GET "A: \x01\r\n\r\n"), 400);
    check_int(refuse(GET "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
    check_int(refuse(GET "Content-Length: 1\r\nContent-Length: 2\r\n\r\n"), 400);
    check_int(refuse(GET "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"), 400);
    check_int(refuse(GET "Content-Length: +1\r\n\r\n"), 400);
    check_int(refuse(GET "Content-Length: 1, 1\r\n\r\n"), 400);
    check_int(refuse(GET "Content-Length:\r\n\r\n"), 400);
    check_int(refuse(GET "Content-Length: 99999999999999999999\r\n\r\n"), 413);
    check_int(refuse(GET "Transfer-Encoding: gzip, chunked\r\n\r\n"), 501);
    check_int(refuse(GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"), 501);
    check_int(refuse(GET "Expect: 200-ok\r\n\r\n"), 417);
    check_int(refuse(GET "gmsfs-session: a\r\ngmsfs-session: b\r\n\r\n"), 400);
}

TAP_TEST(requests_of_web_pages_are_refused)
{
    check_int(refuse("POST /v2/systemsharedmemory/unregister HTTP/1.1\r\nHost: localhost:8000\r\n"
                     "Origin: https://example.org\r\nContent-Length: 0\r\n\r\n"),
              403);
    check_int(refuse(GET "origin: null\r\n\r\n"), 403);
}

TAP_TEST(a_server_without_tokens_is_asked_for_by_no_name_that_others_give)
{
    check_int(refuse(HOSTLESS "Host: rebound.example:8000\r\n\r\n"), 403);
    check_int(refuse(HOSTLESS "Host: 127.0.0.1.example\r\n\r\n"), 403);
    check_int(refuse(HOSTLESS "Host: localhost.example:8000\r\n\r\n"), 403);
    check_int(refuse("GET http://rebound.example/v2 HTTP/1.1\r\nHost: localhost\r\n\r\n"), 403);
    check_int(parse("GET http://localhost/v2 HTTP/1.1\r\nHost: rebound.example\r\n\r\n"), 0);
    check_int(parse(HOSTLESS "Host: rebound.example\r\ngmsfs-session: t\r\n\r\n"), 0);
    check_int(parse(HOSTLESS "Host: LocalHost:8000\r\n\r\n"), 0);
    check_int(parse(HOSTLESS "Host: 127.0.0.1:8000\r\n\r\n"), 0);
    check_int(parse(HOSTLESS "Host: [::1]:8000\r\n\r\n"), 0);
    check_int(parse(HOSTLESS "Host:\r\n\r\n"), 0);
}

TAP_TEST(a_host_is_a_name_or_an_address_and_nothing_else)
{
    static const char *const good[] = {"",
                                       "localhost",
                                       "localhost:",
                                       "a.b-c_d~:80",
                                       "%2Ftmp%2fs",
                                       "1.2.3.4:65535",
                                       "[::]:1",
                                       "[::1]",
                                       "[1:2:3:4:5:6:7:8]",
                                       "[1:2::8]:8000",
                                       "[1::]",
                                       "[1:2:3:4:5:6:7::]",
                                       "[::2:3:4:5:6:7:8]",
                                       "[::ffff:127.0.0.1]:80",
                                       "[1:2:3:4:5:6:1.2.3.4]",
                                       "[fe80::dead:BEEF]"};
    static const char *const bad[] = {"[evil]",
                                      "[",
                                      "[]",
                                      "[::1",
                                      "[::1]x",
                                      "[::1]:8x",
                                      "[::1]80",
                                      "[1:2:3:4:5:6:7]",
                                      "[1:2:3:4:5:6:7:8:9]",
                                      "[1::2::3]",
                                      "[12345::]",
                                      "[:1]",
                                      "[1:]",
                                      "[:::1]",
                                      "[1:::2]",
                                      "[::1.2.3]",
                                      "[::1.2.3.256]",
                                      "[1.2.3.4]",
                                      "[1:2:3:4:5:6:7:1.2.3.4]",
                                      "[1:2:3:4:5:6:7:8::]",
                                      "[::g]",
                                      "[v1.a]",
                                      "a:b",
                                      "a:1:2",
                                      "a:123456",
                                      "user@a",
                                      "a/b",
                                      "a b",
                                      "a%zz",
                                      "a%2",
                                      "a\xc3\xa9",
                                      "a\"",
                                      "::1"};
    char text[128];

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        check(wire_http_is_authority(wire_text_of(good[i])));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        check(!wire_http_is_authority(wire_text_of(bad[i])));
        snprintf(text, sizeof text, HOSTLESS "Host: %s\r\ngmsfs-session: t\r\n\r\n", bad[i]);
        check_int(refuse(text), 400);
        snprintf(text, sizeof text, "GET http://%s/v2 HTTP/1.1\r\nHost: a\r\n\r\n", bad[i]);
        if (!strpbrk(bad[i], "/ "))
            check_int(refuse(text), 400);
    }
}

TAP_TEST(an_encoding_that_is_not_known_counts_beside_one_that_is)
{
    check_int(parse(GET "Content-Encoding: gzip\r\nContent-Encoding: identity\r\n\r\n"), 0);
    check_text(head.encoding, "gzip");
    check_int(parse(GET "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n\r\n"), 0);
    check_text(head.encoding, "gzip");
}

TAP_TEST(malformed_request_lines_are_refused)
{
    check_int(refuse("GET /v2\r\n\r\n"), 400);
    check_int(refuse("GET  /v2 HTTP/1.1\r\n\r\n"), 400);
    check_int(refuse("G(T /v2 HTTP/1.1\r\n\r\n"), 400);
    check_int(refuse("GET /v\x7f HTTP/1.1\r\n\r\n"), 400);
    check_int(refuse("GET /v2 HTTP/2.0\r\n\r\n"), 505);
    check_int(refuse("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
    check_int(refuse("\x16\x03\x01 a b\r\n\r\n"), 400);
}

TAP_TEST(heads_have_bounds)
{
    static char text[WIRE_HTTP_MAX_HEAD_BYTES + 64];
    size_t scanned = 0, at;
    memset(text, 'a', sizeof text);
    check_int(wire_http_parse(text, WIRE_HTTP_MAX_HEAD_BYTES, &scanned, &head, &refusal), -EAGAIN);
    check_int(wire_http_parse(text, WIRE_HTTP_MAX_HEAD_BYTES + 1, &scanned, &head, &refusal),
              -EPROTO);
    check_int(refusal.status, 431);
    at = (size_t)sprintf(text, GET);
    for (unsigned i = 1; i < WIRE_HTTP_MAX_FIELDS; i++)
        at += (size_t)sprintf(text + at, "A: b\r\n");
    sprintf(text + at, "\r\n");
    check_int(parse(text), 0);
    sprintf(text + at, "A: b\r\n\r\n");
    check_int(refuse(text), 431);
}

/* ---- bodies -------------------------------------------------------------------------------- */

static char body_text[256];
static size_t body_bytes;
static struct wire_http_body body;

/* Feeds `text` in pieces of `step` bytes; *rest is the unread part. */
static int feed(const char *text, size_t step, const char **rest)
{
    size_t size = strlen(text), at = 0;
    int error = -EAGAIN;

    body_bytes = 0;
    while (error == -EAGAIN && at < size) {
        size_t taken, give = size - at < step ? size - at : step;
        struct wire_text data;
        error = wire_http_body_take(&body, text + at, give, &taken, &data, &refusal);
        if (error != -EPROTO && data.bytes > 0)
            memcpy(body_text + body_bytes, data.at, data.bytes);
        body_bytes += data.bytes;
        at += taken;
    }
    if (rest)
        *rest = text + at;
    return error;
}

static int chunks(const char *text, size_t step, const char *expected, const char *left)
{
    const char *rest;

    head = (struct wire_http_head){.is_chunked = true};
    wire_http_body_begin(&body, &head);
    int error = feed(text, step, &rest);
    if (!error) {
        check_bytes(body_text, body_bytes, expected, strlen(expected));
        check_str(rest, left);
    }
    return error;
}

TAP_TEST(a_body_with_a_length_ends_where_the_next_request_begins)
{
    const char *rest;
    head = (struct wire_http_head){.length_bytes = 5};
    wire_http_body_begin(&body, &head);
    check_int(feed("helloGET", 3, &rest), 0);
    check_bytes(body_text, body_bytes, "hello", 5);
    check_str(rest, "GET");
    head.length_bytes = 0;
    wire_http_body_begin(&body, &head);
    struct wire_text data;
    size_t taken;
    check_int(wire_http_body_take(&body, NULL, 0, &taken, &data, &refusal), 0);
}

TAP_TEST(chunks_are_put_together_in_any_pieces)
{
    static const char text[] =
        "5\r\nhello\r\n00000001;name=\"v\"\r\n \r\n6 \r\nthere!\r\n0\r\nTrailer: x\r\n\r\nGET";
    for (size_t step = 1; step < sizeof text; step++)
        check_int(chunks(text, step, "hello there!", "GET"), 0);
    check_int(chunks("0\r\n\r\n", 1, "", ""), 0);
    check_int(
        chunks("A\r\n0123456789\r\na\r\nabcdefghij\r\n0\r\n\r\n", 4, "0123456789abcdefghij", ""),
        0);
}

TAP_TEST(malformed_chunks_are_refused)
{
    check_int(chunks("\r\n", 1, "", ""), -EPROTO);
    check_int(chunks("x\r\n", 1, "", ""), -EPROTO);
    check_int(chunks("-1\r\n", 1, "", ""), -EPROTO);
    check_int(chunks("5\nhello", 9, "", ""), -EPROTO);
    check_int(chunks("5\r\nhello!\r\n", 9, "", ""), -EPROTO);
    check_int(chunks("5;a\nb\r\n", 9, "", ""), -EPROTO);
    check_int(chunks("11111111111111111\r\n", 30, "", ""), -EPROTO);
    check_int(chunks("0\r\na: b\n\r\n", 30, "", ""), -EPROTO);
}

TAP_TEST(chunks_and_their_lines_have_bounds)
{
    struct wire_text data;
    size_t taken;
    int error = -EAGAIN;
    head = (struct wire_http_head){.is_chunked = true};
    wire_http_body_begin(&body, &head);
    for (unsigned i = 0; i < WIRE_HTTP_MAX_CHUNKS; i++)
        check_int(feed("1\r\na\r\n", 9, NULL), -EAGAIN);
    check_int(body.total_bytes, WIRE_HTTP_MAX_CHUNKS);
    check_int(feed("1\r\na\r\n", 9, NULL), -EPROTO);
    wire_http_body_begin(&body, &head);
    check_int(feed("1;", 2, NULL), -EAGAIN);
    for (unsigned i = 0; i < WIRE_HTTP_MAX_LINE_BYTES && error == -EAGAIN; i++)
        error = wire_http_body_take(&body, "x", 1, &taken, &data, &refusal);
    check_int(error, -EPROTO);
}

/* Bounds the excess of extensions over data in all bytes taken. */
TAP_TEST(extensions_of_chunks_have_a_bound_together)
{
    static const char extended[] = "1;0123456789012345678901234567890123456789\r\na\r\n";
    unsigned chunks = 0;
    int error = -EAGAIN;

    head = (struct wire_http_head){.is_chunked = true};
    wire_http_body_begin(&body, &head);
    for (; chunks < WIRE_HTTP_MAX_CHUNKS && error == -EAGAIN; chunks++)
        error = feed(extended, sizeof extended, NULL);
    check_int(error, -EPROTO);
    check(chunks < WIRE_HTTP_MAX_EXCESS_BYTES / 20);
}

TAP_TEST(empty_lines_before_a_request_have_a_bound)
{
    char text[2 * WIRE_HTTP_MAX_EMPTY + 64] = "";

    for (unsigned i = 0; i < WIRE_HTTP_MAX_EMPTY; i++)
        strcat(text, "\r\n");
    strcat(text, GET "\r\n");
    check_int(parse(text), 0);
    memmove(text + 2, text, sizeof text - 2);
    memcpy(text, "\r\n", 2);
    check_int(refuse(text), 400);
}
