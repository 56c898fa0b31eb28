/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list - allocations of a layout, packed into the answer of LIST
 *
 * Pure; called by ioctl.c, its unit test and a fuzz target. Which layout the caller sees, and
 * whether an earlier page was of the same, is for others.
 */
#ifndef GMSFS_FS_LIST_H
#define GMSFS_FS_LIST_H

#include "gmsfs_abi.h"
#include "meta/layout.h"

#include <stddef.h>

/* list: first, flags (checked) and count in; all but `layout` and `first` out. room: bytes of the
 * whole answer that the caller takes. -EFBIG: there is something to tell, and not even one fits. */
int list_pack(const struct layout *layout, struct gmsfs_ioc_list *list, size_t room);

#endif
