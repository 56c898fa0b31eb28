/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory - the memory of a mount as this process maps it: addresses, mappings, rights
 *
 * Host memory and GPU memory differ by one table of functions (struct gfs_memory_kind), chosen by
 * gfs_memory_find_kind. The rest of the library, which knows only descriptors, addresses and bytes,
 * uses them through the calls below. The kind and the device come from the mount. A device is
 * opened at the first gfs_memory_enter, so a call that only looks at a store loads no driver.
 *
 * Addresses and sizes are multiples of the granularity. Everything but gfs_memory_init,
 * gfs_memory_close and gfs_memory_after_fork is called inside a scope (struct gfs_scope), by one
 * thread at a time for one handle. Nothing here keeps or closes a descriptor. Functions return 0 or
 * a negative errno.
 */
#ifndef GMSFS_LIB_MEMORY_H
#define GMSFS_LIB_MEMORY_H

#include <stdint.h>

#include "gmsfs.h"
#include "vmap.h"

struct gfs_memory_kind;

/* Memory of this process alone. */
struct gfs_copy {
    uintptr_t va;
    uint64_t size_bytes;
    uint64_t id; /* the kind's own: tells it from later memory at the same address */
};

/* Settings of the program; they stay when another device is opened. */
struct gfs_wishes {
    gmsfs_synchronise_fn synchronise; /* NULL: the kind's own way */
    void *synchronise_context;
    void **streams; /* owned */
    size_t stream_count;
    uint8_t devices[GMSFS_DEVICES_MAX][16]; /* other devices that may access it */
    size_t device_count;
};

/* The time in which a thread may use the memory: from gfs_memory_enter to the end of the block with
 * the GFS_SCOPE. Records the changes to the thread's state, which the end undoes. */
struct gfs_scope {
    struct gfs_memory *memory; /* NULL: not entered */
    /* The kind's own. */
    int pushed;    /* true if it made a context current */
    int capturing; /* true if a stream is capturing, and the call could not be refused */
    int mode;      /* capture mode that the thread had before */
};

#define GFS_SCOPE(name) __attribute__((cleanup(gfs_memory_leave))) struct gfs_scope name = {0}

struct gfs_memory {
    const struct gfs_memory_kind *kind;
    struct gfs_scope *scope; /* scope that uses it; NULL if none */
    uint64_t granularity_bytes;
    uint8_t uuid[16]; /* of the device */
    void *device;     /* the kind's own; NULL: not opened */
    struct gfs_wishes wishes;
    char error[GMSFS_DEVICE_ERROR_BYTES]; /* last error text of the driver since gfs_memory_enter */
};

/* A fresh reservation that is filled with mappings from its beginning, side by side. */
struct gfs_range {
    uintptr_t base; /* 0: there is none */
    uint64_t reserved_bytes;
    uint64_t mapped_bytes;
    uint64_t open_bytes; /* host: bytes from the beginning that no reservation covers any more */
    uint64_t devices;    /* set of devices that may access it */
    int careful;         /* in: hold every address until memory is there */
};

/* Memory that is held without a mapping for use, to be mapped at several places. The kind's own. */
struct gfs_held {
    uint64_t id;  /* of the driver; 0: none */
    uintptr_t va; /* host: a mapping without users; 0 if none */
};

/* The last launch under a guard, which the next one has to follow. The kind's own; starts as zeros.
 */
struct gfs_turn {
    void *event;   /* NULL: none yet */
    void *context; /* context that it was made in */
};

struct gfs_memory_kind {
    const char *name;
    /* NULL where there is nothing to do. */
    int (*open)(struct gfs_memory *memory);
    void (*close)(struct gfs_memory *memory);
    int (*enter)(struct gfs_memory *memory, struct gfs_scope *scope, int must);
    void (*leave)(struct gfs_memory *memory, const struct gfs_scope *scope);
    int (*synchronise)(struct gfs_memory *memory);

    int (*reserve)(struct gfs_memory *memory, uint64_t size_bytes, uintptr_t *base);
    int (*map)(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
               enum gmsfs_access access, int fd);
    int (*append)(struct gfs_memory *memory, struct gfs_range *range, uint64_t size_bytes,
                  uint64_t used_bytes, enum gmsfs_access access, int fd);
    int (*find_devices)(struct gfs_memory *memory, uint64_t *devices); /* NULL: not needed */
    int (*settle)(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                  enum gmsfs_access access, uint64_t devices);
    int (*protect)(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                   enum gmsfs_access access, uint64_t devices);
    int (*unmap)(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes);
    void (*release)(struct gfs_memory *memory, uintptr_t base, uint64_t size_bytes);
    void (*cancel)(struct gfs_memory *memory, const struct gfs_range *range);
    int (*copy)(struct gfs_memory *memory, uintptr_t from, struct gfs_copy *copy);
    void (*drop_copy)(struct gfs_memory *memory, const struct gfs_copy *copy);
    int (*hold)(struct gfs_memory *memory, uint64_t size_bytes, int fd, struct gfs_held *held);
    int (*map_held)(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                    const struct gfs_held *held);
    void (*let_go)(struct gfs_memory *memory, uint64_t size_bytes, const struct gfs_held *held);
    /* NULL: there are no streams. Both are called outside of scopes, by one thread at a time. */
    int (*wait_turn)(const struct gfs_memory *memory, struct gfs_turn *turn, void *stream,
                     int refuse);
    int (*end_turn)(const struct gfs_memory *memory, struct gfs_turn *turn, void *stream);
    void (*drop_turn)(struct gfs_memory *memory, struct gfs_turn *turn);
    int (*ordinal)(const struct gfs_memory *memory); /* NULL: every ordinal matches */
    void (*after_fork)(const struct gfs_range *range, const struct gfs_vmap *map, int waking);
};

