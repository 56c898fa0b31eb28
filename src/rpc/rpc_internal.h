/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_internal - declarations that the files of src/rpc share
 *
 * rpc.c accepts; begin.c begins connections, resume.c continues those of the last worker;
 * connection.c takes one request at a time; note.c writes notes for the next worker; bytes.c moves
 * bytes; peer.c knows the process that connected, senders.c the sender of each request; handshake.c
 * opens the session; v0.c and v1.c carry out requests; answers.c and listing.c make answers. Calls
 * go down in this order, and back up by the functions that a connection was given for its request.
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
/* Reads of a client that asks again as soon as it is answered: if it shares the worker's processor,
 * it does so before the answer's send returns. */
#define RPC_READS_PER_TURN 4u
#define RPC_INPUT_BYTES    KEPT_AHEAD_BYTES
/* Of an answer: a longer one counts until its client has read it. */
#define RPC_ANSWER_BYTES 4096u
/* Charge of any connection: the bytes kept for the next worker, more of the next requests, and
 * RPC_UNREAD_BYTES of answers. */
#define RPC_BASE_BYTES (2 * RPC_INPUT_BYTES + RPC_UNREAD_BYTES)
/* Unread bytes at which a connection's next request waits; below, a client may send ahead. */
#define RPC_UNREAD_BYTES 16384u
#define RPC_SHORT_BYTES  (64u << 10) /* frames up to this size are decoded at once */
#define RPC_STALL_MS     10000u      /* how long a frame may stop in the middle */
#define RPC_TEXT_BYTES   65536u      /* of an error */

enum rpc_phase {
    RPC_KEEPING, /* the keeper does not have it yet: nothing is read. (Another build reads these
                    numbers.) */
    RPC_HELLO,   /* its first message has not come */
    RPC_SESSION, /* it was granted a session; V1: which may be over since */
    RPC_CLOSING, /* its answer is sent, then it ends */
};

struct rpc_connection;

/* A connection's note for the next worker, written with the records of its step. Another build may
 * read it. */
struct rpc_note {
    uint64_t connection;
    uint64_t answered; /* frames; one more than were consumed: that answer is being sent */
    uint64_t file, session;
    uint32_t phase, is_aborted;
};

/* Ends the waiting request. */
typedef void rpc_finish(struct rpc_connection *connection, int error,
                        const struct service_answer *answer);

struct rpc_listing; /* listing.c */

/* The processes of which each may get the answer; pid 0: a process that cannot be seen. */
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
    bool is_kept, is_gone; /* gone: it is freed when nothing uses it any more */
    bool has_ended;        /* the client has closed its sending side */
    /* Fires when the request is tried again, after a shortage whose end no event announces. */
    struct event_timeout pause;
    bool is_paused;
    bool awaits_reader; /* it continues when the client has read its answers */
    bool is_unread;     /* it is over, and keeps its place until the client has read all */
    struct rpc_connection *next_unread; /* list of unread connections */
    uint64_t pause_ms;
    uint64_t moved_us; /* time of the last progress */
    /* the client */
    struct service_caller caller;
    struct peer peer; /* the caller's groups */
    /* its session */
    uint64_t file;    /* its ctl; 0: none */
    uint64_t session; /* 0: none */
    bool is_aborted;  /* V1: the session is aborted, and the request waits for freed memory alone */
    struct rpc_note noted;
    bool is_answer_kept;
    int note_error; /* the next worker would not know the state: the connection ends */
    /* the request in work */
    struct service_request request;
    rpc_finish *finish;             /* NULL: no request waits */
    bool is_dispatching, is_served; /* served: its frame is consumed when its answer is sent */
    struct job decoding;            /* decodes a long frame */
    bool is_decoding;
    int decode_error;     /* 1: it is not decoded yet */
    struct message asked; /* points into `input` */
    uint64_t asked_us;
    struct rpc_listing *listing; /* the list being answered; NULL: none */
    struct rpc_connection *next_listing,
        **link_listing; /* queue of listing connections; link NULL: not queued */
    /* bytes */
    struct kept *kept; /* memory for the next worker: input, senders, answer */
    uint8_t *input;    /* in `kept`: the received bytes, from the first frame on */
    size_t input_bytes, input_room;
    size_t frame_bytes; /* of the frame in work, at the front of `input` */
    uint64_t charged_bytes;
    struct message_buffer output;
    struct event_held held;           /* delays `output` until the step's records are written */
    unsigned frames_left, reads_left; /* left in this turn */
    int passed_fd;                    /* sent with the next byte of `output`; -1: none */
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
    struct idvec notes; /* of the last worker, until its connections continue */
    uint64_t now_ms;
    unsigned warnings;              /* since the last tick */
    struct event_timeout sweep;     /* fires when sessions have ended, to end their connections */
    uint64_t seen_event;            /* the last event that was handled */
    struct rpc_connection *unread;  /* connections that are over and keep their place */
    struct event_timeout lists;     /* fires for the next turn of a listing connection */
    struct rpc_connection *listing; /* connections that list in turns; NULL: none */
};

