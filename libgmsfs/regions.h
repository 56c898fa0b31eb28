/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regions.h - what regions.c (the registry), region.c (one reference), regions_enter.c (whose
 * turn it is) and regions_connection.c (`.fds`) share
 *
 * For these alone. Unlike a store's handle nothing here is known to the fork gate: a handle
 * knows the process that opened it, and a reference is an open file like any other.
 */
#ifndef GMSFS_LIB_REGIONS_H
#define GMSFS_LIB_REGIONS_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "gmsfs_region.h"

struct gfs_again;

struct gmsfs_regions {
    pthread_mutex_t op;
    atomic_uintptr_t holder; /* the thread that has it; 0: none */
    atomic_int closed;
    atomic_uint call;      /* odd: a public one is under way, of this number */
    atomic_uint cancelled; /* the number of the last one that was; 0: none */
    pid_t pid;             /* who opened it */
    int dir_fd;            /* O_PATH: the root of the mount */
    int owner_fd; /* O_PATH: the directory of owner_uid, so that one name is looked up; or -1 */
    uint32_t owner_uid;
    int fds_fd;   /* the connection to `.fds`, or -1 */
    char *path;   /* as it was opened, for where there is no /proc */
    uint32_t uid; /* ours */
};

/* -EINVAL, -EBADF, -ECHILD, -EDEADLK (as gfs_enter); else until gfs_regions_leave the calls of
 * others wait, and pthread_cancel(3). */
int gfs_regions_enter(struct gmsfs_regions *regions);
void gfs_regions_leave(struct gmsfs_regions *regions);
/* Inside. As gfs_again_pause: 0, -ECANCELED, or -ETIMEDOUT: no more. */
int gfs_regions_pause(struct gmsfs_regions *regions, struct gfs_again *again);
/* Inside. Is nobody to wait any more? */
int gfs_regions_is_cancelled(struct gmsfs_regions *regions);
/* The same for its end: whoever waits inside is cancelled. */
int gfs_regions_enter_last(struct gmsfs_regions *regions);
int gfs_region_fail(enum gmsfs_region_reason *reason, enum gmsfs_region_reason why, int error);

struct gfs_regions_answer {
    struct gmsfs_fds_header header;
    union {
        struct {
            struct gmsfs_fds_region_answer region;
            struct gmsfs_region_info list[GMSFS_REGION_LIST_MAX];
        };
        struct gmsfs_fds_item item; /* of REDEEM */
    };
};

/* ---- regions_connection.c: inside ----------------------------------------------------------- */

/* One message and its answer; the answer's own error is the caller's to look at. -ECONNRESET: the
 * connection broke, and nobody knows whether the request was carried out. got_fd: NULL, or where
 * the descriptor goes that came along, else -1. */
int gfs_regions_ask(struct gmsfs_regions *regions, const void *request, size_t size, int sent_fd,
                    struct gfs_regions_answer *answer, size_t *answered, int *got_fd);
/* Exchanges a ticket for the one descriptor behind it. -ECONNRESET, -ESTALE: another ticket may do.
 */
int gfs_regions_redeem(struct gmsfs_regions *regions, const uint8_t ticket[16], int *fd);
void gfs_regions_disconnect(struct gmsfs_regions *regions);

#endif
