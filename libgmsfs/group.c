/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several stores as one: their locks all or none, and commits that bear one id.
 *
 * Why no two groups wait for each other:
 *   - RW goes by store id, so whoever waits holds locks of lower ids only. RW_OR_RO does likewise,
 *     and waits for nobody's commit: where nothing is committed it is granted RW.
 *   - RO waits for commits, and a commit may need a lock that a reader holds. So while it waits it
 *     holds nothing.
 *   - Who holds one lock and takes no other waits for nobody.
 *   - Memory is waited for with nothing else in hand: group_reserve.c.
 * A circle of waiters would have a highest store, whose waiter held a lock above it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "group.h"

/* ---- members ------------------------------------------------------------------------------ */

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

/* By address, so that two calls on the same handles do not wait for each other. */
static int group_enter(struct group *group, gmsfs_t *const *handles, const uint64_t *reserve_bytes,
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
    }
    return error;
}

static void group_leave(struct group *group)
{
    free(group->by_device);
    for (size_t i = 0; i < group->count; i++)
        if (group->members[i].entered)
            gfs_leave(group->members[i].handle);
    free(group->members);
}

/* What the stores say. -ESTALE also when a lock that was taken is no longer there: an administrator
 * ended its session while the others were waited for. */
static int group_look(struct group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        struct member *member = group->members + i;
        int error;

        memset(&member->info, 0, sizeof member->info);
        error = gfs_ioctl(member->handle, GMSFS_IOC_INFO, &member->info);
        if (!error && member->taken && member->info.session != member->acquire.session)
            error = -ESTALE;
        if (error)
            return error;
    }
    return 0;
}

static int group_sort(struct group *group)
{
    int error = group_look(group);

    if (error)
        return error;
    qsort(group->members, group->count, sizeof *group->members, member_compare_stores);
    for (size_t i = 1; i < group->count; i++)
        if (member_compare_stores(group->members + i - 1, group->members + i) == 0)
            return -EINVAL;
    return 0;
}

/* At the last look: is everything committed, and by one commit of a group? One store alone is
 * whole whatever its commit says. */
static int group_is_whole(const struct group *group)
{
    const uint8_t *id = group->members[0].info.group;

    for (size_t i = 0; i < group->count; i++)
        if (!group->members[i].info.committed ||
            memcmp(group->members[i].info.group, id, sizeof group->members[i].info.group) != 0)
            return 0;
    return group->count == 1 || !gfs_is_zero(id);
}

/* ---- taking ------------------------------------------------------------------------------- */

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
    int error;

    member->acquire = acquire;
    error = gfs_session_take(member->handle, &member->acquire);
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
        error = group_look(group);
        if (error)
            return error;
        if (group_is_whole(group))
            return GROUP_WHOLE;
    }
}

static int member_take(struct member *member, enum gmsfs_mode mode, uint64_t timeout_ms)
{
    return gfs_member_take(member, mode, timeout_ms, 0);
}

/* Nothing was written, so a writer's lock leaves what is committed as it is. */
void gfs_group_release(struct group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        if (group->members[i].taken)
            gfs_session_drop(group->members[i].handle);
        group->members[i].taken = 0;
    }
}

/* Those from `first` on, one after the other; GROUP_MIXED as soon as two grants differ. */
static int group_take_from(struct group *group, size_t first, enum gmsfs_mode mode)
{
    for (size_t i = first; i < group->count; i++) {
        int error = member_take(group->members + i, mode, gfs_group_left_ms(group));

        if (error)
            return error;
        if (group->members[i].acquire.mode != group->members[0].acquire.mode)
            return GROUP_MIXED;
    }
    return group_look(group);
}

static int group_take_writers(struct group *group)
{
    return group_take_from(group, 0, GMSFS_MODE_RW);
}

/* The lock of the first store, to heal. Whoever heals needs it, and may then stay on as a reader:
 * a wait for that one to leave would be in vain. While it is ours nobody else can heal. */
static int group_wait_to_heal(struct group *group)
{
    return gfs_member_take_or_see(group, group->members, 0);
}

