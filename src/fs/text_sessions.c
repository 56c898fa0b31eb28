/* SPDX-License-Identifier: Apache-2.0 */
/* text_sessions - `sessions`: a row for each holder of a store's lock and each waiter */
#include "fs/fs_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define REGION_WORDS "region "
#define NAME_BYTES   (sizeof REGION_WORDS + REGION_MAX_NAME_BYTES)

/* A name as one word of printable ASCII, as /proc/mounts writes such names. */
static void escape_name(const char *name, char out[4 * NAME_BYTES + 1])
{
    size_t used = 0;
    for (size_t i = 0; name[i]; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c > ' ' && c < 0x7f && c != '\\')
            out[used++] = (char)c;
        else
            used += (size_t)snprintf(out + used, 5, "\\%03o", c);
    }
    if (used == 0)
        out[used++] = '-';
    out[used] = '\0';
}

static void write_time(uint64_t wall_ms, char out[32])
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm parts;
    if (!gmtime_r(&seconds, &parts) || !strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &parts))
        snprintf(out, 32, "-");
}

static void write_row(FILE *out, const char *id, const char *mode, const char *status,
                      struct core_process process, uint32_t uid, const char *comm,
                      uint64_t since_ms, uint64_t files)
{
    char name[4 * NAME_BYTES + 1], since[32];
    escape_name(comm, name);
    write_time(since_ms, since);
    fprintf(out, "%s %s %s %llu %u %s %s %llu\n", id, mode, status, (unsigned long long)process.pid,
            uid, name, since, (unsigned long long)files);
}

/* Names the session's holder; the name of its region only for the region's owner and root. */
static void name_holder(const struct core *core, const struct core_session *session,
                        uint32_t reader, char name[NAME_BYTES])
{
    const struct region *region = core_find_session_region(core, session);
    if (region && service_check_region_owner(reader, region->uid) == 0)
        snprintf(name, NAME_BYTES, REGION_WORDS "%s", region->name);
    else
        snprintf(name, NAME_BYTES, "%s", session->comm);
}

/* In the order of the lock: holders, then waiters, the first come first. */
static void write_sessions(const struct core *core, const struct core_store *store, uint32_t reader,
                           FILE *out)
{
    char id[24], name[NAME_BYTES];
    for (size_t i = 0; i < store->lock.session_count; i++) {
        const struct core_session *session = core_find_session(core, store->lock.sessions[i].id);
        if (!session)
            continue;
        snprintf(id, sizeof id, "%llu", (unsigned long long)session->id);
        name_holder(core, session, reader, name);
        write_row(out, id, lock_mode_name(session->mode), "held", session->owner, session->uid,
                  name, session->since_ms, session->files);
    }
    for (size_t i = 0; i < store->lock.waiter_count; i++) {
        const struct core_waiter *waiter = core_find_waiter(core, store->lock.waiters[i].id);
        if (!waiter || !core_waiter_counts(waiter))
            continue;
        snprintf(id, sizeof id, "w%llu", (unsigned long long)waiter->id);
        write_row(out, id, lock_wish_name(waiter->wish), "waiting", waiter->owner, waiter->uid,
                  waiter->comm, waiter->since_wall_ms, 0);
    }
}

int fs_text_sessions(const struct fs *fs, const struct core_store *store, uint32_t reader,
                     struct fs_text *text)
{
    FILE *out = fs_text_begin(fs, text);
    if (!out)
        return text->error;
    write_sessions(fs->core, store, reader, out);
    return fs_text_end(text, out);
}
