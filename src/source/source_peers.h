/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source_peers - a store of other nodes: its texts, and its allocations as the files of a source
 *
 * For `gmsfs pull`. All nodes that have the contents with one id send the same bytes, so each
 * piece comes from the node that is best for it (peers.h), and from another if that one fails, is
 * slow, or sends bytes with another sum. Nodes that have no or other contents are asked again now
 * and then. Prints nothing. Blocking; source_cancel() ends it.
 */
#ifndef GMSFS_SOURCE_SOURCE_PEERS_H
#define GMSFS_SOURCE_SOURCE_PEERS_H

#include "base/failure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOURCE_PEERS_ID_BYTES 16u

struct source;
struct source_peers;

enum source_peers_event {
    SOURCE_PEERS_FAILED,
    SOURCE_PEERS_BARRED, /* failed, and is not asked again */
    SOURCE_PEERS_AWAITED,
};

/* Takes what happened with a node, "http://...", in words. */
typedef void source_peers_tell(void *context, const char *node, const char *why,
                               enum source_peers_event event);

struct source_peers_wish {
    const char *const *urls; /* addresses of the store: http[s]://HOST[:PORT]/PATH/ */
    size_t url_count;
    const uint8_t *id;      /* of the contents; NULL: the first answer decides */
    const char *cert, *key; /* files of this client's certificate, as PEM; NULL: none */
    bool is_insecure;       /* accepts public addresses without TLS */
    uint64_t patience_ms;   /* fails after so long without a node that sends the contents */
    /* Called for each failed node, on any thread, never twice at the same time: once, when there
     * was no node to use for a second; and once if it is barred, then or by
     * source_peers_tell_barred(). Called for the first node that a turn waits for, too. May be
     * NULL. */
    source_peers_tell *tell;
    void *context;
};

/* Finds the nodes and begins to ask them. The failure has the whole message, here as below. */
int source_peers_open(const struct source_peers_wish *wish, struct source_peers **peers,
                      struct failure *failure);
/* Only if no source was made of it. NULL is fine. */
void source_peers_close(struct source_peers *peers);

/* Waits for the first node that has the contents, and a second more for better ones. Sets their id.
 * -EHOSTUNREACH: no node was found within the patience. */
int source_peers_find(struct source_peers *peers, uint8_t id[SOURCE_PEERS_ID_BYTES],
                      struct failure *failure);

/* The texts of the contents, as one node sent them; the caller frees both. */
struct source_peers_texts {
    size_t node;
    char *pieces, *layout;
    size_t pieces_bytes, layout_bytes;
};

/* Reads the texts, which have bounds, from any node. The caller checks them: source_peers_bar()
 * bars a node that sent wrong ones. */
int source_peers_read(struct source_peers *peers, size_t most_pieces_bytes,
                      size_t most_layout_bytes, struct source_peers_texts *texts,
                      struct failure *failure);
void source_peers_bar(struct source_peers *peers, size_t node, const char *why);

/* Waits until few enough nodes take the contents at the same time (peers.h), so that a fleet that
 * begins at once does not get all pieces from one node. The wait for a node with a writer in its
 * store lasts as long as so many bytes need over a quarter of a link of 1 Gb/s, and 10 s, at most
 * 60 s; for all such nodes together at most 10 times the patience. One address, or no patience:
 * waits for nothing. For the time before the lock: others see this pull once its own store has a
 * writer. */
void source_peers_take_turn(struct source_peers *peers, uint64_t bytes);

/* Makes the source, which owns the peers then, also after a failure; its files are the allocations
 * of these sizes, by rank. NULL: no memory. */
struct source *source_peers_source(struct source_peers *peers, const uint64_t *sizes_bytes,
                                   size_t count);

/* Tells the nodes that were barred, and were not told before. */
void source_peers_tell_barred(struct source_peers *peers);

#endif
