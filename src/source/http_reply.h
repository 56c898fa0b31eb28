/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_reply - the status and the headers of one answer of an HTTP server
 *
 * For http.c and the places that are reached by it. Pure. Headers are untrusted: all of them
 * together are bounded, and a number that is not one counts as absent. Source of facts: RFC 9110.
 */
#ifndef GMSFS_SOURCE_HTTP_REPLY_H
#define GMSFS_SOURCE_HTTP_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_REPLY_MAX_BYTES  (64u << 10) /* of all headers of an answer */
#define HTTP_REPLY_ETAG_BYTES 512u

struct http_reply {
    unsigned status; /* 0: no answer yet */
    char *lines;     /* "Name: value\n" of each header */
    size_t bytes, room;
};

/* The bytes of a file that an answer has, and the size of the file. */
struct http_range {
    uint64_t first, end; /* end: offset after the last byte; both 0 if the file has no such bytes */
    uint64_t total;      /* UINT64_MAX: the server does not tell */
};

/* Adds a line as it came; a status line begins another answer. 0; -E2BIG, -ENOMEM. */
int http_reply_add(struct http_reply *reply, const char *line, size_t bytes);
/* Frees the headers; the reply is empty then. */
void http_reply_free(struct http_reply *reply);

/* Copies the value of the first header of this name, in any case of letters. False: there is none,
 * or it does not fit; the value is "" then. */
bool http_reply_get(const struct http_reply *reply, const char *name, char *value, size_t room);
/* Parses Content-Range. False: there is none. */
bool http_reply_get_range(const struct http_reply *reply, struct http_range *range);
/* Parses Content-Length. False: the server does not tell. */
bool http_reply_get_length(const struct http_reply *reply, uint64_t *bytes);
/* Returns the seconds of Retry-After, or 0. A date counts as 0. */
unsigned http_reply_get_pause_s(const struct http_reply *reply);
/* True if the bytes of the answer are not those of the file, but a compressed form of them. */
bool http_reply_is_encoded(const struct http_reply *reply);

/* Returns the words for a status that is an error: "404 Not Found"; `text` has room for them. */
const char *http_reply_status_text(unsigned status, char text[48]);

#endif
