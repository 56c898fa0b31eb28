/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random_rest - the state of all stores and daemons after a round of random_ops, when its clients
 * have ended
 *
 * No process holds or waits for a lock; each store has a content that its model allows, complete,
 * with the right layout; the devices' used bytes are those of the layouts, none reserved; the
 * daemons have the right number of descriptors, and no more memory than before. Included by
 * random_ops.c alone.
 */
#ifndef GMSFS_TESTS_TOOLS_RANDOM_REST_H
#define GMSFS_TESTS_TOOLS_RANDOM_REST_H

#include "random_targets.h"

#define SETTLE_MS 60000u

static inline uint64_t settle_end_ms(void)
{
    return tool_now_ms() + SETTLE_MS * tool_slow();
}

/* ---- stores -------------------------------------------------------------------------------- */

static uint64_t device_bytes(const char *name)
{
    uint64_t bytes = find_device_bytes(name);

    if (bytes == UINT64_MAX)
        tool_die("device has no %s", name);
    return bytes;
}

/* Sums the used bytes of the stores' pools. */
static uint64_t pools_bytes(void)
{
    char text[8192] = "";
    uint64_t total_bytes = 0;

    tool_read_text(tool_path("%s/pools", mount_dir).text, text, sizeof(text));
    for (const char *at = text; (at = strstr(at, " used=")) != NULL;)
        total_bytes += strtoull(at += strlen(" used="), NULL, 10);
    return total_bytes;
}

/* The present store. */
static bool is_unused(void)
{
    char text[64];

    tool_read_text(in_store("state").text, text, sizeof(text));
    return (strcmp(text, "EMPTY\n") == 0 || strcmp(text, "COMMITTED\n") == 0) &&
           tool_read_text(in_store("sessions").text, text, sizeof(text)) == 0 &&
           tool_read_text(in_store("residency").text, text, sizeof(text)) >= 0 &&
           !strstr(text, "moving");
}

/* Checks the layout of this content. Returns its bytes on the device. */
static uint64_t check_layout(gmsfs_t *handle, uint64_t cid)
{
    struct content content = make_content(cid);
    struct gmsfs_layout *layout;
    uint64_t total_bytes = 0;

    check(gmsfs_read_layout(handle, &layout), "gmsfs_read_layout");
    if (layout->allocation_count != (size_t)content.count ||
        layout->entry_count != (size_t)content.count + 1)
        lost("layout has %zu allocations and %zu entries, expected %d and one more",
             layout->allocation_count, layout->entry_count, content.count);
    for (int i = 0; i < content.count; i++) {
        const struct gmsfs_layout_entry *entry = &layout->entries[i + 1]; /* after "cid" */

        if (layout->allocations[i].size_bytes != content.size_bytes[i])
            lost("allocation %d has another size", i);
        if (entry->rank != (uint64_t)i || entry->key[1] != '0' + i)
            lost("entry %s is bound to rank %" PRIu64, entry->key, entry->rank);
        total_bytes += layout->allocations[i].aligned_bytes;
    }
    gmsfs_free_layout(layout);
    return total_bytes;
}

static void remove_other_stores(void)
{
    DIR *stream = opendir(mount_dir);
    struct dirent *entry;

    if (!stream)
        tool_die("%s: %s", mount_dir, strerror(errno));
    while ((entry = readdir(stream)) != NULL)
        if (entry->d_name[0] == 's' && unlinkat(dirfd(stream), entry->d_name, AT_REMOVEDIR) != 0)
            tool_die("rmdir %s: %s", entry->d_name, strerror(errno));
    closedir(stream);
}

/* Sums the bytes of all layouts on a store's mount in this tier. */
static uint64_t bytes_of_mount(const struct target *of, uint32_t tier)
{
    uint64_t total_bytes = 0;

    for (int i = 0; i < target_count; i++)
        if (strcmp(targets[i].mount.text, of->mount.text) == 0 && targets[i].residency & tier)
            total_bytes += targets[i].rest_bytes;
    return total_bytes;
}

/* For a place that the mount may have. */
static uint64_t beside_bytes(const char *name)
{
    uint64_t bytes = find_device_bytes(name);

    return bytes == UINT64_MAX ? 0 : bytes;
}

static bool is_device_at_rest(const struct target *target)
{
    if (beside_bytes("host_used_bytes") != bytes_of_mount(target, GMSFS_RESIDENCY_HOST) ||
        beside_bytes("spill_used_bytes") != bytes_of_mount(target, GMSFS_RESIDENCY_DISK))
        return false;
    return device_bytes("used_bytes") == bytes_of_mount(target, GMSFS_RESIDENCY_DEVICE) &&
           device_bytes("reserved_bytes") == 0 && pools_bytes() == device_bytes("used_bytes");
}

