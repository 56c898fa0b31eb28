/* SPDX-License-Identifier: Apache-2.0 */
#include "layout_fixture.h"

#include "meta/file_tree.h"

#include <stdio.h>

#define SLOT_BYTES 1000u

static uint64_t next_serial = 500;

static struct layout *layout_with_memory(void)
{
    struct layout *layout = layout_with(2);

    for (uint64_t slot = 0; slot < 2; slot++)
        require(layout_set_memory(layout, slot, slot + 1, SLOT_BYTES, 4096, false) == 0);
    return layout;
}

static const struct layout_entry *put_file(struct layout *layout, const char *path, uint64_t slot,
                                           uint64_t offset, const char *value)
{
    char key[300];
    struct layout_put one;

    snprintf(key, sizeof key, FILE_ENTRY_PREFIX "%s", path);
    one = make_put(key, slot, value, next_serial++);
    one.offset = offset;
    require(layout_put(layout, &one) == 0);
    return find(layout, key);
}

/* Puts an empty file. */
static void touch(struct layout *layout, const char *path)
{
    put_file(layout, path, LAYOUT_UNBOUND, 0, "{\"bytes\":0}");
}

/* Lists a directory as "a b/ ", one name at a time, each walk behind the last. */
static const char *list(const struct layout *layout, const char *path)
{
    static char text[1000];
    const struct layout_entry *after = NULL;
    struct file_tree_child child;
    struct file_tree_walk walk;
    size_t used = 0;

    text[0] = '\0';
    for (;;) {
        file_tree_begin(&walk, layout, path, strlen(path), after);
        if (!file_tree_next(&walk, &child))
            return text;
        used += (size_t)snprintf(text + used, sizeof text - used, "%.*s%s ", (int)child.name_bytes,
                                 child.name, child.is_directory ? "/" : "");
        after = child.entry;
    }
}

static const char *kind_of(const struct layout *layout, const char *path, const char *name)
{
    struct file_tree_child child;

    if (!file_tree_find(layout, path, strlen(path), name, &child))
        return "none";
    require(child.name_bytes == strlen(name) && memcmp(child.name, name, child.name_bytes) == 0);
    return child.is_directory ? "directory" : "file";
}

TAP_TEST(a_layout_without_files_has_no_tree)
{
    auto_layout *layout = layout_with_memory();

    check(file_tree_first(layout, "", 0) == NULL);
    put(layout, "gmsfs:file", LAYOUT_UNBOUND, "{\"bytes\":0}", 900);
    put(layout, "gmsfs:file:", LAYOUT_UNBOUND, "{\"bytes\":0}", 901);
    put(layout, "gmsfs:file;a", LAYOUT_UNBOUND, "{\"bytes\":0}", 902);
    check(file_tree_first(layout, "", 0) == NULL);
    check_str(list(layout, ""), "");
}

TAP_TEST(directories_are_listed_once_among_names_that_sort_around_the_slash)
{
    auto_layout *layout = layout_with_memory();
    static const char *const paths[] = {"a-b",   "a/x",   "a/y/z", "a/y/zz", "a.b", "a0",
                                        "a/y-1", "b/c/d", "z",     "a/y0",   "aa/q"};

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        touch(layout, paths[i]);
    check_str(list(layout, ""), "a-b a.b a/ a0 aa/ b/ z ");
    check_str(list(layout, "a"), "x y-1 y/ y0 ");
    check_str(list(layout, "a/y"), "z zz ");
    check_str(list(layout, "b"), "c/ ");
    check_str(list(layout, "none"), "");
    check_str(kind_of(layout, "", "a"), "directory");
    check_str(kind_of(layout, "", "a-b"), "file");
    check_str(kind_of(layout, "a", "y"), "directory");
    check_str(kind_of(layout, "a/y", "zz"), "file");
    check_str(kind_of(layout, "", "y"), "none");
    check_str(kind_of(layout, "a/y", ""), "none");
    check_str(kind_of(layout, "a/y", ".."), "none");
    check(file_tree_first(layout, "a/y", 3) == find(layout, FILE_ENTRY_PREFIX "a/y/z"));
}

TAP_TEST(a_name_of_a_file_and_of_a_directory_is_the_file)
{
    auto_layout *layout = layout_with_memory();

    touch(layout, "a");
    touch(layout, "a-");
    touch(layout, "a/b");
    check_str(list(layout, ""), "a a- ");
    check_str(kind_of(layout, "", "a"), "file");
    put_file(layout, "a", LAYOUT_UNBOUND, 0, "no value of a file");
    check_str(list(layout, ""), "a- a/ ");
    check_str(kind_of(layout, "", "a"), "directory");
}

