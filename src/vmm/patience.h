/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patience - says in the log, once, that a call of a library does not come back
 *
 * A call that hangs in the kernel cannot be ended from here, but whoever looks why allocations wait
 * finds its name. A thread looks, and only while calls go on: at rest nothing wakes up. A call that
 * comes back after all is said as well.
 *
 * Threads: begin and end around one call at a time; new and free while there is none.
 */
#ifndef GMSFS_VMM_PATIENCE_H
#define GMSFS_VMM_PATIENCE_H

struct patience;

/* A hang is said after `ms` to twice as many, by a line that begins with `device`, as "device
 * cuda", which lives as long. -ENOMEM, -EAGAIN */
int patience_new(const char *device, unsigned ms, struct patience **patience);
void patience_free(struct patience *patience); /* NULL is fine */

/* A call, or the next one, which ends the one before. Its name is a literal. `patience` may be
 * NULL: then nobody looks. */
void patience_begin(struct patience *patience, const char *call);
void patience_end(struct patience *patience);

#endif
