/* SPDX-License-Identifier: Apache-2.0 */
/*
 * act - turns deeds into shell commands, and runs them
 *
 * A dry run prints the commands that a real run executes: hooks of the config, `gmsfs promote`,
 * `demote` and `drain`, and words written to files of the mount. Each command has a time limit and
 * is killed after it; that leaves nothing half done, because the daemon carries out moves and
 * drains.
 */
#ifndef GMSFS_GOVERNOR_ACT_H
#define GMSFS_GOVERNOR_ACT_H

#include "governor/decide.h"

struct failure;

#define GOVERNOR_HOOK_MS  60000u  /* for an engine to go to sleep, or to wake */
#define GOVERNOR_DRAIN_MS 30000u  /* for holders to leave */
#define GOVERNOR_MOVE_MS  300000u /* for the bytes of a store to move */
#define GOVERNOR_WRITE_MS 5000u   /* for writing a word to a file of the mount */

struct governor_place {
    const char *mount;   /* absolute */
    const char *program; /* gmsfs itself */
};

/* Returns one line for a shell, to be freed; NULL: no memory. "" for GOVERNOR_REPORT. */
char *governor_deed_command(const struct governor_deed *deed, const struct governor_config *config,
                            const struct governor_place *place);

/* Writes the deed, which is no report, in a few words: "demote qwen to host". */
void governor_deed_name(const struct governor_deed *deed, const struct governor_config *config,
                        char *text, size_t room);

/* Carries the deed out, and waits for its end. On failure a negative errno and, in `failure`, one
 * line that names the deed, the reason, and the time of the next attempt. */
int governor_do(const struct governor_deed *deed, const struct governor_config *config,
                const struct governor_place *place, struct failure *failure);

#endif
