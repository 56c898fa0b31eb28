/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mount whose worker does not answer delays its own callers, and no others.
 *
 * GMSFS_TEST_WORKER is the process id of the worker behind GMSFS_TEST_STORE, GMSFS_TEST_ELSEWHERE a
 * store of another mount.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "api.h"
#include "ioctl_hook.h"

#define LONG_MS 3000 /* until the worker continues, in any case */

static pid_t worker;

static void let_go_on(int number)
{
    (void)number;
    kill(worker, SIGCONT);
}

static void stop_worker(void)
{
    char path[64];

    require(getenv("GMSFS_TEST_WORKER") != NULL);
    worker = atoi(getenv("GMSFS_TEST_WORKER"));
    snprintf(path, sizeof path, "/proc/%d/stat", worker);
    require(signal(SIGALRM, let_go_on) != SIG_ERR);
    alarm(LONG_MS / 1000);
    require(kill(worker, SIGSTOP) == 0);
    await_state(path, "T");
}

/* ---- requests of the library, watched ------------------------------------------------------- */

/* Stops the worker before it gets a ticket; until the ticket is sent. */
static atomic_int stops_at_send;
static atomic_int releases;

static atomic_int messages; /* left until the worker stops; 0 to count none */
static gmsfs_regions_t *cancelled_at_send;

/* The library asks for descriptors and regions by it. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    int left = atomic_load(&messages);
    ssize_t sent;

    if (atomic_load(&stops_at_send) || (left > 0 && atomic_fetch_sub(&messages, 1) == 1))
        stop_worker();
    else if (left > 0)
        check_int(gmsfs_regions_cancel(cancelled_at_send), 0);
    sent = syscall(SYS_sendmsg, fd, message, flags);
    atomic_store(&stops_at_send, 0);
    return sent;
}

static atomic_int hours; /* that have passed for readers of the clock */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int error = (int)syscall(SYS_clock_gettime, clock, now);

    if (error == 0)
        now->tv_sec += atomic_load(&hours) * 3600;
    return error;
}

static int on_ioctl(unsigned long request)
{
    if (request == GMSFS_IOC_RELEASE)
        atomic_fetch_add(&releases, 1);
    return 0;
}

/* ---- calls ---------------------------------------------------------------------------------- */

struct caller {
    gmsfs_t *store;
    pthread_t thread;
    atomic_int tid;
    int error;
};

static void *connect_for_ever(void *context)
{
    struct caller *caller = context;

    caller->error = gmsfs_connect(caller->store, GMSFS_MODE_RW, GMSFS_TIMEOUT_FOREVER);
    return NULL;
}

static void *cancel(void *context)
{
    struct caller *caller = context;

    atomic_store(&caller->tid, gettid());
    caller->error = gmsfs_cancel(caller->store);
    return NULL;
}

static void await_waiter(gmsfs_t *holder)
{
    struct gmsfs_info info = {0};

    for (int i = 0; i < WAIT_MS && info.writers_waiting == 0; i++) {
        check_int(gmsfs_get_info(holder, &info), 0);
        usleep(1000);
    }
}

/* Checks the calls of another mount's handles, and fork(), which must not wait. The child closes
 * its files of the stopped mount, and that does wait. */
static pid_t check_others_go_on(gmsfs_t *other)
{
    uint64_t start_ms = now_ms();
    struct gmsfs_info info;
    pid_t child;

    check_int(gmsfs_get_info(other, &info), 0);
    check_int(gmsfs_connect(other, GMSFS_MODE_RW, WAIT_MS), 0);
    child = fork();
    if (child == 0)
        _exit(0);
    check(now_ms() - start_ms < LONG_MS / 2);
    return child;
}

TAP_TEST(cancel_on_a_mount_that_does_not_answer_holds_up_no_other)
{
    gmsfs_t *holder = open_locked(GMSFS_MODE_RW), *other = NULL;
    struct caller waiter = {.store = open_store()}, canceller = {.store = waiter.store};
    int status = -1;
    pid_t child;

    require(getenv("GMSFS_TEST_ELSEWHERE") != NULL);
    require(gmsfs_open(getenv("GMSFS_TEST_ELSEWHERE"), &other) == 0);
    require(pthread_create(&waiter.thread, NULL, connect_for_ever, &waiter) == 0);
    await_waiter(holder);
    stop_worker();
    require(pthread_create(&canceller.thread, NULL, cancel, &canceller) == 0);
    while (atomic_load(&canceller.tid) == 0)
        usleep(1000);
    await_blocked(atomic_load(&canceller.tid));
    child = check_others_go_on(other);
    let_go_on(SIGALRM);
    alarm(0);
    check_int(waitpid(child, &status, 0), child);
    check_int(status, 0);
    pthread_join(canceller.thread, NULL);
    pthread_join(waiter.thread, NULL);
    check_int(canceller.error, 0);
    check_int(waiter.error, -ECANCELED);
    gmsfs_close(waiter.store);
    gmsfs_close(holder);
    gmsfs_close(other);
}

