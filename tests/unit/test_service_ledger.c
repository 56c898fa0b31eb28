/* SPDX-License-Identifier: Apache-2.0 */
/* A record changes the state, the journal and the account; all else waits for the end of the step.
 */
#include "service_fixture.h"

#include "service/service_internal.h"

static unsigned told_events;

static void on_event(void *context)
{
    (void)context;
    told_events++;
}

static struct service_observer observer = {.on_event = on_event};

static void start(void)
{
    service_start();
    service_observe(service, &observer);
    told_events = 0;
}

static void allocate(struct client *client, uint64_t bytes)
{
    struct service_actor by = {.file = client->ctl};
    struct service_alloc wanted = {.size_bytes = bytes, .count = 1, .name = "", .tag = ""};

    client->answers = 0;
    require(in_step(service_alloc(service, &by, &wanted, &client->request)) == 0);
    require(client->answers == 1 && client->error == 0);
}

TAP_TEST(a_grant_is_state_at_once_and_answered_at_the_end_of_the_step)
{
    struct client holder, waiter;
    struct record close = RECORD(FILE_CLOSE);

    start();
    open_ctl(&holder, 1);
    acquire(&holder, LOCK_WISH_RW, 0);
    open_ctl(&waiter, 2);
    acquire(&waiter, LOCK_WISH_RW, 0);
    require(holder.answers == 1 && waiter.answers == 0);
    close.file = holder.ctl;
    require(service_apply_record(service, &close, NULL) == 0);
    check(core_find_file(service_get_core(service), waiter.ctl)->session != 0);
    check_int(waiter.answers, 0);
    settle_step();
    check_answer(&waiter, 0);
    service_end();
}

TAP_TEST(freed_memory_counts_as_coming_back_at_once_and_is_freed_at_the_end_of_the_step)
{
    struct client writer;
    struct record clear = RECORD(CLEAR);
    struct service_numbers numbers;

    start();
    open_ctl(&writer, 1);
    acquire(&writer, LOCK_WISH_RW, 0);
    allocate(&writer, 4 * FIXTURE_GRAIN);
    memset(submitted, 0, sizeof submitted);
    defers = true;
    clear.session = writer.session = core_find_file(service_get_core(service), writer.ctl)->session;
    require(service_apply_record(service, &clear, NULL) == 0);
    service_get_numbers(service, &numbers);
    check_int(numbers.freeing_bytes, 4 * FIXTURE_GRAIN);
    check_int(vmm_get_free(vmm), FIXTURE_BYTES - 4 * FIXTURE_GRAIN);
    check(queued_jobs == NULL);
    settle_step();
    check(queued_jobs != NULL);
    run_deferred();
    check_int(vmm_get_free(vmm), FIXTURE_BYTES);
    service_end();
}

/* The ring has fewer events than a step may bring. */
TAP_TEST(events_are_told_with_their_records)
{
    struct client user;
    unsigned before;

    start();
    open_ctl(&user, 1);
    before = told_events;
    for (unsigned i = 0; i < 3; i++) {
        struct service_acquire wanted = {.wish = LOCK_WISH_RW};
        struct record leave = RECORD(DETACH, .file = user.ctl);

        require(service_acquire(service, user.ctl, &wanted, &user.caller, &user.request) == 0);
        require(service_apply_record(service, &leave, NULL) == 0);
        check(told_events > before);
        before = told_events;
    }
    settle_step();
    service_end();
}

TAP_TEST(a_record_that_cannot_be_written_leaves_nothing_to_settle)
{
    struct client user;
    struct record time = RECORD(TIME);

    start();
    open_ctl(&user, 1);
    check(!service_is_unsettled(service));
    journal_is_full = true;
    check_int(service_apply_record(service, &time, NULL), -ENOMEM);
    check(!service_is_unsettled(service));
    journal_is_full = false;
    check_int(service_apply_record(service, &time, NULL), 0);
    check(service_is_unsettled(service));
    settle_step();
    service_end();
}
