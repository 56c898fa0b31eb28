/* SPDX-License-Identifier: Apache-2.0 */
/* The stores of a group, one by one: entered, looked at, taken, given back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "group.h"

/* ---- all of them -------------------------------------------------------------------------- */

static int member_compare_handles(const void *left, const void *right)
{
    uintptr_t a = (uintptr_t)((const struct member *)left)->handle;
    uintptr_t b = (uintptr_t)((const struct member *)right)->handle;

    return (a > b) - (a < b);
}

static int member_compare_stores(const void *left, const void *right)
{
    const struct member *a = left, *b = right;

    return memcmp(a->info.store_id, b->info.store_id, sizeof a->info.store_id);
}

int gfs_group_enter(struct group *group, gmsfs_t *const *handles, const uint64_t *reserve_bytes,
                    size_t count)
{
    int error = 0;

    if (!handles || count == 0 || count > GMSFS_GROUP_MAX)
        return -EINVAL;
    group->members = calloc(count, sizeof *group->members);
    if (!group->members)
        return -ENOMEM;
    group->count = count;
    for (size_t i = 0; i < count; i++)
        group->members[i] = (struct member){.handle = handles[i],
                                            .reserve_bytes = reserve_bytes ? reserve_bytes[i] : 0};
    qsort(group->members, count, sizeof *group->members, member_compare_handles);
    for (size_t i = 1; i < count; i++)
        if (group->members[i].handle == group->members[i - 1].handle)
            return -EINVAL;
    for (size_t i = 0; i < count && !error; i++) {
        error = gfs_enter(group->members[i].handle);
        group->members[i].entered = !error;
        if (!error && i > 0)
            gfs_wait_share(group->members[i].handle, group->members[0].handle);
    }
    return error;
}

void gfs_group_leave(struct group *group)
{
    free(group->by_device);
    for (size_t i = 0; i < group->count; i++)
        if (group->members[i].entered)
            gfs_wait_dismiss(group->members[i].handle); /* before the first may be another call's */
    for (size_t i = 0; i < group->count; i++)
        if (group->members[i].entered)
            gfs_leave(group->members[i].handle);
    free(group->members);
}

int gfs_group_look(struct group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        struct member *member = group->members + i;

        memset(&member->info, 0, sizeof member->info);
        int error = gfs_ioctl(member->handle, GMSFS_IOC_INFO, &member->info);
        if (!error && member->taken && member->info.session != member->acquire.session)
            error = -ESTALE;
        if (error)
            return error;
    }
    return 0;
}

int gfs_group_sort(struct group *group)
{
    int error = gfs_group_look(group);

    if (error)
        return error;
    qsort(group->members, group->count, sizeof *group->members, member_compare_stores);
    for (size_t i = 1; i < group->count; i++)
        if (member_compare_stores(group->members + i - 1, group->members + i) == 0)
            return -EINVAL;
    return 0;
}

int gfs_group_is_whole(const struct group *group)
{
    const uint8_t *id = group->members[0].info.group;

    for (size_t i = 0; i < group->count; i++)
        if (!group->members[i].info.committed || !group->members[i].info.residency ||
            memcmp(group->members[i].info.group, id, sizeof group->members[i].info.group) != 0)
            return 0;
    return group->count == 1 || !gfs_is_zero(id);
}

/* Nothing was written, so releasing a writer's lock leaves the committed layout as it is. */
void gfs_group_release(struct group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        if (group->members[i].taken)
            gfs_session_drop(group->members[i].handle);
        else if (group->members[i].entered)
            gfs_session_give_up_place(group->members[i].handle);
        group->members[i].taken = 0;
    }
}

/* ---- taking one --------------------------------------------------------------------------- */

uint64_t gfs_group_left_ms(const struct group *group)
{
    uint64_t spent_ms = gfs_clock_ms() - group->start_ms;

    if (group->timeout_ms == GMSFS_TIMEOUT_FOREVER)
        return GMSFS_TIMEOUT_FOREVER;
    return spent_ms < group->timeout_ms ? group->timeout_ms - spent_ms : 0;
}

uint64_t gfs_group_wait_ms(const struct group *group, uint64_t reserve_bytes)
{
    uint64_t left_ms = gfs_group_left_ms(group);

    return left_ms == 0 && reserve_bytes ? 1 : left_ms;
}

static int member_acquire(struct member *member, struct gmsfs_ioc_acquire acquire)
{
    member->acquire = acquire;
    member->acquire.flags |= GMSFS_ACQUIRE_GROUP;
    int error = gfs_session_take(member->handle, &member->acquire);
    member->taken = !error;
    return error;
}

int gfs_member_take(struct member *member, enum gmsfs_mode mode, uint64_t timeout_ms,
                    uint64_t reserve_bytes)
{
    return member_acquire(member, (struct gmsfs_ioc_acquire){.mode = mode,
                                                             .timeout_ms = timeout_ms,
                                                             .reserve_bytes = reserve_bytes});
}

int gfs_member_is_away(const struct member *member)
{
    return member->info.committed && member->info.residency &&
           !(member->info.residency & GMSFS_RESIDENCY_DEVICE);
}

/* It may leave its device while the lock is waited for. */
int gfs_member_take_here(struct group *group, struct member *member, enum gmsfs_mode mode)
{
    int error = gfs_member_take(member, mode, 0, 0);

    while (error == -EAGAIN || error == -ETIMEDOUT) {
        error = gfs_ioctl(member->handle, GMSFS_IOC_INFO, &member->info);
        if (error)
            return error;
        if (gfs_member_is_away(member))
            return GROUP_AWAY;
        uint64_t left_ms = gfs_group_left_ms(group);
        int last = left_ms <= GROUP_LOOK_MS;
        error = member_acquire(
            member, (struct gmsfs_ioc_acquire){.mode = mode,
                                               .flags = last ? 0 : GMSFS_ACQUIRE_AGAIN,
                                               .timeout_ms = last ? left_ms : GROUP_LOOK_MS});
        if (last)
            return error;
    }
    return error;
}

/* Readers that keep coming would keep it out for ever, were they let in whenever it looks. */
int gfs_member_take_or_see(struct group *group, struct member *member, uint64_t reserve_bytes)
{
    for (;;) {
        uint64_t left_ms = gfs_group_wait_ms(group, reserve_bytes);
        int last = left_ms <= GROUP_LOOK_MS;
        int error = member_acquire(
            member, (struct gmsfs_ioc_acquire){.mode = GMSFS_MODE_RW,
                                               .flags = last ? 0 : GMSFS_ACQUIRE_AGAIN,
                                               .timeout_ms = last ? left_ms : GROUP_LOOK_MS,
                                               .reserve_bytes = reserve_bytes});

        if (error != -ETIMEDOUT || last)
            return error;
        error = gfs_group_look(group);
        if (error)
            return error;
        if (gfs_group_is_whole(group))
            return GROUP_WHOLE;
    }
}
