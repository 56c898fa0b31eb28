/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server - the process that Triton clients talk to: one loop, connections with bounds and deadlines
 *
 * server.c accepts, connection.c keeps account, connection_user.c finds out for whom, http.c and
 * grpc.c speak. It holds no right that its clients could misuse: who they are and what they may
 * open is the opener's to say (opener.h). On one thread, except server_run's caller.
 */
#ifndef GMSFS_TRITON_SERVER_H
#define GMSFS_TRITON_SERVER_H

#include "triton/call.h"

#define SERVER_STRANGER        UINT32_MAX /* as a uid: whose a connection is nobody knows */
#define SERVER_MAX_LISTENERS   8u
#define SERVER_MAX_CONNECTIONS 4096u      /* fewer where fewer descriptors may be open */
#define SERVER_MAX_MESSAGE     (8u << 20) /* of a request's body */
#define SERVER_MAX_ANSWER      (16u << 20)
#define SERVER_MAX_HELD_BYTES  (256u << 20) /* of all bodies and answers together */
#define SERVER_IDLE_MS         300000u      /* between two requests */
#define SERVER_REQUEST_MS      60000u       /* for a request to come whole */
#define SERVER_UNREAD_MS       30000u       /* for an answer to be taken */
#define SERVER_STOP_MS         5000u        /* for what has begun when the server ends */

enum server_protocol {
    SERVER_HTTP,
    SERVER_GRPC,
};

struct server;
struct connection;

/* Connections in the order in which they came to stand there. */
struct connection_line {
    struct connection *first, **end;
};

struct connection_place {
    struct connection *next, **link; /* link NULL: it does not stand there */
};

/* Which of those whose user is not known make room for others. */
enum connection_line_name {
    LINE_STRANGERS, /* all of them */
    LINE_HOLDERS,   /* those that hold bytes */
    LINE_COUNT,
};

/* What a protocol does with a connection. Embedded in its own struct, first. */
struct connection_calls {
    void (*ready)(struct connection *connection, uint32_t events);
    void (*expired)(struct connection *connection); /* its deadline has passed */
    void (*stop)(struct connection *connection);    /* finish what has begun, and end */
    /* All but the struct connection itself. False: not yet; connection_is_free says when. */
    bool (*free)(struct connection *connection);
};

struct connection {
    struct event_watch watch;
    struct server *server;
    const struct connection_calls *calls;
    uint64_t id;
    uint32_t uid;         /* user it counts for; SERVER_STRANGER until a token tells */
    uint32_t events;      /* that are waited for */
    uint64_t deadline_ms; /* UINT64_MAX: none */
    uint64_t held_bytes;  /* by connection_hold */
    bool is_ended;
    bool is_introduced;               /* the opener was told of it */
    struct opener_call identify, who; /* who: by a token */
    struct connection *next, **link;
    struct connection_place places[LINE_COUNT];
};

int http_new(struct connection **connection);
int grpc_new(struct connection **connection);
/* Before its first event. */
int grpc_begin(struct connection *connection);

const struct call_host *server_get_host(const struct server *server);
bool server_is_stopping(const struct server *server);
uint64_t server_now_ms(void);
/* So long from now. In builds for tests GMSFS_TRITON_HASTE divides all of these times. */
uint64_t server_deadline_ms(uint64_t wait_ms);

/* A request has come with this token: it is the one that a stranger's connection is known by from
 * now on, if it is any. At NULL: it came with none. */
void connection_show_token(struct connection *connection, struct wire_text token);
/* Whose turn its requests take (opener_client.h). */
uint64_t connection_get_owner(const struct connection *connection);
/* What it waits for. */
void connection_watch(struct connection *connection, uint32_t events);
/* So many bytes of requests and answers are kept for it from now on. 0, -EDQUOT or -ENOSPC: it is
 * more than this user may have, and all is as it was. */
int connection_hold(struct connection *connection, uint64_t bytes);
/* It goes, and is freed before the loop waits again. Harmless where it has ended. */
void connection_end(struct connection *connection);
/* One that has ended and was not free to go may be so now. */
void connection_is_free(struct connection *connection);
/* 0 and *bytes; 0 bytes: the client sends nothing any more; -EAGAIN; or the connection is broken */
int connection_receive(struct connection *connection, void *to, size_t room, size_t *bytes);
/* All is sent: the client reads the end, and what it still sends can be received. */
void connection_end_sending(struct connection *connection);
/* Some of it. 0 and *sent; -EAGAIN; or the connection is broken */
int connection_send(struct connection *connection, const void *bytes, size_t size, size_t *sent);

struct server_options {
    struct {
        int fd;
        enum server_protocol protocol;
    } listeners[SERVER_MAX_LISTENERS];
    unsigned listener_count;
    int opener; /* the socket to it */
    bool has_test_models, has_cuda;
    uint64_t delay_ms;
};

/* Until the opener says stop, or is gone. 0 or a negative errno; descriptors are closed. */
int server_run(const struct server_options *options);

#endif
