/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata: one by one, large, many; and the layout read whole. */
#include "api.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MANY         3000
#define LARGE_VALUES 9
#define LOOKS        2000

static struct gmsfs_metadata text_entry(const char *key, const char *value, uint64_t slot)
{
    return (struct gmsfs_metadata){
        .key = key, .value = value, .value_bytes = strlen(value), .slot = slot};
}

TAP_TEST(entries_are_put_got_replaced_and_deleted)
{
    auto_store *store = open_fresh_writer();
    struct gmsfs_metadata entry = text_entry("a.b", "one", GMSFS_SLOT_NONE);
    uint64_t slot = 0, found = 0, offset = 0;
    void *value = NULL;
    size_t value_bytes = 0;

    check_int(gmsfs_allocate_handle(store, 1000, "t", NULL, &slot), 0);
    check_int(gmsfs_metadata_get(store, "a.b", NULL, NULL, NULL, NULL), -ENOENT);
    check_int(gmsfs_metadata_put(store, &entry), 0);
    check_int(gmsfs_metadata_get(store, "a.b", &found, &offset, &value, &value_bytes), 0);
    check(found == GMSFS_SLOT_NONE);
    check_int(offset, 0);
    check_str(value, "one");
    free(value);
    entry = text_entry("a.b", "", slot);
    entry.offset = 512;
    check_int(gmsfs_metadata_put(store, &entry), 0);
    check_int(gmsfs_metadata_get(store, "a.b", &found, &offset, &value, &value_bytes), 0);
    check_int(found, slot);
    check_int(offset, 512);
    check_int(value_bytes, 0);
    free(value);
    check_int(gmsfs_metadata_delete(store, "a.b"), 0);
    check_int(gmsfs_metadata_delete(store, "a.b"), -ENOENT);
    entry = text_entry("a.b", "x", slot + 5);
    check_int(gmsfs_metadata_put(store, &entry), -EINVAL);
}

TAP_TEST(large_values_come_back_with_their_binding)
{
    static char large[GMSFS_VALUE_MAX];
    auto_store *store = open_fresh_writer();
    struct gmsfs_metadata entry = {.key = "./large%", .value = large, .value_bytes = sizeof large};
    uint64_t found = 0, offset = 0;
    void *value = NULL;
    size_t value_bytes = 0;

    for (size_t i = 0; i < sizeof large; i++)
        large[i] = (char)(i * 7);
    check_int(gmsfs_allocate_handle(store, 1, "gap", NULL, &entry.slot), 0);
    check_int(gmsfs_free_handle(store, entry.slot), 0);
    check_int(gmsfs_allocate_handle(store, 1000, "t", NULL, &entry.slot), 0);
    entry.offset = 24;
    check_int(gmsfs_metadata_put(store, &entry), 0);
    check_int(gmsfs_metadata_get(store, "./large%", &found, &offset, &value, &value_bytes), 0);
    check_bytes(value, value_bytes, large, sizeof large);
    check_int(found, entry.slot);
    check_int(offset, 24);
    free(value);
    entry.value_bytes = GMSFS_PUT_DATA_MAX - strlen(entry.key);
    check_int(gmsfs_metadata_put(store, &entry), 0);
    check_int(gmsfs_metadata_get(store, "./large%", &found, &offset, &value, &value_bytes), 0);
    check_int(value_bytes, entry.value_bytes);
    free(value);
}

TAP_TEST(many_are_put_at_once_and_listed_in_order)
{
    static char names[MANY][24];
    static struct gmsfs_metadata entries[MANY];
    auto_store *store = open_fresh_writer();
    struct gmsfs_layout *layout = NULL;
    uint64_t slot = 0;
    char **keys = NULL, hash[GMSFS_HASH_TEXT_BYTES];
    size_t count = 0;

    check_int(gmsfs_allocate_handle(store, 4 * MANY, "t", NULL, &slot), 0);
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "layer.%05d", (i * 7) % MANY);
        entries[i] = text_entry(names[i], "value", slot);
        entries[i].offset = (uint64_t)i * 4;
    }
    check_int(gmsfs_metadata_put_many(store, entries, MANY, NULL), 0);
    check_int(gmsfs_metadata_put_many(store, NULL, 0, NULL), 0);
    check_int(gmsfs_metadata_list(store, "layer.000", &keys, &count), 0);
    check_int(count, 100);
    check_str(count ? keys[7] : NULL, "layer.00007");
    free(keys);
    check_int(gmsfs_read_layout(store, &layout), -ENODATA);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    check_int(gmsfs_read_layout(store, &layout), 0);
    require(layout != NULL);
    check_int(layout->allocation_count, 1);
    check_int(layout->entry_count, MANY);
    check_str(layout->entries[MANY - 1].key, "layer.02999");
    check_int(layout->entries[7].rank, 0);
    check_int(gmsfs_get_memory_layout_hash(store, hash), 0);
    check_str(layout->hash, hash);
    gmsfs_free_layout(layout);
}

