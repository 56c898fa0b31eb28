/* SPDX-License-Identifier: Apache-2.0 */
/* What failed is not tried for a while, each for its reason, and the timer knows when it is over.
 */
#include "service_fixture.h"

#include "service/service_internal.h"

static void start(void)
{
    service_start();
    require(fixture_timer_ms == UINT64_MAX);
}

TAP_TEST(a_reason_holds_for_its_store_until_its_time_is_over)
{
    start();
    service_back_off(service, BACKOFF_LEAVE, 7, 500);
    service_back_off(service, BACKOFF_PROMOTE, 0, 200);
    check(service_is_backed_off(service, BACKOFF_LEAVE, 7));
    check(!service_is_backed_off(service, BACKOFF_LEAVE, 8));
    check(!service_is_backed_off(service, BACKOFF_EVICT, 0));
    check(service_is_backed_off(service, BACKOFF_PROMOTE, 0));
    check_int(service_backoff_moment(service), fixture_now_ms + 200);
    fixture_now_ms += 200;
    check(!service_is_backed_off(service, BACKOFF_PROMOTE, 0));
    check(service_is_backed_off(service, BACKOFF_LEAVE, 7));
    fixture_now_ms += 300;
    check(!service_is_backed_off(service, BACKOFF_LEAVE, 7));
    check(service_backoff_moment(service) == UINT64_MAX);
    service_end();
}

TAP_TEST(the_timer_runs_out_at_the_end_of_each)
{
    start();
    service_back_off(service, BACKOFF_LEAVE, 7, 500);
    service_back_off(service, BACKOFF_EVICT, 0, 200);
    settle_step();
    check_int(fixture_timer_ms, fixture_now_ms + 200);
    fixture_now_ms += 200;
    run_timer();
    check_int(fixture_timer_ms, fixture_now_ms + 300);
    fixture_now_ms += 300;
    run_timer();
    check(fixture_timer_ms == UINT64_MAX);
    service_end();
}

TAP_TEST(beyond_the_table_the_store_whose_time_is_over_first_is_forgotten)
{
    start();
    service_back_off(service, BACKOFF_EVICT, 0, 100);
    for (uint64_t store = 1; store < SERVICE_BACKOFFS; store++)
        service_back_off(service, BACKOFF_LEAVE, store, 500 + store);
    service_back_off(service, BACKOFF_LEAVE, 1, 5000); /* the same row */
    for (uint64_t store = 1; store < SERVICE_BACKOFFS; store++)
        check(service_is_backed_off(service, BACKOFF_LEAVE, store));
    service_back_off(service, BACKOFF_STAY, 1, 500);
    check(!service_is_backed_off(service, BACKOFF_LEAVE, 2));
    check(service_is_backed_off(service, BACKOFF_LEAVE, 1));
    check(service_is_backed_off(service, BACKOFF_STAY, 1));
    check(service_is_backed_off(service, BACKOFF_EVICT, 0));
    service_end();
}

TAP_TEST(a_row_that_is_over_is_taken_before_any_other)
{
    start();
    for (uint64_t store = 1; store <= SERVICE_BACKOFFS; store++)
        service_back_off(service, BACKOFF_LEAVE, store, store == 9 ? 100 : 500);
    fixture_now_ms += 100;
    service_back_off(service, BACKOFF_EVICT, 0, 500);
    for (uint64_t store = 1; store <= SERVICE_BACKOFFS; store++)
        check(service_is_backed_off(service, BACKOFF_LEAVE, store) == (store != 9));
    check(service_is_backed_off(service, BACKOFF_EVICT, 0));
    service_end();
}
