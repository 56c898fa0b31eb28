/* SPDX-License-Identifier: Apache-2.0 */
/* The errors that the manual lists for each call, as far as host memory and one store give them.
 * Some that other tests of tests/api meet are here too, so that one place has the whole list. */
#include <gmsfs_graph.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "api.h"

#define LONG_NAME 300

/* Allows no further descriptor, until limit_undo. */
static struct rlimit limit_before;

static void limit_descriptors(void)
{
    struct rlimit limit;
    int next = dup(STDERR_FILENO);

    require(next >= 0 && getrlimit(RLIMIT_NOFILE, &limit_before) == 0);
    close(next);
    limit = limit_before;
    limit.rlim_cur = (rlim_t)next; /* the lowest free number */
    require(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void limit_undo(void)
{
    require(setrlimit(RLIMIT_NOFILE, &limit_before) == 0);
}

static uint64_t add(gmsfs_t *store, const char *name)
{
    uint64_t slot = GMSFS_SLOT_NONE;

    check_int(gmsfs_allocate_handle(store, 4096, "t", name, &slot), 0);
    return slot;
}

TAP_TEST(opening)
{
    char path[4096], name[LONG_NAME];
    gmsfs_t *store = NULL;

    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    check_int(gmsfs_open(NULL, &store), -EINVAL);
    check_int(gmsfs_open("/", &store), -ENOTTY);
    snprintf(path, sizeof path, "%s/..", store_path());
    check_int(gmsfs_open(path, &store), -ENOTTY);
    snprintf(path, sizeof path, "%s/../none", store_path());
    check_int(gmsfs_open(path, &store), -ENOENT);
    snprintf(path, sizeof path, "%s/state", store_path());
    check_int(gmsfs_open(path, &store), -ENOTDIR);
    snprintf(path, sizeof path, "%s/state/x", store_path());
    check_int(gmsfs_open(path, &store), -ENOTDIR);
    snprintf(path, sizeof path, "%s/../%s", store_path(), name);
    check_int(gmsfs_open(path, &store), -ENAMETOOLONG);
    limit_descriptors();
    check_int(gmsfs_open(store_path(), &store), -EMFILE);
    limit_undo();
}

TAP_TEST(any_call)
{
    gmsfs_t *store = open_store();
    uint8_t token[GMSFS_TOKEN_BYTES];

    check_int(gmsfs_connect(NULL, GMSFS_MODE_RO, 0), -EINVAL);
    check_int(gmsfs_session_token(store, token), -ENOLCK);
    gmsfs_close(store);
    check_int(gmsfs_connect(store, GMSFS_MODE_RO, 0), -EBADF);
    check_int(gmsfs_session_token(store, token), -EBADF);
    check_int(gmsfs_is_connected(store), 0);
}

TAP_TEST(the_lock)
{
    auto_store *store = open_fresh_writer(), *other = open_store();
    static const uint8_t token[GMSFS_TOKEN_BYTES] = {1};
    uint8_t parsed[GMSFS_TOKEN_BYTES];
    int fd;

    check_int(gmsfs_connect(store, GMSFS_MODE_RO, 0), -EBUSY);
    check_int(gmsfs_join(store, token), -EBUSY);
    check_int(gmsfs_reopen(store), -EBUSY);
    check_int(gmsfs_connect(other, 77, 0), -EINVAL);
    check_int(gmsfs_connect(other, GMSFS_MODE_RO, 0), -EAGAIN);
    check_int(gmsfs_connect(other, GMSFS_MODE_RW, 1), -ETIMEDOUT);
    check_int(gmsfs_join(other, token), -ESTALE);
    check_int(gmsfs_connect_reserve(other, GMSFS_MODE_RO, 0, 1), -EINVAL);
    check_int(gmsfs_connect_reserve(other, GMSFS_MODE_RW, 0, UINT64_MAX / 2), -ENOMEM);
    check_int(gmsfs_connect_start(other, GMSFS_MODE_RO, 0, 0, &fd), -EAGAIN);
    check_int(gmsfs_connect_continue(other), -EINVAL);
    check_int(gmsfs_set_connect_flags(other, 1u << 30), -EINVAL);
    check_int(gmsfs_token_parse("12", parsed), -EINVAL);
    check_int(gmsfs_commit(other, 0, NULL), -ENOLCK);
    check_int(gmsfs_commit_layout(other), -ENOLCK);
    check_int(gmsfs_abort(other, NULL), -ENOLCK);
    check_int(gmsfs_connect_group(&other, 0, GMSFS_MODE_RO, 0), -EINVAL);
    check_int(gmsfs_connect_group(&other, 1, GMSFS_MODE_RW_DATA_OR_RW, 0), -EINVAL);
    check_int(gmsfs_connect_group((gmsfs_t *[]){other, other}, 2, GMSFS_MODE_RO, 0), -EINVAL);
    check_int(gmsfs_commit_group(&other, 1, 0, NULL), -ENOLCK);
}

TAP_TEST(committing)
{
    auto_store *store = open_fresh_writer();
    struct gmsfs_metadata entry = {.key = "k", .slot = add(store, NULL), .offset = 1 << 30};

    check_int(gmsfs_commit(store, 1u << 30, NULL), -EINVAL);
    check_int(gmsfs_commit(store, 0, (const uint8_t *)"0123456789abcdef"), -EINVAL);
    check_int(gmsfs_commit(store, GMSFS_COMMIT_GROUP, NULL), -EINVAL);
    check_int(gmsfs_metadata_put(store, &entry), 0);
    check_int(gmsfs_commit(store, 0, NULL), -EINVAL);
    check_int(gmsfs_commit_layout(store), -EINVAL);
    check_int(gmsfs_commit_group(&store, 1, 0, NULL), -EINVAL);
}

TAP_TEST(allocation_handles)
{
    auto_store *store = open_fresh_writer();
    struct gmsfs_handle_info info;
    uint64_t slot = add(store, "a"), first;
    int fd;

    check_int(gmsfs_allocate_handle(store, 4096, "t", "a", &first), -EEXIST);
    check_int(gmsfs_allocate_handle(store, 0, "t", NULL, &first), -EINVAL);
    check_int(gmsfs_allocate_handles(store, 2, 4096, "t", "b", 0, &first), -EINVAL);
    check_int(gmsfs_allocate_handle(store, UINT64_C(1) << 50, "t", NULL, &first), -ENOMEM);
    check_int(gmsfs_export_handle(store, slot, 0, &fd), -EINVAL);
    check_int(gmsfs_export_handle(store, slot + 9, GMSFS_ACCESS_READ, &fd), -ENOENT);
    check_int(gmsfs_get_handle_info(store, slot + 9, &info), -ENOENT);
    check_int(gmsfs_free_handle(store, slot + 9), -ENOENT);
    check_int(gmsfs_commit(store, GMSFS_COMMIT_STAY, NULL), 0);
    check_int(gmsfs_export_handle(store, slot, GMSFS_ACCESS_WRITE, &fd), -EACCES);
    limit_descriptors();
    check_int(gmsfs_export_handle(store, slot, GMSFS_ACCESS_READ, &fd), -EMFILE);
    limit_undo();
    check_int(gmsfs_allocate_handle(store, 4096, "t", NULL, &first), -ENOLCK);
    check_int(gmsfs_free_handle(store, slot), -ENOLCK);
    check_int(gmsfs_clear_all_handles(store), -ENOLCK);
    check_int(gmsfs_disconnect(store), 0);
    check_int(gmsfs_export_handle(store, slot, GMSFS_ACCESS_READ, &fd), -ENOLCK);
}

TAP_TEST(addresses)
{
    auto_store *store = open_fresh_writer();
    uint64_t granularity = granularity_of(store), slot = add(store, NULL);
    char *va = NULL;
    void *place, *other = NULL;

    check_int(gmsfs_reserve_va(store, 0, &place), -EINVAL);
    check_int(gmsfs_reserve_va(store, UINT64_MAX / 4, &place), -ENOMEM);
    check_int(gmsfs_reserve_va(store, granularity, &place), 0);
    va = place;
    check_int(gmsfs_map_va(store, va + 1, slot, GMSFS_ACCESS_WRITE), -EINVAL);
    check_int(gmsfs_map_va(store, va + granularity, slot, GMSFS_ACCESS_WRITE), -EFAULT);
    check_int(gmsfs_map_va(store, va, slot + 9, GMSFS_ACCESS_WRITE), -ENOENT);
    check_int(gmsfs_unmap_va(store, va), -ENOENT);
    check_int(gmsfs_map_va(store, va, slot, GMSFS_ACCESS_WRITE), 0);
    check_int(gmsfs_map_va(store, va, slot, GMSFS_ACCESS_WRITE), -EBUSY);
    check_int(gmsfs_free_va(store, va), -EBUSY);
    check_int(gmsfs_free_va(store, va + granularity), -ENOENT);
    check_int(gmsfs_set_slab_bytes(store, granularity), 0);
    check_int(gmsfs_create_mapping(store, 512, "t", NULL, &other), 0);
    check_int(gmsfs_unmap_va(store, other), -EBUSY);
    check_int(gmsfs_create_mapping(store, 0, "t", NULL, &other), -EINVAL);
}

TAP_TEST(mappings)
{
    auto_store *store = open_fresh_writer();
    uint64_t slot = add(store, NULL);
    void *ptr = NULL, *copy = NULL;
    int fd;

    check_int(gmsfs_attach_mapping(store, slot + 9, GMSFS_ACCESS_WRITE, &ptr), -ENOENT);
    check_int(gmsfs_attach_mapping(store, slot, GMSFS_ACCESS_WRITE, &ptr), 0);
    check_int(gmsfs_destroy_mapping(store, (char *)ptr + 512), -ENOENT);
    check_int(gmsfs_copy_private(store, ptr, 0, &copy), -EINVAL);
    check_int(gmsfs_copy_private(store, ptr, UINT64_C(1) << 40, &copy), -ENOENT);
    check_int(gmsfs_free_private(store, ptr), -ENOENT);
    check_int(gmsfs_resolve(store, store, NULL, NULL), -ENOENT);
    check_int(gmsfs_locate(store, slot + 9, 0, &ptr), -ENOENT);
    check_int(gmsfs_descriptor_of(store, store, &fd), -ENOENT);
    check_int(gmsfs_set_devices(store, NULL, 1), -EINVAL);
    check_int(gmsfs_set_streams(store, NULL, 1), -EINVAL);
    check_int(gmsfs_retarget(store, store_path(), 0), -EBUSY);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    check_int(gmsfs_descriptor_of(store, ptr, &fd), -ENOLCK);
    check_int(gmsfs_attach_mapping(store, slot, GMSFS_ACCESS_READ, &copy), -ENOLCK);
    check_int(gmsfs_reopen(store), -EBUSY);
    check_int(gmsfs_retarget(store, store_path(), 0), -ENOLCK);
    check_int(gmsfs_connect(store, GMSFS_MODE_RW, WAIT_MS), 0);
    check_int(gmsfs_clear_all_handles(store), 0);
    check_int(gmsfs_commit(store, GMSFS_COMMIT_STAY, NULL), 0);
    check_int(gmsfs_descriptor_of(store, ptr, &fd), -ENOENT);
    check_int(gmsfs_disconnect(store), 0);
    publish(4096, "other", 1);
    check_int(gmsfs_connect(store, GMSFS_MODE_RO, WAIT_MS), 0);
    check_int(gmsfs_descriptor_of(store, ptr, &fd), -ESTALE);
}

TAP_TEST(sleeping)
{
    auto_store *store = open_fresh_writer();
    void *ptr = NULL;

    check_int(gmsfs_unmap_all_vas(store, 1u << 30), -EINVAL);
    check_int(gmsfs_remap_all_vas(store, 0, 0), -EINVAL);
    check_int(gmsfs_reallocate_all_handles(store), -EINVAL);
    check_int(gmsfs_create_mapping(store, 4096, "t", NULL, &ptr), 0);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    check_int(gmsfs_reallocate_all_handles(store), -ENOLCK);
    check_int(gmsfs_unmap_tag(store, "t"), -ENOLCK);
    check_int(gmsfs_remap_tag(store, "t"), -ENOLCK);
    check_int(gmsfs_unmap_all_vas(store, 0), 0);
    check_int(gmsfs_unmap_tag(store, "t"), -EINVAL);
    check_int(gmsfs_remap_tag(store, "t"), -EINVAL);
    publish(8192, "t", 1);
    check_int(gmsfs_remap_all_vas(store, WAIT_MS, 0), -ESTALE);
    check_int(gmsfs_retarget(store, store_path(), 0), -ESTALE);
}

TAP_TEST(metadata)
{
    static char large[GMSFS_VALUE_MAX + 1];
    auto_store *store = open_fresh_writer();
    struct gmsfs_metadata entry = {.key = "k", .value = large, .slot = GMSFS_SLOT_NONE};
    struct gmsfs_layout *layout;
    char **keys;
    void *value;
    size_t count, culprit = 5;

    entry.value_bytes = sizeof large;
    check_int(gmsfs_metadata_put(store, &entry), -EFBIG);
    check_int(gmsfs_metadata_put_many(store, &entry, 1, &culprit), -EFBIG);
    check_int(culprit, 0);
    entry.value_bytes = GMSFS_VALUE_MAX;
    check_int(gmsfs_metadata_put(store, &entry), 0);
    limit_descriptors();
    check_int(gmsfs_metadata_get(store, "k", NULL, NULL, &value, NULL), -EMFILE);
    check_int(gmsfs_metadata_list(store, NULL, &keys, &count), -EMFILE);
    limit_undo();
    entry = (struct gmsfs_metadata){.key = "k", .slot = 77};
    check_int(gmsfs_metadata_put(store, &entry), -EINVAL);
    check_int(gmsfs_metadata_delete(store, "none"), -ENOENT);
    check_int(gmsfs_read_layout(store, &layout), -ENODATA);
    check_int(gmsfs_commit(store, GMSFS_COMMIT_STAY, NULL), 0);
    check_int(gmsfs_metadata_put(store, &entry), -ENOLCK);
    check_int(gmsfs_metadata_delete(store, "k"), -ENOLCK);
    limit_descriptors();
    check_int(gmsfs_read_layout(store, &layout), -EMFILE);
    limit_undo();
}

TAP_TEST(names_that_no_allocation_can_have)
{
    static char longest[GMSFS_NAME_MAX + 1], longer[GMSFS_NAME_MAX + 2];
    const char *const names[] = {".",  "..",  ".a",    "/",        "a/b",
                                 "a%", "%2f", "a\xff", "\xc0\xaf", longer};
    auto_store *store = open_fresh_writer();
    uint64_t slot;

    memset(longest, 'x', sizeof longest - 1);
    memset(longer, 'x', sizeof longer - 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct gmsfs_new_allocation one = {.size_bytes = 4096, .name = names[i]};

        check_int(gmsfs_allocate_handle(store, 4096, NULL, names[i], &slot), -EINVAL);
        check_int(gmsfs_allocate_each(store, &one, 1, 0, &slot), -EINVAL);
    }
    check_int(gmsfs_allocate_handle(store, 4096, "a\xff", NULL, &slot), -EINVAL);
    check_int(gmsfs_allocate_handle(store, 4096, longer, NULL, &slot), -EINVAL);
    check_int(gmsfs_allocate_handle(store, 4096, longest, longest, &slot), 0);
    check_int(gmsfs_allocate_handle(store, 4096, "../%", "a%2Fb", &slot), 0);
    check_int(gmsfs_allocate_handle(store, 4096, NULL, "", &slot), 0);
}

/* A slash is three bytes of its file's name. */
TAP_TEST(keys_that_no_entry_can_have)
{
    static char longer[GMSFS_KEY_MAX + 2], slashes[GMSFS_KEY_MAX / 3 + 2];
    const char *const keys[] = {"", "a\xff", "\xc0\xaf", "\xed\xa0\x80", longer, slashes};
    auto_store *store = open_fresh_writer();
    size_t culprit;

    memset(longer, 'x', sizeof longer - 1);
    memset(slashes, '/', sizeof slashes - 1);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct gmsfs_metadata entry = {.key = keys[i], .slot = GMSFS_SLOT_NONE};

        check_int(gmsfs_metadata_put(store, &entry), -EINVAL);
        check_int(gmsfs_metadata_put_many(store, &entry, 1, &culprit), -EINVAL);
        check_int(gmsfs_metadata_get(store, keys[i], NULL, NULL, NULL, NULL), -EINVAL);
        check_int(gmsfs_metadata_delete(store, keys[i]), -EINVAL);
    }
    check_int(gmsfs_metadata_get(store, "../a%", NULL, NULL, NULL, NULL), -ENOENT);
}

/* ---- a mount that dies ---------------------------------------------------------------------- */

static int death_errno; /* 0 if it continues */

int connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    errno = death_errno;
    return errno ? -1 : (int)syscall(SYS_connect, fd, address, bytes);
}

