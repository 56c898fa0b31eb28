/* SPDX-License-Identifier: Apache-2.0 */
/* Waits that another thread ends, waits without a thread, and notices to a holder. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "api.h"
#include "ioctl_hook.h"

/* Far below the waits that are ended, far above the time that ending them takes. */
#define SOON_MS 2000

struct waiter {
    gmsfs_t *store;
    pthread_t thread;
    uint64_t size_bytes; /* to allocate; 0 to connect */
    int error;
};

static void *wait_in_thread(void *context)
{
    struct waiter *waiter = context;
    void *ptr;

    waiter->error = waiter->size_bytes
                        ? gmsfs_create_mapping(waiter->store, waiter->size_bytes, "w", NULL, &ptr)
                        : gmsfs_connect(waiter->store, GMSFS_MODE_RW, GMSFS_TIMEOUT_FOREVER);
    return NULL;
}

static void await_waiting(gmsfs_t *store, uint64_t count)
{
    struct gmsfs_info info = {0};
    uint64_t start_ms = now_ms();

    while (gmsfs_get_info(store, &info) == 0 && info.writers_waiting != count &&
           now_ms() - start_ms < WAIT_MS)
        usleep(1000);
    check_int(info.writers_waiting, count);
}

static void start(struct waiter *waiter)
{
    require(pthread_create(&waiter->thread, NULL, wait_in_thread, waiter) == 0);
}

static void join(struct waiter *waiter)
{
    require(pthread_join(waiter->thread, NULL) == 0);
}

/* ---- cancel -------------------------------------------------------------------------------- */

TAP_TEST(cancel_ends_a_wait_for_the_lock)
{
    gmsfs_t *holder = open_locked(GMSFS_MODE_RW);
    struct waiter waiter = {.store = open_store()};

    start(&waiter);
    await_waiting(holder, 1);
    check_int(gmsfs_cancel(waiter.store), 0);
    join(&waiter);
    check_int(waiter.error, -ECANCELED);
    await_waiting(holder, 0);
    gmsfs_close(holder);
    check_int(gmsfs_connect(waiter.store, GMSFS_MODE_RW, WAIT_MS), 0);
    gmsfs_close(waiter.store);
}

TAP_TEST(cancel_without_a_wait_is_no_error_and_cancels_nothing_later)
{
    auto_store *store = open_store();

    check_int(gmsfs_cancel(store), 0);
    check_int(gmsfs_connect(store, GMSFS_MODE_RW, WAIT_MS), 0);
    check_int(gmsfs_cancel(NULL), -EINVAL);
}

TAP_TEST(cancel_right_before_a_wait_ends_it_too)
{
    auto_store *holder = open_locked(GMSFS_MODE_RW);
    struct waiter waiter = {.store = open_store()};

    for (int i = 0; i < 100; i++) {
        start(&waiter);
        while (pthread_tryjoin_np(waiter.thread, NULL) == EBUSY)
            check_int(gmsfs_cancel(waiter.store), 0);
        check_int(waiter.error, -ECANCELED);
    }
    gmsfs_close(waiter.store);
}

TAP_TEST(disconnect_is_not_held_up_by_a_wait_for_the_lock)
{
    auto_store *holder = open_locked(GMSFS_MODE_RW);
    struct waiter waiter = {.store = open_store()};

    start(&waiter);
    await_waiting(holder, 1);
    check_int(gmsfs_disconnect(waiter.store), 0);
    join(&waiter);
    check_int(waiter.error, -ECANCELED);
    gmsfs_close(waiter.store);
}

TAP_TEST(close_ends_a_wait_for_the_lock)
{
    auto_store *holder = open_locked(GMSFS_MODE_RW);
    struct waiter waiter = {.store = open_store()};

    start(&waiter);
    await_waiting(holder, 1);
    gmsfs_close(waiter.store); /* ends it too: afterwards the handle is closed */
    join(&waiter);
    check_int(waiter.error, -ECANCELED);
}

/* ---- memory -------------------------------------------------------------------------------- */

