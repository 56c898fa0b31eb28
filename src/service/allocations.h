/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allocations - memory of a writer's allocations, and the bytes in it
 *
 * For front ends. Changes need the session of a writer (struct service_actor): -ENOLCK without,
 * -EBADF where the file is not open for writing, -ESTALE where the session is over.
 */
#ifndef GMSFS_SERVICE_ALLOCATIONS_H
#define GMSFS_SERVICE_ALLOCATIONS_H

#include "service/service.h"

#define SERVICE_MAX_ALLOC_ITEMS 30u

/* One of those that differ. */
struct service_alloc_item {
    uint64_t size_bytes;
    const char *name, *tag; /* name "": aNNNNNN; the caller's, until the request is answered */
};

struct service_alloc {
    uint64_t size_bytes;
    uint32_t count;
    const char *name, *tag; /* name "": aNNNNNN */
    /* `count` of them (SERVICE_MAX_ALLOC_ITEMS at most), made all or none, in place of size, name
     * and tag; NULL: all are alike. The answer has their slots. */
    const struct service_alloc_item *items;
    const char *wire_id; /* that the client chose; NULL: none. Of one allocation alone */
    bool wait;
    uint64_t timeout_ms; /* with wait: alloc_timeout, or this where it is less; 0: nothing said */
    bool waits_for_ever; /* beyond alloc_timeout, as long as the request is not interrupted */
    bool waits_for_decision; /* also for what nobody can give back but by a decision (become_free.c)
                              */
};

int service_alloc(struct service *s, const struct service_actor *by,
                  const struct service_alloc *alloc, struct service_request *request);

/* Answers when all that is being given back now is free, or after some seconds. */
int service_await_freeing(struct service *s, struct service_request *request);

struct service_set_aside {
    uint64_t bytes; /* beside what is allocated; less than before gives back */
    bool at_least;  /* or more, if more is set aside already */
    bool wait;      /* for memory, as ALLOC */
    uint64_t timeout_ms;
    bool as_acquire; /* by the rules of ACQUIRE, which may not wait: -EAGAIN, -ENOMEM */
    bool replacing;  /* as_acquire: what the store has committed counts first */
};

int service_set_aside(struct service *s, const struct service_actor *by,
                      const struct service_set_aside *wanted, struct service_request *request);
/* ftruncate/fallocate: gives memory once (never waits for others: -ENOMEM), or 0 takes it away;
 * the size that it has already is no change. */
int service_resize(struct service *s, const struct service_actor *by, uint64_t serial,
                   uint64_t size_bytes, struct service_request *request);
int service_remove(struct service *s, const struct service_actor *by, uint64_t serial);
int service_remove_slot(struct service *s, const struct service_actor *by, uint64_t slot);
int service_rename(struct service *s, const struct service_actor *by, uint64_t serial,
                   const char *name, uint32_t flags);
int service_set_tag(struct service *s, const struct service_actor *by, uint64_t serial,
                    const char *tag);
int service_clear(struct service *s, const struct service_actor *by);
/* Nothing changes; whoever may change something may ask for it. */
int service_touch(struct service *s, const struct service_actor *by);

/* Nanoseconds since 1970; LAYOUT_NO_TIME: stays as it is. */
struct service_times {
    enum core_kind
        kind;        /* ALLOCATION, or ENTRY: it has no times of its own, its store changed now */
    uint64_t serial; /* of the allocation; 0: of their directory */
    struct layout_times times;
};

/* -ENOLCK -ENOENT */
int service_set_times(struct service *s, const struct service_actor *by,
                      const struct service_times *set);
/* A writer changes its bytes, so times that were set are true no more. May fail for want of memory.
 */
int service_forget_times(struct service *s, uint64_t session, uint64_t serial);

/* ---- bytes, through an open allocation ------------------------------------------------------ */

/* answer.data/bytes, then rest; short at the end, and of more than a megabyte. */
int service_read(struct service *s, uint64_t file, size_t bytes, uint64_t offset,
                 struct service_request *request);
/* How many of these bytes the front end may keep until they are written: all, or a part where this
 * file's user has much under way; the rest is its caller's to write again. At least one. They
 * count until service_forget_write. -EBADF, -ENOMEM */
struct service_admitted {
    uint64_t bytes;
    uint32_t uid;
};

int service_admit_write(struct service *s, uint64_t file, size_t bytes,
                        struct service_admitted *admitted);
void service_forget_write(struct service *s, const struct service_admitted *admitted);
/* `from` stays the caller's until done. answer.bytes */
int service_write(struct service *s, uint64_t file, const void *from, size_t bytes, uint64_t offset,
                  struct service_request *request);
/* The same at the end of what is there. */
int service_append(struct service *s, uint64_t file, const void *from, size_t bytes,
                   struct service_request *request);
/* close(2) of one duplicate: what the spool becomes later can be made, and is. It stays a spool. */
int service_settle(struct service *s, uint64_t file, struct service_request *request);
/* fsync: a spool becomes memory. */
int service_sync(struct service *s, uint64_t file, struct service_request *request);

#endif
