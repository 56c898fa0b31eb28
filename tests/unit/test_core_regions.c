/* SPDX-License-Identifier: Apache-2.0 */
/* Regions as state: names and owners, references by open files, ends, bounds, bytes. */
#include "core_fixture.h"

#include "core/core_internal.h"

#define ANNA 1001u
#define BEN  1002u

/* of `weights`: a reader's ctl, and a committed allocation */
static uint64_t store, file, allocation;

static struct record region_record(uint32_t uid, const char *name)
{
    return named(RECORD(REGION_REGISTER, .kind = REGION_SYSTEM, .uid = uid, .tag = "/key",
                        .tag_bytes = 4, .offset = 64, .size_bytes = 1000, .process = P1),
                 name);
}

static int register_object(uint32_t uid, const char *name)
{
    struct record record = region_record(uid, name);

    record.memory = next_memory++;
    record.flags = CORE_REGION_WRITABLE;
    return apply(record);
}

static struct record handle_record(uint32_t uid, const char *name)
{
    static const uint8_t handle[REGION_HANDLE_BYTES] = {7, 8, 9};
    struct record record = region_record(uid, name);

    record.kind = REGION_CUDA;
    record.tag_bytes = 0;
    record.offset = 0;
    record.count = (uint64_t)-1;
    record.value = handle;
    record.value_bytes = sizeof handle;
    return record;
}

static int unregister(uint32_t uid, uint32_t kind, const char *name)
{
    return apply(named(RECORD(REGION_UNREGISTER, .uid = uid, .kind = kind), name));
}

static int unregister_all(uint32_t uid, uint32_t kind)
{
    return apply(RECORD(REGION_UNREGISTER, .uid = uid, .kind = kind, .flags = CORE_REGION_ALL));
}

static const struct region *find(uint32_t uid, const char *name)
{
    return regions_find_name(&core->regions, uid, name, strlen(name));
}

static uint64_t open_region(const struct region *region)
{
    require(open_file(region->store, CORE_KIND_REGION, region->id, CORE_OPEN_READ, 0, P2) == 0);
    return out.file;
}

static int refer(uint64_t by)
{
    return apply(RECORD(REGION_REFER, .file = by));
}

static int release(uint64_t by)
{
    return apply(RECORD(REGION_RELEASE, .file = by));
}

/* A committed allocation of 1000 bytes, and a reader's session of a ctl. */
static void start_with_weights(void)
{
    uint64_t session;

    store = start_store();
    session = must_open(store, LOCK_WISH_RW, P1);
    require(add_memory(session, "a") == 0);
    allocation = out.serial;
    require(commit(session) == 0);
    file = open_ctl(store, P1);
    require(acquire(file, LOCK_WISH_RO, P1, 0) == 0);
}

static int register_allocation(const char *name, uint64_t offset, uint64_t bytes)
{
    struct record record = region_record(ANNA, name);

    record.offset = offset;
    record.size_bytes = bytes;
    record.file = file;
    record.serial = allocation;
    return apply(record);
}

/* Counts the regions that the effects of the last records ended with this memory and file. */
static size_t count_over(uint64_t memory, uint64_t ctl)
{
    size_t count = 0;

    for (size_t i = 0; i < logged_count; i++)
        count += logged[i].type == EFFECT_REGION_OVER && logged[i].memory == memory &&
                 logged[i].file == ctl;
    return count;
}

TAP_TEST(a_name_is_its_owners_over_both_kinds)
{
    check_int(register_object(ANNA, "input0"), 0);
    check_int(register_object(ANNA, "input0"), -EEXIST);
    check_int(apply(handle_record(ANNA, "input0")), -EEXIST);
    check_int(register_object(BEN, "input0"), 0);
    check(find(ANNA, "input0")->id != find(BEN, "input0")->id);
    check_int(unregister(ANNA, REGION_CUDA, "input0"), -ENOENT);
    check_int(unregister(ANNA, REGION_SYSTEM, "input0"), 0);
    check(find(ANNA, "input0") == NULL && find(BEN, "input0") != NULL);
    check_int(unregister(ANNA, REGION_ANY, "input0"), -ENOENT);
}

TAP_TEST(what_was_registered_is_kept_as_it_was)
{
    check_int(register_object(ANNA, "r\xc3\xa4/1"), 0);
    const struct region *region = find(ANNA, "r\xc3\xa4/1");
    check_int(region->kind, REGION_SYSTEM);
    check_str(region->key, "/key");
    check_int(region->offset, 64);
    check_int(region->byte_size, 1000);
    check_int(region->memory, next_memory - 1);
    check(region->writable && !region->draining && region->references == 0);
    check_int(apply(handle_record(ANNA, "cu0")), 0);
    region = find(ANNA, "cu0");
    check_int(region->kind, REGION_CUDA);
    check_int(region->device_id, -1);
    check(region->raw_handle[2] == 9 && region->memory == 0);
}