static void look_at_layout(struct target *target)
{
    struct gmsfs_info info;
    gmsfs_t *handle;
    uint64_t cid;

    check(gmsfs_open(store.text, &handle), "gmsfs_open");
    check(gmsfs_get_info(handle, &info), "gmsfs_get_info");
    cid = see_by_library(handle);
    target->rest_bytes = cid ? check_layout(handle, cid) : 0;
    target->residency = cid ? info.residency : 0;
    gmsfs_close(handle);
}

/* Releases come after the closes, and freeing after the releases. */
static void wait_for_rest(void)
{
    uint64_t end_ms = settle_end_ms();

    for (int i = 0; i < target_count; i++) {
        use_target(i);
        while (!is_unused()) {
            char text[4096] = "";

            tool_read_text(in_store("sessions").text, text, sizeof(text));
            if (tool_now_ms() > end_ms)
                tool_die("%s is not at rest; sessions:\n%s", store.text, text);
            tool_pause_us(5000);
        }
        look_at_layout(&targets[i]);
    }
    for (int i = 0; i < target_count; i++) {
        use_target(i);
        while (is_first_of_mount(i) && !is_device_at_rest(&targets[i])) {
            if (tool_now_ms() > end_ms)
                tool_die("%s: %" PRIu64 " bytes used, %" PRIu64 " by pools, and %" PRIu64
                         " reserved, %" PRIu64 " in the layouts; of the host %" PRIu64
                         " and %" PRIu64 ", of the disk %" PRIu64 " and %" PRIu64,
                         mount_dir, device_bytes("used_bytes"), pools_bytes(),
                         device_bytes("reserved_bytes"),
                         bytes_of_mount(&targets[i], GMSFS_RESIDENCY_DEVICE),
                         beside_bytes("host_used_bytes"),
                         bytes_of_mount(&targets[i], GMSFS_RESIDENCY_HOST),
                         beside_bytes("spill_used_bytes"),
                         bytes_of_mount(&targets[i], GMSFS_RESIDENCY_DISK));
            tool_pause_us(5000);
        }
    }
}

/* Bytes given up must not read as zeros. */
static void check_given_up(void)
{
    char byte;
    int fd = open_in("allocations/c0", O_RDONLY);

    check(fd, "allocations/c0");
    if (pread(fd, &byte, 1, 0) != -1 || errno != EIO)
        lost("bytes that were given up can be read");
    close(fd);
}

static void check_store(struct target *target)
{
    struct gmsfs_info info;
    gmsfs_t *handle;
    uint64_t cid;

    model_replay(target->model, target->log_fd);
    check(gmsfs_open(store.text, &handle), "gmsfs_open");
    check(gmsfs_get_info(handle, &info), "gmsfs_get_info");
    cid = see_by_library(handle);
    if (info.committed != (cid != 0) || info.total_bytes != target->rest_bytes)
        lost("info does not agree with the tree");
    model_see(target->model, mark_given_up(cid), info.generation, "at rest");
    target->model->drainer = 0; /* no process drains any more */
    target->model->was_killed = false;
    gmsfs_close(handle);
    if (target->residency)
        compare_in_tree(cid, false);
    else if (cid)
        check_given_up();
}

/* ---- daemons ------------------------------------------------------------------------------- */

struct footprint {
    int fds; /* without those of memory */
    uint64_t private_kib;
};

static struct footprint footprints[MAX_KEEPERS][2]; /* keeper, worker: after the first round */

/* The copier's ring exists while it is needed; the journal always. */
static bool is_memory(const char *link)
{
    if (strstr(link, "memfd:"))
        return !strstr(link, "memfd:gmsfs-ring") && !strstr(link, "memfd:journal");
    return strstr(link, "/#") || strstr(link, "/gpus/gpu");
}

#define MAX_FILES 4096

struct memory_files { /* one may have two descriptors, for writers and for readers */
    int files;
    ino_t inodes[MAX_FILES];
    dev_t devices[MAX_FILES];
};

static void note_file(struct memory_files *memory, const struct stat *st)
{
    for (int i = 0; i < memory->files; i++)
        if (memory->inodes[i] == st->st_ino && memory->devices[i] == st->st_dev)
            return;
    if (memory->files == MAX_FILES)
        tool_die("more than %d files of memory", MAX_FILES);
    memory->inodes[memory->files] = st->st_ino;
    memory->devices[memory->files++] = st->st_dev;
}

/* How many descriptors of a kind in a process are none of `others`. */
static int weigh_link(const char *link)
{
    if (strstr(link, "memfd:gmsfs-ring"))
        return -1; /* and the copier's socket, which comes and goes with its ring */
    return !strstr(link, "[pidfd]") && !strstr(link, "/comm");
}

/* Counts host memory, the unnamed files of a disk, and memory of the GPUs of tests/fake_cuda;
 * `others` gets the number of all other descriptors, without those that a worker has only after
 * some request: the last caller (its name and its pidfd), and the copier's ring with its socket.
 * One pass counts all: what a process opens between two passes would be taken off a count that it
 * was never part of. */
