/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group - what the parts of gmsfs_connect_group share
 *
 * For group.c, which takes the locks of all and commits, group_reserve.c, which sees to the memory
 * that goes with them, and group_members.c and group_pause.c, which both call. One thread has a
 * group, and all its handles entered, from beginning to end.
 */
#ifndef GMSFS_GROUP_H
#define GMSFS_GROUP_H

#include <sys/types.h>

#include "internal.h"

/* How often one that waits as a writer, and would as well read, looks whether it can by now. */
#define GROUP_LOOK_MS 1000

/* From the steps of RW_OR_RO: what was granted is not of one kind; what was waited for is whole. */
#define GROUP_MIXED 1
#define GROUP_WHOLE 2
/* From the steps of a writer's too: a store is not on its device, and would be waited for there. */
#define GROUP_AWAY 3

struct member {
    struct gmsfs_store *handle;
    int entered;
    int taken;                        /* the lock is ours, and the handle does not know it yet */
    int came;                         /* to its device, for us, since the last pause */
    struct gmsfs_ioc_acquire acquire; /* as granted */
    struct gmsfs_ioc_info info;       /* at the last look */
    uint64_t reserve_bytes;           /* as asked for */
    dev_t device;                     /* the mount: all on the machine order them by this */
    uint64_t until_bytes;             /* of it and those before it on its device, aligned */
};

struct group {
    struct member *members;    /* by store id */
    struct member **by_device; /* by device, then by store id: the order of reservations */
    size_t count;
    uint64_t start_ms;
    uint64_t timeout_ms;
};

/* ---- group_members.c ---------------------------------------------------------------------- */

/* By address, so that two calls on the same handles do not wait for each other. */
int gfs_group_enter(struct group *group, gmsfs_t *const *handles, const uint64_t *reserve_bytes,
                    size_t count);
void gfs_group_leave(struct group *group);
/* What the stores say. -ESTALE also when a lock that was taken is no longer there: an administrator
 * ended its session while the others were waited for. */
int gfs_group_look(struct group *group);
/* Looks, and puts them in the order of their ids. -EINVAL: one store twice. */
int gfs_group_sort(struct group *group);
/* At the last look: is everything committed, with bytes, and by one commit of a group? One store
 * alone is whole whatever its commit says. */
int gfs_group_is_whole(const struct group *group);
uint64_t gfs_group_left_ms(const struct group *group);
/* The same to wait for memory, which is never tried once only: that might say -ENOMEM for now. */
uint64_t gfs_group_wait_ms(const struct group *group, uint64_t reserve_bytes);
/* ACQUIRE, which the handle hears nothing of; gfs_group_release gives back what was taken. */
int gfs_member_take(struct member *member, enum gmsfs_mode mode, uint64_t timeout_ms,
                    uint64_t reserve_bytes);
/* The same for who holds others meanwhile: waits for the lock, never for bytes to come to the
 * device (GROUP_AWAY). */
int gfs_member_take_here(struct group *group, struct member *member, enum gmsfs_mode mode);
/* Committed, and its bytes are elsewhere, at the last look. */
int gfs_member_is_away(const struct member *member);
/* The same for RW and who would as well read: waits in its place of the queue, and looks from there
 * whether all are whole by now (GROUP_WHOLE). */
int gfs_member_take_or_see(struct group *group, struct member *member, uint64_t reserve_bytes);
void gfs_group_release(struct group *group);

/* ---- group_reserve.c ---------------------------------------------------------------------- */

/* After a look, also where nobody reserves: it is the order in which stores that are elsewhere come
 * to their devices. -ENOMEM also where a device has not as much in all. */
int gfs_group_plan_memory(struct group *group);
/* With all locks in hand: memory for all, or why not. `lacking`: the store to wait for, where
 * waiting may help (-ENOMEM, -EAGAIN). */
int gfs_group_reserve(struct group *group, struct member **lacking);
/* With nothing in hand: until there was memory for that store. 0: try again; mode: as wished. */
int gfs_group_wait_memory(struct group *group, struct member *lacking, enum gmsfs_mode mode,
                          unsigned tries);
/* ---- group_pause.c ------------------------------------------------------------------------ */

/* Who stops others, and is stopped by them, time and again gets out of step. */
void gfs_group_pause(const struct group *group, unsigned tries);
/* With nothing in hand, after a look: this one is to come to its device. If it had come already,
 * some other group is bringing its own, and both may go on like that for ever: this one pauses. */
void gfs_group_bring(struct group *group, struct member *member);

#endif
