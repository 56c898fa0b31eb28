/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry - the regions of a mount, for the front end of Triton clients
 *
 * The only header through which src/triton knows the mount. The opener registers, lists and takes
 * references; the process that serves clients reads and writes through references that the opener
 * passed to it. Functions return 0 or a negative errno, and block as libgmsfs does.
 */
#ifndef GMSFS_TRITON_REGISTRY_H
#define GMSFS_TRITON_REGISTRY_H

#include <gmsfs_region.h>

/* ---- the opener's ---------------------------------------------------------------------------- */

struct registry;

int registry_open(const char *mount, struct registry **registry);
void registry_close(struct registry *registry); /* NULL is fine */
/* Returns 0 if the mount answers. */
int registry_ping(struct registry *registry);
int registry_register(struct registry *registry, const struct gmsfs_region_request *request,
                      enum gmsfs_region_reason *reason);
/* name: NULL for all of this kind. No error if there are none. */
int registry_unregister(struct registry *registry, uint32_t uid, enum gmsfs_region_kind kind,
                        const char *name);
/* name: NULL for all of this kind, sorted by name. The caller frees the list; NULL if it is
 * empty. */
int registry_list(struct registry *registry, uint32_t uid, enum gmsfs_region_kind kind,
                  const char *name, struct gmsfs_region_info **list, size_t *count,
                  enum gmsfs_region_reason *reason);
/* Takes a reference: `file` keeps it, fd is its memory (-1: none). The caller sends and closes
 * both. */
int registry_hold(struct registry *registry, uint32_t uid, const char *name,
                  struct gmsfs_region_info *info, int *file, int *fd,
                  enum gmsfs_region_reason *reason);

/* ---- the server's ---------------------------------------------------------------------------- */

struct registry_reference;

/* On failure the caller still owns the descriptors. For a CUDA region fd is a lease
 * (cuda_lease.h). */
int registry_attach(int file, int fd, const struct gmsfs_region_info *info,
                    struct registry_reference **reference);
int registry_check(const struct registry_reference *reference, uint64_t offset, uint64_t size_bytes,
                   enum gmsfs_region_reason *reason);
int registry_read(struct registry_reference *reference, uint64_t offset, void *bytes,
                  size_t size_bytes, enum gmsfs_region_reason *reason);
int registry_write(struct registry_reference *reference, uint64_t offset, const void *bytes,
                   size_t size_bytes, enum gmsfs_region_reason *reason);
void registry_drop(struct registry_reference *reference); /* NULL is fine */

#endif
