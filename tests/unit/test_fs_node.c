/* SPDX-License-Identifier: Apache-2.0 */
/* Names, ids, modes and sizes of the tree, over a real core. */
#include "fs/node.h"
#include "service/rights.h"

#include "core_fixture.h"

static const struct node_top TOP = {.uid = 7, .gid = 8, .started_ms = 1500, .has_socket = true};

static uint64_t root_id(void)
{
    return node_make_id(NODE_ROOT, 0);
}

static struct node must_find(uint64_t parent, const char *name)
{
    struct node node = {0}, again = {0};
    require(node_lookup(core, &TOP, parent, name, &node) == 0);
    require(node_find(core, node_get_id(&node), &again) == 0);
    check_int(again.kind, node.kind);
    check(again.store == node.store);
    return node;
}

static mode_t mode_of(uint64_t parent, const char *name)
{
    struct node node = must_find(parent, name);
    struct stat stat;
    node_stat(core, &TOP, &node, &stat);
    return stat.st_mode;
}

TAP_TEST(the_root_is_what_fuse_calls_1)
{
    core_start();
    struct node node;
    check_int(root_id(), 1);
    check_int(node_find(core, 1, &node), 0);
    check_int(node.kind, NODE_ROOT);
}

TAP_TEST(ids_of_nothing_are_not_found)
{
    core_start();
    struct node node;
    check_int(node_find(core, 0, &node), -ENOENT);
    check_int(node_find(core, 0xff, &node), -ENOENT);
    check_int(node_find(core, node_make_id(NODE_DEVICE, 5), &node), -ENOENT);
    check_int(node_find(core, node_make_id(NODE_STATE, 12345), &node), -ENOENT);
    check_int(node_find(core, node_make_id(NODE_ALLOCATION, 1), &node), -ENOENT);
    check_int(node_find(core, node_make_id(NODE_ENTRY, UINT64_MAX), &node), -ENOENT);
}

TAP_TEST(the_top_has_its_files_and_stores)
{
    core_start();
    uint64_t store = make_store("weights");
    check_int(must_find(root_id(), "device").kind, NODE_DEVICE);
    check_int(must_find(root_id(), "events").kind, NODE_EVENTS);
    check_int(must_find(root_id(), "metrics").kind, NODE_METRICS);
    check_int(must_find(root_id(), "pools").kind, NODE_POOLS);
    check_int(must_find(root_id(), ".fds").kind, NODE_FDS);
    struct node node = must_find(root_id(), "weights");
    check_int(node.kind, NODE_STORE);
    check_int(node.store->id, store);
    check_int(node_lookup(core, &TOP, root_id(), "none", &node), -ENOENT);
    check_int(node_lookup(core, &TOP, root_id(), "state", &node), -ENOENT);
}

TAP_TEST(the_socket_is_there_when_it_is_bound)
{
    core_start();
    struct node_top top = TOP;
    struct node node;
    top.has_socket = false;
    check_int(node_lookup(core, &top, root_id(), ".fds", &node), -ENOENT);
}

TAP_TEST(the_files_of_a_store_follow_its_mode)
{
    core_start();
    uint64_t store = make_store("weights");
    struct record attr = {.type = RECORD_STORE_ATTR, .store = store, .flags = CORE_ATTR_MODE};
    uint64_t parent = node_make_id(NODE_STORE, store);
    attr.mode = 0750;
    require(apply(attr) == 0);
    check_int(mode_of(root_id(), "weights"), S_IFDIR | 0750);
    check_int(mode_of(parent, "allocations"), S_IFDIR | 0750);
    check_int(mode_of(parent, "metadata"), S_IFDIR | 0750);
    check_int(mode_of(parent, "state"), S_IFREG | 0440);
    check_int(mode_of(parent, "layout"), S_IFREG | 0440);
    check_int(mode_of(parent, "lock"), S_IFREG | 0640);
    check_int(mode_of(parent, "ctl"), S_IFREG | 0640);
    check_int(mode_of(parent, "data"), S_IFREG | 0640);
    check_int(mode_of(parent, "commit"), S_IFREG | 0200);
    check_int(mode_of(parent, "seal"), S_IFREG | 0200);
    check_int(mode_of(parent, "abort"), S_IFREG | 0200);
    check_int(mode_of(root_id(), ".fds"), S_IFSOCK | 0666);
}

