/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon_watch - the daemon of a mount, seen to its end, and what then still has its memory
 *
 * For `gmsfs umount`. Who they are is asked before the unmount, in a child that is given up when
 * the mount does not answer; the rest is read from /proc. Takes no lock, prints nothing.
 */
#ifndef GMSFS_CLI_DAEMON_WATCH_H
#define GMSFS_CLI_DAEMON_WATCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon_watch {
    pid_t keeper;  /* it has all of the memory; where it cannot be seen, the worker */
    int pidfd;     /* of it; -1: it is not watched */
    ino_t *memory; /* its memory files, sorted; host memory alone has such */
    size_t memory_count;
};

/*
 * 0; -ETIMEDOUT: no answer; -ESRCH: its processes cannot be seen from here; or why the daemon could
 * not be asked. daemon_watch_close() in any case.
 */
int daemon_watch_open(struct daemon_watch *watch, const char *mount);
void daemon_watch_close(struct daemon_watch *watch);

/* Until it has ended, and with it closed what it held. 0 or -ETIMEDOUT. */
int daemon_watch_end(const struct daemon_watch *watch, uint64_t timeout_ms);

/* A process that maps some of the memory, as far as that can be seen. */
struct daemon_watch_client {
    pid_t pid;
    uint64_t bytes;
    char comm[32];
};

/* 0 or -ENOMEM; free(3) the list. */
int daemon_watch_list(const struct daemon_watch *watch, struct daemon_watch_client **list,
                      size_t *count);

#endif
