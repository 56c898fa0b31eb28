/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web_start - becomes nginx, with a process beside it that has it make way for writers
 *
 * For cmd_web.c.
 */
#ifndef GMSFS_CLI_WEB_START_H
#define GMSFS_CLI_WEB_START_H

#include "web/web.h"

#include <sys/types.h>

#define WEB_USUAL_USER "gmsfs-web"

/* The user that serves; chosen by web_find_user(). */
struct web_user {
    char *name, *group; /* NULL: the starting user, which is not root */
    uid_t uid;
    gid_t gid;
};

/* Finds the user `name` (NULL: the usual one), which has to be in no group but its own; without
 * root's rights the starting user. CLI_OK, or CLI_FAILURE after the error. */
int web_find_user(const char *name, struct web_user *user);

/* Fails unless the user may look into the mount; one that is dead or silent is only told of, for it
 * may come back. CLI_OK, or CLI_FAILURE after the error. */
int web_check_mount(const char *path, const struct web_user *user);

/* Returns only if nginx could not be started: CLI_FAILURE after the error. */
int web_start(const struct web *web, const struct web_user *user);

/* Runs beside nginx, the parent: prints the addresses once it listens, has it end answers that keep
 * a writer waiting, and removes the directory once nginx has ended. Never returns. */
void web_stand_beside(const struct web *web, const char *directory, uid_t uid, pid_t nginx)
    __attribute__((noreturn));

#endif
