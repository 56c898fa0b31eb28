/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memfd - files of host memory: made, sealed, and opened again
 *
 * Duplicates of a descriptor share one open file description: all their owners share position,
 * O_APPEND, flock(2), leases and the owner of its signals. memfd_reopen makes another description
 * of the same memory. Mode 0 and the seals keep a reader of another user a reader. For src/vmm, and
 * the keeper, which looks at seals; any thread. A descriptor or a negative errno; all are closed on
 * exec.
 */
#ifndef GMSFS_VMM_MEMFD_H
#define GMSFS_VMM_MEMFD_H

#include <stdbool.h>

/* Makes an empty file that can be sealed and never be executed, if the kernel can promise that;
 * `flags` of memfd_create(2) besides. Its user may open it. */
int memfd_make(const char *name, unsigned flags);
/* Makes a directory of files in memory that has no name, for memfd_make_in: its files use huge
 * pages if the kernel has some and a file fills them, regardless of the kernel's setting for
 * memfds. Making, writing and freeing those takes a fraction of the time. -EPERM: it needs
 * CAP_SYS_ADMIN; other errors of a kernel without them. */
int memfd_open_huge(void);
/* Makes the directory for the next memfd_open_huge while this process still may. Once, before
 * threads start. */
void memfd_prepare_huge(void);
/* Makes an empty file in it, as memfd_make; its size cannot be sealed. */
int memfd_make_in(int directory);
/* Opens a file that was just made read-only, with a description of its own. */
int memfd_open_readonly(int fd);
/* Closes the file to all other processes, except those that may override modes, or run as its user
 * and change them. */
int memfd_close_to_others(int fd);
/* Makes the size final. Processes that may write the file can still add seals. */
int memfd_fix_size(int fd);
bool memfd_has_fixed_size(int fd);
/* The same, and no process can add seals any more. */
int memfd_seal(int fd);
/* Lets no process add seals any more. -EPERM: one has sealed the file against writes before. */
int memfd_finish(int fd);
/* Lets no process ever change the bytes again, nor add seals; behind the end of the file its last
 * page has zeros. -EBUSY: a process has the file mapped for writing; -EOPNOTSUPP: it is no memfd,
 * or memfd_finish or memfd_seal was called before. May take 0.2 s. */
int memfd_make_immutable(int fd);
bool memfd_is_final(int fd); /* no seal can be added; also a file of memfd_make_in */
bool memfd_is_immutable(int fd);
/* Returns true if the file is open or mapped by another description than this read-only one, for
 * reading: the kernel grants a write lease only where it is not (fcntl(2), F_SETLEASE). True if
 * this process cannot find out now; false if it never can. */
bool memfd_is_held(int fd_readonly);
/* Returns true if the kernel grants this process leases: with fs.leases-enable=0 it does not. Asks
 * it once. */
bool memfd_tells_holders(void);
/* Returns true for a file in memory; a GPU's descriptor is none. */
bool memfd_is_file(int fd);
/* Opens a file that is closed to others again, read-only or not, with a description of its own. An
 * ordinary user's process cannot open it either, so for some microseconds the mode lets its user,
 * who could change the mode anyway; it never lets other users. Never waits: -EBUSY: a process has
 * taken a lease (fcntl(2)), which only its user and CAP_LEASE can. -EMFILE, -ENFILE, -ENOMEM;
 * -ENOENT: /proc is missing. */
int memfd_reopen(int fd, bool writable);

#endif
