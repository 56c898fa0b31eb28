/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for several stores as one: for all of them, or for none.
 *
 * A group with all its locks reserves memory, store by store, and never waits: the group ahead of
 * it in the queue of the next device might need its reservations. If a store's memory is short, the
 * group gives everything back, and waits for that store alone, in the daemon's own queue; then it
 * gives that back as well, and tries everything again.
 *
 * Why this comes to an end:
 *   - All try in the order of the devices. Of the groups that try at one time, the
 *     group that got furthest is stopped by none of the others.
 *   - A group waits for the memory of all its stores on that device up to this one, not of this one
 *     alone, which may be free all the time.
 *   - A waiter gives its memory back at once. Two groups that stop each other by that, time and
 *     again, must do so in step, and a random pause puts them out of step.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/number.h"
#include "group.h"

static int compare_devices(const void *left, const void *right)
{
    const struct member *a = *(struct member *const *)left, *b = *(struct member *const *)right;

    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return memcmp(a->info.store_id, b->info.store_id, sizeof a->info.store_id);
}

/* More than the whole device is told before anything is waited for. */
static int check_device(const struct member *member)
{
    struct statvfs device;

    if (fstatvfs(member->handle->ctl_fd, &device) != 0)
        return -errno;
    return member->until_bytes > device.f_blocks * device.f_frsize ? -ENOMEM : 0;
}

static int plan_member(struct member *member, const struct member *before)
{
    uint64_t before_bytes = before && before->device == member->device ? before->until_bytes : 0;
    uint64_t bytes = number_round_up(member->reserve_bytes, member->info.granularity_bytes);

    if (bytes < member->reserve_bytes || bytes > UINT64_MAX - before_bytes)
        return -ENOMEM;
    member->until_bytes = before_bytes + bytes;
    return bytes ? check_device(member) : 0;
}

static int find_device(struct member *member)
{
    struct stat status;

    if (fstat(member->handle->ctl_fd, &status) != 0)
        return -errno;
    member->device = status.st_dev;
    return 0;
}

int gfs_group_plan_memory(struct group *group)
{
    int error = 0;

    group->by_device = calloc(group->count, sizeof(*group->by_device));
    if (!group->by_device)
        return -ENOMEM;
    for (size_t i = 0; i < group->count && !error; i++) {
        group->by_device[i] = group->members + i;
        error = find_device(group->members + i);
    }
    if (error)
        return error;
    qsort(group->by_device, group->count, sizeof(*group->by_device), compare_devices);
    for (size_t i = 0; i < group->count && !error; i++)
        error = plan_member(group->by_device[i], i ? group->by_device[i - 1] : NULL);
    return error;
}

static int member_reserve(const struct member *member, uint64_t bytes, uint32_t flags)
{
    struct gmsfs_ioc_reserve reserve = {.bytes = bytes, .flags = GMSFS_RESERVE_AS_ACQUIRE | flags};

    return member->reserve_bytes ? gfs_ioctl(member->handle, GMSFS_IOC_RESERVE, &reserve) : 0;
}

static int group_try_reserve(struct group *group, uint32_t flags, struct member **lacking)
{
    for (size_t i = 0; i < group->count; i++) {
        struct member *member = group->by_device[i];
        int error = member_reserve(member, member->reserve_bytes, flags);

        if (error == -ENOMEM || error == -EAGAIN)
            *lacking = member;
        if (error)
            return error;
    }
    return 0;
}

static int group_unreserve(struct group *group)
{
    int error = 0;

    for (size_t i = 0; i < group->count && !error; i++)
        error = member_reserve(group->by_device[i], 0, 0);
    return error;
}

/* First tries reservations that let an abort roll back: those take free memory for stores that
 * could reuse their own. If that leaves too little for the group's other stores, tries
 * GMSFS_RESERVE_REPLACING. */
int gfs_group_reserve(struct group *group, struct member **lacking)
{
    int error = group_try_reserve(group, 0, lacking);

    if (!*lacking)
        return error;
    *lacking = NULL;
    error = group_unreserve(group);
    return error ? error : group_try_reserve(group, GMSFS_RESERVE_REPLACING, lacking);
}

/* Waits for the writer's lock, or until the group is whole: an RW_OR_RO caller then reads it. */
static int wait_as_either(struct group *group, struct member *lacking)
{
    int error = gfs_member_take_or_see(group, lacking, lacking->until_bytes);

    return error == GROUP_WHOLE ? 0 : error;
}

static int wait_as_writer(struct group *group, struct member *lacking)
{
    return gfs_member_take(lacking, GMSFS_MODE_RW, gfs_group_wait_ms(group, lacking->until_bytes),
                           lacking->until_bytes);
}

int gfs_group_wait_memory(struct group *group, struct member *lacking, enum gmsfs_mode mode,
                          unsigned tries)
{
    int error =
        mode == GMSFS_MODE_RW ? wait_as_writer(group, lacking) : wait_as_either(group, lacking);

    gfs_group_release(group);
    if (!error && tries > 0)
        gfs_group_pause(group, tries);
    return error;
}
