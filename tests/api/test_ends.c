/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that are cancelled inside the library, or interrupted, and the use of the library
 * afterwards. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "graph_fixture.h"

#define BYTES 4096u

/* ---- threads ------------------------------------------------------------------------------- */

struct deed {
    void (*go)(struct deed *);
    gmsfs_t *store;
    gmsfs_graph_pool_t *pool;
    gmsfs_regions_t *regions;
    gmsfs_region_t *region;
    pthread_t thread;
    atomic_int tid;
    int error;
};

static void *do_deed(void *context)
{
    struct deed *deed = context;

    atomic_store(&deed->tid, gettid());
    deed->go(deed);
    pthread_testcancel();
    return NULL;
}

static void start(struct deed *deed)
{
    require(pthread_create(&deed->thread, NULL, do_deed, deed) == 0);
}

static void start_and_await_its_wait(struct deed *deed)
{
    start(deed);
    while (atomic_load(&deed->tid) == 0)
        usleep(1000);
    await_blocked(atomic_load(&deed->tid));
}

static void check_was_cancelled(struct deed *deed)
{
    void *result = NULL;

    check_int(pthread_join(deed->thread, &result), 0);
    check(result == PTHREAD_CANCELED);
}

static void check_fork_works(void)
{
    int status = -1;
    pid_t child = fork();

    if (child == 0)
        _exit(0);
    check_int(waitpid(child, &status, 0), child);
    check_int(status, 0);
}

/* ---- graph pools --------------------------------------------------------------------------- */

static void enter_in_order(struct deed *deed)
{
    deed->error = gmsfs_graph_enter(deed->pool, NULL, GMSFS_GRAPH_ORDER);
}

TAP_TEST(thread_cancelled_in_its_wait_to_launch_holds_up_nobody)
{
    struct deed deed = {.go = enter_in_order, .pool = fresh_awake_pool()};

    if (!is_host(gmsfs_graph_handle(deed.pool)))
        goto out;
    check_int(gmsfs_graph_enter(deed.pool, NULL, GMSFS_GRAPH_ORDER), 0);
    start_and_await_its_wait(&deed);
    check_int(pthread_cancel(deed.thread), 0);
    check_fork_works();
    check_int(gmsfs_graph_leave(deed.pool, NULL), 0);
    check_was_cancelled(&deed);
    check_int(gmsfs_graph_enter(deed.pool, NULL, GMSFS_GRAPH_REFUSE), 0);
    check_int(gmsfs_graph_leave(deed.pool, NULL), 0);
    check_int(gmsfs_graph_sleep(deed.pool, 0), 0);
out:
    end_pool(deed.pool);
}

static void grow_cancelled(struct deed *deed)
{
    stats_of(deed->pool); /* it leaves the thread unchanged */
    pthread_cancel(pthread_self());
    deed->error = gmsfs_graph_grow(deed->pool, CHUNK);
}

TAP_TEST(thread_cancelled_in_a_call_on_a_pool_holds_up_nobody)
{
    struct deed deed = {.go = grow_cancelled, .pool = fresh_awake_pool(), .error = 1};

    start(&deed);
    check_was_cancelled(&deed);
    check_int(deed.error, 0);
    check_fork_works();
    check_int(stats_of(deed.pool).physical_bytes, CHUNK);
    end_pool(deed.pool);
}

