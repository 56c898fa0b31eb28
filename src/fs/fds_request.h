/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fds_request - what a client may say on the ticket socket
 *
 * Pure; called by fds.c, its unit test and its fuzz target. Looks at bytes only: whether the ticket
 * is good, who may unmount, and what a region may be called is for others.
 */
#ifndef GMSFS_FS_FDS_REQUEST_H
#define GMSFS_FS_FDS_REQUEST_H

#include "gmsfs_abi.h"

#include <stdbool.h>
#include <stddef.h>

/* What a newer client may append, zeros only, is taken up to here. */
#define FDS_REQUEST_MAX_BYTES (2 * sizeof(struct gmsfs_fds_request))
#define FDS_REGION_MAX_BYTES  (2 * sizeof(struct gmsfs_fds_region_request))

/* Any request begins as this one. `size` is the message's own, also where that is more than the
 * maximum: then it is only refused, and no byte is read. 0, -EINVAL */
int fds_request_decode(const void *bytes, size_t size, struct gmsfs_fds_request *request);
/* Is it one of those about regions? */
bool fds_request_is_region(const struct gmsfs_fds_request *request);
/* The whole of such a one, which fds_request_decode has taken. Its texts end in their rooms, and
 * their lengths are as long as they are. 0, -EINVAL */
int fds_region_decode(const void *bytes, size_t size, struct gmsfs_fds_region_request *request);

#endif
