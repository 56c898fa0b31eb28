/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random_clients - the operations of a client of random_ops, one random one after the other
 *
 * Included by random_ops.c alone, of which it is a part. Each operation is on the present store of
 * random_content.h; a client ends with tool_die at a result that must not be.
 */
#ifndef GMSFS_TESTS_TOOLS_RANDOM_CLIENTS_H
#define GMSFS_TESTS_TOOLS_RANDOM_CLIENTS_H

#include "random_content.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>

/* ---- a writer in the tree ------------------------------------------------------------------ */

/* The device may have no memory for it. */
static bool may_lack(int error)
{
    return is_tight && error == ENOMEM;
}

/* Returns false if the device had no memory. */
static bool write_file(const char *name, const void *bytes, size_t size, bool sized)
{
    int fd = open_in(name, O_RDWR | O_CREAT), error = 0;
    size_t done = 0;

    check(fd, name);
    if (sized && ftruncate(fd, (off_t)size) != 0)
        error = errno;
    while (!error && done < size) {
        ssize_t n = pwrite(fd, (const char *)bytes + done, size - done, (off_t)done);

        error = n < 0 ? errno : n == 0 ? EIO : 0;
        done += error ? 0 : (size_t)n;
    }
    if (close(fd) != 0 && !error)
        error = errno;
    if (error && !may_lack(error))
        tool_die("write %s: %s", name, strerror(error));
    return !error;
}

static void unlink_all(const char *directory)
{
    DIR *stream = opendir(in_store(directory).text);
    struct dirent *entry;

    if (!stream)
        tool_die("%s: %s", directory, strerror(errno));
    while ((entry = readdir(stream)) != NULL)
        if (entry->d_name[0] != '.' && unlinkat(dirfd(stream), entry->d_name, 0) != 0 &&
            errno != ENOENT)
            tool_die("unlink %s/%s: %s", directory, entry->d_name, strerror(errno));
    closedir(stream);
}

/* Returns false if the device had no memory, and the content is incomplete. */
static bool build_in_tree(int lock, const struct content *content)
{
    static uint8_t bytes[MAX_BYTES];
    char cid[CID_BYTES];

    if (chance(50)) {
        if (ioctl(lock, GMSFS_IOC_CLEAR) != 0)
            tool_die("CLEAR: %s", strerror(errno));
    } else {
        unlink_all("allocations");
        unlink_all("metadata");
    }
    for (int i = 0; i < content->count; i++) {
        struct tool_path entry = tool_path("metadata/e%d", i), name = tool_path("c%d", i);

        make_bytes(content, i, bytes);
        if (!write_file(tool_path("allocations/c%d", i).text, bytes, content->size_bytes[i],
                        chance(50)))
            return false;
        write_file(entry.text, "value", 5, false);
        if (setxattr(in_store(entry.text).text, "user.gmsfs.allocation", name.text,
                     strlen(name.text), 0) != 0)
            tool_die("setxattr: %s", strerror(errno));
        if (chance(10)) {
            if (!write_file("allocations/extra", bytes, 100, false))
                return false;
            if (unlink(in_store("allocations/extra").text) != 0)
                tool_die("unlink extra: %s", strerror(errno));
        }
    }
    snprintf(cid, sizeof(cid), "%016" PRIx64, content->cid);
    return write_file("metadata/cid", cid, CID_BYTES - 1, false);
}

/* The commit may give up the committed content to free memory, and then there is no way back. */
static void note_building(void)
{
    if (is_tight)
        note("T %d\n", (int)getpid());
}

static void touch_in_tree(void)
{
    int fd = open_in("allocations/c0", O_RDWR);

    check(fd, "allocations/c0");
    note("T %d\n", (int)getpid());
    if (pwrite(fd, "touched", 1, 0) != 1)
        tool_die("write in place: %s", strerror(errno));
    note("t %d %d\n", (int)getpid(), has_spare());
    if (close(fd) != 0)
        tool_die("close c0: %s", strerror(errno));
}

static void commit_in_tree(int lock, uint64_t cid)
{
    struct gmsfs_ioc_commit commit = {.flags = chance(30) ? GMSFS_COMMIT_STAY : 0};

    note("B %d %016" PRIx64 "\n", (int)getpid(), cid);
    if (ioctl(lock, GMSFS_IOC_COMMIT, &commit) != 0)
        tool_die("COMMIT: %s", strerror(errno));
    note("A %d 0 %" PRIu64 "\n", (int)getpid(), commit.generation);
    if (commit.flags & GMSFS_COMMIT_STAY)
        compare_in_tree(cid, false);
}

