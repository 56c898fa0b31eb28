/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remap - unmaps everything, and maps it again at the same addresses
 *
 * For remap.c, which puts a handle to sleep and wakes it, and retarget.c, which wakes it with
 * another store's memory. Inside a scope of gfs_va_enter; only gfs_remap_acquire waits.
 */
#ifndef GMSFS_LIB_REMAP_H
#define GMSFS_LIB_REMAP_H

#include "internal.h"

/* How far the present layout has to equal the layout that was mapped. */
enum gfs_wake {
    GFS_WAKE_STRUCTURE, /* the hash */
    GFS_WAKE_BYTES,     /* store and generation too */
    GFS_WAKE_SHAPE,     /* checked by the caller: equal ranks take equal addresses */
};

/* Unmaps everything; continues after a failure, to give back as much as possible. */
int gfs_remap_unmap_all(struct gmsfs_store *handle);
/* Takes the reader's lock, with a ticket for the whole layout. */
int gfs_remap_acquire(struct gmsfs_store *handle, uint64_t timeout_ms, struct gfs_export *export);
/* With a lock: maps all preserved mappings, or none. export: of gfs_remap_acquire, or zeros. */
int gfs_remap_wake(struct gmsfs_store *handle, struct gfs_export *export, enum gfs_wake as);

#endif
