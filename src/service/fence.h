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

#define SERVICE_FENCE_TEXT_BYTES 96u

struct service_fence {
    bool is_up;
    uint8_t token[16]; /* where it is up */
};

void service_get_fence(const struct service *s, struct service_fence *fence);
/* It is up already: the same again. -EBUSY, -EINVAL: the stores are not fit for it, and `why` says
 * which and how, as GMS says it; -EACCES, -ENOENT, -ENOMEM */
int service_fence(struct service *s, const struct service_caller *caller,
                  struct service_fence *fence, char why[SERVICE_FENCE_TEXT_BYTES]);
/* complete, else abort. The same again succeeds. -EINVAL: another token is awaited; -ESTALE: none
 * is, or it ended otherwise; -EACCES */
int service_unfence(struct service *s, const struct service_caller *caller, const uint8_t token[16],
                    bool complete);

#endif
