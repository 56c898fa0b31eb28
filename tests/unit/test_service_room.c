/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of clients while the daemon itself is short of memory. */
#include "service_fixture.h"

#include "service/bounds.h"
#include "service/cost.h"

#define OTHER   1001u
#define MIB     (UINT64_C(1) << 20)
#define RESERVE (16 * MIB)

#define MANY           20000u
#define COPY_BYTES     (UINT64_C(32) * MANY)
#define ENCODING_BYTES (UINT64_C(45) * MANY) /* at most */

static struct room room;
static uint64_t free_bytes;

static int look(void *context, struct room_view *view)
{
    (void)context;
    *view = (struct room_view){.free_bytes = free_bytes,
                               .reserve_bytes = RESERVE,
                               .aside_bytes = service ? service_count_aside(service) : 0};
    return 0;
}

/* Starts with the whole reserve and the memory that the present state needs. */
static void start(void)
{
    fixture_host.room = &room;
    room_init(&room, look, NULL);
    free_bytes = 1024 * MIB;
    service = NULL; /* it is about to begin */
    service_start();
    free_bytes = RESERVE + service_count_aside(service);
    fixture_now_ms += 2000;
}

static void run_short(void)
{
    free_bytes = RESERVE / 2;
    fixture_now_ms += 2000;
}

static void end(void)
{
    service_end();
    fixture_host.room = NULL;
}

static int put(const struct client *writer, size_t bytes)
{
    static const uint8_t value[2 * MIB];
    struct service_actor by = {.file = writer->ctl};
    struct service_entry entry = {
        .key = "k", .key_bytes = 1, .slot = LAYOUT_UNBOUND, .value = value, .value_bytes = bytes};

    return in_step(service_entry_put(service, &by, &entry));
}

TAP_TEST(a_refused_user_has_an_event_that_names_the_bound_on_memory)
{
    struct client user = new_client(1, OTHER);

    start();
    run_short();
    check_int(open_as(&user, CORE_KIND_PSEUDO, true, false), -ENOMEM);
    const struct core *core = service_get_core(service);
    const struct core_event *event = core_find_event(core, core->next_event - 1);
    check_int(event->type, CORE_EVENT_BOUND);
    check_str(event->bound, "memory");
    check_int(event->uid, OTHER);
    end();
}

TAP_TEST(root_looks_on)
{
    struct client root = new_client(1, 0);

    start();
    run_short();
    check_int(open_as(&root, CORE_KIND_PSEUDO, true, false), 0);
    check_int(in_step(service_take(service, SERVICE_BOUND_TEXTS, 0, 0, 4096)), 0);
    check_int(in_step(service_take(service, SERVICE_BOUND_TEXTS, 0, OTHER, 4096)), -ENOMEM);
    service_give(service, SERVICE_BOUND_TEXTS, 0, 4096);
    end();
}

TAP_TEST(a_user_can_always_give_memory_back)
{
    struct client user;

    start();
    open_ctl(&user, 1);
    acquire(&user, LOCK_WISH_RW, 0);
    check_int(user.error, 0);
    run_short();
    close_file(user.ctl);
    check_int((long long)service_get_core(service)->files.count, 0);
    end();
}

TAP_TEST(an_entry_is_refused_by_its_size)
{
    struct client writer;

    start();
    open_ctl(&writer, 1);
    acquire(&writer, LOCK_WISH_RW, 0);
    check_int(put(&writer, 4096), 0);
    check_int(put(&writer, 1 * MIB), 0);
    free_bytes = RESERVE / 4 + service_count_aside(service) + 2 * MIB; /* root's, and little more */
    fixture_now_ms += 2000;
    check_int(put(&writer, 1 * MIB), -ENOMEM);
    check_int(put(&writer, 4096), 0);
    end();
}

TAP_TEST(the_room_for_a_replay_grows_with_the_state)
{
    struct client writer;

    start();
    open_ctl(&writer, 1);
    acquire(&writer, LOCK_WISH_RW, 0);
    uint64_t before = service_count_aside(service);
    check_int(put(&writer, MIB), 0);
    check(service_count_aside(service) >= before + 3 * MIB);
    end();
}

