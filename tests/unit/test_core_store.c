/* SPDX-License-Identifier: Apache-2.0 */
/* Stores, their allocations and places; events and histories. */
#include "core_fixture.h"

#define NOREPLACE 1u
#define EXCHANGE  2u

static int rename_store(uint64_t store, const char *name, uint32_t flags)
{
    return apply(named(RECORD(STORE_RENAME, .store = store, .flags = flags), name));
}

static int create_store(const char *name)
{
    return apply(named(RECORD(STORE_CREATE), name));
}

static int remove_store(uint64_t store)
{
    return apply(RECORD(STORE_REMOVE, .store = store));
}

TAP_TEST(a_stores_name_is_a_directorys)
{
    char longest[257];
    memset(longest, 'x', sizeof longest);
    longest[256] = '\0';
    check_int(create_store("weights"), 0);
    check_int(create_store("weights"), -EEXIST);
    check_int(create_store(""), -EINVAL);
    check_int(create_store("a/b"), -EINVAL);
    check_int(create_store("\xff"), -EINVAL);
    check_int(create_store(".."), -EPERM);
    check_int(create_store("events"), -EPERM);
    check_int(create_store(longest), -ENAMETOOLONG);
    check_int(create_store(longest + 1), 0);
    struct record record = RECORD(STORE_CREATE, .name = "a\0b", .name_bytes = 3);
    check_int(apply(record), -EINVAL);
}

TAP_TEST(a_store_in_use_is_not_removed)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RO, P1);
    uint64_t file = out.file;
    check_int(remove_store(store), -EBUSY);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check_int(remove_store(store), 0); /* a file of a session that is over does not keep it */
    check(freed(1));
    check_int(close_file(file), 0);
    check_int(remove_store(store), -ENOENT);
    uint64_t empty = make_store("weights");
    check(empty > store);
    uint64_t waiter = must_wait(empty, LOCK_WISH_RO, P1);
    check_int(remove_store(empty), -EBUSY);
    check_int(wait_end(waiter, EINTR, CORE_WAIT_KEEP), 0);
    check_int(remove_store(empty), -EBUSY);
    check_int(pass(CORE_KEPT_PLACE_MS), 0);
    check_int(remove_store(empty), 0);
}

static int remove_unused(uint64_t store, uint64_t ctl)
{
    return apply(RECORD(STORE_REMOVE, .store = store, .file = ctl, .flags = CORE_REMOVE_UNUSED));
}

TAP_TEST(a_store_that_others_use_or_used_is_not_removed_as_unused)
{
    uint64_t store = start_store();
    uint64_t ctl = open_ctl(store, P1);
    uint64_t session = must_open(store, LOCK_WISH_RW, P2);
    uint64_t file = out.file;
    check_int(remove_unused(store, ctl), -EBUSY);
    check_int(commit(session), 0);
    check_int(close_file(file), 0);
    check_int(remove_unused(store, ctl), -ENOTEMPTY);
    session = must_open(store, LOCK_WISH_RW, P2);
    check_int(of_session(RECORD_TOUCH, session), 0);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check_int(core_find_store(core, store)->lock.committed, 0);
    check_int(remove_unused(store, ctl), -ENOTEMPTY); /* in use, although it is empty again */
    check_int(remove_store(store), 0);
    check_int(remove_unused(store, ctl), -ENOENT);
}

TAP_TEST(a_store_that_others_have_open_is_not_removed_as_unused)
{
    uint64_t store = make_store("weights"), other = make_store("other");
    uint64_t ctl = open_ctl(store, P1), theirs = open_ctl(store, P2);
    open_ctl(other, P2);
    check_int(remove_unused(store, ctl), -EBUSY);
    check_int(close_file(theirs), 0);
    uint64_t waiter = must_wait(store, LOCK_WISH_RO, P2);
    check_int(remove_unused(store, ctl), -EBUSY);
    check_int(wait_end(waiter, ECANCELED, 0), 0);
    check_int(remove_unused(store, ctl), 0);
    check_int(last_event(), CORE_EVENT_STORE_REMOVED);
    check(core_find_store(core, other) != NULL);
}

