/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors for clients: changes by one client reach no other client, nor the daemon. */
#include "vmm_cuda_fixture.h"

#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define DAEMON_UID   65533
#define OTHER_UID    65534
#define UNPRIVILEGED "not run as root"
#define TURNS        2000

static struct vmm_piece piece;

static void make_piece(void)
{
    open_host(64 * MIB);
    require(vmm_create(vmm, 4 * MIB, true, &piece) == 0);
}

static void drop_piece(void)
{
    vmm_destroy(vmm, &piece);
    vmm_close(vmm);
}

static int duplicate(bool writable)
{
    int fd = -1;

    require(vmm_duplicate(vmm, &piece, writable, &fd) == 0);
    return fd;
}

/* ---- state of its own --------------------------------------------------------------------- */

TAP_TEST(a_position_is_ones_own)
{
    int first, second;

    make_piece();
    first = duplicate(false);
    second = duplicate(false);
    check_int(lseek(first, MIB, SEEK_SET), MIB);
    check_int(lseek(second, 0, SEEK_CUR), 0);
    check_int(lseek(piece.fd_readonly, 0, SEEK_CUR), 0);
    check_int(lseek(piece.fd, 0, SEEK_CUR), 0);
    close(first);
    close(second);
    drop_piece();
}

TAP_TEST(flags_are_ones_own)
{
    int first, second;

    make_piece();
    first = duplicate(true);
    second = duplicate(true);
    check_int(fcntl(first, F_SETFL, O_APPEND | O_NONBLOCK), 0);
    check_int(fcntl(second, F_GETFL) & (O_APPEND | O_NONBLOCK), 0);
    check_int(fcntl(piece.fd, F_GETFL) & (O_APPEND | O_NONBLOCK), 0);
    check_int(pwrite(second, "hello", 5, MIB), 5);
    close(first);
    close(second);
    drop_piece();
}

