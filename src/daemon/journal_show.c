/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/journal_show.h"

#include "base/file_io.h"
#include "core/record_line.h"
#include "daemon/daemon.h"
#include "daemon/replay.h"
#include "daemon/transaction.h"
#include "journal/journal_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define COPY_TRIES  20u
#define STAMP_BYTES 40u

/* ---- entries --------------------------------------------------------------------------------- */

struct showing {
    FILE *to;
    uint64_t records;
};

static void format_stamp(uint64_t wall_ms, char stamp[STAMP_BYTES])
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm parts;

    strcpy(stamp, "-");
    if (gmtime_r(&seconds, &parts) && strftime(stamp, STAMP_BYTES, "%Y-%m-%dT%H:%M:%S", &parts))
        snprintf(stamp + strlen(stamp), STAMP_BYTES - strlen(stamp), ".%03uZ",
                 (unsigned)(wall_ms % 1000));
}

/* Shows a state. An unreadable state takes one line, and the records after it are shown as well. */
static void show_state(struct showing *showing, const void *bytes, size_t size)
{
    struct failure why = {.text = ""};
    struct core *core = NULL;

    if (core_decode(bytes, size, &core, &why) != 0) {
        journal_show_line(showing->to, "state that cannot be read: %s", why.text);
        return;
    }
    journal_show_state(core, showing->to);
    core_free(core);
}

static void show_record(struct showing *showing, const struct journal_entry *entry)
{
    struct record record;
    struct record_arena *arena = NULL;
    char line[RECORD_LINE_BYTES], stamp[STAMP_BYTES];
    int error = record_decode(entry->bytes, entry->size, &record, &arena);

    if (error) {
        journal_show_line(showing->to, "record %" PRIu64 " that cannot be read: %s",
                          showing->records, strerror(-error));
    } else {
        record_line(&record, line);
        format_stamp(record.wall_ms, stamp);
        journal_show_line(showing->to, "record %" PRIu64 " %s %s", showing->records, stamp, line);
        record_decode_free(arena);
    }
    showing->records++;
}

static void show_answer(struct showing *showing, const struct journal_entry *entry)
{
    struct fuse_out_header head;
    char number[32];

    if (entry->size < sizeof head) {
        journal_show_line(showing->to, "answer that cannot be read: %zu bytes", entry->size);
        return;
    }
    memcpy(&head, entry->bytes, sizeof head);
    bool is_errno = head.error < 0 && head.error > -4096;
    snprintf(number, sizeof number, "error %" PRId32, head.error);
    journal_show_line(showing->to, "answer r%" PRIu64 " %s %zu bytes%s", (uint64_t)head.unique,
                      is_errno     ? strerror(-head.error)
                      : head.error ? number
                                   : "ok",
                      entry->size, entry->is_delivered ? "" : " not delivered");
}

static int show_entry(void *context, const struct journal_entry *entry)
{
    struct showing *showing = context;

    switch (entry->type) {
    case TRANSACTION_STATE:
        show_state(showing, entry->bytes, entry->size);
        break;
    case TRANSACTION_RECORD:
        show_record(showing, entry);
        break;
    case TRANSACTION_ANSWER:
        show_answer(showing, entry);
        break;
    case TRANSACTION_NOTE:
        journal_show_line(showing->to, "note of the file system, %zu bytes", entry->size);
        break;
    case TRANSACTION_CONNECTION:
        journal_show_line(showing->to, "note of a GMS connection, %zu bytes", entry->size);
        break;
    default:
        journal_show_line(showing->to, "entry of type %" PRIu32 ", %zu bytes", entry->type,
                          entry->size);
    }
    return 0;
}

int journal_show(const struct journal *journal, FILE *to, struct failure *failure)
{
    struct showing showing = {.to = to};
    size_t size = 0;
    const void *snapshot = journal_get_snapshot(journal, &size);

    if (snapshot) {
        journal_show_line(to, "snapshot, %zu bytes", size);
        show_state(&showing, snapshot, size);
    }
    return journal_read(journal, show_entry, &showing, failure);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* A snapshot that begins or ends meanwhile spoils the copy: another one is made. */
static int copy_of_process(pid_t pid, int to, struct failure *failure)
{
    struct journal_files files;
    int error = journal_find_files(pid, &files);

    if (error == -EACCES)
        return failure_set(failure, error,
                           "permission denied: only root may read its journal, and the user that "
                           "mounted it unless root has taken the mount over; run this as root");
    if (error == -EPROTONOSUPPORT)
        return failure_set(
            failure, error,
            "an older gmsfs made the mount, and this one cannot tell its journal's files "
            "apart; mount it again");
    if (error)
        return failure_set(failure, error, "process %d holds no journal that can be read: %s",
                           (int)pid, strerror(-error));
    unsigned tries = COPY_TRIES;
    do
        error = ftruncate(to, 0) ? -errno : journal_write_copy(&files, to);
    while (error == -EAGAIN && --tries > 0);
    journal_close_files(&files);
    return error ? failure_set(failure, error, "cannot copy the journal: %s", strerror(-error)) : 0;
}

static int show_copy(int fd, bool replays, FILE *to, struct failure *failure)
{
    struct journal_files files;
    struct journal *journal = NULL;
    uint64_t records = 0;
    int error = journal_read_copy(fd, &files, failure);

    if (error)
        return error;
    error = journal_open(&files, &journal, failure);
    if (!error && replays)
        error = replay_check_each(journal, &records, failure);
    else if (!error)
        error = journal_show(journal, to, failure);
    if (!error && replays)
        journal_show_line(to, "%" PRIu64 " records, and the state holds after each", records);
    journal_close(journal);
    journal_close_files(&files);
    return error;
}

int daemon_show_journal(const char *file, pid_t pid, bool replays, FILE *to,
                        struct failure *failure)
{
    SCOPED_CLOSE int fd =
        file ? open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : memfd_create("copy", MFD_CLOEXEC);
    int error = fd < 0 ? -errno : 0;

    if (error)
        return failure_set(failure, error,
                           "cannot open it: %s; name a mount, or a copy that keep_journal= kept",
                           strerror(-error));
    if (!file)
        error = copy_of_process(pid, fd, failure);
    return error ? error : show_copy(fd, replays, to, failure);
}
