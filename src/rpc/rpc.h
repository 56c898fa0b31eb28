/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc - the front end for GMS clients: sockets that speak NVIDIA Dynamo's GPU Memory Service
 *
 * Accepts connections on sockets that the keeper has bound, one for each domain (the store of that
 * name) and protocol, decodes what clients say (message.h), calls the service and encodes the
 * answers. A connection is a `ctl` of the store and the session that it acquires: it waits, is
 * seen, revoked and bounded as any other. Rights are those of the peer when it connected; who is
 * lent memory is who sends the request as well. The event loop belongs to the daemon and is reached
 * through struct rpc_host. Called by src/daemon/worker.c only. One thread: the loop's. It parses
 * what clients send and trusts none of it.
 */
#ifndef GMSFS_RPC_RPC_H
#define GMSFS_RPC_RPC_H

#include "base/event.h"
#include "base/job.h"
#include "rpc/message.h"
#include "service/service.h"

#include <sys/uio.h>

enum rpc_domain {
    RPC_WEIGHTS,
    RPC_KV_CACHE,
    RPC_DOMAIN_COUNT,
};

/* The store that the socket serves: whichever has this name when a client connects. */
const char *rpc_domain_name(enum rpc_domain domain);

/* The keeper is to hold a descriptor of a connection as well. Embedded in the connection. */
struct rpc_keeping {
    uint64_t id; /* of the connection, never used again */
    int fd;
    void (*done)(struct rpc_keeping *keeping, int error); /* once, on the loop's thread */
};

struct rpc_host {
    void *context;
    struct event_loop loop;
    /* The process that connected, by the connection; it may be gone by now (process_count 0):
     * processes[0] and comm; uid and gid stay. A negative errno: it cannot be told now. */
    int (*resolve_peer)(void *context, int fd, size_t max, struct service_caller *caller);
    /* The process that has this number now; none (process_count 0): gone, or it cannot be seen. A
     * negative errno: it cannot be told now. */
    int (*resolve)(void *context, uint32_t pid, size_t max, struct service_caller *caller);
    /* The process that connected is known to have exited. */
    bool (*has_exited)(void *context, int fd);
    /* A connection that has just been accepted: it goes on with a next worker from here on, if
     * there is memory for that. `drop` undoes it. */
    void (*keep_ahead)(void *context, uint64_t id, int fd);
    /* The keeper holds it, for certain. Until `done` neither the keeping nor its descriptor may go.
     * -ENOMEM: done is not called */
    int (*keep)(void *context, struct rpc_keeping *keeping);
    /* Runs it on a helper thread that computes, then job->done on the loop's. -ENOMEM */
    int (*submit)(void *context, struct job *job);
    /* What is done from here on is for this frame of this connection, the first is 1, until `leave`
     * gets what `enter` returned: one that kills worker after worker is known by it. */
    uint64_t (*enter)(void *context, uint64_t id, uint64_t frame);
    void (*leave)(void *context, uint64_t former);
    /* This step has recorded something. */
    bool (*is_recording)(void *context);
    /* Something that a next worker is to be told (rpc_restore_note), with this step's records.
     * -ENOMEM */
    int (*note)(void *context, const struct iovec *parts, int count);
    /* What is about to be sent waits for what this step has recorded: see event.h. False: it was
     * nothing, and it can be sent now. */
    bool (*hold)(void *context, struct event_held *held);
    void (*unhold)(void *context, struct event_held *held);
    /* The keeper holds it no longer; its own copy is the connection's to close. */
    void (*drop)(void *context, uint64_t id);
};

struct rpc_options {
    uint8_t gpu_uuid[16];
    bool
        keeps_committed; /* a V0 or V1 writer begins with what is committed, as files' writers do */
    const char *mountpoint; /* for messages */
    int memory_fd;          /* rpc_make_memory's */
};

struct rpc;

/* Of what follows: kept.c. */
#define RPC_MEMORY_VERSION 1u
/* What outlives a worker of its connections, for rpc_options: the keeper holds it. 0 or a negative
 * errno */
int rpc_make_memory(int *fd);

int rpc_new(struct service *service, const struct rpc_options *options, const struct rpc_host *host,
            struct rpc **rpc);
/* Ends all connections. NULL is none. */
void rpc_free(struct rpc *rpc);
/* Takes a listening socket, non-blocking, with SO_PASSCRED; one for each domain and protocol. */
int rpc_listen(struct rpc *rpc, enum rpc_domain domain, enum message_protocol protocol,
               int listen_fd);
/* After rpc_new in a worker that goes on where another has ended. What that one noted, in order;
 * its connections, which become ours (-ENOENT: it cannot go on, and is closed; so is it with other
 * errors; one that is refused is, for workers ended at what it asks for); then all of them go on.
 */
void rpc_restore_note(struct rpc *rpc, const void *bytes, size_t size);
int rpc_take_over(struct rpc *rpc, uint64_t id, int fd, bool is_refused);
void rpc_resume(struct rpc *rpc);
/* A connection has this `ctl`. */
bool rpc_has_file(const struct rpc *rpc, uint64_t file);
/* Notes all of it once more: what was noted before is not kept. */
void rpc_note_all(struct rpc *rpc);

/* Before the mount ends: nobody is accepted any more, and who is there is let go: the connections
 * end. */
void rpc_close_listeners(struct rpc *rpc);
/* Once a second or so: a listener that rests for want of descriptors is tried again. True: there is
 * something to wait for. */
bool rpc_on_tick(struct rpc *rpc, uint64_t now_ms);

#endif