static void make_allocations(struct client *writer, unsigned count, const char *tag)
{
    struct service_actor by = {.file = writer->ctl, .caller = &writer->caller};
    uint64_t session = writer->session;
    char name[256];

    memset(name, 'n', sizeof name);
    for (unsigned i = 0; i < count; i++) {
        struct service_alloc wanted = {.count = 1, .size_bytes = 10, .name = name, .tag = tag};
        snprintf(name + 240, sizeof name - 240, "%u", i);
        writer->answers = 0;
        require(in_step(service_alloc(service, &by, &wanted, &writer->request)) == 0);
        require(writer->answers == 1 && writer->error == 0);
    }
    writer->session = session;
}

TAP_TEST(the_room_for_a_replay_counts_the_names_of_allocations)
{
    char tag[256];
    struct client writer;
    uint8_t *bytes;
    size_t size;

    memset(tag, 't', sizeof tag);
    tag[255] = '\0';
    start();
    open_ctl(&writer, 1);
    acquire(&writer, LOCK_WISH_RW, 0);
    uint64_t before = service_count_aside(service);
    make_allocations(&writer, 8, tag);
    check(service_count_aside(service) >= before + UINT64_C(3) * 8 * (240 + 255));
    require(core_encode(service_get_core(service), &bytes, &size) == 0);
    check(service_count_aside(service) >= 3 * size);
    free(bytes);
    end();
}

static int put_key(const struct client *writer, unsigned number)
{
    char key[16];
    struct service_actor by = {.file = writer->ctl};
    struct service_entry entry = {
        .key = key, .slot = LAYOUT_UNBOUND, .value = "value", .value_bytes = 5};

    entry.key_bytes = (size_t)snprintf(key, sizeof key, "key%u", number);
    return in_step(service_entry_put(service, &by, &entry));
}

static int commit(struct client *writer)
{
    struct service_actor by = {.file = writer->ctl, .caller = &writer->caller};

    writer->answers = 0;
    require(in_step(service_commit(service, &by, 0, NULL, &writer->request)) == 0);
    require(writer->answers == 1);
    return writer->error;
}

/* Starts with a writer that has put many entries. */
static void start_with_many(struct client *writer)
{
    start();
    free_bytes = 1024 * MIB;
    open_ctl(writer, 1);
    acquire(writer, LOCK_WISH_RW, 0);
    for (unsigned i = 0; i < MANY; i++)
        require(put_key(writer, i) == 0);
}

static void start_after_commit(struct client *writer)
{
    start_with_many(writer);
    require(commit(writer) == 0);
    acquire(writer, LOCK_WISH_RW, 0);
    require(writer->error == 0);
}

static int ask_memory(struct client *writer)
{
    struct service_actor by = {.file = writer->ctl, .caller = &writer->caller};
    struct service_alloc wanted = {.count = 1, .size_bytes = 10, .name = "", .tag = ""};

    writer->answers = 0;
    require(in_step(service_alloc(service, &by, &wanted, &writer->request)) == 0);
    require(writer->answers == 1);
    return writer->error;
}

/* Leaves `bytes` of free memory for root, beside its floor. */
static void leave(uint64_t bytes)
{
    free_bytes = RESERVE / 4 + service_count_aside(service) + bytes;
    fixture_now_ms += 2000;
}

static int apply_document(struct client *writer)
{
    static const uint8_t document[] = "\x82\xa1v\x01\xa8metadata\x91\x94\xa1k\xc0\x00\xc4\x01x";
    struct service_actor by = {.file = writer->ctl, .caller = &writer->caller};

    writer->answers = 0;
    require(in_step(service_apply(service, &by, document, sizeof document - 1, &writer->request)) ==
            0);
    while (writer->answers == 0)
        in_step((service_on_idle(service), 0));
    return writer->error;
}

static int delete_key(const struct client *writer, const char *key)
{
    struct service_actor by = {.file = writer->ctl};

    return in_step(service_entry_delete(service, &by, key, strlen(key)));
}

