/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auto_racer - many processes race for the lock of one store
 *
 *   auto_racer plain|abort|kill|storm STORE N
 *       N processes open `auto` at once on an empty store. The first with RW loads and commits, all
 *       others must read its commit; no second one loads. abort: the first writer closes without a
 *       commit; kill: it dies of SIGKILL; storm: all get signals while they wait.
 *   auto_racer order STORE N
 *       N processes queue up for RW one after the other and get a storm of signals; then they must
 *       get the lock in the order of their arrival. Kept places must not expire meanwhile
 *       (GMSFS_UNREAD): a process that does not get to run asks again too late.
 */
#include "tool.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define MAX_RACERS      64
#define BYTES           ((size_t)1 << 20)
#define LIMIT_MS        60000u
#define STORM_MS        1500u
#define LONGEST_STOP_US 20000u

enum mode {
    PLAIN,
    ABORT,
    KILL,
    STORM,
    ORDER
};

static const char *const mode_names[] = {"plain", "abort", "kill", "storm", "order"};

struct racer {
    atomic_uint attempts;
    atomic_int is_calm; /* its last signal has come: no later open is interrupted */
    atomic_int place;   /* in the order of grants; -1 for none yet */
};

struct race {
    atomic_int go, hold_ready, hold_end;
    atomic_int active;  /* writers at this moment: never 2 */
    atomic_int writers; /* grants of RW */
    atomic_int commits;
    atomic_int readers;
    atomic_int committed_fill;
    atomic_int next_place;
    struct racer racers[MAX_RACERS];
};

static struct race *race;
static enum mode mode;
static const char *store;
static int racer_count;

static struct racer *self_racer; /* of this process; NULL: the driver or the holder */

static void on_signal(int number)
{
    if (number == SIGUSR2 && self_racer)
        atomic_store(&self_racer->is_calm, 1);
}

static int open_retrying(const char *name, int flags, struct racer *self)
{
    struct tool_path path = tool_path("%s/%s", store, name);
    int fd;

    do {
        atomic_fetch_add(&self->attempts, 1);
        fd = open(path.text, flags | O_CLOEXEC, 0600);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0)
        tool_die("open %s: %s", path.text, strerror(errno));
    return fd;
}

/* Long enough that all others wait; signals do not shorten it. */
static void load_slowly(void)
{
    uint64_t end_ms = tool_now_ms() + (mode == STORM ? STORM_MS : 100);

    while (tool_now_ms() < end_ms)
        tool_pause_us(1000);
}

static void load(struct racer *self, int fill)
{
    static char bytes[BYTES];
    int fd = open_retrying("allocations/a", O_RDWR | O_CREAT | O_EXCL, self);
    int result;

    do
        result = ftruncate(fd, (off_t)BYTES);
    while (result != 0 && errno == EINTR);
    if (result != 0)
        tool_die("ftruncate: %s", strerror(errno));
    memset(bytes, fill, sizeof(bytes));
    for (size_t done = 0; done < BYTES;) {
        ssize_t n = pwrite(fd, bytes + done, BYTES - done, (off_t)done);

        if (n < 0 && errno != EINTR)
            tool_die("pwrite: %s", strerror(errno));
        done += n > 0 ? (size_t)n : 0;
    }
    if (close(fd) != 0 && errno != EINTR)
        tool_die("close: %s", strerror(errno));
    load_slowly();
}

static void be_writer(struct racer *self, int lock)
{
    int turn = atomic_fetch_add(&race->writers, 1) + 1;
    int fd;

    if (atomic_fetch_add(&race->active, 1) != 0)
        tool_die("two writers at once");
    load(self, turn);
    if (turn == 1 && (mode == ABORT || mode == KILL)) {
        atomic_fetch_sub(&race->active, 1);
        if (mode == KILL)
            raise(SIGKILL);
        close(lock);
        return;
    }
    atomic_store(&race->committed_fill, turn);
    fd = open_retrying("commit", O_WRONLY, self);
    atomic_fetch_sub(&race->active, 1);
    atomic_fetch_add(&race->commits, 1);
    if (write(fd, "1", 1) != 1)
        tool_die("commit: %s", strerror(errno));
    close(fd);
    close(lock);
}

