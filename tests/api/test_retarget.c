/* SPDX-License-Identifier: Apache-2.0 */
/* A slot: one handle that maps one store after the other at the same addresses. */
#include <pthread.h>

#include "retarget_fixture.h"

#define SMALL 5000
#define LARGE (13u << 20) /* two of them do not fit on the device of 57-api.bats */

struct part {
    uint64_t size_bytes;
    const char *tag, *key, *value;
};

struct content {
    struct part parts[3];
    size_t count;
    int fill;
    const char *note; /* of an entry without memory */
    int spoil_slots;  /* allocations come and go before the parts */
};

static const struct content plain = {
    .parts = {{100, "lora", "down", "f16 10x5"}, {SMALL, "lora", "up", "f16 50x50"}},
    .count = 2,
    .fill = 1,
};

static void put(gmsfs_t *writer, const char *key, uint64_t slot, const char *value)
{
    struct gmsfs_metadata entry = {
        .key = key, .slot = slot, .value = value, .value_bytes = strlen(value)};

    check_int(gmsfs_metadata_put(writer, &entry), 0);
}

static void publish_content(char which, const struct content *content)
{
    gmsfs_t *writer = open_one(which);
    unsigned char *ptr = NULL;
    uint64_t slot = 0;

    check_int(gmsfs_connect(writer, GMSFS_MODE_RW, WAIT_MS), 0);
    check_int(gmsfs_clear_all_handles(writer), 0);
    for (int i = 0; i < content->spoil_slots; i++) {
        check_int(gmsfs_allocate_handle(writer, 10, "lora", NULL, &slot), 0);
        check_int(gmsfs_free_handle(writer, slot), 0);
    }
    for (size_t i = 0; i < content->count; i++) {
        const struct part *part = content->parts + i;

        if (!check_int(
                gmsfs_create_mapping(writer, part->size_bytes, part->tag, &slot, (void **)&ptr), 0))
            break;
        memset(ptr, content->fill + (int)i, part->size_bytes);
        put(writer, part->key, slot, part->value);
    }
    if (content->note)
        put(writer, "note", GMSFS_SLOT_NONE, content->note);
    check_int(gmsfs_commit(writer, 0, NULL), 0);
    gmsfs_close(writer);
}

static void publish_fill(char which, int fill)
{
    struct content content = plain;

    content.fill = fill;
    publish_content(which, &content);
}

static void publish_large(char which, int fill)
{
    struct content content = {.parts = {{LARGE, "lora", "all", "u8"}}, .count = 1, .fill = fill};

    publish_content(which, &content);
}

struct slot {
    gmsfs_t *handle;
    unsigned char *ptrs[2];
};

static struct slot open_slot(char which)
{
    struct slot slot = {.handle = open_one(which)};
    struct gmsfs_mapping *list = NULL;
    size_t count = 0;

    check_int(gmsfs_connect(slot.handle, GMSFS_MODE_RO, WAIT_MS), 0);
    check_int(gmsfs_attach_all(slot.handle, GMSFS_ACCESS_READ, &list, &count), 0);
    require(count >= 1 && count <= 2);
    for (size_t i = 0; i < count; i++)
        slot.ptrs[i] = list[i].ptr;
    free(list);
    return slot;
}

static struct slot publish_two_and_open(void)
{
    publish_fill('a', 1);
    publish_fill('b', 7);
    return open_slot('a');
}

static void close_slot(struct slot *slot)
{
    gmsfs_close(slot->handle);
}
#define auto_slot __attribute__((unused, cleanup(close_slot))) struct slot

static void check_shows(const struct slot *slot, int fill)
{
    check_int(gmsfs_granted_lock(slot->handle), GMSFS_MODE_RO);
    check_int(gmsfs_is_unmapped(slot->handle), 0);
    check_int(slot->ptrs[0][0], fill);
    check_int(slot->ptrs[0][99], fill);
    if (slot->ptrs[1])
        check_int(slot->ptrs[1][SMALL - 1], fill + 1);
}

static int is_held(char which)
{
    return look_at(which).readers > 0;
}

