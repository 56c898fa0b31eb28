/* SPDX-License-Identifier: Apache-2.0 */
/* Sealing: a writer whose layout is final continues, and its successor adopts layout and bytes. */
#include <signal.h>
#include <sys/wait.h>

#include "api.h"

#define KV_BYTES 100000u

/* A sealed layout of two allocations that this writer has mapped; it continues with RW_DATA. */
static gmsfs_t *seal_two(void *pointers[2])
{
    gmsfs_t *writer = open_fresh_writer();
    struct gmsfs_metadata entry = {
        .key = "shape", .value = "2x4", .value_bytes = 3, .slot = GMSFS_SLOT_NONE};

    for (int i = 0; i < 2; i++) {
        require(gmsfs_create_mapping(writer, KV_BYTES, "kv", NULL, &pointers[i]) == 0);
        memset(pointers[i], 'a' + i, KV_BYTES);
    }
    check_int(gmsfs_metadata_put(writer, &entry), 0);
    check_int(gmsfs_commit_layout(writer), 0);
    return writer;
}

static gmsfs_t *adopt(void)
{
    return open_locked(GMSFS_MODE_RW_DATA_OR_RW);
}

/* The first test, because a child of a process that has used a GPU cannot use it, and this one
 * writes. */
TAP_TEST(a_successor_waits_until_the_process_that_has_the_memory_has_exited)
{
    struct gmsfs_mapping *list = NULL;
    int sealed[2], go[2], status = -1;
    gmsfs_t *store;
    size_t count = 0;
    pid_t child;
    char byte;

    require(pipe(sealed) == 0 && pipe(go) == 0);
    child = fork();
    if (child == 0) { /* it closes its handle, and keeps a descriptor of the memory */
        void *kv[2];
        int fd;
        gmsfs_t *writer = seal_two(kv);

        if (gmsfs_export_handle(writer, 0, GMSFS_ACCESS_WRITE, &fd) != 0)
            _exit(1);
        gmsfs_close(writer);
        if (write(sealed[1], "s", 1) != 1 || read(go[0], &byte, 1) != 1)
            _exit(2);
        _exit(pwrite(fd, "last", 4, 0) == 4 ? 0 : 3);
    }
    require(read(sealed[0], &byte, 1) == 1);
    store = open_store();
    check_int(gmsfs_connect(store, GMSFS_MODE_RW_DATA_OR_RW, 0), -EAGAIN);
    check_int(gmsfs_connect(store, GMSFS_MODE_RW_DATA_OR_RW, 100), -ETIMEDOUT);
    require(write(go[1], "g", 1) == 1);
    check_int(gmsfs_connect(store, GMSFS_MODE_RW_DATA_OR_RW, WAIT_MS), 0);
    check_int(gmsfs_granted_lock(store), GMSFS_MODE_RW_DATA);
    require(waitpid(child, &status, 0) == child);
    check_int(status, 0);
    require(gmsfs_attach_all(store, GMSFS_ACCESS_WRITE, &list, &count) == 0);
    check(memcmp(list[0].ptr, "last", 4) == 0);
    free(list);
    gmsfs_close(store);
    for (int i = 0; i < 2; i++) {
        close(sealed[i]);
        close(go[i]);
    }
}

TAP_TEST(a_writer_that_seals_goes_on_with_its_bytes_alone)
{
    struct gmsfs_info info = {0};
    char hash[GMSFS_HASH_TEXT_BYTES];
    void *kv[2], *more;
    auto_store *writer = seal_two(kv);
    uint64_t slot;

    check_int(gmsfs_granted_lock(writer), GMSFS_MODE_RW_DATA);
    check_str(rights_at(kv[0]), "rw-s");
    memset(kv[0], 'x', KV_BYTES);
    check_int(gmsfs_allocate_handle(writer, 1, "", NULL, &slot), -ENOLCK);
    check_int(gmsfs_create_mapping(writer, 1, "", NULL, &more), -ENOLCK);
    check_int(gmsfs_free_handle(writer, 0), -ENOLCK);
    check_int(gmsfs_clear_all_handles(writer), -ENOLCK);
    check_int(gmsfs_metadata_delete(writer, "shape"), -ENOLCK);
    check_int(gmsfs_commit(writer, 0, NULL), -ENOLCK);
    check_int(gmsfs_commit_layout(writer), -ENOLCK);
    check_int(gmsfs_get_info(writer, &info), 0);
    check_int(info.mode, GMSFS_MODE_RW_DATA);
    check_int(info.state, GMSFS_STATE_RW);
    check_int(info.committed, 0);
    check_int(info.sealed, 1);
    check_int(info.generation, gmsfs_generation(writer));
    check_int(gmsfs_get_memory_layout_hash(writer, hash), 0);
    check_str(hash, info.layout_hash);
    check_int(strlen(hash), 32);
}

