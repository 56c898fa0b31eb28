/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stores - making, removing and renaming stores, and their owners
 *
 * For front ends. All answer at once: 0 or a negative errno. Only administrators make and remove
 * stores (-EACCES), and the events name the caller's process; attributes change by the rules of
 * chmod(2) and chown(2) (-EPERM).
 */
#ifndef GMSFS_SERVICE_STORES_H
#define GMSFS_SERVICE_STORES_H

#include "service/service.h"

/* -EPERM: another file at the top of the tree has this name; -EEXIST, -EINVAL, -ENAMETOOLONG,
 * -ENOSPC */
int service_store_create(struct service *s, const char *name, const struct service_caller *caller,
                         uint32_t mode, uint64_t *id);
/* -EBUSY while it has sessions or waiters */
int service_store_remove(struct service *s, uint64_t store, const struct service_caller *caller);
/* Removes the store of this `ctl`, if its opener may, and the store has never had a commit.
 * -ENOTEMPTY; -EBUSY also while others have their `ctl` open; -EBADF, -EACCES, -ESTALE */
int service_store_remove_unused(struct service *s, uint64_t file);
/* flags as renameat2(2) */
int service_store_rename(struct service *s, uint64_t store, const char *name, uint32_t flags,
                         const struct service_caller *caller);

struct service_store_attr {
    uint32_t which; /* CORE_ATTR_* */
    uint32_t uid, gid, mode;
};

/* Marks the store as changed now: for users that may write to it. -EACCES */
int service_store_touch(struct service *s, uint64_t store, const struct service_caller *caller);
int service_store_set_attr(struct service *s, uint64_t store, const struct service_store_attr *attr,
                           const struct service_caller *caller);

#endif
