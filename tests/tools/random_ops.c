/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random_ops - random clients, killed at random, and a model of what must be left
 *
 *   random_ops MOUNT SEED CLIENTS ROUNDS MS
 *
 * CLIENTS processes do random things with the store `weights` of a mount for MS
 * milliseconds: write through the tree and through libgmsfs, commit, abort, write in place, read
 * and compare, wait, look, try what is forbidden. Some are killed at any moment and replaced. After
 * each round all have ended, and then nobody may hold or wait for the lock, the content must be one
 * that the model (random_model.h) allows, complete, with the layout that belongs to it, and the
 * device's used bytes must be those of this layout.
 */
#include "random_content.h"
#include "random_model.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define MAX_CLIENTS 16
#define SETTLE_MS   5000u
#define STUCK_MS    20000u

struct shared {
    atomic_int stop;
    atomic_ulong operations;
};

static struct shared *shared;

/* ---- a writer in the tree ------------------------------------------------------------------ */

static void write_file(const char *name, const void *bytes, size_t size, bool sized)
{
    int fd = open_in(name, O_RDWR | O_CREAT);

    check(fd, name);
    if (sized && ftruncate(fd, (off_t)size) != 0)
        tool_die("ftruncate %s: %s", name, strerror(errno));
    for (size_t done = 0; done < size;) {
        ssize_t n = pwrite(fd, (const char *)bytes + done, size - done, (off_t)done);

        if (n <= 0)
            tool_die("write %s: %s", name, n < 0 ? strerror(errno) : "short");
        done += (size_t)n;
    }
    if (close(fd) != 0)
        tool_die("close %s: %s", name, strerror(errno));
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

static void build_in_tree(int lock, const struct content *content)
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
        write_file(tool_path("allocations/c%d", i).text, bytes, content->size_bytes[i], chance(50));
        write_file(entry.text, "value", 5, false);
        if (setxattr(in_store(entry.text).text, "user.gmsfs.allocation", name.text,
                     strlen(name.text), 0) != 0)
            tool_die("setxattr: %s", strerror(errno));
        if (chance(10)) {
            write_file("allocations/extra", bytes, 100, false);
            if (unlink(in_store("allocations/extra").text) != 0)
                tool_die("unlink extra: %s", strerror(errno));
        }
    }
    snprintf(cid, sizeof(cid), "%016" PRIx64, content->cid);
    write_file("metadata/cid", cid, CID_BYTES - 1, false);
}

static void touch_in_tree(void)
{
    int fd = open_in("allocations/c0", O_RDWR);

    check(fd, "allocations/c0");
    note("T %d\n", (int)getpid());
    if (pwrite(fd, "touched", 1, 0) != 1)
        tool_die("write in place: %s", strerror(errno));
    note("t %d\n", (int)getpid());
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
        compare_in_tree(cid);
}

static void write_in_tree(const char *name, int flags)
{
    int lock = open_in(name, O_RDWR | flags);
    char mode[32] = "";
    uint64_t saw;

    if (lock == -EAGAIN && flags == O_NONBLOCK)
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
    note("W %d %016" PRIx64 " %" PRIu64 "\n", (int)getpid(), saw, generation_of(lock, name));
    if (saw && chance(15))
        touch_in_tree();
    if (chance(80)) {
        struct content content = make_content(tool_random(&random_state));

        build_in_tree(lock, &content);
        if (chance(70))
            commit_in_tree(lock, content.cid);
    }
    close(lock);
}

/* ---- a writer by the library --------------------------------------------------------------- */

