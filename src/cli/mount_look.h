/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_look - reads the facts of mounts, and never hangs in one
 *
 * For `gmsfs status`, `top`, `umount` and the governor. A daemon that is stopped or stuck answers
 * no system call, and some of those calls cannot be killed, so a child process looks, and is
 * abandoned if it does not finish in time. Takes no lock.
 */
#ifndef GMSFS_CLI_MOUNT_LOOK_H
#define GMSFS_CLI_MOUNT_LOOK_H

#include "cli/mounts.h"

#include <jansson.h>

#define MOUNT_LOOK_TIMEOUT_MS 3000u

/* clang-format off */
/*
 * Looks at all mounts at the same time, or at one. Item i of the array, of mount i, is an object:
 *   mount, source   text
 *   health          "ok" or the device's own word, "dead", "silent" (no answer in time),
 *                   "no access", "unknown" (the look ended in another error)
 *   device          the file `device`; null unless it answered
 *   stores          [{name, ...the file `info`, sessions: [{id, mode, status, pid, uid, comm,
 *                   since, files}]}], by name
 *   errno, error    its name and words, if `device` or the list of stores could not be read; of
 *                   a store, if its `info` or `sessions` could not
 * free(3) the array and json_decref its members.
 */
/* clang-format on */
json_t **mount_look(const struct mounts *mounts);
json_t *mount_look_one(const struct mount *mount);

/* A look at one mount, for a caller that has other things to wait for. */
struct mount_look {
    struct child *child;
    int error; /* why there is no child; 0: there is one */
    int fd;    /* for poll(2); -1: none */
    char *text;
    size_t used; /* 0: the mount has not answered yet */
};

void mount_look_start(struct mount_look *look, const struct mount *mount);
/* Reads once from `fd`, which blocks unless that is readable. True at the look's end. */
bool mount_look_gather(struct mount_look *look);
/* Ends the look, and returns its object, with health "silent" unless in_time. */
json_t *mount_look_end(struct mount_look *look, const struct mount *mount, bool in_time);

/* Returns an indented line for each session of the mount, and for each store without access;
 * free(3). */
char *mount_look_holders(const struct mount *mount);

/* Parses the table of the file `sessions` into an array of objects; pure. */
json_t *mount_look_parse_sessions(const char *text);

#endif
