/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fence - a checkpoint of the device: the stores `weights` and `kv_cache` are for nobody meanwhile
 *
 * For front ends. A checkpoint freezes the processes of a GPU and what they have mapped; the fence
 * sees to it that nobody maps anything meanwhile. It is put up when what is committed is all that
 * there is, and taken away by the token that it was given: by abort (there is no checkpoint) or
 * complete (the device is restored). Memory is not touched.
 *
 * Whoever may write both stores may do that; anybody may ask how it stands.
 */
#ifndef GMSFS_SERVICE_FENCE_H
#define GMSFS_SERVICE_FENCE_H

#include "service/service.h"

/* What keeps it from being put up, in the order in which GMS asks. */
enum service_obstacle {
    SERVICE_OBSTACLE_NONE,
    SERVICE_OBSTACLE_WEIGHTS_IN_USE,
    SERVICE_OBSTACLE_KV_CACHE_IN_USE,
    SERVICE_OBSTACLE_WEIGHTS_UNCOMMITTED,
    SERVICE_OBSTACLE_KV_CACHE_COMMITTED,
    SERVICE_OBSTACLE_WEIGHTS_EMPTY,
    SERVICE_OBSTACLE_KV_CACHE_SEALED,
};

struct service_fence {
    bool is_up;
    uint8_t token[16];              /* where it is up */
    enum service_obstacle obstacle; /* where that is why it was refused */
};

void service_get_fence(const struct service *s, struct service_fence *fence);
/* May this caller put it up and take it away? -EACCES */
int service_may_fence(const struct service *s, const struct service_caller *caller);
/* It is up already: the same again. -EBUSY, -EINVAL: the stores are not fit for it (what is still
 * being given back is in use), and the obstacle says why; -EACCES, -ENOENT: there are no weights;
 * -ENODEV: the mount is drained; -ENOMEM */
int service_fence(struct service *s, const struct service_caller *caller,
                  struct service_fence *fence);
/* As GMS says it; "" of none. */
const char *service_obstacle_text(enum service_obstacle obstacle);
/* complete, else abort. The same again succeeds. -EINVAL: another token is awaited; -ESTALE: none
 * is, or it ended otherwise; -EACCES */
int service_unfence(struct service *s, const struct service_caller *caller, const uint8_t token[16],
                    bool complete);

#endif
