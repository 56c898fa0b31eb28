/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is reserved, drawn and due while memory is made, also for a worker that comes in
 * between. */
#include "service_fixture.h"

#include <stdlib.h>

static struct client writer, file;

static const struct core_session *session(void)
{
    const struct core *core = service_get_core(service);

    return core->sessions.count ? core->sessions.items[0] : NULL;
}

static void check_numbers(uint64_t aside, uint64_t due, uint64_t made, uint64_t drawn)
{
    require(session() != NULL);
    check_int(session()->reserved_bytes, aside * FIXTURE_GRAIN);
    check_int(session()->due_bytes, due * FIXTURE_GRAIN);
    check_int(session()->making_bytes, made * FIXTURE_GRAIN);
    check_int(session()->drawn_bytes, drawn * FIXTURE_GRAIN);
}

static void start_writing(uint64_t reserved)
{
    struct service_set_aside aside = {.bytes = reserved * FIXTURE_GRAIN};
    struct service_actor by = {.caller = &writer.caller};

    service_start();
    writer = new_client(1, 0);
    require(open_as(&writer, CORE_KIND_LOCK, true, true) == 0);
    by.file = writer.ctl;
    require(in_step(service_set_aside(service, &by, &aside, &writer.request)) == 0);
    require(writer.error == 0);
    check_numbers(reserved, 0, 0, 0);
}

static void end_writing(void)
{
    close_file(writer.ctl);
    service_end();
}

static void allocate(uint32_t count)
{
    struct service_actor by = {.file = writer.ctl, .caller = &writer.caller};
    struct service_alloc alloc = {.size_bytes = 1, .count = count, .name = "", .tag = ""};

    writer.answers = 0;
    defers = true;
    require(in_step(service_alloc(service, &by, &alloc, &writer.request)) == 0);
}

/* Checks the core's account of the session when another worker resumes it, with all that was being
 * made free again. */
static void check_resumed(uint64_t aside)
{
    struct record record = RECORD(RESUME);
    struct core *again = NULL;
    struct failure failure;
    uint8_t *bytes;
    size_t size;

    record.free_bytes = FIXTURE_BYTES - service_get_core(service)->reserved_bytes;
    require(core_encode(service_get_core(service), &bytes, &size) == 0);
    require(core_decode(bytes, size, &again, &failure) == 0);
    require(core_apply(again, &record, NULL) == 0);
    check_int(again->reserved_bytes, aside * FIXTURE_GRAIN);
    core_free(again);
    free(bytes);
}

TAP_TEST(the_bytes_that_an_alloc_draws_are_known_until_they_are_in_the_layout)
{
    start_writing(4);
    allocate(3);
    check_numbers(1, 0, 3, 3);
    check_resumed(4);
    run_deferred();
    check_int(writer.error, 0);
    check_numbers(1, 0, 0, 0);
    check_resumed(1);
    allocate(2); /* one from free memory */
    check_numbers(0, 0, 2, 1);
    check_resumed(1);
    run_deferred();
    check_numbers(0, 0, 0, 0);
    end_writing();
}

static int refuse(void)
{
    return -ENOSPC;
}

TAP_TEST(the_bytes_that_a_failed_alloc_drew_are_reserved_again)
{
    start_writing(4);
    allocate(5);
    check_numbers(0, 0, 5, 4);
    fixture_on_admit = refuse;
    run_deferred();
    fixture_on_admit = NULL;
    check(writer.error < 0);
    check_numbers(4, 0, 0, 0);
    end_writing();
}

TAP_TEST(the_bytes_that_a_write_draws_are_known_until_they_are_in_the_layout)
{
    struct service_open open = {.kind = CORE_KIND_ALLOCATION, .read = true, .write = true};
    static const uint8_t bytes[3] = {1, 2, 3};

    start_writing(4);
    open.store = store_id();
    file = new_client(1, 0);
    require(in_step(service_create(service, open.store, "w", &open, &file.caller, &file.request)) ==
            0);
    require(file.error == 0 && file.ctl != 0);
    for (unsigned i = 0; i < 2; i++) {
        file.answers = 0;
        defers = true;
        require(in_step(service_write(service, file.ctl, bytes, sizeof bytes, i * 2 * FIXTURE_GRAIN,
                                      &file.request)) == 0);
        check_numbers(3 - 2 * i, 0, 1 + i, 1 + i);
        check_resumed(4 - i);
        run_deferred();
        require(file.answers == 1 && file.error == 0);
        check_numbers(3 - 2 * i, 0, 0, 0);
    }
    defers = true;
    close_file(file.ctl);
    run_deferred();
    check_numbers(1, 0, 0, 0);
    end_writing();
}
