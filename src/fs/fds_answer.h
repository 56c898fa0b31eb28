/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fds_answer - what the ticket socket answers
 *
 * For fds.c and fds_region.c. An answer without descriptors waits until what its step has recorded
 * counts: it is copied then, and leaves at the end of the step. Where nothing was recorded it
 * leaves at once.
 */
#ifndef GMSFS_FS_FDS_ANSWER_H
#define GMSFS_FS_FDS_ANSWER_H

#include "fs/fs_internal.h"
#include "gmsfs_abi.h"
#include "service/tickets.h"

/* Of one connection, and embedded in it: one at a time. */
struct fds_answer {
    struct event_held held;
    struct fs *fs;
    int fd;
    void *bytes; /* held back; NULL: none is */
    size_t size;
    void (*failed)(struct fds_answer *answer); /* after 0 was returned: it could not be sent */
};

/* Bytes that begin with a struct gmsfs_fds_header, whose error becomes what clients are told. 0: it
 * is sent, or will be; or what keeps it from being sent. */
int fds_answer_send(struct fds_answer *answer, void *bytes, size_t size);
/* The connection goes: so does what it has not sent. */
void fds_answer_forget(struct fds_answer *answer);

/* Descriptors, with what each of them is. */
struct fds_items {
    struct gmsfs_fds_header header; /* count: of the items so far */
    struct gmsfs_fds_item items[GMSFS_BATCH_MAX];
    char tags[GMSFS_FDS_TAGS_MAX];
    size_t tag_bytes;
    int descriptors[GMSFS_BATCH_MAX];
};

/* At most what the kernel takes for a message of so many, with their tags and its own notes. */
#define FDS_ITEMS_BYTES(count) \
    ((count) * sizeof(struct gmsfs_fds_item) + GMSFS_FDS_TAGS_MAX + (2u << 10))

/* One more of them. */
void fds_add_item(struct fds_items *message, const struct service_descriptor *descriptor);
/* All of them, now. 0 or a negative errno */
int fds_send_items(int fd, struct fds_items *message);

#endif