/* ---- at hand ------------------------------------------------------------------------------ */

TAP_TEST(slot_shows_one_store_after_the_other_at_the_same_addresses)
{
    struct slot slot;
    int fds;

    publish_fill('a', 1);
    publish_fill('b', 7);
    publish_fill('c', 9);
    slot = open_slot('a');
    check_shows(&slot, 1);
    check_int(gmsfs_retarget(slot.handle, path_of('b'), 0), 0);
    fds = count_fds();
    check_shows(&slot, 7);
    check_int(is_held('a'), 0);
    check_int(is_held('b'), 1);
    check_int(gmsfs_retarget(slot.handle, path_of('c'), 0), 0);
    check_shows(&slot, 9);
    check_int(gmsfs_retarget(slot.handle, path_of('a'), 0), 0);
    check_shows(&slot, 1);
    check_int(is_held('b') + is_held('c'), 0);
    check_int(count_fds(), fds);
    gmsfs_close(slot.handle);
    check_int(is_held('a'), 0);
}

TAP_TEST(slots_and_notes_may_differ_and_the_new_ones_are_told)
{
    struct content other = plain;
    auto_slot slot = {0};
    uint64_t number = 0, before = 0;
    gmsfs_t *look;

    publish_content('a', &plain);
    other.fill = 5;
    other.note = "alpha 16";
    other.spoil_slots = 3;
    publish_content('b', &other);
    slot = open_slot('a');
    check_int(gmsfs_resolve(slot.handle, slot.ptrs[1], &before, NULL), 0);
    check_int(gmsfs_retarget(slot.handle, path_of('b'), 0), 0);
    check_shows(&slot, 5);
    check_int(gmsfs_resolve(slot.handle, slot.ptrs[1], &number, NULL), 0);
    look = open_one('b');
    check_int(gmsfs_connect(look, GMSFS_MODE_RO, 0), 0);
    check_int(gmsfs_generation(slot.handle), gmsfs_generation(look));
    gmsfs_close(look);
    require(number != before);
}

TAP_TEST(who_sleeps_after_a_change_wakes_and_reopens_at_the_new_path)
{
    auto_slot slot = publish_two_and_open();

    check_int(gmsfs_retarget(slot.handle, path_of('b'), 0), 0);
    check_int(gmsfs_unmap_all_vas(slot.handle, 0), 0);
    publish_fill('a', 3);
    check_int(gmsfs_reopen(slot.handle), 0);
    check_int(gmsfs_remap_all_vas(slot.handle, WAIT_MS, 1), 0);
    check_shows(&slot, 7);
}

TAP_TEST(who_sleeps_is_awake_on_the_other_store)
{
    auto_slot slot = publish_two_and_open();

    check_int(gmsfs_unmap_all_vas(slot.handle, 0), 0);
    check_int(gmsfs_retarget(slot.handle, path_of('b'), 0), 0);
    check_shows(&slot, 7);
    check_int(gmsfs_unmap_all_vas(slot.handle, GMSFS_UNMAP_KEEP_LOCK), 0);
    check_int(gmsfs_retarget(slot.handle, path_of('a'), 0), 0);
    check_shows(&slot, 1);
    check_int(is_held('b'), 0);
}

TAP_TEST(handle_that_maps_nothing_takes_a_store_of_any_shape)
{
    gmsfs_t *handle = open_one('a');
    struct gmsfs_mapping *list = NULL;
    size_t count = 0;

    publish_fill('a', 1);
    publish_large('b', 7);
    check_int(gmsfs_retarget(handle, path_of('b'), WAIT_MS), 0);
    check_int(gmsfs_granted_lock(handle), GMSFS_MODE_RO);
    check_int(gmsfs_attach_all(handle, GMSFS_ACCESS_READ, &list, &count), 0);
    check_int(count, 1);
    check_int(list[0].size_bytes, LARGE);
    free(list);
    gmsfs_close(handle);
    publish_fill('b', 1);
}

