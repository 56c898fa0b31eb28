/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of a journal, as somebody gives it to `gmsfs journal`: refused in one line, or files that
 * journal_open looks at (fuzz_journal.c). An input is the copy. */
#include "fuzz.h"

#include "journal/journal_copy.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct failure failure = {.text = ""};
    struct journal_files files;
    struct journal *journal = NULL;
    int fd = memfd_create("copy", MFD_CLOEXEC);

    must(fd >= 0 && (size == 0 || pwrite(fd, data, size, 0) == (ssize_t)size));
    int error = journal_read_copy(fd, &files, &failure);
    close(fd);
    if (error) {
        must(error == -EPROTO || error == -EPROTONOSUPPORT || error == -ENOMEM);
        must(files.head == -1 && fuzz_is_line(failure.text));
        return 0;
    }
    error = journal_open(&files, &journal, &failure);
    must(!error || (!journal && fuzz_is_line(failure.text)));
    journal_close(journal);
    journal_close_files(&files);
    return 0;
}
