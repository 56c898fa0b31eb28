/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pools - budgets of stores, the pool of a store, and whether it is pinned
 *
 * For front ends. All answer at once: 0 or a negative errno. Administrators set budgets and a
 * store's pool, budgets by a file that is open for writing; the store's owner may pin it as well
 * (-EPERM).
 */
#ifndef GMSFS_SERVICE_POOLS_H
#define GMSFS_SERVICE_POOLS_H

#include "service/service.h"

struct service_budget {
    char name[CORE_POOL_NAME_BYTES];
    uint32_t flags; /* CORE_POOL_*: which values are set, or a removal */
    uint64_t min_bytes, max_bytes, slots;
    enum pool_class class;
    uint32_t sm_percent;
};

/* Makes, changes or removes a pool. -EBADF, -EPERM; -ENOENT, -EBUSY: to be removed, and not there
 * or in use; -EINVAL; -ENOSPC: there are too many, or the device is smaller than the guaranteed
 * bytes (min=) of all pools */
int service_set_pool(struct service *s, uint64_t file, const struct service_budget *wanted);
/* Puts the store into a pool: for administrators. service_set_store_pin: for the store's owner,
 * too. -EPERM; -ENOENT: there is no such pool; -EDQUOT: it has no room for the store's memory */
int service_set_store_pool(struct service *s, uint64_t store, const char *pool,
                           const struct service_caller *caller);
int service_set_store_pin(struct service *s, uint64_t store, bool on,
                          const struct service_caller *caller);

#endif
