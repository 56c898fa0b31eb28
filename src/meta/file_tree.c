/* SPDX-License-Identifier: Apache-2.0 */
#include "meta/file_tree.h"

#include <assert.h>
#include <string.h>

#define BEHIND_SLASH ('/' + 1)

/* ---- files --------------------------------------------------------------------------------- */

const char *file_tree_path(const struct layout_entry *entry, size_t *bytes)
{
    if (entry->key_bytes <= FILE_ENTRY_PREFIX_BYTES ||
        memcmp(entry->key, FILE_ENTRY_PREFIX, FILE_ENTRY_PREFIX_BYTES) != 0)
        return NULL;
    *bytes = entry->key_bytes - FILE_ENTRY_PREFIX_BYTES;
    return entry->key + FILE_ENTRY_PREFIX_BYTES;
}

static bool find_bytes(const struct layout *layout, const struct layout_entry *entry,
                       struct file_tree_file *file)
{
    if (file->size_bytes == 0)
        return true;
    file->allocation =
        entry->slot == LAYOUT_UNBOUND ? NULL : layout_find_slot(layout, entry->slot, NULL);
    file->offset = entry->offset;
    if (!file->allocation || file->allocation->spool || file->offset > INT64_MAX ||
        file->offset + file->size_bytes > file->allocation->size_bytes)
        return false;
    file->is_whole = file->offset == 0 && file->size_bytes == file->allocation->size_bytes;
    return true;
}

bool file_tree_read(const struct layout *layout, const struct layout_entry *entry,
                    struct file_tree_file *file)
{
    struct file_entry value;
    size_t bytes = 0;
    const char *path = file_tree_path(entry, &bytes);

    if (!path || file_entry_path_fault(path, bytes) ||
        file_entry_parse(entry->value, entry->value_bytes, &value) != 0)
        return false;
    *file = (struct file_tree_file){.size_bytes = value.size_bytes, .mtime_ns = value.mtime_ns};
    return find_bytes(layout, entry, file);
}

/* ---- directories --------------------------------------------------------------------------- */

/* Writes the prefix of all keys in the directory. False: no key is so long. */
static bool make_prefix(struct file_tree_walk *walk, const char *path, size_t bytes)
{
    size_t used = FILE_ENTRY_PREFIX_BYTES;

    memcpy(walk->key, FILE_ENTRY_PREFIX, FILE_ENTRY_PREFIX_BYTES);
    if (bytes > FILE_ENTRY_PATH_BYTES - 1)
        return false;
    if (bytes > 0) { /* else `path` may be NULL */
        memcpy(walk->key + used, path, bytes);
        used += bytes;
        walk->key[used++] = '/';
    }
    walk->key_bytes = used;
    return true;
}

static bool has_prefix(const struct layout_entry *entry, const char *key, size_t bytes)
{
    return entry && entry->key_bytes > bytes && memcmp(entry->key, key, bytes) == 0;
}

static const struct layout_entry *seek(struct file_tree_walk *walk, const char *key, size_t bytes)
{
    layout_cursor_seek(&walk->cursor, walk->layout, key, bytes);
    return layout_cursor_next(&walk->cursor);
}

/* Returns the first file with this prefix of keys. */
static const struct layout_entry *find_first(struct file_tree_walk *walk, const char *key,
                                             size_t bytes)
{
    const struct layout_entry *entry = seek(walk, key, bytes);
    struct file_tree_file file;

    for (; walk->skipped < FILE_TREE_MOST_SKIPPED && has_prefix(entry, key, bytes);
         walk->skipped++) {
        if (file_tree_read(walk->layout, entry, &file))
            return entry;
        entry = layout_cursor_next(&walk->cursor);
    }
    return NULL;
}

const struct layout_entry *file_tree_first(const struct layout *layout, const char *path,
                                           size_t bytes)
{
    struct file_tree_walk walk = {.layout = layout};

    return make_prefix(&walk, path, bytes) ? find_first(&walk, walk.key, walk.key_bytes) : NULL;
}

size_t file_tree_cut(const char *path, size_t bytes, unsigned depth)
{
    const char *slash = NULL, *from = path;

    for (unsigned i = 0; i < depth; i++) {
        slash = memchr(from, '/', bytes - (size_t)(from - path));
        if (!slash)
            return 0;
        from = slash + 1;
    }
    return slash && from < path + bytes ? (size_t)(slash - path) : 0;
}

static bool is_file(const struct layout *layout, const char *key, size_t bytes,
                    const struct layout_entry **entry)
{
    struct file_tree_file file;

    *entry = layout_find_entry(layout, key, bytes);
    return *entry && file_tree_read(layout, *entry, &file);
}