static uint64_t device_bytes(void)
{
    struct statvfs device;

    require(statvfs(store_path(), &device) == 0);
    return device.f_blocks * device.f_frsize;
}

/* A writer of another store, which could free its memory: all of the device but a little. */
static gmsfs_t *open_hoarder(void)
{
    gmsfs_t *store = NULL;
    char path[4096];

    snprintf(path, sizeof path, "%s/../hoard", store_path());
    require(mkdir(path, 0755) == 0 || errno == EEXIST);
    require(gmsfs_open(path, &store) == 0);
    require(gmsfs_connect(store, GMSFS_MODE_RW, WAIT_MS) == 0);
    require(gmsfs_allocate_handle(store, device_bytes() - granularity_of(store), NULL, NULL,
                                  NULL) == 0);
    return store;
}

TAP_TEST(memory_timeout_of_0_says_at_once_that_the_device_is_full)
{
    auto_store *hoarder = open_hoarder(), *store = open_fresh_writer();
    uint64_t start_ms = now_ms();
    void *ptr;

    check_int(gmsfs_set_memory_timeout(store, 0), 0);
    check_int(gmsfs_create_mapping(store, 2 * granularity_of(store), NULL, NULL, &ptr), -ENOMEM);
    check(now_ms() - start_ms < SOON_MS);
}

TAP_TEST(memory_timeout_bounds_the_wait)
{
    auto_store *hoarder = open_hoarder(), *store = open_fresh_writer();
    uint64_t start_ms = now_ms(), spent_ms;
    void *ptr;

    check_int(gmsfs_set_memory_timeout(store, 100), 0);
    check_int(gmsfs_create_mapping(store, 2 * granularity_of(store), NULL, NULL, &ptr), -ENOMEM);
    spent_ms = now_ms() - start_ms;
    check(spent_ms >= 95 && spent_ms < SOON_MS);
}

/* The mount's own bound is a minute. */
TAP_TEST(memory_that_only_the_writer_itself_has_is_not_waited_for)
{
    auto_store *store = open_hoarder();
    uint64_t start_ms = now_ms();
    void *ptr;

    check_int(gmsfs_create_mapping(store, 2 * granularity_of(store), NULL, NULL, &ptr), -ENOMEM);
    check(now_ms() - start_ms < SOON_MS);
}

TAP_TEST(disconnect_is_not_held_up_by_a_wait_for_memory)
{
    auto_store *hoarder = open_hoarder();
    struct waiter waiter = {.store = open_fresh_writer()};
    uint64_t start_ms;

    waiter.size_bytes = 2 * granularity_of(waiter.store);
    start(&waiter);
    usleep(50000); /* it waits by now, or is ended as it begins */
    start_ms = now_ms();
    check_int(gmsfs_disconnect(waiter.store), 0);
    check(now_ms() - start_ms < SOON_MS);
    join(&waiter);
    check_int(waiter.error, -ECANCELED);
    gmsfs_close(waiter.store);
}

TAP_TEST(cancelled_wait_for_memory_leaves_the_lock)
{
    gmsfs_t *hoarder = open_hoarder();
    struct waiter waiter = {.store = open_fresh_writer()};

    waiter.size_bytes = 2 * granularity_of(waiter.store);
    start(&waiter);
    usleep(50000);
    check_int(gmsfs_cancel(waiter.store), 0);
    join(&waiter);
    check_int(waiter.error, -ECANCELED);
    check_int(gmsfs_granted_lock(waiter.store), GMSFS_MODE_RW);
    gmsfs_close(hoarder);
    check_int(gmsfs_allocate_handle(waiter.store, waiter.size_bytes, NULL, NULL, NULL), 0);
    gmsfs_close(waiter.store);
}

/* ---- places -------------------------------------------------------------------------------- */