static void *list(void *context)
{
    struct caller *caller = context;
    struct gmsfs_handle_info *handles = NULL;
    size_t count;

    atomic_store(&caller->tid, gettid());
    caller->error = gmsfs_list_handles(caller->store, NULL, &handles, &count);
    free(handles);
    return NULL;
}

static void begin_to_list(struct caller *caller, gmsfs_t *store)
{
    caller->store = store;
    require(pthread_create(&caller->thread, NULL, list, caller) == 0);
    while (atomic_load(&caller->tid) == 0)
        usleep(1000);
    await_blocked(atomic_load(&caller->tid));
}

static gmsfs_t *looked_at;
static atomic_int has_looked, token_error, granted;

static void look(int number)
{
    uint8_t token[GMSFS_TOKEN_BYTES];

    (void)number;
    atomic_store(&token_error, gmsfs_session_token(looked_at, token));
    atomic_store(&granted, (int)gmsfs_granted_lock(looked_at));
    atomic_store(&has_looked, 1);
}

TAP_TEST(properties_are_told_in_a_signal_handler_of_who_waits_for_another_threads_call)
{
    struct caller first = {0}, second = {0};

    looked_at = open_locked(GMSFS_MODE_RW);
    require(signal(SIGUSR1, look) != SIG_ERR);
    stop_worker();
    begin_to_list(&first, looked_at);
    begin_to_list(&second, looked_at);
    pthread_kill(second.thread, SIGUSR1);
    for (int i = 0; i < WAIT_MS && !atomic_load(&has_looked); i++)
        usleep(1000);
    let_go_on(SIGALRM);
    alarm(0);
    check_int(atomic_load(&has_looked), 1);
    check_int(atomic_load(&token_error), 0);
    check_int(atomic_load(&granted), GMSFS_MODE_RW);
    pthread_join(first.thread, NULL);
    pthread_join(second.thread, NULL);
    check_int(first.error, 0);
    check_int(second.error, 0);
    gmsfs_close(looked_at);
}

static void *wake(void *context)
{
    struct caller *caller = context;

    atomic_store(&caller->tid, gettid());
    caller->error = gmsfs_remap_all_vas(caller->store, WAIT_MS, 0);
    return NULL;
}

/* The lock has been granted; the request for the descriptors has no answer. */
static void wake_in_vain(struct caller *sleeper)
{
    publish(4096, "t", 1);
    sleeper->store = open_locked(GMSFS_MODE_RO);
    check_int(gmsfs_attach_all(sleeper->store, GMSFS_ACCESS_READ, NULL, NULL), 0);
    check_int(gmsfs_unmap_all_vas(sleeper->store, 0), 0);
    atomic_store(&releases, 0);
    atomic_store(&stops_at_send, 1);
    require(pthread_create(&sleeper->thread, NULL, wake, sleeper) == 0);
    for (int i = 0; i < WAIT_MS && atomic_load(&stops_at_send); i++)
        usleep(1000);
    require(!atomic_load(&stops_at_send));
    await_blocked(atomic_load(&sleeper->tid));
}

/* It releases the lock, which waits for the mount, and can be tried again. */
static void check_woke_in_vain(struct caller *sleeper, int error)
{
    uint64_t start_ms = now_ms();

    while (atomic_load(&releases) == 0 && now_ms() - start_ms < LONG_MS)
        usleep(1000);
    let_go_on(SIGALRM);
    alarm(0);
    pthread_join(sleeper->thread, NULL);
    check_int(sleeper->error, error);
    check_int(gmsfs_remap_all_vas(sleeper->store, WAIT_MS, 0), 0);
    gmsfs_close(sleeper->store);
}

TAP_TEST(wait_for_descriptors_is_cancelled)
{
    struct caller sleeper = {0};

    wake_in_vain(&sleeper);
    check_int(gmsfs_cancel(sleeper.store), 0);
    check_woke_in_vain(&sleeper, -ECANCELED);
}

TAP_TEST(wait_for_descriptors_ends_with_its_time)
{
    struct caller sleeper = {0};

    wake_in_vain(&sleeper);
    atomic_store(&hours, 1);
    check_woke_in_vain(&sleeper, -ETIMEDOUT);
    atomic_store(&hours, 0);
}

/* ---- regions -------------------------------------------------------------------------------- */

struct asker {
    gmsfs_regions_t *regions;
    pthread_t thread;
    atomic_int tid;
    int error;
    uint64_t ended_ms;
};

