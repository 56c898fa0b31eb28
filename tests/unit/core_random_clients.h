/* SPDX-License-Identifier: Apache-2.0 */
/* core_random_clients - random records of clients' operations on stores; for core_random.h */
#ifndef GMSFS_TESTS_UNIT_CORE_RANDOM_CLIENTS_H
#define GMSFS_TESTS_UNIT_CORE_RANDOM_CLIENTS_H

#include "core_model.h"

#define SOME_FILES   24u /* more are closed again soon */
#define SOME_REGIONS 8u

static uint64_t random_state;

static uint64_t random_number(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static uint64_t below(uint64_t bound)
{
    return bound ? random_number() % bound : 0;
}

static bool one_in(uint64_t times)
{
    return below(times) == 0;
}

static uint64_t random_id(const struct idvec *vec)
{
    if (vec->count == 0 || one_in(50))
        return below(core->next_id + 2);
    return *(const uint64_t *)vec->items[below(vec->count)];
}

static struct core_process random_process(void)
{
    return (struct core_process){.pid = below(7), .start = 1 + below(20) / 19};
}

static const char *random_name(void)
{
    static const char *const names[] = {"a",       "b", "c", "d1", "d2",  "d9", "a000001",
                                        "a000003", "é", "",  "%",  "x/y", "z",  "zz"};

    return names[below(sizeof names / sizeof names[0])];
}

static struct record with_name(struct record record, const char *name)
{
    record.name = name;
    record.name_bytes = strlen(name);
    return record;
}

static uint64_t random_deadline(void)
{
    return one_in(3) ? LOCK_FOREVER : now + below(3000);
}

static void random_bytes16(struct record *record)
{
    for (size_t i = 0; i < sizeof record->bytes16; i++)
        record->bytes16[i] = (uint8_t)below(256);
}

static uint64_t random_serial(uint64_t store)
{
    const struct core_store *found = core_find_store(core, store);
    const struct layout *layout = found ? core_get_layout(core, found) : NULL;

    if (!layout || layout_count_allocations(layout) == 0 || one_in(20))
        return below(core->next_id + 1);
    return layout_at_rank(layout, below(layout_count_allocations(layout)))->serial;
}

static int step_store(void)
{
    struct record record = RECORD(STORE_CREATE, .store = random_id(&core->stores));
    uint64_t dice = below(10);

    if (dice >= 3)
        record.type = RECORD_STORE_ATTR;
    if (dice >= 5)
        record.type = RECORD_STORE_RENAME;
    if (dice == 9)
        record.type = RECORD_STORE_REMOVE;
    if (record.type == RECORD_STORE_CREATE && core->stores.count >= 4)
        return -ENOSPC; /* nothing was applied */
    record.flags = (uint32_t)below(record.type == RECORD_STORE_RENAME   ? 4
                                   : record.type == RECORD_STORE_REMOVE ? 2
                                                                        : 8);
    record.file = random_id(&core->files);
    record.mode = (uint32_t)below(01000);
    record.uid = (uint32_t)below(3);
    random_bytes16(&record);
    return apply(with_name(record, random_name()));
}

static int step_open(void)
{
    struct record record = RECORD(FILE_OPEN, .store = one_in(10) ? 0 : random_id(&core->stores),
                                  .kind = CORE_KIND_CTL, .flags = 1 + (uint32_t)below(3),
                                  .process = random_process(), .uid = (uint32_t)below(2));

    if (core->files.count > SOME_FILES)
        return close_file(random_id(&core->files));
    if (!one_in(3))
        return apply(record);
    record.kind = 1 + (uint32_t)below(12);
    record.session = random_id(&core->sessions);
    record.serial = random_serial(record.store);
    return apply(record);
}

static int step_lock_open(void)
{
    struct record record = RECORD(
        LOCK_OPEN, .store = random_id(&core->stores), .kind = CORE_KIND_LOCK,
        .wish = 1 + (uint32_t)below(2), .process = random_process(), .uid = (uint32_t)below(3),
        .flags = 1 + (uint32_t)below(3), .deadline_ms = random_deadline());

    random_bytes16(&record);
    if (core->files.count > SOME_FILES)
        return close_file(random_id(&core->files));
    if (one_in(3)) {
        record.kind = CORE_KIND_AUTO;
        record.wish = LOCK_WISH_AUTO;
    } else if (one_in(4)) {
        record.kind = CORE_KIND_DATA;
        record.wish = LOCK_WISH_DATA;
    } else if (one_in(3)) {
        record.kind = CORE_KIND_ALLOCATION;
        record.wish = one_in(2) ? LOCK_WISH_DATA : record.wish;
        record.serial = one_in(4) ? 0 : random_serial(record.store);
    }
    if (one_in(6))
        record.flags |= CORE_OPEN_NONBLOCK;
    if (one_in(6))
        record.flags |= CORE_OPEN_GRACE;
    memcpy(record.comm, "0123456789abcdef", sizeof record.comm);
    return apply(record);
}

static int step_acquire(void)
{
    struct record record =
        RECORD(ACQUIRE, .file = random_id(&core->files), .wish = 1 + (uint32_t)below(4),
               .process = random_process(),
               .flags = (one_in(3) ? CORE_OPEN_AGAIN : 0) | (one_in(4) ? CORE_OPEN_FRESH : 0) |
                        (one_in(4) ? CORE_OPEN_REPLACE : 0) | (one_in(4) ? CORE_OPEN_ANY : 0),
               .size_bytes = one_in(2) ? below(8) * GRAIN : 0, .deadline_ms = random_deadline());

    random_bytes16(&record);
    return apply(record);
}

static int step_reserve(void)
{
    const struct core_session *session = core_find_session(core, random_id(&core->sessions));
    struct record record =
        RECORD(RESERVE, .session = session ? session->id : 0, .size_bytes = below(8) * GRAIN,
               .count = one_in(3) ? below(4) * GRAIN : 0,
               .offset = one_in(3) ? below(4) * GRAIN : 0, .flags = one_in(3) ? below(4) : 0);

    if (one_in(2))
        record.slot = below(record.offset + 1 + one_in(20));
    return apply(record);
}

static int step_join(void)
{
    struct record record = RECORD(JOIN, .file = random_id(&core->files));
    const struct core_session *session = core_find_session(core, random_id(&core->sessions));

    if (session)
        memcpy(record.bytes16, session->token, sizeof record.bytes16);
    return apply(record);
}

static int step_leave(void)
{
    switch (below(8)) {
    case 0:
    case 1:
        return apply(RECORD(DETACH, .file = random_id(&core->files)));
    case 2:
        return apply(
            RECORD(FILE_CLOSE, .file = random_id(&core->files), .flags = CORE_CLOSE_LINGER));
    case 3:
        return close_file(random_id(&core->files));
    case 4:
        return apply(RECORD(SESSION_END, .session = random_id(&core->sessions),
                            .flags = (uint32_t)below(4)));
    default:
        return wait_end(random_id(&core->waiters), (int)below(150), (uint32_t)below(4));
    }
}

static int step_time(void)
{
    int error = pass(one_in(20) ? below(40000) : below(400));

    check_no_waiter_is_due();
    return error;
}

/* A session that can change something, if there is one. */
static uint64_t random_writer(void)
{
    const struct core_session *writer = core_get_writer(core, random_id(&core->stores));

    return writer && !one_in(20) ? writer->id : random_id(&core->sessions);
}

/* Made at one step and used at any later one; only the core gets it, not the
 * mirror, which computes everything itself. */
static struct core_commit *random_commit;
static uint64_t prepared_commits; /* that were of use */

static int apply_prepared(struct record record)
{
    if (random_commit && one_in(2)) {
        record.commit = random_commit;
        prepared_commits += core_commit_is_current(core, record.session, random_commit) &&
                            random_commit->check == ((record.flags & CORE_COMMIT_CHECK) != 0);
    } else if (one_in(2)) {
        core_commit_free(random_commit);
        random_commit = core_commit_new(core, record.session, record.flags);
        if (random_commit)
            core_commit_prepare(random_commit);
        if (one_in(2))
            return -ECANCELED; /* another time */
        record.commit = random_commit;
    }
    return apply(record);
}

static int step_commit(void)
{
    struct record record = RECORD(COMMIT, .session = random_writer(), .flags = (uint32_t)below(8));

    if (one_in(3))
        record.flags = CORE_COMMIT_SEAL | (uint32_t)below(8);
    else if (one_in(4))
        record.flags |= CORE_COMMIT_IMMUTABLE;
    if (one_in(4))
        record.type = RECORD_TOUCH;
    else if (one_in(8))
        record.type = RECORD_GIVE_UP;
    else if (one_in(8))
        record.type = RECORD_CLEAR;
    else if (one_in(8))
        record.type = RECORD_OUT_OF_MEMORY;
    if (record.type != RECORD_COMMIT)
        record.flags = 0;
    random_bytes16(&record);
    return record.type == RECORD_COMMIT ? apply_prepared(record) : apply(record);
}

/* Returns the memory of another allocation, or none: both are refused. */
static uint64_t used_memory(void)
{
    const struct core_memory *memory;

    if (core->memories.count == 0)
        return LAYOUT_NO_MEMORY;
    memory = core->memories.items[below(core->memories.count)];
    return memory->id;
}

/* Few, so that some are taken; some are none. */
static void random_wire_id(struct record *record)
{
    static char text[LAYOUT_MAX_WIRE_ID_BYTES + 1];

    memset(text, (int)('k' + below(12)), sizeof text);
    if (one_in(10))
        text[below(4)] = one_in(2) ? '\0' : '\xff';
    record->value = (const uint8_t *)text;
    record->value_bytes = one_in(10) ? LAYOUT_MAX_WIRE_ID_BYTES + below(2) : 1 + below(3);
    if (!one_in(10))
        record->count = 1;
}

static int step_add(void)
{
    uint64_t memories[4];
    struct record record = RECORD(
        ALLOC_ADD, .session = random_writer(), .count = one_in(3) ? below(5) : 1, .tag = "tag",
        .tag_bytes = below(4), .size_bytes = below(3) ? 5000 : 4096, .aligned_bytes = 8192);
    const struct core_session *session = core_find_session(core, record.session);

    if (session && one_in(2)) {
        record.offset = below(session->making_bytes + 1 + one_in(20));
        record.slot = below(session->drawn_bytes + 1 + one_in(20));
    }
    if (one_in(2))
        random_wire_id(&record);
    if (!one_in(3)) {
        record.memories = memories;
        record.memory_count = record.count;
        for (size_t i = 0; i < record.count; i++)
            memories[i] = one_in(40) ? used_memory() : next_memory++;
    }
    return apply(with_name(record, one_in(2) ? "" : random_name()));
}

static uint64_t store_of(uint64_t session)
{
    const struct core_session *found = core_find_session(core, session);

    return found ? found->store : 0;
}

/* The store's id is found, mostly for its present contents. */
static int step_contents(void)
{
    const struct core_store *store = core_find_store(core, random_id(&core->stores));
    struct record record = RECORD(CONTENTS, .bytes16 = {(uint8_t)below(3)});

    if (store) {
        record.store = store->id;
        record.count = store->generation + one_in(8);
        record.offset = store->grants_rw + one_in(8);
    }
    return apply(record);
}

static int step_allocation(void)
{
    struct record record = RECORD(ALLOC_REMOVE, .session = random_writer());
    uint64_t dice = below(11);

    record.serial = random_serial(store_of(record.session));
    if (dice < 2)
        return apply(record);
    if (dice == 10) {
        record.type = RECORD_TIMES;
        record.kind = one_in(5) ? CORE_KIND_ENTRY : CORE_KIND_ALLOCATION;
        record.serial = one_in(3) ? 0 : record.serial;
        record.offset = one_in(2) ? (uint64_t)LAYOUT_NO_TIME : below(9);
        record.size_bytes = one_in(2) ? (uint64_t)LAYOUT_NO_TIME : below(9);
        return apply(record);
    }
    if (dice < 4) {
        record.type = RECORD_ALLOC_TAG;
        record.tag = one_in(5) ? "\xc0" : "tag";
        record.tag_bytes = 1;
        return apply(record);
    }
    if (dice < 6) {
        record.type = RECORD_ALLOC_RENAME;
        record.flags = (uint32_t)below(2);
        return apply(with_name(record, random_name()));
    }
    record.type = RECORD_ALLOC_MEMORY;
    record.flags = (uint32_t)below(2);
    record.size_bytes = below(9000);
    record.aligned_bytes = (record.size_bytes + GRAIN - 1) / GRAIN * GRAIN;
    if (!one_in(4)) {
        const struct layout_allocation *old = core_find_allocation(core, record.serial, NULL);
        record.memory = old && old->memory && one_in(2) ? old->memory : next_memory++;
    }
    return apply(record);
}

static uint64_t random_slot(void)
{
    return one_in(3) ? LAYOUT_UNBOUND : below(6);
}

static int step_put_many(uint64_t session)
{
    struct record record = RECORD(ENTRY_PUT_MANY, .session = session);
    struct layout_put puts[5];
    size_t count = below(6);

    for (size_t i = 0; i < count; i++) {
        const char *key = random_name();
        puts[i] = (struct layout_put){.key = key,
                                      .key_bytes = strlen(key),
                                      .slot = random_slot(),
                                      .offset = below(6000),
                                      .value = "value",
                                      .value_bytes = below(6)};
    }
    record.puts = puts; /* on the way through bytes they are rows in `value` */
    record.put_count = count;
    return apply(record);
}

static int step_entry(void)
{
    struct record record =
        RECORD(ENTRY_PUT, .session = random_writer(), .slot = random_slot(), .offset = below(6000),
               .value = (const uint8_t *)"value", .value_bytes = below(6));
    const struct core_store *store = core_find_store(core, store_of(record.session));
    const struct layout *layout = store ? core_get_layout(core, store) : core->empty;
    struct layout_cursor cursor;

    if (one_in(3))
        return step_put_many(record.session);
    if (one_in(4))
        record.type = RECORD_ENTRY_DELETE;
    if (one_in(4) && layout_count_entries(layout) > 0) {
        record.type = RECORD_ENTRY_RENAME;
        layout_cursor_first(&cursor, layout);
        for (uint64_t skipped = below(layout_count_entries(layout)); skipped > 0; skipped--)
            layout_cursor_next(&cursor);
        record.serial = layout_cursor_next(&cursor)->serial;
    }
    return apply(with_name(record, random_name()));
}

static int step_ticket(void)
{
    struct record record =
        RECORD(TICKET_ADD, .file = random_id(&core->files), .flags = (uint32_t)below(2),
               .offset = below(3), .count = below(3), .uid = (uint32_t)below(2));

    if (one_in(2) && core->tickets.count > 0) {
        const struct core_ticket *ticket = core->tickets.items[below(core->tickets.count)];
        record.type = RECORD_TICKET_USE;
        memcpy(record.bytes16, ticket->secret, sizeof record.bytes16);
    } else {
        random_bytes16(&record);
    }
    return apply(record);
}

static int step_bind(void)
{
    struct record record = RECORD(FILE_BIND, .file = random_id(&core->files));
    const struct core_file *file = core_find_file(core, record.file);

    record.serial = random_serial(file ? file->store : 0);
    return apply(record);
}

static int step_gather(void)
{
    struct record record =
        RECORD(GATHER, .file = random_id(&core->files), .size_bytes = below(300));

    if (one_in(4))
        return apply(with_name(RECORD(BOUND), random_name()));
    return apply(record);
}

/* Hands writable memory to a process, or ends such a process. */
static int step_lend(void)
{
    struct record record = RECORD(LEND, .session = random_writer(), .process = random_process());

    if (one_in(8) && record.process.pid == 0)
        record.process.pid = 1;
    if (one_in(2))
        record.type = RECORD_EXIT;
    return apply(record);
}

#endif
