/* SPDX-License-Identifier: Apache-2.0 */
/*
 * init - the agreement with the kernel at the beginning of a mount (FUSE_INIT), for all its life
 *
 * The kernel is answered once. Each later worker, also of another build over another libfuse, has
 * to act on the same agreement: it replaces its own choice by the first answer.
 */
#include "fs/init.h"

#include <linux/fuse.h>

/* libfuse's capabilities, and their flags in the answer. */
static const struct {
    unsigned wanted;
    uint32_t flag;
} flags[] = {
    {FUSE_CAP_ASYNC_READ, FUSE_ASYNC_READ},
    {FUSE_CAP_POSIX_LOCKS, FUSE_POSIX_LOCKS},
    {FUSE_CAP_ATOMIC_O_TRUNC, FUSE_ATOMIC_O_TRUNC},
    {FUSE_CAP_EXPORT_SUPPORT, FUSE_EXPORT_SUPPORT},
    {FUSE_CAP_DONT_MASK, FUSE_DONT_MASK},
    {FUSE_CAP_SPLICE_WRITE, FUSE_SPLICE_WRITE},
    {FUSE_CAP_SPLICE_MOVE, FUSE_SPLICE_MOVE},
    {FUSE_CAP_SPLICE_READ, FUSE_SPLICE_READ},
    {FUSE_CAP_FLOCK_LOCKS, FUSE_FLOCK_LOCKS},
    {FUSE_CAP_AUTO_INVAL_DATA, FUSE_AUTO_INVAL_DATA},
    {FUSE_CAP_READDIRPLUS, FUSE_DO_READDIRPLUS},
    {FUSE_CAP_READDIRPLUS_AUTO, FUSE_READDIRPLUS_AUTO},
    {FUSE_CAP_ASYNC_DIO, FUSE_ASYNC_DIO},
    {FUSE_CAP_WRITEBACK_CACHE, FUSE_WRITEBACK_CACHE},
    {FUSE_CAP_PARALLEL_DIROPS, FUSE_PARALLEL_DIROPS},
    {FUSE_CAP_POSIX_ACL, FUSE_POSIX_ACL},
    {FUSE_CAP_HANDLE_KILLPRIV, FUSE_HANDLE_KILLPRIV},
    {FUSE_CAP_CACHE_SYMLINKS, FUSE_CACHE_SYMLINKS},
    {FUSE_CAP_EXPLICIT_INVAL_DATA, FUSE_EXPLICIT_INVAL_DATA},
};

void fs_init_choose(struct fuse_conn_info *connection)
{
    connection->max_background = FS_INIT_MAX_BACKGROUND;
    connection->max_write = FS_INIT_MAX_WRITE;
    /* Asynchronous direct I/O would hand out a gigabyte of one io_submit(2) at once: without it a
     * thread has one megabyte in flight, and waits like all others. */
    connection->want &=
        ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE |
                    FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_ASYNC_DIO);
    if (connection->capable & FUSE_CAP_IOCTL_DIR)
        connection->want |= FUSE_CAP_IOCTL_DIR;
}

void fs_init_repeat(struct fuse_conn_info *connection, const struct fuse_init_out *agreed)
{
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        connection->want &= ~flags[i].wanted;
        if (agreed->flags & flags[i].flag)
            connection->want |= flags[i].wanted;
    }
    connection->max_background = agreed->max_background;
    connection->congestion_threshold = agreed->congestion_threshold;
    connection->max_write = agreed->max_write;
    connection->max_readahead = agreed->max_readahead;
    connection->time_gran = agreed->time_gran;
}
