/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group - shared by the parts of gmsfs_connect_group
 *
 * For group.c, which takes all locks and commits, group_reserve.c, which reserves their memory, and
 * group_members.c and group_pause.c, which both call. One thread owns a group, and has entered all
 * its handles, from beginning to end.
 */
#ifndef GMSFS_GROUP_H
#define GMSFS_GROUP_H

#include <sys/types.h>

#include "internal.h"

/* Interval at which a waiting RW_OR_RO caller checks whether the group is whole by now. */
#define GROUP_LOOK_MS 1000

/* Results of the steps of RW_OR_RO: the grants differ; the group became whole during the wait. */
#define GROUP_MIXED 1
#define GROUP_WHOLE 2
/* Also of a writer's steps: a store is not on its device, so taking its lock would wait for that.
 */
#define GROUP_AWAY 3

struct member {
    struct gmsfs_store *handle;
    int entered;
    int taken; /* true if the lock is taken, but not yet noted in the handle */
    int came;  /* true if promoted for this group since the last pause */
    struct gmsfs_ioc_acquire acquire; /* as granted */
    struct gmsfs_ioc_info info;       /* at the last look */
    uint64_t reserve_bytes;           /* as asked for */
    dev_t device;                     /* of the mount; every group on the machine sorts by it */
    uint64_t until_bytes; /* reservation of it and its predecessors on its device, aligned */
};

struct group {
    struct member *members;    /* by store id */
    struct member **by_device; /* by device, then by store id: the order of reservations */
    size_t count;
    uint64_t start_ms;
    uint64_t timeout_ms;
};

/* ---- group_members.c ---------------------------------------------------------------------- */

/* Enters all handles by address, so that two calls on the same handles do not wait for each other.
 */
int gfs_group_enter(struct group *group, gmsfs_t *const *handles, const uint64_t *reserve_bytes,
                    size_t count);
void gfs_group_leave(struct group *group);
/* Reads the info of all stores. -ESTALE also if a taken lock is lost: an administrator ended its
 * session during the wait for the others. */
int gfs_group_look(struct group *group);
/* Looks, and sorts the members by store id. -EINVAL: one store twice. */
int gfs_group_sort(struct group *group);
/* True if at the last look all stores were committed, with bytes, and by one commit of a group. One
 * store alone is whole after any commit. */
int gfs_group_is_whole(const struct group *group);
uint64_t gfs_group_left_ms(const struct group *group);
/* As gfs_group_left_ms for a wait for memory, which never has timeout 0: that could be -ENOMEM. */
uint64_t gfs_group_wait_ms(const struct group *group, uint64_t reserve_bytes);
/* ACQUIRE that is not noted in the handle; gfs_group_release undoes it. */
int gfs_member_take(struct member *member, enum gmsfs_mode mode, uint64_t timeout_ms,
                    uint64_t reserve_bytes);
/* As gfs_member_take while other locks are held: waits for the lock, never for a promotion
 * (GROUP_AWAY). */
int gfs_member_take_here(struct group *group, struct member *member, enum gmsfs_mode mode);
/* True if at the last look it was committed and its bytes were not on its device. */
int gfs_member_is_away(const struct member *member);
/* As gfs_member_take with RW for an RW_OR_RO caller: waits in the queue, and checks meanwhile
 * whether the group is whole by now (GROUP_WHOLE). */
int gfs_member_take_or_see(struct group *group, struct member *member, uint64_t reserve_bytes);
void gfs_group_release(struct group *group);

/* ---- group_reserve.c ---------------------------------------------------------------------- */

/* Sorts the members by device, after a look, also without reservations: this is the order of
 * promotions too. -ENOMEM also if a device is smaller than the reservations. */
int gfs_group_plan_memory(struct group *group);
/* With all locks in hand: reserves memory for all, or returns why not. `lacking`: the store to wait
 * for, if waiting may help (-ENOMEM, -EAGAIN). */
int gfs_group_reserve(struct group *group, struct member **lacking);
/* With nothing in hand: waits until there was memory for that store. 0: try again; mode: the wish.
 */
int gfs_group_wait_memory(struct group *group, struct member *lacking, enum gmsfs_mode mode,
                          unsigned tries);
/* ---- group_pause.c ------------------------------------------------------------------------ */

/* Pauses for a random time, longer with each try, to break the symmetry of groups that stop each
 * other. */
void gfs_group_pause(const struct group *group, unsigned tries);
/* With nothing in hand, after a look: notes that this store will be promoted for the group. If it
 * was before, another group has evicted it, and both could repeat that for ever: so this one
 * pauses. */
void gfs_group_bring(struct group *group, struct member *member);

#endif
