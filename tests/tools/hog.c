/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hog - takes all that one user may have of one thing, and holds it
 *
 *   hog MOUNT STORE THING
 *
 * Takes until it is refused, prints `full COUNT ERRNO` and holds everything until it is killed.
 * When a process may open no more files, a child continues. For tests of bounds: STORE has an
 * allocation, and this user may write it (reading is enough for most). For `frames` and
 * `sessions-unread` MOUNT is the V0 socket of a store that has a long value as `large`.
 */
#include "hog_sockets.h"

#include <linux/aio_abi.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MAX_TAKEN     200000u
#define MAX_THREADS   6000u
#define ALLOC_THREADS 1500u
#define STACK_BYTES   (64u << 10)
#define ENTRY_BYTES   16384u
#define LARGE_BYTES   (1u << 20)
#define AIO_REQUESTS  4096
#define WAITED_BYTES  (2u << 20)
#define WAITED_MS     500 /* a request that took so long had waited */

static const char *store;

static const char *in_store(const char *name)
{
    snprintf(path, sizeof path, "%s/%s/%s", mount, store, name);
    return path;
}

static int open_or_errno(const char *name, int flags)
{
    int fd = open(name, flags | O_CLOEXEC, 0666);

    return fd < 0 ? -errno : fd;
}

static int acquire(int fd, uint32_t mode, uint64_t timeout_ms)
{
    struct gmsfs_ioc_acquire acquire = {.mode = mode, .timeout_ms = timeout_ms};

    return ioctl(fd, GMSFS_IOC_ACQUIRE, &acquire) < 0 ? -errno : 0;
}

/* Returns a `ctl` of the store that has the lock. */
static int begin_session(uint32_t mode)
{
    int fd = open_or_errno(in_store("ctl"), mode == GMSFS_MODE_RO ? O_RDONLY : O_RDWR);

    if (fd < 0 || acquire(fd, mode, 5000) < 0)
        tool_die("%s: no session: %s", in_store("ctl"), strerror(errno));
    return fd;
}

/* ---- takers: each takes one, and returns 0 or a negative errno ------------------------------ */

static int keep_open(const char *name, int flags)
{
    int fd = open_or_errno(name, flags);

    return fd < 0 ? fd : 0;
}

static int take_file(void)
{
    return keep_open(in_mount("device"), O_RDONLY);
}

static int take_directory(void)
{
    return keep_open(in_store("metadata"), O_RDONLY | O_DIRECTORY);
}

/* The text stays with the file until it is read to its end. */
static int take_text(void)
{
    int fd = open_or_errno(in_mount("metrics"), O_RDONLY);
    char byte;

    if (fd < 0)
        return fd;
    return read(fd, &byte, 1) < 0 ? -errno : 0;
}

/* Takes the writer's lock of the store, at the first call. */
static int hold_lock(void)
{
    static int lock = -1;

    if (lock < 0)
        lock = open_or_errno(in_store("lock"), O_RDWR);
    return lock;
}

static int take_entry(void)
{
    static const char value[ENTRY_BYTES];
    static unsigned number;
    char name[32];
    int lock = hold_lock();

    if (lock < 0)
        return lock;
    snprintf(name, sizeof name, "metadata/k%u", number++);
    int fd = open_or_errno(in_store(name), O_WRONLY | O_CREAT);
    ssize_t put = fd < 0 ? fd : write(fd, value, sizeof value);
    int error = put < 0 ? (fd < 0 ? fd : -errno) : 0;

    if (fd >= 0 && close(fd) != 0)
        error = -errno;
    return error;
}

/* Makes allocations without memory, whose names are as long as possible. */
static int take_name(void)
{
    static unsigned number;
    char name[sizeof "allocations/" + NAME_MAX];
    int lock = hold_lock();

    if (lock < 0)
        return lock;
    snprintf(name, sizeof name, "allocations/%0*u", NAME_MAX, number++);
    int fd = open_or_errno(in_store(name), O_WRONLY | O_CREAT);
    if (fd >= 0)
        close(fd);
    return fd < 0 ? fd : 0;
}

