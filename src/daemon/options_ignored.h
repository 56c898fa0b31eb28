/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options_ignored - mount options that are accepted and mean nothing here
 *
 * For options.c. Pure.
 */
#ifndef GMSFS_DAEMON_OPTIONS_IGNORED_H
#define GMSFS_DAEMON_OPTIONS_IGNORED_H

#include <stdbool.h>

bool options_is_ignored(const char *name, bool has_value);

#endif
