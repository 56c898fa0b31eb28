/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for several stores as one: for all of them, or none is kept.
 *
 * Who has all the locks tries for memory, store by store, and never waits: what it has so far might
 * be what the one before it in the queue of the next device needs. If a store lacks it, everything
 * is given back, and that store alone is waited for, in the daemon's own queue; then that is given
 * back as well, and all is tried again.
 *
 * Why this comes to an end:
 *   - All try in the order of the devices. Of those that try at one time, one that got as far as
 *     any other is stopped by none of them.
 *   - What is waited for is the memory of all the group's stores on that device up to this one, not
 *     of this one alone, which may be there all the time.
 *   - A waiter holds what it got only until it gives it back. Two that stop each other by that,
 *     time and again, must do so in step, and a random pause puts them out of it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "group.h"

static int compare_devices(const void *left, const void *right)
{
    const struct member *a = *(struct member *const *)left, *b = *(struct member *const *)right;

    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return memcmp(a->info.store_id, b->info.store_id, sizeof a->info.store_id);
}

static uint64_t align_up(uint64_t bytes, uint64_t granularity_bytes)
{
    uint64_t over = granularity_bytes ? bytes % granularity_bytes : 0;

    return over ? bytes + (granularity_bytes - over) : bytes;
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
    uint64_t bytes = align_up(member->reserve_bytes, member->info.granularity_bytes);

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

/* First so that an abort can roll back. That takes what is free for stores that have memory of
 * their own to replace, from those of the group that have none. */
int gfs_group_reserve(struct group *group, struct member **lacking)
{
    int error = group_try_reserve(group, 0, lacking);

    if (!*lacking)
        return error;
    *lacking = NULL;
    error = group_unreserve(group);
    return error ? error : group_try_reserve(group, GMSFS_RESERVE_REPLACING, lacking);
}

/* Who would as well read has no reason to wait for readers of what is whole by now. */
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
