/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lives_world - a mount whose worker is played by this process, and dies at a certain step
 *
 * The journal, replay, transactions, service and core are the real ones, over host memory. Played
 * are the keeper (service_fixture.h), the helpers, whose jobs run one by one on this thread, and
 * the kernel, which sends requests of clients, keeps the unanswered ones, and sends them again to
 * the next worker. A step is one in the sense of tests/fault/kill.h, or a call of the played host.
 * Death is a longjmp out of the step: everything of the worker stays as it is, and the next one
 * gets the journal, the kept descriptors, and the requests. For lives.c alone.
 */
#ifndef GMSFS_TESTS_FAULT_LIVES_WORLD_H
#define GMSFS_TESTS_FAULT_LIVES_WORLD_H

#include "../unit/service_fixture.h"
#include "core/event.h"
#include "daemon/replay.h"
#include "daemon/transaction.h"
#include "kill.h"
#include "service/service_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define CLIENTS    2u
#define FILES      8u
#define LIVES      3u
#define TEXT_BYTES 65536u
#define TURNS_MAX  20000u

/* A client's request: `act` answers by answer_call, at once or later. */
struct call;
struct ask {
    int (*act)(struct call *call, const struct ask *ask); /* NULL at the end */
    uint64_t file;                                        /* one of the client's files */
    uint64_t a, b;
    const char *text;
};
/* Returns true for a request by a connection to `.fds`, which ends with the worker; the client asks
 * again. */
static bool is_by_connection(const struct ask *ask);

struct answer {
    uint64_t unique, file;
    int32_t error;
    char text[256];
};

struct player {
    const struct ask *asks;
    size_t next;   /* number of the present request */
    bool is_asked; /* this life's worker has it */
    uint64_t files[FILES];
    struct service_caller caller;
    struct answer last;
};

struct call {
    struct service_request request; /* first */
    struct player *player;
    uint64_t unique;
};

static struct {
    struct journal_files files;
    int kernel, worker; /* ends of the stand-in for /dev/fuse */
    struct player players[CLIENTS];
    struct journal *journal;
    struct transaction transaction;
    struct job *ready[64], *held[64];
    size_t ready_count, held_count;
    unsigned life;
    jmp_buf death;
} w;

/* Shared with the process that directs the trials. */
struct trial {
    int kill_at[LIVES]; /* the step before which each life ends; -1 if it does not */
    int steps[LIVES];   /* that each life has made */
    char step[LIVES][KILL_NAME];
    size_t used;
    char text[TEXT_BYTES]; /* the results */
};
static struct trial *trial;
static bool is_armed;

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int wrote = vsnprintf(trial->text + trial->used, TEXT_BYTES - trial->used, format, arguments);
    va_end(arguments);
    trial->used += (size_t)wrote;
    require(trial->used < TEXT_BYTES);
}

static void meet_step(const char *step)
{
    if (!is_armed)
        return;
    if (trial->steps[w.life]++ != trial->kill_at[w.life])
        return;
    snprintf(trial->step[w.life], KILL_NAME, "%s", step);
    is_armed = false;
    longjmp(w.death, 1);
}

/* ---- the host ------------------------------------------------------------------------------ */

static int world_record(void *context, const struct record *record, size_t *mark)
{
    (void)context;
    return transaction_record(&w.transaction, record, mark);
}

static void world_unrecord(void *context, size_t mark)
{
    (void)context;
    journal_rewind(w.transaction.journal, mark);
}

static void publish(void)
{
    transaction_end(&w.transaction);
    for (size_t i = 0; i < w.held_count; i++)
        w.ready[w.ready_count++] = w.held[i];
    w.held_count = 0;
}

static void world_publish(void *context)
{
    (void)context;
    publish();
}

static void end_step(void)
{
    settle_step();
    publish();
}

static int world_submit(void *context, enum service_pool pool, struct job *job)
{
    (void)context;
    (void)pool;
    require(w.held_count + w.ready_count < 64);
    w.held[w.held_count++] = job;
    return 0;
}

static int world_keep(void *context, const struct service_memory *memories, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        meet_step("keep");
        drop_kept(memories[i].id);
        host_keep(context, &memories[i], 1);
    }
    return 0;
}

static void world_drop(void *context, const uint64_t *memories, size_t count)
{
    meet_step("drop");
    host_drop(context, memories, count);
}

static struct service_host world_host(void)
{
    struct service_host host = fixture_host;

    host.record = world_record;
    host.unrecord = world_unrecord;
    host.publish = world_publish;
    host.submit = world_submit;
    host.keep = world_keep;
    host.drop = world_drop;
    return host;
}

/* ---- requests ------------------------------------------------------------------------------ */

static size_t number_of(const struct player *player)
{
    return (size_t)(player - w.players);
}