/* RW on all of them, unless there turns out to be nothing to heal. */
static int group_take_to_heal(struct group *group)
{
    int error = group_wait_to_heal(group);

    if (!error)
        error = group_take_from(group, 1, GMSFS_MODE_RW);
    if (!error && group_is_whole(group))
        error = GROUP_WHOLE;
    return error;
}

/* A grant of RO says that something is committed. All of one kind: RW where all are empty, or RO
 * where all are whole. Else everything is given back, and RW is taken on all. What another process
 * heals meanwhile is looked at anew, so every further turn follows a commit of somebody else's. */
static int group_take_either(struct group *group)
{
    for (;;) {
        int error = group_take_from(group, 0, GMSFS_MODE_RW_OR_RO);

        if (!error && group->members[0].acquire.mode == GMSFS_MODE_RO && !group_is_whole(group))
            error = GROUP_MIXED;
        if (error != GROUP_MIXED)
            return error;
        gfs_group_release(group);
        error = group_take_to_heal(group);
        if (error != GROUP_WHOLE)
            return error;
        gfs_group_release(group);
        if (gfs_group_left_ms(group) == 0)
            return -EAGAIN;
    }
}

/* RO on all but `has`, at once. -EAGAIN: `busy` has to be waited for. */
static int group_try_readers(struct group *group, size_t has, size_t *busy)
{
    for (size_t i = 0; i < group->count; i++) {
        int error = i == has ? 0 : member_take(group->members + i, GMSFS_MODE_RO, 0);

        if (error == -EAGAIN)
            *busy = i;
        if (error)
            return error;
    }
    return group_look(group);
}

/* The store that was busy is waited for with nothing else in hand; then the others are tried. */
static int group_take_readers(struct group *group)
{
    size_t has = SIZE_MAX, busy = 0;
    int error = group_try_readers(group, has, &busy);

    while (error == -EAGAIN && gfs_group_left_ms(group) > 0) {
        gfs_group_release(group);
        has = busy;
        error = member_take(group->members + has, GMSFS_MODE_RO, gfs_group_left_ms(group));
        if (!error)
            error = group_try_readers(group, has, &busy);
    }
    if (!error && !group_is_whole(group))
        error = -ESTALE;
    return error;
}

/* ---- public ------------------------------------------------------------------------------- */

static int group_check_free(const struct group *group)
{
    for (size_t i = 0; i < group->count; i++)
        if (group->members[i].handle->mode != GMSFS_MODE_NONE)
            return -EBUSY;
    return 0;
}

/* Who cannot write to one of the stores can write to none of the group. */
static int group_open_for(struct group *group, enum gmsfs_mode *mode)
{
    for (size_t i = 0; i < group->count && *mode != GMSFS_MODE_RO; i++) {
        struct gmsfs *handle = group->members[i].handle;
        int error = handle->writable ? 0 : gfs_ctl_open(handle, 1);

        if (error == -EACCES && *mode == GMSFS_MODE_RW_OR_RO)
            *mode = GMSFS_MODE_RO;
        else if (error)
            return error;
    }
    return 0;
}

static int group_take_locks(struct group *group, enum gmsfs_mode mode)
{
    if (mode == GMSFS_MODE_RO)
        return group_take_readers(group);
    return mode == GMSFS_MODE_RW ? group_take_writers(group) : group_take_either(group);
}

/* Where memory lacks, that is waited for with nothing in hand, and all is tried again. */
static int group_take(struct group *group, enum gmsfs_mode mode)
{
    for (unsigned tries = 0;; tries++) {
        struct member *lacking = NULL;
        int error = group_take_locks(group, mode);

        if (!error && group->members[0].acquire.mode == GMSFS_MODE_RW)
            error = gfs_group_reserve(group, &lacking);
        if (!lacking)
            return error;
        if (gfs_group_left_ms(group) == 0)
            return group->timeout_ms ? -EAGAIN : error;
        gfs_group_release(group);
        error = gfs_group_wait_memory(group, lacking, mode, tries);
        if (error)
            return error;
    }
}

