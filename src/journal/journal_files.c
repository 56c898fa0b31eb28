/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the journal, which the keeper makes and holds */
#include "journal/journal_internal.h"

#include "base/file_io.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static int make_file(const char *name, uint64_t bytes, int *fd)
{
    *fd = memfd_create(name, MFD_CLOEXEC);
    if (*fd < 0)
        return -errno;
    return ftruncate(*fd, (off_t)bytes) != 0 ? -errno : 0;
}

int journal_make_files(struct journal_files *files)
{
    static const char *const names[] = {JOURNAL_FILE_NAMES};
    struct head head = {.magic = HEAD_MAGIC, .version = JOURNAL_VERSION};

    *files = (struct journal_files){-1, {-1, -1}, {-1, -1}};
    int error = make_file(names[0], HEAD_BYTES, &files->head);
    for (unsigned i = 0; i < 2 && !error; i++)
        error = make_file(names[1 + i], JOURNAL_MAX_BYTES, &files->transactions[i]);
    for (unsigned i = 0; i < 2 && !error; i++)
        error = make_file(names[3 + i], 0, &files->snapshots[i]);
    if (!error && pwrite(files->head, &head, sizeof head, 0) != (ssize_t)sizeof head)
        error = -EIO;
    if (error)
        journal_close_files(files);
    return error;
}

void journal_close_files(struct journal_files *files)
{
    file_close_fd(&files->head);
    for (unsigned i = 0; i < 2; i++) {
        file_close_fd(&files->transactions[i]);
        file_close_fd(&files->snapshots[i]);
    }
}