/* Lists the keys in order, each twice: first all of them, then from places in between. */
static void check_listing(DIR *directory)
{
    static const int stops[] = {2999, 0, 700, 1, 2998, 1500};
    static long places[MANY];
    char expected[24];

    for (int i = 0; i < MANY;) {
        long place = telldir(directory);
        const struct dirent *found = readdir(directory);
        require(found != NULL);
        if (found->d_name[0] == '.')
            continue;
        places[i] = place;
        snprintf(expected, sizeof expected, "layer.%05d", i++);
        check_str(found->d_name, expected);
    }
    check(readdir(directory) == NULL);
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        const struct dirent *found;
        seekdir(directory, places[stops[i]]);
        found = readdir(directory);
        snprintf(expected, sizeof expected, "layer.%05d", stops[i]);
        check_str(found ? found->d_name : NULL, expected);
    }
}

TAP_TEST(a_long_directory_is_listed_in_order_and_from_any_place)
{
    static char names[MANY][24], path[PATH_MAX];
    static struct gmsfs_metadata entries[MANY];
    auto_store *store = open_fresh_writer();
    DIR *directory;

    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "layer.%05d", (i * 7) % MANY);
        entries[i] = text_entry(names[i], "value", GMSFS_SLOT_NONE);
    }
    check_int(gmsfs_metadata_put_many(store, entries, MANY, NULL), 0);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    snprintf(path, sizeof path, "%s/metadata", store_path());
    directory = opendir(path);
    require(directory != NULL);
    check_listing(directory);
    closedir(directory);
}

TAP_TEST(a_layout_of_many_megabytes_is_read_whole)
{
    static char names[LARGE_VALUES][16];
    static struct gmsfs_metadata entries[LARGE_VALUES];
    auto_free char *value = malloc(GMSFS_VALUE_MAX);
    auto_store *store = open_fresh_writer();
    struct gmsfs_layout *layout = NULL;

    require(value != NULL);
    for (size_t i = 0; i < GMSFS_VALUE_MAX; i++)
        value[i] = (char)(i * 13 + i / 4096);
    for (int i = 0; i < LARGE_VALUES; i++) {
        snprintf(names[i], sizeof names[i], "%02d", i);
        entries[i] = (struct gmsfs_metadata){.key = names[i],
                                             .value = value + i,
                                             .value_bytes = GMSFS_VALUE_MAX - (size_t)i,
                                             .slot = GMSFS_SLOT_NONE};
    }
    check_int(gmsfs_metadata_put_many(store, entries, LARGE_VALUES, NULL), 0);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    check_int(gmsfs_read_layout(store, &layout), 0);
    require(layout != NULL && layout->entry_count == LARGE_VALUES);
    for (int i = 0; i < LARGE_VALUES; i++) {
        const struct gmsfs_layout_entry *entry = &layout->entries[i];
        check_str(entry->key, names[i]);
        check_bytes(entry->value, entry->value_bytes, value + i, GMSFS_VALUE_MAX - (size_t)i);
    }
    gmsfs_free_layout(layout);
}

TAP_TEST(a_bad_one_among_many_stops_all_and_is_named)
{
    auto_store *store = open_fresh_writer();
    struct gmsfs_metadata entries[3] = {text_entry("a", "1", GMSFS_SLOT_NONE),
                                        text_entry("b", "2", GMSFS_SLOT_NONE),
                                        text_entry("c", "3", 12345)};
    size_t culprit = 99, count = 99;
    char **keys = NULL;

    check_int(gmsfs_metadata_put_many(store, entries, 3, &culprit), -EINVAL);
    check_int(culprit, 2);
    entries[2] = text_entry("c", "3", GMSFS_SLOT_NONE);
    entries[1] = text_entry("\xff\xfe", "2", GMSFS_SLOT_NONE);
    check_int(gmsfs_metadata_put_many(store, entries, 3, &culprit), -EINVAL);
    check_int(culprit, 1);
    check_int(gmsfs_metadata_list(store, NULL, &keys, &count), 0);
    check_int(count, 0);
    free(keys);
    entries[1] = text_entry("b", "2", GMSFS_SLOT_NONE);
    check_int(gmsfs_metadata_put_many(store, entries, 3, &culprit), 0);
    check_int(gmsfs_metadata_list(store, NULL, &keys, &count), 0);
    check_int(count, 3);
    free(keys);
}

