/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting: modes, waiting, signals, joining, ending, fork. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "api.h"

TAP_TEST(writer_excludes_writer_and_reader)
{
    gmsfs_t *writer = open_fresh_writer(), *other = open_store();

    check_int(gmsfs_granted_lock(writer), GMSFS_MODE_RW);
    check_int(gmsfs_is_connected(writer), 1);
    check_int(gmsfs_connect(other, GMSFS_MODE_RW, 0), -EAGAIN);
    check_int(gmsfs_connect(other, GMSFS_MODE_RO, 0), -EAGAIN);
    check_int(gmsfs_connect(other, GMSFS_MODE_RW_OR_RO, 0), -EAGAIN);
    check_int(gmsfs_granted_lock(other), GMSFS_MODE_NONE);
    check_int(gmsfs_connect(writer, GMSFS_MODE_RO, 0), -EBUSY);
    check_int(gmsfs_commit(writer, 0, NULL), 0);
    check_int(gmsfs_is_connected(writer), 0);
    check_int(gmsfs_connect(other, GMSFS_MODE_RO, 0), 0);
    check_int(gmsfs_connect(writer, GMSFS_MODE_RO, 0), 0);
    gmsfs_close(writer);
    gmsfs_close(other);
}

TAP_TEST(timeout_passes_in_time)
{
    auto_store *writer = open_fresh_writer(), *other = open_store();
    uint64_t start = now_ms();

    check_int(gmsfs_connect(other, GMSFS_MODE_RW, 300), -ETIMEDOUT);
    check(now_ms() - start >= 290 && now_ms() - start < 3000);
}

static void on_signal(int number)
{
    (void)number;
}

TAP_TEST(signals_do_not_shorten_the_wait)
{
    struct sigaction act = {.sa_handler = on_signal}, old;
    struct itimerval often = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    auto_store *writer = open_fresh_writer(), *other = open_store();
    uint64_t start = now_ms();

    sigaction(SIGALRM, &act, &old);
    setitimer(ITIMER_REAL, &often, NULL);
    check_int(gmsfs_connect(other, GMSFS_MODE_RW, 400), -ETIMEDOUT);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &old, NULL);
    check(now_ms() - start >= 390 && now_ms() - start < 3000);
}

static void *commit_soon(void *writer)
{
    usleep(200000);
    return (void *)(intptr_t)gmsfs_commit(writer, 0, NULL);
}

TAP_TEST(waiter_is_granted_and_properties_do_not_wait)
{
    auto_store *writer = open_fresh_writer(), *reader = open_store();
    pthread_t thread;
    void *result;

    require(pthread_create(&thread, NULL, commit_soon, writer) == 0);
    check_int(gmsfs_connect(reader, GMSFS_MODE_RO, WAIT_MS), 0);
    pthread_join(thread, &result);
    check_int((intptr_t)result, 0);
    check_int(gmsfs_generation(reader), gmsfs_generation(writer));
}

TAP_TEST(rw_or_ro_becomes_ro_on_a_committed_store)
{
    auto_store *store = NULL;

    publish(100, "t", 1);
    store = open_locked(GMSFS_MODE_RW_OR_RO);
    check_int(gmsfs_granted_lock(store), GMSFS_MODE_RO);
    check_int(gmsfs_commit(store, 0, NULL), -ENOLCK);
    check_int(gmsfs_abort(store, NULL), -ENOLCK);
    check_int(gmsfs_allocate_handle(store, 1, NULL, NULL, NULL), -ENOLCK);
}

TAP_TEST(abort_without_a_touch_rolls_back)
{
    auto_store *store = NULL;
    int rolled_back = -1;
    char before[GMSFS_HASH_TEXT_BYTES], after[GMSFS_HASH_TEXT_BYTES];

    publish(100, "t", 1);
    store = open_locked(GMSFS_MODE_RW);
    check_int(gmsfs_get_memory_layout_hash(store, after), 0);
    check_str(after, "");
    check_int(gmsfs_allocate_handle(store, 1, NULL, NULL, NULL), 0);
    check_int(gmsfs_abort(store, &rolled_back), 0);
    check_int(rolled_back, 1);
    check_int(gmsfs_get_memory_layout_hash(store, before), 0);
    check_int(strlen(before), 32);
    check_int(gmsfs_disconnect(store), 0);
}

