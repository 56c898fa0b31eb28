/* SPDX-License-Identifier: Apache-2.0 */
/*
 * governor_round - one look at a mount, and the deeds that follow from it
 *
 * For cmd_governor.c. Prints each deed as a line on standard output, and failures on standard
 * error.
 */
#ifndef GMSFS_CLI_GOVERNOR_ROUND_H
#define GMSFS_CLI_GOVERNOR_ROUND_H

#include "cli/mounts.h"
#include "governor/decide.h"
#include "governor/observe.h"

#include <stdbool.h>

struct governor_round {
    const struct mount *mount;
    const char *program; /* gmsfs itself */
    int lock;            /* connection to the daemon that is the lock; -1 at first */
    bool dry_run;        /* print the deeds only, without the lock */
    struct governor_config config;
    struct governor_past past;
    struct governor_deed *deeds;   /* GOVERNOR_MAX_DEEDS */
    char *shown;                   /* last text of a dry run or of reports */
    char *complaint;               /* last text on standard error */
    bool (*is_asked_to_end)(void); /* if true, no further deed is begun */
};

enum governor_round_end {
    ROUND_DONE,
    ROUND_STALE,  /* done in part; the rest needs another look at once */
    ROUND_FAILED, /* a deed or the look failed; the error was printed */
    ROUND_DEAD,   /* failed for good: the mount's daemon has ended; printed too */
    ROUND_GONE,   /* the mount was unmounted */
    ROUND_BARRED, /* this process may not govern the mount, or another does; printed */
};

enum governor_round_end governor_round(struct governor_round *round);
void governor_round_free(struct governor_round *round);

#endif