/* trace.c: for the log at level debug. Ask log_is_debug() first. */
void rpc_trace_asked(const struct rpc_connection *connection);
/* Fires the tracepoint of an answer and logs the answer. Call it once for each answer. error: that
 * of the request, or 0 */
void rpc_note_answer(const struct rpc_connection *connection, const struct message *message,
                     int error);

/* Counts the request whose work in the loop ends now. */
void rpc_count_request(const struct rpc_connection *connection, uint64_t began_us);

/* shared.c */
/* Returns the connection as the actor of its request. */
struct service_actor rpc_actor(const struct rpc_connection *connection);
bool rpc_may_warn(struct rpc *rpc);
/* Returns the kernel's charge to the daemon's control group for answers that the client has not
 * read. */
size_t rpc_count_unread(const struct rpc_connection *connection);
/* Returns true if the client has unread answers. */
bool rpc_has_unread(const struct rpc_connection *connection);

/* peer.c: finds the peer, once when the connection is made. 0 or a negative errno. */
int rpc_read_peer(struct rpc_connection *connection);

/* senders.c */
/* Reads behind `input` as recv(2) does without waiting, and notes the sender. */
ssize_t rpc_read(struct rpc_connection *connection, size_t room);
/* Adds bytes that were read but not counted yet to `input`, with their sender. */
void rpc_take_read(struct rpc_connection *connection);
/* Points `input` to the kept bytes. */
void rpc_show_input(struct rpc_connection *connection);
/* Removes the frame at the front. */
void rpc_consume_input(struct rpc_connection *connection);
/* Finds all senders of the frame at the front, and the process that connected unless it has exited.
 * A negative errno: one of them could not be looked up. */
int rpc_find_askers(const struct rpc_connection *connection, struct rpc_askers *askers);
/* Finds the caller: the peer, with the process that sent the frame at the front. No process if
 * there are several, or one that cannot be seen. A negative errno: it could not be looked up. */
int rpc_find_sender(const struct rpc_connection *connection, struct service_caller *caller);

/* bytes.c */
/* Returns 0 if all is sent; -EAGAIN: later, also if it is held; else the client is gone. */
int rpc_send_output(struct rpc_connection *connection);
/* Returns 0, -EAGAIN, or the error that ends the connection. */
int rpc_receive(struct rpc_connection *connection);
/* Finds the length of the frame at the front; 0: not known yet. -EINVAL, -EMSGSIZE */
int rpc_find_frame(const struct rpc_connection *connection, size_t *bytes);
/* Makes memory for this many bytes of `input`. 0, -ENOMEM */
int rpc_reserve_input(struct rpc_connection *connection, size_t bytes);
/* Returns true if a descriptor came for which the protocol has no use. */
bool rpc_has_misplaced_descriptor(const struct rpc_connection *connection);
/* Consumes the frame that was served. */
void rpc_consume_frame(struct rpc_connection *connection);

/* note.c */
/* Notes the connection's new state and answer with the records. After each step of a connection. */
void rpc_note(struct rpc_connection *connection);
/* Keeps the whole answer, so that the next worker can send the rest of it. */
void rpc_keep_answer(struct rpc_connection *connection);

/* resume.c */
void rpc_forget_notes(struct rpc *rpc);

/* begin.c */
struct rpc_connection *rpc_connection_make(struct rpc *rpc, uint64_t id, int fd);
/* Takes `kept` and `fd` over. kept NULL: there is no place, and the connection is refused. */
int rpc_connection_new(struct rpc_listener *listener, uint64_t id, struct kept *kept, int fd);
/* Takes a place within the bound of connections, ending connections whose clients have gone. */
int rpc_take_place(struct rpc *rpc, uint32_t uid);

