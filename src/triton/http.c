/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that speaks HTTP/1.1. One request at a time: the next one, which may be in the
 * buffer already, is parsed when the answer has been sent. Nothing is read while an answer waits to
 * be sent.
 */
#include "triton/server.h"

#include "base/container.h"
#include "triton/wire_http.h"
#include "triton/wire_rest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES        16384u
#define REQUESTS_PER_TURN 8u
#define HELD_STEP         4096u /* counted in advance, to ask once for many slices */

enum http_phase {
    HTTP_HEAD,    /* a head is read */
    HTTP_BODY,    /* a body is kept */
    HTTP_DISCARD, /* a body is counted and thrown away; the answer is known */
    HTTP_CALL,    /* the call is under way */
    HTTP_ANSWER,  /* the answer is sent */
    HTTP_LINGER,  /* the last answer is sent; received bytes are dropped, or it may be lost */
};

struct http_connection {
    struct connection base; /* first */
    enum http_phase phase;
    bool is_kept, has_ended; /* ended: the client sends no more */
    bool is_head;            /* the answer has a head alone */
    unsigned turn;           /* requests left before other connections get their turn */
    char *input;             /* NULL while empty */
    size_t input_begin, input_end;
    size_t scanned;                   /* bytes of a head searched so far */
    struct wire_http_refusal refusal; /* sent when the body has been dropped; status 0: none */
    struct wire_http_head head;       /* its texts point into `input` until the body comes */
    char *path;                       /* the path that the request points into, then its token */
    struct wire_http_body body_state;
    struct wire_buffer body, output;
    size_t sent_bytes;
    struct call call;
};

static struct http_connection *http_of(struct connection *connection)
{
    return (struct http_connection *)connection;
}

static void http_serve(struct http_connection *http);

/* ---- answering ----------------------------------------------------------------------------- */

static void hold_all(struct http_connection *http)
{
    uint64_t bytes = http->body.room + http->output.room;

    /* A growing count was refused or accepted before the growth; this only lowers it. */
    if (bytes < http->base.held_bytes)
        connection_hold(&http->base, bytes);
}

static size_t count_input(const struct http_connection *http)
{
    return http->input_end - http->input_begin;
}

static void drop_input(struct http_connection *http)
{
    free(http->input);
    http->input = NULL;
    http->input_begin = http->input_end = 0;
}

static void end_request(struct http_connection *http)
{
    call_end(&http->call); /* which is over */
    free(http->path);
    http->path = NULL;
    wire_buffer_free(&http->body);
    wire_buffer_free(&http->output);
    http->sent_bytes = 0;
    http->scanned = 0;
    http->refusal.status = 0;
    http->is_head = false;
    hold_all(http);
}

/* If bytes of the next request came with the last one, that request has begun. */
static uint64_t wait_for_next_ms(const struct http_connection *http)
{
    if (!http->is_kept)
        return SERVER_UNREAD_MS;
    return count_input(http) > 0 ? SERVER_REQUEST_MS : SERVER_IDLE_MS;
}

static void next_request(struct http_connection *http)
{
    end_request(http);
    http->phase = http->is_kept ? HTTP_HEAD : HTTP_LINGER;
    http->base.deadline_ms = server_deadline_ms(wait_for_next_ms(http));
    if (http->is_kept)
        return;
    drop_input(http);
    if (http->has_ended)
        connection_end(&http->base);
    else
        connection_end_sending(&http->base);
}

/* Sends the rest of the output. */
static void http_send(struct http_connection *http)
{
    int error = 0;

    while (!error && http->sent_bytes < http->output.size) {
        size_t sent;
        error = connection_send(&http->base, http->output.bytes + http->sent_bytes,
                                http->output.size - http->sent_bytes, &sent);
        http->sent_bytes += sent;
    }
    if (error == -EAGAIN)
        connection_watch(&http->base, EVENT_WRITE);
    else if (error)
        connection_end(&http->base);
    else if (http->phase == HTTP_ANSWER)
        next_request(http);
}

static void put_head(struct http_connection *http, unsigned status, size_t body_bytes,
                     size_t json_bytes)
{
    struct wire_buffer *output = &http->output;

    wire_print(output, "HTTP/1.1 %u %s\r\nContent-Length: %zu\r\n", status,
               wire_http_reason(status), body_bytes);
    if (body_bytes > 0)
        wire_print(output, "Content-Type: %s\r\n",
                   json_bytes ? "application/octet-stream" : "application/json");
    if (json_bytes > 0)
        wire_print(output, "Inference-Header-Content-Length: %zu\r\n", json_bytes);
    if (!http->is_kept)
        wire_print(output, "Connection: close\r\n");
    wire_print(output, "\r\n");
}

