/* SPDX-License-Identifier: Apache-2.0 */
/* deaths - for tests (tests/hooks.c): a worker that dies at a given point */
#ifndef GMSFS_FS_DEATHS_H
#define GMSFS_FS_DEATHS_H

/* The environment's variable names a file: each byte of it is a death, the last one the next.
 * `e`: the worker gives up, anything else: it is killed as if from outside. */
#ifdef GMSFS_TEST_HOOKS
void fs_die_if_told(const char *variable);
#else
#define fs_die_if_told(variable) ((void)0)
#endif

#endif
