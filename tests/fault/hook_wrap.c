/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap - the functions that the linker puts in the place of the calls of points.h (--wrap)
 *
 * Each asks first whether it has to fail, and then makes the call itself. Heap blocks are noted, so
 * that a test finds leaks.
 */
#include "base/idvec.h"
#include "daemon/helpers.h"
#include "daemon/keep.h"
#include "daemon/keeper.h"
#include "daemon/worker.h"
#include "fault.h"
#include "vmm/vmm.h"

#include <dirent.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The linker's names: __wrap_X is called for X, __real_X is X. */
#define DECLARE(type, name, parameters) \
    type __wrap_##name parameters;      \
    type __real_##name parameters;

/* `failed` is the result of a call that fails; errno is set, and `error` is the same. */
#define WRAP(type, name, parameters, arguments, failed)    \
    DECLARE(type, name, parameters)                        \
    type __wrap_##name parameters                          \
    {                                                      \
        int error = fault_meet(FAULT_##name);              \
        return error ? (failed) : __real_##name arguments; \
    }

/* ---- the heap ---------------------------------------------------------------------------- */

#define WRAP_BLOCK(name, parameters, arguments)                                  \
    DECLARE(void *, name, parameters)                                            \
    void *__wrap_##name parameters                                               \
    {                                                                            \
        void *block = fault_meet(FAULT_##name) ? NULL : __real_##name arguments; \
        fault_note_block(FAULT_##name, block);                                   \
        return block;                                                            \
    }

WRAP_BLOCK(malloc, (size_t bytes), (bytes))
WRAP_BLOCK(calloc, (size_t count, size_t bytes), (count, bytes))
WRAP_BLOCK(aligned_alloc, (size_t alignment, size_t bytes), (alignment, bytes))

DECLARE(void *, realloc, (void *block, size_t bytes))
void *__wrap_realloc(void *block, size_t bytes)
{
    if (fault_meet(FAULT_realloc))
        return NULL;
    fault_forget_block(block); /* before another thread may get its address */
    void *moved = __real_realloc(block, bytes);
    fault_note_block(FAULT_realloc, moved ? moved : block);
    return moved;
}

DECLARE(void, free, (void *block))
void __wrap_free(void *block)
{
    fault_forget_block(block);
    __real_free(block);
}

DECLARE(char *, strdup, (const char *text))
char *__wrap_strdup(const char *text)
{
    char *copy = fault_meet(FAULT_strdup) ? NULL : __real_strdup(text);

    fault_note_block(FAULT_strdup, copy);
    return copy;
}

DECLARE(int, vasprintf,
        (char **text, const char *format, va_list arguments) __attribute__((format(printf, 2, 0))))
int __wrap_vasprintf(char **text, const char *format, va_list arguments)
{
    int length = fault_meet(FAULT_vasprintf) ? -1 : __real_vasprintf(text, format, arguments);

    if (length >= 0)
        fault_note_block(FAULT_vasprintf, *text);
    return length;
}

int __wrap_asprintf(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **text, const char *format, ...)
{
    va_list arguments;

    if (fault_meet(FAULT_asprintf))
        return -1;
    va_start(arguments, format);
    int length = __real_vasprintf(text, format, arguments);
    va_end(arguments);
    if (length >= 0)
        fault_note_block(FAULT_asprintf, *text);
    return length;
}

WRAP(FILE *, open_memstream, (char **bytes, size_t *size), (bytes, size), NULL)
WRAP(FILE *, fopencookie, (void *cookie, const char *mode, cookie_io_functions_t functions),
     (cookie, mode, functions), NULL)

/* Address space is no heap. */
WRAP(void *, mmap, (void *at, size_t bytes, int protection, int flags, int fd, off_t from),
     (at, bytes, protection, flags, fd, from), MAP_FAILED)
WRAP(struct fuse_session *, fuse_session_new,
     (struct fuse_args * args, const struct fuse_lowlevel_ops *operations, size_t bytes,
      void *context),
     (args, operations, bytes, context), NULL)

/* ---- with a variable number of arguments ------------------------------------------------- */

DECLARE(int, open, (const char *path, int flags, ...))
int __wrap_open(const char *path, int flags, ...)
{
    va_list arguments;

    va_start(arguments, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return fault_meet(FAULT_open) ? -1 : __real_open(path, flags, mode);
}

DECLARE(int, openat, (int fd, const char *path, int flags, ...))
int __wrap_openat(int fd, const char *path, int flags, ...)
{
    va_list arguments;

    va_start(arguments, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return fault_meet(FAULT_openat) ? -1 : __real_openat(fd, path, flags, mode);
}

/* Passes one argument, as wide as any; calls without one ignore it. */
DECLARE(int, fcntl, (int fd, int command, ...))
int __wrap_fcntl(int fd, int command, ...)
{
    va_list arguments;

    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return fault_meet(FAULT_fcntl) ? -1 : __real_fcntl(fd, command, argument);
}

DECLARE(int, ioctl, (int fd, unsigned long request, ...))
int __wrap_ioctl(int fd, unsigned long request, ...)
{
    va_list arguments;

    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return fault_meet(FAULT_ioctl) ? -1 : __real_ioctl(fd, request, argument);
}

/* Takes six arguments like libc's own, of which the caller may have passed fewer. */
DECLARE(long, syscall, (long number, ...))
__attribute__((no_sanitize("address"))) long __wrap_syscall(long number, ...)
{
    va_list arguments;
    long argument[6];

    va_start(arguments, number);
    for (size_t i = 0; i < 6; i++)
        argument[i] = va_arg(arguments, long);
    va_end(arguments);
    return fault_meet(FAULT_syscall) ? -1
                                     : __real_syscall(number, argument[0], argument[1], argument[2],
                                                      argument[3], argument[4], argument[5]);
}

/* ---- the others --------------------------------------------------------------------------- */

WRAP(int, mprotect, (void *at, size_t bytes, int protection), (at, bytes, protection), -1)
/* descriptors */
WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL)
WRAP(DIR *, opendir, (const char *path), (path), NULL)
WRAP(DIR *, fdopendir, (int fd), (fd), NULL)
WRAP(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1)
WRAP(int, eventfd, (unsigned count, int flags), (count, flags), -1)
WRAP(int, signalfd, (int fd, const sigset_t *signals, int flags), (fd, signals, flags), -1)
WRAP(int, epoll_create1, (int flags), (flags), -1)
WRAP(int, epoll_ctl, (int epoll, int op, int fd, struct epoll_event *event), (epoll, op, fd, event),
     -1)
WRAP(int, pipe2, (int ends[2], int flags), (ends, flags), -1)
/* files */
WRAP(int, fstat, (int fd, struct stat *stat), (fd, stat), -1)
WRAP(int, fstatat, (int fd, const char *path, struct stat *stat, int flags),
     (fd, path, stat, flags), -1)
WRAP(int, fstatfs, (int fd, struct statfs *statfs), (fd, statfs), -1)
WRAP(int, ftruncate, (int fd, off_t bytes), (fd, bytes), -1)
WRAP(int, fallocate, (int fd, int mode, off_t from, off_t bytes), (fd, mode, from, bytes), -1)
WRAP(int, fdatasync, (int fd), (fd), -1)
WRAP(int, fchmod, (int fd, mode_t mode), (fd, mode), -1)
WRAP(ssize_t, pread, (int fd, void *to, size_t bytes, off_t at), (fd, to, bytes, at), -1)
WRAP(ssize_t, pwrite, (int fd, const void *from, size_t bytes, off_t at), (fd, from, bytes, at), -1)
WRAP(ssize_t, read, (int fd, void *to, size_t bytes), (fd, to, bytes), -1)
WRAP(ssize_t, getxattr, (const char *path, const char *name, void *value, size_t bytes),
     (path, name, value, bytes), -1)
/* sockets */
WRAP(int, socket, (int domain, int type, int protocol), (domain, type, protocol), -1)
WRAP(int, socketpair, (int domain, int type, int protocol, int ends[2]),
     (domain, type, protocol, ends), -1)
WRAP(int, accept4, (int fd, struct sockaddr *address, socklen_t *bytes, int flags),
     (fd, address, bytes, flags), -1)
WRAP(int, bind, (int fd, const struct sockaddr *address, socklen_t bytes), (fd, address, bytes), -1)
WRAP(int, connect, (int fd, const struct sockaddr *address, socklen_t bytes), (fd, address, bytes),
     -1)
WRAP(int, listen, (int fd, int backlog), (fd, backlog), -1)
WRAP(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *bytes),
     (fd, level, name, value, bytes), -1)
WRAP(ssize_t, send, (int fd, const void *from, size_t bytes, int flags), (fd, from, bytes, flags),
     -1)
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags), -1)
WRAP(ssize_t, recv, (int fd, void *to, size_t bytes, int flags), (fd, to, bytes, flags), -1)
WRAP(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags), -1)
/* processes and waiting */
WRAP(pid_t, fork, (void), (), -1)
WRAP(ssize_t, getrandom, (void *to, size_t bytes, unsigned flags), (to, bytes, flags), -1)
WRAP(int, getrlimit, (int resource, struct rlimit *limit), (resource, limit), -1)
WRAP(int, epoll_wait, (int epoll, struct epoll_event *events, int max, int ms),
     (epoll, events, max, ms), -1)