static void write_in_tree(const char *name, int flags)
{
    int lock = open_in(name, O_RDWR | flags);
    char mode[32] = "";
    uint64_t saw;

    if (lock == -EAGAIN && flags == O_NONBLOCK)
        return;
    if (lock == -ENODEV || lock == -ECANCELED) /* drained */
        return;
    check(lock, name);
    if (pread(lock, mode, sizeof(mode) - 1, 0) < 2)
        tool_die("reading %s: %s", name, strerror(errno));
    saw = see_in_tree();
    if (strncmp(mode, "RW", 2) != 0) {
        note("R %d %016" PRIx64 " %" PRIu64 "\n", (int)getpid(), saw, generation_of(lock, name));
        close(lock);
        return;
    }
    note("W %d %016" PRIx64 " %" PRIu64 "\n", (int)getpid(), mark_given_up(saw),
         generation_of(lock, name));
    if (can_touch(saw) && chance(15))
        touch_in_tree();
    if (chance(80)) {
        struct content content = make_content(tool_random(&random_state));

        note_building();
        if (build_in_tree(lock, &content) && chance(70))
            commit_in_tree(lock, content.cid);
    }
    close(lock);
}

/* ---- a writer by the library --------------------------------------------------------------- */

static bool allocate(gmsfs_t *handle, uint64_t size_bytes, const char *name, uint64_t *slot)
{
    int error = gmsfs_allocate_handle(handle, size_bytes, NULL, name, slot);

    if (may_lack(-error))
        return false;
    check(error, "gmsfs_allocate_handle");
    return true;
}

/* Returns false if the device had no memory, and the content is incomplete. */
static bool build_by_library(gmsfs_t *handle, const struct content *content)
{
    char text[CID_BYTES];
    struct gmsfs_metadata cid = {
        .key = "cid", .value = text, .value_bytes = CID_BYTES - 1, .slot = GMSFS_SLOT_NONE};

    check(gmsfs_clear_all_handles(handle), "gmsfs_clear_all_handles");
    for (int i = 0; i < content->count; i++) {
        struct tool_path name = tool_path("c%d", i), key = tool_path("e%d", i);
        struct gmsfs_metadata entry = {.key = key.text, .value = "value", .value_bytes = 5};
        void *ptr;

        if (!allocate(handle, content->size_bytes[i], name.text, &entry.slot))
            return false;
        check(gmsfs_attach_mapping(handle, entry.slot, GMSFS_ACCESS_WRITE, &ptr),
              "gmsfs_attach_mapping");
        make_bytes(content, i, ptr);
        check(gmsfs_metadata_put(handle, &entry), "gmsfs_metadata_put");
        if (chance(10)) {
            uint64_t extra;

            if (!allocate(handle, 1, "extra", &extra))
                return false;
            check(gmsfs_free_handle(handle, extra), "gmsfs_free_handle");
        }
    }
    snprintf(text, sizeof(text), "%016" PRIx64, content->cid);
    check(gmsfs_metadata_put(handle, &cid), "gmsfs_metadata_put cid");
    return true;
}

static void touch_by_library(gmsfs_t *handle)
{
    struct gmsfs_handle_info *list;
    size_t count;
    void *ptr;

    check(gmsfs_list_handles(handle, NULL, &list, &count), "gmsfs_list_handles");
    note("T %d\n", (int)getpid());
    check(gmsfs_attach_mapping(handle, list[0].slot, GMSFS_ACCESS_WRITE, &ptr),
          "gmsfs_attach_mapping");
    *(char *)ptr = 1;
    note("t %d %d\n", (int)getpid(), has_spare());
    free(list);
}

static void write_by_library(gmsfs_t *handle)
{
    uint64_t saw = see_by_library(handle);
    unsigned flags = chance(30) ? GMSFS_COMMIT_STAY : 0;

    note("W %d %016" PRIx64 " %" PRIu64 "\n", (int)getpid(), mark_given_up(saw),
         gmsfs_generation(handle));
    if (can_touch(saw) && chance(15))
        touch_by_library(handle);
    if (chance(20))
        return;
    struct content content = make_content(tool_random(&random_state));
    note_building();
    if (!build_by_library(handle, &content) || chance(30)) {
        if (chance(50))
            check(gmsfs_abort(handle, NULL), "gmsfs_abort");
        return;
    }
    note("B %d %016" PRIx64 "\n", (int)getpid(), content.cid);
    check(gmsfs_commit(handle, flags, NULL), "gmsfs_commit");
    note("A %d 0 %" PRIu64 "\n", (int)getpid(), gmsfs_generation(handle));
}