TAP_TEST(the_first_change_asks_for_the_copy_that_it_makes)
{
    struct client writer;

    start_after_commit(&writer);
    leave(COPY_BYTES / 2);
    check_int(put_key(&writer, MANY), -ENOMEM);
    check_int(delete_key(&writer, "key0"), -ENOMEM);
    leave(2 * COPY_BYTES);
    check_int(put_key(&writer, MANY), 0);
    leave(COPY_BYTES / 2); /* the copy is there */
    check_int(put_key(&writer, MANY + 1), 0);
    check_int(delete_key(&writer, "key0"), 0);
    end();
}

TAP_TEST(so_does_a_document)
{
    struct client writer;

    start_after_commit(&writer);
    leave(COPY_BYTES / 2);
    check_int(apply_document(&writer), -ENOMEM);
    leave(2 * COPY_BYTES);
    check_int(apply_document(&writer), 0);
    leave(COPY_BYTES / 2);
    check_int(apply_document(&writer), 0);
    end();
}

TAP_TEST(a_commit_asks_for_its_encoding_and_can_be_repeated)
{
    struct client writer;

    start_with_many(&writer);
    leave(ENCODING_BYTES / 2);
    check_int(commit(&writer), -ENOMEM);
    leave(2 * ENCODING_BYTES);
    check_int(commit(&writer), 0);
    end();
}

TAP_TEST(a_request_that_a_share_refuses_takes_no_room)
{
    start();
    free_bytes = 1024 * MIB;
    check_int(in_step(service_take(service, SERVICE_BOUND_TEXTS, 0, OTHER, MIB)), 0);
    uint64_t before = room.spent_bytes;
    check_int(
        in_step(service_take(service, SERVICE_BOUND_TEXTS, 0, OTHER, SERVICE_MAX_TEXT_BYTES / 2)),
        -EDQUOT);
    check(room.spent_bytes < before + MIB); /* the event that tells it alone */
    service_give(service, SERVICE_BOUND_TEXTS, OTHER, MIB);
    end();
}

TAP_TEST(bytes_taken_beyond_the_room_count_as_taken)
{
    uint64_t taken = 0;

    start();
    run_short();
    check_int(
        in_step(service_take_some(service, SERVICE_BOUND_QUEUED, 0, OTHER, MIB, 4096, &taken)), 0);
    check_int((long long)taken, 4096);
    check_int((long long)room.spent_bytes, 4096);
    service_give(service, SERVICE_BOUND_QUEUED, OTHER, taken);
    check_int((long long)room.spent_bytes, 0);
    end();
}

TAP_TEST(a_document_is_of_its_user_s_share_without_its_copies)
{
    start();
    check_int(in_step(service_hold_room(service, OTHER, MIB + MIB / 2)), 0); /* 6 of 8 MiB */
    check_int(in_step(service_hold_room(service, OTHER, MIB)), -ENOMEM);
    service_release_room(service, MIB + MIB / 2);
    check_int(in_step(service_take(service, SERVICE_BOUND_TEXTS, 0, OTHER, 3 * MIB)), 0);
    free_bytes -= 3 * MIB;
    check_int(in_step(service_hold_room(service, OTHER, MIB)), -EDQUOT);
    service_give(service, SERVICE_BOUND_TEXTS, OTHER, 3 * MIB);
    end();
}

TAP_TEST(requests_that_wait_for_their_turn_are_asked_for)
{
    start();
    run_short();
    check_int(in_step(service_take(service, SERVICE_BOUND_AHEAD, 0, OTHER, 4096)), -ENOMEM);
    check_int(in_step(service_take_beside_looks(service, SERVICE_BOUND_AHEAD, 0, 3 * MIB)),
              -ENOMEM);
    check_int(in_step(service_take(service, SERVICE_BOUND_AHEAD, 0, 0, 4096)), 0);
    service_give(service, SERVICE_BOUND_AHEAD, 0, 4096);
    end();
}

/* An ALLOC that waits has its argument, of up to 16 KiB, and its operation for as long. */
TAP_TEST(an_alloc_asks_before_it_may_wait)
{
    struct client writer;

    start();
    open_ctl(&writer, 1);
    acquire(&writer, LOCK_WISH_RW, 0);
    check_int(ask_memory(&writer), 0);
    check_int((long long)service->bounds.shares[SERVICE_BOUND_ALLOCS].taken, 0); /* it has ended */
    leave(1024);
    check_int(ask_memory(&writer), -ENOMEM);
    end();
}

