/* SPDX-License-Identifier: Apache-2.0 */
/* The client: its flows, attempts, and whole texts. */
#include "source/http_internal.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/scope.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STALL_SECONDS  30u
#define TRIES          6u
#define FIRST_PAUSE_MS 250u
#define MOST_PAUSE_S   60u        /* that a server may ask for */
#define PROGRESS_BYTES (1u << 20) /* after so many bytes the count of attempts begins again */
#define LOOK_MS        100u

/* ---- the client ----------------------------------------------------------------------------- */

static unsigned stall_seconds(void)
{
    const char *text = getenv("GMSFS_HTTP_STALL");
    unsigned long seconds = text ? strtoul(text, NULL, 10) : 0;

    return seconds > 0 && seconds <= 86400 ? (unsigned)seconds : STALL_SECONDS;
}

int http_open(struct http **http, struct failure *failure)
{
    const struct libcurl *curl;
    int error = libcurl_open(&curl, failure);

    if (error)
        return error;
    *http = calloc(1, sizeof(**http));
    if (!*http)
        return failure_no_memory(failure);
    (*http)->curl = curl;
    (*http)->stall_s = stall_seconds();
    pthread_mutex_init(&(*http)->lock, NULL);
    return 0;
}

void http_set_peer(struct http *http, const struct http_peer *peer)
{
    http->peer = peer;
}

void http_close(struct http *http)
{
    struct flow *flow;

    if (!http)
        return;
    while ((flow = http->idle)) {
        http->idle = flow->next;
        flow_free(flow);
    }
    pthread_mutex_destroy(&http->lock);
    free(http);
}

void http_cancel(struct http *http)
{
    atomic_store(&http->cancelled, true);
}

struct flow *http_take(struct http *http)
{
    pthread_mutex_lock(&http->lock);
    struct flow *flow = http->idle;
    if (flow)
        http->idle = flow->next;
    pthread_mutex_unlock(&http->lock);
    return flow ? flow : flow_new(http->curl, http->peer, &http->cancelled, http->stall_s);
}

void http_give(struct http *http, struct flow *flow)
{
    pthread_mutex_lock(&http->lock);
    flow->next = http->idle;
    http->idle = flow;
    pthread_mutex_unlock(&http->lock);
}

/* ---- attempts ------------------------------------------------------------------------------- */

int http_attempt_begin(struct flow *flow, const struct http_target *target, const char *url,
                       const char *lines, struct failure *failure)
{
    const struct http_auth *auth = url == target->url ? target->auth : NULL;
    const size_t room = HTTP_AUTH_BYTES + 2 * HTTP_REPLY_ETAG_BYTES;
    SCOPED_FREE char *all = calloc(1, room);
    int error = 0;

    if (!all)
        return failure_no_memory(failure);
    if (auth)
        error = auth->write(auth, url, all, failure);
    if (error)
        return error;
    strncat(all, lines, room - strlen(all) - 1);
    failure->text[0] = '\0';
    flow->failure = failure;
    error = flow_begin(flow, url, all, !(auth && auth->is_signature));
    return error ? failure_no_memory(failure) : 0;
}

int http_attempt(struct http *http, struct flow *flow, const struct http_target *target,
                 const char *url, const char *lines, struct http_tries *tries, bool *passes,
                 struct failure *failure)
{
    int error = http_attempt_begin(flow, target, url, lines, failure);

    *passes = false;
    if (error || atomic_load(&http->cancelled))
        return error ? error : -ECANCELED;
    return http_judge(flow, target->auth, flow_move(flow), tries, passes, failure);
}

bool http_wait(struct http *http, struct http_tries *tries, uint64_t done_bytes, int *error)
{
    if (http->peer)
        return false;
    if (done_bytes - tries->at_bytes >= PROGRESS_BYTES) {
        tries->failed = 0;
        tries->at_bytes = done_bytes;
    }
    if (++tries->failed >= TRIES || tries->pause_s > MOST_PAUSE_S)
        return false;
    uint64_t ms = (uint64_t)FIRST_PAUSE_MS << (tries->failed - 1);
    if (tries->pause_s * 1000u > ms)
        ms = tries->pause_s * 1000u;
    uint64_t until_ms = clock_now_ms() + ms;
    while (!atomic_load(&http->cancelled) && clock_now_ms() < until_ms)
        clock_pause_ms(LOOK_MS);
    if (!atomic_load(&http->cancelled))
        return true;
    *error = -ECANCELED;
    return false;
}

/* ---- texts ---------------------------------------------------------------------------------- */

struct text {
    char *bytes;
    size_t count, room, most;
    bool is_begin; /* more than `most` is not wanted */
    bool is_head;  /* only the headers are */
    struct failure *failure;
};

static int text_put(void *context, const uint8_t *bytes, size_t size_bytes)
{
    struct text *text = context;
    bool is_all = size_bytes <= text->most - text->count;

    if (text->is_begin && !is_all)
        size_bytes = text->most - text->count;
    else if (!is_all)
        return failure_set(text->failure, -E2BIG, "the server's answer has more than %zu bytes",
                           text->most);
    int error = ARRAY_RESERVE(text->bytes, text->room, text->count + size_bytes + 1);
    if (error)
        return error;
    memcpy(text->bytes + text->count, bytes, size_bytes);
    text->count += size_bytes;
    return is_all ? 0 : -ECONNABORTED;
}

static int text_finish(struct text *text, int error, char **bytes, size_t *count)
{
    if (error == 0)
        error = ARRAY_RESERVE(text->bytes, text->room, text->count + 1);
    if (error) {
        free(text->bytes);
        return error;
    }
    text->bytes[text->count] = '\0';
    *bytes = text->bytes;
    *count = text->count;
    return 0;
}

/* Asks with these header lines. reply: as of http_get_text(). */
static int text_get(struct http *http, const struct http_target *target, const char *lines,
                    struct text *into, struct http_reply *reply)
{
    struct http_tries tries = {0};
    struct flow *flow = http_take(http);
    bool passes;
    int error;

    if (!flow)
        return failure_no_memory(into->failure);
    do {
        into->count = 0;
        flow->is_head = into->is_head;
        flow->put = text_put;
        flow->context = into;
        error =
            http_attempt(http, flow, target, target->url, lines, &tries, &passes, into->failure);
        flow_end(flow);
    } while (error && passes && !into->is_head && http_wait(http, &tries, 0, &error));
    if (reply) {
        *reply = flow->reply;
        flow->reply = (struct http_reply){0};
    }
    http_give(http, flow);
    return into->is_begin && error == -ECONNABORTED ? 0 : error;
}

int http_get_text(struct http *http, const struct http_target *target, size_t most_bytes,
                  char **text, size_t *bytes, struct http_reply *reply, struct failure *failure)
{
    struct text into = {.most = most_bytes, .failure = failure};

    return text_finish(&into, text_get(http, target, "", &into, reply), text, bytes);
}

int http_get_head(struct http *http, const struct http_target *target, struct http_reply *reply,
                  struct failure *failure)
{
    struct text into = {.is_head = true, .failure = failure};
    int error = text_get(http, target, "", &into, reply);

    free(into.bytes);
    return error;
}

int http_get_begin(struct http *http, const struct http_target *target, size_t most_bytes,
                   char **text, size_t *bytes, struct failure *failure)
{
    struct text into = {.most = most_bytes, .is_begin = true, .failure = failure};
    char lines[48];

    snprintf(lines, sizeof(lines), "Range: bytes=0-%zu\n", most_bytes - 1);
    return text_finish(&into, text_get(http, target, lines, &into, NULL), text, bytes);
}
