/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gms_dir - the directory where GMS clients look for sockets, when no option names it
 *
 * Reads the environment and looks at directories; makes nothing. For mount.c, before it leaves the
 * caller's directory.
 */
#ifndef GMSFS_DAEMON_GMS_DIR_H
#define GMSFS_DAEMON_GMS_DIR_H

#include <stddef.h>

/* $GMS_SOCKET_DIR, if it is set and not empty, whether it can be used or not; else the first that
 * can be of $TMPDIR, $TEMP, $TMP, /tmp, /var/tmp and /usr/tmp, as Python's tempfile has it. An
 * absolute path. -ENOENT: none can be used; -ENAMETOOLONG; or what getcwd(3) says */
int gms_dir_find(char *dir, size_t bytes);

#endif
