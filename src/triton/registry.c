/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/registry.h"

#include "triton/cuda_lease.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct registry {
    char *mount;
    gmsfs_regions_t *regions; /* NULL: the mount was gone; the next call tries to open it again */
};

struct registry_reference {
    gmsfs_region_t *region;
    int lease; /* for CUDA memory; -1: none */
};

/* A caller asks for its own regions as SELF: only root may name a user. */
static uint32_t as_owner(uint32_t uid)
{
    return uid == geteuid() ? GMSFS_REGION_SELF : uid;
}

int registry_open(const char *mount, struct registry **registry)
{
    struct registry *new = calloc(1, sizeof *new);
    int error = -ENOMEM;

    if (new)
        new->mount = strdup(mount);
    if (new &&new->mount)
        error = gmsfs_regions_open(mount, &new->regions);
    if (error) {
        registry_close(new);
        return error;
    }
    *registry = new;
    return 0;
}

void registry_close(struct registry *registry)
{
    if (!registry)
        return;
    gmsfs_regions_close(registry->regions);
    free(registry->mount);
    free(registry);
}

/* Closes a mount that is gone, so that another mount can take its place. */
static int judge(struct registry *registry, int error)
{
    static const int gone[] = {ENOTCONN, ECONNABORTED, ECONNREFUSED, ECONNRESET,
                               EPIPE,    ESTALE,       ENOTTY};

    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        if (error != -gone[i])
            continue;
        gmsfs_regions_close(registry->regions);
        registry->regions = NULL;
    }
    return error;
}

static int reach(struct registry *registry)
{
    return registry->regions ? 0 : gmsfs_regions_open(registry->mount, &registry->regions);
}

int registry_ping(struct registry *registry)
{
    struct gmsfs_region_info info;
    int error = reach(registry);

    if (!error)
        error = judge(registry, gmsfs_region_get(registry->regions, GMSFS_REGION_SELF,
                                                 GMSFS_REGION_ANY, "ping", &info));
    return error == -ENOENT && registry->regions ? 0 : error;
}

int registry_register(struct registry *registry, const struct gmsfs_region_request *request,
                      enum gmsfs_region_reason *reason)
{
    struct gmsfs_region_request own = *request;
    int error = reach(registry);

    own.uid = as_owner(request->uid);
    return error ? error : judge(registry, gmsfs_region_register(registry->regions, &own, reason));
}

int registry_unregister(struct registry *registry, uint32_t uid, enum gmsfs_region_kind kind,
                        const char *name)
{
    int error = reach(registry);

    if (error)
        return error;
    if (!name)
        return judge(registry,
                     gmsfs_region_unregister_all(registry->regions, as_owner(uid), kind, NULL));
    error = judge(registry, gmsfs_region_unregister(registry->regions, as_owner(uid), kind, name));
    return error == -ENOENT ? 0 : error;
}

static int list_one(struct registry *registry, uint32_t uid, enum gmsfs_region_kind kind,
                    const char *name, struct gmsfs_region_info **list, size_t *count,
                    enum gmsfs_region_reason *reason)
{
    struct gmsfs_region_info *info = malloc(sizeof *info);
    int error =
        info ? gmsfs_region_get(registry->regions, as_owner(uid), kind, name, info) : -ENOMEM;

    if (error) {
        free(info);
        if (error == -ENOENT)
            *reason = GMSFS_REGION_UNKNOWN;
        return judge(registry, error);
    }
    *list = info;
    *count = 1;
    return 0;
}

static int list_all(struct registry *registry, uint32_t uid, enum gmsfs_region_kind kind,
                    struct gmsfs_region_info **list, size_t *count)
{
    struct gmsfs_region_info *all;
    int error = gmsfs_region_list(registry->regions, as_owner(uid), kind, &all, count);

    if (error || *count == 0)
        return judge(registry, error);
    *list = malloc(*count * sizeof **list);
    if (*list)
        memcpy(*list, all, *count * sizeof **list);
    gmsfs_region_list_free(all);
    return *list ? 0 : -ENOMEM;
}

int registry_list(struct registry *registry, uint32_t uid, enum gmsfs_region_kind kind,
                  const char *name, struct gmsfs_region_info **list, size_t *count,
                  enum gmsfs_region_reason *reason)
{
    int error = reach(registry);

    *list = NULL;
    *count = 0;
    if (error)
        return error;
    return name ? list_one(registry, uid, kind, name, list, count, reason)
                : list_all(registry, uid, kind, list, count);
}

int registry_hold(struct registry *registry, uint32_t uid, const char *name,
                  struct gmsfs_region_info *info, int *file, int *fd,
                  enum gmsfs_region_reason *reason)
{
    gmsfs_region_t *region;
    int error = reach(registry);

    if (!error)
        error = judge(registry,
                      gmsfs_region_open(registry->regions, as_owner(uid), name, &region, reason));
    if (error)
        return error;
    *info = *gmsfs_region_info(region);
    error = gmsfs_region_detach(region, file, fd);
    if (error)
        gmsfs_region_close(region);
    return error;
}

int registry_attach(int file, int fd, const struct gmsfs_region_info *info,
                    struct registry_reference **reference)
{
    struct registry_reference *new = calloc(1, sizeof *new);
    bool is_cuda = info->kind == GMSFS_REGION_CUDA;
    int error = new ? gmsfs_region_attach(file, is_cuda ? -1 : fd, info, &new->region) : -ENOMEM;

    if (error) {
        free(new);
        return error;
    }
    new->lease = is_cuda ? fd : -1;
    *reference = new;
    return 0;
}

int registry_check(const struct registry_reference *reference, uint64_t offset, uint64_t size_bytes,
                   enum gmsfs_region_reason *reason)
{
    return gmsfs_region_check(gmsfs_region_info(reference->region), offset, size_bytes, reason);
}

/* Returns the offset in the memory that the region is a part of. */
static uint64_t find_place(const struct registry_reference *reference, uint64_t offset)
{
    return gmsfs_region_info(reference->region)->offset + offset;
}

int registry_read(struct registry_reference *reference, uint64_t offset, void *bytes,
                  size_t size_bytes, enum gmsfs_region_reason *reason)
{
    int error;

    if (reference->lease >= 0) {
        error = registry_check(reference, offset, size_bytes, reason);
        return error ? error
                     : cuda_lease_read(reference->lease, find_place(reference, offset), bytes,
                                       size_bytes);
    }
    return gmsfs_region_read(reference->region, offset, bytes, size_bytes, reason);
}

int registry_write(struct registry_reference *reference, uint64_t offset, const void *bytes,
                   size_t size_bytes, enum gmsfs_region_reason *reason)
{
    int error;

    if (reference->lease >= 0) {
        error = registry_check(reference, offset, size_bytes, reason);
        return error ? error
                     : cuda_lease_write(reference->lease, find_place(reference, offset), bytes,
                                        size_bytes);
    }
    return gmsfs_region_write(reference->region, offset, bytes, size_bytes, reason);
}

void registry_drop(struct registry_reference *reference)
{
    if (!reference)
        return;
    if (reference->lease >= 0)
        close(reference->lease);
    gmsfs_region_close(reference->region);
    free(reference);
}