TAP_TEST(names_of_the_wrong_form_are_told_from_those_that_are_not_there)
{
    core_start();
    uint64_t store = make_store("weights");
    uint64_t metadata = node_make_id(NODE_METADATA, store);
    char longest[258];
    struct node node;
    check_int(node_lookup(core, &TOP, metadata, "key", &node), -ENOENT);
    check_int(node_lookup(core, &TOP, metadata, ".key", &node), -EINVAL);
    check_int(node_lookup(core, &TOP, metadata, "a%2fb", &node), -EINVAL);
    check_int(node_lookup(core, &TOP, metadata, "a%2Fb", &node), -ENOENT);
    memset(longest, 'a', sizeof longest);
    longest[256] = '\0';
    check_int(node_lookup(core, &TOP, metadata, longest, &node), -ENAMETOOLONG);
    check_int(node_lookup(core, &TOP, root_id(), longest, &node), -ENAMETOOLONG);
    longest[255] = '\0';
    check_int(node_lookup(core, &TOP, metadata, longest, &node), -ENOENT);
    check_int(node_lookup(core, &TOP, node_make_id(NODE_STATE, store), "x", &node), -ENOTDIR);
}

TAP_TEST(regions_are_found_by_owner_and_name_and_are_his_alone)
{
    struct node node;
    struct stat stat;
    core_start();
    uint64_t regions = node_make_id(NODE_REGIONS, 0);
    check_int(node_lookup(core, &TOP, root_id(), "regions", &node), 0);
    check_int(node_get_id(&node), regions);
    check_int(node_lookup(core, &TOP, regions, "1001", &node), -ENOENT);
    struct record record = named((struct record){.type = RECORD_REGION_REGISTER,
                                                 .kind = REGION_SYSTEM,
                                                 .uid = 1001,
                                                 .tag = "k",
                                                 .tag_bytes = 1,
                                                 .size_bytes = 1,
                                                 .memory = 5},
                                 "a/b");
    check_int(apply(record), 0);
    check_int(node_lookup(core, &TOP, regions, "1001", &node), 0);
    uint64_t owner = node_get_id(&node);
    node_stat(core, &TOP, &node, &stat);
    check_int(stat.st_mode, S_IFDIR | 0700);
    check_int(stat.st_uid, 1001);
    check_int(node_lookup(core, &TOP, regions, "01001", &node), -ENOENT);
    check_int(node_lookup(core, &TOP, regions, "4294968297", &node), -ENOENT); /* 2^32 + 1001 */
    check_int(node_lookup(core, &TOP, owner, "a%2Fb", &node), 0);
    check_int(node_get_id(&node), node_make_id(NODE_REGION, out.id));
    node_stat(core, &TOP, &node, &stat);
    check_int(stat.st_mode, S_IFREG | 0400);
    check(stat.st_uid == 1001 && stat.st_size == 0);
    check_int(node_lookup(core, &TOP, owner, "a", &node), -ENOENT);
    check_int(node_lookup(core, &TOP, owner, "a%2fb", &node), -EINVAL);
    check_int(apply(named((struct record){.type = RECORD_REGION_UNREGISTER, .uid = 1001}, "a/b")),
              0);
    check_int(node_find(core, owner, &node), -ENOENT);
}

static unsigned directions(enum node_kind kind)
{
    return service_get_directions(node_get_traits(kind)->file);
}

TAP_TEST(directions_are_what_the_manual_says)
{
    check_int(directions(NODE_STATE), SERVICE_READ);
    check_int(directions(NODE_SESSIONS), SERVICE_READ);
    check_int(directions(NODE_COMMIT), SERVICE_WRITE);
    check_int(directions(NODE_SEAL), SERVICE_WRITE);
    check_int(directions(NODE_ABORT), SERVICE_WRITE);
    check_int(directions(NODE_LOCK), SERVICE_READ | SERVICE_WRITE);
    check_int(directions(NODE_AUTO), SERVICE_READ | SERVICE_WRITE);
    check_int(directions(NODE_CTL), SERVICE_READ | SERVICE_WRITE);
    check_int(directions(NODE_DATA), SERVICE_READ | SERVICE_WRITE);
    check_int(directions(NODE_FDS), 0);
    check_int(directions(NODE_STORE), 0);
    check_int(directions(NODE_REGION), SERVICE_READ);
    check_int(directions(NODE_REGIONS), 0);
}
