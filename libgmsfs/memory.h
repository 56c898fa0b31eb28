/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory - the memory of a mount as this process maps it: addresses, mappings, rights
 *
 * What differs between host memory and a GPU's is one table of functions (struct gfs_memory_kind),
 * chosen by gfs_memory_find_kind;
 * the rest of the library, which knows of descriptors, addresses and bytes alone, uses them through
 * the calls below. The kind and the device come from the mount. A device is opened at the first
 * gfs_memory_enter: looking at a store loads no driver.
 *
 * Addresses and sizes are multiples of the granularity. Everything but gfs_memory_init,
 * gfs_memory_close and gfs_memory_after_fork is called inside a scope (struct gfs_scope), by one
 * thread at a time for one handle. Nothing here keeps or closes a descriptor. 0 or a negative
 * errno.
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
    uint64_t id; /* the kind's own: tells it from what is at the address later */
};

/* What the program asked for; it stays when another device is opened. */
struct gfs_wishes {
    gmsfs_synchronise_fn synchronise; /* NULL: the kind's own way */
    void *synchronise_context;
    void **streams; /* owned */
    size_t stream_count;
    uint8_t devices[GMSFS_DEVICES_MAX][16]; /* which may touch it too */
    size_t device_count;
};

/* While a thread may use the memory: from gfs_memory_enter until the block is left in which
 * GFS_SCOPE declares it. What entering changed of the thread is in here, and put back at the end.
 */
struct gfs_scope {
    struct gfs_memory *memory; /* NULL: not entered */
    /* The kind's own. */
    int pushed;    /* it made a context current */
    int capturing; /* a stream records what it is given, and that could not be refused */
    int mode;      /* of captures, that the thread had */
};

#define GFS_SCOPE(name) __attribute__((cleanup(gfs_memory_leave))) struct gfs_scope name = {0}

struct gfs_memory {
    const struct gfs_memory_kind *kind;
    struct gfs_scope *scope; /* that it is used in; NULL: none */
    uint64_t granularity_bytes;
    uint8_t uuid[16]; /* of the device */
    void *device;     /* the kind's own; NULL: not opened */
    struct gfs_wishes wishes;
    char error[GMSFS_DEVICE_ERROR_BYTES]; /* last complaint of the driver since gfs_memory_enter */
};

/* A fresh reservation that is filled with mappings from its beginning, side by side. */
struct gfs_range {
    uintptr_t base; /* 0: there is none */
    uint64_t reserved_bytes;
    uint64_t mapped_bytes;
    uint64_t open_bytes; /* host: the first so many are no longer held by a reservation */
    uint64_t devices;    /* which may touch it */
    int careful;         /* in: hold every address until memory is there */
};

/* Memory that is held without being mapped for use, to be mapped at several places. The kind's own.
 */
struct gfs_held {
    uint64_t id;  /* of the driver; 0: none */
    uintptr_t va; /* host: a mapping that nobody uses; 0: none */
};

/* Whose turn it is on the device: what was launched last under a guard. The kind's own; zero. */
struct gfs_turn {
    void *event;   /* NULL: none yet */
    void *context; /* that it was made in */
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
                  enum gmsfs_access access, int fd);
    int (*find_devices)(struct gfs_memory *memory, uint64_t *devices); /* NULL: of no use to it */
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
    /* NULL: there are no streams. These two outside of scopes, one thread at a time for a turn. */
    int (*wait_turn)(const struct gfs_memory *memory, struct gfs_turn *turn, void *stream,
                     int refuse);
    int (*end_turn)(const struct gfs_memory *memory, struct gfs_turn *turn, void *stream);
    void (*drop_turn)(struct gfs_memory *memory, struct gfs_turn *turn);
    int (*ordinal)(const struct gfs_memory *memory); /* NULL: all ordinals are its own */
    void (*after_fork)(const struct gfs_range *range, const struct gfs_vmap *map, int waking);
};

extern const struct gfs_memory_kind gfs_memory_host, gfs_memory_cuda;

/* What INFO names (enum gmsfs_memory). NULL: of a newer daemon. */
const struct gfs_memory_kind *gfs_memory_find_kind(uint32_t memory);

/* ---- the device ----------------------------------------------------------------------------- */

void gfs_memory_init(struct gfs_memory *memory, const struct gfs_memory_kind *kind,
                     const uint8_t uuid[16], uint64_t granularity_bytes);
/* Nothing of it is mapped or reserved any more. */
void gfs_memory_close(struct gfs_memory *memory);
/* `must`: also where it would be refused for now (-EBUSY), for what cannot wait: giving back. After
 * a failure the scope is not entered. */