extern const struct gfs_memory_kind gfs_memory_host, gfs_memory_cuda;

/* Returns the kind for INFO's enum gmsfs_memory. NULL: unknown, from a newer daemon. */
const struct gfs_memory_kind *gfs_memory_find_kind(uint32_t memory);

/* ---- the device ----------------------------------------------------------------------------- */

void gfs_memory_init(struct gfs_memory *memory, const struct gfs_memory_kind *kind,
                     const uint8_t uuid[16], uint64_t granularity_bytes);
/* Closes the device; nothing of it may be mapped or reserved any more. */
void gfs_memory_close(struct gfs_memory *memory);
/* Enters a scope. `must`: never -EBUSY, for calls that give memory back and cannot wait. After a
 * failure the scope is not entered. */
int gfs_memory_enter(struct gfs_memory *memory, int must, struct gfs_scope *scope);
/* Leaves the scope; nothing if it was not entered, or was left already. */
void gfs_memory_leave(struct gfs_scope *scope);
/* Waits until no work of this process uses the memory. */
int gfs_memory_synchronise(struct gfs_memory *memory);

/* ---- addresses ------------------------------------------------------------------------------ */

/* Reserves addresses; size_bytes > 0 is rounded up to *reserved_bytes. */
int gfs_memory_reserve(struct gfs_memory *memory, uint64_t size_bytes, uintptr_t *base,
                       uint64_t *reserved_bytes);
/* Releases a whole reservation without mappings. */
void gfs_memory_release(struct gfs_memory *memory, uintptr_t base, uint64_t size_bytes);

/* ---- mappings, inside reservations ----------------------------------------------------------- */

/* Inside the fork gate: maps the memory behind a descriptor; it must be settled with the same
 * access before it is touched. */
int gfs_memory_map(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                   enum gmsfs_access access, int fd);
/* Finds the devices that may access new mappings: the store's own, and the devices that the program
 * named. The set, in a form of the kind's own, is for settle, and later for protect: the program
 * may have named other devices by then, and a device that protect leaves out would keep its rights.
 */
int gfs_memory_find_devices(struct gfs_memory *memory, uint64_t *devices);
/* These three work on whole mappings, side by side in one reservation, for the same devices. */
int gfs_memory_settle(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                      enum gmsfs_access access, uint64_t devices);
int gfs_memory_protect(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                       enum gmsfs_access access, uint64_t devices);
/* Unmaps; the addresses stay reserved. */
int gfs_memory_unmap(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes);

/* ---- a range of many mappings ---------------------------------------------------------------- */

/* Reserves, for the devices named now; the caller sets `careful`, all else is zero. */
int gfs_range_begin(struct gfs_memory *memory, struct gfs_range *range, uint64_t size_bytes);
/* As gfs_memory_map, after the last mapping of the range; used_bytes: the allocation's size, which
 * its file has at least. -EEXIST: another thread of the program took an address meanwhile; begin
 * again with `careful`. -ENOSPC: the reservation is full. */
int gfs_range_append(struct gfs_memory *memory, struct gfs_range *range, uint64_t size_bytes,
                     uint64_t used_bytes, enum gmsfs_access access, int fd);
/* Settles the range, which becomes an ordinary reservation, full of mappings. */
int gfs_range_end(struct gfs_memory *memory, struct gfs_range *range, enum gmsfs_access access);
/* Unmaps and releases; the range is as at the start. */
void gfs_range_cancel(struct gfs_memory *memory, struct gfs_range *range);

/* ---- memory of this process alone ------------------------------------------------------------ */

/* Allocates memory with a copy of the bytes at `from`, which must be readable; any size_bytes > 0.
 */
int gfs_memory_copy(struct gfs_memory *memory, uintptr_t from, uint64_t size_bytes,
                    struct gfs_copy *copy);
/* Frees the copy, unless the program did so already by ending the GPU context that it was made in.
 */
void gfs_memory_drop_copy(struct gfs_memory *memory, const struct gfs_copy *copy);

/* ---- memory that is mapped at several places ------------------------------------------------- */

/* Inside the fork gate: keeps the memory behind a descriptor, all size_bytes of it, whether it is
 * mapped or not. */
int gfs_memory_hold(struct gfs_memory *memory, uint64_t size_bytes, int fd, struct gfs_held *held);
/* As gfs_memory_map for writing, inside or outside of the gate; must be settled too. */
int gfs_memory_map_held(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                        const struct gfs_held *held);
/* Releases held memory; its mappings stay. */
void gfs_memory_let_go(struct gfs_memory *memory, uint64_t size_bytes, struct gfs_held *held);

/* ---- turns ---------------------------------------------------------------------------------- */

/* Makes later work of `stream` run after the end of the last turn; `refuse`: -EBUSY if that has not
 * ended yet. -EBUSY: the stream is capturing. The device is open; no scope is needed. */
int gfs_memory_wait_turn(const struct gfs_memory *memory, struct gfs_turn *turn, void *stream,
                         int refuse);
/* Ends the turn with the work that `stream` has so far. */
int gfs_memory_end_turn(const struct gfs_memory *memory, struct gfs_turn *turn, void *stream);
/* In a scope. */
void gfs_memory_drop_turn(struct gfs_memory *memory, struct gfs_turn *turn);
/* True if the program's ordinal means this device. The device is open. */
int gfs_memory_is_ordinal(const struct gfs_memory *memory, int ordinal);

/* ---- fork ----------------------------------------------------------------------------------- */

/* In the child: drops mappings that fork() copied because they were not settled. `waking`: some of
 * those are in reservations of `map`. */
void gfs_memory_after_fork(const struct gfs_memory *memory, const struct gfs_range *range,
                           const struct gfs_vmap *map, int waking);

#endif
