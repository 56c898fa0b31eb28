/* SPDX-License-Identifier: Apache-2.0 */
/* A line written to `pools`: refused, or a budget within bounds whose own line means the same. */
#include "fuzz.h"

#include "fs/pools_line.h"

#include <errno.h>
#include <inttypes.h>

static void check_budget(const struct service_budget *pool)
{
    must(core_is_pool_name(pool->name));
    must(pool->flags == CORE_POOL_REMOVE || !(pool->flags & CORE_POOL_REMOVE));
    must(pool->flags < 2 * CORE_POOL_REMOVE);
    must(pool->min_bytes <= INT64_MAX);
    must(pool->max_bytes <= INT64_MAX || pool->max_bytes == CORE_NO_LIMIT);
    must(pool->slots <= CORE_MOST_SLOTS);
    must(pool->class < POOL_CLASS_COUNT);
    must(pool->sm_percent <= 100);
}

static size_t write_out(const struct service_budget *pool, char *line, size_t room)
{
    size_t used = (size_t)snprintf(line, room, "%s", pool->name);

#define ADD(...) used += (size_t)snprintf(line + used, room - used, __VA_ARGS__)
    if (pool->flags == CORE_POOL_REMOVE)
        ADD(" -");
    if (pool->flags & CORE_POOL_MIN)
        ADD(" min=%" PRIu64, pool->min_bytes);
    if (pool->flags & CORE_POOL_MAX && pool->max_bytes == CORE_NO_LIMIT)
        ADD(" max=max");
    else if (pool->flags & CORE_POOL_MAX)
        ADD(" max=%" PRIu64, pool->max_bytes);
    if (pool->flags & CORE_POOL_SLOTS && pool->slots == 0)
        ADD(" slots=max");
    else if (pool->flags & CORE_POOL_SLOTS)
        ADD(" slots=%" PRIu64, pool->slots);
    if (pool->flags & CORE_POOL_CLASS)
        ADD(" class=%s", core_pool_class_name(pool->class));
    if (pool->flags & CORE_POOL_SM)
        ADD(" sm=%" PRIu32, pool->sm_percent);
#undef ADD
    return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct service_budget pool, again;
    char line[512];
    int error = pools_line_parse((const char *)data, size, &pool);

    must(error == 0 || error == -EINVAL || error == -ENODATA);
    if (error)
        return 0;
    check_budget(&pool);
    must(pools_line_parse(line, write_out(&pool, line, sizeof line), &again) == 0);
    must(memcmp(&pool, &again, sizeof pool) == 0);
    return 0;
}
