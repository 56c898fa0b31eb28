/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_states - cores with something of everything in them
 *
 * For the tests of core_decode: each function makes one through core_fixture, by records.
 */
#ifndef GMSFS_TESTS_UNIT_CORE_STATES_H
#define GMSFS_TESTS_UNIT_CORE_STATES_H

#include "core_fixture.h"

static struct {
    uint64_t weights, next, fresh;         /* stores: read, being written, never committed */
    uint64_t reader, ending;               /* sessions of weights, and one that only ends */
    uint64_t writer;                       /* of next */
    uint64_t waiting, away, looking, open; /* waiters */
    uint64_t ticket, gone;                 /* a ticket; a file of a store that was removed */
    uint64_t allocation, spool, document;  /* serials of next; a file with gathered bytes */
} rich;

static void make_ticket(uint64_t file, uint64_t serial, uint32_t flags, uint8_t secret)
{
    struct record record =
        RECORD(TICKET_ADD, .file = file, .serial = serial, .flags = flags, .uid = 7);

    record.bytes16[0] = secret;
    require(apply(record) == 0);
    rich.ticket = out.ticket.id;
}

/* Two allocations with a gap between their slots, a wire id, a tag, and metadata, bound and not. */
static void fill(uint64_t session)
{
    uint64_t slot;

    require(add_wired(session, "w", "allocation-\xc3\xa4") == 0);
    require(add_memory(session, "gap") == 0);
    require(apply(RECORD(ALLOC_REMOVE, .session = session, .serial = out.serial)) == 0);
    require(add_memory(session, "") == 0);
    slot = out.slot;
    rich.allocation = out.serial;
    require(apply(RECORD(ALLOC_TAG, .session = session, .serial = rich.allocation,
                         .tag = "k\xc3\xa4", .tag_bytes = 3)) == 0);
    require(put_entry(session, "bound", slot, 10) == 0);
    require(put_entry(session, "free", LAYOUT_UNBOUND, 0) == 0);
}

static void make_weights(void)
{
    struct record commit_group = RECORD(COMMIT, .flags = CORE_COMMIT_GROUP);
    uint64_t file;

    rich.weights = make_store("weights");
    commit_group.session = must_open(rich.weights, LOCK_WISH_RW, P3);
    fill(commit_group.session);
    commit_group.bytes16[3] = 9;
    require(apply(commit_group) == 0);
    rich.reader = must_open(rich.weights, LOCK_WISH_RO, P1);
    file = out.file;
    require(open_file(rich.weights, CORE_KIND_LOCK, 0, CORE_OPEN_READ, rich.reader, P2) == 0);
    make_ticket(file, 0, 0, 1);
    file = open_ctl(rich.weights, P2);
    require(acquire(file, LOCK_WISH_RO, P2, LOCK_FOREVER) == 0);
    rich.ending = out.session;
    require(apply(RECORD(FILE_CLOSE, .file = file, .flags = CORE_CLOSE_LINGER)) == 0);
}

/* Makes a writer that has changed a committed layout: removed parts, added parts, and a spool. */
static void make_next(void)
{
    uint64_t file;

    rich.next = make_store("next \xc3\xa4");
    rich.writer = must_open(rich.next, LOCK_WISH_RW, P3);
    fill(rich.writer);
    require(commit(rich.writer) == 0);
    file = open_ctl(rich.next, P3);
    require(acquire_reserving(file, 3 * GRAIN, P3, 0) == 0);
    rich.writer = out.session;
    require(apply(RECORD(ALLOC_REMOVE, .session = rich.writer, .serial = rich.allocation)) == 0);
    require(add_wired(rich.writer, "fresh", "allocation-1") == 0);
    rich.allocation = out.serial;
    make_ticket(file, rich.allocation, CORE_TICKET_WRITABLE, 2);
    require(apply(named(RECORD(ALLOC_ADD, .session = rich.writer, .count = 1), "spool")) == 0);
    rich.spool = out.serial;
    require(apply(RECORD(ALLOC_MEMORY, .session = rich.writer, .serial = rich.spool,
                         .memory = next_memory++, .flags = CORE_MEMORY_SPOOL, .size_bytes = 17,
                         .aligned_bytes = GRAIN)) == 0);
    require(apply(named(RECORD(ALLOC_ADD, .session = rich.writer, .count = 1), "none")) == 0);
    require(put_entry(rich.writer, "more", LAYOUT_UNBOUND, 3) == 0);
    require(apply(RECORD(TOUCH, .session = rich.writer)) == 0);
    require(apply(RECORD(COMMIT, .session = rich.writer)) == -EINVAL);
    require(open_file(rich.next, CORE_KIND_CTL, 0, RW, 0, P3) == 0);
    rich.document = out.file;
    require(apply(RECORD(GATHER, .file = rich.document, .size_bytes = 1234)) == 0);
}

static void make_waiters(void)
{
    struct record looks = RECORD(ACQUIRE, .wish = LOCK_WISH_RW, .process = P2,
                                 .flags = CORE_OPEN_AGAIN | CORE_OPEN_OWNED);

    rich.away = must_wait(rich.weights, LOCK_WISH_RW, P3);
    require(wait_end(rich.away, EINTR, CORE_WAIT_KEEP) == 0);
    looks.file = open_ctl(rich.weights, P2);
    looks.deadline_ms = now + 5;
    require(apply(looks) == 0);
    rich.looking = out.waiter;
    require(pass(10) == 0);
    require(acquire_reserving(open_ctl(rich.next, P1), GRAIN, P1, 70000) == 0);
    rich.waiting = out.waiter;
    rich.open = must_wait(rich.fresh, LOCK_WISH_RO, P1);
}

static void make_rich(void)
{
    uint64_t removed;

    core_start();
    removed = make_store("removed");
    rich.gone = open_ctl(removed, P1);
    make_weights();
    require(apply(named(RECORD(HEALTH, .flags = CORE_NOTE_SUSPECT), "Xid 48")) == 0);
    make_next();
    rich.fresh = make_store("fresh");
    make_waiters();
    require(apply(RECORD(STORE_REMOVE, .store = removed)) == 0);
    require(apply(named(RECORD(BOUND, .store = rich.next, .flags = CORE_BOUND_SHARE, .uid = 5),
                        "files")) == 0);
}

#endif
