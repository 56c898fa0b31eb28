/* SPDX-License-Identifier: Apache-2.0 */
/* Memory is made final before its commit: nothing in between lets a client change an immutable
 * layout, or surprise the next writer. */
#include "service_fixture.h"

#include "service/moves.h"
#include "service/parked.h"
#include "service/service_internal.h"
#include "service/tickets.h"
#include "service/views.h"

#include <sys/mman.h>
#include <sys/stat.h>

static struct client writer, reader;

static const struct core_store *store(void)
{
    return core_find_store(service_get_core(service), store_id());
}

static struct piece *piece_at(size_t rank)
{
    const struct layout_allocation *allocation =
        layout_at_rank(core_get_layout(service_get_core(service), store()), rank);

    return idvec_find(&service->pieces.all, allocation->memory);
}

static bool is_exact;

static void allocate(struct client *client)
{
    struct service_actor by = {.file = client->ctl, .caller = &client->caller};
    struct service_alloc alloc = {
        .size_bytes = 1, .count = 2, .name = "w0", .tag = "", .exact = is_exact};

    client->answers = 0;
    defers = true; /* memory is never made before the call returns */
    require(in_step(service_alloc(service, &by, &alloc, &client->request)) == 0);
    run_deferred();
    require(client->answers == 1 && client->error == 0);
}

static int commit(struct client *client, uint32_t flags)
{
    struct service_actor by = {.file = client->ctl, .caller = &client->caller};

    client->answers = 0;
    require(in_step(service_commit(service, &by, flags, NULL, &client->request)) == 0);
    return client->answers ? client->error : 1;
}

static void begin_writing(void)
{
    open_ctl(&writer, 7);
    acquire(&writer, LOCK_WISH_RW, 0);
    require(writer.answers == 1 && writer.error == 0);
    allocate(&writer);
}

static void start_writing(void)
{
    service_start();
    begin_writing();
    require(in_step(service_note_writer(service, store()->lock.sessions[0].id, 0,
                                        writer.caller.processes[0])) == 0);
}

