/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mount_copies.h"

#include "cli/cli.h"
#include "cli/ui.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHOWN      8u
#define PATH_BYTES 64

/* What is seen of one copy: false ends the walk. */
typedef bool (*copies_visit)(void *context, const struct mount *copy, pid_t pid);

static bool has_id(const struct mount_copies *copies, uint64_t id)
{
    for (size_t i = 0; i < copies->count; i++)
        if (copies->ids[i] == id)
            return true;
    return false;
}

/* Of all mounts that one process sees. */
static bool visit_process(const struct mount *mount, pid_t pid, copies_visit visit, void *context)
{
    struct mounts mounts;
    bool goes_on = true;

    if (mounts_read_of(pid, &mounts) != 0)
        return true;
    for (size_t i = 0; i < mounts.count && goes_on; i++)
        if (mounts.list[i].device == mount->device && mounts.list[i].id != mount->id)
            goes_on = visit(context, &mounts.list[i], pid);
    mounts_free(&mounts);
    return goes_on;
}

/* Whether it sees the mounts that this process sees, so that it need not be asked. */
static bool is_beside_us(pid_t pid)
{
    char path[PATH_BYTES];
    struct stat its, ours;

    snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
    return stat(path, &its) == 0 && stat("/proc/self/ns/mnt", &ours) == 0 &&
           its.st_ino == ours.st_ino;
}

static void visit_all(const struct mount *mount, copies_visit visit, void *context)
{
    bool goes_on = visit_process(mount, getpid(), visit, context);
    DIR *processes = opendir("/proc");
    struct dirent *entry;

    while (goes_on && processes && (entry = readdir(processes))) {
        pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
        if (pid && !is_beside_us(pid))
            goes_on = visit_process(mount, pid, visit, context);
    }
    if (processes)
        closedir(processes);
}

static bool note_one(void *context, const struct mount *copy, pid_t pid)
{
    struct mount_copies *copies = context;

    (void)pid;
    if (!has_id(copies, copy->id))
        copies->ids[copies->count++] = copy->id;
    return copies->count < MOUNT_COPIES_MAX;
}

void mount_copies_note(struct mount_copies *copies, const struct mount *mount)
{
    copies->count = 0;
    visit_all(mount, note_one, copies);
}

struct shown {
    const struct mount_copies *known;
    struct mount_copies seen;
    struct ui_table table;
};

static bool show_one(void *context, const struct mount *copy, pid_t pid)
{
    struct shown *shown = context;
    char number[24];

    if (!has_id(shown->known, copy->id) || has_id(&shown->seen, copy->id))
        return true;
    shown->seen.ids[shown->seen.count++] = copy->id;
    snprintf(number, sizeof(number), "pid %d", (int)pid);
    ui_table_add(&shown->table, (const char *[]){copy->path, "as seen by", number});
    return shown->seen.count < SHOWN;
}

bool mount_copies_show(const struct mount_copies *copies, const struct mount *mount)
{
    struct shown shown = {.known = copies};

    if (copies->count == 0)
        return false;
    ui_table_begin(&shown.table, "lll");
    visit_all(mount, show_one, &shown);
    if (shown.seen.count == 0) {
        ui_table_free(&shown.table);
        return false;
    }
    cli_error("%s: unmounted here, but copies of the mount keep its daemon, and all of its memory:",
              mount->path);
    ui_table_end(&shown.table, stderr, 2);
    fputs(
        "Unmount those too, in another mount namespace by 'nsenter -t PID -m umount PATH', or end "
        "its processes.\n",
        stderr);
    return true;
}
