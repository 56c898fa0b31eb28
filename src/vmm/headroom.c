/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/headroom.h"

#include "base/number.h"
#include "base/scope.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESERVE_MIN_BYTES (UINT64_C(64) << 20)
#define RESERVE_MAX_BYTES (UINT64_C(1) << 30)
#define RESERVE_PERCENT   1
#define RESERVE_SHARE     8 /* never more than one eighth */

/* v1 writes "no limit" as LONG_MAX rounded down to a page; no real limit is an exbibyte. */
#define NO_LIMIT_BYTES (UINT64_C(1) << 60)

/* A limit and the usage that counts against it, as two files of one cgroup. */
struct gauge {
    const char *limit;
    const char *usage;
};

/* The two hierarchies differ in names only. */
struct hierarchy {
    const char *fstype;
    const char *controller; /* the super option and the field of /proc/self/cgroup that name it */
    struct gauge gauges[2];
    const char *swap; /* bytes that may be swapped out; NULL: the second limit less the first */
    const char *cache_keys[2]; /* of memory.stat, the whole subtree's: pages the kernel can drop */
    const char *kills;         /* the file that has the count of OOM kills, oom_kill */
};

/* memsw counts memory and swap together: if it is full, reclaim by swapping cannot help. Beyond
 * memory.high no process is killed, but throttled to a crawl. */
static const struct hierarchy hierarchies[] = {
    {"cgroup",
     "memory",
     {{"memory.limit_in_bytes", "memory.usage_in_bytes"},
      {"memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes"}},
     NULL,
     {"total_active_file", "total_inactive_file"},
     "memory.oom_control"},
    {"cgroup2",
     "",
     {{"memory.max", "memory.current"}, {"memory.high", "memory.current"}},
     "memory.swap.max",
     {"active_file", "inactive_file"},
     "memory.events"},
};

#define HIERARCHIES (sizeof(hierarchies) / sizeof(hierarchies[0]))
#define GAUGES      (sizeof(hierarchies[0].gauges) / sizeof(struct gauge))

/* The mount point of a hierarchy, and the group that is its top there. */
struct mount {
    bool found;
    char point[PATH_MAX];
    char top[PATH_MAX];
};

static _Atomic uint64_t aside_bytes;

struct headroom {
    char root[PATH_MAX];
    struct mount mounts[HIERARCHIES];
};

/* ---- reading small files ------------------------------------------------------------------- */

/* Returns true for errors of a missing file; others (no descriptors, no memory) must not count as
 * such. */
static bool is_absent(int error)
{
    return error == -ENOENT || error == -ENOTDIR || error == -EACCES || error == -EPERM ||
           error == -ENODEV || error == -ENAMETOOLONG;
}

static int open_text(FILE **file, const char *root, const char *directory, const char *name)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s%s/%s", root, directory, name);

    if (length < 0 || (size_t)length >= sizeof(path))
        return -ENAMETOOLONG;
    *file = fopen(path, "re");
    return *file ? 0 : -errno;
}

/* Parses a number at the start of `text`, ended by space or the end. More than 64 bits count as the
 * largest number. */
static bool parse_number(const char *text, uint64_t *value)
{
    const char *at = text;
    uint64_t sum = 0;

    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');

        sum = sum > (UINT64_MAX - digit) / 10 ? UINT64_MAX : sum * 10 + digit;
    }
    if (at == text || (*at && !isspace((unsigned char)*at)))
        return false;
    *value = sum;
    return true;
}

/* Reads a file with one number. Returns 1 with the value; 0 if absent, "max" or malformed; or an
 * errno. */
static int read_number(const char *root, const char *directory, const char *name, uint64_t *value)
{
    char line[64];
    FILE *file;
    int error = open_text(&file, root, directory, name);

    if (error < 0)
        return is_absent(error) ? 0 : error;
    error = fgets(line, sizeof(line), file) && parse_number(line, value);
    fclose(file);
    return error;
}

/* Reads lines of "KEY VALUE" or "KEY: VALUE kB", without conversion. Returns how many of the keys
 * were found, or an errno; the others' values are unchanged. */
static int read_keys(const char *root, const char *directory, const char *name,
                     const char *const keys[2], uint64_t values[2])
{
    char line[256];
    FILE *file;
    int found = 0;
    int error = open_text(&file, root, directory, name);

    if (error < 0)
        return is_absent(error) ? 0 : error;
    while (fgets(line, sizeof(line), file)) {
        size_t length = strcspn(line, ": \t\n");
        const char *value = line + length + strspn(line + length, ": \t");

        for (int i = 0; i < 2; i++)
            if (strlen(keys[i]) == length && !strncmp(line, keys[i], length))
                found += parse_number(value, &values[i]);
    }
    fclose(file);
    return found;
}