TAP_TEST(what_no_region_can_be_is_refused)
{
    struct record record;

    check_int(register_object(ANNA, ""), -EINVAL);
    check_int(register_object(ANNA, "\xff"), -EINVAL);
    record = region_record(ANNA, "r");
    check_int(apply(record), -EINVAL); /* nothing that it could lie on */
    record.memory = 5;
    record.size_bytes = 0;
    check_int(apply(record), -EINVAL);
    record.size_bytes = UINT64_MAX - 10;
    check_int(apply(record), -EINVAL);
    record.size_bytes = 10;
    record.tag_bytes = 0;
    check_int(apply(record), -EINVAL);
    record.tag_bytes = 4;
    record.kind = 3;
    check_int(apply(record), -EINVAL);
    record.kind = REGION_SYSTEM;
    check_int(apply(record), 0);
    record.name = "other";
    record.name_bytes = 5;
    check_int(apply(record), -EEXIST); /* one descriptor is one region's */
    record = handle_record(ANNA, "cu");
    record.value_bytes--;
    check_int(apply(record), -EINVAL);
}

TAP_TEST(names_are_listed_by_owner_in_the_order_of_their_bytes)
{
    const char *names[] = {"b", "a", "ab", "\xc3\xa4", "B"};
    const char *sorted[] = {"B", "a", "ab", "b", "\xc3\xa4"};
    const struct region *at;

    for (size_t i = 0; i < 5; i++)
        require(register_object(ANNA, names[i]) == 0);
    require(register_object(BEN, "aa") == 0);
    at = regions_next(&core->regions, ANNA, "", 0);
    for (size_t i = 0; i < 5; i++) {
        require(at != NULL);
        check_str(at->name, sorted[i]);
        at = regions_next(&core->regions, ANNA, at->name, at->name_bytes);
    }
    check(at == NULL);
    check_str(regions_next(&core->regions, ANNA, "aa", 2)->name, "ab");
    check_int(regions_from_owner(&core->regions, 0)->uid, ANNA);
    check_int(regions_from_owner(&core->regions, ANNA + 1)->uid, BEN);
    check(regions_from_owner(&core->regions, BEN + 1) == NULL);
}

TAP_TEST(an_unregistered_region_stays_until_its_last_reference_goes)
{
    uint64_t first, second;

    require(register_object(ANNA, "r") == 0);
    uint64_t memory = find(ANNA, "r")->memory;
    first = open_region(find(ANNA, "r"));
    check_int(refer(first), 0);
    check_int(refer(first), 0); /* a file holds one */
    check_int(find(ANNA, "r")->references, 1);
    check_int(unregister(ANNA, REGION_ANY, "r"), 0);
    check(find(ANNA, "r")->draining);
    check_int(register_object(ANNA, "r"), -EEXIST);
    second = open_region(find(ANNA, "r")); /* a later client can use it */
    check_int(refer(second), 0);
    check_int(unregister(ANNA, REGION_ANY, "r"), 0);
    check_int(release(first), 0);
    check_int(release(first), -ENOLCK);
    check(find(ANNA, "r") != NULL && count_over(memory, 0) == 0);
    check_int(close_file(second), 0);
    check(find(ANNA, "r") == NULL);
    check_int(count_over(memory, 0), 1);
    check_int(refer(first), -ESTALE);
    check_int(close_file(first), 0);
    check_int(register_object(ANNA, "r"), 0);
}

TAP_TEST(all_of_a_kind_go_and_nobody_elses)
{
    require(register_object(ANNA, "a") == 0 && register_object(ANNA, "b") == 0);
    require(apply(handle_record(ANNA, "cu")) == 0 && register_object(BEN, "a") == 0);
    refer(open_region(find(ANNA, "b")));
    check_int(unregister_all(ANNA, REGION_SYSTEM), 0);
    check_int(out.count, 2);
    check(find(ANNA, "a") == NULL && find(ANNA, "b")->draining);
    check(find(ANNA, "cu") && find(BEN, "a") && !find(BEN, "a")->draining);
    check_int(unregister_all(ANNA, REGION_ANY), 0);
    check_int(out.count, 1); /* one that drains already is no other */
    check_int(unregister_all(77, REGION_ANY), 0);
    check_int(out.count, 0);
}

