/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mounts.h"

#include "base/failure.h"
#include "base/file_io.h"
#include "cli/cli.h"
#include "cli/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define MOUNTINFO     "/proc/self/mountinfo"
#define FSTYPE        "fuse.gmsfs"
#define FUSE_MAGIC    0x65735546 /* f_type; linux/magic.h of older systems has it not */
#define POLL_MAX_MS   200u       /* looked at anew at the latest after that */
#define FIELD_ID      0
#define FIELD_DEVICE  2
#define FIELD_ROOT    3
#define FIELD_PATH    4
#define FIELD_OPTIONS 5
#define FIELDS        6
#define OPTION_OWNER  "user_id=" /* of FUSE: the mounting user */

/* \040 and the like, as the kernel writes blanks and backslashes; in place. */
static void mounts_unescape(char *text)
{
    char *to = text;

    while (*text) {
        if (text[0] == '\\' && text[1] >= '0' && text[1] <= '3' && text[2] >= '0' &&
            text[2] <= '7' && text[3] >= '0' && text[3] <= '7') {
            *to++ = (char)((text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0'));
            text += 4;
        } else {
            *to++ = *text++;
        }
    }
    *to = '\0';
}

static char *mounts_copy(const char *text)
{
    char *copy = cli_need(strdup(text));

    mounts_unescape(copy);
    return copy;
}

/* Returns the mounting user; -1, which is no user, if the options lack it. */
static uid_t mounts_parse_owner(const char *options)
{
    const char *owner = options ? strstr(options, OPTION_OWNER) : NULL;

    return owner ? (uid_t)strtoul(owner + strlen(OPTION_OWNER), NULL, 10) : (uid_t)-1;
}

/* "0:57" */
static uint64_t mounts_parse_device(const char *text)
{
    unsigned major = 0, minor = 0;

    sscanf(text, "%u:%u", &major, &minor);
    return (uint64_t)major << 32 | minor;
}

/* Takes the texts of the mount. */
static void mounts_append(struct mounts *mounts, struct mount mount)
{
    mounts->list = cli_need(realloc(mounts->list, (mounts->count + 1) * sizeof(mount)));
    mounts->list[mounts->count++] = mount;
}

/* Adds the mount of a line, unless the line is about something else. */
static void mounts_add(struct mounts *mounts, char *line)
{
    char *fields[FIELDS], *rest = line, *type, *source;

    for (int i = 0; i < FIELDS; i++) {
        fields[i] = strsep(&rest, " ");
        if (!rest)
            return;
    }
    /* Optional fields come here, and a lone "-" ends them. */
    if (strncmp(rest, "- ", 2) != 0) {
        rest = strstr(rest, " - ");
        if (!rest)
            return;
        rest++;
    }
    rest += 2;
    type = strsep(&rest, " ");
    source = rest ? strsep(&rest, " ") : NULL;
    if (!source || strcmp(type, FSTYPE) != 0)
        return;
    mounts_append(mounts, (struct mount){.id = strtoull(fields[FIELD_ID], NULL, 10),
                                         .device = mounts_parse_device(fields[FIELD_DEVICE]),
                                         .root = mounts_copy(fields[FIELD_ROOT]),
                                         .path = mounts_copy(fields[FIELD_PATH]),
                                         .source = mounts_copy(source),
                                         .read_only = strncmp(fields[FIELD_OPTIONS], "ro", 2) == 0,
                                         .owner = mounts_parse_owner(rest)});
}

void mounts_parse(const char *text, struct mounts *mounts)
{
    SCOPED_FREE char *copy = cli_need(strdup(text));
    char *rest = copy, *line;

    memset(mounts, 0, sizeof(*mounts));
    while ((line = strsep(&rest, "\n")))
        if (strstr(line, " - "))
            mounts_add(mounts, line);
}

static int mounts_read_file(const char *file, struct mounts *mounts)
{
    SCOPED_FREE char *text = NULL;
    int error = store_read_text(file, &text);

    if (!error)
        mounts_parse(text, mounts);
    return error;
}

int mounts_read(struct mounts *mounts)
{
    return mounts_read_file(MOUNTINFO, mounts);
}

int mounts_read_of(pid_t pid, struct mounts *mounts)
{
    char file[64];

    snprintf(file, sizeof(file), "/proc/%d/mountinfo", (int)pid);
    return mounts_read_file(file, mounts);
}

/* ---- without a table ----------------------------------------------------------------------- */

bool mounts_is_top(int dir_fd)
{
    struct statfs fs;

    return fstatfs(dir_fd, &fs) == 0 && (unsigned long)fs.f_type == FUSE_MAGIC &&
           faccessat(dir_fd, ".fds", F_OK, 0) == 0 && faccessat(dir_fd, "device", F_OK, 0) == 0;
}

/* The mount that `path` lies in, if it is one, by looking at the directories above. */
static void mounts_add_seen(struct mounts *mounts, const char *path)
{
    char at[PATH_MAX];
    bool is_top = false;

    if (!realpath(path, at))
        return;
    for (;;) {
        int fd = open(at, O_PATH | O_DIRECTORY | O_CLOEXEC);
        is_top = fd >= 0 && mounts_is_top(fd);
        if (fd >= 0)
            close(fd);
        if (is_top || !strrchr(at, '/') || at[1] == '\0')
            break;
        strrchr(at, '/')[strrchr(at, '/') == at] = '\0';
    }
    if (is_top)
        mounts_append(mounts, (struct mount){.path = mounts_copy(at),
                                             .root = mounts_copy("/"),
                                             .source = mounts_copy("")});
}

int mounts_read_for(char *const *paths, size_t count, struct mounts *mounts)
{
    int error = mounts_read(mounts);

    if (error != -ENOENT || count == 0)
        return error;
    memset(mounts, 0, sizeof(*mounts));
    for (size_t i = 0; i < count; i++)
        mounts_add_seen(mounts, paths[i]);
    return 0;
}

int mounts_explain(int error)
{
    return cli_error("cannot read the table of mounts, " MOUNTINFO ": %s%s", failure_reason(error),
                     error == -ENOENT ? "; mount /proc here, or call this where it is" : "");
}

void mounts_free(struct mounts *mounts)
{
    for (size_t i = 0; i < mounts->count; i++) {
        free(mounts->list[i].root);
        free(mounts->list[i].path);
        free(mounts->list[i].source);
    }
    free(mounts->list);
    memset(mounts, 0, sizeof(*mounts));
}

/* Does `path` lie at or below `top`? */
static bool mounts_is_at(const char *path, const char *top, bool inside)
{
    size_t length = strlen(top);

    if (strcmp(path, top) == 0)
        return true;
    return inside && strncmp(path, top, length) == 0 && path[length] == '/';
}

static const struct mount *mounts_find_exact(const struct mounts *mounts, const char *path,
                                             bool inside)
{
    const struct mount *best = NULL;

    for (size_t i = 0; i < mounts->count; i++) {
        const struct mount *mount = &mounts->list[i];
        if (mounts_is_at(path, mount->path, inside) &&
            (!best || strlen(mount->path) >= strlen(best->path)))
            best = mount;
    }
    return best;
}

/* Absolute, without a trailing slash, "." or an empty part; ".." is left to realpath(3). */
static int mounts_clean_path(const char *path, char clean[PATH_MAX])
{
    char joined[PATH_MAX], *rest = joined, *part;
    size_t used = 0;
    int length;

    if (path[0] == '/') {
        length = snprintf(joined, sizeof(joined), "%s", path);
    } else {
        char here[PATH_MAX];
        if (!getcwd(here, sizeof(here)))
            return -errno;
        length = snprintf(joined, sizeof(joined), "%s/%s", here, path);
    }
    if (length < 0 || length >= PATH_MAX)
        return -ENAMETOOLONG;
    while ((part = strsep(&rest, "/"))) {
        if (!*part || strcmp(part, ".") == 0)
            continue;
        used += (size_t)snprintf(clean + used, PATH_MAX - used, "/%s", part);
    }
    if (used == 0)
        strcpy(clean, "/");
    return 0;
}

/* Symbolic links of the directory that holds the last part are followed: a mount point itself is
 * never touched. */
static int mounts_resolve_parent(const char *clean, char resolved[PATH_MAX])
{
    char parent[PATH_MAX], real[PATH_MAX];
    const char *last = strrchr(clean, '/');

    snprintf(parent, sizeof(parent), "%.*s/", (int)(last - clean), clean);
    if (!realpath(parent, real))
        return -errno;
    if (strcmp(real, "/") == 0)
        real[0] = '\0';
    if (snprintf(resolved, PATH_MAX, "%s%s", real, last) >= PATH_MAX)
        return -ENAMETOOLONG;
    return 0;
}

const struct mount *mounts_find(const struct mounts *mounts, const char *path, bool inside)
{
    char clean[PATH_MAX], resolved[PATH_MAX];

    if (mounts_clean_path(path, clean) != 0)
        return NULL;
    const struct mount *found = mounts_find_exact(mounts, clean, inside);
    if (!found && mounts_resolve_parent(clean, resolved) == 0)
        found = mounts_find_exact(mounts, resolved, inside);
    /* Follows a link to a mount point; does not look inside a mount, which may not answer. */
    if (!found && !mounts_find_exact(mounts, clean, true) && realpath(clean, resolved))
        found = mounts_find_exact(mounts, resolved, inside);
    return found;
}

int mounts_has(uint64_t id)
{
    SCOPED_MOUNTS struct mounts mounts = {0};
    int found = 0, error = mounts_read(&mounts);

    for (size_t i = 0; i < mounts.count; i++)
        found |= mounts.list[i].id == id;
    return error ? error : found;
}

int mounts_wait_gone(uint64_t id, uint64_t timeout_ms)
{
    SCOPED_CLOSE int fd = open(MOUNTINFO, O_RDONLY | O_CLOEXEC);
    struct pollfd change = {.fd = fd, .events = POLLPRI};
    uint64_t start_ms = clock_now_ms(), left_ms;
    int error;

    if (fd < 0)
        return -errno;
    while ((error = mounts_has(id)) > 0) {
        left_ms = cli_left_ms(start_ms, timeout_ms);
        if (left_ms == 0)
            return -ETIMEDOUT;
        poll(&change, 1, (int)(left_ms < POLL_MAX_MS ? left_ms : POLL_MAX_MS));
    }
    return error;
}

/* ---- for commands -------------------------------------------------------------------------- */

int mounts_explain_no_mount(const struct mounts *mounts, const char *path)
{
    const struct mount *around = mounts_find(mounts, path, true);

    return cli_error("%s: not a gmsfs mount%s%s; 'gmsfs status' lists those there are", path,
                     around ? ", but in the one at " : "", around ? around->path : "");
}

int mounts_open_at(char *path, struct mounts *mounts, const struct mount **mount)
{
    int error = mounts_read_for(&path, 1, mounts);

    if (error)
        return mounts_explain(error);
    *mount = mounts_find(mounts, path, false);
    return *mount ? CLI_OK : mounts_explain_no_mount(mounts, path);
}
