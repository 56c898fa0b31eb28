/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds that users share: a user that takes all it can leaves room to others, most of all to
 * root. */
#include "core_fixture.h"

#define HOG   1000u
#define OTHER 1001u
#define OWNER 1002u
#define ADMIN 500u

static uint64_t store;

/* A committed store of OWNER's under small bounds. */
static void start(struct core_limits limits)
{
    limits.events = 16;
    core_start_limits = limits;
    core_start_admin = ADMIN;
    store = start_store();
    require(apply(RECORD(STORE_ATTR, .store = store, .flags = CORE_ATTR_UID, .uid = OWNER)) == 0);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1), file = out.file;
    require(apply(RECORD(COMMIT, .session = session)) == 0);
    require(close_file(file) == 0);
    core_start_limits = (struct core_limits){.events = 16};
    core_start_admin = 0;
}

static int open_as(uint32_t uid, uint64_t of, enum core_kind kind)
{
    return apply(
        RECORD(FILE_OPEN, .store = of, .kind = kind, .flags = RW, .uid = uid, .process = P1));
}

static int lock_as(uint32_t uid, enum lock_wish wish)
{
    struct record record = lock_open_record(store, CORE_KIND_LOCK, wish, P2);

    record.uid = uid;
    record.process.pid = 0;
    return apply(record);
}

static int acquire_as(uint32_t uid, enum lock_wish wish)
{
    require(open_as(uid, store, CORE_KIND_CTL) == 0);
    struct record record =
        RECORD(ACQUIRE, .file = out.file, .wish = wish, .process = P2, .deadline_ms = LOCK_FOREVER);

    record.bytes16[0] = next_token++;
    record.bytes16[1] = 7;
    return apply(record);
}

static unsigned fill_files(uint32_t uid)
{
    unsigned count = 0;

    while (open_as(uid, 0, CORE_KIND_PSEUDO) == 0)
        count++;
    return count;
}

TAP_TEST(open_files_of_one_user_leave_half_to_the_others)
{
    start((struct core_limits){.files = 64});
    check_int(fill_files(HOG), 30);
    check_int(open_as(HOG, 0, CORE_KIND_PSEUDO), -EDQUOT);
    check_int(out.bound, CORE_BOUND_FILES);
    check_int(fill_files(OTHER), 15);
}

TAP_TEST(open_files_of_many_users_leave_room_to_owners_and_administrators)
{
    start((struct core_limits){.files = 64});
    for (uint32_t uid = HOG + 10; uid < HOG + 40; uid++)
        fill_files(uid);
    check_int(open_as(HOG, 0, CORE_KIND_PSEUDO), -ENFILE);
    check_int(out.bound, CORE_BOUND_FILES);
    check_int(open_as(OWNER, 0, CORE_KIND_PSEUDO), -ENFILE);
    check_int(open_as(OWNER, store, CORE_KIND_ABORT), 0);
    check_int(open_as(0, store, CORE_KIND_ABORT), 0);
    check_int(open_as(ADMIN, store, CORE_KIND_ABORT), 0);
    check_int(lock_as(0, LOCK_WISH_RO), 0);
    check_int(lock_as(0, LOCK_WISH_RO), -ENFILE);
}

TAP_TEST(a_waiting_open_has_its_files_place_already)
{
    start((struct core_limits){.files = 16});
    must_open(store, LOCK_WISH_RW, P1);
    uint64_t writer = out.file;
    for (unsigned i = 0; i < 7; i++)
        check_int(lock_as(HOG, LOCK_WISH_RO), 0);
    check_int(lock_as(HOG, LOCK_WISH_RO), -EDQUOT);
    check_int(open_as(HOG, 0, CORE_KIND_PSEUDO), -EDQUOT);
    check_int(close_file(writer), 0);
    check_int(core->files.count, 7);
    check_int(open_as(HOG, 0, CORE_KIND_PSEUDO), 0); /* half of the files that the writer closed */
    check_int(open_as(HOG, 0, CORE_KIND_PSEUDO), -EDQUOT);
}

TAP_TEST(tickets_of_one_reader_leave_half_to_the_others)
{
    start((struct core_limits){.tickets = 32});
    require(lock_as(HOG, LOCK_WISH_RO) == 0);
    struct record record = RECORD(TICKET_ADD, .file = out.file, .uid = HOG);
    for (unsigned i = 0; i < 15; i++) {
        record.bytes16[0] = (uint8_t)i;
        require(apply(record) == 0);
    }
    record.bytes16[0] = 99;
    check_int(apply(record), -EDQUOT);
    check_int(out.bound, CORE_BOUND_TICKETS);
    require(lock_as(0, LOCK_WISH_RO) == 0);
    record.file = out.file;
    record.uid = 0;
    check_int(apply(record), 0);
}

TAP_TEST(tickets_count_for_the_user_of_the_handle_whoever_may_redeem_them)
{
    start((struct core_limits){.tickets = 32});
    require(lock_as(HOG, LOCK_WISH_RO) == 0);
    struct record record = RECORD(TICKET_ADD, .file = out.file, .uid = OTHER);
    require(apply(record) == 0);
    check_int(share_get_taken(&core->shares[CORE_BOUND_TICKETS], HOG), 1);
    check_int(share_get_taken(&core->shares[CORE_BOUND_TICKETS], OTHER), 0);
    record.type = RECORD_TICKET_USE;
    check_int(apply(record), 0);
    check_int(core->shares[CORE_BOUND_TICKETS].taken, 0);
}

