/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allocations - memory of a writer's allocations, and the bytes in it
 *
 * For front ends. Changes need the session of a writer (struct service_actor): -ENOLCK without one,
 * -EBADF if the file is not open for writing, -ESTALE if the session is over.
 */
#ifndef GMSFS_SERVICE_ALLOCATIONS_H
#define GMSFS_SERVICE_ALLOCATIONS_H

#include "service/service.h"

#define SERVICE_MAX_ALLOC_ITEMS 30u

/* One of several allocations that differ. */
struct service_alloc_item {
    uint64_t size_bytes;
    const char *name,
        *tag; /* name "": aNNNNNN; owned by the caller, until the request is answered */
};

struct service_alloc {
    uint64_t size_bytes;
    uint32_t count;
    const char *name, *tag; /* name "": aNNNNNN */
    /* `count` allocations that differ (SERVICE_MAX_ALLOC_ITEMS at most), made all or none; size,
     * name and tag do not count then. NULL: all are alike. The answer has their slots. */
    const struct service_alloc_item *items;
    const char *wire_id; /* chosen by the client; NULL: none. Only with a single allocation */
    bool exact;          /* their memory ends with their size, where it can (vmm_create_exact) */
    bool wait;
    uint64_t timeout_ms; /* with wait: at most this long, and never longer than alloc_timeout; 0:
                            alloc_timeout */
    bool waits_for_ever; /* waits beyond alloc_timeout, until the request is interrupted */
    bool waits_for_decision; /* waits also if memory can come back only by a client's decision
                                (become_free.c) */
};

int service_alloc(struct service *s, const struct service_actor *by,
                  const struct service_alloc *alloc, struct service_request *request);

/* Answers when all memory that is being freed is free, or after some seconds. */
int service_await_freeing(struct service *s, struct service_request *request);

struct service_set_aside {
    uint64_t
        bytes;     /* to be reserved beside the allocations; less than before gives the rest back */
    bool at_least; /* leaves a larger reservation as it is */
    bool wait;     /* waits for memory, as ALLOC does */
    uint64_t timeout_ms;
    bool as_acquire; /* follows the rules of ACQUIRE, and does not wait: -EAGAIN, -ENOMEM */
    bool replacing;  /* as_acquire: the committed bytes of the store count as free */
};

int service_set_aside(struct service *s, const struct service_actor *by,
                      const struct service_set_aside *wanted, struct service_request *request);
/* ftruncate/fallocate: gives memory once (never waits for others: -ENOMEM); size 0 takes it away;
 * the present size changes nothing. */
int service_resize(struct service *s, const struct service_actor *by, uint64_t serial,
                   uint64_t size_bytes, struct service_request *request);
int service_remove(struct service *s, const struct service_actor *by, uint64_t serial);
int service_remove_slot(struct service *s, const struct service_actor *by, uint64_t slot);
int service_rename(struct service *s, const struct service_actor *by, uint64_t serial,
                   const char *name, uint32_t flags);
int service_set_tag(struct service *s, const struct service_actor *by, uint64_t serial,
                    const char *tag);
int service_clear(struct service *s, const struct service_actor *by);
/* Changes nothing; fails if the caller may not change the layout. */
int service_touch(struct service *s, const struct service_actor *by);

/* Nanoseconds since 1970; LAYOUT_NO_TIME leaves a time as it is. */
struct service_times {
    enum core_kind kind; /* ALLOCATION, or ENTRY: an entry has no times of its own, so its store
                            counts as changed now */
    uint64_t serial;     /* of the allocation; 0: of the directory of allocations */
    struct layout_times times;
};

/* -ENOLCK -ENOENT */
int service_set_times(struct service *s, const struct service_actor *by,
                      const struct service_times *set);
/* Forgets the times that were set: the bytes change now. May fail for want of memory. */
int service_forget_times(struct service *s, uint64_t session, uint64_t serial);

/* ---- bytes, through an open allocation ------------------------------------------------------ */

/* Reads into answer.data/bytes, then answer.rest; short at the end, and beyond a megabyte. */
int service_read(struct service *s, uint64_t file, size_t bytes, uint64_t offset,
                 struct service_request *request);
/* Bytes of an allocation of the store that the file is of. */
struct service_part {
    uint64_t serial;
    uint64_t offset;
    size_t bytes;
    bool later; /* the answer comes after this call: the caller has had many at once */
};

/* Reads such bytes of a committed allocation, up to the end of its memory, through an open
 * allocation that a reader holds. Else as service_read. */
int service_read_part(struct service *s, uint64_t file, const struct service_part *part,
                      struct service_request *request);
/* Makes the file of the tensors of the store (tensor/made_file.h) that such an open allocation is
 * of. -EAGAIN: a writer holds it; -ESTALE, -EINVAL: there is no such file; -ENOMEM */
int service_make_file(struct service *s, uint64_t file, struct service_request *request);
/* Bytes of a write that service_admit_write has admitted, and the user that they count for. */
struct service_admitted {
    uint64_t bytes;
    uint32_t uid;
};

/* Admits bytes of a write, which the front end may keep until they are written: all of them, or a
 * part if this file's user has much under way; the client writes the rest again. At least one byte.
 * They count until service_forget_write. -EBADF, -ENOMEM */
int service_admit_write(struct service *s, uint64_t file, size_t bytes,
                        struct service_admitted *admitted);
void service_forget_write(struct service *s, const struct service_admitted *admitted);
/* Writes. The caller owns `from`, until done. answer.bytes */
int service_write(struct service *s, uint64_t file, const void *from, size_t bytes, uint64_t offset,
                  struct service_request *request);
/* Writes at the end of the allocation. */
int service_append(struct service *s, uint64_t file, const void *from, size_t bytes,
                   struct service_request *request);
/* ---- bytes that the kernel serves (mapping.c) ----------------------------------------------- */

/* How the kernel may serve readers of a committed allocation by itself. */
struct service_mapping {
    bool is_immutable; /* its bytes never change; else nothing below holds */
    bool is_host;      /* the device's memory is the host's */
    bool is_known;     /* the memory was registered with the kernel, or cannot be */
    uint64_t memory;
    uint32_t backing;    /* number of the registered file; 0: none */
    uint64_t size_bytes; /* of the allocation */
    uint64_t file_bytes; /* length of the registered file */
};

struct service_mapping service_get_mapping(const struct service *s, uint64_t serial);
/* Has the memory of such an allocation registered, if it can be; the request is answered without an
 * error, and service_get_mapping knows the result, unless the kernel has failed for now. -ENOMEM */
int service_map(struct service *s, uint64_t serial, struct service_request *request);

/* close(2) of one duplicate: makes the memory that the spool will be sealed into. It stays a
 * spool. */
int service_settle(struct service *s, uint64_t file, struct service_request *request);
/* fsync: turns a spool into memory. */
int service_sync(struct service *s, uint64_t file, struct service_request *request);

#endif
