/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_helpers - the processes that have CUDA memory open, as the opener starts and asks them
 *
 * One a user, as that user, so that the driver decides by his rights what a handle opens; started
 * when he registers the first one, ended when nothing of his has been open for a while. What a
 * region has open is closed when the mount knows the region no more. A helper that dies takes
 * nothing along but the requests that were using it: its regions are opened anew when they are
 * asked for, by the handles that the mount keeps. For the opener's one thread, which only waits in
 * poll(2).
 */
#ifndef GMSFS_TRITON_CUDA_HELPERS_H
#define GMSFS_TRITON_CUDA_HELPERS_H

#include "triton/registry.h"

#include <poll.h>
#include <stdbool.h>

#define CUDA_MAX_HELPERS 8u   /* at a time: each has a context on every device that it uses */
#define CUDA_MAX_ASKED   64u  /* of one helper */
#define CUDA_TICK_MS     1000 /* between two looks at what is over */

struct cuda_helpers;

struct cuda_what {
    uint32_t uid;
    int64_t device_id;
    const uint8_t *handle;
};

/* Embedded in whoever asks; it is his until `done`, which is called once, from cuda_helpers_serve
 * or _tick. error: -ENODEV: there is no device; -EINVAL: the handle does not open; -ENOMEM; -EPIPE:
 * the helper has died; -ETIMEDOUT: it does not answer. */
struct cuda_ask {
    uint64_t id, asked_ms;
    void (*done)(struct cuda_ask *ask, int error, uint64_t size_bytes);
    struct cuda_ask *next;
};

int cuda_helpers_new(struct registry *registry, struct cuda_helpers **helpers);
void cuda_helpers_free(struct cuda_helpers *helpers); /* NULL is fine; nobody is told */

/* Whether one of this user is there: else the next call for him starts one, with his groups. */
bool cuda_helpers_has(const struct cuda_helpers *helpers, uint32_t uid);
/* Opens it for a region that is to be registered. 0: `done` will be called; -EPIPE, -ENOSPC: no
 * more helpers, or asked too much of one; -ENOMEM */
int cuda_helpers_open(struct cuda_helpers *helpers, const struct cuda_what *what,
                      struct cuda_ask *ask);
/* What was opened is this region's from now on, or nobody's. */
void cuda_helpers_keep(struct cuda_helpers *helpers, const struct cuda_what *what, uint64_t region);
void cuda_helpers_close(struct cuda_helpers *helpers, const struct cuda_what *what);
/* A lease of this region's memory (cuda_lease.h); the caller's. Does not wait until it is open. */
int cuda_helpers_lease(struct cuda_helpers *helpers, const struct cuda_what *what, uint64_t region,
                       int *lease);
/* Closes what regions of this user, that there are no longer, had open. */
void cuda_helpers_look(struct cuda_helpers *helpers, uint32_t uid);

/* What to wait for, at most CUDA_MAX_HELPERS; and while there is any, _tick is to be called every
 * CUDA_TICK_MS. */
bool cuda_helpers_has_any(const struct cuda_helpers *helpers);
nfds_t cuda_helpers_list(const struct cuda_helpers *helpers, struct pollfd *polled);
void cuda_helpers_serve(struct cuda_helpers *helpers, const struct pollfd *polled, nfds_t count);
void cuda_helpers_tick(struct cuda_helpers *helpers);

#endif
