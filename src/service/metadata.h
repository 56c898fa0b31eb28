/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metadata - entries of a writer's layout: one at a time, and whole documents
 *
 * For front ends. Errors of struct service_actor as in allocations.h.
 */
#ifndef GMSFS_SERVICE_METADATA_H
#define GMSFS_SERVICE_METADATA_H

#include "service/service.h"

/* Limits of one slice of a bulk document, between which other requests are served: entries, and
 * bytes of keys and values after which no further entry is taken. About 100 microseconds. */
#define SERVICE_APPLY_SLICE       1024u
#define SERVICE_APPLY_SLICE_BYTES (256u << 10)
#define SERVICE_MAX_BULK_BYTES    (1ull << 30)

struct service_entry {
    const void *key;
    size_t key_bytes;
    uint64_t slot; /* LAYOUT_UNBOUND, or of an allocation */
    uint64_t offset;
    const void *value;
    size_t value_bytes;
};

/* Returns true for an offset without an allocation, which must be 0. */
static inline bool service_entry_has_stray_offset(uint64_t slot, uint64_t offset)
{
    return slot == LAYOUT_UNBOUND && offset != 0;
}

/* A stray offset: -EINVAL, as with service_apply. */
int service_entry_put(struct service *s, const struct service_actor *by,
                      const struct service_entry *entry);
/* Binds an existing entry elsewhere. -ENOENT, -EINVAL: a stray offset */
int service_entry_bind(struct service *s, const struct service_actor *by, uint64_t serial,
                       uint64_t slot, uint64_t offset);
/* -ENOENT; a key that none can have: -EINVAL, -ENAMETOOLONG */
int service_entry_delete(struct service *s, const struct service_actor *by, const void *key,
                         size_t key_bytes);
/* flags: RENAME_NOREPLACE. -EEXIST, -EINVAL */
int service_entry_rename(struct service *s, const struct service_actor *by, uint64_t serial,
                         const void *key, size_t key_bytes, uint32_t flags);

/* ---- bytes that are gathered before they are applied -------------------------------------- */

/* Sets how many bytes are gathered for this file from now on: the front end keeps them, in memory
 * that others may share later. Only for a writer's file. -EDQUOT, -ENOMEM: a bound; 0 bytes never
 * fail. */
int service_gather(struct service *s, uint64_t file, uint64_t bytes);

/* Applies a bulk document (gmsfs(5)) in slices. The caller owns `document`, which must live until
 * done; it stays gathered, and charged, until then. answer: applied, culprit. */
int service_apply(struct service *s, const struct service_actor *by, const uint8_t *document,
                  size_t bytes, struct service_request *request);

#endif
