/* SPDX-License-Identifier: Apache-2.0 */
/*
 * governor_round - one look at a mount, and what follows from it
 *
 * For cmd_governor.c. What is done is printed on standard output, a line a deed, and what fails on
 * standard error.
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
    int lock;            /* a connection to the daemon that says so; -1 at first */
    bool dry_run;        /* then it takes no lock */
    struct governor_config config;
    struct governor_past past;
    struct governor_deed *deeds;   /* GOVERNOR_MAX_DEEDS */
    char *shown;                   /* what a dry run, or reports, showed last */
    char *complaint;               /* what was told last on standard error */
    bool (*is_asked_to_end)(void); /* then no further deed is begun */
};

enum governor_round_end {
    ROUND_DONE,
    ROUND_STALE,  /* some of it was, and for the rest it is to be looked at again at once */
    ROUND_FAILED, /* something did, which was told */
    ROUND_DEAD,   /* this and the next, told as well: the mount's daemon has ended */
    ROUND_GONE,   /* it was unmounted */
    ROUND_BARRED, /* this process may not govern the mount, or another one does, which was told */
};

enum governor_round_end governor_round(struct governor_round *round);
void governor_round_free(struct governor_round *round);

#endif
