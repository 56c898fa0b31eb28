/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gms_dir - the directory where GMS clients look for sockets, when no option names it
 *
 * Reads the environment and looks at directories; makes nothing. mount.c calls it before it leaves
 * the caller's directory.
 */
#ifndef GMSFS_DAEMON_GMS_DIR_H
#define GMSFS_DAEMON_GMS_DIR_H

#include <stddef.h>

/* Writes an absolute path: $GMS_SOCKET_DIR if it is set and not empty, usable or not; else the
 * first usable directory of $TMPDIR, $TEMP, $TMP, /tmp, /var/tmp and /usr/tmp, in the order of
 * Python's tempfile. -ENOENT: none is usable; -ENAMETOOLONG; or an error of getcwd(3). */
int gms_dir_find(char *dir, size_t bytes);

#endif
