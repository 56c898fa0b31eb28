/* SPDX-License-Identifier: Apache-2.0 */
/* The fence of a checkpoint: the state of the stores that it needs, the users that may put it up,
 * and its token. */
#include "service/admin.h"
#include "service/fence.h"
#include "service/rights.h"
#include "service/stores.h"

#include "service_fixture.h"

#define OWNER  1000u
#define MEMBER 1001u
#define OTHER  1002u
#define GROUP  2000u

static struct service_fence fence;
static struct client root;
static uint64_t kv_cache;

static int in_group(const struct service_caller *caller, uint32_t gid)
{
    (void)caller;
    return gid == GROUP;
}

static void start(void)
{
    service_start();
    root = new_client(9, 0);
    require(in_step(service_store_create(service, "kv_cache", &root.caller, 0755, &kv_cache)) == 0);
}

static int open_in(struct client *client, uint64_t store, enum core_kind kind, bool write)
{
    struct service_open open = {.store = store, .kind = kind, .read = true, .write = write};

    *client = new_client(1, 0);
    require(in_step(service_open(service, &open, &client->caller, &client->request)) == 0);
    require(client->answers == 1);
    return client->error;
}

static void allocate(struct client *writer)
{
    struct service_actor by = {.file = writer->ctl, .caller = &writer->caller};
    struct service_alloc wanted = {.count = 1, .size_bytes = 10, .name = "a", .tag = ""};

    writer->answers = 0;
    defers = true;
    require(in_step(service_alloc(service, &by, &wanted, &writer->request)) == 0);
    run_deferred();
    require(writer->answers == 1 && writer->error == 0);
}

static void commit(struct client *writer, uint32_t flags)
{
    struct service_actor by = {.file = writer->ctl, .caller = &writer->caller};

    writer->answers = 0;
    require(in_step(service_commit(service, &by, flags, NULL, &writer->request)) == 0);
    require(writer->answers == 1 && writer->error == 0);
    close_file(writer->ctl);
}

static void commit_into(uint64_t store, bool empty)
{
    struct client writer;

    require(open_in(&writer, store, CORE_KIND_LOCK, true) == 0);
    if (!empty)
        allocate(&writer);
    commit(&writer, 0);
}

static int put_up(const struct client *by)
{
    return in_step(service_fence(service, &by->caller, &fence));
}

static void refused(int error, enum service_obstacle obstacle, const char *text)
{
    check_int(put_up(&root), error);
    check_int(fence.obstacle, obstacle);
    check_str(service_obstacle_text(fence.obstacle), text);
    check(!fence.is_up);
}

TAP_TEST(the_stores_must_be_as_gms_demands_it)
{
    struct client weights, kv;

    start();
    require(open_in(&weights, store_id(), CORE_KIND_LOCK, true) == 0);
    require(open_in(&kv, kv_cache, CORE_KIND_LOCK, true) == 0);
    refused(-EBUSY, SERVICE_OBSTACLE_WEIGHTS_IN_USE, "weights has active or waiting sessions");
    commit(&weights, 0);
    refused(-EBUSY, SERVICE_OBSTACLE_KV_CACHE_IN_USE, "kv_cache has active or waiting sessions");
    close_file(kv.ctl);
    refused(-EINVAL, SERVICE_OBSTACLE_WEIGHTS_EMPTY, "weights must contain committed allocations");
    commit_into(store_id(), false);
    require(open_in(&kv, kv_cache, CORE_KIND_LOCK, true) == 0);
    allocate(&kv);
    commit(&kv, CORE_COMMIT_SEAL);
    refused(-EINVAL, SERVICE_OBSTACLE_KV_CACHE_SEALED, "kv_cache must be empty before checkpoint");
    commit_into(kv_cache, false);
    refused(-EINVAL, SERVICE_OBSTACLE_KV_CACHE_COMMITTED,
            "kv_cache must not be committed before checkpoint");
    service_end();
}

TAP_TEST(weights_must_be_committed_and_there)
{
    start();
    refused(-EINVAL, SERVICE_OBSTACLE_WEIGHTS_UNCOMMITTED,
            "weights must be committed before checkpoint");
    require(in_step(service_store_rename(service, store_id(), "w", 0, &root.caller)) == 0);
    refused(-ENOENT, SERVICE_OBSTACLE_NONE, "");
    service_end();
}

TAP_TEST(a_drained_mount_is_not_fenced_nor_a_fenced_one_drained)
{
    struct service_peer admin = {.uid = 0};

    start();
    commit_into(store_id(), false);
    check_int(in_step(service_drain(service, &admin, false)), 0);
    refused(-ENODEV, SERVICE_OBSTACLE_NONE, "");
    check_int(in_step(service_serve(service, &admin)), 0);
    check_int(put_up(&root), 0);
    check_int(in_step(service_drain(service, &admin, true)), -EBUSY);
    service_end();
}

