/* SPDX-License-Identifier: Apache-2.0 */
#include "source/direct.h"

#include "base/file_io.h"
#include "base/thread.h"
#include "vmm/headroom.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#define FD_PATH_BYTES 32
#define WINDOW_BYTES  ((size_t)1 << 30) /* mapped at a time to count cached pages */

/* ---- the choice ---------------------------------------------------------------------------- */

int direct_parse(const char *text, enum direct_use *use)
{
    static const char *const words[] = {
        [DIRECT_AUTO] = "auto", [DIRECT_ALWAYS] = "always", [DIRECT_NEVER] = "never"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(text, words[i]) == 0) {
            *use = (enum direct_use)i;
            return 0;
        }
    }
    return -EINVAL;
}

enum direct_use direct_decide(enum direct_use use, uint64_t files_bytes, uint64_t taken_bytes,
                              uint64_t available_bytes)
{
    bool fits = taken_bytes <= available_bytes && files_bytes <= available_bytes - taken_bytes;

    return use == DIRECT_AUTO && fits ? DIRECT_NEVER : use;
}

uint64_t direct_available_bytes(void)
{
    struct headroom_info info = {0};
    struct headroom *headroom;
    int error = headroom_open("", &headroom);

    if (!error) {
        error = headroom_read(headroom, &info);
        headroom_close(headroom);
    }
    return error ? UINT64_MAX : info.available_bytes;
}

/* If the free memory is unknown, leaves the choice to the kernel: through the cache. */
enum direct_use direct_choose(enum direct_use use, uint64_t files_bytes, uint64_t taken_bytes)
{
    return use == DIRECT_AUTO
               ? direct_decide(use, files_bytes, taken_bytes, direct_available_bytes())
               : use;
}

/* ---- cached bytes ---------------------------------------------------------------------------- */

/* Counts by a system call that Linux 6.5 added. */
static bool count_by_cachestat(int fd, uint64_t offset_bytes, uint64_t size_bytes, uint64_t page,
                               uint64_t *bytes)
{
#ifdef SYS_cachestat
    const long number = SYS_cachestat;
#else
    const long number = 451; /* the same on every architecture of Debian */
#endif
    struct {
        uint64_t offset_bytes, size_bytes;
    } range = {offset_bytes, size_bytes};
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted; /* pages */
    } counts = {0};

    if (syscall(number, fd, &range, &counts, 0) < 0)
        return false;
    *bytes = counts.cached * page;
    return true;
}

/* Counts by a mapping. mincore(2) reports all as cached to a user that neither owns nor may write
 * the file. */
static uint64_t count_by_mincore(int fd, uint64_t offset_bytes, size_t size_bytes, uint64_t page)
{
    size_t pages = (size_t)((size_bytes + page - 1) / page);
    SCOPED_FREE unsigned char *there = malloc(pages);
    void *map = mmap(NULL, size_bytes, PROT_READ, MAP_SHARED, fd, (off_t)offset_bytes);
    uint64_t count = 0;

    if (there && map != MAP_FAILED && mincore(map, size_bytes, there) == 0)
        for (size_t i = 0; i < pages; i++)
            count += there[i] & 1;
    if (map != MAP_FAILED)
        munmap(map, size_bytes);
    return count * page;
}

static bool is_overlay(int fd)
{
    struct statfs system;

    return fstatfs(fd, &system) == 0 && system.f_type == OVERLAYFS_SUPER_MAGIC;
}

uint64_t direct_count_cached(int fd, uint64_t offset_bytes, uint64_t size_bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), bytes = 0;
    uint64_t begin = offset_bytes & ~(page - 1), end = offset_bytes + size_bytes;

    /* cachestat(2) sees the file of the overlay, which has no pages; a mapping sees the file
     * below. */
    if (!is_overlay(fd) && count_by_cachestat(fd, begin, end - begin, page, &bytes))
        return bytes;
    for (uint64_t at = begin; at < end; at += WINDOW_BYTES) {
        uint64_t left = end - at;
        bytes += count_by_mincore(fd, at, left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES, page);
    }
    return bytes;
}

/* ---- files --------------------------------------------------------------------------------- */

/* A tmpfs is the cache; newer ones accept O_DIRECT and ignore it. */
static bool is_cache_alone(int fd)
{
    struct statfs system;

    return fstatfs(fd, &system) < 0 || system.f_type == TMPFS_MAGIC ||
           system.f_type == RAMFS_MAGIC || system.f_type == HUGETLBFS_MAGIC;
}

