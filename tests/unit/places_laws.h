/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places_laws - the laws of the places of stores, written without knowledge of the core's code
 *
 * An independent statement of gmsfs(5), PLACES, for test_core_places.c, which includes it once. It
 * speaks of the bytes in each memory (struct facts), which the core never sees, and of the deeds of
 * each process; it judges one record at a time by the facts before and after.
 */
#ifndef GMSFS_TESTS_UNIT_PLACES_LAWS_H
#define GMSFS_TESTS_UNIT_PLACES_LAWS_H

#include "core/core_internal.h"

#include <string.h>

#define PROCS    3
#define STORES   2
#define MEMORIES 32

/* How a process asked. */
enum way {
    IDLE,
    READS,    /* by the lock */
    ANYWHERE, /* ACQUIRE, RO and wherever the store is */
    BY_PATH,  /* opened an allocation */
    WRITES,   /* by the lock */
    REPLACES, /* ACQUIRE, RW and wherever the store is */
};

struct proc {
    enum way way;
    unsigned store;
    uint64_t file, session, waiter;
    bool over; /* its session has ended, its file is still open */
};

struct memory {
    uint64_t id;
    uint64_t bytes; /* its content, as a number; each new content gets a new number */
    enum core_place tier;
};

/* A store as seen from outside: its shape and its place. */
struct sight {
    bool committed;
    enum core_place place;
    uint64_t generation, moves, move; /* `move`: id of the move under way; 0 if none */
    enum core_place to;
    uint8_t hash[16];
    uint64_t slot, serial, memory;     /* of its only committed allocation */
    uint64_t spares[CORE_TIER_COUNT];  /* the memory of each; 0 if none */
    uint64_t writer, sessions, holder; /* `holder`: a session that holds it; 0 if none */
    bool suspect;
    bool pinned, important; /* of a pool of a higher class than the other one */
};

struct facts {
    struct proc procs[PROCS];
    size_t memory_count;
    uint64_t bytes;          /* the last content */
    uint64_t wanted[STORES]; /* the committed content; 0 if none */
    bool given_up[STORES];   /* `none` was ordered */
    uint64_t source[STORES]; /* the content that the move under way reads, at its begin */
    bool lost;
    struct sight sights[STORES];
    struct memory memories[MEMORIES]; /* last: see places_walk.h */
};

/* One record and its effects. */
struct step {
    enum record_type type;
    unsigned store; /* the record's store; STORES if none */
    uint32_t kind, flags;
    unsigned evictor; /* the store that needs the room; STORES if the record is no eviction */
    bool chosen;      /* evict_choose chose the victim */
    int error;
    const struct core *core;
    const struct facts *before, *after;
};

static const struct memory *find_memory(const struct facts *facts, uint64_t id)
{
    for (size_t i = 0; i < facts->memory_count; i++)
        if (facts->memories[i].id == id)
            return &facts->memories[i];
    return NULL;
}

static bool has_bytes(const struct facts *facts, uint64_t memory, enum core_place tier,
                      uint64_t bytes)
{
    const struct memory *found = find_memory(facts, memory);

    return found && found->tier == tier && found->bytes == bytes;
}

static bool is_about_moves(enum record_type type)
{
    return type == RECORD_MOVE_BEGIN || type == RECORD_MOVE_END || type == RECORD_MOVE_FAIL ||
           type == RECORD_MOVE_CANCEL || type == RECORD_COPY_DROP;
}

/* ---- laws: true where the step obeys ------------------------------------------------------ */

/* A committed store has all its bytes somewhere, unless they were given up or lost. A writer may
 * have changed the copy at the store's place, but no other copy. */
static bool keeps_a_whole_copy(const struct step *step, unsigned i)
{
    const struct facts *now = step->after;
    const struct sight *sight = &now->sights[i];

    if (!sight->committed || now->wanted[i] == 0 || now->given_up[i])
        return true;
    if (sight->place == CORE_PLACE_NONE)
        return false;
    return sight->writer != 0 || has_bytes(now, sight->memory, sight->place, now->wanted[i]);
}

/* Only a writer, an order or a loss ends a commit. */
static bool forgets_nothing(const struct step *step, unsigned i)
{
    const struct sight *before = &step->before->sights[i], *now = &step->after->sights[i];

    return !before->committed || now->committed || before->writer != 0 || step->after->lost;
}

static bool spares_are_of_this_generation(const struct step *step, unsigned i)
{
    const struct sight *sight = &step->after->sights[i];

    for (unsigned tier = 0; tier < CORE_TIER_COUNT; tier++)
        if (sight->spares[tier] && (!has_bytes(step->after, sight->spares[tier],
                                               (enum core_place)tier, step->after->wanted[i]) ||
                                    tier == (unsigned)sight->place))
            return false;
    return true;
}

static bool moves_change_no_shape(const struct step *step, unsigned i)
{
    const struct sight *before = &step->before->sights[i], *now = &step->after->sights[i];

    return !is_about_moves(step->type) ||
           (before->committed == now->committed && before->generation == now->generation &&
            before->slot == now->slot && before->serial == now->serial &&
            memcmp(before->hash, now->hash, sizeof now->hash) == 0);
}