TAP_TEST(entries_that_are_no_files_are_not_shown)
{
    auto_layout *layout = layout_with_memory();
    struct file_tree_file file;

    touch(layout, "../up");
    touch(layout, "/root");
    touch(layout, "d//e");
    touch(layout, "d/./e");
    touch(layout, "line\nbreak");
    put_file(layout, "value", 0, 0, "{}");
    put_file(layout, "unbound", LAYOUT_UNBOUND, 0, "{\"bytes\":1}");
    put_file(layout, "beyond", 0, 1, "{\"bytes\":1000}");
    put_file(layout, "far", 0, UINT64_MAX, "{\"bytes\":1}");
    check(file_tree_first(layout, "", 0) == NULL);
    check_str(list(layout, ""), "");
    check_str(kind_of(layout, "", "d"), "none");
    check(!file_tree_read(layout, find(layout, FILE_ENTRY_PREFIX "../up"), &file));
    check_str(kind_of(layout, "", "value"), "none");
    check_str(kind_of(layout, "", "beyond"), "none");
}

TAP_TEST(a_directory_is_there_while_a_file_is_in_it)
{
    auto_layout *layout = layout_with_memory();
    struct file_tree_child child;

    touch(layout, "d//e");
    put_file(layout, "d/a", 0, 0, "{}");
    touch(layout, "d/deep/z");
    touch(layout, "e//f");
    touch(layout, "f");
    check_str(list(layout, ""), "d/ f ");
    check_str(list(layout, "d"), "deep/ ");
    check(file_tree_find(layout, "", 0, "d", &child));
    check(child.entry == find(layout, FILE_ENTRY_PREFIX "d/deep/z"));
    check(child.entry == file_tree_first(layout, "d", 1));
    require(layout_delete(layout, FILE_ENTRY_PREFIX "d/deep/z", 19) == 0);
    check_str(list(layout, ""), "f ");
    check_str(kind_of(layout, "", "d"), "none");
}

TAP_TEST(many_names_that_are_no_files_end_a_listing)
{
    auto_layout *layout = layout_with_memory();
    char path[40];

    for (unsigned i = 0; i < FILE_TREE_MOST_SKIPPED; i++) {
        snprintf(path, sizeof path, "bad-%06u", i);
        put_file(layout, path, LAYOUT_UNBOUND, 0, "{}");
    }
    touch(layout, "good");
    check_str(list(layout, ""), "");
    require(layout_delete(layout, FILE_ENTRY_PREFIX "bad-000007", 21) == 0);
    check_str(list(layout, ""), "good ");
}

TAP_TEST(a_file_is_its_part_of_an_allocation)
{
    auto_layout *layout = layout_with_memory();
    struct file_tree_file file;

    require(file_tree_read(
        layout, put_file(layout, "whole", 1, 0, "{\"bytes\":1000,\"mtime_ns\":5}"), &file));
    check(file.is_whole && file.allocation == layout_find_slot(layout, 1, NULL));
    check(file.size_bytes == SLOT_BYTES && file.mtime_ns == 5);
    require(file_tree_read(layout, put_file(layout, "part", 0, 7, "{\"bytes\":993}"), &file));
    check(!file.is_whole && file.offset == 7 && file.mtime_ns == FILE_ENTRY_NO_TIME);
    require(file_tree_read(layout, put_file(layout, "empty", 0, 7, "{\"bytes\":0}"), &file));
    check(!file.is_whole && !file.allocation && file.size_bytes == 0);
    require(layout_set_memory(layout, 1, 9, 10, 4096, true) == 0);
    check(!file_tree_read(layout, find(layout, FILE_ENTRY_PREFIX "whole"), &file));
}

TAP_TEST(a_path_is_cut_at_a_depth)
{
    check_int((long long)file_tree_cut("a/bc/d", 6, 1), 1);
    check_int((long long)file_tree_cut("a/bc/d", 6, 2), 4);
    check_int((long long)file_tree_cut("a/bc/d", 6, 3), 0);
    check_int((long long)file_tree_cut("a/bc/", 5, 2), 0);
    check_int((long long)file_tree_cut("a/bc/d", 6, 0), 0);
}

TAP_TEST(the_longest_path_and_the_deepest_are_found)
{
    auto_layout *layout = layout_with_memory();
    char path[FILE_ENTRY_PATH_BYTES + 1] = "", above[FILE_ENTRY_PATH_BYTES + 1] = "";
    size_t depth = FILE_ENTRY_PATH_BYTES / 4 - 1;

    memset(path, 'a', FILE_ENTRY_PATH_BYTES);
    touch(layout, path);
    check_str(kind_of(layout, "", path), "file");
    path[0] = '\0';
    for (size_t i = 0; i < depth; i++)
        strcat(path, i ? "/b" : "b");
    strcpy(above, path);
    strcat(path, "/f");
    touch(layout, path);
    check_str(kind_of(layout, above, "f"), "file");
    check_str(list(layout, above), "f ");
    check_int((long long)file_tree_cut(path, strlen(path), (unsigned)depth),
              (long long)strlen(above));
}
