/* SPDX-License-Identifier: Apache-2.0 */
/* Asking on `.fds` again: its connections end with the daemon's worker, which is replaced. */
#include <time.h>

#include "internal.h"

#define AGAIN_PAUSE_MAX_MS 128

void gfs_again_begin(struct gfs_again *again)
{
    *again = (struct gfs_again){.until_ms = gfs_clock_ms() + GFS_REPLY_TIMEOUT_MS};
}

/* The first retry is at once, because the daemon may have dropped an idle connection; then later
 * and later, because a daemon that accepts and drops connections is busy with others. */
int gfs_again_pause(struct gfs_again *again)
{
    struct timespec pause = {.tv_nsec = again->pause_ms * 1000000L};

    if (gfs_clock_ms() >= again->until_ms)
        return 0;
    nanosleep(&pause, NULL);
    again->pause_ms = again->pause_ms ? again->pause_ms * 2 : 1;
    if (again->pause_ms > AGAIN_PAUSE_MAX_MS)
        again->pause_ms = AGAIN_PAUSE_MAX_MS;
    return 1;
}
