/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fdstore - descriptors that the service manager holds beside the keeper (systemd's descriptor
 * store)
 *
 * Where a keeper ends unplanned, the one that systemd then starts gets them. Each is stored under a
 * name of its own, the number of its place in an index, which is memory that is stored as well and
 * tells what they are; names are short because they come back as one word of the environment. The
 * protocol is that of sd_notify(3) and sd_listen_fds(3). Keeper only. It waits half a
 * second in all for a manager that is busy; what that does not take is due, and is stored or
 * removed later (fdstore_go_on); until then it is lost with the keeper. Without $NOTIFY_SOCKET
 * nothing is stored.
 */
#ifndef GMSFS_DAEMON_FDSTORE_H
#define GMSFS_DAEMON_FDSTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of the index. */
#define FDSTORE_VERSION 1u
/* What fits into 128 KiB, as long as a word of the environment may be. */
#define FDSTORE_PLACES 16384u

enum fdstore_kind {
    FDSTORE_FREE,
    FDSTORE_KEPT, /* of struct holdings: memory, connections */
    FDSTORE_PART, /* of the mount, as the text names it by its place */
    FDSTORE_TEXT, /* which tells the parts */
};

struct fdstore_index; /* opaque */

struct fdstore {
    int notify_fd, index_fd; /* -1: there is no store */
    struct fdstore_index *index;
    uint32_t room; /* places that may be used */
    uint32_t next; /* where a free one is looked for */
    bool is_incomplete, removes;
    /* What the manager has not taken yet, by place, 0 being the index: -1: nothing; a duplicate of
     * the descriptor, to be stored; -2: to be removed, and nobody else's place before that. */
    int *due;
    uint32_t due_adds, due_removals, due_at;
    uint64_t retry_ms;    /* not before */
    uint64_t patience_ms; /* left of this turn */
    uint64_t deaf_ms;     /* until then nobody waits for an answer */
};

struct fdstore_item {
    uint32_t place;
    enum fdstore_kind kind;
    int fd;
    uint64_t serial; /* the later one has the higher */
    uint64_t id, bytes;
};

void fdstore_init(struct fdstore *store); /* none */
/* Begins with an empty one, where there is a service manager. */
void fdstore_open(struct fdstore *store);
/* Nothing is told to the manager: another process goes on, or none of this affair's. */
void fdstore_close(struct fdstore *store);
/* Its place, from 1 on; 0: it is not stored. The descriptor stays the caller's. */
uint32_t fdstore_add(struct fdstore *store, enum fdstore_kind kind, int fd, uint64_t id,
                     uint64_t bytes);
void fdstore_remove(struct fdstore *store, uint32_t place); /* 0: nothing */
/* The manager has closed what was removed, or does not say so within a second; after that it is not
 * waited for again for a while. */
void fdstore_settle(struct fdstore *store);
/* Some of what is due, if it is time. */
void fdstore_go_on(struct fdstore *store, uint64_t now_ms);
/* When it is to be called; UINT64_MAX: nothing is due. */
uint64_t fdstore_next_ms(const struct fdstore *store);
/* Removes all, within two seconds, and closes. */
void fdstore_clear(struct fdstore *store);

/* This process was started with what fdstore_add had stored. */
bool fdstore_is_offered(void);
/* All that was stored, malloc'ed; the descriptors are the caller's, and are closed on exec. The
 * store goes on. A negative errno: there is none; what had come is closed and removed. */
int fdstore_take(struct fdstore *store, struct fdstore_item **items, size_t *count);

#endif
