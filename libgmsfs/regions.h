/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regions.h - shared by regions.c (the registry), region.c (one reference), regions_enter.c (one
 * call at a time) and regions_connection.c (`.fds`)
 *
 * For these alone. Unlike a store's handle, these objects do not use the fork gate: they record the
 * process that opened them, and a reference is an open file like any other.
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
    atomic_uintptr_t holder; /* thread that has `op`; 0 if none */
    atomic_int closed;
    atomic_uint call;      /* number of public calls begun and ended: odd during a call */
    atomic_uint cancelled; /* `call` of the last cancelled one; 0 if none */
    pid_t pid;             /* process that opened it */
    int dir_fd;            /* O_PATH: the root of the mount */
    int owner_fd; /* O_PATH: the directory of owner_uid, so that one name is looked up; or -1 */
    uint32_t owner_uid;
    int fds_fd;   /* the connection to `.fds`, or -1 */
    char *path;   /* as given to open; for machines without /proc */
    uint32_t uid; /* of this process */
};

/* -EINVAL, -EBADF, -ECHILD, -EDEADLK (as gfs_enter); else other calls wait, and pthread_cancel(3)
 * is deferred, until gfs_regions_leave. */
int gfs_regions_enter(struct gmsfs_regions *regions);
void gfs_regions_leave(struct gmsfs_regions *regions);
/* Inside. Pauses as gfs_again_pause: 0, -ECANCELED, or -ETIMEDOUT: give up. */
int gfs_regions_pause(struct gmsfs_regions *regions, struct gfs_again *again);
/* Inside. True if the call was cancelled. */
int gfs_regions_is_cancelled(struct gmsfs_regions *regions);
/* As gfs_regions_enter, for close: cancels the call inside. */
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

/* Sends one message and receives its answer; the caller checks the answer's own error. -ECONNRESET:
 * the connection broke, and the request may or may not have been carried out. got_fd: NULL, or
 * receives the descriptor of the answer, -1 if none. */
int gfs_regions_ask(struct gmsfs_regions *regions, const void *request, size_t size, int sent_fd,
                    struct gfs_regions_answer *answer, size_t *answered, int *got_fd);
/* Exchanges a ticket for the one descriptor behind it. -ECONNRESET, -ESTALE: another ticket may do.
 */
int gfs_regions_redeem(struct gmsfs_regions *regions, const uint8_t ticket[16], int *fd);
void gfs_regions_disconnect(struct gmsfs_regions *regions);

#endif
