/* SPDX-License-Identifier: Apache-2.0 */
/*
 * empty_fs - the floor under a FUSE request: /store/lock on a file system that does nothing
 *
 *   [BYTES=N] empty_fs MOUNTPOINT      in the foreground, until it is unmounted
 *
 * The mount options, attributes, permission checks, timeouts and direct_io of a gmsfs mount; FLUSH
 * is answered, as a file system that hears of a close(2) has to; ioctls succeed. With BYTES there
 * is /store/bytes, which is read from so much memory.
 */
#include <fuse_lowlevel.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "bench.h"

enum {
    NODE_STORE = 2,
    NODE_LOCK = 3,
    NODE_BYTES = 4
};

static const char *memory;
static uint64_t memory_bytes;

static int fill_stat(fuse_ino_t node, struct stat *stat)
{
    if (node > NODE_BYTES)
        return ENOENT;
    *stat = (struct stat){
        .st_ino = node,
        .st_mode = node >= NODE_LOCK ? S_IFREG | 0644 : S_IFDIR | 0755,
        .st_nlink = node >= NODE_LOCK ? 1 : 3,
        .st_size = node == NODE_BYTES ? (off_t)memory_bytes : 0,
        .st_uid = geteuid(),
        .st_gid = getegid(),
        .st_blksize = 1 << 20,
    };
    return 0;
}

static void on_init(void *userdata, struct fuse_conn_info *connection)
{
    (void)userdata;
    connection->max_background = 65535;
    connection->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
                                    FUSE_CAP_SPLICE_MOVE | FUSE_CAP_WRITEBACK_CACHE);
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param entry = {0};

    if (parent == FUSE_ROOT_ID && strcmp(name, "store") == 0)
        entry.ino = NODE_STORE;
    else if (parent == NODE_STORE && strcmp(name, "lock") == 0)
        entry.ino = NODE_LOCK;
    else if (parent == NODE_STORE && strcmp(name, "bytes") == 0 && memory)
        entry.ino = NODE_BYTES;
    if (!entry.ino || fill_stat(entry.ino, &entry.attr))
        fuse_reply_err(req, ENOENT);
    else
        fuse_reply_entry(req, &entry);
}

static void on_getattr(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info)
{
    struct stat stat;
    int error = fill_stat(node, &stat);

    (void)info;
    if (error)
        fuse_reply_err(req, error);
    else
        fuse_reply_attr(req, &stat, 0);
}

static void on_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info)
{
    (void)node;
    info->direct_io = 1;
    fuse_reply_open(req, info);
}

static void on_read(fuse_req_t req, fuse_ino_t node, size_t bytes, off_t offset,
                    struct fuse_file_info *info)
{
    uint64_t at = (uint64_t)offset;

    (void)info;
    if (node != NODE_BYTES || at >= memory_bytes)
        bytes = 0;
    else if (bytes > memory_bytes - at)
        bytes = memory_bytes - at;
    fuse_reply_buf(req, bytes ? memory + at : NULL, bytes);
}

static void on_close(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info)
{
    (void)node;
    (void)info;
    fuse_reply_err(req, 0);
}

static void on_ioctl(fuse_req_t req, fuse_ino_t node, unsigned command, void *argument,
                     struct fuse_file_info *info, unsigned flags, const void *in, size_t in_bytes,
                     size_t out_bytes)
{
    (void)node;
    (void)command;
    (void)argument;
    (void)info;
    (void)flags;
    fuse_reply_ioctl(req, 0, in, in_bytes < out_bytes ? in_bytes : out_bytes);
}

static const struct fuse_lowlevel_ops OPERATIONS = {
    .init = on_init,
    .lookup = on_lookup,
    .getattr = on_getattr,
    .open = on_open,
    .read = on_read,
    .flush = on_close,
    .release = on_close,
    .ioctl = on_ioctl,
};

static void make_memory(uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        bench_die("mmap", errno);
    memset(at, 'x', bytes);
    memory = at;
    memory_bytes = bytes;
}

int main(int argc, char **argv)
{
    char name[] = "empty_fs", option[] = "-o";
    char mount[] =
        "fsname=empty,subtype=empty,default_permissions,nosuid,nodev,noatime,allow_other";
    const char *bytes = getenv("BYTES");
    char *words[] = {name, option, mount, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, words);

    if (argc != 2) {
        fputs("usage: [BYTES=N] empty_fs MOUNTPOINT\n", stderr);
        return 2;
    }
    if (bytes)
        make_memory(bench_number(bytes));
    struct fuse_session *session = fuse_session_new(&args, &OPERATIONS, sizeof OPERATIONS, NULL);
    if (!session || fuse_session_mount(session, argv[1]) != 0)
        return 1;
    int error = fuse_session_loop(session);
    fuse_session_unmount(session);
    fuse_session_destroy(session);
    fuse_opt_free_args(&args);
    return error != 0;
}