TAP_TEST(sessions_of_one_user_leave_half_to_the_others)
{
    start((struct core_limits){.sessions = 16});
    for (unsigned i = 0; i < 8; i++)
        check_int(acquire_as(HOG, LOCK_WISH_RO), 0);
    check_int(acquire_as(HOG, LOCK_WISH_RO), -EDQUOT);
    check_int(out.bound, CORE_BOUND_SESSIONS);
    check_int(lock_as(HOG, LOCK_WISH_RO), -EDQUOT);
    check_int(lock_as(OTHER, LOCK_WISH_RO), 0);
    check_int(lock_as(OWNER, LOCK_WISH_RO), 0);
    check_int(lock_as(0, LOCK_WISH_RO), 0);
}

TAP_TEST(who_waits_is_granted_no_more_sessions_than_its_share)
{
    start((struct core_limits){.sessions = 16, .waiters = 64});
    must_open(store, LOCK_WISH_RW, P1);
    uint64_t writer = out.file;
    for (unsigned i = 0; i < 12; i++)
        require(acquire_as(HOG, LOCK_WISH_RO) == 0);
    require(lock_as(OTHER, LOCK_WISH_RO) == 0);
    check_int(close_file(writer), 0);
    check_int(share_get_taken(&core_find_store(core, store)->sessions, HOG), 8);
    check_int(share_get_taken(&core_find_store(core, store)->sessions, OTHER), 1);
    check_int(core->waiters.count, 4);
    /* When it gives up more than its share was, its next waiter is granted. */
    for (unsigned i = 0; i < 2; i++) {
        const struct core_session *first = core->sessions.items[0];
        require(first->uid == HOG);
        check_int(apply(RECORD(SESSION_END, .session = first->id)), 0);
    }
    check_int(core->waiters.count, 3);
    /* A waiter asleep for its share holds no other off. */
    check_int(lock_as(OTHER, LOCK_WISH_RO), 0);
    check_int(core->waiters.count, 3);
}

TAP_TEST(waiters_of_one_user_leave_half_to_the_others)
{
    start((struct core_limits){.waiters = 16});
    must_open(store, LOCK_WISH_RW, P1);
    for (unsigned i = 0; i < 8; i++)
        check_int(lock_as(HOG, LOCK_WISH_RO), 0);
    check_int(lock_as(HOG, LOCK_WISH_RO), -EDQUOT);
    check_int(out.bound, CORE_BOUND_WAITERS);
    check_int(acquire_as(HOG, LOCK_WISH_RO), -EDQUOT);
    check_int(lock_as(OTHER, LOCK_WISH_RO), 0);
    check_int(lock_as(0, LOCK_WISH_RO), 0);
}

static int gather(uint64_t file, uint64_t bytes)
{
    return apply(RECORD(GATHER, .file = file, .size_bytes = bytes));
}

TAP_TEST(gathered_bytes_of_one_user_leave_half_to_the_others)
{
    start((struct core_limits){.gathered_bytes = 1600});
    require(open_as(HOG, store, CORE_KIND_CTL) == 0);
    uint64_t file = out.file;
    check_int(gather(file, 700), 0);
    check_int(gather(file, 751), -EDQUOT);
    check_int(out.bound, CORE_BOUND_GATHERED);
    check_int(core_find_file(core, file)->gathered_bytes, 700);
    require(open_as(HOG, store, CORE_KIND_CTL) == 0);
    uint64_t second = out.file;
    check_int(gather(second, 51), -EDQUOT);
    check_int(gather(second, 50), 0);
    require(open_as(0, store, CORE_KIND_CTL) == 0);
    uint64_t roots = out.file;
    check_int(gather(roots, 851), -ENOMEM);
    check_int(gather(roots, 850), 0);
    check_int(gather(roots, 0), 0);
    check_int(close_file(file), 0);
    check_int(core->shares[CORE_BOUND_GATHERED].taken, 50);
    check_int(gather(file, 1), -EBADF);
}

TAP_TEST(a_bound_that_was_met_is_an_event_that_names_it)
{
    start((struct core_limits){0});
    struct record record = RECORD(BOUND, .store = store, .uid = HOG, .flags = CORE_BOUND_SHARE);
    check_int(apply(named(record, "tickets")), 0);
    const struct core_event *event = core_find_event(core, core->next_event - 1);
    check_int(event->type, CORE_EVENT_BOUND);
    check_str(event->bound, "tickets");
    check_str(event->store, "weights");
    check_int(event->uid, HOG);
    check(event->is_share);
    check_int(apply(named(record, "")), -EINVAL);
    check_int(apply(named(record, "sixteen letters.")), -EINVAL);
}

TAP_TEST(a_kept_place_is_its_users_alone)
{
    start((struct core_limits){0});
    must_open(store, LOCK_WISH_RW, P1);
    struct record record = lock_open_record(store, CORE_KIND_LOCK, LOCK_WISH_RO, P2);
    record.uid = HOG;
    require(apply(record) == 0);
    uint64_t waiter = out.waiter;
    require(wait_end(waiter, EINTR, CORE_WAIT_KEEP) == 0);
    record.uid = OTHER;
    record.bytes16[0] = next_token++;
    require(apply(record) == 0);
    check(out.waiter != waiter);
    record.uid = HOG;
    record.bytes16[0] = next_token++;
    require(apply(record) == 0);
    check_int(out.waiter, waiter);
}
