/* SPDX-License-Identifier: Apache-2.0 */
/*
 * namespaces - which PID and user namespace this process counts in
 *
 * The kernel gives the server of a mount the pid and uid of a caller as numbers of the namespaces
 * that mounted it, and the reader of a unix socket as numbers of the reader's own. A keeper in
 * other namespaces would take one process for another. Each process writes its own namespaces,
 * because reading those of another process in /proc depends on rights and on hidepid=.
 */
#ifndef GMSFS_DAEMON_NAMESPACES_H
#define GMSFS_DAEMON_NAMESPACES_H

#include "base/failure.h"

#define NAMESPACES_TEXT_BYTES 96u

/* Writes those of this process, "pid:[4026531836] user:[4026531837]"; an empty text where there is
 * no /proc. */
void namespaces_write(char text[NAMESPACES_TEXT_BYTES]);
/* Returns 0 if another process that wrote `text` is in the same namespaces, else -EXDEV. */
int namespaces_check(const char *text, struct failure *failure);

#endif
