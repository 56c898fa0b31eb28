/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/governor_lock.h"

#include "cli/daemon_ask.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <unistd.h>

/* The daemon sends nothing unasked, so anything to read is the end of the connection. */
static bool is_held(int lock)
{
    struct pollfd peer = {.fd = lock, .events = POLLIN};

    return lock >= 0 && poll(&peer, 1, 0) == 0;
}

static int explain(const char *path, int error, uint64_t holder, struct failure *failure)
{
    switch (error) {
    case -EBUSY:
        if (holder)
            return failure_set(failure, -EPERM,
                               "%s: process %" PRIu64
                               " governs it already; end that process first, "
                               "or send it SIGHUP to read its file anew",
                               path, holder);
        return failure_set(failure, -EPERM,
                           "%s: a process of another PID namespace governs it already; end that "
                           "process first, or send it SIGHUP to read its file anew",
                           path);
    case -EPERM:
        return failure_set(failure, -EPERM,
                           "%s: permission denied: only root and the user that mounted it can "
                           "govern it; run this as one of them, or with --dry-run",
                           path);
    case -EINVAL:
        return failure_set(failure, -EPERM,
                           "%s: its daemon is of an older build, which cannot keep a second "
                           "governor out; 'gmsfs upgrade %s' replaces it by the installed one",
                           path, path);
    default:
        return failure_set(failure, error,
                           "%s: the daemon cannot be asked whether another process governs it: %s",
                           path, failure_reason(error));
    }
}

int governor_lock(const char *path, int *lock, struct failure *failure)
{
    uint64_t holder = 0;
    int error;

    if (is_held(*lock))
        return 0;
    if (*lock >= 0)
        close(*lock);
    error = daemon_govern(path, lock, &holder);
    return error ? explain(path, error, holder, failure) : 0;
}
