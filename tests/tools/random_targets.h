/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random_targets - the stores of a run of random_ops, their mounts, and the daemons behind them
 *
 * Stores are given by their paths; those in one directory are on one mount. Each has a log, which
 * its clients write, and a model, which replays it. Included by random_ops.c and its parts.
 */
#ifndef GMSFS_TESTS_TOOLS_RANDOM_TARGETS_H
#define GMSFS_TESTS_TOOLS_RANDOM_TARGETS_H

#include "random_content.h"
#include "random_model.h"

#define MAX_TARGETS 64
#define MAX_KEEPERS 16
#define TIGHT_BYTES (UINT64_C(4) << 20)

struct target {
    struct tool_path mount, path;
    int log_fd;
    bool has_places, is_tight;
    struct model *model;
    /* at rest */
    uint64_t rest_bytes; /* of the layout */
    uint32_t residency;  /* GMSFS_RESIDENCY_... */
};

static struct target targets[MAX_TARGETS];
static int target_count;

static pid_t keepers[MAX_KEEPERS];
static int keeper_count;

static inline void use_target(int index)
{
    const struct target *target = &targets[index];

    mount_dir = target->mount.text;
    store = target->path;
    log_fd = target->log_fd;
    has_places = target->has_places;
    is_tight = target->is_tight;
}

/* Returns a number of the device's file; UINT64_MAX if it has none of that name. */
static inline uint64_t find_device_bytes(const char *name)
{
    struct tool_path key = tool_path("\"%s\":", name);
    char text[4096] = "", *at;

    tool_read_text(tool_path("%s/device", mount_dir).text, text, sizeof(text));
    at = strstr(text, key.text);
    return at ? strtoull(at + strlen(key.text), NULL, 10) : UINT64_MAX;
}

static inline void add_target(const char *path)
{
    struct target *target = &targets[target_count];
    char log_name[] = "/tmp/random_ops.XXXXXX", *slash;

    if (target_count == MAX_TARGETS)
        tool_die("at most %d stores", MAX_TARGETS);
    target->path = target->mount = tool_path("%s", path);
    slash = strrchr(target->mount.text, '/');
    if (!slash)
        tool_die("%s: not the path of a store", path);
    *slash = '\0';
    target->model = calloc(1, sizeof(*target->model));
    target->log_fd = mkostemp(log_name, O_APPEND | O_CLOEXEC);
    if (!target->model || target->log_fd < 0 || unlink(log_name) != 0)
        tool_die("set-up: %s", strerror(errno));
    use_target(target_count++);
    has_places = target->has_places = find_device_bytes("host_total_bytes") != UINT64_MAX;
    is_tight = target->is_tight = find_device_bytes("total_bytes") < TIGHT_BYTES;
    /* An earlier run may have left contents. */
    target->model->possible[0] = mark_given_up(see_in_tree());
    target->model->possible_count = 1;
}

/* The first store of its mount checks the mount itself. */
static inline bool is_first_of_mount(int index)
{
    for (int i = 0; i < index; i++)
        if (strcmp(targets[i].mount.text, targets[index].mount.text) == 0)
            return false;
    return true;
}

/* Returns the process that serves; 0 if there is none at the moment. A keeper has other children
 * for a while. */
static inline pid_t worker_of(pid_t keeper)
{
    char text[1024] = "", comm[64];

    tool_read_text(tool_path("/proc/%d/task/%d/children", (int)keeper, (int)keeper).text, text,
                   sizeof(text));
    for (char *at = text; *at; at += strspn(at, " ")) {
        pid_t pid = (pid_t)strtol(at, &at, 10);

        if (tool_read_text(tool_path("/proc/%d/comm", (int)pid).text, comm, sizeof(comm)) > 0 &&
            strcmp(comm, "gmsfs-worker\n") == 0)
            return pid;
    }
    return 0;
}

#endif
