/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon_watch - watches the daemon of a mount until it ends, and finds the processes that still
 * map its memory then
 *
 * For `gmsfs umount`. Asks for the daemon's pid before the unmount, in a child that is abandoned if
 * the mount does not answer; reads the rest from /proc. Takes no lock, prints nothing.
 */
#ifndef GMSFS_CLI_DAEMON_WATCH_H
#define GMSFS_CLI_DAEMON_WATCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon_watch {
    pid_t keeper;  /* the process with all of the memory; the worker if it cannot be seen */
    int pidfd;     /* of the keeper; -1 if not watched */
    ino_t *memory; /* its memory files, sorted; only host memory has them */
    size_t memory_count, memory_room;
};

/*
 * Returns 0; -ETIMEDOUT: no answer; -ESRCH: its processes cannot be seen from here; or why the
 * daemon could not be asked. Call daemon_watch_close() in any case.
 */
int daemon_watch_open(struct daemon_watch *watch, const char *mount);
void daemon_watch_close(struct daemon_watch *watch);

/* Waits until it has ended, and so closed its files. 0 or -ETIMEDOUT. */
int daemon_watch_end(const struct daemon_watch *watch, uint64_t timeout_ms);

/* A process that maps some of the memory, if /proc shows it. */
struct daemon_watch_client {
    pid_t pid;
    uint64_t bytes;
    char comm[32];
};

struct daemon_watch_clients {
    struct daemon_watch_client *list; /* free(3) */
    size_t count;
};

struct daemon_watch_clients daemon_watch_list(const struct daemon_watch *watch);

#endif