TAP_TEST(shape_is_remembered_when_the_store_is_gone)
{
    struct content other = plain;
    auto_slot slot = {0};

    publish_fill('d', 1);
    other.fill = 6;
    other.note = "so that the hash is another";
    publish_content('b', &other);
    other.note = "and another";
    publish_content('a', &other);
    slot = open_slot('a');
    check_int(gmsfs_retarget(slot.handle, path_of('d'), 0), 0);
    check_int(gmsfs_unmap_all_vas(slot.handle, 0), 0);
    require(rmdir(path_of('d')) == 0);
    check_int(gmsfs_retarget(slot.handle, path_of('b'), 0), 0);
    check_shows(&slot, 6);
}

/* ---- refused ------------------------------------------------------------------------------ */

static void check_refused(const struct content *other, const char *why)
{
    struct slot slot;
    int fds;

    publish_content('a', &plain);
    publish_content('b', other);
    slot = open_slot('a');
    fds = count_fds();
    if (!check_int(gmsfs_retarget(slot.handle, path_of('b'), WAIT_MS), -ESTALE))
        printf("# %s\n", why);
    check_shows(&slot, plain.fill);
    check_int(is_held('a'), 1);
    check_int(is_held('b'), 0);
    check_int(count_fds(), fds);
    gmsfs_close(slot.handle);
}

TAP_TEST(another_shape_is_refused_and_nothing_has_changed)
{
    struct content other = plain;

    other.parts[1].size_bytes += 8;
    check_refused(&other, "a size");
    other = plain;
    other.parts[0].tag = "kv";
    check_refused(&other, "a tag");
    other = plain;
    other.parts[0].key = "downer";
    check_refused(&other, "a key");
    other = plain;
    other.parts[0].value = "bf16 10x5";
    check_refused(&other, "a value");
    other = plain;
    other.parts[2] = (struct part){100, "lora", "more", "f16 10x5"};
    other.count = 3;
    check_refused(&other, "an allocation more");
    other.count = 1;
    check_refused(&other, "one less");
    other = plain;
    other.parts[0] = plain.parts[1];
    other.parts[1] = plain.parts[0];
    check_refused(&other, "the order");
}

/* Host memory, because two mounts of one GPU have the same memory. */
TAP_TEST(store_of_another_mount_is_refused_and_nothing_has_changed)
{
    struct slot slot;

    publish_fill('a', 1);
    publish_fill(ELSEWHERE, 5);
    slot = open_slot('a');
    if (!is_host(slot.handle))
        goto out;
    check_int(gmsfs_retarget(slot.handle, path_of(ELSEWHERE), WAIT_MS), -EXDEV);
    check_shows(&slot, 1);
    check(is_held('a') && !is_held(ELSEWHERE));
    check_int(gmsfs_unmap_all_vas(slot.handle, 0), 0);
    check_int(gmsfs_retarget(slot.handle, path_of(ELSEWHERE), WAIT_MS), -EXDEV);
out:
    gmsfs_close(slot.handle);
}

TAP_TEST(writers_and_who_maps_without_the_lock_are_refused)
{
    gmsfs_t *writer = open_one('a');
    auto_slot slot = {0};

    publish_fill('a', 1);
    publish_fill('b', 7);
    check_int(gmsfs_connect(writer, GMSFS_MODE_RW, WAIT_MS), 0);
    check_int(gmsfs_retarget(writer, path_of('b'), 0), -EBUSY);
    check_int(gmsfs_granted_lock(writer), GMSFS_MODE_RW);
    gmsfs_close(writer);
    slot = open_slot('a');
    check_int(gmsfs_disconnect(slot.handle), 0);
    check_int(gmsfs_retarget(slot.handle, path_of('b'), 0), -ENOLCK);
    check_int(slot.ptrs[0][0], 1);
    check_int(gmsfs_retarget(slot.handle, NULL, 0), -EINVAL);
    check_int(gmsfs_retarget(NULL, path_of('b'), 0), -EINVAL);
}

TAP_TEST(what_is_no_store_is_refused)
{
    auto_slot slot = {0};

    publish_fill('a', 1);
    slot = open_slot('a');
    check_int(gmsfs_retarget(slot.handle, "/tmp", 0), -ENOTTY);
    check_int(gmsfs_retarget(slot.handle, "/tmp/no such store", 0), -ENOENT);
    check_shows(&slot, 1);
}

