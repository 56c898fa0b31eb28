/* SPDX-License-Identifier: Apache-2.0 */
/* Idle stores leave the device for a writer that waits with its lock, and for ALLOC. */
#include "evict_fixture.h"

TAP_TEST(the_least_recently_used_store_leaves_for_a_writer_that_waits_with_its_lock)
{
    struct client writer;

    start();
    open_ctl_of(&writer, "weights", 1);
    acquire(&writer, LOCK_WISH_RW, STORE_BYTES + 1);
    settle();
    check_answer(&writer, 0);
    check_int(place_of("a"), CORE_PLACE_HOST);
    check_int(place_of("b"), CORE_PLACE_HOST);
    check_int(place_of("c"), CORE_PLACE_DEVICE);
    check_int(service_get_core(service)->reserved_bytes, STORE_BYTES + FIXTURE_GRAIN);
    end();
}

TAP_TEST(the_bytes_that_a_writer_replaces_need_no_room)
{
    struct client writer;

    start();
    open_ctl_of(&writer, "c", 1);
    acquire(&writer, LOCK_WISH_RW, 2 * STORE_BYTES);
    settle();
    check_int(writer.answers, 1);
    check_int(place_of("a"), CORE_PLACE_HOST);
    check_int(place_of("b"), CORE_PLACE_DEVICE);
    check_int(place_of("d"), CORE_PLACE_DEVICE);
    end();
}

TAP_TEST(no_room_is_made_for_a_writer_until_its_lock_is_free)
{
    struct client reader, writer;

    start();
    open_ctl_of(&reader, "d", 1);
    acquire(&reader, LOCK_WISH_RO, 0);
    require(reader.answers == 1);
    open_ctl_of(&writer, "d", 2);
    acquire(&writer, LOCK_WISH_RW, 2 * STORE_BYTES);
    settle();
    check_int(writer.answers, 0);
    check_int(place_of("a"), CORE_PLACE_DEVICE);
    close_file(reader.ctl);
    settle();
    check_int(writer.answers, 1);
    check_int(place_of("a"), CORE_PLACE_HOST);
    end();
}

TAP_TEST(room_is_made_for_the_first_writer_before_the_second)
{
    struct client holders[2], first, second;

    start();
    for (size_t i = 0; i < 2; i++) {
        open_ctl_of(&holders[i], names[i], 20 + i);
        acquire(&holders[i], LOCK_WISH_RO, 0);
        require(holders[i].answers == 1);
    }
    open_ctl_of(&first, "weights", 1);
    acquire(&first, LOCK_WISH_RW, 3 * STORE_BYTES);
    settle();
    make_store("other");
    open_ctl_of(&second, "other", 2);
    acquire(&second, LOCK_WISH_RW, STORE_BYTES);
    settle();
    check_int(first.answers + second.answers, 0);
    close_file(holders[0].ctl);
    settle();
    check_int(first.answers, 1);
    check_int(second.answers, 0);
    close_file(holders[1].ctl);
    settle();
    check_int(second.answers, 1);
    end();
}

TAP_TEST(an_alloc_is_made_room_for_and_waits_meanwhile)
{
    struct client writer;

    start();
    open_ctl_of(&writer, "weights", 1);
    acquire(&writer, LOCK_WISH_RW, 0);
    settle();
    alloc(&writer, 2 * STORE_BYTES, true);
    check_answer(&writer, 0);
    check_int(place_of("a"), CORE_PLACE_HOST);
    check_int(place_of("b"), CORE_PLACE_HOST);
    check_int(place_of("c"), CORE_PLACE_DEVICE);
    end();
}

TAP_TEST(an_alloc_that_may_not_wait_takes_memory_that_is_being_freed_for_it)
{
    struct client writer;

    start();
    open_ctl_of(&writer, "weights", 1);
    acquire(&writer, LOCK_WISH_RW, 0);
    settle();
    alloc(&writer, STORE_BYTES, false);
    check_answer(&writer, 0);
    check_int(place_of("a"), CORE_PLACE_HOST);
    end();
}

TAP_TEST(no_store_leaves_for_an_alloc_larger_than_the_device)
{
    struct client writer;

    start();
    open_ctl_of(&writer, "weights", 1);
    acquire(&writer, LOCK_WISH_RW, 0);
    settle();
    alloc(&writer, FIXTURE_BYTES + 1, true);
    check_answer(&writer, -ENOMEM);
    for (size_t i = 0; i < STORES; i++)
        check_int(place_of(names[i]), CORE_PLACE_DEVICE);
    end();
}

TAP_TEST(an_alloc_that_waits_goes_on_when_a_victim_is_let_go)
{
    struct client holders[STORES], writer;

    start();
    hold_all(holders);
    open_ctl_of(&writer, "weights", 1);
    acquire(&writer, LOCK_WISH_RW, 0);
    settle();
    alloc(&writer, STORE_BYTES, true);
    check_int(writer.answers, 0);
    close_file(holders[2].ctl);
    settle();
    check_answer(&writer, 0);
    check_int(place_of("c"), CORE_PLACE_HOST);
    end();
}