static void group_note(struct group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        struct member *member = group->members + i;

        gfs_session_note(member->handle, &member->acquire, member->info.committed != 0);
        if (member->acquire.mode == GMSFS_MODE_RW)
            member->handle->announced_bytes = member->reserve_bytes;
        member->taken = 0;
    }
}

int gmsfs_connect_group(gmsfs_t *const *handles, size_t count, enum gmsfs_mode mode,
                        uint64_t timeout_ms)
{
    return gmsfs_connect_group_reserve(handles, count, mode, timeout_ms, NULL);
}

static int group_check_mode(enum gmsfs_mode mode, const uint64_t *reserve_bytes, size_t count)
{
    if (mode == GMSFS_MODE_RW || mode == GMSFS_MODE_RW_OR_RO)
        return 0;
    for (size_t i = 0; reserve_bytes && i < count && i < GMSFS_GROUP_MAX; i++)
        if (reserve_bytes[i])
            return -EINVAL;
    return mode == GMSFS_MODE_RO ? 0 : -EINVAL;
}

int gmsfs_connect_group_reserve(gmsfs_t *const *handles, size_t count, enum gmsfs_mode mode,
                                uint64_t timeout_ms, const uint64_t *reserve_bytes)
{
    struct group group = {.start_ms = gfs_clock_ms(), .timeout_ms = timeout_ms};
    int error = group_check_mode(mode, reserve_bytes, count);

    if (error)
        return error;
    error = group_enter(&group, handles, reserve_bytes, count);
    if (!error)
        error = group_check_free(&group);
    if (!error)
        error = group_sort(&group);
    if (!error)
        error = group_open_for(&group, &mode);
    if (!error && mode != GMSFS_MODE_RO)
        error = gfs_group_plan_memory(&group);
    if (!error)
        error = group_take(&group, mode);
    if (!error)
        group_note(&group);
    gfs_group_release(&group);
    group_leave(&group);
    return error == -EAGAIN && timeout_ms != 0 ? -ETIMEDOUT : error;
}

/* Nothing is committed while one of them could not be: revoked, removed, dead. */
static int group_check_writers(struct group *group)
{
    int error;

    for (size_t i = 0; i < group->count; i++)
        if (group->members[i].handle->mode != GMSFS_MODE_RW)
            return -ENOLCK;
    error = group_sort(group);
    for (size_t i = 0; i < group->count && !error; i++) {
        struct member *member = group->members + i;

        if (member->info.session == member->handle->session)
            continue;
        gfs_session_forget(member->handle);
        error = -ESTALE;
    }
    return error;
}

/* What a store would refuse is found before the first of them has committed. */
static int group_check_layouts(struct group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        struct gmsfs_ioc_commit commit = {.flags = GMSFS_COMMIT_CHECK};
        int error = gfs_ioctl(group->members[i].handle, GMSFS_IOC_COMMIT, &commit);

        if (error)
            return error;
    }
    return 0;
}

static int group_make_id(uint8_t id[16])
{
    ssize_t got;

    do
        got = getrandom(id, 16, 0);
    while (got < 0 && errno == EINTR);
    return got == 16 ? 0 : got < 0 ? -errno : -EIO;
}

/* The first store comes last: everybody who wants the group queues up for it. */
static int group_commit(struct group *group, unsigned flags, const uint8_t id[16])
{
    int error = 0;

    for (size_t i = group->count; i-- > 0 && !error;)
        error = gfs_session_commit(group->members[i].handle, flags | GMSFS_COMMIT_GROUP, id);
    return error;
}

int gmsfs_commit_group(gmsfs_t *const *handles, size_t count, unsigned flags, uint8_t *id)
{
    struct group group = {0};
    uint8_t bytes[16];
    int error;

    if (flags & ~GMSFS_COMMIT_STAY)
        return -EINVAL;
    error = group_enter(&group, handles, NULL, count);
    if (!error)
        error = group_check_writers(&group);
    if (!error)
        error = group_check_layouts(&group);
    if (!error)
        error = group_make_id(bytes);
    if (!error) {
        error = group_commit(&group, flags, bytes);
        if (id)
            memcpy(id, bytes, sizeof bytes);
    }
    group_leave(&group);
    return error;
}
