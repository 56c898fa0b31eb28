/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pools - budgets of stores, which pool a store is in, and whether it is pinned
 *
 * For front ends. All answer at once: 0 or a negative errno. Budgets are for administrators, by a
 * file that was opened for writing; pool and pin of a store for its owner as well (-EPERM).
 */
#ifndef GMSFS_SERVICE_POOLS_H
#define GMSFS_SERVICE_POOLS_H

#include "service/service.h"

struct service_budget {
    char name[CORE_POOL_NAME_BYTES];
    uint32_t flags; /* CORE_POOL_*: what is said, or that it is to go */
    uint64_t min_bytes, max_bytes, slots;
    enum pool_class class;
    uint32_t sm_percent;
};

/* Makes, changes or removes one. -EBADF, -EPERM; -ENOENT, -EBUSY: to be removed and not there, or
 * in use; -EINVAL; -ENOSPC: there are too many, or the device has less than all pools' min */
int service_set_pool(struct service *s, uint64_t file, const struct service_budget *wanted);
/* For who mounted and root; a pin for the store's owner, too. -EPERM; -ENOENT: there is no such
 * pool; -EDQUOT: it has no room for what the store uses */
int service_set_store_pool(struct service *s, uint64_t store, const char *pool,
                           const struct service_caller *caller);
int service_set_store_pin(struct service *s, uint64_t store, bool on,
                          const struct service_caller *caller);

#endif