TAP_TEST(an_alloc_does_not_wait_if_no_store_may_leave_the_device)
{
    struct client writer;

    start();
    for (size_t i = 0; i < STORES; i++)
        pin(names[i], true);
    ask_for_more(&writer, "weights", 1);
    check_answer(&writer, -ENOMEM);
    end();
}

TAP_TEST(an_alloc_waits_for_one_that_another_writer_may_abort_and_no_longer_when_it_has_committed)
{
    struct client other, writer;

    start();
    for (size_t i = 1; i < STORES; i++)
        pin(names[i], true);
    require(in_step(service_evict_for(service, store_of("weights"), STORE_BYTES)));
    settle();
    make_store("other");
    ask_for_more(&other, "other", 2);
    require(other.answers == 1 && other.error == 0);
    ask_for_more(&writer, "weights", 1);
    check_int(writer.answers, 0);
    pin("other", true);
    commit(&other);
    settle();
    check_int(writer.answers, 0);
    run_next_timer();
    check_answer(&writer, -ENOMEM);
    check(fixture_now_ms < 1000 + service->options.alloc_timeout_ms);
    end();
}

TAP_TEST(an_alloc_waits_for_nothing_that_its_own_writer_has)
{
    struct client writer;

    start();
    for (size_t i = 1; i < STORES; i++)
        pin(names[i], true);
    ask_for_more(&writer, "weights", 1); /* which lets `a` leave */
    require(writer.answers == 1 && writer.error == 0);
    alloc(&writer, STORE_BYTES, true);
    check_answer(&writer, -ENOMEM);
    end();
}

static int lack_memory(void)
{
    return -ENOMEM;
}

TAP_TEST(an_alloc_that_can_never_be_is_refused_at_once_where_another_of_its_session_is_tried_again)
{
    struct client first, second;

    start();
    for (size_t i = 1; i < STORES; i++)
        pin(names[i], true);
    require(in_step(service_evict_for(service, store_of("weights"), STORE_BYTES)));
    settle();
    fixture_on_admit = lack_memory;
    ask_for_more(&first, "weights", 1);
    check_int(first.answers, 0);
    second = first;
    alloc(&second, 2 * STORE_BYTES, true);
    check_answer(&second, -ENOMEM);
    check_int(first.answers, 0);
    fixture_on_admit = NULL;
    run_next_timer();
    settle();
    check_answer(&first, 0);
    check_int(service->backoffs.used, 0);
    end();
}

/* Returns the number of choices made for one request. */
static unsigned choices(bool comes)
{
    unsigned before = service->backoffs.of_all[BACKOFF_EVICT_TRIES].tries;

    check(in_step(service_evict_for(service, store_of("weights"), STORE_BYTES)) == comes);
    return service->backoffs.of_all[BACKOFF_EVICT_TRIES].tries - before;
}

TAP_TEST(a_choice_without_victims_is_not_made_again_until_something_has_changed)
{
    struct client holders[STORES];
    struct record time = RECORD(TIME);

    start();
    hold_all(holders);
    check_int(choices(false), 1);
    check_int(choices(false), 0);
    require(in_step(service_apply_record(service, &time, NULL)) == 0);
    check_int(choices(false), 0);
    close_file(holders[1].ctl);
    check_int(choices(true), 1);
    settle();
    check_int(place_of("b"), CORE_PLACE_HOST);
    end();
}

TAP_TEST(a_choice_without_victims_is_made_again_when_the_stay_of_a_store_is_over)
{
    struct client holders[STORES];
    struct record to_host = RECORD(MOVE_BEGIN, .kind = CORE_PLACE_HOST);
    struct record back = RECORD(MOVE_BEGIN, .kind = CORE_PLACE_DEVICE);

    start();
    service->options.min_stay_ms = 50;
    hold_all(holders);
    close_file(holders[3].ctl);
    to_host.store = back.store = store_of("d")->id;
    require(in_step(service_move_store(service, &to_host)) == 0);
    settle();
    require(in_step(service_move_store(service, &back)) == 0);
    settle();
    require(place_of("d") == CORE_PLACE_DEVICE);
    check_int(choices(false), 1);
    fixture_now_ms += 49;
    run_timer();
    check_int(choices(false), 0);
    check_int(fixture_timer_ms, fixture_now_ms + 1);
    fixture_now_ms += 1;
    run_timer();
    check_int(choices(true), 1);
    settle();
    check_int(place_of("d"), CORE_PLACE_HOST);
    end();
}

/* ---- events --------------------------------------------------------------------------------- */

static uint64_t evictions(void)
{
    const struct core *core = service_get_core(service);

    return core_find_pool(core, store_of("a"))->evictions;
}

static bool is_told(const char *victim, const char *evictor)
{
    const struct core *core = service_get_core(service);

    for (uint64_t seq = 1; seq < core->next_event; seq++) {
        const struct core_event *event = core_find_event(core, seq);

        if (event && event->type == CORE_EVENT_EVICTED && strcmp(event->store, victim) == 0)
            return strcmp(event->for_store, evictor) == 0;
    }
    return false;
}