TAP_TEST(kept_place_survives_a_short_timeout)
{
    auto_store *holder = open_locked(GMSFS_MODE_RW);
    struct waiter first = {.store = open_store()}, second = {.store = open_store()};

    check_int(gmsfs_set_connect_flags(first.store, GMSFS_CONNECT_KEEP_PLACE), 0);
    check_int(gmsfs_connect(first.store, GMSFS_MODE_RW, 10), -ETIMEDOUT);
    start(&second);
    await_waiting(holder, 2);
    check_int(gmsfs_connect(first.store, GMSFS_MODE_RW, 10), -ETIMEDOUT);
    start(&first);
    usleep(50000); /* in the queue again */
    check_int(gmsfs_disconnect(holder), 0);
    join(&first);
    check_int(first.error, 0);
    await_waiting(holder, 1);
    gmsfs_close(first.store);
    join(&second);
    check_int(second.error, 0);
    gmsfs_close(second.store);
}

/* A writer that has left the queue for a moment, before readers that it holds off. */
static gmsfs_t *open_with_kept_place(gmsfs_t *reader)
{
    gmsfs_t *writer = open_store();

    check_int(gmsfs_set_connect_flags(writer, GMSFS_CONNECT_KEEP_PLACE), 0);
    check_int(gmsfs_connect(writer, GMSFS_MODE_RW, 10), -ETIMEDOUT);
    check_int(gmsfs_connect(reader, GMSFS_MODE_RO, 0), -EAGAIN);
    return writer;
}

TAP_TEST(kept_place_is_given_up_by_cancel_disconnect_and_close)
{
    gmsfs_t *holder, *reader = open_store(), *writer;

    publish(4096, "t", 1);
    holder = open_locked(GMSFS_MODE_RO);
    for (int way = 0; way < 3; way++) {
        writer = open_with_kept_place(reader);
        if (way == 0)
            check_int(gmsfs_cancel(writer), 0);
        if (way == 1)
            check_int(gmsfs_disconnect(writer), 0);
        if (way == 2)
            gmsfs_close(writer);
        check_int(gmsfs_connect(reader, GMSFS_MODE_RO, 0), 0);
        check_int(gmsfs_disconnect(reader), 0);
        if (way != 2)
            gmsfs_close(writer);
    }
    gmsfs_close(reader);
    gmsfs_close(holder);
}

/* ---- without a thread ---------------------------------------------------------------------- */

/* Continues like an event loop. */
static int go_on(gmsfs_t *store, int fd)
{
    uint64_t start_ms = now_ms();
    int error = -EINPROGRESS;

    while (error == -EINPROGRESS && now_ms() - start_ms < WAIT_MS) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};

        check_int(poll(&poller, 1, WAIT_MS), 1);
        error = gmsfs_connect_continue(store);
    }
    return error;
}

TAP_TEST(started_connection_is_there_at_once_where_nobody_is_in_the_way)
{
    auto_store *store = open_store();
    int fds = count_fds(), fd = -1;

    check_int(gmsfs_connect_start(store, GMSFS_MODE_RW, WAIT_MS, 0, &fd), 0);
    check_int(fd, -1);
    check_int(gmsfs_granted_lock(store), GMSFS_MODE_RW);
    check_int(count_fds(), fds);
    check_int(gmsfs_connect_continue(store), -EINVAL);
    check_int(gmsfs_connect_start(store, GMSFS_MODE_RW, WAIT_MS, 0, &fd), -EBUSY);
}

TAP_TEST(started_connection_is_granted_in_its_turn)
{
    gmsfs_t *holder = open_locked(GMSFS_MODE_RW), *first = open_store();
    struct waiter second = {.store = open_store()};
    int fds = count_fds(), fd = -1;
    struct pollfd poller = {.events = POLLIN};
    uint64_t start_ms;

    check_int(gmsfs_connect_start(first, GMSFS_MODE_RW, WAIT_MS, 0, &fd), -EINPROGRESS);
    await_waiting(holder, 1);
    start(&second);
    await_waiting(holder, 2);
    check_int(gmsfs_connect(first, GMSFS_MODE_RW, 0), -EBUSY);
    check_int(gmsfs_connect_continue(first), -EINPROGRESS);
    poller.fd = fd;
    check_int(poll(&poller, 1, 0), 0); /* nothing to do */
    start_ms = now_ms();
    check_int(gmsfs_disconnect(holder), 0);
    check_int(poll(&poller, 1, WAIT_MS), 1);
    check(now_ms() - start_ms < SOON_MS);
    check_int(go_on(first, fd), 0);
    check_int(gmsfs_granted_lock(first), GMSFS_MODE_RW);
    check_int(count_fds(), fds);
    gmsfs_close(first);
    join(&second);
    check_int(second.error, 0);
    gmsfs_close(second.store);
    gmsfs_close(holder);
}

