/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patience - logs, once, that a call of a library does not return
 *
 * A call that hangs in the kernel cannot be ended from here, but an administrator who looks for the
 * reason of waiting allocations finds its name. A thread watches, and only during calls: at rest
 * nothing wakes up. A call that returns after all is logged as well.
 *
 * Threads: begin and end around one call at a time; new and free while there is none.
 */
#ifndef GMSFS_VMM_PATIENCE_H
#define GMSFS_VMM_PATIENCE_H

struct patience;

/* A hang is logged after `ms` to twice as long, by a line that begins with `device`, as "device
 * cuda", which lives as long. -ENOMEM, -EAGAIN */
int patience_new(const char *device, unsigned ms, struct patience **patience);
void patience_free(struct patience *patience); /* NULL is fine */

/* Begins a call, and ends the one before. Its name is a literal. `patience` may be NULL: nothing is
 * watched then. */
void patience_begin(struct patience *patience, const char *call);
void patience_end(struct patience *patience);

#endif
