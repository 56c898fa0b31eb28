/* SPDX-License-Identifier: Apache-2.0 */
/*
 * act - deeds as commands of the shell, and their doing
 *
 * What is done is what a dry run prints: hooks of the config, `gmsfs promote`, `demote` and
 * `drain`, and words that are written to files of the mount. Each has a time, after which it is
 * killed; what that leaves is whole, for moves and drains are the daemon's.
 */
#ifndef GMSFS_GOVERNOR_ACT_H
#define GMSFS_GOVERNOR_ACT_H

#include "governor/decide.h"

struct failure;

#define GOVERNOR_HOOK_MS  60000u  /* for an engine to go to sleep, or to wake */
#define GOVERNOR_DRAIN_MS 30000u  /* that holders have to leave */
#define GOVERNOR_MOVE_MS  300000u /* for the bytes of a store */
#define GOVERNOR_WRITE_MS 5000u   /* for a word into a file of the mount */

struct governor_place {
    const char *mount;   /* absolute */
    const char *program; /* gmsfs itself */
};

/* One line for a shell; free(3). NULL: no memory. Of a GOVERNOR_REPORT "". */
char *governor_deed_command(const struct governor_deed *deed, const struct governor_config *config,
                            const struct governor_place *place);

/* What it does, in a few words: "demote qwen to host". */
void governor_deed_name(const struct governor_deed *deed, const struct governor_config *config,
                        char *text, size_t room);

/* Does it, and waits for its end. A negative errno and, in `failure`, one line that names the deed,
 * says why it failed and what comes next. */
int governor_do(const struct governor_deed *deed, const struct governor_config *config,
                const struct governor_place *place, struct failure *failure);

#endif