static bool counts_changes_of_place(const struct step *step, unsigned i)
{
    const struct sight *before = &step->before->sights[i], *now = &step->after->sights[i];
    bool same = !before->committed || !now->committed || before->generation != now->generation ||
                before->place == now->place;

    return same || now->moves == before->moves + 1;
}

static bool held_stores_keep_their_place(const struct step *step, unsigned i)
{
    const struct sight *before = &step->before->sights[i], *now = &step->after->sights[i];
    bool reads = before->writer == 0 && before->holder != 0 && before->holder == now->holder;

    return !reads || now->place <= before->place || before->place == CORE_PLACE_NONE;
}

/* A grant by the lock, or for writing to the present content, needs the store on the device. */
static bool is_granted_on_the_device(const struct step *step, unsigned i)
{
    const struct sight *sight = &step->after->sights[i];

    for (unsigned p = 0; p < PROCS; p++) {
        const struct proc *before = &step->before->procs[p], *now = &step->after->procs[p];

        if (now->store != i || now->session == 0 || before->session == now->session)
            continue;
        if (now->way == READS && (sight->place != CORE_PLACE_DEVICE || sight->suspect))
            return false;
        if (now->way == WRITES && sight->committed && sight->place != CORE_PLACE_DEVICE &&
            sight->place != CORE_PLACE_NONE)
            return false;
        if (now->way == WRITES || now->way == REPLACES)
            continue;
        if (!sight->committed || sight->writer != 0)
            return false;
        if (now->way != BY_PATH && sight->place == CORE_PLACE_NONE) /* its reads give EIO */
            return false;
    }
    return true;
}

/* Returns true for an idle store with suspect bytes and a copy on the disk that may be sound. */
static bool is_to_be_healed(const struct sight *sight)
{
    return sight->suspect && sight->committed && sight->sessions == 0 &&
           sight->place == CORE_PLACE_DEVICE && sight->spares[CORE_PLACE_DISK] != 0;
}

/* No process waits without a reason. A reader by the lock waits only for a writer, for the store to
 * reach the device, or for suspect bytes to be healed. */
static bool waiters_have_a_reason(const struct step *step, unsigned i)
{
    const struct sight *sight = &step->after->sights[i];
    bool writer_waits = false;

    for (unsigned p = 0; p < PROCS; p++) {
        const struct proc *proc = &step->after->procs[p];
        writer_waits |= proc->store == i && proc->waiter != 0 && proc->way == WRITES;
    }
    for (unsigned p = 0; p < PROCS; p++) {
        const struct proc *proc = &step->after->procs[p];
        bool is_there = sight->place == CORE_PLACE_DEVICE || sight->place == CORE_PLACE_NONE ||
                        !sight->committed;

        if (proc->store != i || proc->waiter == 0)
            continue;
        if (proc->way == WRITES && sight->sessions == 0 && is_there)
            return false;
        if (proc->way == READS && sight->writer == 0 && !writer_waits && is_there &&
            sight->committed && !is_to_be_healed(sight))
            return false;
    }
    return true;
}

/* The service is asked to promote a store that a process waits for and that is not moving. */
static bool awaited_stores_are_promoted(const struct step *step, unsigned i)
{
    const struct sight *sight = &step->after->sights[i];
    const struct core_store *store = step->core->stores.items[i];
    bool waits = false;

    for (unsigned p = 0; p < PROCS; p++) {
        const struct proc *proc = &step->after->procs[p];
        waits |= proc->store == i && proc->waiter != 0 &&
                 (proc->way == READS || (proc->way == WRITES && sight->sessions == 0));
    }
    if (!waits || sight->writer != 0 || !sight->committed || sight->move != 0 ||
        sight->place == CORE_PLACE_DEVICE || sight->place == CORE_PLACE_NONE)
        return true;
    return core_wants_promotion(step->core, store);
}

/* Suspect bytes are never copied: the store moves only to a place that has a copy already. */
static bool suspect_bytes_stay(const struct step *step, unsigned i)
{
    const struct sight *before = &step->before->sights[i], *now = &step->after->sights[i];

    return step->type != RECORD_MOVE_BEGIN || step->store != i || step->error < 0 ||
           !before->suspect || before->place != CORE_PLACE_DEVICE || now->move == before->move ||
           now->spares[now->to] != 0;
}

/* The copy on the disk becomes the store's place only after it was verified by reading, or is new,
 * or if the faster copy is lost or changed by a writer. */
static bool the_disk_is_relied_on_when_it_was_read(const struct step *step, unsigned i)
{
    const struct sight *before = &step->before->sights[i], *now = &step->after->sights[i];
    bool goes_down = before->committed && now->committed && before->generation == now->generation &&
                     before->place < CORE_PLACE_DISK && now->place == CORE_PLACE_DISK;

    return !goes_down || step->after->lost || before->writer != 0 ||
           (step->type == RECORD_MOVE_END && step->store == i && before->to == CORE_PLACE_DISK);
}