/* A descriptor as a client gets it, mapped for writing. */
static void *map_for_writing(size_t rank)
{
    void *at;
    int fd;

    require(vmm_duplicate(vmm, &piece_at(rank)->memory, true, &fd) == 0);
    at = mmap(NULL, FIXTURE_GRAIN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    require(at != MAP_FAILED);
    close(fd);
    return at;
}

/* Lends a descriptor to the client, and returns the duplicate that a message makes. */
static int lend_to(const struct client *client, size_t rank)
{
    const struct layout *layout = core_get_layout(service_get_core(service), store());
    struct service_descriptor descriptor;
    int fd;

    require(
        in_step(service_lend_descriptor(service, client->ctl, layout_at_rank(layout, rank)->slot,
                                        client->caller.processes, 1, &descriptor)) == 0);
    fd = fcntl(descriptor.fd, F_DUPFD_CLOEXEC, 0);
    if (descriptor.is_own)
        close(descriptor.fd);
    require(fd >= 0);
    return fd;
}

static int seals_of(size_t rank)
{
    return fcntl(piece_at(rank)->memory.fd, F_GET_SEALS) & ~0x20; /* F_SEAL_EXEC */
}

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

TAP_TEST(memory_of_a_plain_commit_takes_no_seals_any_more)
{
    start_writing();
    check_int(seals_of(1), SIZE_SEALS);
    check_int(commit(&writer, 0), 0);
    check_int(seals_of(0), SIZE_SEALS | F_SEAL_SEAL);
    check_int(seals_of(1), SIZE_SEALS | F_SEAL_SEAL);
    check(!layout_is_immutable(store()->fixed));
    service_end();
}

TAP_TEST(memory_of_an_immutable_commit_is_sealed_before_its_record)
{
    start_writing();
    defers = true;
    commit(&writer, CORE_COMMIT_IMMUTABLE);
    check(writer.answers == 0 && store()->fixed == NULL);
    run_deferred();
    check_int(writer.error, 0);
    check_int(seals_of(0), SIZE_SEALS | F_SEAL_WRITE | F_SEAL_SEAL);
    check(layout_is_immutable(store()->fixed));
    check(service_get_unmappable_reason(service, store()) == NULL);
    service_end();
}

TAP_TEST(a_writable_mapping_fails_an_immutable_commit_by_name)
{
    void *at;

    start_writing();
    at = map_for_writing(1);
    check_int(commit(&writer, CORE_COMMIT_IMMUTABLE), -EBUSY);
    check_str(store()->last_error, "process 7 has allocation w1 mapped for writing: unmap it, then "
                                   "commit again");
    check(store()->fixed == NULL && store()->lock.held[LOCK_MODE_RW] == 1);
    munmap(at, FIXTURE_GRAIN);
    check_int(commit(&writer, CORE_COMMIT_IMMUTABLE), 0);
    check_str(store()->last_error, "");
    check(service_get_unmappable_reason(service, store()) == NULL);
    service_end();
}

TAP_TEST(a_writable_mapping_harms_no_plain_commit)
{
    void *at;

    start_writing();
    at = map_for_writing(0);
    check_int(commit(&writer, 0), 0);
    munmap(at, FIXTURE_GRAIN);
    service_end();
}

TAP_TEST(memory_that_a_client_sealed_is_refused_by_a_plain_commit_alone)
{
    start_writing();
    require(fcntl(piece_at(0)->memory.fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
    check_int(commit(&writer, 0), -EINVAL);
    check_str(store()->last_error,
              "allocation w0 is sealed against writes (F_SEAL_WRITE): commit it as immutable, or "
              "remove it and make it anew");
    check_int(commit(&writer, CORE_COMMIT_IMMUTABLE), 0);
    service_end();
}

TAP_TEST(memory_that_a_failed_immutable_commit_sealed_is_refused_by_a_plain_one)
{
    void *at;

    for (int restarts = 0; restarts < 2; restarts++) {
        start_writing();
        at = map_for_writing(1);
        require(commit(&writer, CORE_COMMIT_IMMUTABLE) == -EBUSY);
        check_int(seals_of(0), SIZE_SEALS | F_SEAL_WRITE | F_SEAL_SEAL);
        if (restarts)
            service_restart();
        check_int(commit(&writer, 0), -EINVAL);
        check_str(store()->last_error, "allocation w0 is sealed against writes (F_SEAL_WRITE): "
                                       "commit it as immutable, or remove it and make it anew");
        check(store()->fixed == NULL);
        munmap(at, FIXTURE_GRAIN);
        check_int(commit(&writer, CORE_COMMIT_IMMUTABLE), 0);
        service_end();
    }
}

TAP_TEST(memory_that_was_committed_before_makes_the_layout_immutable_by_promise)
{
    start_writing();
    require(commit(&writer, 0) == 0);
    close_file(writer.ctl);
    open_ctl(&writer, 8);
    acquire(&writer, LOCK_WISH_RW, 0);
    check_int(commit(&writer, CORE_COMMIT_IMMUTABLE), 0);
    check(layout_is_immutable(store()->fixed));
    check(service_get_unmappable_reason(service, store()) != NULL);
    service_end();
}

TAP_TEST(a_next_writer_of_an_immutable_store_begins_with_other_memory)
{
    uint64_t before;

    start_writing();
    require(commit(&writer, CORE_COMMIT_IMMUTABLE) == 0);
    before = layout_at_rank(store()->fixed, 0)->memory;
    close_file(writer.ctl);
    begin_writing();
    check(layout_at_rank(store()->working, 0)->memory != before);
    check_int(vmm_write(vmm, &piece_at(0)->memory, "x", 1, 0), 0);
    check_int(commit(&writer, 0), 0);
    check(idvec_find(&service->pieces.all, before) == NULL);
    service_end();
}

TAP_TEST(an_allocation_of_an_immutable_store_is_opened_for_reading_alone)
{
    struct service_open open = {.kind = CORE_KIND_ALLOCATION, .read = true};

    start_writing();
    require(commit(&writer, CORE_COMMIT_IMMUTABLE) == 0);
    reader = new_client(9, 0);
    open.store = store_id();
    open.serial = layout_at_rank(store()->fixed, 0)->serial;
    require(in_step(service_open(service, &open, &reader.caller, &reader.request)) == 0);
    check_int(reader.error, 0);
    open.write = true; /* in the session of the same process as well */
    require(in_step(service_open(service, &open, &reader.caller, &reader.request)) == 0);
    check_int(reader.error, -EPERM);
    service_end();
}

/* The worker dies between seal and record: the client commits again at the next one. */
TAP_TEST(a_next_worker_commits_what_the_last_one_had_sealed)
{
    start_writing();
    for (size_t i = 0; i < 2; i++)
        require(vmm_make_immutable(vmm, &piece_at(i)->memory) == 0);
    service_restart();
    check(piece_at(0)->memory.immutable);
    check_int(commit(&writer, CORE_COMMIT_IMMUTABLE), 0);
    check(service_get_unmappable_reason(service, store()) == NULL);
    service_restart();
    check(layout_is_immutable(store()->fixed));
    check(service_get_unmappable_reason(service, store()) == NULL);
    service_end();
}

static void move_to(enum core_place place)
{
    struct record record = RECORD(MOVE_BEGIN, .store = store_id(), .kind = place);

    require(in_step(service_move_store(service, &record)) == 0);
    check_int(store()->places.place, place);
}

TAP_TEST(a_store_that_comes_back_to_the_device_is_sealed_there_again)
{
    fixture_host_bytes = FIXTURE_BYTES;
    start_writing();
    require(vmm_write(vmm, &piece_at(0)->memory, "hello", 5, 0) == 0);
    require(commit(&writer, CORE_COMMIT_IMMUTABLE) == 0);
    close_file(writer.ctl);
    move_to(CORE_PLACE_HOST);
    check(service_get_unmappable_reason(service, store()) != NULL);
    move_to(CORE_PLACE_DEVICE);
    check_int(seals_of(0), SIZE_SEALS | F_SEAL_WRITE | F_SEAL_SEAL);
    check(service_get_unmappable_reason(service, store()) == NULL);
    service_end();
    fixture_host_bytes = 0;
}

static uint64_t file_bytes_of(size_t rank)
{
    struct stat status;

    require(fstat(piece_at(rank)->memory.fd, &status) == 0);
    return (uint64_t)status.st_size;
}

static char byte_of(size_t rank, uint64_t offset)
{
    char byte = 0;

    check_int(vmm_read(vmm, &piece_at(rank)->memory, &byte, 1, offset), 0);
    return byte;
}

/* Also at the next worker, and with the copy that the host keeps. */
TAP_TEST(exact_memory_ends_with_its_size_again_when_it_comes_back)
{
    fixture_host_bytes = FIXTURE_BYTES;
    is_exact = true;
    start_writing();
    check_int(file_bytes_of(0), 1);
    require(vmm_write(vmm, &piece_at(0)->memory, "h", 1, 0) == 0);
    require(commit(&writer, CORE_COMMIT_IMMUTABLE) == 0);
    close_file(writer.ctl);
    for (int restarts = 0; restarts < 2; restarts++) {
        service_restart();
        check_int(file_bytes_of(0), 1);
        move_to(CORE_PLACE_HOST);
        check_int(byte_of(0, 0), 'h');
        move_to(CORE_PLACE_DEVICE);
        check_int(file_bytes_of(0), 1);
        check_int(byte_of(0, 0), 'h');
        check_int(seals_of(0), SIZE_SEALS | F_SEAL_WRITE | F_SEAL_SEAL);
    }
    service_end();
    fixture_host_bytes = 0;
    is_exact = false;
}

TAP_TEST(memory_that_comes_back_keeps_bytes_behind_its_size)
{
    fixture_host_bytes = FIXTURE_BYTES;
    start_writing();
    require(vmm_write(vmm, &piece_at(0)->memory, "b", 1, FIXTURE_GRAIN - 1) == 0);
    require(commit(&writer, CORE_COMMIT_IMMUTABLE) == 0);
    close_file(writer.ctl);
    check_int(file_bytes_of(1), FIXTURE_GRAIN);
    move_to(CORE_PLACE_HOST);
    move_to(CORE_PLACE_DEVICE);
    check_int(byte_of(0, FIXTURE_GRAIN - 1), 'b');
    check_int(file_bytes_of(0), FIXTURE_GRAIN);
    check_int(file_bytes_of(1), 1);
    service_end();
    fixture_host_bytes = 0;
}

TAP_TEST(a_plain_store_that_comes_back_takes_no_seals)
{
    fixture_host_bytes = FIXTURE_BYTES;
    start_writing();
    require(commit(&writer, 0) == 0);
    close_file(writer.ctl);
    move_to(CORE_PLACE_HOST);
    move_to(CORE_PLACE_DEVICE);
    check_int(seals_of(0), SIZE_SEALS | F_SEAL_SEAL);
    service_end();
    fixture_host_bytes = 0;
}

/* The kernel opens a registered file after the daemon has answered, for a process that then maps
 * it. */
TAP_TEST(the_registration_ends_before_the_look_whether_memory_is_mapped)
{
    struct service_numbers numbers;
    int fd;

    for (int restarts = 0; restarts < 2; restarts++) {
        start_writing();
        require(commit(&writer, CORE_COMMIT_IMMUTABLE) == 0);
        close_file(writer.ctl);
        reader = new_client(9, 0);
        require(in_step(service_map(service, layout_at_rank(store()->fixed, 0)->serial,
                                    &reader.request)) == 0);
        check_int(backed, layout_at_rank(store()->fixed, 0)->memory);
        require(vmm_duplicate(vmm, &piece_at(0)->memory, false, &fd) == 0);
        if (restarts)
            service_restart();
        begin_writing();
        check_int(commit(&writer, 0), 0);
        service_get_numbers(service, &numbers);
        check_int(numbers.mapped_bytes, FIXTURE_GRAIN);
        check_int(backed, 0);
        close(fd);
        service_end();
    }
}

TAP_TEST(memory_whose_descriptor_a_client_has_is_held_after_an_immutable_commit)
{
    int fd;

    start_writing();
    fd = lend_to(&writer, 0);
    check_int(commit(&writer, CORE_COMMIT_IMMUTABLE), 0);
    check(vmm_is_held(&piece_at(0)->memory));
    check(!vmm_is_held(&piece_at(1)->memory));
    close(fd);
    check(!vmm_is_held(&piece_at(0)->memory));
    open_ctl(&reader, 8);
    acquire(&reader, LOCK_WISH_RO, 0);
    require(reader.answers == 1 && reader.error == 0);
    fd = lend_to(&reader, 1);
    check(vmm_is_held(&piece_at(1)->memory));
    close(fd);
    check(!vmm_is_held(&piece_at(1)->memory));
    service_end();
}