int gfs_memory_enter(struct gfs_memory *memory, int must, struct gfs_scope *scope);
/* Of one that was not entered, or was left: nothing. */
void gfs_memory_leave(struct gfs_scope *scope);
/* Waits until nobody of this process works on the memory. */
int gfs_memory_synchronise(struct gfs_memory *memory);

/* ---- addresses ------------------------------------------------------------------------------ */

/* size_bytes > 0 is rounded up to *reserved_bytes. */
int gfs_memory_reserve(struct gfs_memory *memory, uint64_t size_bytes, uintptr_t *base,
                       uint64_t *reserved_bytes);
/* A whole reservation in which nothing is mapped. */
void gfs_memory_release(struct gfs_memory *memory, uintptr_t base, uint64_t size_bytes);

/* ---- mappings, inside reservations ----------------------------------------------------------- */

/* Inside the fork gate: maps the memory behind a descriptor, which may not be touched before it
 * was settled with the same access. */
int gfs_memory_map(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                   enum gmsfs_access access, int fd);
/* Which devices may touch what is mapped now: the store's own, and those that the program named. A
 * set of the kind's own making, for settle; and for protect, later, since the program may have
 * named others by then, and who is not told keeps the rights that it has. */
int gfs_memory_find_devices(struct gfs_memory *memory, uint64_t *devices);
/* These three take whole mappings that lie side by side in one reservation, for the same devices.
 */
int gfs_memory_settle(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                      enum gmsfs_access access, uint64_t devices);
int gfs_memory_protect(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                       enum gmsfs_access access, uint64_t devices);
/* Back to reserved. */
int gfs_memory_unmap(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes);

/* ---- a range of many mappings ---------------------------------------------------------------- */

/* Reserves, for the devices of now; `careful` was set by the caller, all else is zero. */
int gfs_range_begin(struct gfs_memory *memory, struct gfs_range *range, uint64_t size_bytes);
/* As gfs_memory_map, behind what is mapped already. -EEXIST: another thread of the program took an
 * address meanwhile; begin again, carefully. -ENOSPC: it does not fit what was reserved. */
int gfs_range_append(struct gfs_memory *memory, struct gfs_range *range, uint64_t size_bytes,
                     enum gmsfs_access access, int fd);
/* Settles it. Then it is an ordinary reservation, full of mappings. */
int gfs_range_end(struct gfs_memory *memory, struct gfs_range *range, enum gmsfs_access access);
/* Unmaps and releases; the range is as new. */
void gfs_range_cancel(struct gfs_memory *memory, struct gfs_range *range);

/* ---- memory of this process alone -------------------------------------------------------------
 */

/* New memory with the bytes that are at `from`, which may be read, size_bytes > 0, any. */
int gfs_memory_copy(struct gfs_memory *memory, uintptr_t from, uint64_t size_bytes,
                    struct gfs_copy *copy);
/* Of a GPU's, the program may have ended it by ending the context that it was made in. */
void gfs_memory_drop_copy(struct gfs_memory *memory, const struct gfs_copy *copy);

/* ---- memory that is mapped at several places --------------------------------------------------
 */

/* Inside the fork gate: keeps the memory behind a descriptor, all size_bytes of it, whether it is
 * mapped or not. */
int gfs_memory_hold(struct gfs_memory *memory, uint64_t size_bytes, int fd, struct gfs_held *held);
/* As gfs_memory_map for writing, in or out of the gate; to be settled as well. */
int gfs_memory_map_held(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                        const struct gfs_held *held);
/* Where it is mapped it stays so. */
void gfs_memory_let_go(struct gfs_memory *memory, uint64_t size_bytes, struct gfs_held *held);

/* ---- turns ------------------------------------------------------------------------------------
 */

/* What `stream` is given from now on runs behind what the turn ended with; `refuse`: -EBUSY if that
 * still runs. -EBUSY: the stream is capturing. The device is open; no scope is needed. */
int gfs_memory_wait_turn(const struct gfs_memory *memory, struct gfs_turn *turn, void *stream,
                         int refuse);
/* The turn ends with what `stream` was given until now. */
int gfs_memory_end_turn(const struct gfs_memory *memory, struct gfs_turn *turn, void *stream);
/* In a scope. */
void gfs_memory_drop_turn(struct gfs_memory *memory, struct gfs_turn *turn);
/* Does the program, by the ordinal of a device, mean this one? The device is open. */
int gfs_memory_is_ordinal(const struct gfs_memory *memory, int ordinal);

/* ---- fork ----------------------------------------------------------------------------------- */

/* In the child: what fork() copied because it was not settled goes. `waking`: some mappings in
 * the reservations of `map` were not. */
void gfs_memory_after_fork(const struct gfs_memory *memory, const struct gfs_range *range,
                           const struct gfs_vmap *map, int waking);

#endif
