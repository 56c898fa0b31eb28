/* SPDX-License-Identifier: Apache-2.0 */
/* keeper_journal - a copy of the journal of a mount that ends by a failure (keep_journal=DIR) */
#include "daemon/keeper_internal.h"

#include "base/clock.h"
#include "base/file_io.h"
#include "base/log.h"
#include "journal/journal_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int keeper_check_journal_directory(const struct keeper *keeper)
{
    const char *directory = keeper->setup->options->keep_journal;

    if (!*directory)
        return 0;
    SCOPED_CLOSE int fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) == 0)
        return 0;
    log_error("%s: not mounted: option keep_journal=%s: cannot write there: %s",
              keeper->setup->mountpoint, directory, strerror(errno));
    return -ECANCELED;
}

/* Makes a new file, which the daemon's user alone can read. */
static int write_copy(const struct keeper *keeper, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        return -errno;
    int error = journal_write_copy(&keeper->journal, fd);
    if (close(fd) != 0 && !error)
        error = -errno;
    if (error)
        unlink(path);
    return error;
}

void keeper_keep_journal(const struct keeper *keeper)
{
    const char *directory = keeper->setup->options->keep_journal;
    char path[PATH_MAX];

    if (!*directory)
        return;
    snprintf(path, sizeof path, "%s/gmsfs-%d-%llu.journal", directory, (int)getpid(),
             (unsigned long long)(clock_wall_us() / 1000));
    int error = write_copy(keeper, path);
    if (error)
        log_error("%s: its journal is not kept: %s: %s", keeper->setup->mountpoint, path,
                  strerror(-error));
    else
        log_error("%s: its journal is kept in %s, which 'gmsfs journal' prints",
                  keeper->setup->mountpoint, path);
}