TAP_TEST(sessions_follow_the_store_through_rename_and_exchange)
{
    uint64_t live = make_committed("weights", NULL);
    uint64_t next = make_committed("weights.next", NULL);
    uint64_t session = must_open(live, LOCK_WISH_RO, P1);
    check_int(rename_store(next, "weights", NOREPLACE), -EEXIST);
    check_int(rename_store(next, "weights", 0), -EBUSY);
    check_int(rename_store(next, "nothing", EXCHANGE), -ENOENT);
    check_int(rename_store(next, "weights", EXCHANGE), 0);
    check_int(core_find_store_name(core, "weights")->id, next);
    check_int(core_find_store_name(core, "weights.next")->id, live);
    check_int(core_find_session(core, session)->store, live);
    check_int(rename_store(live, "weights.old", 0), 0);
    check(core_find_store_name(core, "weights.next") == NULL);
    check_int(rename_store(live, "weights", NOREPLACE | EXCHANGE), -EINVAL);
    check_int(rename_store(live, "metrics", 0), -EPERM);
    check_int(rename_store(4711, "x", 0), -ENOENT);
}

TAP_TEST(a_rename_replaces_an_empty_store_only)
{
    uint64_t store = make_committed("a", NULL);
    uint64_t full = make_committed("b", NULL);
    uint64_t empty = make_store("c");
    check_int(rename_store(store, "b", 0), -ENOTEMPTY);
    check_int(rename_store(store, "c", 0), 0);
    check(core_find_store(core, empty) == NULL);
    check_int(core_find_store_name(core, "c")->id, store);
    check(core_find_store(core, full) != NULL);
    check_int(rename_store(store, "c", 0), 0);
}

TAP_TEST(the_version_counts_what_state_shows)
{
    uint64_t store = start_store();
    check_int(core_find_store(core, store)->version, 0);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    check_int(core_find_store(core, store)->version, 1);
    check_int(add_memory(session, "one"), 0);
    check_int(core_find_store(core, store)->version, 1);
    check_int(commit(session), 0);
    check_int(core_find_store(core, store)->version, 2);
    uint64_t one = must_open(store, LOCK_WISH_RO, P1);
    must_open(store, LOCK_WISH_RO, P2);
    check_int(core_find_store(core, store)->version, 3);
    check_int(of_session(RECORD_SESSION_END, one), 0);
    check_int(core_find_store(core, store)->version, 3);
    check_int(count_effects(EFFECT_STATE), 3);
}

TAP_TEST(a_created_allocation_is_bound_to_the_file_that_creates_it)
{
    uint64_t store = start_store();
    check_int(apply(lock_open_record(store, CORE_KIND_ALLOCATION, LOCK_WISH_RW, P1)), 0);
    uint64_t file = out.file, session = out.session;
    struct record bind = RECORD(FILE_BIND, .file = file, .serial = 4711);
    check_int(apply(bind), -ENOENT);
    check_int(add_memory(session, "one"), 0);
    bind.serial = out.serial;
    check_int(apply(bind), 0);
    check_int(core_find_file(core, file)->serial, bind.serial);
    check_int(apply(bind), -EINVAL);
    check_int(close_file(file), 0);
    check_int(last_event(), CORE_EVENT_ABORTED);
    check(freed(1));
}

TAP_TEST(attributes_change_one_by_one)
{
    uint64_t store = start_store();
    struct record record =
        RECORD(STORE_ATTR, .store = store, .flags = CORE_ATTR_MODE | CORE_ATTR_UID, .mode = 0100700,
               .uid = 5, .gid = 6);
    check_int(apply(record), 0);
    check_int(core_find_store(core, store)->mode, 0700);
    check_int(core_find_store(core, store)->uid, 5);
    check_int(core_find_store(core, store)->gid, 0);
    record.flags = 1u << 10;
    check_int(apply(record), -EINVAL);
}

/* ---- events --------------------------------------------------------------------------------- */

