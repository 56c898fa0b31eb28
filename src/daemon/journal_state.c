/* SPDX-License-Identifier: Apache-2.0 */
/* journal_state - a state of the core as lines of text */
#include "base/clean.h"
#include "core/event_line.h"
#include "daemon/journal_show.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 1280u

void journal_show_line(FILE *to, const char *format, ...)
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

void journal_show_state(const struct core *core, FILE *to)
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
