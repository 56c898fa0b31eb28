/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pools_line - parses a line written to `pools`
 *
 * Pure; called by pools.c, its test and its fuzzer. `NAME KEY=VALUE…` makes or changes a pool,
 * `NAME -` removes it. Any mistake is an error of the whole line.
 */
#ifndef GMSFS_FS_POOLS_LINE_H
#define GMSFS_FS_POOLS_LINE_H

#include "service/pools.h"

/* `bytes` contain no line break. 0; -EINVAL; -ENODATA: the line is empty. */
int pools_line_parse(const char *line, size_t bytes, struct service_budget *pool);

#endif
