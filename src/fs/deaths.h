/* SPDX-License-Identifier: Apache-2.0 */
/* deaths - for tests: a worker that dies at a given point. Nothing in a build without hooks. */
#ifndef GMSFS_FS_DEATHS_H
#define GMSFS_FS_DEATHS_H

/* The environment's variable names a file: each byte of it is a death, the last one the next.
 * `e`: the worker gives up, anything else: it is killed as if from outside. */
void fs_die_if_told(const char *variable);

#endif