int mkdirat(int fd, const char *name, mode_t mode)
{
    errno = death_errno;
    return errno ? -1 : (int)syscall(SYS_mkdirat, fd, name, mode);
}

/* The kernel has another error for requests in flight. */
TAP_TEST(whoever_asks_as_the_mount_dies_is_told_as_all_others)
{
    struct gmsfs_region_info info;
    gmsfs_graph_pool_t *pool = NULL;
    auto_regions *regions = NULL;
    auto_store *reader = NULL;
    char path[4096];

    publish(4096, "t", 1);
    reader = open_locked(GMSFS_MODE_RO);
    snprintf(path, sizeof path, "%s/..", store_path());
    require(gmsfs_regions_open(path, &regions) == 0);
    death_errno = ECONNABORTED;
    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, NULL, NULL), -ENOTCONN);
    check_int(gmsfs_region_get(regions, GMSFS_REGION_SELF, GMSFS_REGION_ANY, "r", &info),
              -ENOTCONN);
    strcat(path, "/pool");
    check_int(gmsfs_graph_open(path, 0, &pool), -ENOTCONN);
    death_errno = 0;
    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, NULL, NULL), 0);
    check_int(gmsfs_region_get(regions, GMSFS_REGION_SELF, GMSFS_REGION_ANY, "r", &info), -ENOENT);
}