static void build_by_library(gmsfs_t *handle, const struct content *content)
{
    char text[CID_BYTES];
    struct gmsfs_metadata cid = {
        .key = "cid", .value = text, .value_bytes = CID_BYTES - 1, .slot = GMSFS_SLOT_NONE};

    check(gmsfs_clear_all_handles(handle), "gmsfs_clear_all_handles");
    for (int i = 0; i < content->count; i++) {
        struct tool_path name = tool_path("c%d", i), key = tool_path("e%d", i);
        struct gmsfs_metadata entry = {.key = key.text, .value = "value", .value_bytes = 5};
        void *ptr;

        check(gmsfs_allocate_handle(handle, content->size_bytes[i], NULL, name.text, &entry.slot),
              "gmsfs_allocate_handle");
        check(gmsfs_attach_mapping(handle, entry.slot, GMSFS_ACCESS_WRITE, &ptr),
              "gmsfs_attach_mapping");
        make_bytes(content, i, ptr);
        check(gmsfs_metadata_put(handle, &entry), "gmsfs_metadata_put");
        if (chance(10)) {
            uint64_t extra;

            check(gmsfs_allocate_handle(handle, 1, "extra", "extra", &extra), "extra allocation");
            check(gmsfs_free_handle(handle, extra), "gmsfs_free_handle");
        }
    }
    snprintf(text, sizeof(text), "%016" PRIx64, content->cid);
    check(gmsfs_metadata_put(handle, &cid), "gmsfs_metadata_put cid");
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
    note("t %d\n", (int)getpid());
    free(list);
}

static void write_by_library(gmsfs_t *handle)
{
    uint64_t saw = see_by_library(handle);
    unsigned flags = chance(30) ? GMSFS_COMMIT_STAY : 0;

    note("W %d %016" PRIx64 " %" PRIu64 "\n", (int)getpid(), saw, gmsfs_generation(handle));
    if (saw && chance(15))
        touch_by_library(handle);
    if (chance(20))
        return;
    struct content content = make_content(tool_random(&random_state));
    build_by_library(handle, &content);
    if (chance(30)) {
        if (chance(50))
            check(gmsfs_abort(handle, NULL), "gmsfs_abort");
        return;
    }
    note("B %d %016" PRIx64 "\n", (int)getpid(), content.cid);
    check(gmsfs_commit(handle, flags, NULL), "gmsfs_commit");
    note("A %d 0 %" PRIu64 "\n", (int)getpid(), gmsfs_generation(handle));
}