TAP_TEST(a_fence_stands_until_its_token_comes_and_keeps_every_session_out)
{
    uint8_t token[16];
    struct client client;

    start();
    commit_into(store_id(), false);
    check_int(put_up(&root), 0);
    check(fence.is_up && fence.obstacle == SERVICE_OBSTACLE_NONE);
    memcpy(token, fence.token, sizeof token);
    check_int(token[6] >> 4, 4); /* a UUID of version 4 */
    check_int(token[8] >> 6, 2);
    check_int(open_in(&client, store_id(), CORE_KIND_LOCK, false), -ENODEV);
    check_int(open_in(&client, kv_cache, CORE_KIND_LOCK, true), -ENODEV);
    check_int(put_up(&root), 0); /* the same again */
    check_bytes(fence.token, sizeof fence.token, token, sizeof token);
    token[0]++;
    check_int(in_step(service_unfence(service, &root.caller, token, false)), -EINVAL);
    token[0]--;
    check_int(in_step(service_unfence(service, &root.caller, token, false)), 0);
    check_int(in_step(service_unfence(service, &root.caller, token, false)), 0);
    check_int(in_step(service_unfence(service, &root.caller, token, true)), -ESTALE);
    service_get_fence(service, &fence);
    check(!fence.is_up);
    check_int(open_in(&client, store_id(), CORE_KIND_LOCK, false), 0);
    service_end();
}

static void set_attr(uint64_t store, uint32_t mode)
{
    struct service_store_attr attr = {.which = CORE_ATTR_UID | CORE_ATTR_GID | CORE_ATTR_MODE,
                                      .uid = OWNER,
                                      .gid = GROUP,
                                      .mode = mode};

    require(in_step(service_store_set_attr(service, store, &attr, &root.caller)) == 0);
}

TAP_TEST(only_users_that_may_write_both_stores_fence_and_end_the_fence)
{
    struct client owner = new_client(1, OWNER), other = new_client(2, OTHER);
    struct client member = new_client(3, MEMBER), admin = new_client(4, FIXTURE_ADMIN);

    member.caller.has_group = in_group;
    start();
    commit_into(store_id(), false);
    set_attr(store_id(), 0775);
    set_attr(kv_cache, 0755);
    check_int(put_up(&other), -EACCES);
    check_int(put_up(&member), -EACCES); /* weights alone */
    check_int(put_up(&admin), -EACCES);  /* this user may not write them */
    check_int(put_up(&owner), 0);
    check_int(in_step(service_unfence(service, &member.caller, fence.token, true)), -EACCES);
    check_int(service_may_fence(service, &member.caller), -EACCES);
    set_attr(kv_cache, 0775);
    check_int(service_may_fence(service, &member.caller), 0);
    check_int(in_step(service_unfence(service, &other.caller, fence.token, true)), -EACCES);
    check_int(in_step(service_unfence(service, &member.caller, fence.token, true)), 0);
    service_end();
}

static const struct core_event *event_back(uint64_t back)
{
    const struct core *core = service_get_core(service);
    const struct core_event *event = core_find_event(core, core->next_event - 1 - back);

    require(event != NULL);
    return event;
}

static void check_events(enum core_event_type type, const struct client *by)
{
    static const char *const stores[] = {"kv_cache", "weights"};

    for (uint64_t i = 0; i < 2; i++) {
        check_int(event_back(i)->type, type);
        check_str(event_back(i)->store, stores[i]);
        check_int(event_back(i)->uid, by->caller.uid);
        check_int(event_back(i)->process.pid, by->caller.processes[0].pid);
    }
}

TAP_TEST(the_events_of_a_fence_name_the_process_that_asked)
{
    struct client owner = new_client(77, OWNER);

    start();
    commit_into(store_id(), false);
    set_attr(store_id(), 0700);
    set_attr(kv_cache, 0700);
    check_int(put_up(&owner), 0);
    check_events(CORE_EVENT_FENCED, &owner);
    check_int(in_step(service_unfence(service, &root.caller, fence.token, true)), 0);
    check_events(CORE_EVENT_UNFENCED, &root);
    check_int(event_back(0)->resolved_by, CORE_FENCE_COMPLETE);
    check_int(event_back(1)->resolved_by, CORE_FENCE_COMPLETE);
    check_int(event_back(2)->resolved_by, 0);
    service_end();
}