/* ---- finding the cgroups ------------------------------------------------------------------- */

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static void unescape(char *text)
{
    char *to = text;

    for (const char *from = text; *from; to++) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' &&
            from[2] <= '7' && from[3] >= '0' && from[3] <= '7') {
            *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* Returns true if `word` is in the comma-separated `list`. The empty word is only in the empty
 * list. */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);

    if (!length)
        return !*list;
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (!strncmp(at, word, length) && (at[length] == ',' || !at[length]))
            return true;
    }
    return false;
}

/* Returns the part of `path` below `top` ("" for top itself); NULL if it is elsewhere. */
static const char *path_below(const char *path, const char *top)
{
    size_t length = strcmp(top, "/") ? strlen(top) : 0;

    if (strncmp(path, top, length) || (path[length] && path[length] != '/'))
        return NULL;
    return strcmp(path + length, "/") ? path + length : "";
}

/* Finds this process's group in a hierarchy, from "ID:CONTROLLERS:PATH". 1, or 0 if there is
 * none. */
static int read_own_path(const struct headroom *headroom, const struct hierarchy *hierarchy,
                         char path[PATH_MAX])
{
    SCOPED_FREE char *line = NULL;
    size_t room = 0;
    FILE *file;
    int error = open_text(&file, headroom->root, "/proc/self", "cgroup");

    if (error < 0)
        return is_absent(error) ? 0 : error;
    while (error == 0 && getline(&line, &room, file) > 0) {
        char *controllers = strchr(line, ':');
        char *at = controllers ? strchr(controllers + 1, ':') : NULL;

        if (!at)
            continue;
        *at++ = '\0';
        at[strcspn(at, "\n")] = '\0';
        if (*at != '/' || strlen(at) >= PATH_MAX ||
            !has_word(controllers + 1, hierarchy->controller))
            continue;
        strcpy(path, at);
        error = 1;
    }
    fclose(file);
    return error;
}

/* Splits "36 35 98:0 TOP POINT OPTIONS [TAGS] - FSTYPE SOURCE SUPER" in place. */
static bool split_mount(char *line, char **top, char **point, char **fstype, char **super)
{
    char *save = NULL;
    char *rest = strstr(line, " - ");

    if (!rest)
        return false;
    *rest = '\0';
    char *field = strtok_r(line, " ", &save);
    for (int i = 0; i < 3 && field; i++)
        field = strtok_r(NULL, " ", &save);
    *top = field;
    *point = field ? strtok_r(NULL, " ", &save) : NULL;
    *fstype = strtok_r(rest + 3, " \n", &save);
    *super = *fstype && strtok_r(NULL, " \n", &save) ? strtok_r(NULL, " \n", &save) : NULL;
    if (!*top || !*point || !*super)
        return false;
    unescape(*top);
    unescape(*point);
    return strlen(*top) < PATH_MAX && strlen(*point) < PATH_MAX;
}

/* Prefers a mount that shows our group, and then one that shows more of the groups above it. */
static bool mount_is_better(const struct mount *mount, const char *top, const char *path)
{
    bool now, then;

    if (!mount->found)
        return true;
    now = path_below(path, top);
    then = path_below(path, mount->top);
    return now != then ? now : strlen(top) < strlen(mount->top);
}

static void consider_mount(struct headroom *headroom, char *line, char paths[][PATH_MAX])
{
    char *top, *point, *fstype, *super;

    if (!split_mount(line, &top, &point, &fstype, &super))
        return;
    for (size_t i = 0; i < HIERARCHIES; i++) {
        const struct hierarchy *hierarchy = &hierarchies[i];
        struct mount *mount = &headroom->mounts[i];

        if (strcmp(fstype, hierarchy->fstype))
            continue;
        if (*hierarchy->controller && !has_word(super, hierarchy->controller))
            continue;
        if (!mount_is_better(mount, top, paths[i]))
            continue;
        strcpy(mount->top, top);
        strcpy(mount->point, point);
        mount->found = true;
    }
}