static void answer_with(struct http_connection *http, unsigned status, struct wire_buffer *body,
                        size_t json_bytes)
{
    if (server_is_stopping(http->base.server))
        http->is_kept = false;
    put_head(http, status, body->size, json_bytes);
    if (!http->is_head)
        wire_put(&http->output, body->bytes, body->size);
    if (body->has_failed || http->output.has_failed) {
        connection_end(&http->base);
        return;
    }
    http->phase = HTTP_ANSWER;
    http->base.deadline_ms = server_deadline_ms(SERVER_UNREAD_MS);
    http_send(http);
}

static void answer_error(struct http_connection *http, unsigned status, const char *text)
{
    struct wire_buffer body = {.limit_bytes = 4 * WIRE_MAX_TEXT_BYTES};

    wire_rest_put_error(&body, wire_text_of(text));
    answer_with(http, status, &body, 0);
    wire_buffer_free(&body);
}

/* Answers and ends the connection: after a malformed request no byte can be understood. */
static void refuse(struct http_connection *http, const struct wire_http_refusal *refusal)
{
    http->is_kept = false;
    answer_error(http, refusal->status, refusal->text);
}

static void answer_call(struct http_connection *http)
{
    struct wire_buffer body = {.limit_bytes = SERVER_MAX_ANSWER};
    size_t json_bytes;
    unsigned status = wire_rest_encode(&http->call.request, &http->call.answer, &body, &json_bytes);

    wire_answer_free(&http->call.answer); /* uncounted, and the body may be queued for long */
    if (!body.has_failed && connection_hold(&http->base, http->body.room + 2 * body.room) == 0)
        answer_with(http, status, &body, json_bytes);
    else
        answer_error(http, 429, "the answers of this user take more memory than one user may have");
    wire_buffer_free(&body);
}

static void on_call_done(struct call *call)
{
    struct http_connection *http = CONTAINER_OF(call, struct http_connection, call);

    if (http->base.is_ended)
        return; /* too late; the connection is freed soon */
    answer_call(http);
    http_serve(http);
}

static void on_call_released(struct call *call)
{
    struct http_connection *http = CONTAINER_OF(call, struct http_connection, call);

    connection_is_free(&http->base);
}

/* ---- requests ------------------------------------------------------------------------------ */

/* Copies the path and the token, because the head leaves the buffer. */
static int keep_texts(struct http_connection *http)
{
    const struct wire_http_head *head = &http->head;

    http->path = malloc(head->path.bytes + head->session.bytes + 1);
    if (!http->path)
        return -ENOMEM;
    memcpy(http->path, head->path.at, head->path.bytes);
    if (head->session.at)
        memcpy(http->path + head->path.bytes, head->session.at, head->session.bytes);
    return 0;
}

/* Returns false if the request must be refused, after its body was read. */
static bool route(struct http_connection *http)
{
    struct wire_http_head *head = &http->head;
    struct wire_request *request = &http->call.request;
    bool is_encoded = head->encoding.bytes > 0 && !wire_text_is_header(head->encoding, "identity");
    int error = keep_texts(http);

    call_init(&http->call, server_get_host(http->base.server), on_call_done, on_call_released);
    if (!error)
        error = wire_rest_route(http->is_head ? WIRE_TEXT("GET") : head->method, http->path,
                                head->path.bytes, request);
    if (!error && head->session.at)
        request->session = (struct wire_text){http->path + head->path.bytes, head->session.bytes};
    if (!error && is_encoded)
        http->refusal = (struct wire_http_refusal){
            501, "compressed requests are not served; send them uncompressed"};
    else if (error == -ENOENT)
        http->refusal = (struct wire_http_refusal){404, "Not Found"};
    else if (error == -EOPNOTSUPP)
        http->refusal = (struct wire_http_refusal){405, "Method Not Allowed"};
    else if (error == -EINVAL)
        http->refusal = (struct wire_http_refusal){400, "the path is malformed"};
    else if (error)
        http->refusal = (struct wire_http_refusal){503, "the server is out of memory"};
    return !error && !is_encoded;
}

/* Reads the body to its end, drops it, and then sends the answer that is known already: a client
 * that is still sending would lose an earlier answer. */
