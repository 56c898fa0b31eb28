/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backends - the kinds of memory that this daemon knows
 *
 * One table (backends.c) says what there is: vmm_open, the options of a mount, help texts and error
 * messages go by it, and nobody tells kinds apart by their names. For src/vmm, src/daemon and
 * src/cli/main.c. It only tells: nothing here opens a device or loads a driver. Any thread.
 */
#ifndef GMSFS_VMM_BACKENDS_H
#define GMSFS_VMM_BACKENDS_H

#include "vmm/vmm.h"

#define BACKENDS_TEXT_BYTES 64
#define BACKENDS_DEFAULT    "cuda" /* the first of the table */

struct copier_gpu;
struct vmm_backend;

/* What is known of a backend before it is opened. */
struct backend {
    const char *name; /* of `-o backend=`, in `device` and in the mount's source */
    const char *help; /* whose memory it is, for `gmsfs mount --help` */
    enum vmm_memory memory;
    const struct vmm_backend *functions;
    const struct copier_gpu *copier; /* NULL: this process moves the bytes by itself */
};

/* NULL: there is no such backend. `name` NULL: the default. */
const struct backend *backends_find(const char *name);
/* How the copier of this backend moves bytes. NULL: there is none. */
const struct copier_gpu *backends_find_copier(const char *name);
/* By number from 0, the default first. NULL: there are no more. */
const struct backend *backends_at(size_t number);
/* Is a spool something else than the memory that it becomes? */
bool backends_keep_spools_apart(const struct backend *backend);
/* "cuda or host", for "expected ..."; returns `text`. */
const char *backends_list(char text[BACKENDS_TEXT_BYTES]);

#endif