TAP_TEST(an_eviction_is_told_and_counted_when_the_store_has_left)
{
    start();
    require(in_step(service_evict_for(service, store_of("weights"), STORE_BYTES)));
    check(store_of("a")->places.move.id != 0);
    check(!is_told("a", "weights"));
    check_int(evictions(), 0);
    settle();
    check_int(place_of("a"), CORE_PLACE_HOST);
    check(is_told("a", "weights"));
    check_int(evictions(), 1);
    end();
}

TAP_TEST(an_eviction_that_did_not_come_to_its_end_is_not_told)
{
    struct record cancel = RECORD(MOVE_CANCEL);
    struct client holder;

    start();
    require(in_step(service_evict_for(service, store_of("weights"), STORE_BYTES)));
    cancel.store = store_of("a")->id;
    require(in_step(service_apply_record(service, &cancel, NULL)) == 0);
    settle();
    check_int(place_of("a"), CORE_PLACE_DEVICE);
    require(in_step(service_evict_for(service, store_of("weights"), STORE_BYTES)));
    open_ctl_of(&holder, "a", 1);
    acquire(&holder, LOCK_WISH_RO, 0);
    settle();
    check_int(place_of("a"), CORE_PLACE_DEVICE);
    check(!is_told("a", "weights"));
    check_int(evictions(), 0);
    end();
}

TAP_TEST(the_event_of_an_eviction_for_a_removed_store_names_no_store)
{
    struct record gone = RECORD(STORE_REMOVE);

    start();
    require(in_step(service_evict_for(service, store_of("weights"), STORE_BYTES)));
    gone.store = store_of("weights")->id;
    require(in_step(service_apply_record(service, &gone, NULL)) == 0);
    settle();
    check(is_told("a", ""));
    check_int(evictions(), 1);
    end();
}

TAP_TEST(after_a_move_nothing_is_left_to_do_where_memory_is_not_mapped_for_it)
{
    struct record spare = RECORD(MOVE_BEGIN, .kind = CORE_PLACE_HOST, .flags = CORE_MOVE_SPARE);

    start();
    memset(submitted, 0, sizeof submitted);
    spare.store = store_of("a")->id;
    require(in_step(service_move_store(service, &spare)) == 0);
    settle();
    check(store_of("a")->places.spares[CORE_PLACE_HOST] != NULL);
    check(submitted[SERVICE_POOL_MOVE] > 0);
    check_int(submitted[SERVICE_POOL_FREE], 0);
    end();
}

/* ---- patience ------------------------------------------------------------------------------- */

/* The service's timer has run out. */
static void pass(uint64_t ms)
{
    fixture_now_ms += ms;
    check(fixture_timer_ms <= fixture_now_ms);
    run_timer();
    settle();
}

TAP_TEST(room_is_made_for_the_second_writer_when_the_first_gets_none_and_its_patience_is_over)
{
    struct client holder, first, second;

    start();
    open_ctl_of(&holder, "d", 20);
    acquire(&holder, LOCK_WISH_RO, 0);
    require(holder.answers == 1);
    open_ctl_of(&first, "weights", 1);
    acquire(&first, LOCK_WISH_RW, FIXTURE_BYTES);
    settle();
    make_store("other");
    open_ctl_of(&second, "other", 2);
    acquire(&second, LOCK_WISH_RW, STORE_BYTES);
    settle();
    check_int(first.answers + second.answers, 0);
    check_int(place_of("a"), CORE_PLACE_DEVICE);
    pass(1000);
    check_int(first.answers, 0);
    check_int(second.answers, 1);
    check_int(place_of("a"), CORE_PLACE_HOST);
    check_int(place_of("b"), CORE_PLACE_DEVICE);
    close_file(holder.ctl);
    close_file(second.ctl);
    settle();
    check_int(first.answers, 1);
    end();
}

TAP_TEST(a_store_comes_for_its_reader_when_the_patience_of_an_older_waiter_is_over)
{
    struct client holder, writer, reader;
    struct record to_host = RECORD(MOVE_BEGIN, .kind = CORE_PLACE_HOST);

    start();
    to_host.store = store_of("c")->id;
    require(in_step(service_move_store(service, &to_host)) == 0);
    settle();
    open_ctl_of(&holder, "d", 20);
    acquire(&holder, LOCK_WISH_RO, 0);
    open_ctl_of(&writer, "weights", 1);
    acquire(&writer, LOCK_WISH_RW, FIXTURE_BYTES);
    settle();
    open_ctl_of(&reader, "c", 2);
    acquire(&reader, LOCK_WISH_RO, 0);
    settle();
    check_int(reader.answers + writer.answers, 0);
    pass(1000);
    check_int(reader.answers, 1);
    check_int(writer.answers, 0);
    check_int(place_of("c"), CORE_PLACE_DEVICE);
    end();
}
