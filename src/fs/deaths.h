/* SPDX-License-Identifier: Apache-2.0 */
/* deaths - for tests (tests/hooks.c): a worker that dies at a given point */
#ifndef GMSFS_FS_DEATHS_H
#define GMSFS_FS_DEATHS_H

/* Dies here if the variable of the environment says so: it names a file of which each byte is one
 * death, the last byte the next one. `e`: the worker gives up; `.`: no death this time; any other
 * byte: it is killed as if from outside. */
#ifdef GMSFS_TEST_HOOKS
void fs_die_if_told(const char *variable);
#else
#define fs_die_if_told(variable) ((void)0)
#endif

#endif