static void be_reader(struct racer *self, int lock)
{
    static unsigned char bytes[BYTES];
    int fd = open_retrying("allocations/a", O_RDONLY, self);
    size_t done = 0;

    while (done < BYTES) {
        ssize_t n = pread(fd, bytes + done, BYTES - done, (off_t)done);

        if (n == 0 || (n < 0 && errno != EINTR))
            tool_die("pread: %s", n ? strerror(errno) : "short");
        done += n > 0 ? (size_t)n : 0;
    }
    for (size_t i = 0; i < BYTES; i++)
        if (bytes[i] != atomic_load(&race->committed_fill))
            tool_die("byte %zu is %d, the committer wrote %d", i, bytes[i],
                     atomic_load(&race->committed_fill));
    atomic_fetch_add(&race->readers, 1);
    close(fd);
    close(lock);
}

static void be_racer(struct racer *self)
{
    char text[64] = "";
    ssize_t n;
    int lock;

    while (!atomic_load(&race->go))
        sched_yield();
    lock = open_retrying("auto", O_RDWR, self);
    do
        n = pread(lock, text, sizeof(text) - 1, 0);
    while (n < 0 && errno == EINTR);
    if (n < 2)
        tool_die("reading auto: %s", n < 0 ? strerror(errno) : "short");
    if (strncmp(text, "RW", 2) == 0)
        be_writer(self, lock);
    else if (strncmp(text, "RO", 2) == 0)
        be_reader(self, lock);
    else
        tool_die("auto says '%s'", text);
}

static void be_queuer(struct racer *self)
{
    int lock = open_retrying("lock", O_RDWR, self);

    atomic_store(&self->place, atomic_fetch_add(&race->next_place, 1));
    close(lock);
}

static void be_holder(void)
{
    struct racer self = {0};
    int lock = open_retrying("lock", O_RDWR, &self);

    atomic_store(&race->hold_ready, 1);
    while (!atomic_load(&race->hold_end))
        tool_pause_us(1000);
    close(lock);
}

static pid_t start(int index)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = index % 2 ? SA_RESTART : 0};
    pid_t pid;

    sigaction(SIGUSR1, &action, NULL); /* before the fork: signals may come at once */
    sigaction(SIGUSR2, &action, NULL);
    pid = fork();
    if (pid < 0)
        tool_die("fork: %s", strerror(errno));
    if (pid > 0)
        return pid;
    self_racer = index < 0 ? NULL : &race->racers[index];
    alarm((unsigned)(LIMIT_MS / 1000 * tool_slow()));
    if (index < 0)
        be_holder();
    else if (mode == ORDER)
        be_queuer(&race->racers[index]);
    else
        be_racer(&race->racers[index]);
    exit(0);
}

/* Sends one signal to one of them; a stopped one soon continues. */
static void disturb(const pid_t *pids, uint64_t *random)
{
    pid_t pid = pids[tool_below(random, (uint64_t)racer_count)];

    if (pid == 0)
        return;
    if (tool_below(random, 4) != 0) {
        kill(pid, SIGUSR1);
        return;
    }
    kill(pid, SIGSTOP);
    tool_pause_us((unsigned)tool_below(random, LONGEST_STOP_US));
    kill(pid, SIGCONT);
}

/* Reaps without waiting. Exits other than 0, or the one wanted SIGKILL, are failures. */
static int reap(pid_t *pids, int *killed)
{
    int status, left = 0;

    for (int i = 0; i < racer_count; i++) {
        if (pids[i] != 0 && waitpid(pids[i], &status, WNOHANG) == pids[i]) {
            if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
                ++*killed;
            else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                tool_die("racer %d ended with status %#x", i, (unsigned)status);
            pids[i] = 0;
        }
        left += pids[i] != 0;
    }
    return left;
}

static int run_to_end(pid_t *pids, uint64_t *random, bool storm)
{
    uint64_t end_ms = tool_now_ms() + LIMIT_MS * tool_slow();
    int killed = 0;

    while (reap(pids, &killed) > 0) {
        if (tool_now_ms() > end_ms)
            tool_die("not all racers came to an end");
        if (storm)
            disturb(pids, random);
        tool_pause_us(300);
    }
    return killed;
}

static unsigned count_attempts(void)
{
    unsigned sum = 0;

    for (int i = 0; i < racer_count; i++)
        sum += atomic_load(&race->racers[i].attempts);
    return sum;
}

