/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fdstore - descriptors that the service manager holds besides the keeper (systemd's descriptor
 * store)
 *
 * If a keeper ends unplanned, systemd starts another one and gives them to it. Each is stored under
 * the number of its place in an index; the index is memory that is stored too and describes them.
 * The names are short because all of them return in one word of the environment. The protocol is
 * that of sd_notify(3) and sd_listen_fds(3). Keeper only. It waits at most half a second in all for
 * a busy manager; descriptors that the manager does not take by then stay pending and are stored or
 * removed later (fdstore_resend); until then they would be lost with the keeper. Without
 * $NOTIFY_SOCKET nothing is stored.
 */
#ifndef GMSFS_DAEMON_FDSTORE_H
#define GMSFS_DAEMON_FDSTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Version of the index. */
#define FDSTORE_VERSION 1u
/* As many names as fit into 128 KiB, the longest word of an environment. */
#define FDSTORE_PLACES 16384u

enum fdstore_kind {
    FDSTORE_FREE,
    FDSTORE_KEPT, /* from struct holdings: memory, connections */
    FDSTORE_PART, /* a part of the mount, which the text names by its place */
    FDSTORE_TEXT, /* describes the parts */
};

struct fdstore_index; /* opaque */

struct fdstore {
    int notify_fd, index_fd; /* -1 if there is no store */
    struct fdstore_index *index;
    uint32_t room; /* number of usable places */
    uint32_t next; /* where the search for a free place starts */
    bool is_incomplete, removes;
    /* By place, 0 for the index, the message that the manager has not taken yet: -1 for none; a
     * duplicate of the descriptor to store; -2 to remove it, until when the place is not free. */
    int *pending;
    uint32_t pending_adds, pending_removals, pending_at;
    uint64_t retry_ms;    /* no try before this */
    uint64_t patience_ms; /* the rest of this turn's patience */
    uint64_t deaf_ms;     /* no waiting for an answer before this */
};

struct fdstore_item {
    uint32_t place;
    enum fdstore_kind kind;
    int fd;
    uint64_t serial; /* grows with each descriptor */
    uint64_t id, bytes;
};

void fdstore_init(struct fdstore *store); /* without a store */
/* Starts with an empty store, if there is a service manager. */
void fdstore_open(struct fdstore *store);
/* Closes without telling the manager: another process continues, or this process has no part in
 * it. */
void fdstore_close(struct fdstore *store);
/* Returns its place, from 1 on; 0 if it is not stored. The descriptor stays the caller's. */
uint32_t fdstore_add(struct fdstore *store, enum fdstore_kind kind, int fd, uint64_t id,
                     uint64_t bytes);
void fdstore_remove(struct fdstore *store, uint32_t place); /* place 0 is ignored */
/* Waits until the manager has closed the removed descriptors, at most a second; after such a
 * timeout it does not wait again for a while. */
void fdstore_settle(struct fdstore *store);
/* Sends some of the pending messages, if it is time. */
void fdstore_resend(struct fdstore *store, uint64_t now_ms);
/* Returns when to call fdstore_resend; UINT64_MAX if nothing is pending. */
uint64_t fdstore_next_ms(const struct fdstore *store);
/* Removes all, within two seconds, and closes. */
void fdstore_clear(struct fdstore *store);

/* Returns true if this process was started with descriptors from fdstore_add. */
bool fdstore_is_offered(void);
/* Returns all stored descriptors, malloc'ed; the caller owns them, and they are closed on exec. The
 * store continues. On a negative errno there is no store, and all that had arrived is closed and
 * removed. */
int fdstore_take(struct fdstore *store, struct fdstore_item **items, size_t *count);

#endif
