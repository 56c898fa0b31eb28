/* SPDX-License-Identifier: Apache-2.0 */
#include "copier/lane_file.h"

#include "base/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define STAYS_TURNS 32u /* so many later moves, and what has had none of them is unmapped */

static bool is_hugetlb(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC;
}

/* Whole pages of the file's own size, which a memfd tells as its block size. */
static bool map_file(int fd, const struct statx *facts, struct lane_map *map)
{
    size_t page = facts->stx_blksize, bytes = (facts->stx_size + page - 1) / page * page;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (at == MAP_FAILED)
        return false;
    *map =
        (struct lane_map){.at = at, .bytes = bytes, .facts = *facts, .is_hugetlb = is_hugetlb(fd)};
    return true;
}

/* Numbers of files in memory have 32 bits and come again; the moment of birth tells them apart. */
static bool is_same(const struct statx *a, const struct statx *b)
{
    return a->stx_mask & b->stx_mask & STATX_BTIME && a->stx_ino == b->stx_ino &&
           a->stx_dev_major == b->stx_dev_major && a->stx_dev_minor == b->stx_dev_minor &&
           a->stx_btime.tv_sec == b->stx_btime.tv_sec &&
           a->stx_btime.tv_nsec == b->stx_btime.tv_nsec;
}

/* As it was mapped for an earlier move, or now; NULL: there is no room for it. */
static struct lane_map *find_map(struct lane_maps *maps, int fd, const struct statx *facts)
{
    struct lane_map *map, *free = NULL;

    for (unsigned i = 0; i < LANE_MAPS; i++) {
        map = &maps->all[i];
        if (!map->at)
            free = map;
        else if (is_same(&map->facts, facts))
            return map;
    }
    return free && map_file(fd, facts, free) ? free : NULL;
}

void lane_file_open(struct lane_file *file, struct lane_maps *maps, int fd, bool to_write,
                    uint64_t offset, uint64_t bytes)
{
    bool is_memory = to_write && fcntl(fd, F_GET_SEALS) >= 0;
    struct statx facts;

    *file = (struct lane_file){.fd = fd};
    if (!is_memory ||
        statx(fd, "", AT_EMPTY_PATH, STATX_SIZE | STATX_INO | STATX_BTIME, &facts) < 0)
        return;
    if (facts.stx_blksize < LANE_MAP_PAGE_BYTES || offset + bytes > facts.stx_size)
        return;
    file->map = find_map(maps, fd, &facts);
    if (!file->map)
        return;
    file->map->files++;
    file->map->used = maps->turns++;
}

/* Where nothing tells it from others, it is not found again. */
static bool may_stay(const struct lane_maps *maps, const struct lane_map *map)
{
    return map->facts.stx_mask & STATX_BTIME && maps->turns - map->used <= STAYS_TURNS;
}

unsigned lane_file_close(struct lane_file *file, struct lane_maps *maps,
                         struct lane_map old[LANE_MAPS])
{
    bool moves = false;
    unsigned count = 0;

    if (file->map)
        file->map->files--;
    close(file->fd);
    for (unsigned i = 0; i < LANE_MAPS; i++)
        moves |= maps->all[i].files > 0;
    for (unsigned i = 0; i < LANE_MAPS; i++) {
        struct lane_map *map = &maps->all[i];

        if (!map->at || map->files > 0 || (moves && may_stay(maps, map)))
            continue;
        old[count].at = map->at;
        old[count++].bytes = map->bytes;
        map->at = NULL;
    }
    return count;
}

void lane_maps_unmap(const struct lane_map *old, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        munmap(old[i].at, old[i].bytes);
}

/* A read or write failed: whether to try again. Past the page cache some file systems move whole
 * blocks alone, or nothing; then it goes through it, once more. */
static bool may_try_again(int fd, bool *was_refused)
{
    if (errno == EINTR)
        return true;
    if (errno != EINVAL || *was_refused)
        return false;
    *was_refused = true;
    file_end_direct(fd);
    return true;
}

int lane_file_read(const struct lane_file *file, void *to, size_t bytes, uint64_t offset)
{
    char *at = to;
    bool was_refused = false;

    while (bytes > 0) {
        ssize_t got = pread(file->fd, at, bytes, (off_t)offset);

        if (got < 0 && may_try_again(file->fd, &was_refused))
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -ENODATA;
        at += got;
        bytes -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

/* EINVAL: a kernel that cannot make pages ahead; they were made with the file. */
static int make_pages(char *to, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)to & ~(page - 1);
    uintptr_t end = ((uintptr_t)to + bytes + page - 1) & ~(page - 1);

    if (madvise((void *)begin, end - begin, MADV_POPULATE_WRITE) < 0 && errno != EINVAL)
        return errno == EFAULT || errno == ENOMEM ? -ENOSPC : -errno;
#else
    (void)to;
    (void)bytes;
#endif
    return 0;
}

static int write_mapped(const struct lane_map *map, const char *from, size_t bytes, uint64_t offset)
{
    int error = make_pages(map->at + offset, bytes);

    if (error == 0)
        memcpy(map->at + offset, from, bytes);
    return error;
}

static int write_plain(int fd, const char *from, size_t bytes, uint64_t offset)
{
    bool was_refused = false;

    while (bytes > 0) {
        ssize_t put = pwrite(fd, from, bytes, (off_t)offset);

        if (put < 0 && may_try_again(fd, &was_refused))
            continue;
        if (put <= 0)
            return put < 0 ? -errno : -EIO;
        from += put;
        bytes -= (size_t)put;
        offset += (uint64_t)put;
    }
    return 0;
}

int lane_file_write(const struct lane_file *file, const void *from, size_t bytes, uint64_t offset)
{
    struct lane_map *map = file->map;
    int error;

    if (!map)
        return write_plain(file->fd, from, bytes, offset);
    if (map->is_hugetlb || atomic_exchange(&map->is_written, true))
        return write_mapped(map, from, bytes, offset);
    error = write_plain(file->fd, from, bytes, offset);
    atomic_store(&map->is_written, false);
    return error;
}