/* ---- waiting ------------------------------------------------------------------------------ */

TAP_TEST(without_a_timeout_nothing_changes_where_the_other_is_not_at_hand)
{
    auto_slot slot = publish_two_and_open();
    uint64_t moves;

    demote('b');
    moves = look_at('b').moves;
    check_int(gmsfs_retarget(slot.handle, path_of('b'), 0), -EAGAIN);
    check_shows(&slot, 1);
    check_int(is_held('a'), 1);
    check_int(look_at('b').moves, moves);
    check_int(gmsfs_retarget(slot.handle, path_of('b'), WAIT_MS), 0);
    check_shows(&slot, 7);
    check_int(look_at('b').moves, moves + 1);
}

static void *demote_a_when_it_is_free(void *context)
{
    (void)context;
    for (int tries = 0; tries < WAIT_MS && order_of('a', "host") == -EBUSY; tries++)
        usleep(1000);
    return NULL;
}

TAP_TEST(who_waits_holds_nothing_that_the_other_needs)
{
    struct slot slot;
    pthread_t other;

    publish_large('b', 7);
    demote('b');
    publish_large('a', 1);
    slot = open_slot('a');
    require(pthread_create(&other, NULL, demote_a_when_it_is_free, NULL) == 0);
    check_int(gmsfs_retarget(slot.handle, path_of('b'), WAIT_MS), 0);
    pthread_join(other, NULL);
    check_shows(&slot, 7);
    gmsfs_close(slot.handle);
    publish_fill('b', 1);
    publish_fill('a', 1);
}

TAP_TEST(wait_that_ends_leaves_the_slot_as_it_was)
{
    gmsfs_t *writer = open_one('b');
    auto_slot slot = publish_two_and_open();

    check_int(gmsfs_connect(writer, GMSFS_MODE_RW, 0), 0);
    check_int(gmsfs_retarget(slot.handle, path_of('b'), 50), -ETIMEDOUT);
    check_shows(&slot, 1);
    check_int(is_held('a'), 1);
    gmsfs_close(writer);
}

static void *retarget_to_b(void *context)
{
    struct slot *slot = context;

    return (void *)(intptr_t)gmsfs_retarget(slot->handle, path_of('b'), WAIT_MS);
}

TAP_TEST(shape_that_changes_while_it_is_waited_for_is_refused)
{
    gmsfs_t *writer = open_one('b');
    auto_slot slot = publish_two_and_open();
    pthread_t other;
    void *ptr = NULL, *error = NULL;

    check_int(gmsfs_connect(writer, GMSFS_MODE_RW, 0), 0);
    require(pthread_create(&other, NULL, retarget_to_b, &slot) == 0);
    for (int tries = 0; tries < WAIT_MS && is_held('a'); tries++)
        usleep(1000);
    check_int(is_held('a'), 0);
    check_int(gmsfs_clear_all_handles(writer), 0);
    check_int(gmsfs_create_mapping(writer, 10, "new", NULL, &ptr), 0);
    check_int(gmsfs_commit(writer, 0, NULL), 0);
    gmsfs_close(writer);
    pthread_join(other, &error);
    check_int((intptr_t)error, -ESTALE);
    check_shows(&slot, 1);
    check_int(is_held('a'), 1);
    check_int(is_held('b'), 0);
}

TAP_TEST(slot_whose_store_was_evicted_while_it_waited_in_vain_sleeps_on_it)
{
    gmsfs_t *writer = open_one('b');
    auto_slot slot = publish_two_and_open();
    pthread_t other;

    check_int(gmsfs_connect(writer, GMSFS_MODE_RW, 0), 0);
    require(pthread_create(&other, NULL, demote_a_when_it_is_free, NULL) == 0);
    check_int(gmsfs_retarget(slot.handle, path_of('b'), 500), -ETIMEDOUT);
    pthread_join(other, NULL);
    wait_for_place('a', GMSFS_RESIDENCY_HOST);
    check_int(gmsfs_is_unmapped(slot.handle), 1);
    check_int(gmsfs_is_connected(slot.handle), 0);
    check_int(gmsfs_remap_all_vas(slot.handle, WAIT_MS, 1), 0);
    check_shows(&slot, 1);
    gmsfs_close(writer);
    check_int(gmsfs_retarget(slot.handle, path_of('b'), WAIT_MS), 0);
    check_shows(&slot, 7);
}

