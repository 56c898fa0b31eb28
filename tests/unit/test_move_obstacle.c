/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of why a store does not move. */
#include "evict_fixture.h"

#include "service/move_obstacle.h"

static void check_text(const struct move_obstacle *obstacle, const char *part)
{
    check(strstr(obstacle->text, part) != NULL);
    if (!strstr(obstacle->text, part))
        printf("# '%s' is not in '%s'\n", part, obstacle->text);
}

static void forbid(const char *name)
{
    struct record private = {
        .type = RECORD_STORE_ATTR, .store = store_of(name)->id, .flags = CORE_ATTR_MODE};

    require(service_apply_record(service, &private, NULL) == 0);
}

TAP_TEST(the_largest_stores_that_stay_are_named_each_with_its_reason)
{
    struct client holder, writer;
    struct service_caller root = {0}, user = {.uid = 7, .gid = 7};
    struct move_obstacle obstacle;

    start();
    require(service_evict(service, store_of("a")->id, CORE_PLACE_HOST, store_of("b")->id) == 0);
    settle();
    ask_for_more(&writer, "weights", 1);
    require(writer.answers == 1 && writer.error == 0);
    pin("b", true);
    open_ctl_of(&holder, "c", 20);
    acquire(&holder, LOCK_WISH_RO, 0);
    service_find_obstacle(service, store_of("a"), CORE_PLACE_DEVICE, -ENOMEM, &root, &obstacle);
    check_text(&obstacle, "it needs 256.0 KiB, and 0 B of 1.0 MiB are free; ");
    check_text(&obstacle, "; b (256.0 KiB) is pinned");
    check_text(&obstacle, "; c (256.0 KiB) is held by ");
    check_text(&obstacle, "(pid 20)");
    check_text(&obstacle, "; and 1 smaller store; ");
    service_find_obstacle(service, store_of("a"), CORE_PLACE_DEVICE, -ENOMEM, &user, &obstacle);
    check_text(&obstacle, "(pid 20)");
    forbid("c");
    service_find_obstacle(service, store_of("a"), CORE_PLACE_DEVICE, -ENOMEM, &user, &obstacle);
    check_text(&obstacle, "; c (256.0 KiB) is held by another process (");
    check(!strstr(obstacle.text, "pid 20"));
    service_find_obstacle(service, store_of("a"), CORE_PLACE_DEVICE, -EAGAIN, &root, &obstacle);
    check_text(&obstacle, "device memory was being given to another request; try again");
    service_find_obstacle(service, store_of("c"), CORE_PLACE_HOST, -EBUSY, &root, &obstacle);
    check_text(&obstacle, "its lock is held by ");
    service_find_obstacle(service, store_of("weights"), CORE_PLACE_HOST, -EBUSY, &root, &obstacle);
    check_text(&obstacle, "its writer, ");
    service_find_obstacle(service, store_of("b"), CORE_PLACE_DISK, -ENOMEM, &root, &obstacle);
    check_text(&obstacle, "the mount has no disk beside the device");
    service_find_obstacle(service, store_of("b"), CORE_PLACE_HOST, -EIO, &root, &obstacle);
    check(obstacle.text[0] == '\0');
    end();
}

TAP_TEST(the_first_move_that_ends_after_an_order_tells_what_became_of_it)
{
    struct move_obstacle obstacle;
    struct record to_host = {.type = RECORD_MOVE_BEGIN, .kind = CORE_PLACE_HOST};
    struct record cancel = {.type = RECORD_MOVE_CANCEL};
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
    struct record to_host = {.type = RECORD_MOVE_BEGIN, .kind = CORE_PLACE_HOST};
    struct record exchange = {
        .type = RECORD_STORE_RENAME, .name = "b", .name_bytes = 1, .flags = RENAME_EXCHANGE};
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
