/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_internal - what the files of src/rpc share
 *
 * rpc.c accepts; begin.c begins connections, resume.c goes on with those of the last worker;
 * connection.c takes one request at a time; note.c tells a next worker; bytes.c moves them; peer.c
 * knows who connected, senders.c who sent each request; handshake.c opens the session; v0.c and
 * v1.c say what each request does; answers.c and listing.c have what they answer with. Calls go
 * down in this order, and back up by the functions that a connection was given for its request.
 */
#ifndef GMSFS_RPC_RPC_INTERNAL_H
#define GMSFS_RPC_RPC_INTERNAL_H

#include "base/idvec.h"
#include "base/peer.h"
#include "rpc/kept.h"
#include "rpc/rpc.h"
#include "rpc/wire_id.h"
#include "service/sessions.h"

#define RPC_FRAMES_PER_TURN 8u
/* Of a client that asks again as soon as it is answered: who shares its processor does so before
 * the answer's send returns. */
#define RPC_READS_PER_TURN 4u
#define RPC_INPUT_BYTES    KEPT_AHEAD_BYTES
/* Of an answer: a longer one counts until its client has read it. */
#define RPC_ANSWER_BYTES 4096u
/* Of any connection: what is kept for a next worker, more of the next requests, and
 * RPC_UNREAD_BYTES of answers. */
#define RPC_BASE_BYTES (2 * RPC_INPUT_BYTES + RPC_UNREAD_BYTES)
/* Unread bytes at which a connection's next request waits; below, a client may send ahead. */
#define RPC_UNREAD_BYTES 16384u
#define RPC_SHORT_BYTES  (64u << 10) /* a frame up to this is decoded at once */
#define RPC_STALL_MS     10000u      /* so long a long frame may rest in the middle */
#define RPC_TEXT_BYTES   65536u      /* of an error */

enum rpc_phase {
    RPC_KEEPING, /* the keeper does not have it yet: nothing is read. (The numbers are kept by one
                    build for another.) */
    RPC_HELLO,   /* its first message says what it wants */
    RPC_SESSION, /* it was granted one; V1: which may be over since */
    RPC_CLOSING, /* what is to be sent is sent, then it ends */
};

struct rpc_connection;

/* What a next worker is told of a connection, with the records that it goes with. Kept by one build
 * for another. */
struct rpc_note {
    uint64_t connection;
    uint64_t answered; /* frames: of one more than were consumed the answer is on its way */
    uint64_t file, session;
    uint32_t phase, is_aborted;
};

/* Ends the request that waits. */
typedef void rpc_finish(struct rpc_connection *connection, int error,
                        const struct service_answer *answer);

struct rpc_listing; /* listing.c */

/* Those of whom each may get the answer; a process with pid 0: one that nobody sees. */
struct rpc_askers {
    struct core_process processes[KEPT_MAX_SENDERS + 1];
    size_t count;
};

struct rpc_connection {
    uint64_t id; /* first for idvec */
    struct event_watch watch;
    struct rpc *rpc;
    enum rpc_domain domain;
    enum message_protocol protocol;
    enum rpc_phase phase;
    struct rpc_keeping keeping;
    bool is_kept, is_gone; /* gone: it is freed when nothing is under way for it any more */
    bool has_ended;        /* the client sends nothing any more */
    /* Something lacks that nobody tells of when it is there: it goes on after a while. */
    struct event_timeout pause;
    bool is_paused;
    bool awaits_reader; /* it goes on when the client has read what was sent */
    bool is_unread;     /* it is over, and the client has not read all: it keeps its place */
    struct rpc_connection *next_unread; /* of those */
    uint64_t pause_ms;
    uint64_t moved_us; /* when bytes last came or went */
    /* who */
    struct service_caller caller;
    struct peer peer; /* the caller's groups */
    /* what it holds */
    uint64_t file;    /* its ctl; 0: none */
    uint64_t session; /* 0: none */
    bool is_aborted;  /* V1: only memory that is given back is waited for */
    struct rpc_note noted;
    bool is_answer_kept;
    int note_error; /* a next worker would not know: it ends */
    /* the request that is being served */
    struct service_request request;
    rpc_finish *finish;             /* NULL: none waits */
    bool is_dispatching, is_served; /* served: its frame goes when its answer is sent */
    struct job decoding;            /* of a long frame */
    bool is_decoding;
    int decode_error;     /* 1: it is not decoded yet */
    struct message asked; /* points into `input` */
    uint64_t asked_us;
    struct rpc_listing *listing;                         /* its answer is being made; NULL: no */
    struct rpc_connection *next_listing, **link_listing; /* of those; link NULL: not among them */
    /* bytes */
    struct kept *kept; /* for a next worker: these, and the answer */
    uint8_t *input;    /* in there, as the next: what came, from the frame at the front */
    size_t input_bytes, input_room;
    size_t frame_bytes; /* of `input`: of the request that is being served */
    uint64_t charged_bytes;
    struct message_buffer output;
    struct event_held held;           /* `output` waits for what was recorded */
    unsigned frames_left, reads_left; /* before others have their turn */
    int passed_fd;                    /* goes with the next byte of `output`; -1: none */
    bool passed_is_own;
};

