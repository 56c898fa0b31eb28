/* SPDX-License-Identifier: Apache-2.0 */
/* What all files of src/rpc use: names, and how much is said. */
#include "rpc/rpc_internal.h"

#include "base/clock.h"

#define MAX_WARNINGS 10u /* between two ticks */

const char *rpc_domain_name(enum rpc_domain domain)
{
    static const char *const names[RPC_DOMAIN_COUNT] = {
        [RPC_WEIGHTS] = "weights",
        [RPC_KV_CACHE] = "kv_cache",
    };

    return names[domain];
}

bool rpc_may_warn(struct rpc *rpc)
{
    return rpc->warnings++ < MAX_WARNINGS;
}
