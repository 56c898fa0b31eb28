/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backends - the kinds of memory that this daemon knows
 *
 * One table (backends.c) lists them: vmm_open, the options of a mount, help texts and error
 * messages use it, and no code tests for a backend's name. For src/vmm, src/daemon and
 * src/cli/main.c. Only describes: nothing here opens a device or loads a driver. Any thread.
 */
#ifndef GMSFS_VMM_BACKENDS_H
#define GMSFS_VMM_BACKENDS_H

#include "vmm/vmm.h"

#define BACKENDS_TEXT_BYTES 64
#define BACKENDS_DEFAULT    "cuda" /* the first of the table */

struct copier_gpu;
struct vmm_backend;

/* The facts about a backend before it is opened. */
struct backend {
    const char *name; /* for `-o backend=`, `device` and the mount's source */
    const char *help; /* describes the memory, for `gmsfs mount --help` */
    enum vmm_memory memory;
    const struct vmm_backend *functions;
    const struct copier_gpu *copier; /* NULL: this process moves the bytes itself */
};

/* NULL: no such backend. `name` NULL: the default. */
const struct backend *backends_find(const char *name);
/* Returns the functions by which the copier of this backend moves bytes. NULL: it has no copier. */
const struct copier_gpu *backends_find_copier(const char *name);
/* Returns a backend by number from 0, the default first. NULL: no more. */
const struct backend *backends_at(size_t number);
/* Returns true if a spool's memory differs from the memory that it becomes. */
bool backends_keep_spools_apart(const struct backend *backend);
/* Writes "cuda or host", for "expected ..."; returns `text`. */
const char *backends_list(char text[BACKENDS_TEXT_BYTES]);

#endif