struct rpc_listener {
    struct event_watch watch; /* fd -1: none */
    struct rpc *rpc;
    enum rpc_domain domain;
    enum message_protocol protocol;
    bool rests; /* nothing is accepted until the next tick */
};

struct rpc {
    struct service *service;
    const struct core *core;
    struct rpc_options options;
    struct rpc_host host;
    struct service_observer observer;
    struct rpc_listener listeners[RPC_DOMAIN_COUNT][2];
    struct idvec connections;
    struct kept_memory *memory;
    struct idvec notes; /* of the last worker, until its connections go on */
    uint64_t now_ms;
    unsigned warnings;              /* since the last tick */
    struct event_timeout sweep;     /* sessions have ended: whose connections were they */
    uint64_t seen_event;            /* the last one that was looked at */
    struct rpc_connection *unread;  /* connections that are over and keep their place */
    struct event_timeout lists;     /* the next of those whose answers list has its turn */
    struct rpc_connection *listing; /* they take turns; NULL: none */
};

/* shared.c */
/* Who does what the connection asks for. */
struct service_actor rpc_actor(const struct rpc_connection *connection);
bool rpc_may_warn(struct rpc *rpc);
/* Returns what the kernel charges the daemon's control group for answers that the client has not
 * read. */
size_t rpc_count_unread(const struct rpc_connection *connection);
/* Returns true if the client has not read all that it was sent. */
bool rpc_has_unread(const struct rpc_connection *connection);

/* peer.c: fixed when the connection is made. 0 or a negative errno */
int rpc_read_peer(struct rpc_connection *connection);

/* senders.c */
/* As recv(2) without waiting, and notes who sent it. Behind what is in `input`. */
ssize_t rpc_read(struct rpc_connection *connection, size_t room);
/* What was read last and was not counted yet: `input` and who sent it. */
void rpc_take_read(struct rpc_connection *connection);
/* `input` is what is kept. */
void rpc_show_input(struct rpc_connection *connection);
/* The frame at the front goes. */
void rpc_consume_input(struct rpc_connection *connection);
/* All senders of the frame at the front, and who connected unless it has exited. A negative errno:
 * one could not be looked up. */
int rpc_find_askers(const struct rpc_connection *connection, struct rpc_askers *askers);
/* The peer, but as the process that sent the frame at the front; several, or one that nobody sees:
 * no process. A negative errno: it could not be looked up. */
int rpc_find_sender(const struct rpc_connection *connection, struct service_caller *caller);

/* bytes.c */
/* 0: all is sent; -EAGAIN: later, also when it is held; else the client is gone. */
int rpc_send_output(struct rpc_connection *connection);
/* 0, -EAGAIN, or why the connection ends. */
int rpc_receive(struct rpc_connection *connection);
/* What the frame at the front takes; 0: that cannot be told yet. -EINVAL, -EMSGSIZE */
int rpc_find_frame(const struct rpc_connection *connection, size_t *bytes);
/* There is memory for so many bytes of `input`. 0, -ENOMEM */
int rpc_reserve_input(struct rpc_connection *connection, size_t bytes);
/* A descriptor came that the protocol has no use for. */
bool rpc_has_misplaced_descriptor(const struct rpc_connection *connection);
/* The one that was served goes. */
void rpc_consume_frame(struct rpc_connection *connection);

/* note.c */
/* After each step of a connection: what it has come to, and its answer, count with the records. */
void rpc_note(struct rpc_connection *connection);
/* The whole answer is there: a next worker can send the rest of it. */
void rpc_keep_answer(struct rpc_connection *connection);

/* resume.c */
void rpc_forget_notes(struct rpc *rpc);

/* begin.c */
struct rpc_connection *rpc_connection_make(struct rpc *rpc, uint64_t id, int fd);
/* `kept` is its place, which it takes; NULL: there is none, and it is refused. So with `fd`. */
int rpc_connection_new(struct rpc_listener *listener, uint64_t id, struct kept *kept, int fd);
/* Of the bound of connections; who has gone makes place. */
int rpc_take_place(struct rpc *rpc, uint32_t uid);

