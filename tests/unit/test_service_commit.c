/* SPDX-License-Identifier: Apache-2.0 */
/* Large commits are computed off the loop: requests until then, and computations that turn out
 * unneeded. */
#include "service_fixture.h"

#include "service/admin.h"

#define MANY 2000u

static struct client writer, other;

static struct service_actor actor(const struct client *client)
{
    return (struct service_actor){.file = client->ctl, .caller = &client->caller};
}

static int put(struct client *client, unsigned number)
{
    char key[16];
    struct service_actor by = actor(client);
    struct service_entry entry = {
        .key = key, .slot = LAYOUT_UNBOUND, .value = "value", .value_bytes = 5};

    entry.key_bytes = (size_t)snprintf(key, sizeof key, "key%u", number);
    return in_step(service_entry_put(service, &by, &entry));
}

static void start_writing(unsigned entries)
{
    service_start();
    open_ctl(&writer, 1);
    open_ctl(&other, 2);
    acquire(&writer, LOCK_WISH_RW, 0);
    require(writer.answers == 1 && writer.error == 0);
    writer.answers = 0;
    for (unsigned i = 0; i < entries; i++)
        require(put(&writer, i) == 0);
}

static void commit(struct client *client, uint32_t flags)
{
    struct service_actor by = actor(client);

    client->answers = 0;
    check_int(in_step(service_commit(service, &by, flags, NULL, &client->request)), 0);
}

static const struct core_store *store(void)
{
    return core_find_store(service_get_core(service), store_id());
}

static size_t jobs(void)
{
    struct service_numbers numbers;

    service_get_numbers(service, &numbers);
    return numbers.jobs_in_flight;
}

TAP_TEST(a_large_commit_is_published_when_a_helper_has_computed_it)
{
    start_writing(MANY);
    defers = true;
    commit(&writer, 0);
    check_int(writer.answers, 0);
    check(queued_jobs && !queued_jobs->next);
    check(store()->fixed == NULL);
    run_deferred();
    check_answer(&writer, 0);
    check_int(writer.answer.generation, 1);
    check(store()->fixed != NULL);
    check_int(layout_count_entries(store()->fixed), MANY);
    check_int(jobs(), 0);
    service_end();
}

TAP_TEST(a_large_commit_has_the_hash_of_the_same_one_computed_by_its_record)
{
    uint8_t hash[16];

    start_writing(MANY);
    commit(&writer, 0);
    check_int(writer.answers, 1);
    memcpy(hash, store()->hash, sizeof hash);
    service_end();
    start_writing(MANY);
    struct record record = RECORD(COMMIT, .session = writer.session);
    struct outcome outcome;
    struct core *core = (struct core *)(uintptr_t)service_get_core(service);
    struct effect effect;
    require(core_apply(core, &record, &outcome) == 0);
    while (core_next_effect(core, &effect)) {
    }
    check_bytes(store()->hash, 16, hash, 16);
    service_end();
}

TAP_TEST(a_small_commit_needs_no_helper)
{
    start_writing(10);
    defers = true;
    commit(&writer, 0);
    check_int(writer.answers, 1);
    check(!queued_jobs);
    service_end();
}

TAP_TEST(a_layout_does_not_change_while_its_commit_is_computed)
{
    start_writing(MANY);
    defers = true;
    commit(&writer, 0);
    check_int(put(&writer, MANY), -ESTALE);
    run_deferred();
    check_int(writer.error, 0);
    check_int(layout_count_entries(store()->fixed), MANY);
    service_end();
}

TAP_TEST(a_layout_that_changes_all_the_same_is_computed_again)
{
    struct outcome outcome;

    start_writing(MANY);
    defers = true;
    commit(&writer, 0);
    struct record record = RECORD(ENTRY_PUT, .session = writer.session, .name = "late",
                                  .name_bytes = 4, .slot = LAYOUT_UNBOUND);
    struct core *core = (struct core *)(uintptr_t)service_get_core(service);
    require(core_apply(core, &record, &outcome) == 0);
    run_deferred();
    check_int(writer.error, 0);
    check_int(layout_count_entries(store()->fixed), MANY + 1);
    service_end();
}

