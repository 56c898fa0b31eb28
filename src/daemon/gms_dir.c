/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gms_dir.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const VARIABLES[] = {"TMPDIR", "TEMP", "TMP"};
static const char *const DIRECTORIES[] = {"/tmp", "/var/tmp", "/usr/tmp"};

static const char *read_variable(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

/* Python's tempfile creates a file to find this out; access(2) is close enough. */
static bool is_usable(const char *dir)
{
    struct stat found;

    return stat(dir, &found) == 0 && S_ISDIR(found.st_mode) && access(dir, W_OK | X_OK) == 0;
}

static int make_absolute(const char *path, char *absolute, size_t bytes)
{
    char here[PATH_MAX] = "";

    if (path[0] != '/' && !getcwd(here, sizeof here))
        return -errno;
    int written = snprintf(absolute, bytes, "%s%s%s", here, *here ? "/" : "", path);
    return written < 0 || (size_t)written >= bytes ? -ENAMETOOLONG : 0;
}

int gms_dir_find(char *dir, size_t bytes)
{
    const char *path = read_variable("GMS_SOCKET_DIR");

    if (path)
        return make_absolute(path, dir, bytes);
    for (size_t i = 0; i < sizeof VARIABLES / sizeof VARIABLES[0]; i++) {
        path = read_variable(VARIABLES[i]);
        if (path && is_usable(path))
            return make_absolute(path, dir, bytes);
    }
    for (size_t i = 0; i < sizeof DIRECTORIES / sizeof DIRECTORIES[0]; i++) {
        if (is_usable(DIRECTORIES[i]))
            return make_absolute(DIRECTORIES[i], dir, bytes);
    }
    return -ENOENT;
}
