/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several stores as one: their locks all or none, and commits with one id.
 *
 * Why no two groups wait for each other:
 *   - RW takes locks by store id, so a waiter holds locks of lower ids only. RW_OR_RO does the
 *   same,
 *     and waits for no commit: if nothing is committed it is granted RW.
 *   - RO waits for commits, and a commit may need a lock that a reader holds. So it holds nothing
 *   while it waits. - A client that holds one lock and takes no other waits for no group. - A group
 *   waits for memory with nothing else in hand: group_reserve.c. The same for stores that
 *     have to be promoted first, in the order of the devices: of two groups that need each other's
 *     memory, the first on the first device meets no rival on the next. A group that loses a
 *     promoted store pauses, or two groups might repeat that for ever: group_pause.c.
 * A circle of waiters would have a highest store, and its waiter would hold a lock above it.
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "group.h"

/* ---- taking ------------------------------------------------------------------------------- */

/* Those from `first` on, one after the other; GROUP_MIXED as soon as two grants differ. */
static int group_take_from(struct group *group, size_t first, enum gmsfs_mode mode)
{
    for (size_t i = first; i < group->count; i++) {
        int error = gfs_member_take_here(group, group->members + i, mode);

        if (error)
            return error;
        if (group->members[i].acquire.mode != group->members[0].acquire.mode)
            return GROUP_MIXED;
    }
    return gfs_group_look(group);
}

/* RW on all of them, to load a broken group again, unless there turns out to be nothing to heal.
 * Every loader needs the lock of the first store, and may stay on as a reader after its commit:
 * waiting for that reader to leave would be useless, so the wait also ends when the group is whole.
 * While this process has that lock, no other can load. */
static int group_take_to_heal(struct group *group)
{
    int error = gfs_member_take_or_see(group, group->members, 0);

    if (!error)
        error = group_take_from(group, 1, GMSFS_MODE_RW);
    if (!error && gfs_group_is_whole(group))
        error = GROUP_WHOLE;
    return error;
}

/* A grant of RO means that a layout is committed. Equal grants are final: RW if all are empty, or
 * RO if all are whole. Else it releases everything, and takes RW on all. If another process loads
 * the group meanwhile, it starts again, so every further turn follows a commit of another process.
 */
static int group_take_either(struct group *group)
{
    for (;;) {
        int error = group_take_from(group, 0, GMSFS_MODE_RW_OR_RO);

        if (!error && group->members[0].acquire.mode == GMSFS_MODE_RO && !gfs_group_is_whole(group))
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

/* Which of them is waited for, when `busy` could not be had: one that has to come to its device
 * goes before it. */
static int group_choose_busy(struct group *group, struct member **busy)
{
    int error = gfs_group_look(group);

    for (size_t i = 0; i < group->count && !error; i++) {
        if (!gfs_member_is_away(group->by_device[i]))
            continue;
        *busy = group->by_device[i];
        break;
    }
    return error ? error : -EAGAIN;
}

/* RO on all but `has`, at once. -EAGAIN: `busy` has to be waited for. */
static int group_try_readers(struct group *group, const struct member *has, struct member **busy)
{
    for (size_t i = 0; i < group->count; i++) {
        struct member *member = group->members + i;
        int error = member == has ? 0 : gfs_member_take(member, GMSFS_MODE_RO, 0, 0);

        *busy = member;
        if (error)
            return error == -EAGAIN ? group_choose_busy(group, busy) : error;
    }
    return gfs_group_look(group);
}

/* The store that was busy is waited for with nothing else in hand; then the others are tried. */
static int group_take_readers(struct group *group)
{
    struct member *busy = NULL;
    int error = group_try_readers(group, NULL, &busy);

    while (error == -EAGAIN && gfs_group_left_ms(group) > 0) {
        struct member *has = busy;

        gfs_group_release(group);
        if (gfs_member_is_away(has))
            gfs_group_bring(group, has);
        error = gfs_member_take(has, GMSFS_MODE_RO, gfs_group_left_ms(group), 0);
        if (!error)
            error = group_try_readers(group, has, &busy);
    }
    if (!error && !gfs_group_is_whole(group))
        error = -ESTALE;
    return error;
}

/* ---- public ------------------------------------------------------------------------------- */

static int group_check_free(const struct group *group)
{
    for (size_t i = 0; i < group->count; i++)
        if (group->members[i].handle->mode != GMSFS_MODE_NONE ||
            group->members[i].handle->connecting)
            return -EBUSY;
    return 0;
}

/* Opens the stores for the mode; a caller that cannot write to one of them gets RO for all. */
static int group_open_for(struct group *group, enum gmsfs_mode *mode)
{
    for (size_t i = 0; i < group->count && *mode != GMSFS_MODE_RO; i++) {
        struct gmsfs_store *handle = group->members[i].handle;
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
    return mode == GMSFS_MODE_RW ? group_take_from(group, 0, GMSFS_MODE_RW)
                                 : group_take_either(group);
}

/* Promotes the stores, by taking and releasing the reader's lock of each: a promoted store stays on
 * its device for a while. If one has given up its bytes, or is evicted again, the locking that
 * follows notices. */
static int group_promote(struct group *group)
{
    int error = gfs_group_look(group);

    for (size_t i = 0; i < group->count && !error; i++) {
        if (!gfs_member_is_away(group->by_device[i]))
            continue;
        gfs_group_bring(group, group->by_device[i]);
        error = gfs_member_take(group->by_device[i], GMSFS_MODE_RO, gfs_group_left_ms(group), 0);
        gfs_group_release(group);
        if (error == -ENODATA)
            error = 0;
    }
    return error;
}

/* Waits for memory and for promotions with no lock and no reservation in hand, then tries
 * everything again. */
static int group_take(struct group *group, enum gmsfs_mode mode)
{
    for (unsigned tries = 0;; tries++) {
        struct member *lacking = NULL;
        int error = group_take_locks(group, mode);

        if (error == GROUP_AWAY) {
            gfs_group_release(group);
            error = gfs_group_left_ms(group) ? group_promote(group) : -EAGAIN;
            if (error)
                return error;
            continue;
        }

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
    error = gfs_group_enter(&group, handles, reserve_bytes, count);
    if (!error)
        error = group_check_free(&group);
    if (!error)
        error = gfs_group_sort(&group);
    if (!error)
        error = group_open_for(&group, &mode);
    if (!error)
        error = gfs_group_plan_memory(&group);
    if (!error)
        error = group_take(&group, mode);
    if (!error)
        group_note(&group);
    gfs_group_release(&group);
    gfs_group_leave(&group);
    return error == -EAGAIN && timeout_ms != 0 ? -ETIMEDOUT : error;
}

/* Nothing is committed while one of them could not be: revoked, removed, dead. */
static int group_check_writers(struct group *group)
{
    for (size_t i = 0; i < group->count; i++)
        if (group->members[i].handle->mode != GMSFS_MODE_RW)
            return -ENOLCK;
    int error = gfs_group_sort(group);
    for (size_t i = 0; i < group->count && !error; i++) {
        struct member *member = group->members + i;

        if (member->info.session == member->handle->session)
            continue;
        gfs_session_forget(member->handle);
        error = -ESTALE;
    }
    return error;
}

/* Finds a layout that its store would refuse before the first store is committed. */
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

/* Commits the first store last, because every group's waiters queue for it. */
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

    if (flags & ~(GMSFS_COMMIT_STAY | GMSFS_COMMIT_IMMUTABLE))
        return -EINVAL;
    int error = gfs_group_enter(&group, handles, NULL, count);
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
    gfs_group_leave(&group);
    return error;
}