TAP_TEST(closed_pool_and_its_spaces_are_told)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0), *freed = new_space(pool, 0), *other = NULL;
    struct gmsfs_graph_space_stats space_stats;
    struct gmsfs_graph_stats stats;
    void *ptr = take(space, 1);

    check_int(gmsfs_graph_space_free(freed), 0);
    check_int(gmsfs_graph_space_free(freed), -EBADF);
    check_int(gmsfs_graph_space_alloc(freed, 1, &ptr), -EBADF);
    if (is_host(gmsfs_graph_handle(pool)))
        check_int(gmsfs_graph_enter(pool, NULL, GMSFS_GRAPH_ORDER), 0);
    gmsfs_graph_close(pool);
    gmsfs_graph_close(pool);
    check_int(gmsfs_graph_leave(pool, NULL), -EBADF);
    check_int(gmsfs_graph_enter(pool, NULL, GMSFS_GRAPH_ORDER), -EBADF);
    check_int(gmsfs_graph_wake(pool, 0), -EBADF);
    check_int(gmsfs_graph_sleep(pool, 0), -EBADF);
    check_int(gmsfs_graph_shrink(pool, NULL), -EBADF);
    check_int(gmsfs_graph_grow(pool, 1), -EBADF);
    check_int(gmsfs_graph_get_stats(pool, &stats), -EBADF);
    check_int(gmsfs_graph_space_new(pool, ROOM, 0, &other), -EBADF);
    check_int(gmsfs_graph_deselect(pool, NULL), -EBADF);
    check(gmsfs_graph_handle(pool) == NULL);
    check_int(gmsfs_graph_space_alloc(space, 1, &ptr), -EBADF);
    check_int(gmsfs_graph_space_dealloc(space, ptr), -EBADF);
    check_int(gmsfs_graph_space_get_stats(space, &space_stats), -EBADF);
    check_int(gmsfs_graph_select(space, NULL), -EBADF);
    check_int(gmsfs_graph_space_free(space), -EBADF);
    remove_store();
}

static void wake_for_ever(struct deed *deed)
{
    deed->error = gmsfs_graph_wake(deed->pool, GMSFS_TIMEOUT_FOREVER);
}

TAP_TEST(close_ends_a_wake_that_waits)
{
    auto_pool *holder = fresh_awake_pool();
    struct deed deed = {.go = wake_for_ever, .pool = open_pool(CHUNK)};
    uint64_t start_ms;

    start(&deed);
    for (int i = 0; i < WAIT_MS && stats_of(holder).waiters == 0; i++)
        usleep(1000);
    start_ms = now_ms();
    gmsfs_graph_close(deed.pool);
    check(now_ms() - start_ms < WAIT_MS);
    pthread_join(deed.thread, NULL);
    check_int(deed.error, -ECANCELED);
}

TAP_TEST(close_ends_a_wait_to_launch)
{
    struct deed deed = {.go = enter_in_order, .pool = fresh_awake_pool()};

    if (is_host(gmsfs_graph_handle(deed.pool))) {
        check_int(gmsfs_graph_enter(deed.pool, NULL, GMSFS_GRAPH_ORDER), 0);
        start_and_await_its_wait(&deed);
        gmsfs_graph_close(deed.pool);
        pthread_join(deed.thread, NULL);
        check_int(deed.error, -EBADF);
    }
    end_pool(deed.pool);
}

static int use_pool(void *pool)
{
    check_int(gmsfs_graph_sleep(pool, 0), -EDEADLK);
    gmsfs_graph_close(pool);
    return 0;
}

TAP_TEST(call_on_a_pool_inside_a_call_is_refused)
{
    auto_pool *pool = fresh_awake_pool();

    check_int(gmsfs_set_synchronise(gmsfs_graph_handle(pool), use_pool, pool), 0);
    check_int(gmsfs_graph_sleep(pool, 0), 0);
    check_int(gmsfs_set_synchronise(gmsfs_graph_handle(pool), NULL, NULL), 0);
}

/* ---- handles ------------------------------------------------------------------------------- */

static void read_cancelled(struct deed *deed)
{
    struct gmsfs_layout *layout = NULL;

    pthread_cancel(pthread_self());
    deed->error = gmsfs_read_layout(deed->store, &layout);
    if (!deed->error)
        gmsfs_free_layout(layout);
}