TAP_TEST(the_ring_of_events_overwrites_the_oldest)
{
    start_store();
    for (int i = 0; i < 20; i++)
        check_int(rename_store(core_find_store_name(core, i % 2 ? "b" : "weights")->id,
                               i % 2 ? "weights" : "b", 0),
                  0);
    check_int(core->next_event, 22);
    check(core_find_event(core, 22) == NULL);
    check(core_find_event(core, 0) == NULL);
    check(core_find_event(core, 5) == NULL);
    check_int(core_find_event(core, 6)->seq, 6);
    check_str(core_find_event(core, 21)->store, "weights");
}

TAP_TEST(out_of_memory_is_an_event_of_its_session)
{
    uint64_t session = must_open(make_store("weights"), LOCK_WISH_RW, P1);
    check_int(of_session(RECORD_OUT_OF_MEMORY, session), 0);
    check_int(last_event(), CORE_EVENT_OUT_OF_MEMORY);
    check_int(of_session(RECORD_OUT_OF_MEMORY, 4711), -ESTALE);
}

static enum core_event_type past(uint64_t store, size_t index)
{
    const struct core_store *found = core_find_store(core, store);

    require(found && index < found->history.count);
    return core_history_get(&found->history, index)->type;
}

TAP_TEST(a_store_remembers_its_writers_whoever_else_comes_and_whatever_it_is_called)
{
    core_start(); /* of the mount, the newest 16 events are remembered */
    uint64_t store = make_committed("weights", NULL), other = make_committed("other", NULL);

    for (size_t i = 0; i < 20; i++)
        require(of_session(RECORD_SESSION_END, must_open(store, LOCK_WISH_RO, P1)) == 0);
    check(last_event() == CORE_EVENT_RO_DISCONNECTED);
    require(apply(named(RECORD(STORE_RENAME, .store = store, .flags = RENAME_EXCHANGE), "other")) ==
            0);
    require(of_session(RECORD_OUT_OF_MEMORY, must_open(store, LOCK_WISH_RW, P1)) == 0);
    check_int(core_find_store(core, store)->history.count, 4);
    check_int(past(store, 0), CORE_EVENT_RW_CONNECTED);
    check_int(past(store, 1), CORE_EVENT_COMMITTED);
    check_int(past(store, 3), CORE_EVENT_OUT_OF_MEMORY);
    check_int(core_find_store(core, other)->history.count, 2);
}

TAP_TEST(the_newest_of_a_history_are_kept)
{
    uint64_t store = start_store();

    for (size_t i = 0; i < CORE_HISTORY_EVENTS / 2 + 1; i++) {
        uint64_t session = must_open(store, LOCK_WISH_RW, P1);

        require(i % 2 || add_memory(session, "") == 0);
        require(of_session(RECORD_SESSION_END, session) == 0);
    }
    check_int(core_find_store(core, store)->history.count, CORE_HISTORY_EVENTS);
    check_int(past(store, 0), CORE_EVENT_RW_CONNECTED);
    check_int(past(store, CORE_HISTORY_EVENTS - 1), CORE_EVENT_ABORTED);
    check_int(core_history_get(&core_find_store(core, store)->history, CORE_HISTORY_EVENTS - 1)
                  ->allocations,
              1);
}

TAP_TEST(unknown_records_and_kinds_are_einval)
{
    uint64_t store = start_store();
    check_int(core_apply(core, &RECORD(TYPE_COUNT), NULL), -EINVAL);
    check_int(core_apply(core, &(struct record){.type = 0}, NULL), -EINVAL);
    check_int(open_file(store, CORE_KIND_NONE, 0, 0, 0, P1), -EINVAL);
    check_int(open_file(store, CORE_KIND_COUNT, 0, 0, 0, P1), -EINVAL);
    check_int(open_file(4711, CORE_KIND_CTL, 0, 0, 0, P1), -ENOENT);
    check_int(open_file(0, CORE_KIND_PSEUDO, 3, CORE_OPEN_READ, 0, P1), 0);
    check_int(apply(lock_open_record(store, CORE_KIND_CTL, LOCK_WISH_RO, P1)), -EINVAL);
    check_int(apply(lock_open_record(store, CORE_KIND_LOCK, 7, P1)), -EINVAL);
    check_int(apply(lock_open_record(store, CORE_KIND_LOCK, LOCK_WISH_AUTO, P1)), -EINVAL);
    check_int(apply(lock_open_record(4711, CORE_KIND_LOCK, LOCK_WISH_RO, P1)), -ENOENT);
}