TAP_TEST(a_region_over_an_allocation_holds_its_readers_lock)
{
    start_with_weights();
    check_int(register_allocation("w", 0, 1001), -ERANGE);
    check_int(register_allocation("w", 990, 11), -ERANGE);
    check_int(register_allocation("w", 990, 10), 0);
    check_int(find(ANNA, "w")->store, store);
    check_int(core_find_region_allocation(core, find(ANNA, "w"))->serial, allocation);
    check_int(register_allocation("w2", 0, 10), -EBADF); /* a ctl is one region's */
    must_wait(store, LOCK_WISH_RW, P2);
    uint64_t waiter = out.waiter;
    check_int(unregister(ANNA, REGION_ANY, "w"), 0);
    check_int(count_over(0, file), 1); /* the owner of its ctl closes it */
    check_int(close_file(file), 0);
    check(core_find_waiter(core, waiter) == NULL);
}

TAP_TEST(a_reference_to_an_allocation_joins_its_session)
{
    uint64_t by;

    start_with_weights();
    require(register_allocation("w", 0, 10) == 0);
    uint64_t session = core_find_file(core, file)->session;
    by = open_region(find(ANNA, "w"));
    check_int(core_find_file(core, by)->session, 0);
    check_int(refer(by), 0);
    check_int(core_find_file(core, by)->session, session);
    check_int(
        apply(RECORD(TICKET_ADD, .file = by, .serial = allocation, .bytes16 = {5}, .uid = ANNA)),
        0);
    check_int(out.ticket.session, session);
    check_int(release(by), 0);
    check_int(core_find_session(core, session)->files, 1);
}

TAP_TEST(a_revoked_lock_ends_its_region_and_all_references)
{
    uint64_t by;

    start_with_weights();
    require(register_allocation("w", 0, 10) == 0);
    by = open_region(find(ANNA, "w"));
    require(refer(by) == 0);
    check_int(apply(RECORD(SESSION_END, .session = core_find_file(core, file)->session,
                           .flags = CORE_END_REVOKED)),
              0);
    check(find(ANNA, "w") == NULL);
    check_int(count_over(0, file), 1);
    check_int(refer(by), -ESTALE);
    check_int(release(by), -ESTALE);
    check_int(close_file(by), 0);
    check_int(close_file(file), 0);
    check_int(core_find_event(core, core->next_event - 2)->type, CORE_EVENT_RO_DISCONNECTED);
    check_int(core_find_event(core, core->next_event - 1)->type, CORE_EVENT_REGION_ENDED);
}

TAP_TEST(the_ctl_of_a_region_takes_it_along_however_it_closes)
{
    for (uint32_t flags = 0; flags <= CORE_CLOSE_LINGER; flags++) {
        start_with_weights();
        require(register_allocation("w", 0, 10) == 0);
        check_int(apply(RECORD(FILE_CLOSE, .file = file, .flags = flags)), 0);
        check(find(ANNA, "w") == NULL);
    }
    start_with_weights();
    require(register_allocation("w", 0, 10) == 0);
    check_int(apply(RECORD(DETACH, .file = file)), 0);
    check(find(ANNA, "w") == NULL);
}

TAP_TEST(only_who_holds_an_object_gets_a_ticket_for_it)
{
    struct record record = RECORD(TICKET_ADD, .bytes16 = {3}, .uid = ANNA);

    require(register_object(ANNA, "r") == 0 && apply(handle_record(ANNA, "cu")) == 0);
    record.file = open_region(find(ANNA, "r"));
    check_int(apply(record), -ENOLCK);
    require(refer(record.file) == 0);
    check_int(apply(record), 0);
    check_int(out.ticket.region, find(ANNA, "r")->id);
    check_int(core->tickets.count, 1);
    check_int(unregister(ANNA, REGION_ANY, "r"), 0);
    check_int(close_file(record.file), 0);
    check_int(core->tickets.count, 0); /* with the region */
    record.file = open_region(find(ANNA, "cu"));
    require(refer(record.file) == 0);
    check_int(apply(record), -ENODATA);
}

TAP_TEST(a_mount_that_drains_takes_no_more_regions_and_lets_go_of_those_it_has)
{
    require(register_object(ANNA, "r") == 0);
    require(apply(RECORD(DRAIN, .flags = CORE_DRAIN_ON)) == 0);
    check_int(register_object(ANNA, "s"), -ENODEV);
    check_int(unregister(ANNA, REGION_ANY, "r"), 0);
    require(apply(RECORD(DRAIN)) == 0);
    check_int(register_object(ANNA, "s"), 0);
}

TAP_TEST(no_store_is_called_regions)
{
    check_int(apply(named(RECORD(STORE_CREATE), "regions")), -EPERM);
    uint64_t other = make_store("other");
    check_int(apply(named(RECORD(STORE_RENAME, .store = other), "regions")), -EPERM);
}

