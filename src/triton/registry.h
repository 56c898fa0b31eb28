/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry - the regions of a mount, as the front end for Triton clients reaches them
 *
 * The one header through which src/triton knows the mount. The opener registers, looks and takes
 * references; the process that serves clients reads and writes through references that it was
 * handed. Functions return 0 or a negative errno, and block as libgmsfs does.
 */
#ifndef GMSFS_TRITON_REGISTRY_H
#define GMSFS_TRITON_REGISTRY_H

#include <gmsfs_region.h>

/* ---- the opener's ---------------------------------------------------------------------------- */

struct registry;

int registry_open(const char *mount, struct registry **registry);
void registry_close(struct registry *registry); /* NULL is fine */
/* Whether the mount answers. */
int registry_ping(struct registry *registry);
int registry_register(struct registry *registry, const struct gmsfs_region_request *request,
                      enum gmsfs_region_reason *reason);
/* name: NULL for all of this kind. None is no error. */
int registry_unregister(struct registry *registry, uint32_t uid, enum gmsfs_region_kind kind,
                        const char *name);
/* name: NULL for all of this kind, by name. The caller frees the list; NULL where there are none.
 */
int registry_list(struct registry *registry, uint32_t uid, enum gmsfs_region_kind kind,
                  const char *name, struct gmsfs_region_info **list, size_t *count,
                  enum gmsfs_region_reason *reason);
/* Takes a reference. `file` is what holds it, fd its memory (-1: none): to be sent and closed. */
int registry_hold(struct registry *registry, uint32_t uid, const char *name,
                  struct gmsfs_region_info *info, int *file, int *fd,
                  enum gmsfs_region_reason *reason);

/* ---- the server's ---------------------------------------------------------------------------- */

struct registry_reference;

/* On failure the descriptors stay the caller's. Of a CUDA region fd is a lease (cuda_lease.h). */
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
