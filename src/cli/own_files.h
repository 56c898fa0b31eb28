/* SPDX-License-Identifier: Apache-2.0 */
/* own_files - open files that this command inherited, of the mount or store that it waits for */
#ifndef GMSFS_CLI_OWN_FILES_H
#define GMSFS_CLI_OWN_FILES_H

#include <stdbool.h>

/* Warns, once, that this process has files below `path` open that hold a session, so it waits for
 * itself. False: it has none. */
bool own_files_warn(const char *path);

#endif