bool file_tree_find(const struct layout *layout, const char *path, size_t bytes, const char *name,
                    struct file_tree_child *child)
{
    struct file_tree_walk walk = {.layout = layout};
    size_t name_bytes = strlen(name), key_bytes;

    if (file_entry_name_fault(name, name_bytes) || !make_prefix(&walk, path, bytes) ||
        name_bytes > FILE_ENTRY_KEY_BYTES - walk.key_bytes)
        return false;
    key_bytes = walk.key_bytes + name_bytes;
    memcpy(walk.key + walk.key_bytes, name, name_bytes);
    *child = (struct file_tree_child){.name_bytes = name_bytes};
    if (!is_file(layout, walk.key, key_bytes, &child->entry)) {
        walk.key[key_bytes] = '/'; /* there is room for a NUL */
        child->is_directory = true;
        child->entry = find_first(&walk, walk.key, key_bytes + 1);
        if (!child->entry)
            return false;
    }
    child->name = child->entry->key + walk.key_bytes;
    return true;
}

/* ---- listing ------------------------------------------------------------------------------- */

/* Returns the length of the entry's name in the directory. */
static size_t name_length(const struct file_tree_walk *walk, const struct layout_entry *entry,
                          bool *is_directory)
{
    size_t bytes = entry->key_bytes - walk->key_bytes;
    const char *name = entry->key + walk->key_bytes, *slash = memchr(name, '/', bytes);

    *is_directory = slash != NULL;
    return slash ? (size_t)(slash - name) : bytes;
}

/* Moves behind all keys of a directory in this one. */
static void leave(struct file_tree_walk *walk, const struct layout_entry *entry, size_t name_bytes)
{
    char key[FILE_ENTRY_KEY_BYTES + 1];
    size_t bytes = walk->key_bytes + name_bytes;

    assert(bytes < sizeof key);
    memcpy(key, entry->key, bytes);
    key[bytes] = BEHIND_SLASH;
    layout_cursor_seek(&walk->cursor, walk->layout, key, bytes + 1);
}

void file_tree_begin(struct file_tree_walk *walk, const struct layout *layout, const char *path,
                     size_t bytes, const struct layout_entry *after)
{
    bool is_directory;

    *walk = (struct file_tree_walk){.layout = layout};
    if (!make_prefix(walk, path, bytes))
        walk->skipped = FILE_TREE_MOST_SKIPPED;
    if (!after || !has_prefix(after, walk->key, walk->key_bytes)) {
        layout_cursor_seek(&walk->cursor, layout, walk->key, walk->key_bytes);
        return;
    }
    size_t name_bytes = name_length(walk, after, &is_directory);
    if (is_directory) {
        leave(walk, after, name_bytes);
    } else {
        layout_cursor_seek(&walk->cursor, layout, after->key, after->key_bytes);
        layout_cursor_next(&walk->cursor);
    }
}

/* Finds the first file of a directory in this one. False: it has none, or its name is a file's. */
static bool find_in(struct file_tree_walk *walk, struct file_tree_child *child)
{
    size_t bytes = walk->key_bytes + child->name_bytes;
    const struct layout_entry *entry = child->entry, *same;
    char key[FILE_ENTRY_KEY_BYTES + 1];

    if (file_entry_name_fault(child->name, child->name_bytes) ||
        is_file(walk->layout, entry->key, bytes, &same))
        return false;
    memcpy(key, entry->key, bytes + 1); /* with the slash */
    child->entry = find_first(walk, key, bytes + 1);
    if (child->entry)
        child->name = child->entry->key + walk->key_bytes;
    return child->entry != NULL;
}

static bool is_child(struct file_tree_walk *walk, struct file_tree_child *child)
{
    const struct layout_entry *entry = child->entry;
    struct file_tree_file file;

    if (!child->is_directory)
        return file_tree_read(walk->layout, entry, &file);
    bool is_there = find_in(walk, child);
    leave(walk, entry, child->name_bytes);
    return is_there;
}

bool file_tree_next(struct file_tree_walk *walk, struct file_tree_child *child)
{
    for (; walk->skipped < FILE_TREE_MOST_SKIPPED; walk->skipped++) {
        const struct layout_entry *entry = layout_cursor_next(&walk->cursor);

        if (!has_prefix(entry, walk->key, walk->key_bytes))
            return false;
        *child = (struct file_tree_child){.entry = entry, .name = entry->key + walk->key_bytes};
        child->name_bytes = name_length(walk, entry, &child->is_directory);
        if (is_child(walk, child))
            return true;
    }
    return false;
}