TAP_TEST(a_revocation_waits_for_a_commit_that_is_being_computed)
{
    struct client revoker = new_client(3, 0);

    start_writing(MANY);
    acquire(&other, LOCK_WISH_RO, 0);
    defers = true;
    commit(&writer, CORE_COMMIT_STAY);
    check_int(in_step(service_revoke(service, other.ctl, writer.session, false, &revoker.request)),
              0);
    check_int(writer.answers, 0);
    check_int(revoker.answers, 0);
    run_deferred();
    check_answer(&revoker, 0);
    check_int(writer.error, 0);
    check(store()->fixed != NULL);
    check(core_find_session(service_get_core(service), writer.session) == NULL);
    check_int(jobs(), 0);
    service_end();
}

TAP_TEST(a_drain_revokes_a_session_whose_commit_is_being_computed_and_would_stay)
{
    struct service_peer root = {.process = {.pid = 9, .start = 1}};

    start_writing(MANY);
    defers = true;
    commit(&writer, CORE_COMMIT_STAY);
    check_int(in_step(service_drain(service, &root, true)), 0);
    run_deferred();
    check_int(writer.error, 0);
    check(core_find_session(service_get_core(service), writer.session) == NULL);
    service_end();
}

TAP_TEST(a_check_of_a_large_layout_ends_nothing_and_holds_no_change_up)
{
    start_writing(MANY);
    defers = true;
    commit(&writer, CORE_COMMIT_CHECK);
    check_int(writer.answers, 0);
    check_int(put(&writer, MANY), 0);
    run_deferred();
    check_answer(&writer, 0);
    check(store()->fixed == NULL);
    commit(&writer, 0);
    check_int(writer.error, 0);
    check_int(layout_count_entries(store()->fixed), MANY + 1);
    check_int(jobs(), 0);
    service_end();
}

TAP_TEST(a_session_that_is_over_before_its_commit_is_computed_publishes_nothing)
{
    struct outcome outcome;

    start_writing(MANY);
    defers = true;
    commit(&writer, 0);
    struct record record = RECORD(SESSION_END, .session = writer.session);
    struct core *core = (struct core *)(uintptr_t)service_get_core(service);
    require(core_apply(core, &record, &outcome) == 0);
    acquire(&other, LOCK_WISH_RW, 0); /* handles the effects of both records */
    run_deferred();
    check_answer(&writer, -ESTALE);
    check(store()->fixed == NULL);
    check_int(jobs(), 0);
    service_end();
}

TAP_TEST(a_refused_commit_of_a_large_layout_says_why_and_the_session_goes_on)
{
    struct service_actor by;
    struct service_alloc alloc = {.size_bytes = 5, .count = 1, .name = "five", .tag = ""};

    start_writing(MANY);
    by = actor(&writer);
    defers = true;
    check_int(in_step(service_alloc(service, &by, &alloc, &writer.request)), 0);
    run_deferred();
    const struct layout_allocation *five =
        layout_at_rank(core_get_layout(service_get_core(service), store()), 0);
    check_int(in_step(service_resize(service, &by, five->serial, 0, &writer.request)), 0);
    commit(&writer, 0);
    check_answer(&writer, -EINVAL);
    check(strstr(store()->last_error, "five") != NULL);
    check_int(put(&writer, MANY), 0);
    service_end();
}

TAP_TEST(a_large_layout_that_goes_is_freed_by_a_helper)
{
    struct service_actor by;

    start_writing(MANY);
    by = actor(&writer);
    defers = true;
    check_int(in_step(service_clear(service, &by)), 0);
    check(queued_jobs && !queued_jobs->next);
    check_int(layout_count_entries(core_get_layout(service_get_core(service), store())), 0);
    run_deferred();
    check_int(jobs(), 0);
    service_end();
}