/* Call it once for each call, from the service or from `act`. */
__attribute__((format(printf, 4, 5))) static void
answer_call(struct call *call, int error, uint64_t file, const char *format, ...)
{
    struct answer answer = {.unique = call->unique, .error = error, .file = file};
    const struct iovec part = {&answer, sizeof answer};
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(answer.text, sizeof answer.text, format, arguments);
    va_end(arguments);
    require(transaction_answer(&w.transaction, w.worker, &part, 1, 0) == sizeof answer);
}

static void on_done(struct service_request *request, int error, const struct service_answer *told)
{
    struct call *call = (struct call *)request;

    answer_call(call, error, told->file,
                "mode %d slot %llu rank %llu generation %llu bytes %zu %.*s",
                error ? 0 : (int)told->mode, (unsigned long long)told->slot,
                (unsigned long long)told->rank, (unsigned long long)told->generation, told->bytes,
                told->data ? (int)(told->bytes < 64 ? told->bytes : 64) : 0,
                told->data ? (const char *)told->data : "");
}

/* Plays the kernel's end: an answer counts once, and a repeated one is the same. */
static void take_answers(void)
{
    struct answer answer;

    while (recvfrom(w.kernel, &answer, sizeof answer, MSG_DONTWAIT, NULL, NULL) ==
           (ssize_t)sizeof answer) {
        struct player *player = &w.players[answer.unique >> 32];
        const struct ask *ask = &player->asks[player->next];
        if (answer.unique == player->last.unique) {
            if (memcmp(&answer, &player->last, sizeof answer) != 0)
                tell("an answer came again, and was another one: %s\n", answer.text);
            continue;
        }
        if ((uint32_t)answer.unique != player->next + 1 || !ask->act) {
            tell("an answer that nobody waits for: %s\n", answer.text);
            continue;
        }
        tell("client %zu, %zu: %d %s\n", number_of(player), player->next, answer.error,
             answer.text);
        if (answer.file)
            player->files[ask->file] = answer.file;
        player->last = answer;
        player->next++;
        player->is_asked = false;
    }
}

static void ask_worker(struct player *player)
{
    const struct ask *ask = &player->asks[player->next];
    struct call *call = calloc(1, sizeof *call);

    require(call != NULL);
    player->is_asked = true;
    call->request.done = on_done;
    call->request.since_ms = fixture_now_ms;
    call->player = player;
    call->unique = (uint64_t)number_of(player) << 32 | (player->next + 1);
    int error = ask->act(call, ask);
    if (error)
        answer_call(call, error < 0 ? error : 0, 0, "at once");
    end_step();
}

static bool wants(const struct player *player)
{
    return player->asks && player->asks[player->next].act;
}

/* ---- the worker ---------------------------------------------------------------------------- */

static int write_again(void *context, const struct journal_entry *entry)
{
    (void)context;
    if (entry->type == TRANSACTION_ANSWER && !entry->is_delivered)
        require(write(w.worker, entry->bytes, entry->size) == (ssize_t)entry->size);
    return 0;
}

static void begin_life(void)
{
    struct service_options options = fixture_options();
    struct service_host host = world_host();
    struct failure failure;

    w.ready_count = w.held_count = 0;
    fixture_idle = false;
    fixture_timer_ms = UINT64_MAX;
    open_memory();
    require(journal_open(&w.files, &w.journal, &failure) == 0);
    transaction_init(&w.transaction, w.journal, NULL);
    if (journal_is_new(w.journal)) {
        struct core_options core_options;
        service_get_core_options(vmm, &options, &core_options);
        require(replay_begin(&w.transaction, &core_options) == 0);
        require(service_new(vmm, &options, &host, &service) == 0);
        end_step();
        return;
    }
    struct core *core;
    if (replay_journal(w.journal, &core, &failure)) {
        tell("the journal cannot be replayed: %s\n", failure.text);
        _exit(0);
    }
    static struct service_kept taken[sizeof kept / sizeof kept[0]];
    size_t count = kept_count;
    for (size_t i = 0; i < count; i++)
        taken[i] =
            (struct service_kept){.id = kept[i].id, .fd = fcntl(kept[i].fd, F_DUPFD_CLOEXEC, 0)};
    require(service_restore(vmm, &options, &host, core, taken, count, &service) == 0);
    end_step();
    require(journal_read(w.journal, write_again, NULL, &failure) == 0);
    journal_set_delivered(w.journal);
    take_answers();
    for (size_t i = 0; i < CLIENTS; i++) {
        struct player *player = &w.players[i];
        if (wants(player) && player->is_asked && !is_by_connection(&player->asks[player->next]))
            ask_worker(player);
        else
            player->is_asked = false;
    }
    service_end_restore(service, "killed", 1);
    end_step();
}

/* Returns the player with a request that has had fewer turns; NULL if none has one. */
static struct player *find_next(void)
{
    struct player *found = NULL;

    for (size_t i = 0; i < CLIENTS; i++) {
        struct player *player = &w.players[i];
        if (wants(player) && !player->is_asked && (!found || player->next < found->next))
            found = player;
    }
    return found;
}

