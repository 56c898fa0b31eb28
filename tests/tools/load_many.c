/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_many - reads and locks work while many clients wait and transfers are stopped
 *
 *   load_many MOUNT BUSY QUIET GATE
 *
 * BUSY is a committed store with an allocation a000000, QUIET any other one; GATE is the file of
 * the daemon's test hook (GMSFS_GATE). Parks waiters at BUSY and stops transfers of BUSY at the
 * gate, then reads BUSY's `state` and takes and releases QUIET's lock many times. A call that
 * waited for a waiter or a transfer would never return, because only the end of this program
 * releases them: then the alarm ends it.
 */
#include "gmsfs_abi.h"
#include "tool.h"

#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#define WAITERS     100
#define TRANSFERS   12
#define ROUNDS      200
#define PIECE_BYTES 65536
#define LIMIT_MS    20000u

static const char *mount_dir, *busy, *quiet, *gate;

/* Releases the transfers, however this ends. */
static void open_gate(void)
{
    unlink(gate);
}

static int open_or_die(struct tool_path path, int flags)
{
    int fd = open(path.text, flags | O_CLOEXEC, 0600);

    if (fd < 0)
        tool_die("open %s: %s", path.text, strerror(errno));
    return fd;
}

/* ---- calls that must work ------------------------------------------------------------------- */

static void read_state(void)
{
    struct tool_path path = tool_path("%s/state", busy);
    char text[64];

    if (tool_read_text(path.text, text, sizeof(text)) <= 0)
        tool_die("%s cannot be read", path.text);
}

/* The next open waits for the release of this one. */
static void take_by_open(void)
{
    close(open_or_die(tool_path("%s/lock", quiet), O_RDWR));
}

static void take_by_ioctl(void)
{
    static int ctl = -1;
    struct gmsfs_ioc_acquire acquire = {.mode = GMSFS_MODE_RW, .timeout_ms = LIMIT_MS};

    if (ctl < 0)
        ctl = open_or_die(tool_path("%s/ctl", quiet), O_RDWR);
    if (ioctl(ctl, GMSFS_IOC_ACQUIRE, &acquire) != 0)
        tool_die("ACQUIRE: %s", strerror(errno));
    if (ioctl(ctl, GMSFS_IOC_RELEASE) != 0)
        tool_die("RELEASE: %s", strerror(errno));
}

static void (*const acts[])(void) = {read_state, take_by_open, take_by_ioctl};

/* ---- the load ------------------------------------------------------------------------------ */

static void *transfer(void *arg)
{
    static char bytes[TRANSFERS][PIECE_BYTES];
    size_t index = (size_t)(uintptr_t)arg;
    int fd = open_or_die(tool_path("%s/allocations/a000000", busy), O_RDONLY);
    ssize_t n = pread(fd, bytes[index], PIECE_BYTES, (off_t)(index * PIECE_BYTES));

    if (n != PIECE_BYTES)
        tool_die("pread: %s", n < 0 ? strerror(errno) : "short");
    close(fd);
    return NULL;
}

static void be_reader(void)
{
    int lock = open_or_die(tool_path("%s/lock", busy), O_RDONLY);
    pthread_t threads[TRANSFERS];

    for (size_t i = 0; i < TRANSFERS; i++)
        if (pthread_create(&threads[i], NULL, transfer, (void *)(uintptr_t)i) != 0)
            tool_die("pthread_create");
    for (size_t i = 0; i < TRANSFERS; i++)
        pthread_join(threads[i], NULL);
    close(lock);
}

static void be_waiter(void)
{
    close(open_or_die(tool_path("%s/lock", busy), O_RDWR));
}

static void start(void (*be)(void), int count)
{
    for (int i = 0; i < count; i++) {
        pid_t pid = fork();

        if (pid < 0)
            tool_die("fork: %s", strerror(errno));
        if (pid == 0) {
            be();
            _exit(0);
        }
    }
}

static int transfers_in_flight(void)
{
    static char text[TOOL_TEXT_BYTES];
    static const char name[] = "gmsfs_transfers_in_flight";
    struct tool_path path = tool_path("%s/metrics", mount_dir);
    char *at = text, *space;

    if (tool_read_text(path.text, text, sizeof(text)) < 0)
        tool_die("%s cannot be read", path.text);
    while ((at = strstr(at, name)) != NULL && at != text && at[-1] != '\n')
        at += sizeof(name);
    if (!at)
        tool_die("metrics has no %s", name);
    at[strcspn(at, "\n")] = '\0';
    space = strrchr(at, ' ');
    return space ? atoi(space) : -1;
}

static int waiters_parked(void)
{
    return tool_count_sessions(busy, "waiting");
}

static void wait_for(int (*count)(void), int want, const char *what)
{
    uint64_t end_ms = tool_now_ms() + LIMIT_MS;

    while (count() != want) {
        if (tool_now_ms() > end_ms)
            tool_die("%s: %d, not %d", what, count(), want);
        tool_pause_us(2000);
    }
}

static void reap_all(void)
{
    int status;

    for (int i = 0; i < WAITERS + 1; i++) {
        if (wait(&status) < 0)
            tool_die("wait: %s", strerror(errno));
        if (status != 0)
            tool_die("a waiter or the reader ended with status %#x", (unsigned)status);
    }
}

int main(int argc, char **argv)
{
    if (argc != 5)
        tool_die("usage: load_many MOUNT BUSY QUIET GATE");
    mount_dir = argv[1];
    busy = argv[2];
    quiet = argv[3];
    gate = argv[4];

    close(open_or_die(tool_path("%s", gate), O_WRONLY | O_CREAT));
    start(be_reader, 1);
    wait_for(transfers_in_flight, TRANSFERS, "transfers in flight");
    atexit(open_gate);
    start(be_waiter, WAITERS);
    wait_for(waiters_parked, WAITERS, "waiters");
    alarm((unsigned)(LIMIT_MS / 1000 * tool_slow()));
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
        for (int round = 0; round < ROUNDS; round++)
            acts[i]();
    if (transfers_in_flight() != TRANSFERS || waiters_parked() != WAITERS)
        tool_die("the load ended before the calls did");
    open_gate();
    reap_all();
    return 0;
}
