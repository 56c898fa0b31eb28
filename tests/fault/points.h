/* SPDX-License-Identifier: Apache-2.0 */
/*
 * points - the calls that can be made to fail, with the errno that is worth trying
 *
 * No include guard: included with POINT defined. The Makefile reads it too, a line for each call,
 * and has the linker send the calls of our own objects through hook_wrap.c (--wrap). Calls inside
 * libraries are out of reach, except jansson's allocations (`json`).
 */
/* memory */
POINT(malloc, ENOMEM)
POINT(calloc, ENOMEM)
POINT(realloc, ENOMEM)
POINT(aligned_alloc, ENOMEM)
POINT(strdup, ENOMEM)
POINT(asprintf, ENOMEM)
POINT(vasprintf, ENOMEM)
POINT(open_memstream, ENOMEM)
POINT(fopencookie, ENOMEM)
POINT(mmap, ENOMEM)
POINT(mprotect, ENOMEM)
/* descriptors */
POINT(open, EMFILE)
POINT(openat, EMFILE)
POINT(fopen, EMFILE)
POINT(opendir, EMFILE)
POINT(fdopendir, ENOMEM)
POINT(memfd_create, EMFILE)
POINT(eventfd, EMFILE)
POINT(signalfd, EMFILE)
POINT(epoll_create1, EMFILE)
POINT(epoll_ctl, ENOMEM)
POINT(pipe2, EMFILE)
POINT(fcntl, ENOMEM)
POINT(ioctl, ENOMEM)
POINT(syscall, EMFILE)
/* files */
POINT(fstat, ENOMEM)
POINT(fstatat, ENOMEM)
POINT(fstatfs, ENOMEM)
POINT(ftruncate, ENOMEM)
POINT(fallocate, ENOSPC)
POINT(fdatasync, EIO)
POINT(fchmod, ENOMEM)
POINT(pread, EIO)
POINT(pwrite, EIO)
POINT(read, EINTR)
POINT(getxattr, ENOMEM)
/* sockets */
POINT(socket, EMFILE)
POINT(socketpair, EMFILE)
POINT(accept4, EMFILE)
POINT(bind, ENOMEM)
POINT(connect, EAGAIN)
POINT(listen, ENOMEM)
POINT(getsockopt, ENOMEM)
POINT(send, ENOBUFS)
POINT(sendmsg, ENOBUFS)
POINT(recv, ENOMEM)
POINT(recvmsg, ENOMEM)
/* processes and waiting */
POINT(fork, EAGAIN)
POINT(pthread_create, EAGAIN)
POINT(getrandom, EINTR)
POINT(getrlimit, EINVAL)
POINT(epoll_wait, EINTR)
POINT(poll, EINTR)
POINT(umount2, EBUSY)
/* libfuse */
POINT(fuse_session_new, ENOMEM)
POINT(fuse_session_mount, ENOMEM)
/* the work of helper threads, and handing work to them */
POINT(vmm_create, ENOMEM)
POINT(vmm_grow, ENOMEM)
POINT(vmm_read, EIO)
POINT(vmm_write, EIO)
POINT(vmm_seal, ENOMEM)
POINT(keep_add, ENOMEM)
POINT(helpers_submit, ENOMEM)
POINT(idvec_insert, ENOMEM)
