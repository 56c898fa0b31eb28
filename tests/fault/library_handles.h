/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library_handles - the steps of `library` on handles of stores, and the states that they begin in;
 * only library.c includes it
 */
#ifndef GMSFS_TESTS_FAULT_LIBRARY_HANDLES_H
#define GMSFS_TESTS_FAULT_LIBRARY_HANDLES_H

/* ---- states of a handle ------------------------------------------------------------------ */

static void nothing(struct scene *scene)
{
    (void)scene;
}

static void opened(struct scene *scene)
{
    must(gmsfs_open(store, &scene->handle), "gmsfs_open");
}

static void find_slot(struct scene *scene)
{
    struct gmsfs_handle_info *list = NULL;
    size_t count = 0;

    must(gmsfs_list_handles(scene->handle, NULL, &list, &count), "list_handles");
    if (count == 0)
        tool_die("the store is empty");
    scene->slot = list[0].slot;
    free(list);
}

static void reading(struct scene *scene)
{
    opened(scene);
    must(gmsfs_connect(scene->handle, GMSFS_MODE_RO, WAIT_MS), "connect RO");
    find_slot(scene);
}

static void writing(struct scene *scene)
{
    opened(scene);
    must(gmsfs_connect(scene->handle, GMSFS_MODE_RW, WAIT_MS), "connect RW");
}

static void changing(struct scene *scene)
{
    writing(scene);
    find_slot(scene);
}

static void attached(struct scene *scene)
{
    reading(scene);
    must(gmsfs_attach_all(scene->handle, GMSFS_ACCESS_READ, NULL, NULL), "attach_all");
}

static void asleep(struct scene *scene)
{
    attached(scene);
    must(gmsfs_unmap_all_vas(scene->handle, 0), "unmap_all_vas");
}

/* A writer whose memory was freed: it connects again, for new memory at the same addresses. */
static void bereft(struct scene *scene)
{
    writing(scene);
    must(gmsfs_set_slab_bytes(scene->handle, 0), "set_slab_bytes"); /* one allocation each */
    for (unsigned i = 0; i < ALLOCATIONS; i++)
        must(gmsfs_create_mapping(scene->handle, 1000, "mine", NULL, &scene->ptr),
             "create_mapping");
    must(gmsfs_unmap_all_vas(scene->handle, 0), "unmap_all_vas");
    must(gmsfs_connect(scene->handle, GMSFS_MODE_RW, WAIT_MS), "connect RW");
    must(gmsfs_clear_all_handles(scene->handle), "clear_all_handles");
}

static void invited(struct scene *scene)
{
    must(gmsfs_open(store, &scene->other), "gmsfs_open");
    must(gmsfs_connect(scene->other, GMSFS_MODE_RW, WAIT_MS), "connect RW");
    must(gmsfs_session_token(scene->other, scene->token), "session_token");
    opened(scene);
}

static void paired(struct scene *scene)
{
    opened(scene);
    must(gmsfs_open(second, &scene->other), "gmsfs_open");
}

static int connect_pair(const struct scene *scene, enum gmsfs_mode mode, uint64_t reserve_bytes)
{
    gmsfs_t *handles[] = {scene->handle, scene->other};
    uint64_t reserve[] = {reserve_bytes, reserve_bytes};

    return gmsfs_connect_group_reserve(handles, 2, mode, WAIT_MS, reserve);
}

static int commit_pair(const struct scene *scene)
{
    gmsfs_t *handles[] = {scene->handle, scene->other};

    return gmsfs_commit_group(handles, 2, 0, NULL);
}

static void paired_writing(struct scene *scene)
{
    paired(scene);
    must(connect_pair(scene, GMSFS_MODE_RW, 0), "connect_group RW");
}

static void paired_whole(struct scene *scene)
{
    paired_writing(scene);
    must(commit_pair(scene), "commit_group");
}

/* ---- steps ------------------------------------------------------------------------------- */

static int do_open(struct scene *scene)
{
    return gmsfs_open(store, &scene->handle);
}

static int do_connect_ro(struct scene *scene)
{
    return gmsfs_connect(scene->handle, GMSFS_MODE_RO, WAIT_MS);
}

static int do_connect_rw(struct scene *scene)
{
    return gmsfs_connect(scene->handle, GMSFS_MODE_RW, WAIT_MS);
}

static int do_join(struct scene *scene)
{
    return gmsfs_join(scene->handle, scene->token);
}

static int do_reopen(struct scene *scene)
{
    return gmsfs_reopen(scene->handle);
}

static int do_disconnect(struct scene *scene)
{
    int result = gmsfs_disconnect(scene->handle);

    if (result < 0)
        return result;
    result = gmsfs_connect(scene->handle, GMSFS_MODE_RW, WAIT_MS); /* nothing prevents it */
    return result < 0 ? result : gmsfs_disconnect(scene->handle);
}

static int do_info(struct scene *scene)
{
    struct gmsfs_info info;

    return gmsfs_get_info(scene->handle, &info);
}