static void use_library(enum gmsfs_mode mode)
{
    gmsfs_t *handle;
    int result;

    check(gmsfs_open(store.text, &handle), "gmsfs_open");
    result = gmsfs_connect(handle, mode, below(4) ? below(50) : 0);
    if (result == -ETIMEDOUT || result == -EAGAIN) {
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

    if (lock == -EAGAIN)
        return;
    check(lock, "lock for reading");
    saw = see_in_tree();
    note("R %d %016" PRIx64 " %" PRIu64 "\n", (int)getpid(), saw, generation_of(lock, "lock"));
    compare_in_tree(saw);
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

/* Changes by somebody who has no lock: they fail, or are undone by the close that says so. */
static void trespass(void)
{
    static const char *const targets[] = {"allocations/c0", "metadata/cid", "state", "lock"};
    int fd = open_in("allocations/stray", O_RDWR | O_CREAT | O_EXCL);

    if (fd >= 0) {
        if (write(fd, "stray", 5) != 5)
            tool_die("write to an implicit writer's file: %s", strerror(errno));
        if (close(fd) == 0 || errno != ECANCELED)
            tool_die("close of an implicit writer: %s", strerror(errno));
    } else if (fd != -EAGAIN && fd != -ENOLCK && fd != -EEXIST) { /* another one's stray */
        tool_die("create outside of a lock: %s", strerror(-fd));
    }
    if (unlink(in_store(targets[below(4)]).text) == 0)
        tool_die("unlink outside of a lock succeeded");
    if (open_in("metadata/stray", O_WRONLY | O_CREAT) >= 0)
        tool_die("an entry was made outside of a lock");
}

/* Waits until a timer's signal ends it; the lock that came instead is given back. */
static void wait_a_moment(void)
{
    struct itimerval timer = {.it_value = {.tv_usec = 500 + (suseconds_t)below(5000)}};
    struct itimerval off = {0};
    int fd;

    setitimer(ITIMER_REAL, &timer, NULL);
    fd = open_in(chance(50) ? "lock" : "auto", chance(70) ? O_RDWR : O_RDONLY);
    setitimer(ITIMER_REAL, &off, NULL);
    if (fd < 0 && fd != -EINTR)
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
        tool_die("a token that nobody gave out was taken");
    if (ioctl(ctl, GMSFS_IOC_ACQUIRE, &acquire) != 0 && errno != EAGAIN)
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

static void do_something(void)
{
    switch (below(14)) {
    case 0:
    case 1:
        write_in_tree("lock", 0);
        break;
    case 2:
        write_in_tree("lock", O_NONBLOCK);
        break;
    case 3:
        write_in_tree("auto", chance(50) ? O_NONBLOCK : 0);
        break;
    case 4:
    case 5:
        use_library(GMSFS_MODE_RW);
        break;
    case 6:
        use_library(GMSFS_MODE_RO);
        break;
    case 7:
        use_library(GMSFS_MODE_RW_OR_RO);
        break;
    case 8:
        read_in_tree();
        break;
    case 9:
        look();
        break;
    case 10:
        trespass();
        break;
    case 11:
        wait_a_moment();
        break;
    case 12:
        leave_tickets();
        break;
    default:
        if (chance(80))
            watch();
        else
            make_store();
    }
}

/* ---- the driver ---------------------------------------------------------------------------- */

static void on_timer(int number)
{
    (void)number;
}

/* A client never outlives the driver: one that went on would hold the mount and the output open,
 * and whoever waits for them would hear of what went wrong only when its own patience ends. */
static pid_t start_client(uint64_t seed)
{
    struct sigaction action = {.sa_handler = on_timer};
    pid_t driver = getpid(), pid = fork();

    if (pid < 0)
        tool_die("fork: %s", strerror(errno));
    if (pid > 0)
        return pid;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != driver)
        _exit(1);
    sigaction(SIGALRM, &action, NULL);
    random_state = seed | 1;
    while (!atomic_load(&shared->stop)) {
        do_something();
        atomic_fetch_add(&shared->operations, 1);
    }
    _exit(0);
}

static void reap(pid_t pid)
{
    uint64_t end_ms = tool_now_ms() + STUCK_MS * tool_slow();
    int status;
    pid_t got;

    while ((got = waitpid(pid, &status, WNOHANG)) == 0) {
        if (tool_now_ms() > end_ms)
            tool_die("client %d does not come to an end", (int)pid);
        tool_pause_us(1000);
    }
    if (got != pid || (status != 0 && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)))
        tool_die("client %d ended with status %#x", (int)pid, (unsigned)status);
}

static int run_round(int clients, uint64_t ms)
{
    pid_t pids[MAX_CLIENTS];
    uint64_t end_ms = tool_now_ms() + ms;
    int killed = 0;

    atomic_store(&shared->stop, 0);
    for (int i = 0; i < clients; i++)
        pids[i] = start_client(tool_random(&random_state));
    while (tool_now_ms() < end_ms) {
        int victim = (int)below((uint64_t)clients);

        tool_pause_us(500 + (unsigned)below(15000));
        kill(pids[victim], SIGKILL);
        reap(pids[victim]);
        pids[victim] = start_client(tool_random(&random_state));
        killed++;
    }
    atomic_store(&shared->stop, 1);
    for (int i = 0; i < clients; i++)
        reap(pids[i]);
    return killed;
}

static uint64_t used_bytes(void)
{
    static const char name[] = "\"used_bytes\":";
    char text[4096] = "", *at;

    tool_read_text(tool_path("%s/device", mount_dir).text, text, sizeof(text));
    at = strstr(text, name);
    if (!at)
        tool_die("device has no used_bytes");
    return strtoull(at + sizeof(name) - 1, NULL, 10);
}

static bool is_at_rest(uint64_t total_bytes)
{
    char text[64];

    tool_read_text(in_store("state").text, text, sizeof(text));
    return (strcmp(text, "EMPTY\n") == 0 || strcmp(text, "COMMITTED\n") == 0) &&
           tool_read_text(in_store("sessions").text, text, sizeof(text)) == 0 &&
           used_bytes() == total_bytes;
}

/* The layout that belongs to the content; its bytes on the device. */
static uint64_t check_layout(gmsfs_t *handle, uint64_t cid)
{
    struct content content = make_content(cid);
    struct gmsfs_layout *layout;
    uint64_t total_bytes = 0;

    check(gmsfs_read_layout(handle, &layout), "gmsfs_read_layout");
    if (layout->allocation_count != (size_t)content.count ||
        layout->entry_count != (size_t)content.count + 1)
        tool_die("layout has %zu allocations and %zu entries, expected %d and one more",
                 layout->allocation_count, layout->entry_count, content.count);
    for (int i = 0; i < content.count; i++) {
        const struct gmsfs_layout_entry *entry = &layout->entries[i + 1]; /* after "cid" */

        if (layout->allocations[i].size_bytes != content.size_bytes[i])
            tool_die("allocation %d has another size", i);
        if (entry->rank != (uint64_t)i || entry->key[1] != '0' + i)
            tool_die("entry %s is bound to rank %" PRIu64, entry->key, entry->rank);
        total_bytes += layout->allocations[i].aligned_bytes;
    }
    gmsfs_free_layout(layout);
    return total_bytes;
}

static void remove_other_stores(void)
{
    DIR *stream = opendir(mount_dir);
    struct dirent *entry;

    while (stream && (entry = readdir(stream)) != NULL)
        if (entry->d_name[0] == 's' && unlinkat(dirfd(stream), entry->d_name, AT_REMOVEDIR) != 0)
            tool_die("rmdir %s: %s", entry->d_name, strerror(errno));
    closedir(stream);
}

/* Everybody has ended: what is left must be what the model says. */
static void check_rest(struct model *model)
{
    uint64_t end_ms = tool_now_ms() + SETTLE_MS * tool_slow(), cid, total_bytes = 0;
    struct gmsfs_info info;
    gmsfs_t *handle;

    while (!is_at_rest(total_bytes)) {
        char text[4096] = "";

        check(gmsfs_open(store.text, &handle), "gmsfs_open");
        cid = see_by_library(handle);
        total_bytes = cid ? check_layout(handle, cid) : 0;
        gmsfs_close(handle);
        if (is_at_rest(total_bytes))
            break;
        tool_read_text(in_store("sessions").text, text, sizeof(text));
        if (tool_now_ms() > end_ms)
            tool_die("not at rest: %" PRIu64 " bytes used, %" PRIu64
                     " in the layout; sessions:\n%s",
                     used_bytes(), total_bytes, text);
        tool_pause_us(5000);
    }
    model_replay(model, log_fd);
    check(gmsfs_open(store.text, &handle), "gmsfs_open");
    check(gmsfs_get_info(handle, &info), "gmsfs_get_info");
    cid = see_by_library(handle);
    if (info.committed != (cid != 0) || info.total_bytes != total_bytes)
        tool_die("info does not agree with the tree");
    model_see(model, cid, info.generation, "at rest");
    gmsfs_close(handle);
    if (cid)
        compare_in_tree(cid);
    remove_other_stores();
}

int main(int argc, char **argv)
{
    static struct model model = {.possible_count = 1};
    char log_name[] = "/tmp/random_ops.XXXXXX";
    int killed = 0, clients, rounds;

    if (argc != 6)
        tool_die("usage: random_ops MOUNT SEED CLIENTS ROUNDS MS");
    mount_dir = argv[1];
    store = tool_path("%s/weights", mount_dir);
    random_state = strtoull(argv[2], NULL, 0) | 1;
    clients = atoi(argv[3]);
    rounds = atoi(argv[4]);
    if (clients < 1 || clients > MAX_CLIENTS)
        tool_die("CLIENTS is 1 to %d", MAX_CLIENTS);
    log_fd = mkostemp(log_name, O_APPEND | O_CLOEXEC);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (log_fd < 0 || unlink(log_name) != 0 || shared == MAP_FAILED)
        tool_die("set-up: %s", strerror(errno));
    model.possible[0] = see_in_tree(); /* an earlier run may have left something */
    for (int i = 0; i < rounds; i++) {
        killed += run_round(clients, strtoull(argv[5], NULL, 10));
        check_rest(&model);
    }
    printf("%lu operations, %d kills, %" PRIu64 " commits, %" PRIu64 " aborts, %" PRIu64
           " reads, generation %" PRIu64 "\n",
           atomic_load(&shared->operations), killed, model.commits, model.aborts, model.reads,
           model.generation);
    if (model.commits == 0 || model.aborts == 0 || model.reads == 0)
        tool_die("too little happened");
    return 0;
}
