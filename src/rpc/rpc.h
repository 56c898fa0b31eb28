/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc - the front end for GMS clients: sockets that speak NVIDIA Dynamo's GPU Memory Service
 *
 * Accepts connections on sockets that the keeper has bound, one for each domain (the store of that
 * name) and protocol, decodes the clients' messages (message.h), calls the service and encodes the
 * answers. A connection is a `ctl` of the store and the session that it acquires: it waits, is
 * seen, revoked and bounded like any other. Rights are those of the peer when it connected; memory
 * is lent to the sender of the request as well. The event loop belongs to the daemon and is reached
 * through struct rpc_host. Called by src/daemon/worker.c only, on the loop's thread. Parses
 * clients' bytes and trusts none of them.
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

/* Returns the name of the domain, and of the store that its socket serves: the store with this name
 * when a client connects. */
const char *rpc_domain_name(enum rpc_domain domain);

/* Kinds of requests, in counts that another build goes on with: only append. */
#define RPC_KINDS 14u
/* Returns the name that a kind of requests has in `metrics`. */
const char *rpc_kind_name(uint32_t kind);

/* An order to the keeper to hold a descriptor of a connection too. Embedded in the connection. */
struct rpc_keeping {
    uint64_t id; /* of the connection, never used again */
    int fd;
    void (*done)(struct rpc_keeping *keeping, int error); /* once, on the loop's thread */
};

struct rpc_host {
    void *context;
    struct event_loop loop;
    /* Finds the process that connected: processes[0] and comm; uid and gid stay. process_count is 0
     * if it has gone. A negative errno: it cannot be found now. */
    int (*resolve_peer)(void *context, int fd, size_t max, struct service_caller *caller);
    /* Finds the process that has this number now. process_count is 0 if it has gone or cannot be
     * seen. A negative errno: it cannot be found now. */
    int (*resolve)(void *context, uint32_t pid, size_t max, struct service_caller *caller);
    /* Returns true if the process that connected is known to have exited. */
    bool (*has_exited)(void *context, int fd);
    /* Gives a newly accepted connection to the next worker, if there is memory for that. `drop`
     * undoes it. */
    void (*keep_ahead)(void *context, uint64_t id, int fd);
    /* Makes sure that the keeper holds the connection. Until `done` neither `keeping` nor its
     * descriptor may be freed. -ENOMEM: done is not called. */
    int (*keep)(void *context, struct rpc_keeping *keeping);
    /* Runs the job on a helper thread for computing, then job->done on the loop's. -ENOMEM */
    int (*submit)(void *context, struct job *job);
    /* Begins work on this frame of this connection (the first frame is 1), until `leave` gets the
     * return value of `enter`: so the keeper knows a frame that kills worker after worker. */
    uint64_t (*enter)(void *context, uint64_t id, uint64_t frame);
    void (*leave)(void *context, uint64_t former);
    /* Counts a request of that kind: its work in the loop began at began_us and ends now. */
    void (*count)(void *context, uint32_t kind, uint64_t began_us);
    /* Returns the number that this frame has in the log. */
    uint64_t (*number)(uint64_t id, uint64_t frame);
    /* Returns true if this step has recorded something. */
    bool (*is_recording)(void *context);
    /* Adds a note for the next worker (rpc_restore_note), written with this step's records.
     * -ENOMEM */
    int (*note)(void *context, const struct iovec *parts, int count);
    /* Delays a send until this step's records are written: see event.h. False: the step has
     * recorded nothing, and the send can happen now. */
    bool (*hold)(void *context, struct event_held *held);
    void (*unhold)(void *context, struct event_held *held);
    /* Makes the keeper drop its copy; the connection closes its own. */
    void (*drop)(void *context, uint64_t id);
};

struct rpc_options {
    uint8_t gpu_uuid[16];
    bool keeps_committed;   /* V0 and V1 writers begin with the committed layout */
    const char *mountpoint; /* for messages */
    int memory_fd;          /* rpc_make_memory's */
};

struct rpc;

/* Version of the memory that follows: kept.c. */
#define RPC_MEMORY_VERSION 1u
/* Makes the memory in which connections outlive a worker, for rpc_options; the keeper holds it. 0
 * or a negative errno. */
int rpc_make_memory(int *fd);

int rpc_new(struct service *service, const struct rpc_options *options, const struct rpc_host *host,
            struct rpc **rpc);
/* Ends all connections. NULL: no-op. */
void rpc_free(struct rpc *rpc);
/* Takes a listening socket, non-blocking, with SO_PASSCRED; one for each domain and protocol. */
int rpc_listen(struct rpc *rpc, enum rpc_domain domain, enum message_protocol protocol,
               int listen_fd);
/* After rpc_new in a worker that follows another: restores that worker's notes in their order, then
 * takes its connections over (-ENOENT: this one cannot continue, and is closed, as with other
 * errors; a refused one is closed because workers died of its request), then resumes all of
 * them. */
void rpc_restore_note(struct rpc *rpc, const void *bytes, size_t size);
int rpc_take_over(struct rpc *rpc, uint64_t id, int fd, bool is_refused);
void rpc_resume(struct rpc *rpc);
/* Returns true if a connection has this `ctl`. */
bool rpc_has_file(const struct rpc *rpc, uint64_t file);
/* Notes the whole state once more; earlier notes are discarded. */
void rpc_note_all(struct rpc *rpc);

/* Before the mount ends: stops accepting, and ends all connections. */
void rpc_close_listeners(struct rpc *rpc);
/* Called about once a second: tries a listener again that rests because descriptors ran out. True:
 * something waits for the next tick. */
bool rpc_on_tick(struct rpc *rpc, uint64_t now_ms);

#endif