static int do_read_layout(struct scene *scene)
{
    struct gmsfs_layout *layout = NULL;
    int result = gmsfs_read_layout(scene->handle, &layout);

    if (result == 0 && layout->entry_count != ENTRIES)
        complain("read_layout: %zu entries", layout->entry_count);
    gmsfs_free_layout(layout);
    return result;
}

static int do_list(struct scene *scene)
{
    struct gmsfs_handle_info *list = NULL;
    size_t count = 0;
    int result = gmsfs_list_handles(scene->handle, "tag", &list, &count);

    if (result == 0 && count != ALLOCATIONS)
        complain("list_handles: %zu allocations", count);
    if (result == 0)
        free(list);
    return result;
}

static int do_get(struct scene *scene)
{
    uint64_t slot, offset;
    size_t bytes = 0;
    void *value = NULL;
    int result = gmsfs_metadata_get(scene->handle, "key0", &slot, &offset, &value, &bytes);

    if (result == 0 && (bytes != 5 || memcmp(value, "value", 5) != 0))
        complain("metadata_get: other bytes");
    if (result == 0)
        free(value);
    return result;
}

static int do_list_keys(struct scene *scene)
{
    char **keys = NULL;
    size_t count = 0;
    int result = gmsfs_metadata_list(scene->handle, "key", &keys, &count);

    if (result == 0 && count != ENTRIES)
        complain("metadata_list: %zu keys", count);
    if (result == 0)
        free(keys);
    return result;
}

static int do_attach_all(struct scene *scene)
{
    struct gmsfs_mapping *list = NULL;
    size_t count = 0;
    int result = gmsfs_attach_all(scene->handle, GMSFS_ACCESS_READ, &list, &count);

    if (result)
        return result;
    if (count != ALLOCATIONS || strcmp(list[0].ptr, "bytes") != 0)
        complain("attach_all: %zu mappings, or other bytes", count);
    free(list);
    return 0;
}

static int do_attach_one(struct scene *scene)
{
    return gmsfs_attach_mapping(scene->handle, scene->slot, GMSFS_ACCESS_READ, &scene->ptr);
}

static int do_export(struct scene *scene)
{
    int fd = -1;
    int result = gmsfs_export_handle(scene->handle, scene->slot, GMSFS_ACCESS_READ, &fd);

    if (result == 0)
        close(fd);
    return result;
}

static int do_allocate(struct scene *scene)
{
    uint64_t slot;

    return gmsfs_allocate_handles(scene->handle, 3, 100, "new", NULL, 0, &slot);
}

static int do_create_mapping(struct scene *scene)
{
    int result = gmsfs_create_mapping(scene->handle, 100, "new", NULL, &scene->ptr);

    if (result == 0)
        memset(scene->ptr, 1, 100);
    return result;
}

static int do_put(struct scene *scene)
{
    struct gmsfs_metadata entry = {
        .key = "one", .value = "value", .value_bytes = 5, .slot = GMSFS_SLOT_NONE};

    return gmsfs_metadata_put(scene->handle, &entry);
}

static int do_put_many(struct scene *scene)
{
    struct gmsfs_metadata entries[ENTRIES];
    char keys[ENTRIES][16];
    size_t culprit;

    for (unsigned i = 0; i < ENTRIES; i++) {
        snprintf(keys[i], sizeof keys[i], "many%u", i);
        entries[i] = (struct gmsfs_metadata){
            .key = keys[i], .value = "value", .value_bytes = 5, .slot = scene->slot};
    }
    return gmsfs_metadata_put_many(scene->handle, entries, ENTRIES, &culprit);
}

static int do_commit(struct scene *scene)
{
    return gmsfs_commit(scene->handle, 0, NULL);
}

static int do_abort(struct scene *scene)
{
    return gmsfs_abort(scene->handle, NULL);
}

static int do_sleep(struct scene *scene)
{
    return gmsfs_unmap_all_vas(scene->handle, 0);
}

static int do_wake(struct scene *scene)
{
    return gmsfs_remap_all_vas(scene->handle, WAIT_MS, 1);
}

/* Connects to the store that it has: once by the descriptors of the same grant, once by
 * another's. */
static int do_retarget(struct scene *scene)
{
    return gmsfs_retarget(scene->handle, store, WAIT_MS);
}

static int do_reallocate(struct scene *scene)
{
    return gmsfs_reallocate_all_handles(scene->handle);
}

static int do_group_write(struct scene *scene)
{
    return connect_pair(scene, GMSFS_MODE_RW, 65536);
}

static int do_group_read(struct scene *scene)
{
    return connect_pair(scene, GMSFS_MODE_RO, 0);
}

/* Reads a complete group; `publish` has made a mix of the two, which has to be written. */
static int do_group_either(struct scene *scene)
{
    return connect_pair(scene, GMSFS_MODE_RW_OR_RO, 65536);
}

/* A commit that failed may have committed one of them: then all are written again. */
static int do_group_commit(struct scene *scene)
{
    int result = commit_pair(scene);

    if (result != -ENOLCK)
        return result;
    gmsfs_disconnect(scene->handle);
    gmsfs_disconnect(scene->other);
    result = connect_pair(scene, GMSFS_MODE_RW, 0);
    return result ? result : commit_pair(scene);
}

#endif
