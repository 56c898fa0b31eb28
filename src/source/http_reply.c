/* SPDX-License-Identifier: Apache-2.0 */
#include "source/http_reply.h"

#include "base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static bool same_name(const char *at, const char *name, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (lower(at[i]) != lower(name[i]))
            return false;
    return true;
}

/* ---- lines --------------------------------------------------------------------------------- */

static void begin(struct http_reply *reply, const char *line, size_t bytes)
{
    size_t at = 5;

    reply->status = 0;
    reply->bytes = 0;
    while (at < bytes && line[at] != ' ')
        at++;
    for (at++; at < bytes && line[at] >= '0' && line[at] <= '9' && reply->status < 100; at++)
        reply->status = 10 * reply->status + (unsigned)(line[at] - '0');
}

int http_reply_add(struct http_reply *reply, const char *line, size_t bytes)
{
    while (bytes > 0 && is_blank(line[bytes - 1]))
        bytes--;
    if (bytes >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        begin(reply, line, bytes);
        return 0;
    }
    if (bytes == 0 || memchr(line, '\n', bytes) || memchr(line, '\0', bytes))
        return 0;
    if (bytes + 1 > HTTP_REPLY_MAX_BYTES - reply->bytes)
        return -E2BIG;
    int error = ARRAY_RESERVE(reply->lines, reply->room, reply->bytes + bytes + 1);
    if (error)
        return error;
    memcpy(reply->lines + reply->bytes, line, bytes);
    reply->lines[reply->bytes + bytes] = '\n';
    reply->bytes += bytes + 1;
    return 0;
}

void http_reply_free(struct http_reply *reply)
{
    free(reply->lines);
    *reply = (struct http_reply){0};
}

/* ---- headers ------------------------------------------------------------------------------- */

static bool copy_value(const char *at, const char *end, char *value, size_t room)
{
    while (at < end && is_blank(*at))
        at++;
    if ((size_t)(end - at) >= room)
        return false;
    memcpy(value, at, (size_t)(end - at));
    value[end - at] = '\0';
    return true;
}

bool http_reply_get(const struct http_reply *reply, const char *name, char *value, size_t room)
{
    const size_t name_bytes = strlen(name);
    const char *at = reply->lines, *end = at ? at + reply->bytes : NULL;

    value[0] = '\0';
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));

        if ((size_t)(stop - at) > name_bytes && at[name_bytes] == ':' &&
            same_name(at, name, name_bytes))
            return copy_value(at + name_bytes + 1, stop, value, room);
        at = stop + 1;
    }
    return false;
}

/* Parses digits; NULL: there are none, or too many. Else returns the place after them. */
static const char *parse_number(const char *at, uint64_t *number)
{
    const char *begin = at;

    for (*number = 0; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(*number, 10u, number) ||
            __builtin_add_overflow(*number, (uint64_t)(*at - '0'), number))
            return NULL;
    return at == begin ? NULL : at;
}

static bool parse_bytes(const char **at, struct http_range *range)
{
    uint64_t last = 0;

    *range = (struct http_range){0};
    if (**at == '*') {
        ++*at;
        return true;
    }
    *at = parse_number(*at, &range->first);
    if (!*at || *(*at)++ != '-')
        return false;
    *at = parse_number(*at, &last);
    range->end = last + 1;
    return *at && last >= range->first && last < INT64_MAX;
}

bool http_reply_get_range(const struct http_reply *reply, struct http_range *range)
{
    char text[96];
    const char *at = text + 6;

    if (!http_reply_get(reply, "Content-Range", text, sizeof(text)) ||
        !same_name(text, "bytes ", 6) || !parse_bytes(&at, range) || *at++ != '/')
        return false;
    range->total = UINT64_MAX;
    if (at[0] == '*' && at[1] == '\0')
        return true;
    at = parse_number(at, &range->total);
    return at && *at == '\0' && range->end <= range->total;
}

bool http_reply_get_length(const struct http_reply *reply, uint64_t *bytes)
{
    char text[32];
    const char *end = NULL;

    if (http_reply_get(reply, "Content-Length", text, sizeof(text)))
        end = parse_number(text, bytes);
    return end && *end == '\0';
}

unsigned http_reply_get_pause_s(const struct http_reply *reply)
{
    char text[32];
    uint64_t seconds = 0;
    const char *end = NULL;

    if (http_reply_get(reply, "Retry-After", text, sizeof(text)))
        end = parse_number(text, &seconds);
    if (!end || *end != '\0')
        return 0;
    return seconds > 1u << 30 ? 1u << 30 : (unsigned)seconds;
}

bool http_reply_is_encoded(const struct http_reply *reply)
{
    char text[32];
    bool is_there = http_reply_get(reply, "Content-Encoding", text, sizeof(text));

    return is_there && !(strlen(text) == 8 && same_name(text, "identity", 8));
}

const char *http_reply_status_text(unsigned status, char text[48])
{
    static const struct {
        unsigned status;
        const char *words;
    } rows[] = {
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {407, "Proxy Authentication Required"},
        {410, "Gone"},
        {412, "Precondition Failed"},
        {416, "Range Not Satisfiable"},
        {429, "Too Many Requests"},
        {451, "Unavailable For Legal Reasons"},
        {500, "Internal Server Error"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
    };

    snprintf(text, 48, "%u", status);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].status == status)
            snprintf(text, 48, "%u %s", status, rows[i].words);
    return text;
}
