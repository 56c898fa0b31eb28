/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/drains.h"

#include "base/scope.h"

#include <stdlib.h>

struct drain {
    uint64_t id;            /* first for idvec; the region's */
    uint64_t registered_ms; /* tells apart regions of two mounts with the same number */
    uint64_t end_ms;
    uint32_t uid;
    bool is_over, is_there;
};

void drains_free(struct drains *drains)
{
    idvec_free_items(&drains->items);
}

static struct drain *find(const struct drains *drains, const struct gmsfs_region_info *info)
{
    struct drain *drain = idvec_find(&drains->items, info->id);

    return drain && drain->registered_ms == info->registered_ms ? drain : NULL;
}

static void note(struct drains *drains, const struct gmsfs_region_info *info, uint64_t now_ms)
{
    struct drain *drain = calloc(1, sizeof *drain);

    free(idvec_remove(&drains->items, info->id));
    if (!drain)
        return;
    *drain = (struct drain){.id = info->id,
                            .registered_ms = info->registered_ms,
                            .end_ms = now_ms + drains->limit_ms,
                            .uid = info->uid};
    if (idvec_insert(&drains->items, drain) != 0)
        free(drain);
}

void drains_note(struct drains *drains, const struct gmsfs_region_info *list, size_t count,
                 uint64_t now_ms)
{
    for (size_t i = 0; i < count && drains->limit_ms != DRAINS_FOREVER; i++) {
        if (list[i].flags & GMSFS_REGION_DRAINING && !find(drains, &list[i]))
            note(drains, &list[i], now_ms);
    }
}

bool drains_is_over(const struct drains *drains, const struct gmsfs_region_info *info)
{
    const struct drain *drain = find(drains, info);

    return drain && drain->is_over;
}

int drains_get_wait_ms(const struct drains *drains, uint64_t now_ms)
{
    int wait_ms = -1;

    for (size_t i = 0; i < drains->items.count; i++) {
        const struct drain *drain = drains->items.items[i];
        uint64_t left_ms = drain->end_ms > now_ms ? drain->end_ms - now_ms : 0;
        if (!drain->is_over && (wait_ms < 0 || left_ms < (uint64_t)wait_ms))
            wait_ms = left_ms < INT32_MAX ? (int)left_ms : INT32_MAX;
    }
    return wait_ms;
}

bool drains_take_over(struct drains *drains, uint64_t now_ms, uint64_t *region)
{
    for (size_t i = 0; i < drains->items.count; i++) {
        struct drain *drain = drains->items.items[i];
        if (drain->is_over || now_ms < drain->end_ms)
            continue;
        drain->is_over = true;
        *region = drain->id;
        return true;
    }
    return false;
}

/* ---- regions that are gone ------------------------------------------------------------------- */

static void mark(struct drains *drains, struct registry *registry, uint32_t uid)
{
    SCOPED_FREE struct gmsfs_region_info *list = NULL;
    enum gmsfs_region_reason reason;
    size_t count = 0;

    registry_list(registry, uid, GMSFS_REGION_ANY, NULL, &list, &count, &reason);
    for (size_t i = 0; i < count; i++) {
        struct drain *drain = find(drains, &list[i]);
        if (drain)
            drain->is_there = true;
    }
}

static bool take_gone(void *item, void *context)
{
    struct drain *drain = item;
    bool is_gone = !drain->is_there;

    (void)context;
    drain->is_there = false;
    if (is_gone)
        free(drain);
    return is_gone;
}

void drains_look(struct drains *drains, struct registry *registry)
{
    for (size_t i = 0; i < drains->items.count; i++) {
        const struct drain *drain = drains->items.items[i];
        if (!drain->is_there) /* its user's regions have not been listed yet */
            mark(drains, registry, drain->uid);
    }
    idvec_remove_if(&drains->items, take_gone, NULL);
}