/* Since Linux 6.1 a file system reports its alignment; before, a page was always enough. */
static bool asks_for_more(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx known;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &known) == 0 &&
        (known.stx_mask & STATX_DIOALIGN))
        return known.stx_dio_offset_align == 0 || known.stx_dio_offset_align > DIRECT_ALIGN_BYTES ||
               known.stx_dio_mem_align > DIRECT_ALIGN_BYTES;
#endif
    (void)fd;
    return false;
}

/* Opens the same file again, under any name. */
static int direct_open_again(int fd, int flags)
{
    char path[FD_PATH_BYTES];

    if (is_cache_alone(fd) || asks_for_more(fd))
        return -EOPNOTSUPP;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = open(path, flags | O_DIRECT | O_CLOEXEC);
    return again < 0 ? -errno : again;
}

void direct_open(struct direct_file *file, int fd, enum direct_use use, uint64_t offset_bytes,
                 uint64_t size_bytes)
{
    file->fd = fd;
    file->direct_fd = -1;
    atomic_init(&file->gave_up, false);
    if (use == DIRECT_NEVER || size_bytes < DIRECT_LEAST_BYTES)
        return;
    if (use == DIRECT_AUTO && direct_count_cached(fd, offset_bytes, size_bytes) >= size_bytes / 2)
        return;
    file->direct_fd = direct_open_again(fd, O_RDONLY);
}

int direct_open_writer(int fd)
{
    return direct_open_again(fd, O_WRONLY);
}

void direct_close(struct direct_file *file)
{
    if (file->direct_fd >= 0)
        close(file->direct_fd);
    file->direct_fd = -1;
}

uint64_t direct_threads(uint64_t asked, bool is_direct)
{
    return !asked && is_direct && thread_count_processors() < DIRECT_THREADS ? DIRECT_THREADS
                                                                             : asked;
}

bool direct_is_on(const struct direct_file *file)
{
    return file->direct_fd >= 0 && !atomic_load(&file->gave_up);
}

/* ---- reading ------------------------------------------------------------------------------- */

static uint64_t direct_before(uint64_t offset_bytes)
{
    return offset_bytes & ~(uint64_t)(DIRECT_ALIGN_BYTES - 1);
}

void direct_align(uint64_t offset_bytes, uint64_t whole_bytes, uint64_t *begin, uint64_t *end)
{
    if (*begin > 0)
        *begin -= (offset_bytes + *begin) % DIRECT_ALIGN_BYTES;
    if (*end < whole_bytes)
        *end -= (offset_bytes + *end) % DIRECT_ALIGN_BYTES;
}

size_t direct_room_bytes(size_t size_bytes)
{
    return (size_t)direct_before(size_bytes + DIRECT_ALIGN_BYTES - 1) + DIRECT_ALIGN_BYTES;
}

size_t direct_fit(const struct direct_file *file, uint64_t offset_bytes, size_t size_bytes,
                  size_t room_bytes)
{
    size_t before = (size_t)(offset_bytes - direct_before(offset_bytes));
    size_t most = (size_t)direct_before(room_bytes) - before;

    if (!direct_is_on(file))
        most = room_bytes;
    return size_bytes < most ? size_bytes : most;
}

/* Returns how many of the wanted bytes were read, after `before` others; or a negative errno. */
static ssize_t direct_pread(const struct direct_file *file, uint8_t *room, uint64_t begin,
                            size_t before, size_t size_bytes)
{
    size_t span = (size_t)direct_before(before + size_bytes + DIRECT_ALIGN_BYTES - 1);
    ssize_t got;

    do
        got = pread(file->direct_fd, room, span, (off_t)begin);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    if ((size_t)got <= before)
        return 0;
    return (size_t)got - before < size_bytes ? got - (ssize_t)before : (ssize_t)size_bytes;
}

int direct_read(struct direct_file *file, uint8_t *room, uint64_t offset_bytes, size_t size_bytes,
                uint8_t **bytes)
{
    uint64_t begin = direct_before(offset_bytes);
    size_t before = (size_t)(offset_bytes - begin);
    ssize_t got = 0;

    *bytes = room;
    if (direct_is_on(file) && size_bytes >= DIRECT_LEAST_BYTES) {
        *bytes = room + before;
        got = direct_pread(file, room, begin, before, size_bytes);
        if (got == -EINVAL || got == -EOPNOTSUPP) {
            atomic_store(&file->gave_up, true);
            got = 0;
        }
        if (got < 0)
            return (int)got;
    }
    return file_read_at(file->fd, *bytes + got, size_bytes - (size_t)got,
                        offset_bytes + (size_t)got);
}
