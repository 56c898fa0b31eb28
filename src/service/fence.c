/* SPDX-License-Identifier: Apache-2.0 */
#include "service/fence.h"

#include "service/rights.h"
#include "service/service_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const domains[] = {"weights", "kv_cache"};

static const struct core_store *find(const struct service *s, const char *name)
{
    return core_find_store_name(s->core, name);
}

void service_get_fence(const struct service *s, struct service_fence *fence)
{
    *fence = (struct service_fence){.is_up = s->core->fence.is_up};
    if (fence->is_up)
        memcpy(fence->token, s->core->fence.token, sizeof fence->token);
}

static int check_caller(const struct service *s, const struct service_caller *caller)
{
    for (size_t i = 0; i < 2; i++) {
        const struct core_store *store = find(s, domains[i]);
        int error = store ? service_check_right(s, store->id, caller, SERVICE_WRITE) : 0;

        if (error)
            return error;
    }
    return 0;
}

/* In the order in which GMS asks. A session whose transfers still run is one. */
static bool is_used(const struct service *s, const struct core_store *store)
{
    return store && !core_is_idle(s->core, store);
}

static const char *find_contents(const struct core_store *weights, const struct core_store *kv)
{
    if (!weights->lock.committed)
        return "weights must be committed before checkpoint";
    if (kv && kv->lock.committed)
        return "kv_cache must not be committed before checkpoint";
    if (layout_count_allocations(weights->fixed) == 0)
        return "weights must contain committed allocations";
    /* What is sealed would be lost, or written by whoever is restored. */
    return kv && kv->fixed ? "kv_cache must be empty before checkpoint" : NULL;
}

static int check_stores(const struct service *s, const struct core_store *weights,
                        const struct core_store *kv, char why[SERVICE_FENCE_TEXT_BYTES])
{
    const char *contents;

    if (is_used(s, weights) || is_used(s, kv)) {
        snprintf(why, SERVICE_FENCE_TEXT_BYTES, "%s has active or waiting sessions",
                 is_used(s, weights) ? "weights" : "kv_cache");
        return -EBUSY;
    }
    contents = find_contents(weights, kv);
    snprintf(why, SERVICE_FENCE_TEXT_BYTES, "%s", contents ? contents : "");
    return contents ? -EINVAL : 0;
}

/* The token is a UUID, and is written as one. */
static void mark_version_4(uint8_t bytes[16])
{
    bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x40);
    bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80);
}

int service_fence(struct service *s, const struct service_caller *caller,
                  struct service_fence *fence, char why[SERVICE_FENCE_TEXT_BYTES])
{
    const struct core_store *weights = find(s, domains[0]), *kv = find(s, domains[1]);
    struct record record = {.type = RECORD_FENCE,
                            .flags = CORE_FENCE_ON,
                            .name = domains[0],
                            .name_bytes = strlen(domains[0]),
                            .tag = domains[1],
                            .tag_bytes = strlen(domains[1])};
    int error = weights ? check_caller(s, caller) : -ENOENT;

    why[0] = '\0';
    if (error)
        return error;
    if (!s->core->fence.is_up) {
        error = check_stores(s, weights, kv, why);
        if (error)
            return error;
        record.process = service_caller_process(caller);
        record.uid = caller->uid;
        error = s->host.get_random(s->host.context, record.bytes16, sizeof record.bytes16);
        mark_version_4(record.bytes16);
        if (!error)
            error = service_apply_record(s, &record, NULL);
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
    int error = check_caller(s, caller);

    if (error)
        return error;
    memcpy(record.bytes16, token, sizeof record.bytes16);
    return service_apply_record(s, &record, NULL);
}