static int take_session(void)
{
    int fd = open_or_errno(in_store("ctl"), O_RDONLY);

    return fd < 0 ? fd : acquire(fd, GMSFS_MODE_RO, 0);
}

static int take_lock(void)
{
    return keep_open(in_store("lock"), O_RDONLY);
}

static int take_ticket(void)
{
    static int fd = -1;
    struct gmsfs_ioc_export export = {0};

    if (fd < 0)
        fd = begin_session(GMSFS_MODE_RO);
    return ioctl(fd, GMSFS_IOC_EXPORT, &export) < 0 ? -errno : 0;
}

/* The daemon gathers writes to a writer's `ctl` until an APPLY. */
static int take_gathered(void)
{
    static char bytes[LARGE_BYTES];
    static int fd = -1;

    if (fd < 0)
        fd = begin_session(GMSFS_MODE_RW);
    return write(fd, bytes, sizeof bytes) < 0 ? -errno : 0;
}

static int take_spool(void)
{
    static char bytes[LARGE_BYTES], name[64];
    static unsigned number;
    static int fd = -1;
    int lock = hold_lock();
    ssize_t written;

    if (lock < 0)
        return lock;
    if (fd < 0) {
        snprintf(name, sizeof name, "allocations/spool-%u", number++);
        fd = open_or_errno(in_store(name), O_WRONLY | O_CREAT);
    }
    if (fd < 0)
        return fd;
    written = write(fd, bytes, sizeof bytes);
    if (written < 0 && errno == EFBIG) {
        fd = -1;
        return take_spool();
    }
    return written < 0 ? -errno : 0;
}

/* ---- waiters, each on a thread -------------------------------------------------------------- */

static pthread_mutex_t waiting = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t refusal = PTHREAD_COND_INITIALIZER;
static int refused; /* the error of the first one */

static void *note_refusal(int error)
{
    pthread_mutex_lock(&waiting);
    if (error < 0 && !refused)
        refused = error;
    pthread_cond_signal(&refusal);
    pthread_mutex_unlock(&waiting);
    return NULL;
}

static void *wait_for_lock(void *unused)
{
    int fd = open_or_errno(path, O_RDWR);

    (void)unused;
    return note_refusal(fd < 0 ? fd : acquire(fd, GMSFS_MODE_RW, GMSFS_TIMEOUT_FOREVER));
}

/* Returns the first refusal. */
static int wait_in_threads(void *(*wait)(void *), unsigned threads, unsigned *count)
{
    pthread_attr_t small;
    pthread_t thread;

    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_BYTES);
    for (*count = 0; *count < threads; (*count)++)
        if (pthread_create(&thread, &small, wait, NULL))
            tool_die("thread %u: %s", *count, strerror(errno));
    pthread_mutex_lock(&waiting);
    while (!refused)
        pthread_cond_wait(&refusal, &waiting);
    pthread_mutex_unlock(&waiting);
    return refused;
}

/* A process of this user holds the lock for reading, so that all others wait. */
static int fill_with_waiters(unsigned *count)
{
    begin_session(GMSFS_MODE_RO); /* sets `path` for the threads */
    return wait_in_threads(wait_for_lock, MAX_THREADS, count);
}

static int allocating = -1;         /* a writer's `ctl` */
static pthread_barrier_t all_begin; /* so that they ask within moments */

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A refusal comes at once, and an ALLOC that has waited is asked for again. */
static void *wait_for_memory(void *unused)
{
    struct gmsfs_ioc_alloc_each *wanted = calloc(1, sizeof *wanted);
    uint64_t began_ms;
    int error;

    (void)unused;
    if (!wanted)
        tool_die("no memory: %s", strerror(errno));
    pthread_barrier_wait(&all_begin);
    do {
        began_ms = now_ms();
        wanted->count = GMSFS_ALLOC_EACH_MAX;
        for (unsigned i = 0; i < wanted->count; i++)
            wanted->items[i].size_bytes = WAITED_BYTES;
        error = ioctl(allocating, GMSFS_IOC_ALLOC_EACH, wanted) < 0 ? -errno : 0;
    } while (now_ms() - began_ms >= WAITED_MS);
    return note_refusal(error);
}

