/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opener_message - the server's requests to the opener, and its answers
 *
 * One message each over a SOCK_SEQPACKET pair. The opener has rights that the server lacks, and the
 * server reads bytes from unknown clients: so the opener checks every field of a request, and finds
 * the user of a connection itself. Requests that open CUDA memory are answered when it is open; all
 * others in order.
 */
#ifndef GMSFS_TRITON_OPENER_MESSAGE_H
#define GMSFS_TRITON_OPENER_MESSAGE_H

#include "gmsfs_abi.h"

#include <stddef.h>
#include <stdint.h>

#define OPENER_MAX_NAMES   16u
#define OPENER_MAX_INFOS   16u /* in one message */
#define OPENER_TOKEN_BYTES 256u

enum opener_op {
    OPENER_IDENTIFY = 1, /* passes the connection's descriptor: find the user at its other end */
    OPENER_FIND_USER,    /* the user of this token, or of this connection if there is none */
    OPENER_FORGET,       /* the connection is gone */
    OPENER_PING,
    OPENER_REGISTER,
    OPENER_UNREGISTER,
    OPENER_STATUS,
    OPENER_HOLD, /* all of the names, or none */
};

/* Why the opener refuses without asking the mount. */
enum opener_refusal {
    OPENER_FINE,
    OPENER_UNKNOWN_PEER,
    OPENER_UNKNOWN_TOKEN,
    OPENER_OTHER_USER, /* one user's own front end serves no other user */
    OPENER_NO_GROUPS,  /* the user's groups are not known; `error` says why */
    OPENER_NO_HELPER,  /* no process to open CUDA memory; `error` says why, as in cuda_helpers.h */
};

struct opener_request {
    uint64_t id;         /* repeated in the answer */
    uint64_t connection; /* connection that asks; IDENTIFY: number to give it */
    uint32_t op;         /* enum opener_op */
    uint32_t kind;       /* enum gmsfs_region_kind */
    uint64_t offset, byte_size;
    int64_t device_id;
    uint8_t handle[GMSFS_REGION_HANDLE_BYTES];
    char token[OPENER_TOKEN_BYTES + 1]; /* "": use the user of the connection */
    char key[GMSFS_REGION_KEY_MAX + 1];
    uint32_t name_count;                                     /* 0 in UNREGISTER and STATUS: all */
    char names[OPENER_MAX_NAMES][GMSFS_REGION_NAME_MAX + 1]; /* only name_count of them are sent */
};

/* As an id, in a message that answers no request: */
#define OPENER_STOP  UINT64_MAX       /* the server must end */
#define OPENER_ENDED (UINT64_MAX - 1) /* requests must stop using `region` */

struct opener_reply {
    uint64_t id;
    int32_t error;    /* 0 or a negative errno */
    uint32_t refusal; /* enum opener_refusal */
    uint32_t reason;  /* enum gmsfs_region_reason */
    uint32_t failed;  /* HOLD: index of the name that failed */
    uint64_t region;  /* ENDED: number of the region */
    uint32_t uid;     /* IDENTIFY, FIND_USER: UINT32_MAX: unknown */
    uint32_t more;    /* STATUS: another message follows */
    uint32_t info_count;
    struct gmsfs_region_info infos[OPENER_MAX_INFOS]; /* only info_count of them are sent */
};

/* Descriptors of HOLD: for each info its file, then its memory if GMSFS_REGION_DESCRIPTOR is set;
 * for a CUDA region the second is a lease (cuda_lease.h). */
#define OPENER_MAX_FDS (2 * OPENER_MAX_INFOS)

#define OPENER_REQUEST_BYTES(count) \
    (offsetof(struct opener_request, names) + (count) * (GMSFS_REGION_NAME_MAX + 1))
#define OPENER_REPLY_BYTES(count) \
    (offsetof(struct opener_reply, infos) + (count) * sizeof(struct gmsfs_region_info))

/* Checks that `bytes` have the form of a request, and terminates its texts. 0 or -EPROTO */
int opener_request_check(struct opener_request *request, size_t bytes);

/* Sends one message, with descriptors. 0 or a negative errno; -EAGAIN: the socket is full. */
int opener_send(int socket, const void *message, size_t bytes, const int *fds, size_t fd_count);
/* bytes: room, then the size received; 0: the other end is gone. fd_count likewise. Blocks if the
 * socket does. */
int opener_receive(int socket, void *message, size_t *bytes, int *fds, size_t *fd_count);

#endif
