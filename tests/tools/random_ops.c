/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random_ops - random clients, killed at random, and a model of the possible results
 *
 *   random_ops [OPTION...] STORE...
 *
 *   -s SEED      of all that is random (1); the scheduler has its part too
 *   -c CLIENTS   (4), at most 64
 *   -r ROUNDS    (1), of -m MS milliseconds (1000) each; or
 *   -t SECONDS   as many rounds as fit
 *   -k PID       the keeper of a mount, in the order of the mounts: its daemon is checked too
 *   -g KIB       how far a worker's private memory may grow (0: it is not checked)
 *   -w SECONDS   after which an operation counts as hanging (30)
 *   -d FILE      where to write down hanging operations and their causes (standard error)
 *   -p SECONDS   between two lines of progress (0: none)
 *   -W MS        workers of the keepers are killed, each at most this long after the one before
 *   -n KILLS     of workers, and then it ends (with -W)
 *
 * CLIENTS processes do random things with the stores, one after the other: write through the tree
 * and through libgmsfs, commit, abort, write in place, read and compare, wait, look, try forbidden
 * things (random_clients.h), take several stores as one, drain a mount (random_many.h), move stores
 * on a mount with places besides its device (random_places.h). Some are killed at any moment, some
 * of these after they were stopped for a while, and replaced. With -W a worker is killed as often,
 * and its clients must not notice. After each round all have ended, and then everything must be as
 * random_rest.h says. SIGINT ends it in order after the round that it cuts short. Exit status 0:
 * all was well; the last line of the output has the figures in any case.
 */
#include "random_clients.h"
#include "random_rest.h"
#include "random_stall.h"
#include "random_targets.h"
#include "random_workers.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define LOOK_MS         500u /* between two checks for clients that hang */
#define MAX_MORE_ROUNDS 40   /* on a machine too busy for all operations to happen in a few */
#define MAX_LIFE_FACTOR 64u  /* clients wait up to 13 s for a store, and live up to 1 s, by this */

static struct options {
    uint64_t seed, round_ms, growth_kib, stall_ms, progress_ms, worker_ms;
    int clients, rounds, worker_kills;
    uint64_t total_ms;
    const char *dump;
} options = {.seed = 1, .round_ms = 1000, .stall_ms = 30000, .clients = 4, .rounds = 1};

static pid_t clients[MAX_CLIENTS];
static int kills;
static uint64_t started_ms;
static pid_t driver; /* the process that prints the figures; none that it forks */
static volatile sig_atomic_t interrupted;

/* ---- clients ------------------------------------------------------------------------------- */

static void on_timer(int number)
{
    (void)number;
}

static void run_client(struct place *place)
{
    while (!atomic_load(&shared->stop)) {
        int target = (int)below((uint64_t)target_count);

        use_target(target);
        atomic_store(&place->target, target);
        atomic_store(&place->since_ms, tool_now_ms());
        do_something(&place->operation);
        atomic_store(&place->since_ms, 0);
        atomic_fetch_add(&shared->operations, 1);
    }
}

/* A client never outlives the driver: it would keep the mount and the output open, and a process
 * that waits for them would learn of the failure only after its own timeout. */
static void start_client(int index)
{
    struct sigaction action = {.sa_handler = on_timer};
    uint64_t seed = tool_random(&random_state);

    atomic_store(&shared->places[index].since_ms, 0);
    clients[index] = fork();
    if (clients[index] < 0)
        tool_die("fork: %s", strerror(errno));
    if (clients[index] > 0)
        return;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != driver)
        _exit(1);
    sigaction(SIGALRM, &action, NULL);
    signal(SIGINT, SIG_IGN); /* a terminal signals all; the driver decides */
    random_state = seed | 1;
    run_client(&shared->places[index]);
    _exit(0);
}

/* ---- hanging operations --------------------------------------------------------------------- */

__attribute__((noreturn)) static void hangs(int index)
{
    const struct place *place = &shared->places[index];
    struct tool_path why =
        tool_path("client %d does not come on: operation %d on %s", (int)clients[index],
                  atomic_load(&place->operation), targets[atomic_load(&place->target)].path.text);

    dump_stall(options.dump, why.text, clients, options.clients);
    tool_die("%s; %s tells more", why.text, options.dump ? options.dump : "the text above");
}

static void look_for_stall(void)
{
    static uint64_t looked_ms;
    uint64_t now_ms = tool_now_ms();

    if (now_ms - looked_ms < LOOK_MS)
        return;
    looked_ms = now_ms;
    for (int i = 0; i < options.clients; i++) {
        uint64_t since_ms = atomic_load(&shared->places[i].since_ms);

        if (since_ms && now_ms > since_ms + options.stall_ms)
            hangs(i);
    }
}

static void reap(int index)
{
    uint64_t end_ms = tool_now_ms() + options.stall_ms;
    pid_t pid = clients[index], got;
    int status;

    while ((got = waitpid(pid, &status, WNOHANG)) == 0) {
        if (tool_now_ms() > end_ms)
            hangs(index);
        tool_pause_us(1000);
    }
    if (got != pid || (status != 0 && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)))
        tool_die("client %d ended with status %#x", (int)pid, (unsigned)status);
}

/* ---- rounds -------------------------------------------------------------------------------- */

/* A stopped client delays the waiters for its lock, until it is gone. */
static void kill_one(void)
{
    int victim = (int)below((uint64_t)options.clients);
    pid_t killed = clients[victim];

    if (chance(10)) {
        kill(clients[victim], SIGSTOP);
        tool_pause_us((unsigned)below(20000));
    }
    kill(clients[victim], SIGKILL);
    reap(victim);
    use_target(atomic_load(&shared->places[victim].target));
    note("k %d\n", (int)killed);
    serve_mount(atomic_load(&shared->places[victim].target));
    start_client(victim);
    kills++;
}

