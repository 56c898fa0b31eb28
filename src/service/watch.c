/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch - watches the owners of sessions, which end with them, and processes that can write memory
 *
 * A process is watched once, however many sessions it has or waits for, and however many stores'
 * memory it can write; each watch costs a descriptor, so they are a bound that users share. A
 * process that cannot be watched is refused when it asks, not when it is granted.
 */
#include "base/log.h"
#include "service/ending.h"
#include "service/parked.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_MS 1000u

struct watch {
    uint64_t id; /* pid; first, for idvec */
    struct core_process process;
    uint32_t uid;  /* charged to this user's share */
    uint64_t uses; /* its sessions, and its requests for one */
    bool writes;   /* it got a writable descriptor: the core knows of which stores */
    bool is_gone;
};

static struct watch *find_watch(const struct service *s, struct core_process process)
{
    struct watch *watch = idvec_find(&s->watches.processes, process.pid);
    return watch && watch->process.start == process.start ? watch : NULL;
}

static void end_watch(struct service *s, struct watch *watch)
{
    if (!watch->is_gone)
        s->host.unwatch_process(s->host.context, watch->process);
    service_give(s, SERVICE_BOUND_WATCHES, watch->uid, 1);
    idvec_remove(&s->watches.processes, watch->id);
    free(watch);
}

void service_free_watches(struct service *s)
{
    while (s->watches.processes.count > 0)
        end_watch(s, s->watches.processes.items[s->watches.processes.count - 1]);
    idvec_free(&s->watches.processes);
}

/* Ends the watch of a former process with the same pid: it has exited, even without an event. */
static void drop_namesake(struct service *s, struct core_process process)
{
    struct watch *old = idvec_find(&s->watches.processes, process.pid);
    if (!old)
        return;
    service_on_exit(s, old->process);
    old = idvec_find(&s->watches.processes, process.pid);
    if (old)
        end_watch(s, old);
}

static bool is_needed(const struct service *s, const struct watch *watch)
{
    return watch->uses > 0 || (watch->writes && core_is_writer(s->core, watch->process));
}

/* Ends watches that are not needed any more: no event tells when the memory that a process could
 * write has been freed. */
static void make_room(struct service *s, uint64_t store, uint32_t uid)
{
    enum share_rank rank = core_get_rank(s->core, core_find_store(s->core, store), uid);
    if (share_check(&s->bounds.shares[SERVICE_BOUND_WATCHES], uid, rank, 1) == 0)
        return;
    for (size_t i = s->watches.processes.count; i > 0; i--) {
        if (!is_needed(s, s->watches.processes.items[i - 1]))
            end_watch(s, s->watches.processes.items[i - 1]);
    }
}

/* Starts a watch without a use. The process may have exited already. */
static int start_watch(struct service *s, uint64_t store, uint32_t uid, struct core_process process,
                       struct watch **started)
{
    struct watch *watch;
    make_room(s, store, uid);
    int error = service_take(s, SERVICE_BOUND_WATCHES, store, uid, 1);
    if (error)
        return error;
    drop_namesake(s, process);
    watch = malloc(sizeof *watch);
    error = watch ? 0 : -ENOMEM;
    if (!error) {
        *watch = (struct watch){.id = process.pid, .process = process, .uid = uid};
        error = idvec_insert(&s->watches.processes, watch);
    }
    if (error) {
        free(watch);
        service_give(s, SERVICE_BOUND_WATCHES, uid, 1);
        return error;
    }
    error = s->host.watch_process(s->host.context, process);
    watch->is_gone = error != 0; /* the host does not watch it */
    if (error && error != -ESRCH) {
        end_watch(s, watch);
        return error;
    }
    *started = watch;
    return 0;
}

int service_watch(struct service *s, const struct core_file *file, const struct record *record)
{
    struct watch *watch = find_watch(s, record->process);
    int error = 0;
    if (!(record->flags & CORE_OPEN_OWNED) || record->process.pid == 0)
        return 0; /* not visible: only its files tell */
    if (!watch)
        error = start_watch(s, file->store, file->uid, record->process, &watch);
    if (!error)
        watch->uses++;
    return error;
}

static void end_unneeded(struct service *s, struct core_process process)
{
    struct watch *watch = find_watch(s, process);
    if (watch && !is_needed(s, watch))
        end_watch(s, watch);
}

void service_unwatch(struct service *s, struct core_process process)
{
    struct watch *watch = find_watch(s, process);
    if (!watch)
        return;
    watch->uses--;
    end_unneeded(s, process);
}

/* Records that the process writes no more: later writers may be waiting for that. */
static void note_exit(struct service *s, struct core_process process)
{
    if (core_is_writer(s->core, process))
        service_record(s, .type = RECORD_EXIT, .process = process);
}

