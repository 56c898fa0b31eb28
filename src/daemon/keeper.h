/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper - the process that keeps a mount alive
 *
 * Forks the worker, mounts, has a child bind `.fds`, holds /dev/fuse and every descriptor of
 * memory, and watches the worker and the mount table. It never touches its own mount and parses
 * nothing that a client sends, so it can clean up however the worker ends. One thread, one poll(2);
 * at rest it checks once a second that the worker is alive.
 */
#ifndef GMSFS_DAEMON_KEEPER_H
#define GMSFS_DAEMON_KEEPER_H

#include "daemon/options.h"
#include "daemon/relay.h"

#include <stdbool.h>

struct keeper_setup {
    const struct daemon_options *options;
    int argc; /* the arguments that `options` were parsed from */
    char **argv;
    const char *mountpoint; /* absolute, without links */
    bool allow_other;
    struct relay *relay; /* fd -1 in the foreground */
    int ready_fd;        /* gets a byte when the mount answers; -1 if no process waits */
    bool takes_over;     /* the mount exists and belongs to another keeper, as do its options */
    bool is_stored;      /* the mount exists, and the service manager stored its parts */
};

/* Returns the exit status when the mount has ended: 0 if it ended in order. */
int keeper_main(const struct keeper_setup *setup);

#endif
