/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout - a committed layout decoded from the bytes of the file `layout`
 *
 * Pure but for reading it. Used by gmsfs_read_layout, gmsfs_retarget, and by tests/unit.
 */
#ifndef GMSFS_LIB_LAYOUT_H
#define GMSFS_LIB_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "gmsfs.h"

/* Takes `bytes` (from malloc) in any case: values point into them. -EPROTO: not a layout. The
 * result has no hash yet; free it by gmsfs_free_layout. */
int gfs_layout_decode(uint8_t *bytes, size_t size_bytes, struct gmsfs_layout **layout);

/* gmsfs_read_layout, inside op. */
int gfs_layout_read(struct gmsfs_store *handle, struct gmsfs_layout **layout);

#endif