/* Graph pools begin on an empty device, even when all of this runs twice. */
static void publish_nothing(void)
{
    gmsfs_t *writer = open_fresh_writer();

    check_int(gmsfs_commit(writer, 0, NULL), 0);
    gmsfs_close(writer);
}

TAP_TEST(thread_cancelled_in_a_call_holds_up_nobody)
{
    struct deed deed = {.go = read_cancelled, .error = 1};

    publish(4096, "t", 1);
    deed.store = open_locked(GMSFS_MODE_RO);
    start(&deed);
    check_was_cancelled(&deed);
    check_int(deed.error, 0);
    check_fork_works();
    check_int(gmsfs_disconnect(deed.store), 0);
    gmsfs_close(deed.store);
    publish_nothing();
}

TAP_TEST(closed_handle_is_told)
{
    gmsfs_t *store = open_store();
    struct gmsfs_info info;
    uint64_t slot;

    gmsfs_close(store);
    check_int(gmsfs_get_info(store, &info), -EBADF);
    check_int(gmsfs_connect(store, GMSFS_MODE_RW, 0), -EBADF);
    check_int(gmsfs_disconnect(store), -EBADF);
    check_int(gmsfs_cancel(store), -EBADF);
    check_int(gmsfs_resolve(store, &slot, &slot, NULL), -EBADF);
    check_int(gmsfs_is_connected(store), 0);
    gmsfs_close(store);
}

static int call_again(void *context)
{
    struct gmsfs_info info;

    check_int(gmsfs_get_info(context, &info), -EDEADLK);
    check_int(gmsfs_disconnect(context), -EDEADLK);
    check_int(gmsfs_cancel(context), -EDEADLK);
    gmsfs_close(context);
    return 0;
}

TAP_TEST(call_inside_a_call_is_refused)
{
    auto_store *store = open_fresh_writer();
    void *ptr = NULL;

    check_int(gmsfs_create_mapping(store, 4096, "t", NULL, &ptr), 0);
    check_int(gmsfs_set_synchronise(store, call_again, store), 0);
    check_int(gmsfs_destroy_mapping(store, ptr), 0);
    check_int(gmsfs_set_synchronise(store, NULL, NULL), 0);
}

/* ---- regions ------------------------------------------------------------------------------- */

static gmsfs_regions_t *open_regions(void)
{
    gmsfs_regions_t *regions = NULL;
    char mount[4096];

    snprintf(mount, sizeof mount, "%s/..", store_path());
    require(gmsfs_regions_open(mount, &regions) == 0);
    return regions;
}

static int get_region(gmsfs_regions_t *regions)
{
    struct gmsfs_region_info info;

    return gmsfs_region_get(regions, GMSFS_REGION_SELF, GMSFS_REGION_ANY, "r", &info);
}

static void get_region_cancelled(struct deed *deed)
{
    pthread_cancel(pthread_self());
    deed->error = get_region(deed->regions);
}

TAP_TEST(thread_cancelled_in_a_call_on_regions_holds_up_nobody)
{
    struct deed deed = {.go = get_region_cancelled, .regions = open_regions()};

    start(&deed);
    check_was_cancelled(&deed);
    check_int(deed.error, -ENOENT);
    check_fork_works();
    check_int(get_region(deed.regions), -ENOENT);
    gmsfs_regions_close(deed.regions);
}

static gmsfs_region_t *open_region(gmsfs_regions_t *regions)
{
    int memory = memfd_create("client", MFD_CLOEXEC);
    struct gmsfs_region_request wish = {.kind = GMSFS_REGION_SYSTEM,
                                        .uid = GMSFS_REGION_SELF,
                                        .name = "r",
                                        .key = "/key",
                                        .fd = memory,
                                        .byte_size = BYTES};
    gmsfs_region_t *region = NULL;

    require(memory >= 0 && ftruncate(memory, BYTES) == 0);
    require(gmsfs_region_register(regions, &wish, NULL) == 0);
    require(gmsfs_region_open(regions, GMSFS_REGION_SELF, "r", &region, NULL) == 0);
    close(memory);
    return region;
}