/* So little that all clients together leave enough for the clients without a reservation. */
#define MAX_RESERVED (UINT64_C(1) << 20)

/* Sometimes with a reservation of more or less memory than is then used. */
static int connect_by_library(gmsfs_t *handle, enum gmsfs_mode mode)
{
    uint64_t timeout_ms = below(4) ? below(50) : 0;

    if (mode == GMSFS_MODE_RO || chance(50))
        return gmsfs_connect(handle, mode, timeout_ms);
    if (chance(5)) {
        int result = gmsfs_connect_reserve(handle, mode, timeout_ms, UINT64_MAX - below(1 << 20));

        if (result != -ENOMEM)
            tool_die("gmsfs_connect_reserve of more than there is: %d", result);
    }
    return gmsfs_connect_reserve(handle, mode, timeout_ms, below(MAX_RESERVED));
}

static void use_library(enum gmsfs_mode mode, unsigned flags)
{
    gmsfs_t *handle;
    int result;

    check(gmsfs_open(store.text, &handle), "gmsfs_open");
    check(gmsfs_set_connect_flags(handle, flags), "gmsfs_set_connect_flags");
    result = connect_by_library(handle, mode);
    if (is_refused(mode, result) || (mode != GMSFS_MODE_RO && may_lack(-result))) {
        gmsfs_close(handle);
        return;
    }
    check(result, "gmsfs_connect");
    if (gmsfs_granted_lock(handle) == GMSFS_MODE_RW) {
        write_by_library(handle);
    } else {
        uint64_t saw = see_by_library(handle);

        note("R %d %016" PRIx64 " %" PRIu64 "\n", (int)getpid(), saw, gmsfs_generation(handle));
        compare_by_library(handle, saw);
    }
    gmsfs_close(handle);
}

/* ---- others -------------------------------------------------------------------------------- */

static void read_in_tree(void)
{
    int lock = open_in("lock", O_RDONLY | O_NONBLOCK);
    uint64_t saw;

    if (is_refusal(lock))
        return;
    check(lock, "lock for reading");
    saw = see_in_tree();
    note("R %d %016" PRIx64 " %" PRIu64 "\n", (int)getpid(), saw, generation_of(lock, "lock"));
    compare_in_tree(saw, false);
    close(lock);
}

static void look(void)
{
    static const char *const names[] = {"state",    "layout_hash", "layout",     "info",
                                        "sessions", "../device",   "../metrics", "../events"};
    static char text[1 << 20];
    const char *name = names[below(sizeof(names) / sizeof(names[0]))];
    DIR *stream = opendir(in_store(chance(50) ? "allocations" : "metadata").text);
    ssize_t n = tool_read_text(in_store(name).text, text, sizeof(text));
    struct dirent *entry;

    if (n < 0)
        tool_die("%s: %s", name, strerror((int)-n));
    if (!stream)
        tool_die("opendir: %s", strerror(errno));
    while ((entry = readdir(stream)) != NULL) {
        struct stat attributes;

        if (fstatat(dirfd(stream), entry->d_name, &attributes, AT_SYMLINK_NOFOLLOW) != 0 &&
            errno != ENOENT)
            tool_die("stat %s: %s", entry->d_name, strerror(errno));
    }
    closedir(stream);
}

/* Makes changes without a lock: they fail, or close undoes them and reports it. */
static void trespass(void)
{
    static const char *const targets[] = {"allocations/c0", "metadata/cid", "state", "lock"};
    int fd = open_in("allocations/stray", O_RDWR | O_CREAT | O_EXCL);

    if (fd >= 0) {
        if (!is_tight && write(fd, "stray", 5) != 5) /* it could give up the committed content */
            tool_die("write to an implicit writer's file: %s", strerror(errno));
        if (close(fd) == 0 || errno != ECANCELED)
            tool_die("close of an implicit writer: %s", strerror(errno));
    } else if (!is_writers_refusal(fd) && fd != -ENOLCK && fd != -EEXIST) { /* another client's */
        tool_die("create outside of a lock: %s", strerror(-fd));
    }
    if (unlink(in_store(targets[below(4)]).text) == 0)
        tool_die("unlink outside of a lock succeeded");
    if (open_in("metadata/stray", O_WRONLY | O_CREAT) >= 0)
        tool_die("an entry was made outside of a lock");
}