/* Does one of the pending things. Returns false if there is none. */
static bool take_turn(void)
{
    take_answers();
    struct player *player = find_next();
    if (player) {
        ask_worker(player);
        return true;
    }
    if (w.ready_count > 0) {
        struct job *job = w.ready[0];
        memmove(w.ready, w.ready + 1, --w.ready_count * sizeof w.ready[0]);
        meet_step("job");
        do_job(job);
    } else if (fixture_idle) {
        fixture_idle = false;
        service_on_idle(service);
    } else if (fixture_timer_ms != UINT64_MAX && (wants(&w.players[0]) || wants(&w.players[1]))) {
        fixture_now_ms = fixture_timer_ms > fixture_now_ms ? fixture_timer_ms : fixture_now_ms;
        fixture_timer_ms = UINT64_MAX;
        service_on_timer(service);
    } else {
        return false;
    }
    end_step();
    return true;
}

static void serve(void)
{
    for (unsigned turns = 0; take_turn(); turns++) {
        if (turns == TURNS_MAX) {
            tell("it does not come to an end\n");
            return;
        }
    }
}

/* ---- results -------------------------------------------------------------------------------- */

static void tell_bytes(uint64_t memory)
{
    char bytes[24] = "";

    for (size_t i = 0; i < kept_count; i++)
        if (kept[i].id == memory && pread(kept[i].fd, bytes, sizeof bytes - 1, 0) < 0)
            tell("unreadable ");
    for (size_t i = 0; bytes[i]; i++)
        if ((unsigned char)bytes[i] < ' ')
            bytes[i] = '?';
    tell(" \"%s\"\n", bytes);
}

static void tell_layout(const struct layout *layout)
{
    struct layout_cursor cursor;
    const struct layout_entry *entry;

    for (size_t rank = 0; rank < layout_count_allocations(layout); rank++) {
        const struct layout_allocation *a = layout_at_rank(layout, rank);
        tell("  %s slot %llu size %llu of %llu tag %s%s", a->name, (unsigned long long)a->slot,
             (unsigned long long)a->size_bytes, (unsigned long long)a->aligned_bytes, a->tag,
             a->spool ? " spool" : "");
        tell_bytes(a->memory);
    }
    layout_cursor_first(&cursor, layout);
    while ((entry = layout_cursor_next(&cursor)))
        tell("  %.*s at %lld+%llu: %.*s\n", (int)entry->key_bytes, entry->key,
             (long long)entry->slot, (unsigned long long)entry->offset, (int)entry->value_bytes,
             (const char *)entry->value);
}

static void tell_store(const struct core_store *store)
{
    tell("store %s %s generation %llu mode %o place %d error \"%s\"\n", store->name,
         lock_state_name(lock_get_state(&store->lock)), (unsigned long long)store->generation,
         store->mode, (int)store->places.place, store->last_error);
    tell_layout(core_get_layout(service_get_core(service), store));
}

/* Tells events, but not those of recovery. */
static void tell_events(const struct core *core)
{
    tell("events");
    for (uint64_t seq = 1; seq < core->next_event; seq++) {
        const struct core_event *event = core_find_event(core, seq);
        if (event && event->type != CORE_EVENT_RESUMED && event->type != CORE_EVENT_RECOVERED)
            tell(" %d", (int)event->type);
    }
    tell("\n");
}

/* The journal gives the same state, and the state is possible. */
static void check_state(const struct core *core)
{
    struct journal *journal;
    struct core *again;
    struct failure failure;
    uint8_t *bytes, *others;
    size_t size, other_size;

    if (core_check(core, &failure))
        tell("the state cannot be: %s\n", failure.text);
    require(journal_open(&w.files, &journal, &failure) == 0);
    if (replay_journal(journal, &again, &failure)) {
        tell("the journal cannot be replayed: %s\n", failure.text);
        return;
    }
    require(core_encode(core, &bytes, &size) == 0 && core_encode(again, &others, &other_size) == 0);
    if (size != other_size || memcmp(bytes, others, size) != 0)
        tell("the journal tells of another state\n");
}

static void tell_state(void)
{
    const struct core *core = service_get_core(service);
    struct vmm_info info;

    for (size_t i = 0; i < CLIENTS; i++)
        if (wants(&w.players[i]))
            tell("client %zu waits for ever\n", i);
    for (size_t i = 0; i < core->stores.count; i++)
        tell_store(core->stores.items[i]);
    vmm_get_info(vmm, &info);
    tell("%zu sessions, %zu files, %zu waiters, %zu tickets, %zu memories, %zu kept, %llu used, "
         "%llu aside\n",
         core->sessions.count, core->files.count, core->waiters.count, core->tickets.count,
         core_count_memories(core), kept_count, (unsigned long long)info.used_bytes,
         (unsigned long long)info.aside_bytes);
    tell_events(core);
    check_state(core);
}

#endif
