/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal_copy - a journal as one file
 *
 * The keeper writes one when a mount ends by a failure, and `gmsfs journal` writes one of a mount
 * that runs. A copy is read by making the journal's files anew from it, which journal_open then
 * checks as it checks the files of a dead worker: nothing in a copy is trusted.
 */
#ifndef GMSFS_JOURNAL_JOURNAL_COPY_H
#define GMSFS_JOURNAL_JOURNAL_COPY_H

#include "journal/journal.h"

#include <sys/types.h>

#define JOURNAL_COPY_VERSION 1u

/* Finds the journal's files among the descriptors of a process, a worker or a keeper, and opens
 * them for reading. -ENOENT: it has none; -EPROTONOSUPPORT: an older gmsfs named them otherwise;
 * -EACCES: only root and its own user may look; -EPROTO: a file of such a name is no memfd; or
 * another errno */
int journal_find_files(pid_t pid, struct journal_files *files);

/* Writes a copy to `to`, an empty file. Others may publish meanwhile. -EAGAIN: a snapshot began or
 * ended meanwhile, so the copy is none; -EPROTO: the head does not fit the files; or another errno,
 * of the writing too */
int journal_write_copy(const struct journal_files *files, int to);

/* Makes the files of a copy, which the caller closes. -EPROTO, -EPROTONOSUPPORT: it is no copy, or
 * is cut off, or has another version, as `failure` says; or another errno */
int journal_read_copy(int from, struct journal_files *files, struct failure *failure);

#endif