TAP_TEST(the_next_writer_adopts_the_layout_and_its_bytes)
{
    struct gmsfs_mapping *list = NULL;
    struct gmsfs_layout *layout = NULL;
    void *kv[2];
    gmsfs_t *store = seal_two(kv);
    size_t count = 0;

    gmsfs_close(store); /* the process that has the memory also continues */
    store = adopt();
    check_int(gmsfs_granted_lock(store), GMSFS_MODE_RW_DATA);
    check_int(gmsfs_read_layout(store, &layout), 0);
    check_int(layout->entry_count, 1);
    require(gmsfs_attach_all(store, GMSFS_ACCESS_WRITE, &list, &count) == 0);
    check_int(count, 2);
    for (size_t i = 0; i < count; i++) {
        check_str(rights_at(list[i].ptr), "rw-s");
        check_int(*(char *)list[i].ptr, 'a' + (int)i);
        check_int(((char *)list[i].ptr)[KV_BYTES - 1], 'a' + (int)i);
    }
    memset(list[1].ptr, 'z', KV_BYTES);
    free(list);
    gmsfs_free_layout(layout);
    check_int(gmsfs_disconnect(store), 0);
    gmsfs_close(store);
    store = adopt();
    require(gmsfs_attach_all(store, GMSFS_ACCESS_READ, &list, &count) == 0);
    check_int(*(char *)list[1].ptr, 'z');
    free(list);
    gmsfs_close(store);
}

TAP_TEST(data_or_rw_is_a_whole_writer_where_nothing_is_sealed)
{
    auto_store *store = NULL;

    publish(KV_BYTES, "weights", 1);
    store = adopt();
    check_int(gmsfs_granted_lock(store), GMSFS_MODE_RW);
}

TAP_TEST(rw_data_is_granted_and_never_asked_for)
{
    auto_store *store = open_store();

    check_int(gmsfs_connect(store, GMSFS_MODE_RW_DATA, 0), -EINVAL);
    check_int(gmsfs_connect(store, (enum gmsfs_mode)6, 0), -EINVAL);
}

TAP_TEST(rw_begins_with_nothing_where_a_layout_is_sealed)
{
    void *kv[2];
    gmsfs_t *store = seal_two(kv);
    struct gmsfs_info info = {0};

    gmsfs_close(store);
    store = open_locked(GMSFS_MODE_RW);
    check_int(gmsfs_get_info(store, &info), 0);
    check_int(info.allocations, 0);
    check_int(info.sealed, 0);
    gmsfs_close(store);
}

TAP_TEST(an_abort_of_what_is_sealed_keeps_it)
{
    void *kv[2];
    auto_store *store = seal_two(kv);
    struct gmsfs_info info = {0};
    int rolled_back = 1;

    check_int(gmsfs_abort(store, &rolled_back), 0);
    check_int(rolled_back, 0);
    check_int(gmsfs_granted_lock(store), GMSFS_MODE_NONE);
    check_int(gmsfs_get_info(store, &info), 0);
    check_int(info.state, GMSFS_STATE_LAYOUT_COMMITTED);
    check_int(info.allocations, 2);
}

TAP_TEST(what_is_sealed_sleeps_and_wakes_at_its_addresses_as_it_was_mapped)
{
    void *kv[2];
    auto_store *store = seal_two(kv);

    for (int keeps_lock = 1; keeps_lock >= 0; keeps_lock--) {
        check_int(gmsfs_unmap_all_vas(store, keeps_lock), 0);
        if (!keeps_lock)
            check_int(gmsfs_connect(store, GMSFS_MODE_RW_DATA_OR_RW, WAIT_MS), 0);
        check_int(gmsfs_granted_lock(store), GMSFS_MODE_RW_DATA);
        check_int(gmsfs_remap_all_vas(store, WAIT_MS, 1), 0);
        check_str(rights_at(kv[0]), "rw-s");
        check_int(*(char *)kv[1], 'b');
    }
}

TAP_TEST(a_layout_with_an_entry_beyond_its_allocation_is_not_sealed)
{
    auto_store *store = open_fresh_writer();
    struct gmsfs_metadata entry = {
        .key = "k", .value = "", .value_bytes = 0, .slot = 0, .offset = 1ull << 40};

    check_int(gmsfs_allocate_handle(store, 1, "", NULL, &entry.slot), 0);
    check_int(gmsfs_metadata_put(store, &entry), 0);
    check_int(gmsfs_commit_layout(store), -EINVAL);
    check_int(gmsfs_granted_lock(store), GMSFS_MODE_RW);
}

TAP_TEST(a_member_that_joins_a_sealed_session_maps_it_for_writing)
{
    void *kv[2], *mapped = NULL;
    auto_store *store = seal_two(kv), *member = open_store();
    uint8_t token[GMSFS_TOKEN_BYTES];
    int fd = -1;

    check_int(gmsfs_session_token(store, token), 0);
    check_int(gmsfs_join(member, token), 0);
    check_int(gmsfs_granted_lock(member), GMSFS_MODE_RW_DATA);
    check_int(gmsfs_attach_mapping(member, 1, GMSFS_ACCESS_WRITE, &mapped), 0);
    *(char *)mapped = '!';
    check_int(*(char *)kv[1], '!');
    check_int(gmsfs_descriptor_of(member, mapped, &fd), 0);
    check_int(pwrite(fd, "?", 1, 0), 1);
    check_int(*(char *)kv[1], '?');
    close(fd);
}
