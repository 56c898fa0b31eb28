/* SPDX-License-Identifier: Apache-2.0 */
/* A service resumes the state of one that has ended: memory that is lost harms no other store. */
#include "service/move.h"
#include "service/move_op.h"
#include "service/parked.h"

#include "service_fixture.h"

#include "service/service_internal.h"

#include <sys/mman.h>

static const struct core *core_now(void)
{
    return service_get_core(service);
}

static const struct core_store *store_now(void)
{
    return core_find_store_name(core_now(), "weights");
}

static bool lives(const struct client *client)
{
    return core_find_session(core_now(), client->session) != NULL;
}

static void allocate(struct client *writer, const char *name)
{
    struct service_actor by = {.file = writer->ctl, .caller = &writer->caller};
    struct service_alloc wanted = {.count = 1, .size_bytes = 10, .name = name, .tag = ""};
    uint64_t session = writer->session;

    writer->answers = 0;
    defers = true;
    require(in_step(service_alloc(service, &by, &wanted, &writer->request)) == 0);
    run_deferred();
    require(writer->answers == 1 && writer->error == 0);
    writer->session = session;
}

static void commit(struct client *writer)
{
    struct service_actor by = {.file = writer->ctl, .caller = &writer->caller};

    writer->answers = 0;
    require(in_step(service_commit(service, &by, 0, NULL, &writer->request)) == 0);
    require(writer->answers == 1 && writer->error == 0);
    close_file(writer->ctl);
}

static void commit_two(void)
{
    struct client writer;

    open_ctl(&writer, 1);
    acquire(&writer, LOCK_WISH_RW, 0);
    allocate(&writer, "a");
    allocate(&writer, "b");
    commit(&writer);
}

static void read_by(struct client *client, uint64_t pid)
{
    open_ctl(client, pid);
    acquire(client, LOCK_WISH_RO, 0);
    require(client->answers == 1 && client->error == 0);
}

/* ---- processes ------------------------------------------------------------------------------- */

TAP_TEST(a_session_ends_if_its_process_cannot_be_watched_and_the_others_stay)
{
    struct client one, two, three;

    service_start();
    commit_two();
    read_by(&one, 1);
    read_by(&two, 2);
    read_by(&three, 3);
    unwatchable = 2;
    service_restart();
    check(lives(&one));
    check(!lives(&two));
    check(lives(&three));
    check_int(fixture_watches, 2);
    service_end();
}

