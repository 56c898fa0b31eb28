/* SPDX-License-Identifier: Apache-2.0 */
/* mappers - the processes that map a mount's memory or files, as /proc/PID/maps shows them */
#ifndef GMSFS_CLI_MAPPERS_H
#define GMSFS_CLI_MAPPERS_H

#include "cli/mounts.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Returns the bytes that a line of /proc/PID/maps maps of the counted memory. */
typedef uint64_t mappers_count(const void *context, const char *line);
/* Takes a process that maps memory. */
typedef void mappers_take(void *to, pid_t pid, uint64_t bytes);

/* Lists the processes that map such memory. Skips processes that this user may not inspect, or
 * that this PID namespace does not have. */
void mappers_list(mappers_count *count, const void *context, mappers_take *take, void *to);

/* Prints a line for each process that maps files of this mount: its number, the mapped bytes, its
 * name. */
void mappers_print(const struct mount *mount, FILE *to);

#endif