static const struct memory_files *find_memory(pid_t pid, int *others)
{
    static struct memory_files memory;
    struct tool_path dir = tool_path("/proc/%d/fd", (int)pid);
    DIR *stream = opendir(dir.text);
    struct dirent *entry;
    char link[PATH_MAX];
    struct stat st;

    memory.files = *others = 0;
    while (stream && (entry = readdir(stream)) != NULL) {
        ssize_t n = readlinkat(dirfd(stream), entry->d_name, link, sizeof(link) - 1);

        if (n < 0)
            continue;
        link[n] = '\0';
        if (!is_memory(link))
            *others += weigh_link(link);
        else if (fstatat(dirfd(stream), entry->d_name, &st, 0) == 0)
            note_file(&memory, &st);
    }
    if (stream)
        closedir(stream);
    return &memory;
}

static int count_memory(pid_t pid)
{
    int others;

    return find_memory(pid, &others)->files;
}

static struct footprint footprint_of(pid_t pid)
{
    char text[8192] = "", *at;
    struct footprint footprint = {0};

    find_memory(pid, &footprint.fds);
    tool_read_text(tool_path("/proc/%d/status", (int)pid).text, text, sizeof(text));
    at = strstr(text, "RssAnon:");
    if (at)
        footprint.private_kib = strtoull(at + strlen("RssAnon:"), NULL, 10);
    return footprint;
}

static uint64_t allocations_of_mount(const struct target *of)
{
    uint64_t count = 0;

    for (int i = 0; i < target_count; i++) {
        uint64_t cid = targets[i].model->possible[0];
        int copies = __builtin_popcount(targets[i].residency);

        if (cid && strcmp(targets[i].mount.text, of->mount.text) == 0)
            count += (uint64_t)(make_content(cid).count * copies);
    }
    return count;
}

static bool has_leaked(pid_t pid, const struct footprint *before, uint64_t least, uint64_t most)
{
    uint64_t memory = (uint64_t)count_memory(pid);

    return footprint_of(pid).fds > before->fds || memory < least || memory > most;
}

static void print_files(pid_t pid)
{
    struct tool_path dir = tool_path("/proc/%d/fd", (int)pid);
    DIR *stream = opendir(dir.text);
    struct dirent *entry;
    char link[PATH_MAX];

    while (stream && (entry = readdir(stream)) != NULL) {
        ssize_t n = readlinkat(dirfd(stream), entry->d_name, link, sizeof(link) - 1);

        if (n > 0)
            fprintf(stderr, "  %s -> %.*s\n", entry->d_name, (int)n, link);
    }
    if (stream)
        closedir(stream);
}

static void check_process(pid_t pid, struct footprint *before, uint64_t least, uint64_t most)
{
    uint64_t end_ms = settle_end_ms();
    struct footprint now = footprint_of(pid);

    if (!before->fds)
        *before = now;
    while (has_leaked(pid, before, least, most)) {
        if (tool_now_ms() > end_ms) {
            print_files(pid);
            tool_die("process %d of the daemon has %d descriptors and %d of memory, expected %d "
                     "and %" PRIu64,
                     (int)pid, footprint_of(pid).fds, count_memory(pid), before->fds, least);
        }
        tool_pause_us(5000);
    }
    now = footprint_of(pid);
    /* The first count may include a file that was being closed; a pass over a process that opens
     * and closes files may miss one, so that two passes have to agree. */
    if (now.fds < before->fds && footprint_of(pid).fds == now.fds)
        before->fds = now.fds;
}

/* The n-th keeper serves the n-th mount. `growth_kib` 0: memory is not checked. */
static void check_daemons(uint64_t growth_kib)
{
    int keeper = 0;

    for (int i = 0; i < target_count && keeper < keeper_count; i++) {
        if (!is_first_of_mount(i))
            continue;
        uint64_t count = allocations_of_mount(&targets[i]), now_kib;
        struct footprint *before = footprints[keeper];
        pid_t pid = keepers[keeper++], worker = worker_of(pid);

        if (!worker)
            tool_die("the daemon of %s has died", targets[i].mount.text);
        check_process(pid, &before[0], count, count);
        check_process(worker, &before[1], count, 2 * count);
        now_kib = footprint_of(worker).private_kib;
        if (growth_kib && now_kib > before[1].private_kib + growth_kib)
            tool_die("the worker of %s has grown from %" PRIu64 " to %" PRIu64 " KiB",
                     targets[i].mount.text, before[1].private_kib, now_kib);
    }
}

static void check_rest(uint64_t growth_kib)
{
    wait_for_rest();
    for (int i = 0; i < target_count; i++) {
        use_target(i);
        check_store(&targets[i]);
        if (is_first_of_mount(i))
            remove_other_stores();
    }
    check_daemons(growth_kib);
}

#endif
