/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that get writable descriptors are recorded and watched, and a sealed store waits for
 * them. */
#include "service_fixture.h"

#include "service/fence.h"
#include "service/tickets.h"
#include "service/views.h"

static struct client writer, other;

static const struct core_store *store(void)
{
    return core_find_store(service_get_core(service), store_id());
}

static struct service_actor actor(const struct client *client)
{
    return (struct service_actor){.file = client->ctl, .caller = &client->caller};
}

static struct core_process process_of(const struct client *client)
{
    return client->caller.processes[0];
}

static int ask(struct client *client, enum lock_wish wish, uint64_t timeout_ms, bool fresh)
{
    struct service_acquire wanted = {
        .wish = wish, .timeout_ms = timeout_ms, .owned = true, .fresh = fresh};

    client->answers = 0;
    require(in_step(service_acquire(service, client->ctl, &wanted, &client->caller,
                                    &client->request)) == 0);
    return client->answers ? client->error : 1;
}

static void allocate(struct client *client)
{
    struct service_actor by = actor(client);
    struct service_alloc alloc = {.size_bytes = 1, .count = 1, .name = "", .tag = ""};

    client->answers = 0;
    defers = true; /* memory is never made before the call returns */
    require(in_step(service_alloc(service, &by, &alloc, &client->request)) == 0);
    run_deferred();
    require(client->answers == 1 && client->error == 0);
}

static int commit(struct client *client, uint32_t flags)
{
    struct service_actor by = actor(client);

    client->answers = 0;
    require(in_step(service_commit(service, &by, flags, NULL, &client->request)) == 0);
    require(client->answers == 1);
    return client->error;
}

static int lend(const struct client *client, struct core_process process)
{
    struct service_descriptor descriptor = {.fd = -1};

    return in_step(service_lend_descriptor(service, client->ctl, 0, &process, 1, &descriptor));
}

/* A writer with one allocation, and another client. */
static void start_writing(void)
{
    service_start();
    open_ctl(&writer, 1);
    open_ctl(&other, 2);
    require(ask(&writer, LOCK_WISH_RW, 0, false) == 0);
    allocate(&writer);
}

TAP_TEST(sealing_goes_on_with_the_bytes_and_shows_the_layout)
{
    start_writing();
    check(service_get_shown_layout(store()) == NULL);
    check_int(commit(&writer, CORE_COMMIT_SEAL), 0);
    check_int(writer.answer.mode, LOCK_MODE_RW_DATA);
    check_int(writer.answer.generation, 1);
    check(service_get_shown_layout(store()) != NULL);
    check_int(commit(&writer, CORE_COMMIT_SEAL), -ENOLCK);
    check_int(commit(&writer, 0), -ENOLCK);
    close_file(writer.ctl);
    check(service_get_shown_layout(store()) != NULL);
    check_int(lock_get_state(&store()->lock), LOCK_STATE_LAYOUT_COMMITTED);
    close_file(other.ctl);
    service_end();
}

TAP_TEST(a_process_with_a_writable_descriptor_is_waited_for)
{
    struct core_process engine = {.pid = 7, .start = 1};

    start_writing();
    check_int(lend(&writer, engine), 0);
    check_int(lend(&writer, engine), 0);
    check_int(fixture_watches, 2); /* the writer's process, and this one, once */
    check(core_is_writer(service_get_core(service), engine));
    require(commit(&writer, CORE_COMMIT_SEAL) == 0);
    close_file(writer.ctl);
    check_int(ask(&other, LOCK_WISH_DATA, 0, false), -EAGAIN);
    check_int(ask(&other, LOCK_WISH_DATA, 5000, false), 1);
    exit_process(engine);
    check_int(other.answers, 1);
    check_int(other.answer.mode, LOCK_MODE_RW_DATA);
    check_int(fixture_watches, 1);
    close_file(other.ctl);
    check_int(fixture_watches, 0);
    service_end();
}