/* connection.c */
void rpc_warn(const struct rpc_connection *connection, int error);
void rpc_go_on(struct rpc_connection *connection);
/* Of one that is gone, or was never among them. */
void rpc_connection_free(struct rpc_connection *connection);
/* Frees the connections that are over and whose clients have read all; are_all: every one. */
void rpc_free_unread(struct rpc *rpc, bool are_all);
void rpc_on_ready(struct event_watch *watch, uint32_t events);
void rpc_on_pause_over(struct event_timeout *timeout);
void rpc_on_done(struct service_request *request, int error, const struct service_answer *answer);
void rpc_on_released(struct event_held *held);
/* The first of those whose answers list goes on with its own. */
void rpc_serve_listing(struct rpc *rpc);
/* It goes: its session ends, and so does what it waits for. */
void rpc_connection_end(struct rpc_connection *connection);
/* Who holds what others need and does not move is let go. */
void rpc_connection_check(struct rpc_connection *connection);

/* pace.c */
/* For service calls that answer later: `finish` is called once, unless the connection is gone. */
struct service_request *rpc_wait(struct rpc_connection *connection, rpc_finish *finish);
/* The request is served once more, later. */
void rpc_pause(struct rpc_connection *connection);
/* The request is served once more when the client has read what it was sent. */
void rpc_await_reader(struct rpc_connection *connection);
/* Of what answers are made of and requests lie in, beside RPC_BASE_BYTES. 0, -EDQUOT, -ENOMEM */
int rpc_charge(struct rpc_connection *connection, uint64_t bytes);
/* Lowers the charge when an answer was sent and its memory is freed: to the answers that the client
 * has not read and, unless the connection is over, its requests. */
void rpc_lower_charge(struct rpc_connection *connection);
/* Of the bound of connections, with all that is charged. */
void rpc_give_place(struct rpc_connection *connection);

/* handshake.c: the first message of a connection */
void rpc_hello(struct rpc_connection *connection);

/* v0.c, v1.c: a message in a session */
void rpc_serve_v0(struct rpc_connection *connection);
void rpc_serve_v1(struct rpc_connection *connection);
/* A first message that is no handshake. False: it is none of the protocol. */
bool rpc_probe_v0(struct rpc_connection *connection);
bool rpc_probe_v1(struct rpc_connection *connection);

/* answers.c */
/* Passes the descriptor with the answer, which has to follow at once; -1: none. */
void rpc_pass(struct rpc_connection *connection, int fd, bool is_own);
void rpc_answer(struct rpc_connection *connection, const struct message *message);
void rpc_answer_type(struct rpc_connection *connection, enum message_type type);
/* Says that there is no allocation of the id that was asked for. */
void rpc_refuse_unknown(struct rpc_connection *connection);
/* In the shape of the protocol. */
void rpc_refuse(struct rpc_connection *connection, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "cannot WHAT: why": what an errno of the service means here. */
void rpc_refuse_errno(struct rpc_connection *connection, const char *what, int error);
void rpc_refuse_commit(struct rpc_connection *connection, int error);
/* Nothing is read from it any more; it ends when it has been told. */
void rpc_close_after(struct rpc_connection *connection);
/* The store of its domain; NULL: it has been removed or renamed. */
const struct core_store *rpc_find_store(const struct rpc_connection *connection);
/* May its peer read (write) it? -EACCES, -ENOENT */
int rpc_check_store(const struct rpc_connection *connection, bool write);
/* The store and layout of its session. False: the session is over, which was answered. */
struct rpc_view {
    const struct core_session *session;
    const struct core_store *store;
    const struct layout *layout;
};
bool rpc_view_session(struct rpc_connection *connection, struct rpc_view *view);
/* An allocation of the layout by the id that was asked for; NULL: there is none. */
const struct layout_allocation *rpc_find_allocation(const struct rpc_connection *connection,
                                                    const struct rpc_view *view);
void rpc_fill_allocation(const struct rpc_connection *connection, const struct core_store *store,
                         const struct layout_allocation *allocation, char id[WIRE_ID_UUID_BYTES],
                         struct message *message);
/* listing.c */
void rpc_list_allocations(struct rpc_connection *connection, const struct rpc_view *view);
void rpc_list_keys(struct rpc_connection *connection, const struct rpc_view *view);
void rpc_free_listing(struct rpc_connection *connection);
/* Makes some more of it. True: it is done. */
bool rpc_go_on_listing(struct rpc_connection *connection);
void rpc_list_events(struct rpc_connection *connection, const struct core_store *store);
/* The allocation's descriptor, with this answer. */
void rpc_export(struct rpc_connection *connection, const struct layout_allocation *allocation,
                const struct message *answer);

#endif
