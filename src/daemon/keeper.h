/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper - the process that stands behind a mount
 *
 * Forks the worker, mounts, has a child bind `.fds`, holds /dev/fuse and every descriptor of
 * memory, and watches the worker and the mount table. It never touches its own mount and parses
 * nothing that a client sends: whatever happens to the worker, the keeper can clean up. One thread,
 * one poll(2); at rest it looks once a second whether the worker is still alive.
 */
#ifndef GMSFS_DAEMON_KEEPER_H
#define GMSFS_DAEMON_KEEPER_H

#include "daemon/options.h"
#include "daemon/relay.h"

#include <stdbool.h>

struct keeper_setup {
    const struct daemon_options *options;
    int argc; /* what they were parsed from */
    char **argv;
    const char *mountpoint; /* absolute, without links */
    bool allow_other;
    struct relay *relay; /* fd -1: in the foreground */
    int ready_fd;        /* a byte is written here when the mount answers; -1: nobody waits */
    bool takes_over;     /* the mount is there, and another keeper's; its options are, too */
    bool is_stored; /* the mount is there, and what it consists of has come from the service manager
                     */
};

/* Returns the exit status when the mount is over: 0 if it ended in order. */
int keeper_main(const struct keeper_setup *setup);

#endif
