/* SPDX-License-Identifier: Apache-2.0 */
/* As many objects of a kind as there may be, and their cost. */
#include "core_fixture.h"

#include <time.h>

static struct record store_record(const char *name)
{
    return RECORD(STORE_CREATE, .name = name, .name_bytes = strlen(name));
}

/* `many` stores, s0, s1, …, by records that nothing is compared after. */
static void make_many(unsigned many)
{
    struct outcome outcome;
    char name[16];

    for (unsigned i = 0; i < many; i++) {
        snprintf(name, sizeof name, "s%u", i);
        require(apply_fast(store_record(name), &outcome) == 0);
    }
}

TAP_TEST(too_many_stores_are_enospc)
{
    struct outcome outcome;

    make_many(CORE_MAX_STORES);
    check_int(apply_fast(store_record("more"), &outcome), -ENOSPC);
}

TAP_TEST(each_of_4096_stores_is_found_by_its_name_as_they_come_go_and_change_names)
{
    struct failure failure = {0};
    struct outcome outcome;
    char name[16], other[16];

    make_many(CORE_MAX_STORES);
    for (unsigned i = 0; i < CORE_MAX_STORES; i += 3) {
        snprintf(name, sizeof name, "s%u", i);
        snprintf(other, sizeof other, "t%u", CORE_MAX_STORES - i);
        struct record record = store_record(other);
        record.type = RECORD_STORE_RENAME;
        record.store = core_find_store_name(core, name)->id;
        require(apply_fast(record, &outcome) == 0);
        check(core_find_store_name(core, name) == NULL);
        check_int(core_find_store_name(core, other)->id, record.store);
    }
    for (unsigned i = 1; i < CORE_MAX_STORES; i += 3) {
        snprintf(name, sizeof name, "s%u", i);
        struct record record = RECORD(STORE_REMOVE, .store = core_find_store_name(core, name)->id);
        require(apply_fast(record, &outcome) == 0);
        check(core_find_store_name(core, name) == NULL);
    }
    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];
        require(core_find_store_name(core, store->name) == store);
    }
    check_int(core_check(core, &failure), 0);
}

static uint64_t take_and_drop_a_lock(uint64_t store, unsigned times)
{
    struct timespec from, to;
    struct outcome outcome;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (unsigned i = 0; i < times; i++) {
        struct record take = RECORD(LOCK_OPEN, .store = store, .kind = CORE_KIND_LOCK,
                                    .wish = LOCK_WISH_RW, .flags = CORE_OPEN_READ | CORE_OPEN_WRITE,
                                    .deadline_ms = LOCK_FOREVER, .process = P1);
        require(apply_fast(take, &outcome) == 0);
        core_next_moment(core, now);
        struct record drop = RECORD(FILE_CLOSE, .file = outcome.file);
        require(apply_fast(drop, &outcome) == 0);
        core_next_moment(core, now);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    return (uint64_t)(to.tv_sec - from.tv_sec) * 1000000000u + (uint64_t)to.tv_nsec -
           (uint64_t)from.tv_nsec;
}

/* The least of several: other load on the machine only adds. */
TAP_TEST(a_lock_costs_about_the_same_among_4096_stores_as_alone)
{
    uint64_t alone_ns = UINT64_MAX, among_ns = UINT64_MAX, ns;

    make_many(1);
    for (int i = 0; i < 8; i++) {
        ns = take_and_drop_a_lock(core_find_store_name(core, "s0")->id, 2000);
        alone_ns = ns < alone_ns ? ns : alone_ns;
    }
    core_start();
    make_many(CORE_MAX_STORES);
    for (int i = 0; i < 8; i++) {
        ns = take_and_drop_a_lock(core_find_store_name(core, "s2048")->id, 2000);
        among_ns = ns < among_ns ? ns : among_ns;
    }
    fprintf(stderr, "# alone %" PRIu64 " ns, among 4,096 %" PRIu64 " ns\n", alone_ns / 2000,
            among_ns / 2000);
    check(among_ns < 3 * alone_ns);
}

TAP_TEST(too_many_waiters_are_enospc)
{
    struct outcome outcome;
    uint64_t store = make_store("weights");
    struct record record = lock_open_record(store, CORE_KIND_LOCK, LOCK_WISH_RO, P1);
    for (unsigned i = 0; i < LOCK_MAX_WAITERS; i++)
        require(apply_fast(record, &outcome) == 0);
    check_int(apply_fast(record, &outcome), -ENOSPC);
    check_int(outcome.waiter, 0);
}

TAP_TEST(too_many_sessions_are_enospc_and_leave_no_file)
{
    struct outcome outcome;
    uint64_t store = make_committed("weights", NULL);
    struct record record = lock_open_record(store, CORE_KIND_LOCK, LOCK_WISH_RO, P1);
    for (unsigned i = 0; i < LOCK_MAX_SESSIONS; i++)
        require(apply_fast(record, &outcome) == 0);
    size_t files = core->files.count;
    uint64_t next_id = core->next_id;
    check_int(apply_fast(record, &outcome), -ENOSPC);
    check_int(core->files.count, files);
    check_int(core->next_id, next_id);
}

TAP_TEST(too_many_files_are_enfile)
{
    struct outcome outcome;
    uint64_t store = make_store("weights");
    struct record record = RECORD(FILE_OPEN, .store = store, .kind = CORE_KIND_CTL);
    for (unsigned i = 0; i < CORE_MAX_FILES; i++)
        require(apply_fast(record, &outcome) == 0);
    check_int(apply_fast(record, &outcome), -ENFILE);
    check_int(apply_fast(lock_open_record(store, CORE_KIND_LOCK, LOCK_WISH_RW, P1), &outcome),
              -ENFILE);
    check_int(state(store), LOCK_STATE_EMPTY);
}
