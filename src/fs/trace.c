/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/trace.h"

#include "base/clean.h"

#include <limits.h>
#include <linux/fuse.h>
#include <string.h>

static const char *const opcode_names[] = {
    [FUSE_LOOKUP] = "lookup",
    [FUSE_FORGET] = "forget",
    [FUSE_GETATTR] = "getattr",
    [FUSE_SETATTR] = "setattr",
    [FUSE_READLINK] = "readlink",
    [FUSE_SYMLINK] = "symlink",
    [FUSE_MKNOD] = "mknod",
    [FUSE_MKDIR] = "mkdir",
    [FUSE_UNLINK] = "unlink",
    [FUSE_RMDIR] = "rmdir",
    [FUSE_RENAME] = "rename",
    [FUSE_LINK] = "link",
    [FUSE_OPEN] = "open",
    [FUSE_READ] = "read",
    [FUSE_WRITE] = "write",
    [FUSE_STATFS] = "statfs",
    [FUSE_RELEASE] = "release",
    [FUSE_FSYNC] = "fsync",
    [FUSE_SETXATTR] = "setxattr",
    [FUSE_GETXATTR] = "getxattr",
    [FUSE_LISTXATTR] = "listxattr",
    [FUSE_REMOVEXATTR] = "removexattr",
    [FUSE_FLUSH] = "flush",
    [FUSE_INIT] = "init",
    [FUSE_OPENDIR] = "opendir",
    [FUSE_READDIR] = "readdir",
    [FUSE_RELEASEDIR] = "releasedir",
    [FUSE_FSYNCDIR] = "fsyncdir",
    [FUSE_ACCESS] = "access",
    [FUSE_CREATE] = "create",
    [FUSE_INTERRUPT] = "interrupt",
    [FUSE_DESTROY] = "destroy",
    [FUSE_IOCTL] = "ioctl",
    [FUSE_POLL] = "poll",
    [FUSE_BATCH_FORGET] = "batch_forget",
    [FUSE_FALLOCATE] = "fallocate",
    [FUSE_READDIRPLUS] = "readdirplus",
    [FUSE_RENAME2] = "rename2",
    [FUSE_LSEEK] = "lseek",
};
_Static_assert(sizeof opcode_names / sizeof opcode_names[0] <= FS_COUNTED_GMS,
               "every named opcode has a place of its own");

bool fs_trace_has_name(uint32_t opcode)
{
    return opcode < sizeof opcode_names / sizeof opcode_names[0] && opcode_names[opcode];
}

const char *fs_trace_opcode_name(uint32_t opcode)
{
    return fs_trace_has_name(opcode) ? opcode_names[opcode] : "other";
}

/* Copies the name that the request begins with; it is empty where the request has none. */
static void get_name(const struct fuse_in_header *head, size_t size, char name[NAME_MAX + 1])
{
    bool has_name =
        head->opcode == FUSE_LOOKUP || head->opcode == FUSE_UNLINK || head->opcode == FUSE_RMDIR;
    size_t left = size - sizeof *head;
    clean_quoted(name, NAME_MAX + 1, (const char *)(head + 1), has_name ? left : 0);
}

void fs_trace_request(const struct fs *fs, const void *request, size_t size)
{
    const struct fuse_in_header *head = request;
    char name[NAME_MAX + 1];
    if (size < sizeof *head)
        return;
    get_name(head, size, name);
    log_trace_request(fs->options.ledger->at[0],
                      "request %s node=0x%llx '%s' pid=%u uid=%u, %zu bytes",
                      fs_trace_opcode_name(head->opcode), (unsigned long long)head->nodeid, name,
                      head->pid, head->uid, size);
}

void fs_trace_answer(const struct iovec *parts, int count, size_t bytes)
{
    if (count < 1 || parts[0].iov_len < sizeof(struct fuse_out_header))
        return;
    const struct fuse_out_header *head = parts[0].iov_base;
    if (head->unique == 0)
        return;
    log_trace_request(head->unique & ~FS_RESENT_BIT, "answer %s, %zu bytes",
                      head->error ? strerrorname_np(-head->error) : "ok", bytes);
}

void fs_trace_asked(uint64_t asker, uint32_t op, uint32_t batch, uint32_t uid)
{
    log_trace_request(asker, "request .fds op=%u batch=%u uid=%u", op, batch, uid);
}

void fs_trace_told(uint64_t asker, int error, size_t bytes, unsigned descriptors)
{
    log_trace_request(asker, "answer .fds %s, %zu bytes, %u descriptors",
                      error ? strerrorname_np(-error) : "ok", bytes, descriptors);
}
