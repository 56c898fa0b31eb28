/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fds_answer - answers of the ticket socket
 *
 * For fds.c and fds_region.c. If this step has records that are not written yet, an answer without
 * descriptors is copied, and leaves at the end of the step. Otherwise it leaves at once.
 */
#ifndef GMSFS_FS_FDS_ANSWER_H
#define GMSFS_FS_FDS_ANSWER_H

#include "fs/fs_internal.h"
#include "gmsfs_abi.h"
#include "service/tickets.h"

/* The answer of a connection, and embedded in it: one at a time. */
struct fds_answer {
    struct event_held held;
    struct fs *fs;
    uint64_t asker; /* process and operation that it answers, as fs_at_asker packs them */
    int fd;
    void *bytes; /* the delayed answer; NULL: none */
    size_t size;
    void (*failed)(struct fds_answer *answer); /* sending failed later */
};

/* Sends bytes that begin with a struct gmsfs_fds_header, whose error is turned into the client's.
 * Returns 0 if they are sent, or will be; or the error that prevents it. */
int fds_answer_send(struct fds_answer *answer, void *bytes, size_t size);
/* Discards an unsent answer: the connection goes. */
void fds_answer_forget(struct fds_answer *answer);

/* Descriptors, with a description of each. */
struct fds_items {
    struct gmsfs_fds_header header; /* count: number of items so far */
    struct gmsfs_fds_item items[GMSFS_BATCH_MAX];
    char tags[GMSFS_FDS_TAGS_MAX];
    size_t tag_bytes;
    int descriptors[GMSFS_BATCH_MAX];
};

/* Upper bound of the kernel's charge for a message of this many items, with their tags and the
 * kernel's own overhead. */
#define FDS_ITEMS_BYTES(count) \
    ((count) * sizeof(struct gmsfs_fds_item) + GMSFS_FDS_TAGS_MAX + (2u << 10))

/* Adds an item. */
void fds_add_item(struct fds_items *message, const struct service_descriptor *descriptor);
/* Sends all items now. 0 or a negative errno. */
int fds_send_items(int fd, struct fds_items *message);

#endif
