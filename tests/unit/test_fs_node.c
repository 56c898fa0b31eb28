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
    struct node node;
    check_int(root_id(), 1);
    check_int(node_find(core, 1, &node), 0);
    check_int(node.kind, NODE_ROOT);
}

TAP_TEST(ids_of_nothing_are_not_found)
{
    struct node node;
    check_int(node_find(core, 0, &node), -ENOENT);
    check_int(node_find(core, 0xff, &node), -ENOENT);
    check_int(node_find(core, node_make_id(NODE_DEVICE, 5), &node), -ENOENT);
    check_int(node_find(core, node_make_id(NODE_STATE, 12345), &node), -ENOENT);
    check_int(node_find(core, node_make_id(NODE_ALLOCATION, 1), &node), -ENOENT);
    check_int(node_find(core, node_make_id(NODE_ENTRY, UINT64_MAX), &node), -ENOENT);
}

/* ---- by-id --------------------------------------------------------------------------------------
 */

#define ID "01000000000000000000000000000000"

/* Makes a store with two allocations whose id is known. */
static uint64_t make_with_id(void)
{
    uint64_t store = make_store("weights"), session = must_open(store, LOCK_WISH_RW, P1);
    const struct core_store *found = core_find_store(core, store);

    require(add_memory(session, "a") == 0);
    require(add_memory(session, "b") == 0);
    require(apply(named(RECORD(ENTRY_PUT, .session = session, .slot = LAYOUT_UNBOUND), "key")) ==
            0);
    require(of_session(RECORD_COMMIT, session) == 0);
    require(apply(RECORD(CONTENTS, .store = store, .count = found->generation,
                         .offset = found->grants_rw, .bytes16 = {1})) == 0);
    return store;
}

TAP_TEST(by_id_has_what_the_id_is_of_by_rank)
{
    uint64_t store = node_make_id(NODE_STORE, make_with_id());
    struct node by_id = must_find(store, "by-id"), directory, node;
    uint64_t id;

    check_int(by_id.kind, NODE_BY_ID);
    check(!node_has_name(&(struct node){.kind = NODE_STORE}, NODE_BY_ID));
    directory = must_find(node_get_id(&by_id), ID);
    id = node_get_id(&directory);
    check_int(directory.kind, NODE_CONTENTS);
    check_int(must_find(id, "pieces").kind, NODE_PIECES);
    check_int(must_find(id, "layout").kind, NODE_LAYOUT);
    check_int(node_lookup(core, &TOP, id, "state", &node), -ENOENT);
    check_int(node_lookup(core, &TOP, id, "by-id", &node), -ENOENT);
    check_int(node_lookup(core, &TOP, id, "files", &node), -ENOENT);
    check_int(mode_of(id, "pieces"), S_IFREG | 0444);
    check_int(mode_of(id, "allocations"), S_IFDIR | 0555);
    node = must_find(id, "allocations");
    id = node_get_id(&node);
    node = must_find(id, "1");
    check_str(node.allocation->name, "b");
    check_int(mode_of(id, "1"), S_IFREG | 0444);
    for (const char *const *name =
             (const char *const[]){"2", "01", "+1", "-0", "", "a", "1 ", NULL};
         *name; name++)
        check_int(node_lookup(core, &TOP, id, *name, &node), -ENOENT);
    check_int(
        node_lookup(core, &TOP, node_get_id(&by_id), "00000000000000000000000000000000", &node),
        -ENOENT);
    check_int(
        node_lookup(core, &TOP, node_get_id(&by_id), "0100000000000000000000000000000", &node),
        -ENOENT);
}

TAP_TEST(nodes_in_by_id_are_gone_with_the_id)
{
    uint64_t store = make_with_id(), session;
    struct node by_id = must_find(node_make_id(NODE_STORE, store), "by-id");
    struct node directory = must_find(node_get_id(&by_id), ID), node;
    struct node allocations = must_find(node_get_id(&directory), "allocations");
    struct node first = must_find(node_get_id(&allocations), "0");

    session = must_open(store, LOCK_WISH_RW, P1);
    check_int(node_find(core, node_get_id(&first), &node), -ENOENT);
    check_int(node_find(core, node_get_id(&directory), &node), -ENOENT);
    require(of_session(RECORD_SESSION_END, session) == 0);
    check_int(node_find(core, node_get_id(&first), &node), 0);
    session = must_open(store, LOCK_WISH_RW, P1);
    require(of_session(RECORD_COMMIT, session) == 0);
    check_int(node_find(core, node_get_id(&first), &node), -ENOENT);
    check_int(node_lookup(core, &TOP, node_get_id(&by_id), ID, &node), -ENOENT);
}

TAP_TEST(the_top_has_its_files_and_stores)
{
    uint64_t store = start_store();
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
    struct node_top top = TOP;
    struct node node;
    top.has_socket = false;
    check_int(node_lookup(core, &top, root_id(), ".fds", &node), -ENOENT);
}

