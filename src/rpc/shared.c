/* SPDX-License-Identifier: Apache-2.0 */
/* What all files of src/rpc use: names, how much is said, and what is unread. */
#include "rpc/rpc_internal.h"

#define MAX_WARNINGS 10u /* between two ticks */

const char *rpc_domain_name(enum rpc_domain domain)
{
    static const char *const names[RPC_DOMAIN_COUNT] = {
        [RPC_WEIGHTS] = "weights",
        [RPC_KV_CACHE] = "kv_cache",
    };

    return names[domain];
}

struct service_actor rpc_actor(const struct rpc_connection *connection)
{
    return (struct service_actor){.file = connection->file, .caller = &connection->caller};
}

bool rpc_may_warn(struct rpc *rpc)
{
    return rpc->warnings++ < MAX_WARNINGS;
}

size_t rpc_count_unread(const struct rpc_connection *connection)
{
    return peer_count_unread(connection->watch.fd);
}

/* No message counts for less in its socket. A byte is left of one that is being read: the kernel
 * takes it off after it has told of that. */
#define LEAST_UNREAD_BYTES 256

bool rpc_has_unread(const struct rpc_connection *connection)
{
    return rpc_count_unread(connection) >= LEAST_UNREAD_BYTES;
}
