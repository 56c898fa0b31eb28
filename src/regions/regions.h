/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regions - the table of named shared memory of clients
 *
 * Pure; part of the core's state, and called by src/core alone: records change it. A region belongs
 * to a user; its name is unique among the user's regions of both kinds. Its descriptor is a number
 * of the service; its allocation, if any, is kept by the session of the region's file. A region
 * that is unregistered while it has references drains: it stays until the last reference ends.
 *
 * The table does not check bounds, rights or locks, and owns only its regions.
 */
#ifndef GMSFS_REGIONS_REGIONS_H
#define GMSFS_REGIONS_REGIONS_H

#include "base/idvec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REGION_MAX_NAME_BYTES 255u
#define REGION_MAX_KEY_BYTES  511u
#define REGION_HANDLE_BYTES   64u

enum region_kind {  /* as in the ABI */
    REGION_ANY = 0, /* only for searches */
    REGION_SYSTEM,
    REGION_CUDA,
};

struct region {
    uint64_t id; /* first member, for idvec */
    uint32_t uid;
    enum region_kind kind;
    uint64_t offset, byte_size;
    int64_t device_id;                       /* CUDA: the client's number of the device; else 0 */
    uint8_t raw_handle[REGION_HANDLE_BYTES]; /* CUDA; else zeros */
    uint64_t memory;                         /* number of its descriptor; 0 if none */
    bool writable;                           /* true if the descriptor is writable */
    /* of its allocation and of the file with the session; 0 if none */
    uint64_t store, serial, file;
    uint64_t registered_ms; /* wall clock */
    uint64_t references;
    bool draining;
    size_t name_bytes, key_bytes;
    const char *name, *key; /* NUL-terminated, in `text` */
    char text[];
};

struct regions {
    struct idvec items;     /* by id */
    struct region **sorted; /* by owner and name */
    size_t room;            /* capacity of `sorted` */
};

/* Checks a name: 1..REGION_MAX_NAME_BYTES of UTF-8 without NUL, also when escaped as a file name.
 * -EINVAL, -ENAMETOOLONG */
int region_check_name(const char *name, size_t bytes);
/* Checks a key: UTF-8 without NUL; empty for CUDA, never empty for a system region. -EINVAL,
 * -ENAMETOOLONG */
int region_check_key(enum region_kind kind, const char *key, size_t bytes);
/* True if the range is not empty and ends within 64 bits. */
bool region_is_range(uint64_t offset, uint64_t byte_size);

/* Makes a region with copies of the texts and all other members zero; NULL if out of memory. */
struct region *region_new(const char *name, size_t name_bytes, const char *key, size_t key_bytes);

/* Makes room for the next regions_add. -ENOMEM */
int regions_reserve(struct regions *regions);
/* Adds a region with the highest id and a name that is new for its owner. */
void regions_add(struct regions *regions, struct region *region);
/* Removes and frees the region. */
void regions_remove(struct regions *regions, struct region *region);
void regions_free(struct regions *regions);

struct region *regions_find(const struct regions *regions, uint64_t id);
struct region *regions_find_name(const struct regions *regions, uint32_t uid, const char *name,
                                 size_t name_bytes);
/* Returns the owner's next region after this name, in bytewise order ("": the first); NULL if
 * none. */
const struct region *regions_next(const struct regions *regions, uint32_t uid, const char *name,
                                  size_t name_bytes);
/* Returns the first region of an owner with this uid or a higher one; NULL if none. */
const struct region *regions_from_owner(const struct regions *regions, uint64_t uid);

#endif