/* connection.c */
void rpc_warn(const struct rpc_connection *connection, int error);
void rpc_advance(struct rpc_connection *connection);
/* Frees a connection that is over or never began. */
void rpc_connection_free(struct rpc_connection *connection);
/* Frees the connections that are over and whose clients have read all; are_all: every one. */
void rpc_free_unread(struct rpc *rpc, bool are_all);
void rpc_on_ready(struct event_watch *watch, uint32_t events);
void rpc_on_pause_over(struct event_timeout *timeout);
void rpc_on_done(struct service_request *request, int error, const struct service_answer *answer);
void rpc_on_released(struct event_held *held);
/* Continues the first listing connection. */
void rpc_serve_listing(struct rpc *rpc);
/* Ends the connection, with its session and its waiting request. */
void rpc_connection_end(struct rpc_connection *connection);
/* Ends the connection if it holds memory and makes no progress. */
void rpc_connection_check(struct rpc_connection *connection);

/* pace.c */
/* Returns the request for a service call that answers later: `finish` is called once, unless the
 * connection is gone. */
struct service_request *rpc_wait(struct rpc_connection *connection, rpc_finish *finish);
/* Serves the request once more, after a pause. */
void rpc_pause(struct rpc_connection *connection);
/* Serves the request once more when the client has read its answers. */
void rpc_await_reader(struct rpc_connection *connection);
/* Sets the charge for answers and requests beside RPC_BASE_BYTES. 0, -EDQUOT, -ENOMEM */
int rpc_charge(struct rpc_connection *connection, uint64_t bytes);
/* Lowers the charge when an answer was sent and its memory is freed: to the unread answers and,
 * unless the connection is over, its requests. */
void rpc_lower_charge(struct rpc_connection *connection);
/* Gives the place back, with the whole charge. */
void rpc_give_place(struct rpc_connection *connection);

/* handshake.c: the first message of a connection */
void rpc_hello(struct rpc_connection *connection);

/* v0.c, v1.c: a message in a session */
void rpc_serve_v0(struct rpc_connection *connection);
void rpc_serve_v1(struct rpc_connection *connection);
/* Answers a first message that is no handshake. False: the protocol has no such message. */
bool rpc_probe_v0(struct rpc_connection *connection);
bool rpc_probe_v1(struct rpc_connection *connection);

/* answers.c */
/* Passes the descriptor with the answer, which has to follow at once; -1: none. */
void rpc_pass(struct rpc_connection *connection, int fd, bool is_own);
void rpc_answer(struct rpc_connection *connection, const struct message *message);
void rpc_answer_type(struct rpc_connection *connection, enum message_type type);
/* Refuses an id that no allocation has. */
void rpc_refuse_unknown(struct rpc_connection *connection);
/* Refuses in the form of the protocol. */
void rpc_refuse(struct rpc_connection *connection, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Refuses with "cannot ACTION: reason", where the reason explains an errno of the service. */
void rpc_refuse_errno(struct rpc_connection *connection, const char *action, int error);
/* Answers, or refuses if there is an error. */
void rpc_answer_or_refuse(struct rpc_connection *connection, const char *action, int error,
                          const struct message *answer);
void rpc_refuse_commit(struct rpc_connection *connection, int error);
/* Ends the connection after its answer; nothing more is read. */
void rpc_close_after(struct rpc_connection *connection);
/* Returns the store of the domain; NULL: it has been removed or renamed. */
const struct core_store *rpc_find_store(const struct rpc_connection *connection);
/* Checks that the peer may read, or write, the store. -EACCES, -ENOENT */
int rpc_check_store(const struct rpc_connection *connection, bool write);
struct rpc_view {
    const struct core_session *session;
    const struct core_store *store;
    const struct layout *layout;
};
/* Finds the session with its store and layout. False: the session is over. */
bool rpc_find_view(const struct rpc_connection *connection, struct rpc_view *view);
/* The same; refuses the request if the session is over. */
bool rpc_view_session(struct rpc_connection *connection, struct rpc_view *view);
/* Finds an allocation of the layout by the requested id; NULL: there is none. */
const struct layout_allocation *rpc_find_allocation(const struct rpc_connection *connection,
                                                    const struct rpc_view *view);
void rpc_fill_allocation(const struct rpc_connection *connection, const struct core_store *store,
                         const struct layout_allocation *allocation, char id[WIRE_ID_UUID_BYTES],
                         struct message *message);
/* listing.c */
void rpc_list_allocations(struct rpc_connection *connection, const struct rpc_view *view);
void rpc_list_keys(struct rpc_connection *connection, const struct rpc_view *view);
void rpc_free_listing(struct rpc_connection *connection);
/* Makes more of the list. True: it is complete. */
bool rpc_advance_listing(struct rpc_connection *connection);
void rpc_list_events(struct rpc_connection *connection, const struct core_store *store);
/* Sends the allocation's descriptor with this answer. */
void rpc_export(struct rpc_connection *connection, const struct layout_allocation *allocation,
                const struct message *answer);

#endif