TAP_TEST(commit_can_stay_as_reader_and_carry_a_group)
{
    static const uint8_t group[16] = "sixteen bytes.!";
    auto_store *store = open_fresh_writer(), *other = open_store();
    struct gmsfs_info info;
    uint64_t generation = gmsfs_generation(store);

    check_int(gmsfs_commit(store, GMSFS_COMMIT_GROUP, NULL), -EINVAL);
    check_int(gmsfs_commit(store, GMSFS_COMMIT_STAY | GMSFS_COMMIT_GROUP, group), 0);
    check_int(gmsfs_granted_lock(store), GMSFS_MODE_RO);
    check_int(gmsfs_generation(store), generation + 1);
    check_int(gmsfs_get_info(other, &info), 0);
    check_int(info.state, GMSFS_STATE_RO);
    check_int(info.readers, 1);
    check_bytes(info.group, 16, group, 16);
    check_int(gmsfs_connect(other, GMSFS_MODE_RW, 0), -EAGAIN);
    check_int(gmsfs_disconnect(store), 0);
    check_int(gmsfs_connect(other, GMSFS_MODE_RW, 0), 0);
}

TAP_TEST(join_shares_a_writers_session)
{
    auto_store *writer = open_fresh_writer(), *worker = open_store();
    uint8_t token[GMSFS_TOKEN_BYTES], wrong[GMSFS_TOKEN_BYTES] = {1};
    struct gmsfs_handle_info info;
    uint64_t slot = 0;

    check_int(gmsfs_session_token(worker, token), -ENOLCK);
    check_int(gmsfs_session_token(writer, token), 0);
    check(gmsfs_join(worker, wrong) < 0);
    check_int(gmsfs_join(worker, token), 0);
    check_int(gmsfs_granted_lock(worker), GMSFS_MODE_RW);
    check_int(gmsfs_allocate_handle(worker, 5, "w", NULL, &slot), 0);
    check_int(gmsfs_get_handle_info(writer, slot, &info), 0);
    check_int(gmsfs_disconnect(worker), 0);
    check_int(gmsfs_get_handle_info(writer, slot, &info), 0);
    check_int(gmsfs_commit(writer, 0, NULL), 0);
}

TAP_TEST(join_ends_with_the_session)
{
    auto_store *writer = open_fresh_writer(), *worker = open_store();
    uint8_t token[GMSFS_TOKEN_BYTES];

    check_int(gmsfs_session_token(writer, token), 0);
    check_int(gmsfs_join(worker, token), 0);
    check_int(gmsfs_commit(writer, 0, NULL), 0);
    check_int(gmsfs_allocate_handle(worker, 5, "w", NULL, NULL), -ESTALE);
    check_int(gmsfs_is_connected(worker), 0);
    check_int(gmsfs_connect(worker, GMSFS_MODE_RO, 0), 0);
}

TAP_TEST(handle_can_connect_again_and_again)
{
    auto_store *store = open_fresh_writer();

    check_int(gmsfs_commit(store, 0, NULL), 0);
    for (int i = 0; i < 200; i++) {
        require(gmsfs_connect(store, i % 2 ? GMSFS_MODE_RO : GMSFS_MODE_RW, 0) == 0);
        require(gmsfs_disconnect(store) == 0);
    }
}

TAP_TEST(child_of_fork_has_no_files_and_parent_keeps_its_lock)
{
    gmsfs_t *store;
    void *ptr = NULL;
    int before = count_fds(), with, status = -1;
    pid_t child;

    store = open_fresh_writer();
    check_int(gmsfs_create_mapping(store, 100, NULL, NULL, &ptr), 0);
    with = count_fds();
    check(with > before);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        int good = count_fds() == before && rights_at(ptr)[0] == 0 &&
                   gmsfs_disconnect(store) == -ECHILD && gmsfs_granted_lock(store) == 0 &&
                   gmsfs_resolve(store, ptr, NULL, NULL) == -ECHILD;
        gmsfs_close(store);
        _exit(good ? 0 : 1);
    }
    check(waitpid(child, &status, 0) == child);
    check_int(status, 0);
    check_int(count_fds(), with);
    memset(ptr, 7, 100);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    gmsfs_close(store);
    check_int(count_fds(), before);
}

TAP_TEST(every_descriptor_is_close_on_exec)
{
    int before[256], fd = -1, fresh = 0;
    uint64_t slot = 0;
    auto_store *store = NULL;

    for (int i = 0; i < 256; i++)
        before[i] = fcntl(i, F_GETFD);
    store = open_fresh_writer();
    check_int(gmsfs_allocate_handle(store, 100, NULL, "x", &slot), 0);
    check_int(gmsfs_export_handle(store, slot, GMSFS_ACCESS_READ, &fd), 0);
    for (int i = 0; i < 256; i++) {
        int flags = fcntl(i, F_GETFD);
        if (before[i] >= 0 || flags < 0)
            continue;
        fresh++;
        check(flags & FD_CLOEXEC);
    }
    check_int(fresh, 4);
    close(fd);
}