static int find_mounts(struct headroom *headroom)
{
    char(*paths)[PATH_MAX] = calloc(HIERARCHIES, PATH_MAX);
    char *line = NULL;
    size_t room = 0;
    FILE *file = NULL;
    int error = paths ? 0 : -ENOMEM;

    for (size_t i = 0; i < HIERARCHIES && error >= 0; i++)
        error = read_own_path(headroom, &hierarchies[i], paths[i]);
    if (error >= 0)
        error = open_text(&file, headroom->root, "/proc/self", "mountinfo");
    if (error < 0)
        goto out;
    while (getline(&line, &room, file) > 0)
        consider_mount(headroom, line, paths);
out:
    if (file)
        fclose(file);
    free(line);
    free(paths);
    return is_absent(error) ? 0 : error;
}

/* ---- measuring ----------------------------------------------------------------------------- */

uint64_t headroom_reserve(uint64_t total_bytes)
{
    uint64_t reserve = total_bytes / 100 * RESERVE_PERCENT;

    if (reserve < RESERVE_MIN_BYTES)
        reserve = RESERVE_MIN_BYTES;
    if (reserve > RESERVE_MAX_BYTES)
        reserve = RESERVE_MAX_BYTES;
    return reserve < total_bytes / RESERVE_SHARE ? reserve : total_bytes / RESERVE_SHARE;
}

static void lower(uint64_t *value, uint64_t bound)
{
    if (*value > bound)
        *value = bound;
}

/* Applies the files of one cgroup directory. */
typedef int apply_fn(const struct headroom *headroom, const struct hierarchy *hierarchy,
                     const char *directory, void *to);

static int apply_group(const struct headroom *headroom, const struct hierarchy *hierarchy,
                       const char *directory, void *to)
{
    struct headroom_info *info = to;
    uint64_t cache[2] = {0, 0};
    bool cache_known = false;
    int error = 0;

    for (size_t i = 0; i < GAUGES; i++) {
        const struct gauge *gauge = &hierarchy->gauges[i];
        uint64_t limit, usage;

        error = read_number(headroom->root, directory, gauge->limit, &limit);
        if (error < 0)
            return error;
        if (error == 0 || limit >= NO_LIMIT_BYTES)
            continue;
        lower(&info->limit_bytes, limit);
        error = read_number(headroom->root, directory, gauge->usage, &usage);
        if (error < 0)
            return error;
        if (error == 0)
            continue;
        if (!cache_known)
            error =
                read_keys(headroom->root, directory, "memory.stat", hierarchy->cache_keys, cache);
        if (error < 0)
            return error;
        cache_known = true;
        usage = number_subtract(number_subtract(usage, cache[0]), cache[1]);
        if (number_subtract(limit, usage) < info->free_bytes)
            info->reserve_bytes = headroom_reserve(limit);
        lower(&info->free_bytes, number_subtract(limit, usage));
        lower(&info->available_bytes,
              number_subtract(number_subtract(limit, usage), headroom_reserve(limit)));
    }
    return 0;
}

static int apply_swap(const struct headroom *headroom, const struct hierarchy *hierarchy,
                      const char *directory, void *to)
{
    uint64_t *bytes = to, limit, both;
    int error;

    if (hierarchy->swap) {
        error = read_number(headroom->root, directory, hierarchy->swap, &limit);
        if (error > 0)
            lower(bytes, limit);
        return error < 0 ? error : 0;
    }
    error = read_number(headroom->root, directory, hierarchy->gauges[0].limit, &limit);
    if (error > 0)
        error = read_number(headroom->root, directory, hierarchy->gauges[1].limit, &both);
    if (error > 0 && both < NO_LIMIT_BYTES)
        lower(bytes, number_subtract(both, limit));
    return error < 0 ? error : 0;
}

static int apply_kills(const struct headroom *headroom, const struct hierarchy *hierarchy,
                       const char *directory, void *to)
{
    static const char *const keys[2] = {"oom_kill", ""};
    uint64_t *kills = to, found[2] = {0, 0};
    int error = read_keys(headroom->root, directory, hierarchy->kills, keys, found);

    *kills = found[0];
    return error;
}

/* Applies each group from ours up to the top of the mount, or until `apply` returns 1, which is
 * returned. Groups that are not visible here set no limit. */
static int apply_hierarchy(const struct headroom *headroom, size_t index, apply_fn *apply, void *to)
{
    const struct mount *mount = &headroom->mounts[index];
    char path[PATH_MAX], directory[PATH_MAX];
    size_t point_length = strlen(mount->point);
    int length, error;

    if (!mount->found)
        return 0;
    error = read_own_path(headroom, &hierarchies[index], path);
    if (error <= 0)
        return error;
    const char *below = path_below(path, mount->top);
    if (!below)
        below = path;

    /* Outside of our cgroup namespace only the mount's top can be read. */
    if (!strncmp(below, "/..", 3) && (below[3] == '/' || !below[3]))
        below = "";
    length = snprintf(directory, sizeof(directory), "%s%s", mount->point, below);
    if (length < 0 || (size_t)length >= sizeof(directory))
        directory[point_length] = '\0';
    for (;;) {
        error = apply(headroom, &hierarchies[index], directory, to);
        if (error != 0 || strlen(directory) <= point_length)
            return error;
        *strrchr(directory, '/') = '\0';
    }
}