TAP_TEST(a_user_has_half_of_the_room_that_the_others_leave)
{
    const uint64_t half = 4 * MIB; /* users leave half of the reserve */

    start();
    check_int(in_step(service_take(service, SERVICE_BOUND_TEXTS, 0, OTHER, half - 64 * 1024)), 0);
    free_bytes -= half - 64 * 1024;
    check_int(in_step(service_take(service, SERVICE_BOUND_TEXTS, 0, OTHER, 128 * 1024)), -EDQUOT);
    check_int(in_step(service_take(service, SERVICE_BOUND_TEXTS, 0, OTHER, 4096)), 0);
    const struct core *core = service_get_core(service);
    const struct core_event *event = core_find_event(core, core->next_event - 1);
    check_str(event->bound, "memory");
    check(event->is_share);
    check_int(in_step(service_take(service, SERVICE_BOUND_TEXTS, 0, OTHER + 1, half / 4)), 0);
    check_int(in_step(service_take(service, SERVICE_BOUND_TEXTS, 0, 0, half)),
              0); /* root has none */
    service_give(service, SERVICE_BOUND_TEXTS, OTHER, half - 64 * 1024 + 4096);
    service_give(service, SERVICE_BOUND_TEXTS, OTHER + 1, half / 4);
    service_give(service, SERVICE_BOUND_TEXTS, 0, half);
    end();
}

/* A user's own, with entries of so many bytes, which are committed. */
static void fill_store(struct client *user, uint64_t bytes)
{
    struct record chown =
        RECORD(STORE_ATTR, .store = store_id(), .flags = CORE_ATTR_UID, .uid = OTHER);
    static const uint8_t value[64 * 1024];
    struct service_actor by;

    require(in_step(service_apply_record(service, &chown, NULL)) == 0);
    *user = new_client(1, OTHER);
    require(open_as(user, CORE_KIND_CTL, true, true) == 0);
    acquire(user, LOCK_WISH_RW, 0);
    by = (struct service_actor){.file = user->ctl};
    for (unsigned i = 0; i < bytes / sizeof value; i++) {
        char key[16];
        struct service_entry entry = {
            .key = key, .slot = LAYOUT_UNBOUND, .value = value, .value_bytes = sizeof value};
        entry.key_bytes = (size_t)snprintf(key, sizeof key, "key%u", i);
        require(in_step(service_entry_put(service, &by, &entry)) == 0);
    }
    require(commit(user) == 0);
}

TAP_TEST(the_stores_of_a_user_count_in_its_share)
{
    struct client user;

    start();
    free_bytes = 1024 * MIB;
    fill_store(&user, 2 * MIB);
    leave(0);
    free_bytes += RESERVE / 4 + 5 * MIB; /* for users, which leave more free: less than it has */
    fixture_now_ms += 2000;
    check_int(in_step(service_take(service, SERVICE_BOUND_TEXTS, 0, OTHER, 4096)), -EDQUOT);
    check_int(in_step(service_take(service, SERVICE_BOUND_TEXTS, 0, OTHER + 1, MIB)), 0);
    service_give(service, SERVICE_BOUND_TEXTS, OTHER + 1, MIB);
    end();
}

TAP_TEST(bytes_taken_in_pieces_are_taken_in_the_smallest_of_them)
{
    uint64_t taken = 0;

    start();
    check_int(
        in_step(service_take_some(service, SERVICE_BOUND_QUEUED, 0, OTHER, MIB, 4096, &taken)), 0);
    check_int((long long)taken, MIB);
    service_give(service, SERVICE_BOUND_QUEUED, OTHER, taken);
    run_short();
    check_int(
        in_step(service_take_some(service, SERVICE_BOUND_QUEUED, 0, OTHER, MIB, 4096, &taken)), 0);
    check_int((long long)taken, 4096);
    service_give(service, SERVICE_BOUND_QUEUED, OTHER, taken);
    end();
}