TAP_TEST(the_files_of_a_store_follow_its_mode)
{
    uint64_t store = start_store();
    struct record attr = RECORD(STORE_ATTR, .store = store, .flags = CORE_ATTR_MODE);
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
    uint64_t store = start_store();
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
    uint64_t regions = node_make_id(NODE_REGIONS, 0);
    check_int(node_lookup(core, &TOP, root_id(), "regions", &node), 0);
    check_int(node_get_id(&node), regions);
    check_int(node_lookup(core, &TOP, regions, "1001", &node), -ENOENT);
    struct record record = named(RECORD(REGION_REGISTER, .kind = REGION_SYSTEM, .uid = 1001,
                                        .tag = "k", .tag_bytes = 1, .size_bytes = 1, .memory = 5),
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
    check_int(apply(named(RECORD(REGION_UNREGISTER, .uid = 1001), "a/b")), 0);
    check_int(node_find(core, owner, &node), -ENOENT);
}

static int put_file(uint64_t session, const char *path, uint64_t slot, uint64_t offset,
                    const char *value)
{
    char key[300];

    snprintf(key, sizeof key, FILE_ENTRY_PREFIX "%s", path);
    return apply(named(RECORD(ENTRY_PUT, .session = session, .slot = slot, .offset = offset,
                              .value = (const uint8_t *)value, .value_bytes = strlen(value)),
                       key));
}

/* A store with files in one allocation of 1000 bytes. */
static uint64_t make_files(void)
{
    uint64_t store = make_store("model");
    uint64_t session = must_open(store, LOCK_WISH_RW, P3), file = out.file;

    require(add_memory(session, "w") == 0);
    uint64_t slot = slot_of(out.serial);
    require(put_file(session, "a/b/deep", slot, 0, "{\"bytes\":10}") == 0);
    require(put_file(session, "a/c", slot, 20, "{\"bytes\":30,\"mtime_ns\":1500000000}") == 0);
    require(put_file(session, "all", slot, 0, "{\"bytes\":1000}") == 0);
    require(put_file(session, "bad", slot, 1, "{\"bytes\":1000}") == 0);
    require(put_file(session, "none", LAYOUT_UNBOUND, 0, "{\"bytes\":0}") == 0);
    require(commit(session) == 0);
    require(close_file(file) == 0);
    return store;
}

TAP_TEST(a_store_shows_files_while_it_has_entries_of_files)
{
    uint64_t bare = node_make_id(NODE_STORE, make_committed("bare", NULL)), store;
    struct node node;
    struct stat stat;

    check_int(node_lookup(core, &TOP, bare, "files", &node), -ENOENT);
    check_int(node_find(core, node_make_id(NODE_FILES, bare >> 8), &node), -ENOENT);
    store = node_make_id(NODE_STORE, make_files());
    check_int(must_find(store, "files").kind, NODE_FILES);
    node = must_find(root_id(), "model");
    node_stat(core, &TOP, &node, &stat);
    check_int((long long)stat.st_nlink, 5);
}

TAP_TEST(names_below_files_are_directories_and_files_with_ids_that_find_them)
{
    uint64_t files = node_make_id(NODE_FILES, make_files());
    struct node a = must_find(files, "a"), b = must_find(node_get_id(&a), "b"), node, up;
    struct file_tree_file file;
    struct stat stat;

    check(a.kind == NODE_FILES_DIRECTORY && b.kind == NODE_FILES_DIRECTORY);
    check(a.entry == b.entry && node_get_id(&a) != node_get_id(&b));
    node = must_find(node_get_id(&b), "deep");
    check(node.kind == NODE_FILE && node.entry == b.entry);
    up = node_get_parent(core, &b);
    check(node_get_id(&up) == node_get_id(&a));
    up = node_get_parent(core, &a);
    check(node_get_id(&up) == files);
    node = must_find(node_get_id(&a), "c");
    node_stat(core, &TOP, &node, &stat);
    check(stat.st_size == 30 && stat.st_mtim.tv_sec == 1 && stat.st_mtim.tv_nsec == 500000000);
    check_int(stat.st_mode, S_IFREG | (node.store->mode & 0444u));
    require(node_get_file(core, &node, &file) == 0);
    check(file.offset == 20 && !file.is_whole && file.allocation);
    node = must_find(files, "all");
    check(node_get_file(core, &node, &file) == 0 && file.is_whole);
    node = must_find(files, "none");
    check(node_get_file(core, &node, &file) == 0 && !file.allocation);
    check_int(node_lookup(core, &TOP, files, "bad", &node), -ENOENT);
    check_int(node_lookup(core, &TOP, files, "b", &node), -ENOENT);
    check_int(node_lookup(core, &TOP, node_get_id(&a), "..", &node), -ENOENT);
}

TAP_TEST(ids_below_files_that_no_directory_has_are_not_found)
{
    uint64_t files = node_make_id(NODE_FILES, make_files());
    struct node a = must_find(files, "a"), all = must_find(files, "all"), node;
    uint64_t serial = a.entry->serial << 6;

    check_int(node_find(core, node_make_id(NODE_FILES_DIRECTORY, serial | 2), &node), 0);
    check_int(node_find(core, node_make_id(NODE_FILES_DIRECTORY, serial), &node), -ENOENT);
    check_int(node_find(core, node_make_id(NODE_FILES_DIRECTORY, serial | 3), &node), -ENOENT);
    serial = all.entry->serial << 6;
    check_int(node_find(core, node_make_id(NODE_FILES_DIRECTORY, serial | 1), &node), -ENOENT);
    check_int(node_find(core, node_make_id(NODE_FILE, UINT64_MAX >> 8), &node), -ENOENT);
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