/* Its end would admit a session that must be alone with the bytes. */
TAP_TEST(a_process_that_may_write_and_cannot_be_watched_is_watched_later)
{
    const struct core_process lent = {.pid = 8, .start = 1};
    struct client writer;

    service_start();
    open_ctl(&writer, 7);
    acquire(&writer, LOCK_WISH_RW, 0);
    allocate(&writer, "a");
    require(check_int(in_step(service_note_writer(service, writer.session, 0, lent)), 0));
    check_int(fixture_watches, 2);
    unwatchable = lent.pid;
    service_restart();
    check(lives(&writer));
    check_int(fixture_watches, 1);
    check_int(store_now()->writer_count, 1);
    run_timer();
    check_int(fixture_watches, 1);
    check(fixture_timer_ms > fixture_now_ms && fixture_timer_ms <= fixture_now_ms + 1000);
    unwatchable = 0;
    run_next_timer();
    check_int(fixture_watches, 2);
    exit_process(lent);
    check_int(store_now()->writer_count, 0);
    service_end();
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int open_again(int fd)
{
    char path[32];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int made = open(path, O_RDONLY | O_CLOEXEC);
    require(made >= 0);
    return made;
}

/* Keeps memory, number 900, that no record has. Returns a client's descriptor of it. */
static int keep_given_up(void)
{
    int fd = memfd_create("given up", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    require(fd >= 0 && ftruncate(fd, 2 * FIXTURE_BYTES) == 0);
    require(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0);
    int readonly = open_again(fd), client = open_again(fd);
    const struct service_memory memories[] = {
        {.id = 900, .fd = fd}, {.id = 900 | SERVICE_MEMORY_READONLY, .fd = readonly}};
    host_keep(NULL, memories, 2);
    close(fd);
    close(readonly);
    return client;
}

/* A worker restores its service before it knows whether the keeper registers files. */
TAP_TEST(a_registration_that_could_not_be_ended_at_first_is_ended_later)
{
    service_start();
    int client = keep_given_up();
    backed = 900;
    fixture_back_error = -EPERM;
    service_restart();
    check_int(service->pieces.mapped_count, 1);
    fixture_back_error = 0;
    run_next_timer();
    check_int(service->pieces.mapped_count, 1);
    check_int(backed, 0);
    close(client);
    run_next_timer();
    check_int(service->pieces.mapped_count, 0);
    service_end();
}

TAP_TEST(mapped_memory_that_no_longer_fits_is_not_charged_and_not_discharged)
{
    struct service_numbers numbers;
    struct vmm_info info;

    service_start();
    int client = keep_given_up();
    service_restart();
    check_int(service->pieces.mapped_count, 1);
    service_get_numbers(service, &numbers);
    check_int(numbers.mapped_bytes, 0);
    close(client);
    run_next_timer();
    check_int(service->pieces.mapped_count, 0);
    vmm_get_info(vmm, &info);
    check_int(info.used_bytes, 0);
    service_end();
}

static uint64_t greatest_memory(void)
{
    uint64_t greatest = 0;

    for (size_t i = 0; i < core_count_memories(core_now()); i++) {
        uint64_t id = core_get_memory(core_now(), i).id;
        greatest = id > greatest ? id : greatest;
    }
    return greatest;
}

TAP_TEST(the_number_of_memory_that_is_lost_is_not_given_again)
{
    struct client writer;
    uint64_t lost;

    service_start();
    commit_two();
    lost = greatest_memory();
    require(check_int(kept_count, 4)); /* each for writers, and for readers */
    require(check_int(kept[1].id, lost));
    forget_kept(1);
    service_restart();
    check_int(core_count_memories(core_now()), 2);
    open_ctl(&writer, 1);
    acquire(&writer, LOCK_WISH_RW, 0);
    allocate(&writer, "c");
    check_int(core_count_memories(core_now()), 3);
    check(greatest_memory() > lost);
    close_file(writer.ctl);
    service_end();
}

/* ---- moves ----------------------------------------------------------------------------------- */

static int order(enum service_move_act act, enum core_place to)
{
    struct service_move_order wanted = {.act = act, .place = to};
    struct client admin = new_client(9, 0);

    require(open_as(&admin, CORE_KIND_RESIDENCY, true, true) == 0);
    int error = in_step(service_order_move(service, admin.ctl, &wanted));
    close_file(admin.ctl);
    return error;
}

TAP_TEST(a_move_is_begun_anew)
{
    fixture_host_bytes = FIXTURE_BYTES;
    service_start();
    commit_two();
    defers = true;
    check_int(order(SERVICE_MOVE_TO, CORE_PLACE_HOST), 0);
    uint64_t move = store_now()->places.move.id;
    require(move != 0);
    service_restart();
    check_int(store_now()->places.move.id, move);
    run_deferred();
    check_int(store_now()->places.place, CORE_PLACE_HOST);
    check_int(kept_count, 4);
    service_end();
    fixture_host_bytes = 0;
}

TAP_TEST(a_cancelled_move_copies_no_further_byte)
{
    fixture_host_bytes = FIXTURE_BYTES;
    service_start();
    commit_two();
    defers = true;
    check_int(order(SERVICE_MOVE_TO, CORE_PLACE_HOST), 0);
    struct move_op *op = service->moves.all;
    require(op != NULL);
    while (op->state == MOVE_MAKES)
        run_first_job();
    require(op->state == MOVE_COPIES);
    check_int(order(SERVICE_MOVE_CANCEL, 0), 0);
    struct move_part *part = &op->parts[0];
    part->task.job.run(&part->task.job);
    check_int(part->step_bytes, 0);
    check(part->is_over);
    run_deferred();
    check(service->moves.all == NULL);
    check_int(store_now()->places.place, CORE_PLACE_DEVICE);
    service_end();
    fixture_host_bytes = 0;
}

TAP_TEST(a_move_of_memory_that_is_lost_has_failed)
{
    fixture_host_bytes = FIXTURE_BYTES;
    service_start();
    commit_two();
    defers = true;
    check_int(order(SERVICE_MOVE_TO, CORE_PLACE_HOST), 0);
    require(store_now()->places.move.id != 0);
    forget_kept(0);
    service_restart();
    check_int(store_now()->places.move.id, 0);
    check_int(store_now()->places.place, CORE_PLACE_DEVICE);
    const struct core_event *last = core_find_event(core_now(), core_now()->next_event - 1);
    check(last->type == CORE_EVENT_MOVE_FAILED && last->error == EIO);
    defers = false;
    check_int(order(SERVICE_MOVE_TO, CORE_PLACE_HOST),
              -EIO); /* and no later request fails because of it */
    service_end();
    fixture_host_bytes = 0;
}

static uint64_t host_free(void)
{
    return vmm_get_free_in(vmm, VMM_TIER_HOST);
}

TAP_TEST(a_copy_at_the_host_costs_as_many_of_its_units_as_before)
{
    fixture_host_bytes = FIXTURE_BYTES;
    fixture_host_grain = FIXTURE_BYTES / 4;
    service_start();
    commit_two();
    check_int(order(SERVICE_MOVE_TO, CORE_PLACE_HOST), 0);
    require(store_now()->places.place == CORE_PLACE_HOST);
    check_int(host_free(), FIXTURE_BYTES / 2);
    service_restart();
    check_int(host_free(), FIXTURE_BYTES / 2);
    check_int(order(SERVICE_MOVE_TO, CORE_PLACE_NONE), 0);
    check_int(host_free(), FIXTURE_BYTES);
    service_end();
    fixture_host_bytes = fixture_host_grain = 0;
}
