/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opener_message - what the process that serves clients asks the opener, and its answers
 *
 * One message each over a SOCK_SEQPACKET pair. The opener has rights that the asker has not, and
 * the asker reads what strangers send: so the opener takes nothing in a request for granted, and
 * who a connection belongs to is its own finding. What needs CUDA memory to be opened is answered
 * when it is; all else in order.
 */
#ifndef GMSFS_TRITON_OPENER_MESSAGE_H
#define GMSFS_TRITON_OPENER_MESSAGE_H

#include "gmsfs_abi.h"

#include <stddef.h>
#include <stdint.h>

#define OPENER_MAX_NAMES   16u
#define OPENER_MAX_INFOS   16u /* of a message */
#define OPENER_TOKEN_BYTES 256u

enum opener_op {
    OPENER_IDENTIFY = 1, /* with the connection's descriptor: who is at its other end */
    OPENER_WHO,          /* who asks with this token, or without one over this connection */
    OPENER_FORGET,       /* the connection is gone */
    OPENER_PING,
    OPENER_REGISTER,
    OPENER_UNREGISTER,
    OPENER_STATUS,
    OPENER_HOLD, /* all of them, or none */
};

/* Why the opener does not ask the mount at all. */
enum opener_refusal {
    OPENER_FINE,
    OPENER_UNKNOWN_PEER,
    OPENER_UNKNOWN_TOKEN,
    OPENER_OTHER_USER, /* a user's own front end serves nobody else */
    OPENER_NO_GROUPS,  /* which the user is in is not known; `error` says why */
    OPENER_NO_HELPER,  /* of CUDA memory; `error`, as cuda_helpers.h has them, says why */
};

struct opener_request {
    uint64_t id;         /* in the answer, too */
    uint64_t connection; /* whose request it is; IDENTIFY: its number from now on */
    uint32_t op;         /* enum opener_op */
    uint32_t kind;       /* enum gmsfs_region_kind */
    uint64_t offset, byte_size;
    int64_t device_id;
    uint8_t handle[GMSFS_REGION_HANDLE_BYTES];
    char token[OPENER_TOKEN_BYTES + 1]; /* "": the connection itself says who it is */
    char key[GMSFS_REGION_KEY_MAX + 1];
    uint32_t name_count;                                     /* UNREGISTER, STATUS: 0: all */
    char names[OPENER_MAX_NAMES][GMSFS_REGION_NAME_MAX + 1]; /* those that are there are sent */
};

/* As an id, where nobody asked: */
#define OPENER_STOP  UINT64_MAX       /* the server is to end */
#define OPENER_ENDED (UINT64_MAX - 1) /* `region` may be used no longer */

struct opener_reply {
    uint64_t id;
    int32_t error;    /* 0 or a negative errno */
    uint32_t refusal; /* enum opener_refusal */
    uint32_t reason;  /* enum gmsfs_region_reason */
    uint32_t failed;  /* HOLD: which of the names it is about */
    uint64_t region;  /* ENDED: its number */
    uint32_t uid;     /* IDENTIFY, WHO: UINT32_MAX: nobody knows */
    uint32_t more;    /* STATUS: another message follows */
    uint32_t info_count;
    struct gmsfs_region_info infos[OPENER_MAX_INFOS]; /* those that are there are sent */
};

/* Descriptors of HOLD: of each info its file, and behind that its memory's if it has
 * GMSFS_REGION_DESCRIPTOR; of a CUDA region that is a lease (cuda_lease.h). */
#define OPENER_MAX_FDS (2 * OPENER_MAX_INFOS)

#define OPENER_REQUEST_BYTES(count) \
    (offsetof(struct opener_request, names) + (count) * (GMSFS_REGION_NAME_MAX + 1))
#define OPENER_REPLY_BYTES(count) \
    (offsetof(struct opener_reply, infos) + (count) * sizeof(struct gmsfs_region_info))

/* Whether `bytes` of it arrived as a request must; texts are terminated then. 0 or -EPROTO */
int opener_request_check(struct opener_request *request, size_t bytes);

/* One message, with descriptors. 0 or a negative errno; -EAGAIN: it does not wait. */
int opener_send(int socket, const void *message, size_t bytes, const int *fds, size_t fd_count);
/* bytes: room, then what came; 0: the other end is gone. fd_count likewise. Waits as the socket
 * does. */
int opener_receive(int socket, void *message, size_t *bytes, int *fds, size_t *fd_count);

#endif