/* ---- ended from outside ------------------------------------------------------------------- */

/* A slot on `a` that waits for `b`, whose writer is `writer`. */
struct waiting {
    gmsfs_t *writer;
    struct slot slot;
    pthread_t thread;
};

static struct waiting start_waiting(void)
{
    struct waiting waiting = {.writer = open_one('b')};

    publish_fill('a', 1);
    publish_fill('b', 7);
    waiting.slot = open_slot('a');
    check_int(gmsfs_connect(waiting.writer, GMSFS_MODE_RW, 0), 0);
    require(pthread_create(&waiting.thread, NULL, retarget_to_b, &waiting.slot) == 0);
    for (int tries = 0; tries < WAIT_MS && is_held('a'); tries++)
        usleep(1000);
    return waiting;
}

/* Far from its timeout. */
static void check_cancelled(struct waiting *waiting, uint64_t start_ms)
{
    void *error = NULL;

    pthread_join(waiting->thread, &error);
    check_int((intptr_t)error, -ECANCELED);
    check(now_ms() - start_ms < WAIT_MS / 2);
    check_int(is_held('b'), 0);
}

TAP_TEST(cancelled_wait_leaves_the_slot_as_it_was)
{
    struct waiting waiting = start_waiting();
    uint64_t start_ms = now_ms();

    check_int(gmsfs_cancel(waiting.slot.handle), 0);
    check_cancelled(&waiting, start_ms);
    check_shows(&waiting.slot, 1);
    check_int(is_held('a'), 1);
    gmsfs_close(waiting.writer);
    gmsfs_close(waiting.slot.handle);
}

TAP_TEST(disconnect_and_close_end_a_wait_for_another_store)
{
    struct waiting waiting = start_waiting();
    uint64_t start_ms = now_ms();

    check_int(gmsfs_disconnect(waiting.slot.handle), 0);
    check_cancelled(&waiting, start_ms);
    check_int(gmsfs_is_connected(waiting.slot.handle), 0);
    gmsfs_close(waiting.writer);
    gmsfs_close(waiting.slot.handle);
    waiting = start_waiting();
    start_ms = now_ms();
    gmsfs_close(waiting.slot.handle);
    check_cancelled(&waiting, start_ms);
    check_int(is_held('a'), 0);
    gmsfs_close(waiting.writer);
}

/* ---- many --------------------------------------------------------------------------------- */

#define THREADS 6
#define ROUNDS  60

static void *change_around(void *context)
{
    unsigned seed = (unsigned)(intptr_t)context;
    struct slot slot = open_slot((char)('a' + seed % 3));

    for (int i = 0; i < ROUNDS; i++) {
        int to = rand_r(&seed) % 3;

        check_int(gmsfs_retarget(slot.handle, path_of((char)('a' + to)), WAIT_MS), 0);
        check_shows(&slot, 10 * to + 1);
    }
    gmsfs_close(slot.handle);
    return NULL;
}

/* One of three is always leaving, and a slot that wants it has to bring it back. */
TAP_TEST(many_slots_change_among_stores_that_come_and_go)
{
    pthread_t threads[THREADS];

    for (int i = 0; i < 3; i++)
        publish_fill((char)('a' + i), 10 * i + 1);
    for (intptr_t i = 0; i < THREADS; i++)
        require(pthread_create(&threads[i], NULL, change_around, (void *)i) == 0);
    for (int i = 0; i < 200; i++) {
        int error = order_of((char)('a' + i % 3), "host");

        if (error != -EBUSY)
            check_int(error, 0);
        usleep(1000);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    check_int(is_held('a') + is_held('b') + is_held('c'), 0);
}
