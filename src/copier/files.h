/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files - the worker's files in memory, mapped and pinned for as long as they are its copies
 *
 * For copier.c and lanes.c. The driver copies from and to pinned memory by itself, at the link's
 * full speed and without a processor; pinning takes longer than copying once. So a file that a
 * move names is mapped whole, its spans are pinned when something moved there and nothing moves any
 * more, by a thread that does nothing else, and stay so until the worker says that the file goes:
 * what was copied out once comes back at full speed. What stays here is memory that the file has
 * anyway; it is free when the worker has closed the file and it is forgotten here.
 *
 * A file that is none in memory, or a small one, is not mapped, nor is any beyond FILES_MOST, and a
 * span that the driver refuses is not pinned: its bytes go another way (lane_file.h). Nobody but
 * gmsfs has the files, so they do not shrink; pages that are missing are made before a span is
 * pinned, and one that cannot be had is no SIGBUS.
 *
 * Any thread.
 */
#ifndef GMSFS_COPIER_FILES_H
#define GMSFS_COPIER_FILES_H

#include "copier/gpu.h"

#define FILES_MOST      4096u
#define FILES_MIN_BYTES ((size_t)1 << 20) /* less is copied sooner than pinned */

struct files;

/* Of a move: where its bytes of the file are; at NULL: not mapped. */
struct file_view {
    char *at;
    bool is_pinned;
    bool is_huge;            /* of huge pages */
    atomic_bool *is_written; /* by write(2), now; NULL: which cannot write it */
};

/* NULL: out of memory. `gpu` lives longer. */
struct files *files_new(const struct copier_gpu *driver, void *gpu);
/* Nothing moves any more. */
void files_free(struct files *files);

/* For a MOVE with this descriptor, which stays the caller's, until files_leave. */
struct file_view files_enter(struct files *files, const struct copier_request *request, int fd);
void files_leave(struct files *files, const struct copier_request *request);
/* When it returns nothing of it is here. -EBUSY: something moves from or to it */
int files_forget(struct files *files, uint64_t file);

#endif