static const struct gmsfs_region_request wish_of_key = {.kind = GMSFS_REGION_SYSTEM,
                                                        .uid = GMSFS_REGION_SELF,
                                                        .name = "r",
                                                        .key = "/gmsfs-test-ends",
                                                        .fd = -1,
                                                        .byte_size = BYTES};

/* Calls that open, read or close files, which is where pthread_cancel(3) would end a thread. */
static void open_regions_cancelled(struct deed *deed)
{
    pthread_cancel(pthread_self());
    deed->regions = open_regions();
    deed->error = 0;
}

static void register_cancelled(struct deed *deed)
{
    pthread_cancel(pthread_self());
    deed->error = gmsfs_region_register(deed->regions, &wish_of_key, NULL);
}

static void open_region_cancelled(struct deed *deed)
{
    pthread_cancel(pthread_self());
    deed->error = gmsfs_region_open(deed->regions, GMSFS_REGION_SELF, "r", &deed->region, NULL);
}

static void write_cancelled(struct deed *deed)
{
    pthread_cancel(pthread_self());
    deed->error = gmsfs_region_write(deed->region, 0, "byte", 4, NULL);
}

static void read_region_cancelled(struct deed *deed)
{
    char bytes[4];

    pthread_cancel(pthread_self());
    deed->error = gmsfs_region_read(deed->region, 0, bytes, sizeof bytes, NULL);
}

static void close_region_cancelled(struct deed *deed)
{
    pthread_cancel(pthread_self());
    gmsfs_region_close(deed->region);
    deed->error = 0;
}

static void unregister_cancelled(struct deed *deed)
{
    pthread_cancel(pthread_self());
    deed->error = gmsfs_region_unregister(deed->regions, GMSFS_REGION_SELF, GMSFS_REGION_ANY, "r");
}

static void close_regions_cancelled(struct deed *deed)
{
    pthread_cancel(pthread_self());
    gmsfs_regions_close(deed->regions);
    deed->error = 0;
}

TAP_TEST(thread_cancelled_in_any_call_on_regions_has_done_it)
{
    static void (*const deeds[])(struct deed *) = {open_regions_cancelled, register_cancelled,
                                                   open_region_cancelled,  write_cancelled,
                                                   read_region_cancelled,  close_region_cancelled,
                                                   unregister_cancelled,   close_regions_cancelled};
    int object = shm_open(wish_of_key.key, O_CREAT | O_RDWR, 0600), fds;
    struct deed deed = {0};

    require(object >= 0 && ftruncate(object, BYTES) == 0);
    fds = count_fds();
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++) {
        deed.go = deeds[i];
        deed.error = 1;
        start(&deed);
        check_was_cancelled(&deed);
        require(deed.error == 0);
    }
    check_int(count_fds(), fds);
    close(object);
    shm_unlink(wish_of_key.key);
}

TAP_TEST(closed_regions_are_told)
{
    gmsfs_regions_t *regions = open_regions();
    gmsfs_region_t *region = open_region(regions);
    struct gmsfs_region_info *list;
    void *ptr;
    size_t count;
    char byte = 0;
    int file, fd;

    gmsfs_region_close(region);
    gmsfs_region_close(region);
    check(gmsfs_region_info(region) == NULL);
    check_int(gmsfs_region_descriptor(region), -EBADF);
    check_int(gmsfs_region_read(region, 0, &byte, 1, NULL), -EBADF);
    check_int(gmsfs_region_write(region, 0, &byte, 1, NULL), -EBADF);
    check_int(gmsfs_region_map(region, GMSFS_ACCESS_READ, &ptr), -EBADF);
    check_int(gmsfs_region_unmap(region), -EBADF);
    check_int(gmsfs_region_detach(region, &file, &fd), -EBADF);
    check_int(gmsfs_region_unregister(regions, GMSFS_REGION_SELF, GMSFS_REGION_ANY, "r"), 0);
    gmsfs_regions_close(regions);
    gmsfs_regions_close(regions);
    check_int(get_region(regions), -EBADF);
    check_int(gmsfs_region_list(regions, GMSFS_REGION_SELF, GMSFS_REGION_ANY, &list, &count),
              -EBADF);
    check_int(gmsfs_region_open(regions, GMSFS_REGION_SELF, "r", &region, NULL), -EBADF);
}

