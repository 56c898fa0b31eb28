/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_node - one address of a server that may have a store, and its requests
 *
 * For source_peers.c. An address of a store, http[s]://HOST[:PORT]/PATH/OF/STORE/, stands for all
 * addresses that its host's name has: each becomes a node. All bytes from a node are hostile. One
 * request is one attempt: whether to try again, and where, is source_peers.c's decision. Requests
 * are blocking, from any thread.
 */
#ifndef GMSFS_SOURCE_PEER_NODE_H
#define GMSFS_SOURCE_PEER_NODE_H

#include "source/http.h"
#include "source/peers.h"
#include "source/source_backend.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define NODE_ID_BYTES    16u
#define NODE_WHY_BYTES   256u
#define NODE_SHOWN_BYTES 256u

struct peer_node {
    char *url;                    /* ends with '/' */
    char *pin;                    /* as http_peer.pin */
    char shown[NODE_SHOWN_BYTES]; /* for messages: without credentials */
    struct http *http[2];         /* of pieces, and of all else, with limits of their own */
    struct http_peer as[2];
    atomic_uint retry_s;
    /* Of source_peers.c. */
    char why[NODE_WHY_BYTES]; /* of the last failure; "": none since the last piece */
    unsigned told;            /* 1: the caller knows that it failed; 2: that it was barred */
};

/* Settings of all nodes. */
struct peer_common {
    atomic_uint piece_ms, text_ms; /* longest duration of a request for a piece, and of another */
    const char *cert, *key;        /* as of struct http_peer */
    bool is_insecure;              /* public addresses need no TLS */
};

/* True if an address is of this machine or of a private network (RFC 1918, loopback, link-local,
 * unique local): pure. */
bool peer_address_is_private(const struct sockaddr *address);

/* Returns a random number below `count`, which is 1 or more. */
uint32_t peer_random(uint32_t count);
/* Sets order[] to the numbers below `count` in a random order. */
void peer_shuffle(size_t *order, size_t count);

/*
 * Makes nodes of a URL's addresses, in random order, and adds them up to PEERS_MAX. -EINVAL: it is
 * no http:// or https:// address; -EACCES: it is public, and needs TLS; -EHOSTUNREACH: its name is
 * unknown. The failure has the whole message.
 */
int peer_nodes_add(struct peer_node *nodes, size_t *count, const char *url,
                   const struct peer_common *common, struct failure *failure);
void peer_nodes_free(struct peer_node *nodes, size_t count);
void peer_node_cancel(struct peer_node *node);

/* Asks which contents the store has. -ENOENT: none; -ENOTSUP: it is no store; and as below. */
int peer_node_ask(struct peer_node *node, uint8_t id[NODE_ID_BYTES], struct failure *failure);
/* Returns true if a writer has the store, as its state tells. */
bool peer_node_is_written(struct peer_node *node);
/* Gets a whole text below by-id/ID/ of the store. */
int peer_node_read(struct peer_node *node, const uint8_t id[NODE_ID_BYTES], const char *name,
                   size_t most_bytes, char **text, size_t *bytes, struct failure *failure);
/* Gets bytes of an allocation of size_bytes. An error of `put` is returned. */
int peer_node_get(struct peer_node *node, const uint8_t id[NODE_ID_BYTES], uint64_t rank,
                  uint64_t size_bytes, uint64_t offset_bytes, uint64_t bytes, http_put *put,
                  void *context, struct failure *failure);

/* Returns the result of a request that ended with this error: of a node, not of the caller. */
enum peer_result peer_node_result(int error);

#endif
