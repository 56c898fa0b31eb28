/* SPDX-License-Identifier: Apache-2.0 */
/*
 * payload - the argument of an ioctl, across versions of the ABI
 *
 * Pure; called by ioctl.c and its test. An argument shorter than this daemon's is extended by
 * zeros, a longer one must end in zeros. A command is found by its number alone: its direction and
 * size bits may differ between versions. The checks judge the argument alone; the rights of the
 * session are checked elsewhere.
 */
#ifndef GMSFS_FS_PAYLOAD_H
#define GMSFS_FS_PAYLOAD_H

#include "gmsfs_abi.h"

#include <stdbool.h>
#include <stddef.h>

#define PAYLOAD_MAX_BYTES 16383u

/* `out` has `known` bytes. 0, -E2BIG */
int payload_decode(const void *in, size_t in_bytes, void *out, size_t known);
/* Returns the number of a command of type 'G'; 0: it is of another type. */
unsigned payload_get_number(unsigned command);

/* -EINVAL, -EOPNOTSUPP; -EBADF: the handle is not open that way */
int payload_check_acquire(const struct gmsfs_ioc_acquire *acquire, bool readable, bool writable);
/* -EINVAL, -EOPNOTSUPP. After 0 tag and name are terminated. */
int payload_check_alloc(const struct gmsfs_ioc_alloc *alloc);
/* -EINVAL. After 0 the tags and names of `count` are terminated. */
int payload_check_alloc_each(const struct gmsfs_ioc_alloc_each *alloc);
/* -EINVAL */
int payload_check_commit(const struct gmsfs_ioc_commit *commit);
/* -EINVAL, -ENAMETOOLONG. After 0 the key, and the value if there is one, lie within `data`. */
int payload_check_metadata(const struct gmsfs_ioc_metadata *metadata, bool has_value);
/* -EINVAL */
int payload_check_region(const struct gmsfs_ioc_region *region);
/* -EINVAL */
int payload_check_list(const struct gmsfs_ioc_list *list);

#endif