/* Only writers are let in to a store with suspect bytes. */
static bool suspect_bytes_are_not_read(const struct step *step, unsigned i)
{
    for (unsigned p = 0; p < PROCS; p++) {
        const struct proc *before = &step->before->procs[p], *now = &step->after->procs[p];

        if (now->store == i && now->session != 0 && before->session != now->session &&
            now->way != WRITES && now->way != REPLACES && step->after->sights[i].suspect)
            return false;
    }
    return true;
}

static bool loss_takes_the_device_only(const struct step *step, unsigned i)
{
    const struct sight *before = &step->before->sights[i], *now = &step->after->sights[i];
    bool beside =
        before->committed && before->place != CORE_PLACE_DEVICE && before->place != CORE_PLACE_NONE;
    bool has_spare =
        before->committed && (before->spares[CORE_PLACE_HOST] || before->spares[CORE_PLACE_DISK]);

    if (!step->after->lost)
        return true;
    if (now->committed && now->sessions == 0 && now->place == CORE_PLACE_DEVICE && now->memory != 0)
        return false;
    return before->writer != 0 || !(beside || has_spare) || now->committed;
}

/* The memories are exactly the core's. */
static bool memory_is_accounted(const struct step *step, unsigned i)
{
    size_t referred = 0;

    if (i != 0)
        return true;
    for (size_t m = 0; m < step->after->memory_count; m++) {
        const struct memory *memory = &step->after->memories[m];
        const struct core_memory *held = core_memory(step->core, memory->id);

        if (!held || held->tier != memory->tier)
            return false;
        referred++;
    }
    return referred == step->core->memories.count;
}

/* Returns true if a request for the store's lock waits. */
static bool is_waited_for(const struct facts *facts, unsigned i)
{
    for (unsigned p = 0; p < PROCS; p++)
        if (facts->procs[p].store == i && facts->procs[p].waiter != 0)
            return true;
    return false;
}

/* Holds for evictions ordered by any caller. */
static bool victims_are_not_needed(const struct step *step, unsigned i)
{
    const struct sight *before = &step->before->sights[i];

    if (step->evictor == STORES || step->store != i || step->error < 0)
        return true;
    return before->committed && before->place == CORE_PLACE_DEVICE && !before->pinned &&
           before->holder == 0 && before->writer == 0 && before->move == 0 &&
           !(before->important && !step->before->sights[step->evictor].important);
}

static bool victims_are_not_awaited(const struct step *step, unsigned i)
{
    return !step->chosen || step->store != i || !is_waited_for(step->before, i);
}

/* A chosen victim may leave: otherwise the same choice would be made again and again. */
static bool chosen_victims_leave(const struct step *step, unsigned i)
{
    return !step->chosen || step->store != i || step->error == 0 ||
           step->before->sights[i].suspect || step->after->lost;
}

/* A victim leaves the device, and for another store. */
static bool victims_go_for_others(const struct step *step, unsigned i)
{
    const struct sight *now = &step->after->sights[i];

    return step->evictor == STORES || step->store != i || step->error < 0 ||
           (step->evictor != i && (now->move != 0 ? now->to : now->place) != CORE_PLACE_DEVICE);
}

/* A pinned store stays where it is, unless its owner orders otherwise. */
static bool pinned_stores_leave_by_order_only(const struct step *step, unsigned i)
{
    const struct sight *before = &step->before->sights[i], *now = &step->after->sights[i];

    return !before->pinned || !now->pinned || step->evictor == STORES || step->store != i ||
           (now->place == before->place && now->move == before->move);
}

static const struct {
    const char *says;
    bool (*holds)(const struct step *step, unsigned store);
} laws[] = {
    {"a committed store has a whole copy", keeps_a_whole_copy},
    {"no commit is forgotten", forgets_nothing},
    {"spares are of this generation", spares_are_of_this_generation},
    {"moves change no shape", moves_change_no_shape},
    {"each change of place is counted", counts_changes_of_place},
    {"a held store keeps its place", held_stores_keep_their_place},
    {"the lock is granted on the device", is_granted_on_the_device},
    {"no process waits without a reason", waiters_have_a_reason},
    {"a store that is waited for is promoted", awaited_stores_are_promoted},
    {"suspect bytes stay", suspect_bytes_stay},
    {"the disk is relied on when it was read", the_disk_is_relied_on_when_it_was_read},
    {"no reader gets suspect bytes", suspect_bytes_are_not_read},
    {"a loss takes the device's memory only", loss_takes_the_device_only},
    {"memory is accounted for", memory_is_accounted},
    {"no victim is held, pinned or more important", victims_are_not_needed},
    {"no victim is waited for", victims_are_not_awaited},
    {"a chosen victim leaves", chosen_victims_leave},
    {"victims go for others", victims_go_for_others},
    {"a pinned store leaves by order only", pinned_stores_leave_by_order_only},
};

#define LAWS (sizeof laws / sizeof laws[0])

#endif
