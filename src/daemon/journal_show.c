/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/journal_show.h"

#include "base/clean.h"
#include "base/file_io.h"
#include "core/event_line.h"
#include "core/record_line.h"
#include "daemon/daemon.h"
#include "daemon/replay.h"
#include "daemon/transaction.h"
#include "journal/journal_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fuse.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 1280u

/* Prints one line, made harmless, with a newline. */
__attribute__((format(printf, 2, 3))) static void journal_show_line(FILE *to, const char *format,
                                                                    ...)
{
    char line[LINE_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    clean_text(line);
    fprintf(to, "%s\n", line);
}

static void show_mount(const struct core *core, FILE *to)
{
    journal_show_line(to,
                      "state stores=%zu sessions=%zu waiters=%zu files=%zu tickets=%zu "
                      "reserved_bytes=%" PRIu64 " resumes=%" PRIu64 " suspect=%" PRIu64 "%s%s%s",
                      core->stores.count, core->sessions.count, core->waiters.count,
                      core->files.count, core->tickets.count, core->reserved_bytes, core->resumes,
                      core->suspect, core->draining ? " draining" : "",
                      core->lost ? " device_lost" : "", core->fence.is_up ? " fenced" : "");
}

static void show_store(const struct core_store *store, FILE *to)
{
    const struct layout *fixed = store->fixed;

    journal_show_line(to,
                      "  store %" PRIu64 " '%s' %s generation=%" PRIu64 " place=%s uid=%" PRIu32
                      " gid=%" PRIu32 " mode=0%" PRIo32 " sessions=%zu waiters=%zu "
                      "allocations=%zu bytes=%" PRIu64 "%s%s%s%s",
                      store->id, store->name, lock_state_name(lock_get_state(&store->lock)),
                      store->generation, core_place_name(store->places.place), store->uid,
                      store->gid, store->mode, store->lock.session_count, store->lock.waiter_count,
                      fixed ? layout_count_allocations(fixed) : 0,
                      fixed ? layout_total_bytes(fixed) : 0, store->working ? " being_written" : "",
                      store->suspect ? " suspect" : "", store->drain.is_on ? " draining" : "",
                      store->places.move.id ? " moving" : "");
}

static void show_pool(const struct core_pool *pool, FILE *to)
{
    journal_show_line(
        to, "  pool %" PRIu64 " '%s' class=%s min=%" PRIu64 " used=%" PRIu64 " stores=%" PRIu64,
        pool->id, pool->name, core_pool_class_name(pool->class), pool->min_bytes, pool->used_bytes,
        pool->store_count);
}

static void show_session(const struct core_session *session, FILE *to)
{
    journal_show_line(to,
                      "  session %" PRIu64 " store=%" PRIu64 " %s pid=%" PRIu64 " uid=%" PRIu32
                      " comm='%.*s' files=%" PRIu64 " reserved_bytes=%" PRIu64 "%s%s",
                      session->id, session->store, lock_mode_name(session->mode),
                      session->owner.pid, session->uid, (int)sizeof session->comm, session->comm,
                      session->files, session->reserved_bytes,
                      session->exclusive ? " exclusive" : "", session->ending ? " ending" : "");
}

static void show_waiter(const struct core_waiter *waiter, FILE *to)
{
    journal_show_line(to,
                      "  waiter %" PRIu64 " store=%" PRIu64 " %s pid=%" PRIu64 " uid=%" PRIu32
                      " comm='%.*s' reserve_bytes=%" PRIu64 "%s",
                      waiter->id, waiter->store, lock_wish_name(waiter->wish), waiter->owner.pid,
                      waiter->uid, (int)sizeof waiter->comm, waiter->comm, waiter->reserve_bytes,
                      waiter->away ? " away" : "");
}

static void show_file(const struct core_file *file, FILE *to)
{
    journal_show_line(to,
                      "  file %" PRIu64 " store=%" PRIu64 " kind=%d serial=%" PRIu64
                      " session=%" PRIu64 " pid=%" PRIu64 " uid=%" PRIu32,
                      file->id, file->store, (int)file->kind, file->serial, file->session,
                      file->opener.pid, file->uid);
}

static void show_events(const struct core *core, FILE *to)
{
    for (uint64_t seq = core_first_event(core); seq < core->next_event; seq++) {
        const struct core_event *event = core_find_event(core, seq);
        char *line = NULL;
        size_t size;
        if (!event || event_line_render(event, 0, &line, &size) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        journal_show_line(to, "  event %s", line);
        free(line);
    }
}

/* Shows a line for the mount, and one for each store, pool, session, waiter, file and
 * remembered event. */
static void journal_show_state(const struct core *core, FILE *to)
{
    show_mount(core, to);
    for (size_t i = 0; i < core->pools.items.count; i++)
        show_pool(core->pools.items.items[i], to);
    for (size_t i = 0; i < core->stores.count; i++)
        show_store(core->stores.items[i], to);
    for (size_t i = 0; i < core->sessions.count; i++)
        show_session(core->sessions.items[i], to);
    for (size_t i = 0; i < core->waiters.count; i++)
        show_waiter(core->waiters.items[i], to);
    for (size_t i = 0; i < core->files.count; i++)
        show_file(core->files.items[i], to);
    show_events(core, to);
}

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
