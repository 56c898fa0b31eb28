/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top_view - the parts of `gmsfs top` that look at mounts and change stores
 *
 * For cmd_top.c. Each look, each wait for events and each deed is a child process, so nothing here
 * waits. top/top.h has the picture.
 */
#ifndef GMSFS_CLI_TOP_VIEW_H
#define GMSFS_CLI_TOP_VIEW_H

#include "cli/mounts.h"
#include "top/top.h"

#include <poll.h>

/* ---- top_mounts.c -------------------------------------------------------------------------- */

struct top_mounts;

/* Finds the mounts that contain the paths; without paths all. CLI_OK, or CLI_FAILURE after the
 * error. `paths` have to stay. */
int top_mounts_open(struct top_mounts **mounts, struct top *top, char **paths, size_t count,
                    uint64_t delay_ms);
void top_mounts_close(struct top_mounts *mounts);

/* Starts looks that are due, and follows mounts that come and go. True if the picture changed. */
bool top_mounts_turn(struct top_mounts *mounts);
/* Looks at all mounts as soon as it may. */
void top_mounts_hurry(struct top_mounts *mounts);
/* Returns the time until the next turn. */
int top_mounts_left_ms(const struct top_mounts *mounts);

/* Writes entries for poll(2), as many as there are room for; returns how many. */
size_t top_mounts_poll(const struct top_mounts *mounts, struct pollfd *polls, size_t room);
/* Takes the output of the children. True if the picture changed. */
bool top_mounts_take(struct top_mounts *mounts);

/* ---- top_deeds.c --------------------------------------------------------------------------- */

#define TOP_DEEDS 8u /* at the same time */

struct top_deeds {
    struct top_deed_run {
        struct child *child; /* NULL: free */
        int fd;
        char text[1024];
        size_t used;
    } runs[TOP_DEEDS];
};

/* Starts a deed; a failure becomes a message. */
void top_deeds_start(struct top_deeds *deeds, struct top *top, const struct top_order *order);
size_t top_deeds_poll(const struct top_deeds *deeds, struct pollfd *polls);
/* Takes the words of deeds as messages. True if one has ended. */
bool top_deeds_take(struct top_deeds *deeds, struct top *top);
/* Ends them; a move goes on, a drain ends. */
void top_deeds_close(struct top_deeds *deeds);

#endif