/* ---- signals ------------------------------------------------------------------------------- */

static struct deed interrupted;
static volatile sig_atomic_t interrupts, answered_otherwise;

static void call_on_it(int number)
{
    (void)number;
    interrupts++;
    interrupted.go(&interrupted);
    answered_otherwise += interrupted.error != -EDEADLK;
}

static void disconnect(struct deed *deed)
{
    deed->error = gmsfs_disconnect(deed->store);
}

static void resolve_and_disconnect(struct deed *deed)
{
    deed->error = gmsfs_resolve(deed->store, deed, NULL, NULL);
    if (deed->error == -EDEADLK)
        deed->error = gmsfs_disconnect(deed->store);
    if (gmsfs_is_connected(deed->store))
        deed->error = 0;
}

static void get_and_close(struct deed *deed)
{
    deed->error = get_region(deed->regions);
    gmsfs_regions_close(deed->regions);
}

/* Sends a signal right after each lock that a call takes, and right before each release. */
int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*lock)(pthread_mutex_t *);
    int error;

    if (!lock)
        *(void **)&lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    error = lock(mutex);
    if (interrupted.go)
        raise(SIGUSR1);
    return error;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    static int (*unlock)(pthread_mutex_t *);

    if (!unlock)
        *(void **)&unlock = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    if (interrupted.go)
        raise(SIGUSR1);
    return unlock(mutex);
}

/* Until interrupt_end each lock sends a signal, whose handler does this. */
static void interrupt_with(struct deed deed)
{
    interrupts = answered_otherwise = 0;
    require(signal(SIGUSR1, call_on_it) != SIG_ERR);
    alarm(WAIT_MS / 1000); /* it would wait for itself */
    interrupted = deed;
}

static void interrupt_end(int at_least)
{
    interrupted.go = NULL;
    alarm(0);
    check(interrupts >= at_least);
    check_int(answered_otherwise, 0);
}

TAP_TEST(call_in_a_signal_handler_is_refused_wherever_it_interrupts)
{
    auto_store *store = open_locked(GMSFS_MODE_RW);
    struct gmsfs_info info = {0};
    int error;

    interrupt_with((struct deed){.go = disconnect, .store = store});
    error = gmsfs_get_info(store, &info);
    interrupt_end(4);
    check_int(error, 0);
    check_int(gmsfs_granted_lock(store), GMSFS_MODE_RW);
}

TAP_TEST(signal_handler_that_interrupts_a_look_at_what_a_handle_knows_is_refused)
{
    auto_store *store = open_locked(GMSFS_MODE_RW);
    int mode, error;

    interrupt_with((struct deed){.go = resolve_and_disconnect, .store = store});
    mode = (int)gmsfs_granted_lock(store);
    error = gmsfs_resolve(store, &mode, NULL, NULL);
    interrupt_end(4);
    check_int(mode, GMSFS_MODE_RW);
    check_int(error, -ENOENT);
}

TAP_TEST(call_on_regions_in_a_signal_handler_is_refused_wherever_it_interrupts)
{
    auto_regions *regions = open_regions();
    int error;

    interrupt_with((struct deed){.go = get_and_close, .regions = regions});
    error = get_region(regions);
    interrupt_end(2);
    check_int(error, -ENOENT);
    check_int(get_region(regions), -ENOENT);
}
