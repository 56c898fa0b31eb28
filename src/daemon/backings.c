/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/backings.h"

#include "base/array.h"
#include "base/file_io.h"
#include "base/log.h"
#include "daemon/privileges.h"
#include "vmm/memfd.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Since Linux 6.9; older headers lack them (include/uapi/linux/fuse.h). */
struct backing_map {
    int32_t fd;
    uint32_t flags;
    uint64_t padding;
};

#define BACKING_OPEN  _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

/* A row of the table. Row 0 is its head: `number` is the one that the kernel gave last. */
struct row {
    uint64_t memory; /* 0: the row is free */
    uint32_t number;
    uint32_t is_ending; /* it is being closed in the kernel */
};

#define HEAD UINT64_C(0x73676e696b636162) /* "backings" */

struct backing {
    uint64_t memory; /* first for idvec */
    uint32_t number, row;
};

/* ---- the table --------------------------------------------------------------------------- */

static int write_row(const struct backings *backings, uint32_t at, const struct row *row)
{
    return file_write_at(backings->fd, row, sizeof *row, (uint64_t)at * sizeof *row);
}

static int note_last(const struct backings *backings, uint32_t number)
{
    return write_row(backings, 0, &(struct row){.memory = HEAD, .number = number});
}

static int take_row(struct backings *backings, uint32_t *row)
{
    /* Room to give it back is made now. */
    int error = ARRAY_RESERVE(backings->free, backings->free_room, (size_t)backings->rows + 1);

    if (error)
        return -ENOMEM;
    *row = backings->free_count ? backings->free[--backings->free_count] : ++backings->rows;
    return 0;
}

static int insert(struct backings *backings, uint64_t memory, uint32_t number, uint32_t row)
{
    struct backing *backing = malloc(sizeof *backing);

    if (!backing)
        return -ENOMEM;
    *backing = (struct backing){.memory = memory, .number = number, .row = row};
    if (idvec_insert(&backings->items, backing) == 0)
        return 0;
    free(backing);
    return -ENOMEM;
}

int backings_make(struct backings *backings)
{
    backings->fd = -1;
    if (!privileges_may_register())
        return 0;
    backings->fd = memfd_create("journal-backings", MFD_CLOEXEC);
    return backings->fd < 0 ? -errno : note_last(backings, 0);
}

void backings_free(struct backings *backings)
{
    for (size_t i = 0; i < backings->items.count; i++)
        free(backings->items.items[i]);
    idvec_free(&backings->items);
    free(backings->free);
    file_close_fd(&backings->fd);
    *backings = (struct backings){.fd = -1};
}

/* ---- the kernel -------------------------------------------------------------------------- */

/* Returns true if the kernel had this number. ENOENT is no error: it had none. */
static bool close_number(int fuse_fd, uint32_t number)
{
    privileges_raise();
    int error = ioctl(fuse_fd, BACKING_CLOSE, &number) == 0 ? 0 : errno;
    privileges_rest();
    if (error && error != ENOENT)
        log_warning("the kernel does not close backing file %" PRIu32 ": %s", number,
                    strerror(error));
    return error == 0;
}

/* Returns true for a memfd whose bytes no process can change any more. Pages of hugetlbfs cannot be
 * mapped through a file of another file system. */
static bool may_register(int fd)
{
    struct statfs info;

    return memfd_is_immutable(fd) && fstatfs(fd, &info) == 0 && info.f_type == TMPFS_MAGIC;
}

static int open_number(int fuse_fd, int fd, uint32_t *number)
{
    const struct backing_map map = {.fd = fd};

    privileges_raise();
    int made = ioctl(fuse_fd, BACKING_OPEN, &map);
    int error = made > 0 ? 0 : made == 0 ? -EIO : -errno;
    privileges_rest();
    *number = error ? 0 : (uint32_t)made;
    return error;
}

int backings_add(struct backings *backings, int fuse_fd, uint64_t memory, int fd, uint32_t *number)
{
    const struct backing *known = idvec_find(&backings->items, memory);
    struct row row = {.memory = memory};
    uint32_t at;

    *number = known ? known->number : 0;
    if (known)
        return 0;
    if (backings->fd < 0 || memory == 0 || !may_register(fd))
        return -EPERM;
    int error = take_row(backings, &at);
    if (error)
        return error;
    error = open_number(fuse_fd, fd, &row.number);
    if (!error)
        error = write_row(backings, at, &row);
    if (!error)
        error = note_last(backings, row.number);
    if (!error)
        error = insert(backings, memory, row.number, at);
    if (!error) {
        *number = row.number;
        return 0;
    }
    if (row.number) {
        close_number(fuse_fd, row.number);
        note_last(backings, row.number);
    }
    row = (struct row){0};
    write_row(backings, at, &row);
    backings->free[backings->free_count++] = at;
    return error;
}

/* Notes the end before and after it, so that the next keeper repeats the close, and never closes
 * another memory's number. */
void backings_remove(struct backings *backings, int fuse_fd, uint64_t memory)
{
    struct backing *backing = idvec_remove(&backings->items, memory);
    struct row row = {.memory = memory, .is_ending = 1};

    if (!backing)
        return;
    row.number = backing->number;
    write_row(backings, backing->row, &row);
    close_number(fuse_fd, backing->number);
    row = (struct row){0};
    write_row(backings, backing->row, &row);
    backings->free[backings->free_count++] = backing->row;
    free(backing);
}

/* ---- another keeper's -------------------------------------------------------------------- */

static int take_rows(struct backings *backings, int fuse_fd, const struct row *rows, uint32_t count)
{
    uint32_t next = rows[0].number + 1; /* a keeper that died may not have noted it */
    bool is_used = false;
    int error = ARRAY_RESERVE(backings->free, backings->free_room, count);

    for (uint32_t at = 1; at < count && !error; at++) {
        const struct row *row = &rows[at];
        is_used |= row->number == next;
        if (row->memory && !row->is_ending) {
            error = insert(backings, row->memory, row->number, at);
            continue;
        }
        if (row->memory) {
            close_number(fuse_fd, row->number);
            write_row(backings, at, &(struct row){0});
        }
        backings->free[backings->free_count++] = at;
    }
    backings->rows = count - 1;
    if (error)
        return -ENOMEM;
    if (is_used || close_number(fuse_fd, next)) /* the kernel counts upwards */
        error = note_last(backings, next);
    return error;
}

int backings_take(struct backings *backings, int fd, int fuse_fd)
{
    struct stat stat;

    *backings = (struct backings){.fd = fd};
    if (fd < 0)
        return 0;
    if (fstat(fd, &stat) != 0 || stat.st_size < (off_t)sizeof(struct row) ||
        (uint64_t)stat.st_size > (UINT64_C(1) << 32))
        return -EPROTO;
    uint32_t count = (uint32_t)((uint64_t)stat.st_size / sizeof(struct row));
    struct row *rows = calloc(count, sizeof *rows);
    int error = rows ? file_read_at(fd, rows, count * sizeof *rows, 0) : -ENOMEM;
    if (!error && rows[0].memory != HEAD)
        error = -EPROTO;
    if (!error)
        error = take_rows(backings, fuse_fd, rows, count);
    free(rows);
    return error;
}
