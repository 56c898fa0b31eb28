/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_internal - shared by the files of the HTTP client
 *
 * For http.c and http_*.c alone.
 */
#ifndef GMSFS_SOURCE_HTTP_INTERNAL_H
#define GMSFS_SOURCE_HTTP_INTERNAL_H

#include "source/http_flow.h"

#include <pthread.h>

struct http {
    const struct libcurl *curl;
    unsigned stall_s;
    const struct http_peer *peer; /* NULL: the only server */
    atomic_bool cancelled;
    pthread_mutex_t lock; /* of `idle` */
    struct flow *idle;
};

/* Attempts of one transfer. */
struct http_tries {
    unsigned failed;   /* in a row */
    unsigned pause_s;  /* that the server asked for before the next; 0: none */
    uint64_t at_bytes; /* what had come when `failed` was 0 last */
    bool is_known;     /* the server has answered before: that it cannot be reached may pass */
};

/* Takes an idle flow, or a new one; NULL: no memory. */
struct flow *http_take(struct http *http);
void http_give(struct http *http, struct flow *flow);

/* Makes one attempt with the credentials of the target, if `url` is its address. The flow is done
 * afterwards, or failed; call flow_end(). Sets *passes if another attempt may succeed. */
int http_attempt(struct http *http, struct flow *flow, const struct http_target *target,
                 const char *url, const char *lines, struct http_tries *tries, bool *passes,
                 struct failure *failure);
/* The same in two steps, for a stream. */
int http_attempt_begin(struct flow *flow, const struct http_target *target, const char *url,
                       const char *lines, struct failure *failure);

/* Waits before another attempt. False: there were enough, or the client was cancelled, which sets
 * the error. done_bytes: what has come up to now. */
bool http_wait(struct http *http, struct http_tries *tries, uint64_t done_bytes, int *error);

/* http_why.c: the error of a flow that is done or failed with move_error; 0 if it has succeeded. */
int http_judge(struct flow *flow, const struct http_auth *auth, int move_error,
               struct http_tries *tries, bool *passes, struct failure *failure);

/* http_match.c: writes header lines that ask for bytes of this file from an offset on. end: offset
 * after the last one; UINT64_MAX: all. */
int http_file_ask(const struct http_file *file, uint64_t from, uint64_t end, char *lines,
                  size_t room);
/* Holds an answer against the file and the bytes that were asked for. */
int http_file_check(const struct http_file *file, struct flow *flow, uint64_t from);

/* Returns the address to ask: the one that a redirect led to, unless that has refused. */
const char *http_file_url(const struct http_file *file);
/* Notes that an attempt at this address failed. True: another address may have the file; a redirect
 * may lead to one that is signed for some minutes only. */
bool http_file_leave(struct http_file *file, const char *url, int error);

/* http_stream.c: the file of a server without ranges. */
int http_stream_new(struct http *http, struct http_stream **stream);
void http_stream_free(struct http_stream *stream);
int http_stream_copy(struct http_file *file, uint64_t offset_bytes, uint64_t size_bytes,
                     http_put *put, void *context, struct failure *failure);

#endif
