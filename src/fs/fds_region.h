/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fds_region - regions, requested on the ticket socket
 *
 * For fds.c alone: one request of a connection, which is answered by one message, mostly at once.
 */
#ifndef GMSFS_FS_FDS_REGION_H
#define GMSFS_FS_FDS_REGION_H

#include "fs/fds_answer.h"

struct fds_region_asker {
    struct fs *fs;
    int fd;                    /* the connection's */
    struct fds_answer *answer; /* likewise */
    struct service_peer peer;
    int object; /* received descriptor of a file in memory, taken over; -1: none */
};

/* Size of the longest answer. */
#define FDS_REGION_LIST_BYTES                                                   \
    (sizeof(struct gmsfs_fds_header) + sizeof(struct gmsfs_fds_region_answer) + \
     GMSFS_REGION_LIST_MAX * sizeof(struct gmsfs_region_info))

struct fds_region_op; /* a registration that is not answered yet */

/* Answers now, or later: then *op is set, and `answered` is called with 0 or the error that
 * prevented the answer, unless the op is forgotten before. Returns 0, or the error that prevented
 * the answer now. */
int fds_region_ask(const struct fds_region_asker *asker,
                   const struct gmsfs_fds_region_request *request,
                   void (*answered)(void *context, int error), void *context,
                   struct fds_region_op **op);
/* Answers an error to a request about regions. Returns as fds_answer_send. */
int fds_region_refuse(struct fds_answer *to, int error);
/* Forgets the connection, which is gone: its request is still carried out, without an answer. */
void fds_region_forget(struct fds_region_op *op);

#endif
