/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memfd - files of host memory: made, sealed, and opened anew
 *
 * Duplicates of a descriptor share one open file description: position, O_APPEND, flock(2), leases
 * and the owner of its signals are everybody's who has one. memfd_reopen makes another description
 * of the same memory. Mode 0 and the seals are what keeps a reader of another user a reader. For
 * src/vmm; any thread. A descriptor or a negative errno; all are closed on exec.
 */
#ifndef GMSFS_VMM_MEMFD_H
#define GMSFS_VMM_MEMFD_H

#include <stdbool.h>

/* An empty one that can be sealed and never be executed, where the kernel can promise that; `flags`
 * of memfd_create(2) besides. Its user may open it. */
int memfd_make(const char *name, unsigned flags);
/* A directory of files in memory that has no name, for memfd_make_in: its files are of huge pages
 * where the kernel has some and a file fills them, whatever it does for memfds. Making, writing and
 * freeing those takes a fraction. -EPERM: that is for CAP_SYS_ADMIN; other errors of a kernel
 * without them. */
int memfd_open_huge(void);
/* While this process still may: the next memfd_open_huge gives what is made here. Once, before
 * there are threads. */
void memfd_prepare_huge(void);
/* An empty file in it, as memfd_make; its size cannot be sealed. */
int memfd_make_in(int directory);
/* A read-only one with a description of its own, of a file that was just made. */
int memfd_open_readonly(int fd);
/* Nobody may open it from now on but who may override modes, or is its user and changes them. */
int memfd_close_to_others(int fd);
/* Its size is final. */
int memfd_seal(int fd);
bool memfd_is_sealed(int fd);
/* A file in memory, as it is; a GPU's descriptor is none. */
bool memfd_is_file(int fd);
/* One with a description of its own, read-only or not, of a file that is closed to others and stays
 * so: an ordinary user's process cannot open it either, so for some microseconds its user may, who
 * could change the mode anyway; nobody else ever may. Never waits: -EBUSY, somebody has taken a
 * lease (fcntl(2)), which only its user and CAP_LEASE can. -EMFILE, -ENFILE, -ENOMEM; -ENOENT:
 * /proc is not there. */
int memfd_reopen(int fd, bool writable);

#endif
