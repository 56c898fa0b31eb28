/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmap - the table of a handle's reservations and mappings, sorted by address
 *
 * Pure bookkeeping: it never calls mmap, never talks to the mount, never locks. mapping.c and
 * remap.c use it under the handle's mutexes; tests/unit use it alone. Pointers into it hold until
 * the next insert or remove.
 */
#ifndef GMSFS_LIB_VMAP_H
#define GMSFS_LIB_VMAP_H

#include <stddef.h>
#include <stdint.h>

#include "gmsfs.h"

/* Which layout something belongs to. `epoch` is this handle's number for it: equal epochs mean the
 * same slots; it survives a commit, which gives the layout its hash and next generation. */
struct gfs_ident {
    uint8_t store_id[16];
    uint8_t layout_hash[16]; /* zeros: not committed when last seen */
    uint64_t generation;
    uint64_t epoch;
};

struct gfs_reservation {
    uintptr_t base;
    uint64_t size_bytes;
    size_t mappings; /* inside it, preserved ones included */
    int automatic;   /* true if released with its last mapping */
};

struct gfs_mapping {
    uintptr_t va;
    uint64_t size_bytes;
    uint64_t aligned_bytes;
    uint64_t slot;
    uint64_t rank;
    struct gfs_ident ident;
    enum gmsfs_access access;
    enum gmsfs_access waking; /* not 0: memory is there, but the mapping is not live yet */
    uint64_t devices;         /* that may access it: gfs_memory_find_devices when it was mapped */
    int live;                 /* 0: preserved, the addresses are reserved only */
    int made;                 /* with its allocation, by gmsfs_create_mapping */
    int freed;                /* this handle freed the allocation under it */
    int unused;               /* the program never got its address */
    char *tag;                /* owned; NULL: not known */
};

struct gfs_vmap {
    struct gfs_reservation *reservations;
    size_t reservation_count, reservation_room;
    struct gfs_mapping *mappings;
    size_t mapping_count, mapping_room;
};

void gfs_vmap_free(struct gfs_vmap *map);

/* Makes room, so that the inserts that follow cannot fail. */
int gfs_vmap_make_room(struct gfs_vmap *map, size_t reservations, size_t mappings);

/* Needs room. */
void gfs_vmap_add_reservation(struct gfs_vmap *map, const struct gfs_reservation *reservation);
void gfs_vmap_remove_reservation(struct gfs_vmap *map, struct gfs_reservation *reservation);

/* Returns the room for new mappings, which is behind those of the map. */
struct gfs_mapping *gfs_vmap_behind(const struct gfs_vmap *map);
/* Needs room, in which `mappings` may be already (gfs_vmap_behind). They are sorted, lie in one
 * reservation, and no other mapping lies between them. Takes their tags. Counts them at their
 * reservation. */
void gfs_vmap_add_mappings(struct gfs_vmap *map, const struct gfs_mapping *mappings, size_t count);

/* Frees its tag; takes it off its reservation's count, and returns that reservation. */
struct gfs_reservation *gfs_vmap_remove_mapping(struct gfs_vmap *map, struct gfs_mapping *mapping);

/* Return the reservation, or the mapping, that contains `address`; NULL if none. */
struct gfs_reservation *gfs_vmap_find_reservation(const struct gfs_vmap *map, uintptr_t address);
struct gfs_mapping *gfs_vmap_find_mapping(const struct gfs_vmap *map, uintptr_t address);

/* 1: some mapping has bytes in [va, va + size_bytes), which does not wrap. */
int gfs_vmap_overlaps(const struct gfs_vmap *map, uintptr_t va, uint64_t size_bytes);

typedef int gfs_vmap_match_fn(const struct gfs_mapping *mapping, const void *context);

/* The next run of mappings that match, side by side in one reservation and for the same devices,
 * from index *at on. 0: no more; else *at is behind it. */
int gfs_vmap_next_run(const struct gfs_vmap *map, size_t *at, gfs_vmap_match_fn *match,
                      const void *context, uintptr_t *va, uint64_t *size_bytes);

#endif
