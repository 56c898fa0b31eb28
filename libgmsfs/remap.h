/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remap - mappings that go, and come back at their addresses
 *
 * For remap.c, which puts a handle to sleep and wakes it, and retarget.c, which wakes it with
 * another store's memory. Inside a scope of gfs_va_enter; it never waits but in gfs_remap_acquire.
 */
#ifndef GMSFS_LIB_REMAP_H
#define GMSFS_LIB_REMAP_H

#include "internal.h"

/* What the layout that is there has to have in common with the one that was mapped. */
enum gfs_wake {
    GFS_WAKE_STRUCTURE, /* the hash */
    GFS_WAKE_BYTES,     /* store and generation too */
    GFS_WAKE_SHAPE,     /* the caller has seen to it: what has one rank takes one address */
};

/* Goes on after a failure: what can be given back is. */
int gfs_remap_unmap_all(struct gmsfs_store *handle);
/* The reader's lock, with a ticket for all that is in the layout. */
int gfs_remap_acquire(struct gmsfs_store *handle, uint64_t timeout_ms, struct gfs_export *export);
/* With a lock: maps all that is preserved, or nothing. export: of gfs_remap_acquire, or zeros. */
int gfs_remap_wake(struct gmsfs_store *handle, struct gfs_export *export, enum gfs_wake as);

#endif