TAP_TEST(a_lock_is_ones_own)
{
    int first, second, third;

    make_piece();
    first = duplicate(false);
    second = duplicate(false);
    third = duplicate(true);
    check_int(flock(first, LOCK_EX), 0);
    check_int(flock(second, LOCK_UN), 0); /* of one that is shared this would free it */
    check(flock(third, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK);
    close(second);
    close(first);
    check_int(flock(third, LOCK_EX | LOCK_NB), 0);
    close(third);
    drop_piece();
}

/* ---- state that stays ------------------------------------------------------------------------ */

static bool shows(int fd, const char *text, off_t at)
{
    char got[32] = "";

    return pread(fd, got, strlen(text), at) == (ssize_t)strlen(text) && strcmp(got, text) == 0;
}

TAP_TEST(it_is_the_same_memory)
{
    int reader, writer;

    make_piece();
    reader = duplicate(false);
    writer = duplicate(true);
    check_int(vmm_write(vmm, &piece, "hello", 5, 3 * MIB), 0);
    check(shows(reader, "hello", 3 * MIB));
    check_int(pwrite(writer, "world", 5, 3 * MIB), 5);
    check(shows(piece.fd_readonly, "world", 3 * MIB));
    vmm_destroy(vmm, &piece);
    check(shows(reader, "world", 3 * MIB)); /* it keeps the memory */
    close(reader);
    close(writer);
    vmm_close(vmm);
}

/* Writing the time would be a sixth of the cost of a mapping. */
TAP_TEST(a_reader_leaves_no_access_time)
{
    struct stat before, after;
    int reader;

    make_piece();
    reader = duplicate(false);
    check_int(fstat(piece.fd, &before), 0);
    usleep(20000); /* longer than a tick of the file system's clock */
    for (int i = 0; i < 2; i++) {
        int fd = i ? reader : piece.fd_readonly;
        void *map = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
        check(map != MAP_FAILED);
        munmap(map, MIB);
        check_int(pread(fd, &(char){0}, 1, 0), 1);
    }
    check_int(fstat(piece.fd, &after), 0);
    check(after.st_atim.tv_sec == before.st_atim.tv_sec &&
          after.st_atim.tv_nsec == before.st_atim.tv_nsec);
    close(reader);
    drop_piece();
}

TAP_TEST(readers_cannot_write_and_nobody_can_resize)
{
    int reader, writer;

    make_piece();
    reader = duplicate(false);
    writer = duplicate(true);
    check_int(fcntl(reader, F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_RDONLY);
    check_int(fcntl(writer, F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_RDWR);
    check(write(reader, "x", 1) < 0 && errno == EBADF);
    check(mmap(NULL, 4 * MIB, PROT_WRITE, MAP_SHARED, reader, 0) == MAP_FAILED && errno == EACCES);
    check(ftruncate(writer, 0) < 0 && errno == EPERM);
    check(fallocate(writer, 0, 4 * MIB, 2 * MIB) < 0 && errno == EPERM);
    check_int(vmm_finish(vmm, &piece), 0);
    check(fcntl(writer, F_ADD_SEALS, F_SEAL_WRITE) < 0 && errno == EPERM);
    check_int(fcntl(reader, F_GETFD), FD_CLOEXEC);
    check_int(fcntl(writer, F_GETFD), FD_CLOEXEC);
    check_int(mode_of(reader), 0);
    check_int(mode_of(writer), 0);
    close(reader);
    close(writer);
    drop_piece();
}

TAP_TEST(a_spool_has_no_duplicates_and_nothing_has_none)
{
    struct vmm_piece spool, none = {.fd = -1, .fd_readonly = -1, .sealed = true};
    int fd = 77;

    open_host(64 * MIB);
    require(vmm_create(vmm, 0, false, &spool) == 0);
    check_int(vmm_duplicate(vmm, &spool, false, &fd), -EINVAL);
    check_int(vmm_duplicate(vmm, &none, false, &fd), -EINVAL);
    check_int(fd, 77);
    require(vmm_grow(vmm, &spool, 2 * MIB) == 0);
    require(vmm_seal(vmm, &spool, MIB) == 0);
    check_int(vmm_duplicate(vmm, &spool, false, &fd), 0);
    close(fd);
    vmm_destroy(vmm, &spool);
    vmm_close(vmm);
}

TAP_TEST(duplicates_do_not_leak)
{
    int before;

    make_piece();
    before = count_descriptors();
    for (int i = 0; i < CYCLES; i++)
        close(duplicate(i % 2));
    check_int(count_descriptors(), before);
    drop_piece();
}

/* A blocking open would wait for as long as /proc/sys/fs/lease-break-time says: 45 s as a rule. */
TAP_TEST(a_lease_keeps_nobody_waiting)
{
    int fd = -1, leased;

    make_piece();
    leased = duplicate(false);
    signal(SIGIO, SIG_IGN);
    if (!skip(fcntl(leased, F_SETLEASE, F_RDLCK) < 0, "no leases on memory files here"))
        check_int(vmm_duplicate(vmm, &piece, true, &fd), -EBUSY);
    check_int(vmm_duplicate(vmm, &piece, false, &fd), 0);
    close(fd);
    close(leased);
    drop_piece();
}

/* ---- ordinary users -------------------------------------------------------------------------- */

static void become(unsigned uid)
{
    if (setgroups(0, NULL) || setgid(uid) || setuid(uid))
        _exit(255);
    prctl(PR_SET_DUMPABLE, 1);
}

static void *duplicate_often(void *writable)
{
    for (int i = 0; i < TURNS; i++) {
        int fd = -1;

        if (vmm_duplicate(vmm, &piece, *(bool *)writable, &fd) < 0)
            return writable;
        close(fd);
    }
    return NULL;
}

/* Gives 0 if each of some threads got all that it asked for. */
static int duplicate_at_once(void)
{
    static bool writable[] = {false, true, false, true};
    pthread_t threads[4];
    int failed = 0;

    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, duplicate_often, &writable[i]) != 0)
            return 2;
    for (int i = 0; i < 4; i++) {
        void *result;

        pthread_join(threads[i], &result);
        failed |= result != NULL;
    }
    return failed || mode_of(piece.fd) != 0;
}

/* Runs act() as that user in a process of its own. Returns its exit status. */
static int as_user(unsigned uid, int (*act)(void))
{
    int status = 0;
    pid_t child = fork();

    require(child >= 0);
    if (child == 0) {
        become(uid);
        _exit(act());
    }
    require(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256;
}

static int make_and_duplicate(void)
{
    return vmm_create(vmm, 4 * MIB, true, &piece) < 0 ? 3 : duplicate_at_once();
}

/* Mode 0 keeps its own user out, too: it has to be let in each time, by one thread at a time. */
TAP_TEST(an_ordinary_users_daemon_makes_them_from_many_threads)
{
    if (skip(geteuid() != 0, UNPRIVILEGED))
        return;
    open_host(64 * MIB);
    check_int(as_user(DAEMON_UID, make_and_duplicate), 0);
    vmm_close(vmm);
}

TAP_TEST(root_makes_them_from_many_threads)
{
    make_piece();
    check_int(duplicate_at_once(), 0);
    drop_piece();
}

static int attacked_fd;

static int open_anew_often(void)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", attacked_fd);
    for (int i = 0; i < 20 * TURNS; i++) {
        if (open(path, O_RDWR | O_CLOEXEC) >= 0 || open(path, O_WRONLY | O_CLOEXEC) >= 0)
            return 1;
        if (errno != EACCES)
            return 2;
    }
    return 0;
}

/* The daemon is an ordinary user's, which lets its user in for moments; a reader that is another
 * one must never get in with it. */
TAP_TEST(another_user_never_gets_in_while_an_ordinary_users_daemon_makes_them)
{
    int status = 0;
    pid_t daemon;

    if (skip(geteuid() != 0, UNPRIVILEGED))
        return;
    make_piece();
    require(fchown(piece.fd, DAEMON_UID, DAEMON_UID) == 0);
    attacked_fd = piece.fd_readonly;
    daemon = fork();
    require(daemon >= 0);
    if (daemon == 0) {
        become(DAEMON_UID);
        for (;;)
            if (duplicate_at_once() != 0)
                _exit(1);
    }
    check_int(as_user(OTHER_UID, open_anew_often), 0);
    check_int(waitpid(daemon, &status, WNOHANG), 0); /* it went on all the time */
    kill(daemon, SIGKILL);
    waitpid(daemon, &status, 0);
    drop_piece();
}

/* ---- the daemon's own ------------------------------------------------------------------------ */

/* A client that shares the daemon's own description can change its flags. */
TAP_TEST(a_client_that_sets_o_append_does_not_stop_the_daemons_writes)
{
    int client;

    make_piece();
    fill(&piece, 7, 0, 4 * MIB);
    client = dup(piece.fd);
    require(fcntl(client, F_SETFL, O_APPEND) == 0);
    check_int(vmm_write(vmm, &piece, "hello", 5, MIB), 0);
    check(shows(piece.fd_readonly, "hello", MIB));
    check(all_bytes_are(&piece, 7, 0, MIB));
    check(all_bytes_are(&piece, 7, MIB + 5, 4 * MIB));
    check_int(size_of(piece.fd), 4 * MIB);
    close(client);
    drop_piece();
}

/* ---- a GPU's --------------------------------------------------------------------------------- */

/* The thread that waited for events ends by itself; LeakSanitizer fails if it looks before that. */
static void wait_for_the_last_thread(void)
{
    for (int tries = 0; tries < MEASURE_TRIES; tries++) {
        DIR *tasks = opendir("/proc/self/task");
        int count = -2; /* "." and ".." */

        require(tasks != NULL);
        while (readdir(tasks))
            count++;
        closedir(tasks);
        if (count == 1)
            return;
        usleep(10000);
    }
}

TAP_TEST(a_gpus_descriptor_is_opaque_and_a_plain_duplicate)
{
    struct stat one, other;
    int fd = -1;

    open_gpu("memory 64\n");
    require(vmm_create(vmm, 2 * MIB, true, &piece) == 0);
    check_int(vmm_duplicate(vmm, &piece, false, &fd), 0);
    check(fd >= 0 && fd != piece.fd);
    check_int(fcntl(fd, F_GETFD), FD_CLOEXEC);
    require(fstat(fd, &one) == 0 && fstat(piece.fd, &other) == 0);
    check(one.st_ino == other.st_ino && one.st_dev == other.st_dev);
    vmm_destroy(vmm, &piece);
    check_free(62 * MIB); /* it keeps the memory */
    close(fd);
    check_free(64 * MIB);
    close_gpu();
    wait_for_the_last_thread();
}
