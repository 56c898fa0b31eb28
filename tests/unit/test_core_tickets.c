/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets for descriptors: their users and their expiry. */
#include "core_fixture.h"

static struct record ticket_record(uint64_t file, uint8_t secret)
{
    struct record record = RECORD(TICKET_ADD, .file = file, .uid = 1000);

    record.bytes16[0] = secret;
    return record;
}

static int use_ticket(uint8_t secret, uint32_t uid)
{
    struct record record = RECORD(TICKET_USE, .uid = uid);

    record.bytes16[0] = secret;
    return apply(record);
}

TAP_TEST(a_ticket_is_used_once_by_its_uid)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RO, P1);
    check_int(apply(ticket_record(out.file, 1)), 0);
    check_int(out.count, 1);
    check_int(use_ticket(1, 1001), -EACCES);
    check_int(use_ticket(1, 0), -EACCES);
    check_int(use_ticket(2, 1000), -ESTALE);
    check_int(use_ticket(1, 1000), 0);
    check_int(out.ticket.session, session);
    check_int(out.ticket.count, 1);
    check(!out.ticket.writable);
    check_int(use_ticket(1, 1000), -ESTALE);
    check_int(core_find_store(core, store)->exports, 1);
}

TAP_TEST(a_ticket_expires)
{
    uint64_t store = start_committed(NULL);
    must_open(store, LOCK_WISH_RO, P1);
    check_int(apply(ticket_record(out.file, 1)), 0);
    check_int(core_next_moment(core, now), now + CORE_TICKET_MS);
    now += CORE_TICKET_MS;
    check_int(use_ticket(1, 1000), -ESTALE);
    check_int(core->tickets.count, 1);
    check_int(pass(0), 0);
    check_int(core->tickets.count, 0);
    check_int(core_next_moment(core, now), UINT64_MAX);
}

TAP_TEST(a_ticket_ends_with_its_session)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RO, P1);
    uint64_t file = out.file;
    check_int(apply(ticket_record(file, 1)), 0);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check_int(use_ticket(1, 1000), -ESTALE);
    check_int(apply(ticket_record(file, 2)), -ESTALE);
    check_int(apply(ticket_record(open_ctl(store, P1), 2)), -ENOLCK);
    check_int(apply(ticket_record(4711, 2)), -EBADF);
}

TAP_TEST(a_writable_ticket_needs_a_writer_and_ends_the_rollback)
{
    uint64_t store = start_committed(NULL);
    struct record record;
    must_open(store, LOCK_WISH_RO, P1);
    record = ticket_record(out.file, 1);
    record.flags = CORE_TICKET_WRITABLE;
    check_int(apply(record), -EBADF);
    check_int(of_session(RECORD_SESSION_END, core_find_file(core, record.file)->session), 0);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    record.file = out.file;
    check_int(open_file(store, CORE_KIND_LOCK, 0, CORE_OPEN_READ, session, P1), 0);
    uint64_t reader = out.file;
    check_int(apply(ticket_record(reader, 9)), 0);
    check(!core_find_session(core, session)->touched);
    check_int(apply(record), 0);
    check(core_find_session(core, session)->touched);
    record.bytes16[0] = 2;
    record.file = reader;
    check_int(apply(record), -EBADF);
}

TAP_TEST(a_writable_ticket_of_new_memory_keeps_the_rollback)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    struct record record = ticket_record(out.file, 1);
    record.flags = CORE_TICKET_WRITABLE;
    check_int(add_memory(session, "new"), 0);
    record.serial = out.serial;
    check_int(apply(record), 0);
    check_int(out.ticket.first, 1);
    check(!core_find_session(core, session)->touched);
    check_int(apply(RECORD(COMMIT, .session = session, .flags = CORE_COMMIT_STAY)), 0);
    check_int(use_ticket(1, 1000), -ESTALE); /* writable no longer */
}

TAP_TEST(a_ticket_names_ranks_that_exist_and_have_memory)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    struct record record = ticket_record(out.file, 1);
    record.offset = 2;
    check_int(apply(record), -EINVAL);
    record.offset = 0;
    record.count = UINT64_MAX;
    check_int(apply(record), -EINVAL);
    record.count = 0;
    record.serial = 4711;
    check_int(apply(record), -ENOENT);
    record.serial = 0;
    check_int(apply(RECORD(ALLOC_ADD, .session = session, .count = 1)), 0);
    check_int(apply(record), -EINVAL);
    record.count = 1;
    check_int(apply(record), 0);
    check_int(apply(record), -EEXIST);
}

TAP_TEST(too_many_tickets_are_enospc)
{
    struct outcome outcome;
    make_committed("weights", NULL);
    must_open(core_find_store_name(core, "weights")->id, LOCK_WISH_RO, P1);
    struct record record = ticket_record(out.file, 0);
    for (unsigned i = 0; i < CORE_MAX_TICKETS; i++) {
        record.bytes16[1] = (uint8_t)i;
        record.bytes16[2] = (uint8_t)(i >> 8);
        require(apply_fast(record, &outcome) == 0);
    }
    record.bytes16[3] = 1;
    check_int(apply_fast(record, &outcome), -ENOSPC);
}
