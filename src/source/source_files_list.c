/* SPDX-License-Identifier: Apache-2.0 */
#include "source/source_files_list.h"

#include "base/file_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- lists --------------------------------------------------------------------------------- */

static bool is_folder(int dir, const struct dirent *entry)
{
    struct stat status;

    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
        return entry->d_type == DT_DIR;
    return fstatat(dir, entry->d_name, &status, 0) == 0 && S_ISDIR(status.st_mode);
}

static int list_directory(const char *path, struct source_list *list)
{
    SCOPED_DIR DIR *dir = opendir(path);
    struct dirent *entry;
    int error = 0;

    if (!dir)
        return -errno;
    while (!error && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            error = source_list_add(list, entry->d_name, UINT64_MAX, is_folder(dirfd(dir), entry));
    return error;
}

int source_files_list(void *state, const char *tree, const char *folder, bool is_deep,
                      struct source_list *list, struct failure *failure)
{
    SCOPED_FREE char *path = folder ? source_join(tree, folder) : strdup(tree);

    if (path && is_deep)
        return source_files_tree(&((struct source_files *)state)->bounds, path, list, failure);
    int error = path ? list_directory(path, list) : -ENOMEM;
    return error ? source_fail(failure, error, tree, "cannot list it: %s", failure_reason(error))
                 : 0;
}

/* ---- downloads ----------------------------------------------------------------------------- */

bool source_name_ends(const char *name, const char *const *endings)
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
    SCOPED_DIR DIR *dir = path ? opendir(*path ? path : ".") : NULL;
    struct dirent *entry;
    bool is_found = false;

    while (dir && !is_found && (entry = readdir(dir))) {
        is_found = source_name_ends(entry->d_name, endings);
        if (is_found)
            snprintf(text, room, " ('%s%.250s' is still there)", below, entry->d_name);
    }
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
