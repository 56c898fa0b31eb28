/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/lifeline.h"

#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <semaphore.h>
#include <stddef.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)64 << 10)

struct lifeline {
    int end;     /* the end of the pipe that the thread keeps */
    sem_t ready; /* posted when the thread has its own table, or has failed */
    int error;
};

/* Closes every descriptor but `fd` in a table of its own. The descriptors above `fd` are not even
 * copied; below it are the few that a program starts with. */
static int close_all_but(int fd)
{
    if (close_range((unsigned)fd + 1, ~0u, CLOSE_RANGE_UNSHARE) != 0 ||
        (fd > 0 && close_range(0, (unsigned)fd - 1, 0) != 0))
        return -errno;
    return 0;
}

static void *run(void *argument)
{
    struct lifeline *lifeline = argument;
    int error = close_all_but(lifeline->end);

    lifeline->error = error;
    sem_post(&lifeline->ready); /* `lifeline` is on the caller's stack and ends here */
    if (error)
        return NULL;
    for (;;)
        pause();
}

int lifeline_start(void)
{
    struct lifeline lifeline = {0};
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return -errno;
    lifeline.end = ends[1];
    sem_init(&lifeline.ready, 0, 0);
    int error = thread_start(NULL, STACK_BYTES, run, &lifeline);
    if (!error) {
        while (sem_wait(&lifeline.ready) != 0)
            continue;
        error = lifeline.error;
    }
    sem_destroy(&lifeline.ready);
    close(ends[1]);
    if (!error)
        return ends[0];
    close(ends[0]);
    return error;
}
