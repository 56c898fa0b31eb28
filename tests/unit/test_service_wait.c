/* SPDX-License-Identifier: Apache-2.0 */
/* A client that waits for a lock, or for memory, is answered, also if its wait ends while its
 * request is served. */
#include "service_fixture.h"

/* ---- tests --------------------------------------------------------------------------------- */

TAP_TEST(a_waiter_is_parked_and_answered_when_the_lock_is_free)
{
    struct client first, second;

    service_start();
    open_ctl(&first, 1);
    open_ctl(&second, 2);
    acquire(&first, LOCK_WISH_RW, 0);
    check_int(first.answers, 1);
    acquire(&second, LOCK_WISH_RW, 0);
    check_int(second.answers, 0);
    check(second.request.parked != NULL);
    close_file(first.ctl);
    check_answer(&second, 0);
    service_end();
}

/* Memory is free again without an event. The first waiter gets the lock because the second asks;
 * the first has ended already, so the second can have the lock, while it is being served. */
TAP_TEST(a_waiter_that_its_own_request_causes_to_be_granted_is_answered)
{
    struct client first, second;

    service_start();
    require(vmm_reserve(vmm, FIXTURE_GRAIN) == 0);
    open_ctl(&first, FIXTURE_GONE);
    open_ctl(&second, 2);
    acquire(&first, LOCK_WISH_RW, FIXTURE_BYTES);
    check_int(first.answers, 0);
    vmm_unreserve(vmm, FIXTURE_GRAIN);
    acquire(&second, LOCK_WISH_RW, 0);
    check_int(first.answers, 1);
    check_answer(&second, 0);
    check(core_find_session(service_get_core(service), second.session) != NULL);
    check(second.request.parked == NULL);
    service_end();
}

/* ---- a wait that its file cancels ------------------------------------------------------------ */

TAP_TEST(cancel_ends_the_wait_of_its_own_file_alone)
{
    struct client holder, waiter, other;

    service_start();
    open_ctl(&holder, 1);
    open_ctl(&waiter, 2);
    open_ctl(&other, 3);
    acquire(&holder, LOCK_WISH_RW, 0);
    acquire(&waiter, LOCK_WISH_RW, 0);
    acquire(&other, LOCK_WISH_RW, 0);
    check_int(in_step(service_cancel_wait(service, waiter.ctl)), 0);
    check_answer(&waiter, -ECANCELED);
    check(waiter.request.parked == NULL);
    check_int(other.answers, 0);
    close_file(holder.ctl); /* to a client that still waits, not to one that has left */
    check_int(waiter.answers, 1);
    check_answer(&other, 0);
    service_end();
}

TAP_TEST(cancel_of_a_file_that_does_not_wait_changes_nothing)
{
    struct client holder, waiter;

    service_start();
    open_ctl(&holder, 1);
    open_ctl(&waiter, 2);
    acquire(&holder, LOCK_WISH_RW, 0);
    check_int(in_step(service_cancel_wait(service, holder.ctl)), -ENOENT);
    check_int(in_step(service_cancel_wait(service, waiter.ctl)), -ENOENT);
    check_int(in_step(service_cancel_wait(service, UINT64_MAX)), -ENOENT);
    acquire(&waiter, LOCK_WISH_RW, 0); /* nor does it count for a wait that comes later */
    check_int(waiter.answers, 0);
    check_int(in_step(service_cancel_wait(service, waiter.ctl)), 0);
    check_int(in_step(service_cancel_wait(service, waiter.ctl)), -ENOENT);
    check_int(waiter.answers, 1);
    acquire(&waiter, LOCK_WISH_RW, 0);
    check_int(waiter.answers, 1);
    close_file(holder.ctl);
    check_int(waiter.answers, 2);
    check_int(waiter.error, 0);
    service_end();
}

/* ---- memory that is being made -------------------------------------------------------------- */

static uint64_t used_bytes(void)
{
    struct vmm_info info;

    vmm_get_info(vmm, &info);
    return info.used_bytes;
}

static unsigned admitted, interrupt_at; /* the piece with which the client goes away; 0: never */
static struct service_request *interrupted;

static int interrupt_sometime(void)
{
    if (++admitted == interrupt_at)
        service_interrupt(service, interrupted);
    settle_step();
    return 0;
}

/* The client goes away while piece number `at` is made. */
static struct client allocate_interrupted(unsigned at)
{
    static struct client client;
    struct service_alloc alloc = {
        .size_bytes = FIXTURE_BYTES / 4, .count = 4, .name = "", .tag = ""};
    struct service_actor by;

    service_start();
    open_ctl(&client, 1);
    acquire(&client, LOCK_WISH_RW, 0);
    require(client.answers == 1 && client.error == 0);
    client.answers = 0;
    admitted = 0;
    interrupt_at = at;
    interrupted = &client.request;
    defers = true;
    fixture_on_admit = interrupt_sometime;
    by = (struct service_actor){.file = client.ctl};
    check_int(in_step(service_alloc(service, &by, &alloc, &client.request)), 0);
    run_deferred();
    fixture_on_admit = NULL;
    return client;
}

TAP_TEST(an_alloc_without_a_client_ends_between_two_pieces)
{
    struct client client = allocate_interrupted(2);

    check_answer(&client, -EINTR);
    check_int(admitted, 2);
    check_int(used_bytes(), 0);
    service_end();
}

TAP_TEST(alloc_that_is_interrupted_at_its_last_piece_is_done)
{
    struct client client = allocate_interrupted(4);

    check_answer(&client, 0);
    check_int(used_bytes(), FIXTURE_BYTES);
    service_end();
}
