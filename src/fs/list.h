/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list - allocations of a layout, packed into the answer of LIST
 *
 * Pure; called by ioctl.c, its unit test and a fuzz target. Other files choose the layout that the
 * caller sees, and check that an earlier page was of the same one.
 */
#ifndef GMSFS_FS_LIST_H
#define GMSFS_FS_LIST_H

#include "gmsfs_abi.h"
#include "meta/layout.h"

#include <stddef.h>

/* list: first, flags (checked) and count are read; all but `layout` and `first` are written. room:
 * the size of the caller's buffer for the whole answer. -EFBIG: not even one item fits. */
int list_pack(const struct layout *layout, struct gmsfs_ioc_list *list, size_t room);

#endif