WRAP(int, poll, (struct pollfd * fds, nfds_t count, int ms), (fds, count, ms), -1)
WRAP(int, umount2, (const char *path, int flags), (path, flags), -1)
/* libfuse */
WRAP(int, fuse_session_mount, (struct fuse_session * session, const char *path), (session, path),
     -1)
/* calls that return an errno */
WRAP(int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument),
     (thread, attributes, run, argument), error)
WRAP(int, vmm_create, (struct vmm * vmm, uint64_t bytes, bool seal, struct vmm_piece *piece),
     (vmm, bytes, seal, piece), -error)
WRAP(int, vmm_grow, (struct vmm * vmm, struct vmm_piece *piece, uint64_t bytes),
     (vmm, piece, bytes), -error)
WRAP(int, vmm_read,
     (struct vmm * vmm, const struct vmm_piece *piece, void *to, size_t bytes, uint64_t at),
     (vmm, piece, to, bytes, at), -error)
WRAP(int, vmm_write,
     (struct vmm * vmm, const struct vmm_piece *piece, const void *from, size_t bytes, uint64_t at),
     (vmm, piece, from, bytes, at), -error)
WRAP(int, vmm_seal, (struct vmm * vmm, struct vmm_piece *piece, uint64_t bytes),
     (vmm, piece, bytes), -error)
WRAP(int, keep_add, (struct keep * keep, const struct service_memory *memories, size_t count),
     (keep, memories, count), -error)
WRAP(int, helpers_submit, (struct helpers * helpers, enum service_pool pool, struct job *job),
     (helpers, pool, job), -error)

/* A table grows at this call or that by chance, so the call itself fails. */
WRAP(int, idvec_insert, (struct idvec * vec, void *item), (vec, item), -error)

/* ---- the kind of this process --------------------------------------------------------------- */

DECLARE(int, keeper_main, (const struct keeper_setup *setup))
int __wrap_keeper_main(const struct keeper_setup *setup)
{
    fault_become(FAULT_KEEPER);
    return __real_keeper_main(setup);
}

DECLARE(int, worker_main, (const struct worker_setup *setup))
int __wrap_worker_main(const struct worker_setup *setup)
{
    fault_become(FAULT_WORKER);
    return __real_worker_main(setup);
}