int service_note_writer(struct service *s, uint64_t session, uint32_t uid,
                        struct core_process process)
{
    const struct core_session *held = core_find_session(s->core, session);
    struct record record = {.type = RECORD_LEND, .session = session};
    struct watch *watch = process.pid ? find_watch(s, process) : NULL;
    if (!held)
        return -ESTALE;
    /* It is recorded already. */
    if (watch && watch->writes && !watch->is_gone && held->mode != LOCK_MODE_RO &&
        core_is_writer_of(core_find_store(s->core, held->store), process))
        return 0;
    if (process.pid && !watch) {
        int error = start_watch(s, held->store, uid, process, &watch);
        if (error)
            return error;
    }
    /* A descriptor for a process that has exited may reach an unknown one: a child that has its
     * connection. */
    if (watch && !watch->is_gone)
        record.process = process;
    int error = service_apply_record(s, &record, NULL);
    if (watch && !watch->is_gone && !error)
        watch->writes = true;
    end_unneeded(s, process);
    return error;
}

static int restore_watch(struct service *s, const struct core_store *store, uint32_t uid,
                         struct core_process process, struct watch **watch)
{
    *watch = find_watch(s, process);
    return *watch ? 0 : start_watch(s, store->id, uid, process, watch);
}

static int restore_writers(struct service *s, const struct core_store *store)
{
    int error = 0;
    for (size_t i = 0; i < store->writer_count && !error; i++) {
        struct watch *watch;
        error = restore_watch(s, store, store->uid, store->writers[i], &watch);
        if (!error)
            watch->writes = true;
    }
    return error;
}

/* Watches the writers of all stores. A process that cannot be watched now may still be writing:
 * until it can be, its stores have no next writer. */
static void restore_all_writers(struct service *s)
{
    for (size_t i = 0; i < s->core->stores.count; i++) {
        if (restore_writers(s, s->core->stores.items[i]))
            deadline_set(s, &s->watches.retry, service_now(s) + RETRY_MS);
    }
}

static void settle_gone(struct service *s);

static void retry(struct service *s, struct deadline *deadline)
{
    (void)deadline;
    restore_all_writers(s);
    settle_gone(s);
}

/* service_settle_watches ends the sessions of processes that have exited meanwhile or cannot be
 * watched. */
void service_restore_watches(struct service *s)
{
    s->watches.retry.pass = retry;
    for (size_t i = 0; i < s->core->sessions.count; i++) {
        const struct core_session *session = s->core->sessions.items[i];
        struct watch *watch;
        if (!session->owned || session->owner.pid == 0)
            continue;
        int error = restore_watch(s, core_find_store(s->core, session->store), session->uid,
                                  session->owner, &watch);
        if (!error)
            watch->uses++;
        else
            log_warning("process %" PRIu64 " cannot be watched: %s; its session %" PRIu64 " ends",
                        session->owner.pid, strerror(-error), session->id);
    }
    restore_all_writers(s);
}

/* Ends the sessions of processes without a watch, as if they had exited: no event would tell of
 * that. */
static void end_unwatched(struct service *s)
{
    const struct core_session *session;
    for (uint64_t id = 0; (session = idvec_find_after(&s->core->sessions, id));) {
        id = session->id;
        if (session->owned && session->owner.pid != 0 && !find_watch(s, session->owner) &&
            !service_is_leaving(s, id))
            service_end_owned(s, id);
    }
}

static void settle_gone(struct service *s)
{
    const struct watch *watch;
    for (uint64_t id = 0; (watch = idvec_find_after(&s->watches.processes, id));) {
        id = watch->id;
        if (watch->is_gone)
            service_on_exit(s, watch->process);
    }
}

void service_settle_watches(struct service *s)
{
    end_unwatched(s);
    settle_gone(s);
}

void service_check_owner(struct service *s, uint64_t session)
{
    const struct core_session *held = core_find_session(s->core, session);
    const struct watch *watch = held && held->owned ? find_watch(s, held->owner) : NULL;
    if (watch && watch->is_gone)
        service_end_owned(s, session);
}

/* Ends one session after the other: ending one may end others at once. */
void service_on_exit(struct service *s, struct core_process process)
{
    struct watch *watch = find_watch(s, process);
    if (watch && !watch->is_gone) {
        watch->is_gone = true;
        s->host.unwatch_process(s->host.context, process);
    }
    note_exit(s, process);
    const struct core_session *session;
    for (uint64_t id = 0; (session = idvec_find_after(&s->core->sessions, id));) {
        id = session->id;
        if (session->owned && core_same_process(session->owner, process) &&
            !service_is_leaving(s, id))
            service_end_owned(s, id);
    }
    end_unneeded(s, process);
}
