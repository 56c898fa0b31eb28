/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the reasons reported for a store that does not move. */
#include "evict_fixture.h"

#include "service/move_obstacle.h"

static void check_text(const struct move_obstacle *obstacle, const char *part)
{
    check(strstr(obstacle->text, part) != NULL);
    if (!strstr(obstacle->text, part))
        printf("# '%s' is not in '%s'\n", part, obstacle->text);
}

TAP_TEST(the_largest_stores_that_stay_are_named_each_with_its_reason)
{
    struct client holder, writer;
    struct move_obstacle obstacle;

    start();
    require(service_evict(service, store_of("a")->id, CORE_PLACE_HOST, store_of("b")->id) == 0);
    settle();
    ask_for_more(&writer, "weights", 1);
    require(writer.answers == 1 && writer.error == 0);
    pin("b", true);
    open_ctl_of(&holder, "c", 20);
    acquire(&holder, LOCK_WISH_RO, 0);
    service_find_obstacle(service, store_of("a"), CORE_PLACE_DEVICE, -ENOMEM, &obstacle);
    check_text(&obstacle, "it needs 256.0 KiB, and 0 B of 1.0 MiB are free; ");
    check_text(&obstacle, "; b (256.0 KiB) is pinned");
    check_text(&obstacle, "; c (256.0 KiB) is held by ");
    check_text(&obstacle, "(pid 20)");
    check_text(&obstacle, "; and 1 smaller store; ");
    service_find_obstacle(service, store_of("a"), CORE_PLACE_DEVICE, -EAGAIN, &obstacle);
    check_text(&obstacle, "device memory was being given to another request; try again");
    service_find_obstacle(service, store_of("c"), CORE_PLACE_HOST, -EBUSY, &obstacle);
    check_text(&obstacle, "its lock is held by ");
    service_find_obstacle(service, store_of("weights"), CORE_PLACE_HOST, -EBUSY, &obstacle);
    check_text(&obstacle, "its writer, ");
    service_find_obstacle(service, store_of("b"), CORE_PLACE_DISK, -ENOMEM, &obstacle);
    check_text(&obstacle, "the mount has no disk beside the device");
    service_find_obstacle(service, store_of("b"), CORE_PLACE_HOST, -EIO, &obstacle);
    check(obstacle.text[0] == '\0');
    end();
}

/* Gives the store to a user and a group, and sets its mode. */
static void give(const char *name, uint32_t uid, uint32_t gid, uint32_t mode)
{
    struct record record =
        RECORD(STORE_ATTR, .store = store_of(name)->id, .uid = uid, .gid = gid, .mode = mode,
               .flags = CORE_ATTR_MODE | CORE_ATTR_UID | CORE_ATTR_GID);

    require(service_apply_record(service, &record, NULL) == 0);
}

TAP_TEST(processes_of_another_store_are_named_if_each_reader_may_read_that_store)
{
    static const struct {
        uint32_t uid, mode; /* of the store that does not move; its group is uid */
        uint32_t other_uid, other_gid, other; /* of the store that a process holds */
        bool is_named;
    } rows[] = {
        {7, 0755, 8, 8, 0755, true},  {7, 0700, 8, 8, 0755, true},  {7, 0755, 7, 7, 0700, false},
        {7, 0700, 7, 7, 0700, true},  {7, 0750, 7, 7, 0700, false}, {7, 0750, 7, 7, 0750, true},
        {7, 0700, 8, 8, 0700, false}, {7, 0750, 8, 8, 0750, false}, {0, 0755, 0, 0, 0700, false},
        {7, 0700, 7, 8, 0700, true},  {7, 0740, 7, 8, 0740, false}, {7, 0740, 7, 8, 0744, true},
    };
    struct client holder, writer;
    struct move_obstacle obstacle;

    start();
    require(service_evict(service, store_of("a")->id, CORE_PLACE_HOST, store_of("b")->id) == 0);
    settle();
    ask_for_more(&writer, "weights", 1);
    open_ctl_of(&holder, "c", 20);
    acquire(&holder, LOCK_WISH_RO, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        give("a", rows[i].uid, rows[i].uid, rows[i].mode);
        give("c", rows[i].other_uid, rows[i].other_gid, rows[i].other);
        service_find_obstacle(service, store_of("a"), CORE_PLACE_DEVICE, -ENOMEM, &obstacle);
        check_text(&obstacle, rows[i].is_named ? "(pid 20)" : "is held by another process (");
        check_int(strstr(obstacle.text, "pid 20") != NULL, rows[i].is_named);
    }
    end();
}

TAP_TEST(the_first_move_that_ends_after_an_order_gives_its_result)
{
    struct move_obstacle obstacle;
    struct record to_host = RECORD(MOVE_BEGIN, .kind = CORE_PLACE_HOST);
    struct record cancel = RECORD(MOVE_CANCEL);
    uint64_t event;

    start();
    to_host.store = cancel.store = store_of("a")->id;
    event = service_get_core(service)->next_event;
    require(service_move_store(service, &to_host) == 0);
    require(service_apply_record(service, &cancel, NULL) == 0);
    settle();
    service_find_move_end(service, store_of("a"), CORE_PLACE_HOST, event, &obstacle);
    check_text(&obstacle, "the move failed (ECANCELED): it was cancelled");
    event = service_get_core(service)->next_event;
    service_find_move_end(service, store_of("a"), CORE_PLACE_HOST, event, &obstacle);
    check(obstacle.text[0] == '\0');
    require(service_move_store(service, &to_host) == 0);
    settle();
    service_find_move_end(service, store_of("a"), CORE_PLACE_HOST, event, &obstacle);
    check(obstacle.text[0] == '\0');
    service_find_move_end(service, store_of("a"), CORE_PLACE_DISK, event, &obstacle);
    check_text(&obstacle, "another order moved it elsewhere");
    service_find_move_end(service, store_of("a"), CORE_PLACE_DISK, 0, &obstacle);
    check(obstacle.text[0] == '\0');
    end();
}

TAP_TEST(ends_of_moves_of_another_store_that_had_the_name_are_not_told)
{
    struct move_obstacle obstacle;
    struct record to_host = RECORD(MOVE_BEGIN, .kind = CORE_PLACE_HOST);
    struct record exchange =
        RECORD(STORE_RENAME, .name = "b", .name_bytes = 1, .flags = RENAME_EXCHANGE);
    uint64_t event;

    start();
    to_host.store = exchange.store = store_of("a")->id;
    event = service_get_core(service)->next_event;
    require(service_move_store(service, &to_host) == 0);
    settle();
    require(service_apply_record(service, &exchange, NULL) == 0);
    for (int i = 0; i < 2; i++) {
        service_find_move_end(service, store_of(i ? "a" : "b"), CORE_PLACE_DISK, event, &obstacle);
        check(obstacle.text[0] == '\0');
    }
    end();
}