TAP_TEST(a_user_takes_half_of_the_regions_at_most)
{
    char name[16];

    core_start_limits = (struct core_limits){.events = 16, .regions = 32};
    core_start();
    core_start_limits = (struct core_limits){.events = 16};
    for (unsigned i = 0; i < 15; i++) {
        snprintf(name, sizeof name, "r%u", i);
        require(register_object(ANNA, name) == 0);
    }
    check_int(register_object(ANNA, "more"), -EDQUOT);
    check_int(out.bound, CORE_BOUND_REGIONS);
    check_int(register_object(BEN, "r"), 0);
    check_int(unregister(ANNA, REGION_ANY, "r0"), 0);
    check_int(register_object(ANNA, "more"), 0);
}

TAP_TEST(names_and_keys_are_bounded_together)
{
    char name[9] = "region-a";

    core_start_limits = (struct core_limits){.events = 16, .region_bytes = 128};
    core_start();
    core_start_limits = (struct core_limits){.events = 16};
    for (; register_object(ANNA, name) == 0; name[7]++)
        ;
    check_int(name[7], 'f'); /* 5 times 8 + 4 of half of 120 */
    check_int(out.bound, CORE_BOUND_REGION_BYTES);
    check_int(register_object(BEN, "r"), 0);
}

/* ---- as bytes -------------------------------------------------------------------------------- */

static void make_all(void)
{
    start_with_weights();
    require(register_allocation("w", 8, 10) == 0);
    require(refer(open_region(find(ANNA, "w"))) == 0);
    require(register_object(ANNA, "object") == 0 && register_object(BEN, "idle") == 0);
    uint64_t by = open_region(find(ANNA, "object"));
    require(refer(by) == 0 && unregister(ANNA, REGION_ANY, "object") == 0);
    require(apply(RECORD(TICKET_ADD, .file = by, .bytes16 = {9}, .uid = 1)) == 0);
    require(apply(handle_record(ANNA, "cu")) == 0);
}

TAP_TEST(regions_come_back_from_the_bytes_of_their_state)
{
    struct core *back;

    make_all();
    back = reborn(core);
    check_int(back->regions.items.count, 4);
    for (size_t i = 0; i < 4; i++) {
        const struct region *was = core->regions.items.items[i];
        const struct region *is = core_find_region(back, was->id);

        require(is != NULL);
        check_str(is->name, was->name);
        check_str(is->key, was->key);
        check_int(is->references, was->references);
        check_int(is->draining, was->draining);
        check_int(is->device_id, was->device_id);
        check_int(is->memory, was->memory);
        check_int(is->file, was->file);
        check_bytes(is->raw_handle, sizeof is->raw_handle, was->raw_handle, sizeof was->raw_handle);
    }
    check_int(back->shares[CORE_BOUND_REGIONS].taken, 4);
    check_int(back->shares[CORE_BOUND_REGION_BYTES].taken,
              core->shares[CORE_BOUND_REGION_BYTES].taken);
    core_free(back);
}

#define REGION(uid, name) ((struct region *)find(uid, name))

TAP_TEST(core_check_notices_what_is_wrong_with_regions)
{
    make_all();
    LIE(REGION(ANNA, "w")->offset, 995);
    LIE(REGION(ANNA, "w")->byte_size, 0);
    LIE(REGION(ANNA, "w")->byte_size, UINT64_MAX);
    LIE(REGION(ANNA, "w")->file, 0);
    LIE(REGION(ANNA, "w")->store, 0);
    LIE(REGION(ANNA, "w")->serial, 0);
    LIE(REGION(ANNA, "w")->serial, 1);
    LIE(REGION(ANNA, "w")->memory, 99);
    LIE(REGION(ANNA, "w")->references, 0);
    LIE(REGION(ANNA, "w")->writable, true);
    LIE(REGION(ANNA, "object")->references, 2);
    LIE(REGION(ANNA, "object")->kind, REGION_CUDA);
    LIE(REGION(ANNA, "object")->kind, 3);
    LIE(REGION(ANNA, "object")->memory, 0);
    LIE(REGION(ANNA, "object")->memory, find(BEN, "idle")->memory);
    LIE(REGION(ANNA, "object")->memory, 1);
    LIE(REGION(ANNA, "object")->device_id, 1);
    LIE(REGION(ANNA, "object")->key_bytes, 0);
    LIE(REGION(ANNA, "object")->id, core->next_id);
    LIE(REGION(BEN, "idle")->draining, true);
    LIE(REGION(BEN, "idle")->references, 1);
    LIE(REGION(ANNA, "cu")->kind, REGION_SYSTEM);
    LIE(REGION(ANNA, "cu")->memory, 99);
    LIE(core_file(core, file)->serial, 0);
    LIE(core->shares[CORE_BOUND_REGIONS].taken, 3);
    LIE(core->shares[CORE_BOUND_REGION_BYTES].taken, 1);
    LIE(((struct core_ticket *)core->tickets.items[0])->region, 1);
    LIE(((struct core_ticket *)core->tickets.items[0])->count, 2);
    LIE(((struct core_ticket *)core->tickets.items[0])->writable, true);
}
