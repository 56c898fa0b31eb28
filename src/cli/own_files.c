/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/own_files.h"

#include "base/file_io.h"
#include "cli/cli.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* `lock`, `auto`, `data` and allocations. */
static bool holds_session(const char *file)
{
    static const char allocations[] = "/allocations/";
    const char *name = strrchr(file, '/') + 1;

    return strstr(file, allocations) || strcmp(name, "lock") == 0 || strcmp(name, "auto") == 0 ||
           strcmp(name, "data") == 0;
}

static bool is_below(const char *directory, const char *file)
{
    size_t bytes = strlen(directory);

    return strncmp(file, directory, bytes) == 0 && file[bytes] == '/';
}

/* The first one; false: there is none. */
static bool find_own(const char *directory, int *number, char file[PATH_MAX])
{
    SCOPED_DIR DIR *own = opendir("/proc/self/fd");
    struct dirent *entry;
    bool found = false;

    while (own && !found && (entry = readdir(own))) {
        ssize_t bytes = readlinkat(dirfd(own), entry->d_name, file, PATH_MAX - 1);
        if (bytes <= 0)
            continue;
        file[bytes] = '\0';
        found = is_below(directory, file) && holds_session(file);
        *number = atoi(entry->d_name);
    }
    return found;
}

bool own_files_warn(const char *path)
{
    static bool told;
    char directory[PATH_MAX], file[PATH_MAX];
    int number = -1;

    if (!realpath(path, directory) || !find_own(directory, &number, file))
        return false;
    if (!told)
        cli_error("%s: this command (process %d) waits for itself: its descriptor %d is %s, which "
                  "it has from the process that started it; close it there, a shell by 'exec "
                  "%d>&-'",
                  path, (int)getpid(), number, file, number);
    told = true;
    return true;
}