TAP_TEST(a_descriptor_is_lent_by_a_ticket_as_without_one)
{
    struct service_export export = {.writable = true};
    struct service_peer peer = {.process = {.pid = 7, .start = 1}};
    struct service_redeemed ticket;
    struct client asker = new_client(9, 0);

    start_writing();
    require(in_step(service_export(service, writer.ctl, &export, &asker.request)) == 0);
    require(asker.error == 0);
    check(!core_is_writer(service_get_core(service), peer.process));
    check_int(in_step(service_redeem(service, export.ticket, &peer, &ticket)), 0);
    check(core_is_writer(service_get_core(service), peer.process));
    export = (struct service_export){.writable = false};
    peer.process.pid = 8;
    require(in_step(service_export(service, writer.ctl, &export, &asker.request)) == 0);
    check_int(in_step(service_redeem(service, export.ticket, &peer, &ticket)), 0);
    check(!core_is_writer(service_get_core(service), peer.process));
    service_end();
}

TAP_TEST(a_descriptor_for_a_process_that_has_exited_is_in_unknown_hands)
{
    struct core_process gone = {.pid = FIXTURE_GONE, .start = 1};

    start_writing();
    check_int(lend(&writer, gone), 0);
    check(!core_is_writer(service_get_core(service), gone));
    check(store()->unseen_writer);
    check_int(fixture_watches, 1);
    check_int(commit(&writer, CORE_COMMIT_SEAL), -EOPNOTSUPP);
    check_int(commit(&writer, 0), 0);
    service_end();
}

TAP_TEST(a_process_that_has_exited_is_lent_no_sealed_memory)
{
    struct core_process gone = {.pid = FIXTURE_GONE, .start = 1};

    start_writing();
    require(commit(&writer, CORE_COMMIT_SEAL) == 0);
    check_int(lend(&writer, gone), -EOPNOTSUPP);
    check_int(fixture_watches, 1);
    close_file(writer.ctl);
    check_int(ask(&other, LOCK_WISH_DATA, 0, false), 0);
    service_end();
}

TAP_TEST(a_ticket_of_a_process_that_has_exited_counts_as_one_of_an_unknown_process)
{
    struct service_export export = {.writable = true};
    struct service_peer peer = {.process = {.pid = FIXTURE_GONE, .start = 1}};
    struct service_redeemed ticket;
    struct client asker = new_client(9, 0);

    start_writing();
    require(in_step(service_export(service, writer.ctl, &export, &asker.request)) == 0);
    require(asker.error == 0);
    check_int(in_step(service_redeem(service, export.ticket, &peer, &ticket)), 0);
    check(store()->unseen_writer);
    check_int(commit(&writer, CORE_COMMIT_SEAL), -EOPNOTSUPP);
    service_end();
}

TAP_TEST(every_process_that_may_get_a_descriptor_is_waited_for)
{
    const struct core_process pair[] = {{.pid = 7, .start = 1}, {.pid = 8, .start = 1}};
    struct service_descriptor descriptor;

    start_writing();
    check_int(in_step(service_lend_descriptor(service, writer.ctl, 0, pair, 2, &descriptor)), 0);
    require(commit(&writer, CORE_COMMIT_SEAL) == 0);
    close_file(writer.ctl);
    exit_process(pair[0]);
    check_int(ask(&other, LOCK_WISH_DATA, 0, false), -EAGAIN);
    exit_process(pair[1]);
    check_int(ask(&other, LOCK_WISH_DATA, 0, false), 0);
    service_end();
}

TAP_TEST(a_process_that_owns_a_session_and_writes_is_watched_until_neither_is_so)
{
    start_writing();
    check_int(lend(&writer, process_of(&writer)), 0);
    check_int(fixture_watches, 1);
    require(commit(&writer, CORE_COMMIT_SEAL) == 0);
    close_file(writer.ctl);
    check_int(fixture_watches, 1);
    check_int(ask(&other, LOCK_WISH_DATA, 0, false), -EAGAIN);
    exit_process(process_of(&writer));
    check_int(fixture_watches, 0);
    check_int(ask(&other, LOCK_WISH_DATA, 0, false), 0);
    service_end();
}