static void begin_discard(struct http_connection *http)
{
    wire_buffer_free(&http->body);
    hold_all(http);
    http->phase = HTTP_DISCARD;
}

static void finish_discard(struct http_connection *http)
{
    if (http->refusal.status != 0) {
        answer_error(http, http->refusal.status, http->refusal.text);
        return;
    }
    if (http->call.answer.code == WIRE_OK)
        wire_fail(&http->call.answer, WIRE_INVALID,
                  "request JSON size of %" PRIu64
                  " bytes exceeds the maximum allowed input size of %u bytes.",
                  http->body_state.total_bytes, SERVER_MAX_MESSAGE);
    answer_call(http);
}

static void begin_call(struct http_connection *http)
{
    struct call *call = &http->call;
    uint64_t json_bytes = http->head.has_json_bytes ? http->head.json_bytes : UINT64_MAX;
    int error = http->body.has_failed
                    ? wire_fail(&call->answer, WIRE_UNAVAILABLE, "the server is out of memory")
                    : wire_rest_decode((char *)http->body.bytes, http->body.size, json_bytes,
                                       &call->request, &call->answer);

    http->phase = HTTP_CALL;
    http->base.deadline_ms = UINT64_MAX; /* the call has its own deadlines */
    if (error || call_begin(call, http->base.id, http->base.uid))
        answer_call(http);
}

static void consume(struct http_connection *http, size_t bytes)
{
    http->input_begin += bytes;
    if (count_input(http) == 0)
        drop_input(http);
}

/* 0, or -EAGAIN if more bytes are needed. */
static int serve_head(struct http_connection *http)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct wire_http_refusal refusal;
    int error = wire_http_parse(http->input + http->input_begin, count_input(http), &http->scanned,
                                &http->head, &refusal);

    if (error == -EAGAIN)
        return error;
    http->turn--;
    http->base.deadline_ms = server_deadline_ms(SERVER_REQUEST_MS);
    http->is_head = wire_text_is(http->head.method, "HEAD");
    http->is_kept = http->head.is_kept;
    if (error) {
        refuse(http, &refusal);
        return 0;
    }
    wire_http_body_begin(&http->body_state, &http->head);
    http->phase = HTTP_BODY;
    connection_show_token(&http->base, http->head.session);
    if (!route(http) || http->body_state.total_bytes > SERVER_MAX_MESSAGE)
        begin_discard(http);
    if (http->head.wants_continue && count_input(http) == http->head.head_bytes) {
        size_t sent; /* always fits: nothing else is in the socket's buffer */
        if (connection_send(&http->base, go_on, sizeof go_on - 1, &sent) ||
            sent != sizeof go_on - 1) {
            connection_end(&http->base);
            return 0;
        }
    }
    consume(http, http->head.head_bytes);
    return 0;
}

static void keep_body(struct http_connection *http, struct wire_text data)
{
    uint64_t wanted = http->body.size + data.bytes;

    if (wanted > SERVER_MAX_MESSAGE) {
        begin_discard(http);
        return;
    }
    if (2 * wanted > http->base.held_bytes &&
        connection_hold(&http->base, 2 * wanted + HELD_STEP) != 0) {
        wire_fail(&http->call.answer, WIRE_EXHAUSTED,
                  "the requests of this user take more memory than one user may have");
        begin_discard(http);
        return;
    }
    wire_put_text(&http->body, data);
}

static int serve_body(struct http_connection *http)
{
    struct wire_http_refusal refusal;
    struct wire_text data;
    size_t taken;
    const char *input = http->input ? http->input + http->input_begin : NULL;
    int error =
        wire_http_body_take(&http->body_state, input, count_input(http), &taken, &data, &refusal);

    if (error == -EPROTO) {
        refuse(http, &refusal);
        return 0;
    }
    if (http->phase == HTTP_BODY)
        keep_body(http, data);
    if (taken > 0)
        consume(http, taken);
    if (error)
        return count_input(http) > 0 ? 0 : -EAGAIN;
    if (http->phase == HTTP_BODY)
        begin_call(http);
    else
        finish_discard(http);
    return 0;
}

