/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_flow - one connection to a server, and one request at a time over it
 *
 * For http.c and http_stream.c. A flow is used by one thread at a time. It makes one attempt:
 * whether to try again is http.c's decision.
 */
#ifndef GMSFS_SOURCE_HTTP_FLOW_H
#define GMSFS_SOURCE_HTTP_FLOW_H

#include "source/http.h"
#include "source/libcurl.h"

#define FLOW_PAUSE         1 /* of put(): these bytes are not taken now; they come again */
#define FLOW_REFUSAL_BYTES 4096u

struct flow {
    const struct libcurl *curl;
    CURL *easy;
    CURLM *multi;
    struct flow *next; /* in the list of idle ones */
    const atomic_bool *cancelled;
    unsigned stall_s;
    const struct http_peer *peer; /* NULL: the only server */

    /* The request. */
    bool is_head; /* asks for the headers alone; flow_end() ends it */
    uint64_t began_ms;
    struct curl_slist *headers;
    struct curl_slist *pin;
    struct http_reply reply;
    /* Called before the first byte of the body of a file; an error ends the transfer. NULL: nothing
     * to check; flow_end() ends it. */
    int (*check)(void *context, struct flow *flow);
    http_put *put;
    void *context;
    struct failure *failure; /* check() and put() explain their errors in it */
    bool passes;             /* check() thinks that another attempt may succeed */
    int error;               /* the first of check(), put() or the headers */
    bool is_begun;           /* the body has begun */
    bool is_paused;          /* put() did not take bytes */
    bool is_done;
    CURLcode result; /* once it is done */
    char text[CURL_ERROR_SIZE];
    char refusal[FLOW_REFUSAL_BYTES]; /* beginning of the body of an answer that is an error */
    size_t refusal_bytes;
};

/* True if the answer has a file: its status is 2xx. */
bool flow_is_good(const struct flow *flow);

/* NULL: no memory. */
struct flow *flow_new(const struct libcurl *curl, const struct http_peer *peer,
                      const atomic_bool *cancelled, unsigned stall_s);
void flow_free(struct flow *flow);

/* Begins a GET, or a HEAD. lines: header lines, each with '\n'; NULL: none. Set check, put and
 * context before. Afterwards flow_end(), also if this fails. 0 or -ENOMEM. */
int flow_begin(struct flow *flow, const char *url, const char *lines, bool follows);
/* Moves bytes until the transfer is done or paused. -ECANCELED, -ENOMEM, -ETIMEDOUT: a peer took
 * too long; or 0. */
int flow_move(struct flow *flow);
/* Ends the request; the connection stays if the request was done. */
void flow_end(struct flow *flow);

/* Returns the address after redirects, valid until the next request; NULL: there was none. */
const char *flow_redirected(struct flow *flow);

#endif
