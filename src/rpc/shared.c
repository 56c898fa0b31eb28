/* SPDX-License-Identifier: Apache-2.0 */
/* What all files of src/rpc use: names, the time, how much is said. */
#include "rpc/rpc_internal.h"

#include <time.h>

#define MAX_WARNINGS 10u /* between two ticks */

const char *rpc_domain_name(enum rpc_domain domain)
{
    static const char *const names[RPC_DOMAIN_COUNT] = {
        [RPC_WEIGHTS] = "weights",
        [RPC_KV_CACHE] = "kv_cache",
    };

    return names[domain];
}

uint64_t rpc_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

bool rpc_may_warn(struct rpc *rpc)
{
    return rpc->warnings++ < MAX_WARNINGS;
}
