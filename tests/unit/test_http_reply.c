/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the headers of HTTP answers, and the parts of addresses. */
#include "source/http_reply.h"
#include "source/url.h"

#include "tap.h"

#include <errno.h>
#include <stdlib.h>

static struct http_reply reply;
static struct http_range range;
static char value[64];

static void take(const char *const *lines)
{
    http_reply_free(&reply);
    for (size_t i = 0; lines[i]; i++)
        check_int(http_reply_add(&reply, lines[i], strlen(lines[i])), 0);
}

#define TAKE(...) take((const char *const[]){__VA_ARGS__, NULL})

TAP_TEST(the_last_of_several_answers_counts)
{
    TAKE("HTTP/1.1 302 Found\r\n", "ETag: \"a\"\r\n", "\r\n", "HTTP/2 206\r\n",
         "etag:  \"b\" \r\n");
    check_int(reply.status, 206);
    check(http_reply_get(&reply, "ETag", value, sizeof(value)));
    check_str(value, "\"b\"");
    check(!http_reply_get(&reply, "ETa", value, sizeof(value)));
    check_str(value, "");
    check(!http_reply_get(&reply, "etag", value, 3));
    http_reply_free(&reply);
}

TAP_TEST(a_range_has_a_first_an_end_and_perhaps_a_total)
{
    TAKE("HTTP/1.1 206 P", "Content-Range: bytes 5-9/20");
    check(http_reply_get_range(&reply, &range));
    check_int(range.first, 5);
    check_int(range.end, 10);
    check_int(range.total, 20);
    TAKE("HTTP/1.1 206 P", "content-range: BYTES 0-0/*");
    check(http_reply_get_range(&reply, &range));
    check(range.total == UINT64_MAX);
    TAKE("HTTP/1.1 416 R", "Content-Range: bytes */0");
    check(http_reply_get_range(&reply, &range));
    check_int(range.total, 0);
    http_reply_free(&reply);
}

TAP_TEST(ranges_that_are_none)
{
    static const char *const lines[] = {
        "Content-Range: bytes 5-4/20",
        "Content-Range: bytes 5-20/20",
        "Content-Range: bytes 5-9",
        "Content-Range: bytes -9/20",
        "Content-Range: bytes 5-/20",
        "Content-Range: bytes 5-9/20 ,",
        "Content-Range: bytes 0-18446744073709551615/18446744073709551615",
        "Content-Range: bytes 0-1/99999999999999999999",
        "Content-Range: lines 5-9/20",
        "Content-Range: bytes",
        "Content-Range:",
        "X-Content-Range: bytes 5-9/20",
    };

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        TAKE("HTTP/1.1 206 P", lines[i]);
        check(!http_reply_get_range(&reply, &range));
    }
    http_reply_free(&reply);
}

TAP_TEST(lengths_pauses_and_encodings)
{
    uint64_t bytes = 7;

    TAKE("HTTP/1.1 200 OK", "Content-Length: 18446744073709551615", "Retry-After: 99999999999",
         "Content-Encoding: Identity");
    check(http_reply_get_length(&reply, &bytes));
    check(bytes == UINT64_MAX);
    check_int(http_reply_get_pause_s(&reply), 1 << 30);
    check(!http_reply_is_encoded(&reply));
    TAKE("HTTP/1.1 200 OK", "Content-Length: -1", "Retry-After: Sat, 28 Nov 2026 12:00:00 GMT",
         "Content-Encoding: br");
    check(!http_reply_get_length(&reply, &bytes));
    check_int(http_reply_get_pause_s(&reply), 0);
    check(http_reply_is_encoded(&reply));
    http_reply_free(&reply);
}

TAP_TEST(headers_are_bounded)
{
    char line[1025];
    unsigned taken = 0;

    TAKE("HTTP/1.1 200 OK");
    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    while (http_reply_add(&reply, line, sizeof(line) - 1) == 0)
        taken++;
    check_int(http_reply_add(&reply, line, sizeof(line) - 1), -E2BIG);
    check_int(taken, HTTP_REPLY_MAX_BYTES / sizeof(line));
    http_reply_free(&reply);
}

TAP_TEST(status_lines_that_are_none)
{
    TAKE("HTTP/1.1\r\n");
    check_int(reply.status, 0);
    TAKE("HTTP/1.1 abc\r\n");
    check_int(reply.status, 0);
    TAKE("HTTP/1.1 99999\r\n");
    check(reply.status < 1000);
    http_reply_free(&reply);
}

TAP_TEST(names_become_parts_of_addresses_and_back)
{
    char text[128];

    url_encode(text, "a b+c~d/\xc3\xa9%&=?", URL_KEEP_SLASHES);
    check_str(text, "a%20b%2Bc~d/%C3%A9%25%26%3D%3F");
    check(url_decode(text));
    check_str(text, "a b+c~d/\xc3\xa9%&=?");
    url_encode(text, "a/b", URL_KEEP_NOTHING);
    check_str(text, "a%2Fb");
    strcpy(text, "a%0");
    check(!url_decode(text));
    strcpy(text, "a%00b");
    check(!url_decode(text));
    strcpy(text, "a%");
    check(!url_decode(text));
}

TAP_TEST(a_folder_and_a_name_make_an_address)
{
    char *url = url_join("https://host/folder", "a b");

    check_str(url, "https://host/folder/a%20b");
    free(url);
    url = url_join("https://host/folder/", "x/y");
    check_str(url, "https://host/folder/x/y");
    free(url);
}