TAP_TEST(started_connection_times_out)
{
    auto_store *holder = open_locked(GMSFS_MODE_RW), *store = open_store();
    uint64_t start_ms = now_ms();
    int fd = -1;

    check_int(gmsfs_connect_start(store, GMSFS_MODE_RW, 0, 0, &fd), -EAGAIN);
    check_int(gmsfs_connect_start(store, GMSFS_MODE_RW, 600, 0, &fd), -EINPROGRESS);
    check_int(go_on(store, fd), -ETIMEDOUT);
    check(now_ms() - start_ms >= 600);
    await_waiting(holder, 0);
}

TAP_TEST(started_connection_is_cancelled)
{
    gmsfs_t *holder = open_locked(GMSFS_MODE_RW), *store = open_store();
    struct pollfd poller = {.events = POLLIN};

    check_int(gmsfs_connect_start(store, GMSFS_MODE_RW, WAIT_MS, 0, &poller.fd), -EINPROGRESS);
    check_int(gmsfs_cancel(store), 0);
    check_int(poll(&poller, 1, WAIT_MS), 1);
    await_waiting(holder, 0);
    check_int(gmsfs_connect_continue(store), -ECANCELED);
    check_int(gmsfs_connect_start(store, GMSFS_MODE_RW, WAIT_MS, 0, &poller.fd), -EINPROGRESS);
    check_int(gmsfs_disconnect(store), 0);
    check_int(gmsfs_connect_continue(store), -EINVAL);
    await_waiting(holder, 0);
    gmsfs_close(holder);
    gmsfs_close(store);
}

/* ---- the mount's answers to INFO, if it is to fail ------------------------------------------ */

static int info_errno;

static int on_ioctl(unsigned long request)
{
    return request == GMSFS_IOC_INFO ? info_errno : 0;
}

/* ---- notices ------------------------------------------------------------------------------- */

TAP_TEST(reader_hears_of_its_revocation)
{
    struct pollfd poller = {.events = POLLIN};
    gmsfs_t *reader, *other;

    publish(4096, "t", 1);
    reader = open_locked(GMSFS_MODE_RO);
    other = open_locked(GMSFS_MODE_RO);
    poller.fd = gmsfs_notice_descriptor(reader);
    require(poller.fd >= 0);
    check_int(gmsfs_notice_descriptor(reader), poller.fd);
    check_int(gmsfs_notices(reader), 0);
    check_int(poll(&poller, 1, 0), 0);
    end_session_of(reader);
    check_int(poll(&poller, 1, WAIT_MS), 1);
    check_int(gmsfs_is_connected(reader), 1); /* as last known */
    check_int(gmsfs_notices(reader), GMSFS_NOTICE_LOST);
    check_int(gmsfs_is_connected(reader), 0);
    check_int(gmsfs_notices(reader), 0);
    check_int(gmsfs_notices(other), 0);
    gmsfs_close(reader);
    gmsfs_close(other);
}

