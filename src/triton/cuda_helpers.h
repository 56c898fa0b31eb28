/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_helpers - the processes that have CUDA memory open, started and asked by the opener
 *
 * One helper for each user, running as that user, so that the driver decides by the user's rights
 * which handles open. A helper starts when its user registers the first handle, and ends when none
 * of the user's memory has been open for a while. A region's memory is closed when the mount no
 * longer lists the region. If a helper dies, only the requests that were using it fail: its regions
 * are opened again on the next request, by the handles that the mount keeps. For the opener's one
 * thread, which waits in poll(2) alone.
 */
#ifndef GMSFS_TRITON_CUDA_HELPERS_H
#define GMSFS_TRITON_CUDA_HELPERS_H

#include "triton/registry.h"

#include <poll.h>
#include <stdbool.h>

#define CUDA_MAX_HELPERS 8u   /* at a time: each has a context on every device that it uses */
#define CUDA_MAX_ASKED   64u  /* unanswered requests to one helper */
#define CUDA_TICK_MS     1000 /* between two searches for ended regions and helpers */

struct cuda_helpers;

struct cuda_target {
    uint32_t uid;
    int64_t device_id;
    const uint8_t *handle;
};

/* Embedded in the caller's struct, and left alone until `done`, which is called once, by
 * cuda_helpers_serve or _tick. error: -ENODEV: there is no device; -EINVAL: the handle does not
 * open; -ENOMEM; -EPIPE: the helper died; -ETIMEDOUT: the helper does not answer. */
struct cuda_ask {
    uint64_t id, asked_ms;
    void (*done)(struct cuda_ask *ask, int error, uint64_t size_bytes);
    struct cuda_ask *next;
};

int cuda_helpers_new(struct registry *registry, struct cuda_helpers **helpers);
void cuda_helpers_free(struct cuda_helpers *helpers); /* NULL is fine; no `done` is called */

/* Returns true if this user has a helper; if not, the next call for the user starts one, with the
 * user's groups. */
bool cuda_helpers_has(struct cuda_helpers *helpers, uint32_t uid);
/* Opens memory for a region that is being registered. 0: `done` will be called; -EPIPE; -ENOSPC:
 * too many helpers, or too many requests to this one; -ENOMEM */
int cuda_helpers_open(struct cuda_helpers *helpers, const struct cuda_target *target,
                      struct cuda_ask *ask);
/* Assigns the memory just opened to this region; closes it if that fails. */
void cuda_helpers_keep(struct cuda_helpers *helpers, const struct cuda_target *target,
                       uint64_t region);
void cuda_helpers_close(struct cuda_helpers *helpers, const struct cuda_target *target);
/* Returns a lease of this region's memory (cuda_lease.h), which the caller closes. Does not wait
 * for the memory to open. */
int cuda_helpers_lease(struct cuda_helpers *helpers, const struct cuda_target *target,
                       uint64_t region, int *lease);
/* Closes the memory of this user's regions that no longer exist. */
void cuda_helpers_look(struct cuda_helpers *helpers, uint32_t uid);

/* Describes the sockets to poll, at most CUDA_MAX_HELPERS. While has_any is true, call _tick every
 * CUDA_TICK_MS. */
bool cuda_helpers_has_any(const struct cuda_helpers *helpers);
nfds_t cuda_helpers_list(const struct cuda_helpers *helpers, struct pollfd *polled);
void cuda_helpers_serve(struct cuda_helpers *helpers, const struct pollfd *polled, nfds_t count);
void cuda_helpers_tick(struct cuda_helpers *helpers);

#endif