/* Waits until a timer's signal ends it; gives the lock back if that came first. */
static void wait_a_moment(void)
{
    struct itimerval timer = {.it_value = {.tv_usec = 500 + (suseconds_t)below(5000)}};
    struct itimerval off = {0};
    int fd;

    setitimer(ITIMER_REAL, &timer, NULL);
    fd = open_in(chance(50) ? "lock" : "auto", chance(70) ? O_RDWR : O_RDONLY);
    setitimer(ITIMER_REAL, &off, NULL);
    if (fd < 0 && fd != -EINTR && !is_refusal(fd))
        tool_die("waiting: %s", strerror(-fd));
    if (fd >= 0)
        close(fd);
}

static void leave_tickets(void)
{
    struct gmsfs_ioc_acquire acquire = {.mode = GMSFS_MODE_RO, .flags = GMSFS_ACQUIRE_EXPORT};
    struct gmsfs_ioc_join join = {.token = {1, 2, 3}};
    int ctl = open_in("ctl", O_RDWR);

    check(ctl, "ctl");
    if (ioctl(ctl, GMSFS_IOC_JOIN, &join) == 0)
        tool_die("a token that was never given out was accepted");
    if (ioctl(ctl, GMSFS_IOC_ACQUIRE, &acquire) != 0 && !is_refusal(-errno))
        tool_die("ACQUIRE with a ticket: %s", strerror(errno));
    close(ctl);
}

static void watch(void)
{
    struct pollfd wait = {.fd = open_in("state", O_RDONLY), .events = POLLPRI};
    char text[32];

    check(wait.fd, "state");
    if (read(wait.fd, text, sizeof(text)) < 0 || poll(&wait, 1, (int)below(5)) < 0)
        tool_die("poll on state: %s", strerror(errno));
    close(wait.fd);
}

static void make_store(void)
{
    struct tool_path path = tool_path("%s/s%d", mount_dir, (int)getpid());

    if (mkdir(path.text, 0755) != 0)
        tool_die("mkdir %s: %s", path.text, strerror(errno));
    if (rmdir(path.text) != 0)
        tool_die("rmdir %s: %s", path.text, strerror(errno));
}

static void write_or_wait(void)
{
    write_in_tree("lock", 0);
}

static void write_or_leave(void)
{
    write_in_tree("lock", O_NONBLOCK);
}

static void use_auto(void)
{
    write_in_tree("auto", chance(50) ? O_NONBLOCK : 0);
}

static void be_writer(void)
{
    use_library(GMSFS_MODE_RW, 0);
}

static void be_reader(void)
{
    use_library(GMSFS_MODE_RO, 0);
}

static void be_either(void)
{
    use_library(GMSFS_MODE_RW_OR_RO, 0);
}

static void watch_or_make_store(void)
{
    if (chance(80))
        watch();
    else
        make_store();
}

#include "random_many.h" /* it builds as the clients above do */
#include "random_places.h"

/* An operation that stands twice is done twice as often. */
static const struct operation {
    const char *name;
    void (*run)(void);
} operations[] = {
    {"write in the tree", write_or_wait},
    {"write in the tree", write_or_wait},
    {"write in the tree if the lock is free", write_or_leave},
    {"auto in the tree", use_auto},
    {"write by the library", be_writer},
    {"write by the library", be_writer},
    {"read by the library", be_reader},
    {"write or read by the library", be_either},
    {"read in the tree", read_in_tree},
    {"look", look},
    {"trespass", trespass},
    {"wait until a signal", wait_a_moment},
    {"leave tickets", leave_tickets},
    {"use a group, or drain", use_group_or_drain},
    {"watch, or make a store", watch_or_make_store},
    {"move", move_somewhere},
    {"move", move_somewhere},
    {"sleep and wake", sleep_and_wake},
    {"read wherever it is", read_anywhere},
    {"replace, give up, pin, or change the pool", use_places},
};

/* Stores the operation in `which` before it begins. */
static void do_something(atomic_int *which)
{
    int operation = (int)below(sizeof(operations) / sizeof(operations[0]));

    atomic_store(which, operation);
    operations[operation].run();
}

#endif
