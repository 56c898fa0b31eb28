/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files - the worker's files in memory, mapped and pinned while they are its copies
 *
 * For copier.c and lanes.c. The driver copies from and to pinned memory by itself, at the link's
 * full speed and without a processor; pinning takes longer than copying once. So the file of a move
 * is mapped whole, and each span that a move used is pinned when no move is running, by a thread
 * with no other work; it stays pinned until the worker says that the file goes: bytes that were
 * copied out once come back at full speed. Mapping and pinning hold only memory that the file has
 * anyway; it is free when the worker has closed the file and it is forgotten here.
 *
 * A file that is not in memory, or is small, is not mapped, nor is any beyond FILES_MOST, and a
 * span that the driver refuses is not pinned: its bytes go another way (lane_file.h). Only gmsfs
 * has the files, so they do not shrink; missing pages are made before a span is pinned, and one
 * that cannot be made is no SIGBUS.
 *
 * Any thread.
 */
#ifndef GMSFS_COPIER_FILES_H
#define GMSFS_COPIER_FILES_H

#include "copier/gpu.h"

#define FILES_MOST      4096u
#define FILES_MIN_BYTES ((size_t)1 << 20) /* copying a smaller file is quicker than pinning it */

struct files;

/* The place of a move's bytes in the file; at NULL: not mapped. */
struct file_view {
    char *at;
    bool is_pinned;
    bool is_huge;            /* of huge pages */
    atomic_bool *is_written; /* true while write(2) runs; NULL: write(2) cannot write this file */
};

/* NULL: out of memory. `gpu` must live longer. */
struct files *files_new(const struct copier_gpu *driver, void *gpu);
/* Called when no move is running. */
void files_free(struct files *files);

/* Begins a MOVE with this descriptor, which stays the caller's, until files_leave. */
struct file_view files_enter(struct files *files, const struct copier_request *request, int fd);
void files_leave(struct files *files, const struct copier_request *request);
/* Drops all of the file. -EBUSY: a move uses it. */
int files_forget(struct files *files, uint64_t file);

#endif