/* Drains like `gmsfs drain STORE`, while the connection lives. */
static int drain_store(const struct gmsfs_info *info)
{
    struct gmsfs_fds_request request = {.version = GMSFS_ABI_VERSION, .op = GMSFS_FDS_STORE_DRAIN};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct gmsfs_fds_header answer = {.error = -EIO};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    memcpy(request.ticket, info->store_id, sizeof request.ticket);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/../.fds", store_path());
    require(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    require(send(fd, &request, sizeof request, 0) == sizeof request);
    require(recv(fd, &answer, sizeof answer, 0) > 0);
    check_int(answer.error, 0);
    return fd;
}

TAP_TEST(what_the_mount_cannot_say_is_no_loss)
{
    static const int passing[] = {ENOMEM, EDQUOT, EMFILE, EIO};
    struct gmsfs_info info = {0};
    auto_store *reader = NULL;

    publish(4096, "t", 1);
    reader = open_locked(GMSFS_MODE_RO);
    for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++) {
        info_errno = passing[i];
        check_int(gmsfs_notices(reader), -passing[i]);
        info_errno = 0;
        check_int(gmsfs_is_connected(reader), 1);
    }
    check_int(gmsfs_notices(reader), 0);
    check_int(gmsfs_get_info(reader, &info), 0);
    check_int(info.mode, GMSFS_MODE_RO);
    info_errno = ENOTCONN;
    check_int(gmsfs_notices(reader), GMSFS_NOTICE_LOST);
    info_errno = 0;
    check_int(gmsfs_is_connected(reader), 0);
}

TAP_TEST(who_connects_anew_is_not_told_of_what_it_lost_before)
{
    auto_store *reader = NULL;

    publish(4096, "t", 1);
    reader = open_locked(GMSFS_MODE_RO);
    end_session_of(reader);
    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, NULL, NULL), -ESTALE);
    check_int(gmsfs_connect(reader, GMSFS_MODE_RO, WAIT_MS), 0);
    check_int(gmsfs_notices(reader), 0);
}

TAP_TEST(holder_hears_that_it_is_asked_to_leave)
{
    struct pollfd poller = {.events = POLLIN};
    struct gmsfs_info info = {0};
    auto_store *reader = NULL;
    int drain;

    publish(4096, "t", 1);
    reader = open_locked(GMSFS_MODE_RO);
    check_int(gmsfs_get_info(reader, &info), 0);
    poller.fd = gmsfs_notice_descriptor(reader);
    check_int(gmsfs_notices(reader), 0);
    drain = drain_store(&info);
    check_int(poll(&poller, 1, WAIT_MS), 1);
    check_int(gmsfs_notices(reader), GMSFS_NOTICE_LEAVE);
    check_int(gmsfs_notices(reader), GMSFS_NOTICE_LEAVE);
    close(drain);
    /* The end of a worker wakes the poller too, before the next one has seen the drain closed. */
    do
        check_int(poll(&poller, 1, WAIT_MS), 1);
    while (gmsfs_notices(reader) != 0);
}

/* ---- fork ---------------------------------------------------------------------------------- */

TAP_TEST(fork_beside_a_wait_gives_a_child_that_is_told)
{
    gmsfs_t *holder = open_locked(GMSFS_MODE_RW), *pending = open_store();
    struct waiter waiter = {.store = open_store()};
    int fd = -1, status = -1;
    pid_t child;

    check_int(gmsfs_connect_start(pending, GMSFS_MODE_RW, WAIT_MS, 0, &fd), -EINPROGRESS);
    start(&waiter);
    await_waiting(holder, 2);
    child = fork();
    if (child == 0) {
        int bad = gmsfs_cancel(waiter.store) != -ECHILD;

        alarm(5);
        bad |= gmsfs_connect(holder, GMSFS_MODE_RW, 0) != -ECHILD;
        bad |= gmsfs_connect_continue(pending) != -ECHILD;
        bad |= fcntl(fd, F_GETFD) >= 0; /* closed */
        gmsfs_close(waiter.store);
        gmsfs_close(pending);
        gmsfs_close(holder);
        _exit(bad);
    }
    check_int(waitpid(child, &status, 0), child);
    check_int(status, 0);
    gmsfs_close(pending);
    check_int(gmsfs_cancel(waiter.store), 0);
    join(&waiter);
    gmsfs_close(waiter.store);
    gmsfs_close(holder);
}
