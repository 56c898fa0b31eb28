/* SPDX-License-Identifier: Apache-2.0 */
/*
 * namespaces - by whose numbers a process knows users and processes
 *
 * The kernel tells the server of a mount who calls by the numbers of the PID and user namespaces
 * that it was mounted in, and of a unix socket by those of whoever reads. A keeper that is in
 * others would take one for another. Each process says its own, for what /proc tells of others
 * depends on rights and on hidepid=.
 */
#ifndef GMSFS_DAEMON_NAMESPACES_H
#define GMSFS_DAEMON_NAMESPACES_H

#include "base/failure.h"

#define NAMESPACES_TEXT_BYTES 96u

/* Those of this process, "pid:[4026531836] user:[4026531837]"; empty where there is no /proc. */
void namespaces_write(char text[NAMESPACES_TEXT_BYTES]);
/* Whether they are those that another process has written. -EXDEV */
int namespaces_check(const char *text, struct failure *failure);

#endif
