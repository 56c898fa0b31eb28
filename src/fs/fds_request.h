/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fds_request - decodes requests on the ticket socket
 *
 * Pure; called by fds.c, its unit test and its fuzz target. Checks bytes only: other files judge
 * tickets, rights to unmount, and names of regions.
 */
#ifndef GMSFS_FS_FDS_REQUEST_H
#define GMSFS_FS_FDS_REQUEST_H

#include "gmsfs_abi.h"

#include <stdbool.h>
#include <stddef.h>

/* Longest accepted messages: a newer client may append zeros up to here. */
#define FDS_REQUEST_MAX_BYTES (2 * sizeof(struct gmsfs_fds_request))
#define FDS_REGION_MAX_BYTES  (2 * sizeof(struct gmsfs_fds_region_request))

/* Decodes the part with which every request begins. `size` is the message's own, even if it is
 * above the maximum: the request is then refused without reading a byte. 0, -EINVAL */
int fds_request_decode(const void *bytes, size_t size, struct gmsfs_fds_request *request);
/* Returns true if the request is about regions. */
bool fds_request_is_region(const struct gmsfs_fds_request *request);
/* Decodes the whole of a request about regions, which fds_request_decode has accepted. Its texts
 * end within their fields, and their lengths are right. 0, -EINVAL */
int fds_region_decode(const void *bytes, size_t size, struct gmsfs_fds_region_request *request);

#endif