TAP_TEST(an_exit_ends_the_session_and_hands_on_in_one)
{
    start_writing();
    check_int(lend(&writer, process_of(&writer)), 0);
    require(commit(&writer, CORE_COMMIT_SEAL) == 0);
    check_int(ask(&other, LOCK_WISH_DATA, 5000, false), 1);
    exit_process(process_of(&writer));
    check_int(other.answers, 1);
    check_int(other.answer.mode, LOCK_MODE_RW_DATA);
    service_end();
}

TAP_TEST(a_pid_that_is_used_again_is_another_writer)
{
    struct core_process before = {.pid = 7, .start = 1}, after = {.pid = 7, .start = 2};

    start_writing();
    check_int(lend(&writer, before), 0);
    check_int(lend(&writer, after), 0);
    check(!core_is_writer(service_get_core(service), before));
    check(core_is_writer(service_get_core(service), after));
    check_int(fixture_watches, 2);
    service_end();
}

TAP_TEST(processes_without_memory_left_to_write_leave_room_for_others)
{
    start_writing();
    /* Far more than may be watched at a time: each writes memory that the next writer drops. */
    for (unsigned i = 0; i < 200; i++) {
        struct core_process engine = {.pid = 1000 + i, .start = 1};

        require(lend(&writer, engine) == 0);
        require(commit(&writer, CORE_COMMIT_SEAL) == 0);
        close_file(writer.ctl);
        open_ctl(&writer, 1);
        require(ask(&writer, LOCK_WISH_RW, 0, false) == 0);
        allocate(&writer);
    }
    check(fixture_watches <= 64);
    service_end();
}

TAP_TEST(watched_writers_are_a_bound_and_a_process_beyond_it_is_lent_nothing)
{
    int error = 0;
    unsigned count = 0;

    start_writing();
    for (; count < 64 && !error; count++)
        error = lend(&writer, (struct core_process){.pid = 1000 + count, .start = 1});
    check_int(error, -ENFILE);
    check(count > 20);
    check(!core_is_writer(service_get_core(service),
                          (struct core_process){.pid = 1000 + count - 1, .start = 1}));
    service_end();
}

TAP_TEST(memory_lent_to_an_unseen_process_can_only_be_committed)
{
    static const struct core_process unseen;

    start_writing();
    check_int(lend(&writer, unseen), 0);
    check_int(commit(&writer, CORE_COMMIT_SEAL), -EOPNOTSUPP);
    check_int(commit(&writer, 0), 0);
    require(ask(&writer, LOCK_WISH_RW, 0, true) == 0);
    check_int(layout_count_allocations(core_get_layout(service_get_core(service), store())), 0);
    allocate(&writer);
    require(commit(&writer, CORE_COMMIT_SEAL) == 0);
    check_int(lend(&writer, unseen), -EOPNOTSUPP);
    check_int(lend(&writer, process_of(&writer)), 0);
    service_end();
}

TAP_TEST(a_descriptor_of_committed_memory_that_is_lent_for_writing_ends_the_rollback)
{
    struct service_numbers numbers;

    start_writing();
    require(commit(&writer, 0) == 0);
    require(ask(&writer, LOCK_WISH_RO, 0, false) == 0);
    check_int(lend(&writer, process_of(&other)), 0); /* a reader's: nothing to record */
    check(!core_is_writer(service_get_core(service), process_of(&other)));
    close_file(writer.ctl);
    open_ctl(&writer, 1);
    require(ask(&writer, LOCK_WISH_RW, 0, false) == 0);
    check(!core_find_session(service_get_core(service), writer.session)->touched);
    check_int(lend(&writer, process_of(&other)), 0);
    check(core_find_session(service_get_core(service), writer.session)->touched);
    service_get_numbers(service, &numbers);
    check_int(numbers.counts.exports, 2);
    service_end();
}

