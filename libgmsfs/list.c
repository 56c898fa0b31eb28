/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations as the directory `allocations` and its attributes show them. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "internal.h"

struct list_walk {
    struct gmsfs_handle_info *list;
    size_t count, room;
    uint64_t slot; /* the one wanted, or GMSFS_SLOT_NONE */
};

/* -ENODATA or -ENOENT: gone, or not an allocation. */
static int list_describe(int dir_fd, const char *name, struct gmsfs_handle_info *info)
{
    struct stat status;
    int r = gfs_text_copy(info->name, sizeof info->name, name);

    if (!r && fstatat(dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    if (!r)
        r = gfs_xattr_u64(dir_fd, name, "user.gmsfs.rank", &info->rank);
    if (!r)
        r = gfs_xattr_u64(dir_fd, name, "user.gmsfs.aligned_size", &info->aligned_bytes);
    if (!r) {
        info->size_bytes = (uint64_t)status.st_size;
        r = gfs_xattr_text(dir_fd, name, "user.gmsfs.tag", info->tag, sizeof info->tag);
        if (r == -ENODATA) {
            info->tag[0] = 0;
            r = 0;
        }
    }
    return r;
}

static int list_grow(struct list_walk *walk)
{
    size_t room = walk->room ? walk->room * 2 : 64;
    struct gmsfs_handle_info *grown;

    if (walk->count < walk->room)
        return 0;
    grown = realloc(walk->list, room * sizeof *grown);
    if (!grown)
        return -ENOMEM;
    walk->list = grown;
    walk->room = room;
    return 0;
}

/* What vanishes between two looks was removed meanwhile, and is left out. */
static int list_each(void *context, int dir_fd, const char *name)
{
    struct list_walk *walk = context;
    struct gmsfs_handle_info *info;
    int r = list_grow(walk);

    if (r)
        return r;
    info = walk->list + walk->count;
    memset(info, 0, sizeof *info);
    r = gfs_xattr_u64(dir_fd, name, "user.gmsfs.slot", &info->slot);
    if (!r && walk->slot != GMSFS_SLOT_NONE && info->slot != walk->slot)
        return 0;
    if (!r)
        r = list_describe(dir_fd, name, info);
    if (r == -ENODATA || r == -ENOENT || r == -ESTALE)
        return 0;
    if (r)
        return r;
    walk->count++;
    return walk->slot == GMSFS_SLOT_NONE ? 0 : 1;
}

static int list_compare(const void *left, const void *right)
{
    uint64_t a = ((const struct gmsfs_handle_info *)left)->slot;
    uint64_t b = ((const struct gmsfs_handle_info *)right)->slot;

    return (a > b) - (a < b);
}

int gfs_list(struct gmsfs *handle, struct gmsfs_handle_info **list, size_t *count)
{
    struct list_walk walk = {.slot = GMSFS_SLOT_NONE};
    int r = gfs_dir_walk(handle, "allocations", list_each, &walk);

    if (r) {
        free(walk.list);
        return r;
    }
    if (walk.count > 1)
        qsort(walk.list, walk.count, sizeof *walk.list, list_compare);
    *list = walk.list;
    *count = walk.count;
    return 0;
}

const struct gmsfs_handle_info *gfs_list_lookup(const struct gmsfs_handle_info *list, size_t count,
                                                uint64_t slot)
{
    struct gmsfs_handle_info wanted = {.slot = slot};

    return count ? bsearch(&wanted, list, count, sizeof *list, list_compare) : NULL;
}

/* Most allocations have the name that their slot gave them. */
static int list_find_by_name(struct gmsfs *handle, uint64_t slot, struct gmsfs_handle_info *info)
{
    char name[64];
    int r;

    memset(info, 0, sizeof *info);
    snprintf(name, sizeof name, "allocations/a%06" PRIu64, slot);
    r = gfs_xattr_u64(handle->dir_fd, name, "user.gmsfs.slot", &info->slot);
    if (!r && info->slot != slot)
        r = -ENOENT;
    if (!r)
        r = list_describe(handle->dir_fd, name, info);
    if (!r)
        r = gfs_text_copy(info->name, sizeof info->name, strchr(name, '/') + 1);
    return r;
}

int gfs_list_find(struct gmsfs *handle, uint64_t slot, struct gmsfs_handle_info *info)
{
    struct list_walk walk = {.slot = slot};
    int r;

    if (slot == GMSFS_SLOT_NONE)
        return -ENOENT;
    if (list_find_by_name(handle, slot, info) == 0)
        return 0;
    r = gfs_dir_walk(handle, "allocations", list_each, &walk);
    if (r > 0)
        *info = walk.list[0];
    free(walk.list);
    return r > 0 ? 0 : r ? r : -ENOENT;
}

static int list_rank(struct gmsfs *handle, uint64_t slot, uint64_t *rank)
{
    struct gmsfs_handle_info info;
    int r = gfs_list_find(handle, slot, &info);

    if (!r)
        *rank = info.rank;
    return r;
}

/* Slots rise with ranks. So where the slots of the first and of the last rank lie as far apart as
 * there are allocations, those between have no gap. */
int gfs_list_in_a_row(struct gmsfs *handle, uint64_t near, uint64_t *first, uint64_t *count)
{
    struct gmsfs_ioc_info info = {0};
    uint64_t rank;

    if (gfs_ioctl(handle, GMSFS_IOC_INFO, &info) || info.allocations == 0 ||
        list_rank(handle, near, &rank) || rank > near)
        return 0;
    *first = near - rank;
    *count = info.allocations;
    return !list_rank(handle, *first, &rank) && rank == 0 &&
           !list_rank(handle, *first + (*count - 1), &rank) && rank == *count - 1;
}

/* ---- public ------------------------------------------------------------------------------- */

int gmsfs_get_handle_info(gmsfs_t *handle, uint64_t slot, struct gmsfs_handle_info *out)
{
    struct gmsfs_handle_info info;
    int r;

    if (!out)
        return -EINVAL;
    r = gfs_enter(handle);
    if (r)
        return r;
    r = gfs_list_find(handle, slot, &info);
    gfs_leave(handle);
    if (!r)
        *out = info;
    return r;
}

int gmsfs_list_handles(gmsfs_t *handle, const char *tag, struct gmsfs_handle_info **out,
                       size_t *out_count)
{
    struct gmsfs_handle_info *list = NULL;
    size_t count = 0, kept = 0;
    int r;

    if (!out || !out_count)
        return -EINVAL;
    r = gfs_enter(handle);
    if (r)
        return r;
    r = gfs_list(handle, &list, &count);
    gfs_leave(handle);
    if (r)
        return r;
    for (size_t i = 0; i < count; i++)
        if (!tag || strcmp(list[i].tag, tag) == 0)
            list[kept++] = list[i];
    if (kept == 0) {
        free(list);
        list = NULL;
    }
    *out = list;
    *out_count = kept;
    return 0;
}