void headroom_set_aside(uint64_t bytes)
{
    atomic_store(&aside_bytes, bytes);
}

int headroom_read(const struct headroom *headroom, struct headroom_info *info)
{
    static const char *const keys[2] = {"MemTotal", "MemAvailable"};
    uint64_t kibibytes[2] = {0, 0};
    int error = read_keys(headroom->root, "/proc", "meminfo", keys, kibibytes);

    if (error < 0)
        return error;
    if (error != 2 || kibibytes[0] == 0 || kibibytes[0] > UINT64_MAX >> 10 ||
        kibibytes[1] > kibibytes[0])
        return -EIO;
    info->machine_bytes = kibibytes[0] << 10;
    info->limit_bytes = info->machine_bytes;
    info->free_bytes = kibibytes[1] << 10;
    info->reserve_bytes = headroom_reserve(info->machine_bytes);
    info->available_bytes = number_subtract(info->free_bytes, info->reserve_bytes);
    error = 0;
    for (size_t i = 0; i < HIERARCHIES && error >= 0; i++)
        error = apply_hierarchy(headroom, i, apply_group, info);
    info->available_bytes = number_subtract(info->available_bytes, atomic_load(&aside_bytes));
    return error < 0 ? error : 0;
}

int headroom_read_swap(const struct headroom *headroom, uint64_t *bytes)
{
    static const char *const keys[2] = {"SwapTotal", "SwapFree"};
    uint64_t kibibytes[2] = {0, 0};
    int error = read_keys(headroom->root, "/proc", "meminfo", keys, kibibytes);

    if (error < 0)
        return error;
    lower(&kibibytes[0], UINT64_MAX >> 10);
    *bytes = kibibytes[0] << 10;
    for (size_t i = 0; i < HIERARCHIES && error >= 0; i++)
        error = apply_hierarchy(headroom, i, apply_swap, bytes);
    return error < 0 ? error : 0;
}

int headroom_read_kills(const struct headroom *headroom, uint64_t *kills)
{
    static const char *const keys[2] = {"oom_kill", ""};
    uint64_t machine[2] = {0, 0};
    int error = 0;

    for (size_t i = 0; i < HIERARCHIES && error == 0; i++)
        error = apply_hierarchy(headroom, i, apply_kills, kills);
    if (error == 0) {
        error = read_keys(headroom->root, "/proc", "vmstat", keys, machine);
        *kills = machine[0];
    }
    return error < 0 ? error : 0;
}

int headroom_read_pool(const struct headroom *headroom, uint64_t hugepage_bytes,
                       struct headroom_pool *pool)
{
    static const char *const names[] = {"nr_hugepages", "free_hugepages", "resv_hugepages",
                                        "surplus_hugepages", "nr_overcommit_hugepages"};
    uint64_t pages[5] = {0, 0, 0, 0, 0};
    char directory[96];

    snprintf(directory, sizeof(directory), "/sys/kernel/mm/hugepages/hugepages-%llukB",
             (unsigned long long)(hugepage_bytes >> 10));
    for (size_t i = 0; i < 5; i++) {
        int error = read_number(headroom->root, directory, names[i], &pages[i]);

        if (error < 0)
            return error;

        /* only the newer files may be missing */
        if (error == 0 && i < 2)
            return -EOPNOTSUPP;
        lower(&pages[i], NO_LIMIT_BYTES / hugepage_bytes);
    }
    uint64_t on_demand = number_subtract(pages[4], pages[3]);
    pool->total_bytes = (pages[0] + on_demand) * hugepage_bytes;
    pool->free_bytes = (number_subtract(pages[1], pages[2]) + on_demand) * hugepage_bytes;
    return 0;
}

int headroom_open(const char *root, struct headroom **headroom)
{
    struct headroom *made;
    int error = -ENAMETOOLONG;

    if (strlen(root) >= sizeof(made->root))
        return error;
    made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    strcpy(made->root, root);
    error = find_mounts(made);
    if (error < 0) {
        free(made);
        return error;
    }
    *headroom = made;
    return 0;
}

void headroom_close(struct headroom *headroom)
{
    free(headroom);
}