static bool killed_enough(void)
{
    return options.worker_kills && worker_kills >= options.worker_kills;
}

static void pause_and_kill(void)
{
    if (!options.worker_ms) {
        tool_pause_us(500 + (unsigned)(below(15000) * life_factor));
        kill_one();
        return;
    }
    tool_pause_us((unsigned)below(options.worker_ms * 1000));
    if (chance(20))
        kill_one();
    while (!kill_worker())
        tool_pause_us(1000);
}

static void run_round(void)
{
    uint64_t end_ms = tool_now_ms() + options.round_ms, over_ms = started_ms + options.total_ms;

    if (options.total_ms && end_ms > over_ms)
        end_ms = over_ms;
    atomic_store(&shared->stop, 0);
    for (int i = 0; i < options.clients; i++)
        start_client(i);
    while (tool_now_ms() < end_ms && !interrupted && !killed_enough()) {
        pause_and_kill();
        look_for_stall();
    }
    atomic_store(&shared->stop, 1);
    for (int i = 0; i < options.clients; i++)
        reap(i);
    check_rest(options.growth_kib);
}

static bool too_little_happened(void)
{
    bool with_places = false;
    uint64_t given_up = 0;

    for (int i = 0; i < target_count; i++) {
        const struct model *model = targets[i].model;

        if (model->commits == 0 || model->aborts == 0 || model->reads == 0)
            return true;
        with_places |= targets[i].has_places;
        given_up += model->given_up;
    }
    return with_places && (given_up == 0 || atomic_load(&shared->wakes) == 0);
}

static void print_figures(void)
{
    uint64_t commits = 0, aborts = 0, reads = 0, given_up = 0;

    for (int i = 0; i < target_count; i++) {
        commits += targets[i].model->commits;
        aborts += targets[i].model->aborts;
        reads += targets[i].model->reads;
        given_up += targets[i].model->given_up;
    }
    if (options.worker_ms)
        printf("%d workers killed; ", worker_kills);
    printf("%" PRIu64 " s: %lu operations, %d kills, %" PRIu64 " commits, %" PRIu64
           " aborts, %" PRIu64 " reads, %lu moves, %lu wakes behind one, %" PRIu64
           " given up, %lu losses\n",
           (tool_now_ms() - started_ms) / 1000, atomic_load(&shared->operations), kills, commits,
           aborts, reads, atomic_load(&shared->moves), atomic_load(&shared->wakes), given_up,
           atomic_load(&shared->losses));
    fflush(stdout);
}

static bool is_over(int round)
{
    if (interrupted || options.worker_kills)
        return interrupted || killed_enough();
    if (options.total_ms)
        return tool_now_ms() >= started_ms + options.total_ms;
    return round >= options.rounds &&
           (!too_little_happened() || round >= options.rounds + MAX_MORE_ROUNDS);
}

static void run_rounds(void)
{
    uint64_t told_ms = started_ms;

    for (int round = 0; !is_over(round); round++) {
        if (!options.total_ms && !options.worker_kills && round >= options.rounds)
            life_factor = life_factor < MAX_LIFE_FACTOR ? life_factor * 2 : 1;
        run_round();
        if (options.progress_ms && tool_now_ms() >= told_ms + options.progress_ms) {
            told_ms = tool_now_ms();
            print_figures();
        }
    }
    if (!options.total_ms && !options.worker_kills && !interrupted && too_little_happened())
        tool_die("too little happened");
}

/* ---- beginning and end --------------------------------------------------------------------- */

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* Runs too when tool_die ends it. */
static void at_end(void)
{
    if (getpid() == driver)
        print_figures();
}

static void add_keeper(const char *pid)
{
    if (keeper_count == MAX_KEEPERS)
        tool_die("at most %d mounts", MAX_KEEPERS);
    keepers[keeper_count++] = (pid_t)atoi(pid);
}

static void read_option(int option, const char *value)
{
    uint64_t number = strtoull(value ? value : "", NULL, 0);

    switch (option) {
    case 's':
        options.seed = number;
        break;
    case 'c':
        options.clients = (int)number;
        break;
    case 'r':
        options.rounds = (int)number;
        break;
    case 'm':
        options.round_ms = number;
        break;
    case 't':
        options.total_ms = number * 1000;
        break;
    case 'k':
        add_keeper(value);
        break;
    case 'g':
        options.growth_kib = number;
        break;
    case 'w':
        options.stall_ms = number * 1000;
        break;
    case 'd':
        options.dump = value;
        break;
    case 'p':
        options.progress_ms = number * 1000;
        break;
    case 'W':
        options.worker_ms = number;
        break;
    case 'n':
        options.worker_kills = (int)number;
        break;
    default:
        tool_die("see the head of tests/tools/random_ops.c");
    }
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    int option;

    while ((option = getopt(argc, argv, "s:c:r:m:t:k:g:w:d:p:W:n:")) != -1)
        read_option(option, optarg);
    if (optind == argc || options.clients < 1 || options.clients > MAX_CLIENTS)
        tool_die("it takes stores, and 1 to %d clients", MAX_CLIENTS);
    if (options.worker_ms && keeper_count == 0)
        tool_die("-W needs -k, the keepers of the workers to kill");
    options.stall_ms *= tool_slow();
    random_state = options.seed | 1;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        tool_die("set-up: %s", strerror(errno));
    while (optind < argc)
        add_target(argv[optind++]);
    sigaction(SIGINT, &action, NULL);
    driver = getpid();
    started_ms = tool_now_ms();
    atexit(at_end);
    run_rounds();
    return 0;
}
