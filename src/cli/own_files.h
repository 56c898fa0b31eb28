/* SPDX-License-Identifier: Apache-2.0 */
/* own_files - what this command has inherited of the mount or store that it waits for */
#ifndef GMSFS_CLI_OWN_FILES_H
#define GMSFS_CLI_OWN_FILES_H

#include <stdbool.h>

/* Says, once, that this process has files below `path` that hold a session: then it waits for
 * itself. False: it has none. */
bool own_files_warn(const char *path);

#endif