/* The value's address has no memory, so reading one byte of it would end this. */
TAP_TEST(values_beyond_the_bound_leave_what_is_there)
{
    static const size_t beyond[] = {GMSFS_VALUE_MAX + 1, SIZE_MAX - 8, SIZE_MAX - 1, SIZE_MAX};
    auto_store *store = open_fresh_writer();
    struct gmsfs_metadata entries[3] = {text_entry("a", "new", GMSFS_SLOT_NONE),
                                        text_entry("k", "v", GMSFS_SLOT_NONE),
                                        text_entry("z", "new", GMSFS_SLOT_NONE)};
    size_t culprit, count = 0;
    char **keys = NULL;

    check_int(gmsfs_metadata_put(store, entries + 1), 0);
    entries[1].value = (void *)1;
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        entries[1].value_bytes = beyond[i];
        culprit = 77;
        check_int(gmsfs_metadata_put(store, entries + 1), -EFBIG);
        check_int(gmsfs_metadata_put_many(store, entries, 3, &culprit), -EFBIG);
        check_int(culprit, 1);
    }
    check_int(gmsfs_metadata_list(store, NULL, &keys, &count), 0);
    check_int(count, 1);
    check_str(count ? keys[0] : NULL, "k");
    free(keys);
}

/* A large one takes another path than a small one. */
TAP_TEST(a_binding_that_cannot_be_leaves_the_value_that_is_there)
{
    static char large[2 * GMSFS_PUT_DATA_MAX];
    auto_store *store = open_fresh_writer();
    struct gmsfs_metadata entry = text_entry("k", "old", GMSFS_SLOT_NONE);
    auto_free void *value = NULL;
    size_t bytes = 0;

    check_int(gmsfs_metadata_put(store, &entry), 0);
    entry.slot = 12345;
    entry.value = "new";
    check_int(gmsfs_metadata_put(store, &entry), -EINVAL);
    entry.value = large;
    entry.value_bytes = sizeof large;
    check_int(gmsfs_metadata_put(store, &entry), -EINVAL);
    check_int(gmsfs_metadata_get(store, "k", &entry.slot, NULL, &value, &bytes), 0);
    check_bytes(value, bytes, "old", 3);
    check(entry.slot == GMSFS_SLOT_NONE);
}

TAP_TEST(readers_may_not_change_entries)
{
    struct gmsfs_metadata entry = text_entry("k", "v", GMSFS_SLOT_NONE);
    auto_store *reader = NULL;

    publish(10, "t", 1);
    reader = open_locked(GMSFS_MODE_RO);
    check_int(gmsfs_metadata_put(reader, &entry), -ENOLCK);
    check_int(gmsfs_metadata_put_many(reader, &entry, 1, NULL), -ENOLCK);
    check_int(gmsfs_metadata_delete(reader, "k"), -ENOLCK);
}

TAP_TEST(commit_refuses_an_offset_outside_of_what_is_mapped)
{
    auto_store *store = open_fresh_writer();
    struct gmsfs_metadata entry = text_entry("k", "v", 0);

    check_int(gmsfs_allocate_handle(store, 10, "t", NULL, &entry.slot), 0);
    entry.offset = granularity_of(store);
    check_int(gmsfs_metadata_put(store, &entry), 0);
    check_int(gmsfs_commit(store, 0, NULL), -EINVAL);
    check_int(gmsfs_granted_lock(store), GMSFS_MODE_RW);
    entry.offset--;
    check_int(gmsfs_metadata_put(store, &entry), 0);
    check_int(gmsfs_commit(store, 0, NULL), 0);
}

static int try_open(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd >= 0)
        close(fd);
    return fd >= 0 ? 0 : -1;
}

/* Looks again and again; the exit status is 0, or the errno that must not be. */
static pid_t start_looking(const char *path)
{
    struct stat attributes;
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    for (int i = 0; i < LOOKS; i++) {
        if ((i % 2 ? try_open(path) : stat(path, &attributes)) != 0 && errno != ENOENT)
            _exit(errno);
    }
    _exit(0);
}

/* Between finding a name and looking it up the entry goes, and another appears. */
TAP_TEST(what_comes_and_goes_is_there_or_not_and_never_stale)
{
    auto_store *store = open_fresh_writer();
    struct gmsfs_metadata entry = text_entry("k", "v", GMSFS_SLOT_NONE);
    char path[PATH_MAX];
    int status = 0;
    pid_t looker;

    snprintf(path, sizeof path, "%s/metadata/k", store_path());
    looker = start_looking(path);
    require(looker > 0);
    while (waitpid(looker, &status, WNOHANG) == 0) {
        check_int(gmsfs_metadata_put(store, &entry), 0);
        check_int(gmsfs_metadata_delete(store, "k"), 0);
    }
    check(WIFEXITED(status));
    check_int(WEXITSTATUS(status), 0);
}
