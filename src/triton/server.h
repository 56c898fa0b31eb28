/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server - the process that Triton clients talk to: one loop, connections with bounds and deadlines
 *
 * server.c accepts, connection.c accounts, connection_user.c finds the connection's user, http.c
 * and grpc.c speak the protocols. The process has no right that a client could misuse: the opener
 * finds each client's user and rights (opener.h). Single-threaded but for its workers.
 */
#ifndef GMSFS_TRITON_SERVER_H
#define GMSFS_TRITON_SERVER_H

#include "triton/call.h"

#define SERVER_STRANGER        UINT32_MAX /* uid of a connection whose user is unknown */
#define SERVER_MAX_LISTENERS   8u
#define SERVER_MAX_CONNECTIONS 4096u      /* fewer if fewer descriptors may be open */
#define SERVER_MAX_MESSAGE     (8u << 20) /* size of a request's body */
#define SERVER_MAX_ANSWER      (16u << 20)
#define SERVER_MAX_HELD_BYTES  (256u << 20) /* all bodies and answers together */
#define SERVER_IDLE_MS         300000u      /* between two requests */
#define SERVER_REQUEST_MS      60000u       /* for a request to arrive completely */
#define SERVER_UNREAD_MS       30000u       /* for an answer to be read */
#define SERVER_STOP_MS         5000u        /* for requests in flight when the server ends */

enum server_protocol {
    SERVER_HTTP,
    SERVER_GRPC,
};

struct server;
struct connection;

/* Connections, oldest entry first. */
struct connection_line {
    struct connection *first, **end;
};

struct connection_place {
    struct connection *next, **link; /* link NULL: not in this line */
};

/* Lines of connections without a known user, which make room for others. */
enum connection_line_name {
    LINE_STRANGERS, /* all of them */
    LINE_HOLDERS,   /* those with held bytes */
    LINE_COUNT,
};

/* Operations of a protocol on its connections; struct connection is the first field of its own. */
struct connection_calls {
    void (*ready)(struct connection *connection, uint32_t events);
    void (*expired)(struct connection *connection); /* deadline_ms has passed */
    void (*stop)(struct connection *connection);    /* finish the requests in flight, and end */
    /* Frees all but struct connection. False: not now; the protocol calls connection_is_free
     * later. */
    bool (*free)(struct connection *connection);
};

struct connection {
    struct event_watch watch;
    struct server *server;
    const struct connection_calls *calls;
    uint64_t id;
    uint32_t uid;    /* user it counts for, and turn of its requests; SERVER_STRANGER: unknown */
    uint32_t events; /* watched by the loop */
    uint64_t deadline_ms; /* UINT64_MAX: none */
    uint64_t held_bytes;  /* set by connection_hold */
    bool is_ended;
    bool is_introduced;                       /* the opener was told of it */
    struct opener_call identify, user_lookup; /* user_lookup: by a token */
    struct connection *next, **link;
    struct connection_place places[LINE_COUNT];
};

int http_new(struct connection **connection);
int grpc_new(struct connection **connection);
/* Called before the first event. */
int grpc_begin(struct connection *connection);

const struct call_host *server_get_host(const struct server *server);
bool server_is_stopping(const struct server *server);
uint64_t server_now_ms(void);
/* Returns the time `wait_ms` from now. In test builds GMSFS_TRITON_HASTE divides all of these
 * times. */
uint64_t server_deadline_ms(uint64_t wait_ms);

/* Reports the token of a request; at NULL: it has none. A connection without a known user then
 * counts for the token's user, if there is one. */
void connection_show_token(struct connection *connection, struct wire_text token);
/* Sets the events that the loop watches for. */
void connection_watch(struct connection *connection, uint32_t events);
/* Sets the bytes counted for the connection's requests and answers. 0; -EDQUOT or -ENOSPC: more
 * than this user may have, and the count is unchanged. */
int connection_hold(struct connection *connection, uint64_t bytes);
/* Ends the connection, to be freed before the loop waits again. Does nothing if it has ended. */
void connection_end(struct connection *connection);
/* Tries again to free an ended connection that could not be freed. */
void connection_is_free(struct connection *connection);
/* 0 and *bytes; 0 bytes: the client sends no more; -EAGAIN; or the connection is broken */
int connection_receive(struct connection *connection, void *to, size_t room, size_t *bytes);
/* Sends the end of the stream; bytes can still be received. */
void connection_end_sending(struct connection *connection);
/* Sends some of the bytes. 0 and *sent; -EAGAIN; or the connection is broken */
int connection_send(struct connection *connection, const void *bytes, size_t size, size_t *sent);

struct server_options {
    struct {
        int fd;
        enum server_protocol protocol;
    } listeners[SERVER_MAX_LISTENERS];
    unsigned listener_count;
    int opener; /* socket to the opener */
    bool has_test_models, has_cuda;
    uint64_t delay_ms;
};

/* Serves until the opener says stop, or is gone. 0 or a negative errno; closes the descriptors. */
int server_run(const struct server_options *options);

#endif