static void wait_queued(int count)
{
    uint64_t end_ms = tool_now_ms() + LIMIT_MS * tool_slow();

    while (tool_count_sessions(store, "waiting") < count) {
        if (tool_now_ms() > end_ms)
            tool_die("no %d waiters in sessions", count);
        tool_pause_us(1000);
    }
}

static void storm(const pid_t *pids, uint64_t *random)
{
    uint64_t least_ms = tool_now_ms() + STORM_MS, most_ms = least_ms + LIMIT_MS * tool_slow();

    while (tool_now_ms() < least_ms || count_attempts() < 2 * (unsigned)racer_count) {
        if (tool_now_ms() > most_ms)
            tool_die("the storm interrupts no process");
        disturb(pids, random);
        tool_pause_us(300);
    }
}

/* Sends each process its last signal, and waits until all are in the queue again. Once the handler
 * of the last signal runs, no earlier one is pending and no open waits. */
static void calm(const pid_t *pids)
{
    uint64_t end_ms = tool_now_ms() + LIMIT_MS * tool_slow();

    for (int i = 0; i < racer_count; i++)
        kill(pids[i], SIGUSR2);
    for (int i = 0; i < racer_count; i++)
        while (!atomic_load(&race->racers[i].is_calm)) {
            if (tool_now_ms() > end_ms)
                tool_die("the racers do not come to rest");
            tool_pause_us(1000);
        }
    wait_queued(racer_count);
}

static void run_order(pid_t *pids, uint64_t *random)
{
    pid_t holder = start(-1);

    while (!atomic_load(&race->hold_ready))
        tool_pause_us(1000);
    for (int i = 0; i < racer_count; i++) {
        pids[i] = start(i);
        wait_queued(i + 1);
    }
    storm(pids, random);
    calm(pids);
    printf("%u opens for %d waits\n", count_attempts(), racer_count);
    atomic_store(&race->hold_end, 1);
    waitpid(holder, NULL, 0);
    run_to_end(pids, random, false);
    for (int i = 0; i < racer_count; i++)
        if (atomic_load(&race->racers[i].place) != i)
            tool_die("number %d in the queue was served as number %d", i,
                     atomic_load(&race->racers[i].place));
}

static void run_race(pid_t *pids, uint64_t *random)
{
    int lost = mode == ABORT || mode == KILL, killed;

    for (int i = 0; i < racer_count; i++)
        pids[i] = start(i);
    atomic_store(&race->go, 1);
    killed = run_to_end(pids, random, mode == STORM);
    printf("%d writers, %d commits, %d readers, %d killed\n", atomic_load(&race->writers),
           atomic_load(&race->commits), atomic_load(&race->readers), killed);
    if (atomic_load(&race->writers) != 1 + lost || atomic_load(&race->commits) != 1 ||
        atomic_load(&race->readers) != racer_count - 1 - lost || killed != (mode == KILL))
        tool_die("expected %d writers, 1 commit, %d readers", 1 + lost, racer_count - 1 - lost);
}

static int parse_mode(const char *name)
{
    for (int i = PLAIN; i <= ORDER; i++)
        if (strcmp(name, mode_names[i]) == 0)
            return i;
    tool_die("no mode %s", name);
}

int main(int argc, char **argv)
{
    const char *seed = getenv("GMSFS_TEST_SEED");
    pid_t pids[MAX_RACERS] = {0};
    uint64_t random;

    if (argc != 4)
        tool_die("usage: auto_racer MODE STORE N");
    mode = (enum mode)parse_mode(argv[1]);
    store = argv[2];
    racer_count = atoi(argv[3]);
    if (racer_count < 2 || racer_count > MAX_RACERS)
        tool_die("N is 2 to %d", MAX_RACERS);
    random = seed ? strtoull(seed, NULL, 0) | 1 : tool_now_ns() | 1;
    printf("seed %llu\n", (unsigned long long)random);
    fflush(stdout);
    race = mmap(NULL, sizeof(*race), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (race == MAP_FAILED)
        tool_die("mmap: %s", strerror(errno));
    for (int i = 0; i < MAX_RACERS; i++)
        atomic_store(&race->racers[i].place, -1);
    if (mode == ORDER)
        run_order(pids, &random);
    else
        run_race(pids, &random);
    return 0;
}