TAP_TEST(missing_memory_is_not_lent)
{
    struct service_descriptor descriptor;
    struct core_process engine = {.pid = 7, .start = 1};

    start_writing();
    check_int(in_step(service_lend_descriptor(service, writer.ctl, 4711, &engine, 1, &descriptor)),
              -ENOENT);
    check_int(in_step(service_lend_descriptor(service, other.ctl, 0, &engine, 1, &descriptor)),
              -ENOLCK);
    check_int(in_step(service_lend_descriptor(service, 4711, 0, &engine, 1, &descriptor)), -EBADF);
    check_int(fixture_watches, 1);
    service_end();
}

/* ---- opens -------------------------------------------------------------------------------- */

static int create(struct client *client, const char *name)
{
    struct service_open open = {
        .store = store_id(), .kind = CORE_KIND_ALLOCATION, .read = true, .write = true};

    client->answers = 0;
    require(in_step(service_create(service, store_id(), name, &open, &client->caller,
                                   &client->request)) == 0);
    require(client->answers == 1);
    return client->error;
}

TAP_TEST(creating_outside_a_session_does_not_even_take_the_lock_of_a_sealed_store)
{
    struct client stray = new_client(9, 0);
    uint64_t grants;

    start_writing();
    require(commit(&writer, CORE_COMMIT_SEAL) == 0);
    check_int(create(&stray, "stray"), -ENOLCK);
    close_file(writer.ctl);
    grants = store()->grants_rw;
    check_int(create(&stray, "stray"), -ENOLCK);
    check_int(store()->grants_rw, grants);
    check_int(layout_count_allocations(store()->fixed), 1);
    service_end();
}

TAP_TEST(an_implicit_writer_of_a_sealed_store_loses_nothing_by_closing)
{
    struct client stray = new_client(9, 0);
    struct service_open open = {.kind = CORE_KIND_ALLOCATION, .read = true, .write = true};

    start_writing();
    require(commit(&writer, CORE_COMMIT_SEAL) == 0);
    close_file(writer.ctl);
    open.store = store_id();
    open.serial = layout_at_rank(store()->fixed, 0)->serial;
    require(in_step(service_open(service, &open, &stray.caller, &stray.request)) == 0);
    check_int(stray.error, 0);
    check_int(stray.answer.mode, LOCK_MODE_RW_DATA);
    check_int(service_flush_asks(service, stray.ctl), 0);
    check_int(in_step(service_flush(service, stray.ctl, &stray.caller)), 0);
    close_file(stray.ctl);
    check_int(lock_get_state(&store()->lock), LOCK_STATE_LAYOUT_COMMITTED);
    open.truncate = true;
    stray = new_client(9, 0);
    require(in_step(service_open(service, &open, &stray.caller, &stray.request)) == 0);
    check_int(stray.error, -ENOLCK);
    check_int(service_get_core(service)->sessions.count, 0);
    check(layout_at_rank(store()->fixed, 0)->memory != LAYOUT_NO_MEMORY);
    service_end();
}

TAP_TEST(data_is_opened_for_writing_alone)
{
    struct client client = new_client(9, 0);

    service_start();
    check_int(open_as(&client, CORE_KIND_DATA, true, false), -EACCES);
    check_int(open_as(&client, CORE_KIND_DATA, false, true), 0);
    check_int(client.answer.mode, LOCK_MODE_RW);
    service_end();
}

TAP_TEST(no_fence_is_put_up_while_a_stores_memory_is_still_given_back)
{
    struct service_fence fence;

    start_writing();
    check_int(commit(&writer, 0), 0);
    require(ask(&writer, LOCK_WISH_RW, 0, false) == 0);
    allocate(&writer);
    defers = true;
    close_file(writer.ctl); /* an abort: the committed layout is there, and free */
    check_int(lock_get_state(&store()->lock), LOCK_STATE_COMMITTED);
    check_int(in_step(service_fence(service, &other.caller, &fence)), -EBUSY);
    check_int(fence.obstacle, SERVICE_OBSTACLE_WEIGHTS_IN_USE);
    run_deferred();
    check_int(in_step(service_fence(service, &other.caller, &fence)), 0);
    check_int(fence.obstacle, SERVICE_OBSTACLE_NONE);
    close_file(other.ctl);
    service_end();
}
