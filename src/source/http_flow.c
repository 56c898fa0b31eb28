/* SPDX-License-Identifier: Apache-2.0 */
#include "source/http_flow.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CONNECT_SECONDS 20L
#define BUFFER_BYTES    (256L << 10)
#define LOOK_MS         200 /* between two looks whether the read was cancelled */

struct flow *flow_new(const struct libcurl *curl, const struct http_peer *peer,
                      const atomic_bool *cancelled, unsigned stall_s)
{
    struct flow *flow = calloc(1, sizeof(*flow));

    if (!flow)
        return NULL;
    flow->curl = curl;
    flow->peer = peer;
    flow->cancelled = cancelled;
    flow->stall_s = stall_s;
    flow->easy = curl->easy_init();
    flow->multi = curl->multi_init();
    if (flow->easy && flow->multi)
        return flow;
    flow_free(flow);
    return NULL;
}

void flow_free(struct flow *flow)
{
    if (flow->easy)
        flow->curl->easy_cleanup(flow->easy);
    if (flow->multi)
        flow->curl->multi_cleanup(flow->multi);
    http_reply_free(&flow->reply);
    free(flow);
}

/* ---- a request ------------------------------------------------------------------------------ */

static size_t take_header(char *line, size_t size, size_t count, void *context)
{
    struct flow *flow = context;

    if (!flow->error)
        flow->error = http_reply_add(&flow->reply, line, size * count);
    return flow->error ? 0 : size * count;
}

bool flow_is_good(const struct flow *flow)
{
    return flow->reply.status >= 200 && flow->reply.status < 300;
}

