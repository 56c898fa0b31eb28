/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fence - closes the stores `weights` and `kv_cache` during a checkpoint of the device
 *
 * For front ends. A checkpoint freezes the processes of a GPU and their mappings; while the fence
 * is up no process can map memory of these stores. It can be put up when there is no memory but
 * committed memory, and is taken away with the token that it returned: by abort (there is no
 * checkpoint) or complete (the device is restored). Memory is not touched.
 *
 * A user that may write both stores may put it up and take it away; every user may ask for its
 * state.
 */
#ifndef GMSFS_SERVICE_FENCE_H
#define GMSFS_SERVICE_FENCE_H

#include "service/service.h"

/* Why the fence was not put up, in the order in which GMS asks. */
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
    uint8_t token[16];              /* if it is up */
    enum service_obstacle obstacle; /* if that is why it was refused */
};

void service_get_fence(const struct service *s, struct service_fence *fence);
/* Checks whether this caller may put it up and take it away. -EACCES */
int service_may_fence(const struct service *s, const struct service_caller *caller);
/* Puts the fence up; returns the same again if it is up. -EBUSY, -EINVAL: the obstacle tells why
 * the stores are not fit (memory that is being freed is in use); -EACCES, -ENOENT: there are no
 * weights; -ENODEV: the mount is drained; -ENOMEM */
int service_fence(struct service *s, const struct service_caller *caller,
                  struct service_fence *fence);
/* Returns the text that GMS has for it; "" for none. */
const char *service_obstacle_text(enum service_obstacle obstacle);
/* Takes the fence away: complete, else abort. The same again succeeds. -EINVAL: another token;
 * -ESTALE: there is no fence, or it ended otherwise; -EACCES */
int service_unfence(struct service *s, const struct service_caller *caller, const uint8_t token[16],
                    bool complete);

#endif