/* Serves as much as the bytes read so far allow. */
static void http_serve(struct http_connection *http)
{
    int error = 0;

    while (!error && !http->base.is_ended) {
        if (http->phase == HTTP_HEAD && count_input(http) > 0 && http->turn == 0) {
            connection_watch(&http->base, EVENT_WRITE); /* reads nothing, but calls http_ready again
                                                           after the other connections */
            return;
        }
        if (http->phase == HTTP_HEAD)
            error = count_input(http) > 0 ? serve_head(http) : -EAGAIN;
        else if (http->phase == HTTP_BODY || http->phase == HTTP_DISCARD)
            error = serve_body(http);
        else
            break;
    }
    if (http->base.is_ended)
        return;
    bool is_whole = http->phase == HTTP_HEAD && count_input(http) == 0;
    if (http->has_ended && (http->phase == HTTP_HEAD || http->phase == HTTP_BODY ||
                            http->phase == HTTP_DISCARD || http->phase == HTTP_LINGER))
        connection_end(&http->base);
    else if (is_whole && server_is_stopping(http->base.server))
        connection_end(&http->base);
    else if (http->phase != HTTP_ANSWER && http->phase != HTTP_CALL)
        connection_watch(&http->base, EVENT_READ);
}

/* Reads behind the requests that wait for their turn. -EAGAIN: the buffer is full. */
static int receive(struct http_connection *http, size_t *got)
{
    size_t room = WIRE_HTTP_MAX_HEAD_BYTES + READ_BYTES;

    if (!http->input)
        http->input = malloc(room);
    if (!http->input)
        return -ENOMEM;
    if (http->input_begin > 0)
        memmove(http->input, http->input + http->input_begin, count_input(http));
    http->input_end -= http->input_begin;
    http->input_begin = 0;
    if (http->input_end == room)
        return -EAGAIN;
    if (http->input_end == 0 && http->phase == HTTP_HEAD)
        http->base.deadline_ms = server_deadline_ms(SERVER_REQUEST_MS);
    int error =
        connection_receive(&http->base, http->input + http->input_end, room - http->input_end, got);
    http->input_end += *got;
    if (count_input(http) == 0)
        drop_input(http);
    return error;
}

static void http_read(struct http_connection *http)
{
    char thrown[READ_BYTES];
    size_t got = 0;
    int error = http->phase == HTTP_LINGER
                    ? connection_receive(&http->base, thrown, sizeof thrown, &got)
                    : receive(http, &got);

    if (error && error != -EAGAIN)
        connection_end(&http->base);
    else if (!error && got == 0)
        http->has_ended = true;
}

static void http_ready(struct connection *connection, uint32_t events)
{
    struct http_connection *http = http_of(connection);

    http->turn = REQUESTS_PER_TURN;
    if (http->phase == HTTP_ANSWER) {
        http_send(http);
    } else if (http->phase == HTTP_CALL) {
        /* Most clients send nothing until they are answered, so the first bytes are waited for;
         * then only for the end of the connection, which is reported in any case. */
        if (connection->events == 0)
            connection_end(connection);
        else
            connection_watch(connection, 0);
        return;
    } else if (events & EVENT_READ) {
        http_read(http);
    }
    if (!connection->is_ended)
        http_serve(http);
}

static void http_expired(struct connection *connection)
{
    struct http_connection *http = http_of(connection);
    static const struct wire_http_refusal late = {
        408, "the request was not complete within the time limit"};

    if ((http->phase == HTTP_HEAD && count_input(http) > 0) || http->phase == HTTP_BODY ||
        http->phase == HTTP_DISCARD)
        refuse(http, &late);
    else
        connection_end(connection);
}

static void http_stop(struct connection *connection)
{
    struct http_connection *http = http_of(connection);

    if ((http->phase == HTTP_HEAD && count_input(http) == 0) || http->phase == HTTP_LINGER)
        connection_end(connection);
}

static bool http_free(struct connection *connection)
{
    struct http_connection *http = http_of(connection);

    if (!call_end(&http->call))
        return false;
    free(http->path);
    free(http->input);
    wire_buffer_free(&http->body);
    wire_buffer_free(&http->output);
    return true;
}

int http_new(struct connection **connection)
{
    static const struct connection_calls calls = {
        .ready = http_ready, .expired = http_expired, .stop = http_stop, .free = http_free};
    struct http_connection *http = calloc(1, sizeof *http);

    if (!http)
        return -ENOMEM;
    http->base.calls = &calls;
    http->body.limit_bytes = SERVER_MAX_MESSAGE;
    http->output.limit_bytes = SERVER_MAX_ANSWER + READ_BYTES;
    *connection = &http->base;
    return 0;
}
