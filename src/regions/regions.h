/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regions - the table of named shared memory: what was registered, by whom, and who uses it
 *
 * Pure; part of the core's state, and called by src/core alone: records change it. A region is its
 * owner's; its name is unique among his, over both kinds. It knows its descriptor as a number of
 * the service's, and an allocation of a store by the file whose session keeps that there. One that
 * is unregistered while it is referred to drains: it stays until the last reference goes.
 *
 * The table decides nothing about bounds, rights or locks, and owns its regions only.
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
    REGION_ANY = 0, /* to look for, never one's kind */
    REGION_SYSTEM,
    REGION_CUDA,
};

struct region {
    uint64_t id; /* first for idvec */
    uint32_t uid;
    enum region_kind kind;
    uint64_t offset, byte_size;
    int64_t device_id;                       /* CUDA: as the client counts devices; else 0 */
    uint8_t raw_handle[REGION_HANDLE_BYTES]; /* CUDA; else zeros */
    uint64_t memory;                         /* the number of its descriptor; 0: it has none */
    bool writable;                           /* the descriptor is */
    uint64_t store, serial, file; /* of an allocation: by which file's session; 0: of none */
    uint64_t registered_ms;       /* wall clock */
    uint64_t references;
    bool draining;
    size_t name_bytes, key_bytes;
    const char *name, *key; /* NUL-terminated; they are of `text` */
    char text[];
};

struct regions {
    struct idvec items;     /* by id */
    struct region **sorted; /* by owner and name */
    size_t room;            /* of `sorted` */
};

/* A name: 1..REGION_MAX_NAME_BYTES of UTF-8 without NUL, and its file name is no longer. -EINVAL,
 * -ENAMETOOLONG */
int region_check_name(const char *name, size_t bytes);
/* Of either kind: UTF-8 without NUL; of CUDA empty, of a system region never. -EINVAL,
 * -ENAMETOOLONG */
int region_check_key(enum region_kind kind, const char *key, size_t bytes);
/* It begins and ends where a number of 64 bits can say it, and has bytes. */
bool region_is_range(uint64_t offset, uint64_t byte_size);

/* With the texts copied, everything else zero; NULL: no memory. */
struct region *region_new(const char *name, size_t name_bytes, const char *key, size_t key_bytes);

/* Room for one more, which regions_add then takes. -ENOMEM */
int regions_reserve(struct regions *regions);
/* Its id is above all others, and its owner has no region of its name. */
void regions_add(struct regions *regions, struct region *region);
/* Takes it out and frees it. */
void regions_remove(struct regions *regions, struct region *region);
void regions_free(struct regions *regions);

struct region *regions_find(const struct regions *regions, uint64_t id);
struct region *regions_find_name(const struct regions *regions, uint32_t uid, const char *name,
                                 size_t name_bytes);
/* In order of names, bytewise: the owner's first one behind this name ("": his first). NULL: none
 */
const struct region *regions_next(const struct regions *regions, uint32_t uid, const char *name,
                                  size_t name_bytes);
/* The first one whose owner is this uid or a higher one; NULL: none. */
const struct region *regions_from_owner(const struct regions *regions, uint64_t uid);

#endif