/* The text of an error may name the reason; of a long one the beginning is enough. */
static size_t take_refusal(struct flow *flow, const char *bytes, size_t size)
{
    const size_t room = sizeof(flow->refusal) - 1 - flow->refusal_bytes;
    const size_t taken = size < room ? size : room;

    memcpy(flow->refusal + flow->refusal_bytes, bytes, taken);
    flow->refusal_bytes += taken;
    flow->refusal[flow->refusal_bytes] = '\0';
    return taken;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *context)
{
    struct flow *flow = context;
    int error = flow->error;

    if (!flow_is_good(flow))
        return take_refusal(flow, bytes, size * count);
    if (error == 0 && !flow->is_begun && http_reply_is_encoded(&flow->reply))
        error = failure_set(flow->failure, -EPROTO,
                            "the server sends it compressed, which was not asked for");
    if (error == 0 && !flow->is_begun && flow->check)
        error = flow->check(flow->context, flow);
    flow->is_begun = true;
    if (error == 0)
        error = flow->put(flow->context, (const uint8_t *)bytes, size * count);
    if (error == FLOW_PAUSE) {
        flow->is_paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    flow->error = error;
    return error ? 0 : size * count;
}

static int add_line(const struct flow *flow, struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = line ? flow->curl->slist_append(*list, line) : NULL;

    *list = longer ? longer : *list;
    return longer ? 0 : -ENOMEM;
}

static int add_lines(struct flow *flow, const char *lines)
{
    int error = flow->peer && flow->peer->pin ? add_line(flow, &flow->pin, flow->peer->pin) : 0;

    while (!error && lines && *lines) {
        const size_t bytes = strcspn(lines, "\n");
        char *line = strndup(lines, bytes);

        error = add_line(flow, &flow->headers, line);
        free(line);
        lines += bytes + (lines[bytes] == '\n');
    }
    return error;
}

/* Returns the file of trusted certificates that the environment names, as curl(1) takes it. */
static const char *trusted_file(void)
{
    const char *file = getenv("CURL_CA_BUNDLE");

    return file && *file ? file : getenv("SSL_CERT_FILE");
}

static void set_safety(struct flow *flow, const char *url, bool follows)
{
    CURLcode (*set)(CURL *, CURLoption, ...) = flow->curl->easy_setopt;
    const bool is_safe = strncasecmp(url, "https:", 6) == 0;
    const char *trusted = trusted_file();

    /* Verification of certificates and host names is libcurl's default, and stays so. */
    set(flow->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    set(flow->easy, CURLOPT_REDIR_PROTOCOLS_STR, is_safe ? "https" : "http,https");
    set(flow->easy, CURLOPT_FOLLOWLOCATION, follows ? 1L : 0L);
    set(flow->easy, CURLOPT_MAXREDIRS, (long)HTTP_MAX_REDIRECTS);
    set(flow->easy, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
    if (flow->peer && flow->peer->cert) {
        set(flow->easy, CURLOPT_SSLCERT, flow->peer->cert);
        set(flow->easy, CURLOPT_SSLKEY, flow->peer->key);
    }
    if (trusted && *trusted) {
        set(flow->easy, CURLOPT_CAINFO, trusted);
        set(flow->easy, CURLOPT_CAPATH, NULL); /* the system's folder would count, too */
    }
}

static void set_request(struct flow *flow, const char *url)
{
    CURLcode (*set)(CURL *, CURLoption, ...) = flow->curl->easy_setopt;

    set(flow->easy, CURLOPT_URL, url);
    set(flow->easy, CURLOPT_NOBODY, flow->is_head ? 1L : 0L);
    set(flow->easy, CURLOPT_HTTPHEADER, flow->headers);
    set(flow->easy, CURLOPT_RESOLVE, flow->pin);
    set(flow->easy, CURLOPT_USERAGENT, "gmsfs/" GMSFS_VERSION);
    set(flow->easy, CURLOPT_PATH_AS_IS, 1L);
    set(flow->easy, CURLOPT_NOSIGNAL, 1L);
    set(flow->easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    set(flow->easy, CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS);
    set(flow->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(flow->easy, CURLOPT_LOW_SPEED_TIME, (long)flow->stall_s);
    set(flow->easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    set(flow->easy, CURLOPT_ERRORBUFFER, flow->text);
    set(flow->easy, CURLOPT_HEADERFUNCTION, take_header);
    set(flow->easy, CURLOPT_HEADERDATA, flow);
    set(flow->easy, CURLOPT_WRITEFUNCTION, take_body);
    set(flow->easy, CURLOPT_WRITEDATA, flow);
}

int flow_begin(struct flow *flow, const char *url, const char *lines, bool follows)
{
    int error = add_lines(flow, lines);

    http_reply_free(&flow->reply);
    flow->error = 0;
    flow->is_begun = flow->is_paused = flow->is_done = false;
    flow->result = CURLE_OK;
    flow->text[0] = flow->refusal[0] = '\0';
    flow->refusal_bytes = 0;
    flow->passes = false;
    flow->began_ms = clock_now_ms();
    if (error)
        return error;
    set_request(flow, url);
    set_safety(flow, url, follows && !flow->peer);
    return flow->curl->multi_add_handle(flow->multi, flow->easy) == CURLM_OK ? 0 : -ENOMEM;
}

void flow_end(struct flow *flow)
{
    flow->curl->multi_remove_handle(flow->multi, flow->easy);
    flow->curl->easy_reset(flow->easy);
    flow->curl->slist_free_all(flow->headers);
    flow->curl->slist_free_all(flow->pin);
    flow->headers = flow->pin = NULL;
    flow->is_head = false;
    flow->check = NULL;
}

/* ---- moving bytes --------------------------------------------------------------------------- */

static void note_done(struct flow *flow)
{
    CURLMsg *message;
    int left;

    while ((message = flow->curl->multi_info_read(flow->multi, &left)))
        if (message->msg == CURLMSG_DONE) {
            flow->is_done = true;
            flow->result = message->data.result;
        }
}

/* Passes on the bytes that put() did not take. libcurl drops those of a put() that fails now: no
 * byte may come after them. */
static void resume(struct flow *flow)
{
    flow->is_paused = false;
    flow->result = flow->curl->easy_pause(flow->easy, CURLPAUSE_CONT);
    flow->is_done = flow->error || flow->result != CURLE_OK;
}

static bool is_late(const struct flow *flow)
{
    return flow->peer && clock_now_ms() - flow->began_ms > atomic_load(flow->peer->most_ms);
}

static int move(struct flow *flow)
{
    int running;

    if (flow->is_paused)
        resume(flow);
    while (!flow->is_done && !flow->is_paused) {
        if (atomic_load(flow->cancelled))
            return -ECANCELED;
        if (is_late(flow))
            return -ETIMEDOUT;
        if (flow->curl->multi_perform(flow->multi, &running) != CURLM_OK)
            return -ENOMEM;
        note_done(flow);
        if (!flow->is_done && !flow->is_paused)
            flow->curl->multi_poll(flow->multi, NULL, 0, LOOK_MS, NULL);
    }
    return 0;
}

/* TLS libraries write to sockets whose other end may be gone: SIGPIPE must not end the program. */
int flow_move(struct flow *flow)
{
    const struct timespec no_time = {0};
    sigset_t pipe, before, pending;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    int error = move(flow);
    if (!sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&pipe, NULL, &no_time) > 0)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

const char *flow_redirected(struct flow *flow)
{
    const char *url = NULL;
    long count = 0;

    flow->curl->easy_getinfo(flow->easy, CURLINFO_REDIRECT_COUNT, &count);
    if (count > 0)
        flow->curl->easy_getinfo(flow->easy, CURLINFO_EFFECTIVE_URL, &url);
    return url;
}
