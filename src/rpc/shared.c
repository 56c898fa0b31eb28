/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers that all files of src/rpc use: names, warnings, unread bytes. */
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

/* Each message counts for at least this in its socket. A message that is being read may leave one
 * byte: the kernel announces the read before it takes the message off. */
#define LEAST_UNREAD_BYTES 256

bool rpc_has_unread(const struct rpc_connection *connection)
{
    return rpc_count_unread(connection) >= LEAST_UNREAD_BYTES;
}
