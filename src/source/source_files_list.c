/* SPDX-License-Identifier: Apache-2.0 */
#include "source/source_files_list.h"

#include "base/scope.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- lists --------------------------------------------------------------------------------- */

/* Returns true for a directory; through links, unless is_deep: they could lead out, and in circles.
 */
static bool is_folder(int dir, const struct dirent *entry, bool is_deep)
{
    struct stat status;

    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
        return entry->d_type == DT_DIR;
    return fstatat(dir, entry->d_name, &status, is_deep ? AT_SYMLINK_NOFOLLOW : 0) == 0 &&
           S_ISDIR(status.st_mode);
}

static int list_directory(int above, const char *path, const char *prefix, bool is_deep,
                          struct source_list *list);

static int list_entry(int dir, const struct dirent *entry, const char *prefix, bool is_deep,
                      struct source_list *list)
{
    bool is_below = is_folder(dir, entry, is_deep);
    SCOPED_FREE char *name = source_join(prefix, entry->d_name);

    if (!name)
        return -ENOMEM;
    if (is_below && is_deep)
        return list_directory(dir, entry->d_name, name, true, list);
    return source_list_add(list, name, UINT64_MAX, is_below);
}

/* The kernel bounds the depth: a path that is too long cannot be opened. */
static int list_directory(int above, const char *path, const char *prefix, bool is_deep,
                          struct source_list *list)
{
    int fd = openat(above, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!dir) {
        error = -errno;
        if (fd >= 0)
            close(fd);
        return error;
    }
    if (strlen(prefix) > SOURCE_MAX_NAME_BYTES)
        error = -ENAMETOOLONG;
    while (!error && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            error = list_entry(fd, entry, prefix, is_deep, list);
    closedir(dir);
    return error;
}

int source_files_list(void *state, const char *tree, const char *folder, bool is_deep,
                      struct source_list *list, struct failure *failure)
{
    SCOPED_FREE char *path = folder ? source_join(tree, folder) : strdup(tree);
    int error = path ? list_directory(AT_FDCWD, path, "", is_deep, list) : -ENOMEM;

    (void)state;
    return error ? source_fail(failure, error, tree, "cannot list it: %s", failure_reason(error))
                 : 0;
}

/* ---- downloads ----------------------------------------------------------------------------- */

static bool has_ending(const char *name, const char *const *endings)
{
    size_t length = strlen(name);

    for (; *endings; endings++)
        if (length > strlen(*endings) && strcmp(name + length - strlen(*endings), *endings) == 0)
            return true;
    return false;
}

/* Searches hidden files, too: some tools hide unfinished files. */
static bool find_in(const char *directory, const char *below, char *text, size_t room)
{
    static const char *const endings[] = {".incomplete", ".aria2",      ".part",
                                          ".partial",    ".crdownload", NULL};
    SCOPED_FREE char *path = source_join(directory, below);
    DIR *dir = path ? opendir(*path ? path : ".") : NULL;
    struct dirent *entry;
    bool is_found = false;

    while (dir && !is_found && (entry = readdir(dir))) {
        is_found = has_ending(entry->d_name, endings);
        if (is_found)
            snprintf(text, room, " ('%s%.250s' is still there)", below, entry->d_name);
    }
    if (dir)
        closedir(dir);
    return is_found;
}

void source_files_tell_unfinished(void *state, const char *tree, char *text, size_t room)
{
    static const char *const places[] = {"", ".cache/huggingface/download/", "../../blobs/"};

    (void)state;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (find_in(tree, places[i], text, room))
            return;
}