/* Has as many ALLOCs wait as it may, each with the largest argument. The device is full. */
static int fill_with_allocs(unsigned *count)
{
    allocating = begin_session(GMSFS_MODE_RW);
    pthread_barrier_init(&all_begin, NULL, ALLOC_THREADS);
    return wait_in_threads(wait_for_memory, ALLOC_THREADS, count);
}

/* Queues writes. None is refused: the kernel holds them back. So it is full when this process has
 * as many in flight as it may have. */
static int fill_with_writes(unsigned *count)
{
    static char bytes[LARGE_BYTES];
    static struct iocb requests[AIO_REQUESTS], *list[AIO_REQUESTS];
    aio_context_t context = 0;
    int lock = hold_lock(), fd;

    if (lock < 0)
        return lock;
    fd = open_or_errno(in_store("allocations/large"), O_WRONLY | O_CREAT | O_DIRECT);
    if (fd < 0 || ftruncate(fd, LARGE_BYTES) < 0)
        return -errno;
    if (syscall(SYS_io_setup, AIO_REQUESTS, &context) < 0)
        tool_die("io_setup: %s", strerror(errno));
    for (*count = 0; *count < AIO_REQUESTS; (*count)++) {
        list[*count] = &requests[*count];
        requests[*count] = (struct iocb){.aio_lio_opcode = IOCB_CMD_PWRITE,
                                         .aio_fildes = (uint32_t)fd,
                                         .aio_buf = (uintptr_t)bytes,
                                         .aio_nbytes = sizeof bytes};
    }
    return (int)syscall(SYS_io_submit, context, *count, list) < 0 ? -errno : -EINPROGRESS;
}

/* ---- taking all ----------------------------------------------------------------------------- */

static const struct kind {
    const char *name;
    int (*take)(void);
    int (*fill)(unsigned *count);
} kinds[] = {
    {"files", take_file, NULL},
    {"directories", take_directory, NULL},
    {"texts", take_text, NULL},
    {"entries", take_entry, NULL},
    {"sessions", take_session, NULL},
    {"locks", take_lock, NULL},
    {"tickets", take_ticket, NULL},
    {"regions", take_region, NULL},
    {"gathered", take_gathered, NULL},
    {"connections", take_connection, NULL},
    {"unread", take_unread, NULL},
    {"spools", take_spool, NULL},
    {"frames", take_answer, NULL},
    {"sessions-unread", take_session_unread, NULL},
    {"names", take_name, NULL},
    {"waiters", NULL, fill_with_waiters},
    {"waiting-allocs", NULL, fill_with_allocs},
    {"transfers", NULL, fill_with_writes},
};

static const struct kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    tool_die("%s: no such thing", name);
}

static void use_all_descriptors(void)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* This process has no descriptor left: its child continues, and ends with it. */
static void go_on_in_child(void)
{
    int status;
    pid_t child = fork();

    if (child < 0)
        tool_die("fork: %s", strerror(errno));
    if (child > 0) {
        waitpid(child, &status, 0);
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    closefrom(3);
}

static int take_all(const struct kind *kind, unsigned *count)
{
    for (*count = 0; *count < MAX_TAKEN; (*count)++) {
        int error = kind->take();
        if (error == -EMFILE) {
            go_on_in_child();
            error = kind->take();
        }
        if (error < 0)
            return error;
    }
    tool_die("%s: never refused", kind->name);
}

int main(int argc, char **argv)
{
    const struct kind *kind;
    unsigned count = 0;
    int error;

    if (argc != 4)
        tool_die("usage: hog MOUNT STORE THING");
    mount = argv[1];
    store = argv[2];
    kind = find_kind(argv[3]);
    use_all_descriptors();
    error = kind->take ? take_all(kind, &count) : kind->fill(&count);
    printf("full %u %s\n", count, strerrorname_np(-error));
    fflush(stdout);
    for (;;) {
        poll(NULL, 0, answer_count ? MOVE_MS : -1);
        keep_answers();
    }
}
