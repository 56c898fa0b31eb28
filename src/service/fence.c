/* SPDX-License-Identifier: Apache-2.0 */
#include "service/fence.h"

#include "service/parked.h"
#include "service/rights.h"

#include <errno.h>
#include <string.h>

static const char *const domains[] = {"weights", "kv_cache"};

void service_get_fence(const struct service *s, struct service_fence *fence)
{
    *fence = (struct service_fence){.is_up = s->core->fence.is_up};
    if (fence->is_up)
        memcpy(fence->token, s->core->fence.token, sizeof fence->token);
}

int service_may_fence(const struct service *s, const struct service_caller *caller)
{
    for (size_t i = 0; i < 2; i++) {
        const struct core_store *store = core_find_store_name(s->core, domains[i]);
        int error = store ? service_check_right(s, store->id, caller, SERVICE_WRITE) : 0;

        if (error)
            return error;
    }
    return 0;
}

/* Returns true if the store has a session, also one that ends after its transfers, or memory that
 * is being freed: the device still has it, and a checkpoint would save it. */
static bool is_in_use(const struct service *s, const struct core_store *store)
{
    return store && (!core_is_idle(s->core, store) || piece_is_freed_of(s, store->id));
}

static enum service_obstacle find_obstacle(const struct service *s,
                                           const struct core_store *weights,
                                           const struct core_store *kv)
{
    if (is_in_use(s, weights))
        return SERVICE_OBSTACLE_WEIGHTS_IN_USE;
    if (is_in_use(s, kv))
        return SERVICE_OBSTACLE_KV_CACHE_IN_USE;
    if (!weights->lock.committed)
        return SERVICE_OBSTACLE_WEIGHTS_UNCOMMITTED;
    if (kv && kv->lock.committed)
        return SERVICE_OBSTACLE_KV_CACHE_COMMITTED;
    if (layout_count_allocations(weights->fixed) == 0)
        return SERVICE_OBSTACLE_WEIGHTS_EMPTY;
    /* Sealed bytes would be lost, or a restored process would write them. */
    return kv && kv->fixed ? SERVICE_OBSTACLE_KV_CACHE_SEALED : SERVICE_OBSTACLE_NONE;
}

const char *service_obstacle_text(enum service_obstacle obstacle)
{
    static const char *const texts[] = {
        [SERVICE_OBSTACLE_NONE] = "",
        [SERVICE_OBSTACLE_WEIGHTS_IN_USE] = "weights has active or waiting sessions",
        [SERVICE_OBSTACLE_KV_CACHE_IN_USE] = "kv_cache has active or waiting sessions",
        [SERVICE_OBSTACLE_WEIGHTS_UNCOMMITTED] = "weights must be committed before checkpoint",
        [SERVICE_OBSTACLE_KV_CACHE_COMMITTED] = "kv_cache must not be committed before checkpoint",
        [SERVICE_OBSTACLE_WEIGHTS_EMPTY] = "weights must contain committed allocations",
        [SERVICE_OBSTACLE_KV_CACHE_SEALED] = "kv_cache must be empty before checkpoint",
    };

    return texts[obstacle];
}

static int obstacle_error(enum service_obstacle obstacle)
{
    switch (obstacle) {
    case SERVICE_OBSTACLE_NONE:
        return 0;
    case SERVICE_OBSTACLE_WEIGHTS_IN_USE:
    case SERVICE_OBSTACLE_KV_CACHE_IN_USE:
        return -EBUSY;
    default:
        return -EINVAL;
    }
}

/* Makes the token a UUID of version 4, for it is shown as one. */
static void mark_version_4(uint8_t bytes[16])
{
    bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x40);
    bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80);
}

static int raise_fence(struct service *s, const struct service_caller *caller)
{
    struct record record = {.type = RECORD_FENCE,
                            .flags = CORE_FENCE_ON,
                            .name = domains[0],
                            .name_bytes = strlen(domains[0]),
                            .tag = domains[1],
                            .tag_bytes = strlen(domains[1]),
                            .process = service_caller_process(caller),
                            .uid = caller->uid};
    int error = s->host.get_random(s->host.context, record.bytes16, sizeof record.bytes16);

    mark_version_4(record.bytes16);
    return error ? error : service_apply_record(s, &record, NULL);
}

int service_fence(struct service *s, const struct service_caller *caller,
                  struct service_fence *fence)
{
    const struct core_store *weights = core_find_store_name(s->core, domains[0]),
                            *kv = core_find_store_name(s->core, domains[1]);
    int error = weights ? service_may_fence(s, caller) : -ENOENT;

    *fence = (struct service_fence){0};
    if (!error && s->core->draining)
        error = -ENODEV;
    if (!error && !s->core->fence.is_up) {
        fence->obstacle = find_obstacle(s, weights, kv);
        error = obstacle_error(fence->obstacle);
        if (!error)
            error = raise_fence(s, caller);
    }
    if (!error)
        service_get_fence(s, fence);
    return error;
}

int service_unfence(struct service *s, const struct service_caller *caller, const uint8_t token[16],
                    bool complete)
{
    struct record record = {.type = RECORD_FENCE,
                            .flags = complete ? CORE_FENCE_COMPLETE : CORE_FENCE_ABORT,
                            .process = service_caller_process(caller),
                            .uid = caller->uid};
    int error = service_may_fence(s, caller);

    if (error)
        return error;
    memcpy(record.bytes16, token, sizeof record.bytes16);
    return service_apply_record(s, &record, NULL);
}