TAP_TEST(every_record_has_a_name)
{
    for (int type = RECORD_STORE_CREATE; type < RECORD_TYPE_COUNT; type++)
        check(strcmp(record_type_name((enum record_type)type), "unknown") != 0);
    check_str(record_type_name(RECORD_COMMIT), "commit");
    check_str(record_type_name((enum record_type)0), "unknown");
}

/* ---- moves ---------------------------------------------------------------------------------- */

static int order(uint64_t store, enum core_place to, uint32_t flags)
{
    return apply(RECORD(MOVE_BEGIN, .store = store, .kind = to, .flags = flags));
}

static int end_move(uint64_t store)
{
    uint64_t made = next_memory++;

    return apply(RECORD(MOVE_END, .store = store,
                        .count = core_find_store(core, store)->places.move.id, .memories = &made,
                        .memory_count = 1, .flags = CORE_MOVE_KEEP));
}

TAP_TEST(a_store_has_moved_when_its_place_has_changed)
{
    uint64_t store = start_committed(NULL);
    const struct core_places *places = &core_find_store(core, store)->places;
    check_int(places->moved_ms, 0);
    pass(10);
    require(order(store, CORE_PLACE_HOST, CORE_MOVE_SPARE) == 0);
    require(end_move(store) == 0);
    check_int(places->moved_ms, 0); /* a copy more, and the same place */
    pass(10);
    require(order(store, CORE_PLACE_HOST, 0) == 0); /* drops the copy on the device */
    check_int(places->moved_ms, 1700000000000u + now);
    require(order(store, CORE_PLACE_DEVICE, 0) == 0);
    pass(10);
    check_int(places->moved_ms, 1700000000000u + now - 10);
    require(end_move(store) == 0);
    check_int(places->moved_ms, 1700000000000u + now);
    pass(10);
    require(order(store, CORE_PLACE_NONE, 0) == 0);
    check_int(places->moved_ms, 1700000000000u + now);
}

static int end_look(uint64_t store)
{
    return apply(
        RECORD(MOVE_END, .store = store, .count = core_find_store(core, store)->places.move.id));
}

TAP_TEST(a_copy_that_is_looked_at_is_where_the_store_is_when_it_is_well)
{
    uint64_t store = start_committed(NULL);
    const struct core_places *places = &core_find_store(core, store)->places;
    require(order(store, CORE_PLACE_DISK, CORE_MOVE_VERIFY) == 0);
    check_int(end_look(store), -EINVAL); /* there was none to look at */
    require(end_move(store) == 0);
    require(order(store, CORE_PLACE_DEVICE, 0) == 0 && end_move(store) == 0);
    require(places->place == CORE_PLACE_DEVICE && places->spares[CORE_PLACE_DISK]);
    require(order(store, CORE_PLACE_DISK, CORE_MOVE_VERIFY) == 0);
    check(places->move.id != 0 && places->place == CORE_PLACE_DEVICE);
    check_int(end_move(store), -EINVAL); /* there is one */
    check_int(apply(RECORD(MOVE_FAIL, .store = store, .count = places->move.id, .offset = EIO)), 0);
    check_int(places->place, CORE_PLACE_DEVICE);
    require(order(store, CORE_PLACE_DISK, CORE_MOVE_VERIFY) == 0);
    check_int(end_look(store), 0);
    check_int(places->place, CORE_PLACE_DISK);
    check(!places->spares[CORE_PLACE_DISK] && places->move.id == 0);
}