static void *ask(void *context)
{
    struct asker *asker = context;
    struct gmsfs_region_info info;

    atomic_store(&asker->tid, gettid());
    asker->error =
        gmsfs_region_get(asker->regions, GMSFS_REGION_SELF, GMSFS_REGION_ANY, "none", &info);
    asker->ended_ms = now_ms();
    return NULL;
}

/* Returns when it waits for an answer, on a connection that was made before. */
static void ask_in_vain(struct asker *asker)
{
    struct gmsfs_region_info info;
    char mount[4096];

    snprintf(mount, sizeof mount, "%s/..", store_path());
    require(gmsfs_regions_open(mount, &asker->regions) == 0);
    check_int(gmsfs_region_get(asker->regions, GMSFS_REGION_SELF, GMSFS_REGION_ANY, "none", &info),
              -ENOENT);
    stop_worker();
    require(pthread_create(&asker->thread, NULL, ask, asker) == 0);
    while (atomic_load(&asker->tid) == 0)
        usleep(1000);
    await_blocked(atomic_load(&asker->tid));
}

static void join_asker(struct asker *asker, uint64_t start_ms, int error)
{
    pthread_join(asker->thread, NULL);
    let_go_on(SIGALRM);
    alarm(0);
    check_int(asker->error, error);
    check(asker->ended_ms - start_ms < LONG_MS / 2);
}

TAP_TEST(wait_for_regions_is_cancelled_and_the_next_call_is_not)
{
    struct asker asker = {0};
    struct gmsfs_region_info info;
    uint64_t start_ms;

    ask_in_vain(&asker);
    start_ms = now_ms();
    check_int(gmsfs_regions_cancel(asker.regions), 0);
    join_asker(&asker, start_ms, -ECANCELED);
    check_int(gmsfs_regions_cancel(asker.regions), 0);
    check_int(gmsfs_region_get(asker.regions, GMSFS_REGION_SELF, GMSFS_REGION_ANY, "none", &info),
              -ENOENT);
    gmsfs_regions_close(asker.regions);
    check_int(gmsfs_regions_cancel(asker.regions), -EBADF);
    check_int(gmsfs_regions_cancel(NULL), -EINVAL);
}

TAP_TEST(close_ends_a_wait_for_regions)
{
    struct asker asker = {0};
    uint64_t start_ms;

    ask_in_vain(&asker);
    start_ms = now_ms();
    gmsfs_regions_close(asker.regions);
    check(now_ms() - start_ms < LONG_MS / 2);
    join_asker(&asker, start_ms, -ECANCELED);
}

TAP_TEST(wait_for_regions_ends_with_its_time)
{
    struct asker asker = {0};
    struct gmsfs_region_info info;

    ask_in_vain(&asker);
    atomic_store(&hours, 1);
    join_asker(&asker, now_ms(), -ETIMEDOUT);
    atomic_store(&hours, 0);
    check_int(gmsfs_region_get(asker.regions, GMSFS_REGION_SELF, GMSFS_REGION_ANY, "none", &info),
              -ENOENT);
    gmsfs_regions_close(asker.regions);
}

static int register_one(gmsfs_regions_t *regions)
{
    uint8_t handle[GMSFS_REGION_HANDLE_BYTES] = {1};

    return gmsfs_region_register(regions,
                                 &(struct gmsfs_region_request){.kind = GMSFS_REGION_CUDA,
                                                                .uid = GMSFS_REGION_SELF,
                                                                .name = "one",
                                                                .fd = -1,
                                                                .byte_size = 4096,
                                                                .raw_handle = handle,
                                                                .raw_handle_bytes = sizeof handle},
                                 NULL);
}

static int unregister_one(gmsfs_regions_t *regions)
{
    return gmsfs_region_unregister(regions, GMSFS_REGION_SELF, GMSFS_REGION_ANY, "one");
}

static int unregister_all(gmsfs_regions_t *regions)
{
    uint64_t count;

    return gmsfs_region_unregister_all(regions, GMSFS_REGION_SELF, GMSFS_REGION_ANY, &count);
}

/* Each looks first, which is answered; its request after that is not. */
TAP_TEST(cancel_that_comes_while_a_call_looks_ends_its_wait_for_what_it_changes)
{
    int (*const calls[])(gmsfs_regions_t *) = {register_one, unregister_one, unregister_all};
    gmsfs_regions_t *regions;
    char mount[4096];

    snprintf(mount, sizeof mount, "%s/..", store_path());
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        require(gmsfs_regions_open(mount, &regions) == 0);
        check_int(register_one(regions), 0);
        cancelled_at_send = regions;
        atomic_store(&messages, 2);
        check_int(calls[i](regions), -ECANCELED);
        let_go_on(SIGALRM);
        alarm(0);
        check_int(atomic_load(&messages), 0);
        check_int(unregister_all(regions), 0);
        gmsfs_regions_close(regions);
    }
}
