/* SPDX-License-Identifier: Apache-2.0 */
/* mappers - the processes that map files of a mount, as /proc/PID/maps shows them */
#ifndef GMSFS_CLI_MAPPERS_H
#define GMSFS_CLI_MAPPERS_H

#include "cli/mounts.h"

#include <stdio.h>

/* Prints a line for each process that maps files of this mount: its number, the mapped bytes, its
 * name. A process is left out that this user may not look at, or that this PID namespace does not
 * have. */
void mappers_print(const struct mount *mount, FILE *to);

#endif
