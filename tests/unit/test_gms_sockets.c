/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the sockets of GMS clients: their place, the files they replace, and when they are
 * removed. */
#include "daemon/gms_sockets.h"
#include "wire_fixture.h"

#include <stdlib.h>
#include <sys/un.h>
#include <sys/wait.h>

#define UUID   "GPU-6f1c2d3e-0a1b-4c5d-8e9f-001122334455"
#define RACERS 6
#define RACES  40

static const char *const NAMES[GMS_SOCKETS_MAX] = {
    "gms_" UUID "_weights.sock",
    "gms_" UUID "_kv_cache.sock",
    "gms_3_weights.sock",
    "gms_3_kv_cache.sock",
};

static char dir[64];
static struct gms_sockets_options options;
static struct gms_sockets sockets;

static void dir_make(void)
{
    const char *base = getenv("TMPDIR");

    snprintf(dir, sizeof dir, "%.40s/g.XXXXXX", base ? base : "/tmp");
    require(mkdtemp(dir) != NULL);
    options = (struct gms_sockets_options){
        .dir = dir,
        .uuid = {0x6f, 0x1c, 0x2d, 0x3e, 0x0a, 0x1b, 0x4c, 0x5d, 0x8e, 0x9f, 0, 0x11, 0x22, 0x33,
                 0x44, 0x55},
        .ordinal = 3,
        .mode = 0600,
        .mountpoint = "/mnt",
    };
}

/* Counts the files in it, hidden ones too. */
static int count_files(void)
{
    DIR *at = opendir(dir);
    int count = -2;

    require(at != NULL);
    while (readdir(at))
        count++;
    closedir(at);
    return count;
}

static void dir_remove(void)
{
    check_int(count_files(), 0);
    check_int(rmdir(dir), 0);
}

static const char *path_of(size_t i)
{
    static char path[160];

    snprintf(path, sizeof path, "%s/%s", dir, NAMES[i]);
    return path;
}

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    require(strlen(path) < sizeof address.sun_path);
    strcpy(address.sun_path, path);
    return address;
}

static int bound(const char *path, int type)
{
    struct sockaddr_un address = address_of(path);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    require(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = address_of(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    int error = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? 0 : -errno;
    close(fd);
    return error;
}

static void leave_dead(size_t i)
{
    close(bound(path_of(i), SOCK_STREAM));
}

TAP_BEFORE_EACH(dir_make)
TAP_AFTER_EACH(dir_remove)

/* ---- coming ---------------------------------------------------------------------------------- */

TAP_TEST(there_is_one_for_each_domain_and_protocol_and_each_listens)
{
    int before = count_open();
    check_int(gms_sockets_open(&options, &sockets), 0);
    check_int(sockets.count, GMS_SOCKETS_MAX);
    check_int(count_files(), GMS_SOCKETS_MAX);
    for (size_t i = 0; i < GMS_SOCKETS_MAX; i++) {
        check_str(sockets.items[i].path, path_of(i));
        check_int(sockets.items[i].domain, i % 2);
        check_int(sockets.items[i].protocol, i / 2);
        check_int(connect_to(path_of(i)), 0);
        check(fcntl(sockets.items[i].fd, F_GETFL) & O_NONBLOCK);
        check_int(fcntl(sockets.items[i].fd, F_GETFD), FD_CLOEXEC);
    }
    gms_sockets_close(&sockets);
    check_int(count_open(), before);
}

TAP_TEST(the_mode_does_not_depend_on_the_umask)
{
    static const mode_t MODES[] = {0600, 0660, 0666, 0777, 0}, UMASKS[] = {0, 022, 0777};
    struct stat found;

    for (size_t i = 0; i < sizeof MODES / sizeof MODES[0] * 3; i++) {
        options.mode = MODES[i / 3];
        mode_t before = umask(UMASKS[i % 3]);
        check_int(gms_sockets_open(&options, &sockets), 0);
        check_int(umask(before), UMASKS[i % 3]);
        for (size_t j = 0; j < GMS_SOCKETS_MAX; j++) {
            check_int(stat(path_of(j), &found), 0);
            check_int(found.st_mode, S_IFSOCK | options.mode);
        }
        gms_sockets_close(&sockets);
    }
}

TAP_TEST(slashes_behind_the_directory_do_no_harm)
{
    char with_slashes[80];

    snprintf(with_slashes, sizeof with_slashes, "%s//", dir);
    options.dir = with_slashes;
    check_int(gms_sockets_open(&options, &sockets), 0);
    check_str(sockets.items[0].path, path_of(0));
    gms_sockets_close(&sockets);
}

/* ---- existing files -------------------------------------------------------------------------- */

TAP_TEST(dead_ones_are_replaced)
{
    for (size_t i = 0; i < GMS_SOCKETS_MAX; i++)
        leave_dead(i);
    check_int(gms_sockets_open(&options, &sockets), 0);
    check_int(count_files(), GMS_SOCKETS_MAX);
    for (size_t i = 0; i < GMS_SOCKETS_MAX; i++)
        check_int(connect_to(path_of(i)), 0);
    gms_sockets_close(&sockets);
}

/* With a file at the last path, no socket stays and the file is unchanged. */
static void check_is_left(int error)
{
    struct stat before, after;
    int open = count_open();

    require(lstat(path_of(3), &before) == 0);
    check_int(gms_sockets_open(&options, &sockets), error);
    check_int(sockets.count, 0);
    check_int(count_open(), open);
    check_int(count_files(), 1);
    check_int(lstat(path_of(3), &after), 0);
    check_int(after.st_ino, before.st_ino);
    check_int(unlink(path_of(3)), 0);
}

TAP_TEST(a_live_one_is_left_and_no_other_remains)
{
    static const int TYPES[] = {SOCK_STREAM, SOCK_SEQPACKET};

    for (size_t i = 0; i < 2; i++) {
        int fd = bound(path_of(3), TYPES[i]);
        check_int(listen(fd, 5), 0);
        check_is_left(-EADDRINUSE);
        close(fd);
    }
    int fd = bound(path_of(3), SOCK_DGRAM);
    check_is_left(-EADDRINUSE);
    close(fd);
}

TAP_TEST(one_with_a_full_queue_is_not_taken_for_dead)
{
    struct sockaddr_un address = address_of(path_of(3));
    int fd = bound(path_of(3), SOCK_STREAM), waiting[4];
    check_int(listen(fd, 0), 0);
    for (size_t i = 0; i < 4; i++) {
        waiting[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(waiting[i], (struct sockaddr *)&address, sizeof address);
    }
    check_is_left(-EADDRINUSE);
    files_close(waiting, 4);
    close(fd);
}

TAP_TEST(a_file_that_is_no_socket_is_left)
{
    FILE *file = fopen(path_of(3), "we");
    require(file != NULL);
    fclose(file);
    check_is_left(-EEXIST);
    require(symlink("/no/such/socket", path_of(3)) == 0);
    check_is_left(-EEXIST);
    leave_dead(0);
    char target[200];
    snprintf(target, sizeof target, "%s.dead", path_of(0));
    require(rename(path_of(0), target) == 0 && symlink(target, path_of(3)) == 0);
    check_int(gms_sockets_open(&options, &sockets), -EEXIST); /* nor the target of a link */
    check_int(unlink(path_of(3)), 0);
    check_int(unlink(target), 0);
}

/* ---- where it cannot be ---------------------------------------------------------------------- */

TAP_TEST(a_directory_that_is_missing_or_none_is_refused)
{
    char other[128];

    snprintf(other, sizeof other, "%s/none", dir);
    options.dir = other;
    check_int(gms_sockets_open(&options, &sockets), -ENOENT);
    FILE *file = fopen(other, "we");
    require(file != NULL);
    fclose(file);
    check_int(gms_sockets_open(&options, &sockets), -ENOTDIR);
    unlink(other);
}

TAP_TEST(the_longest_path_is_taken_and_one_byte_more_is_refused)
{
    char deep[256];
    size_t room = GMS_SOCKETS_PATH_BYTES - 1 - strlen(NAMES[1]) - 1;

    size_t bytes = (size_t)snprintf(deep, sizeof deep, "%s/", dir);
    require(bytes < room);
    memset(deep + bytes, 'd', room + 1 - bytes);
    deep[room + 1] = '\0';
    require(mkdir(deep, 0700) == 0);
    options.dir = deep;
    check_int(gms_sockets_open(&options, &sockets), -ENAMETOOLONG);
    check_int(rmdir(deep), 0);
    deep[room] = '\0';
    require(mkdir(deep, 0700) == 0);
    check_int(gms_sockets_open(&options, &sockets), 0);
    check_int(strlen(sockets.items[1].path), GMS_SOCKETS_PATH_BYTES - 1);
    check_int(connect_to(sockets.items[1].path), 0);
    gms_sockets_close(&sockets);
    check_int(rmdir(deep), 0);
}

/* ---- going ----------------------------------------------------------------------------------- */

TAP_TEST(only_its_own_sockets_are_removed)
{
    check_int(gms_sockets_open(&options, &sockets), 0);
    require(unlink(path_of(0)) == 0 && unlink(path_of(1)) == 0);
    int other = bound(path_of(0), SOCK_STREAM);
    gms_sockets_close(&sockets);
    check_int(count_files(), 1);
    close(other);
    check_int(unlink(path_of(0)), 0);
    gms_sockets_close(&sockets); /* nothing is left to do */
}

/* ---- several at a time ----------------------------------------------------------------------- */

/* Runs in a child: tries when the pipe's end is closed, reports the result, and stays until it is
 * killed. */
static void race(int start_fd, int said_fd)
{
    char byte;

    close(STDERR_FILENO);
    (void)!read(start_fd, &byte, 1);
    int error = gms_sockets_open(&options, &sockets);
    (void)!write(said_fd, &error, sizeof error);
    pause();
}

static void check_race(void)
{
    int start[2], said[2], error, winners = 0, losers = 0;
    pid_t racers[RACERS];

    require(pipe(start) == 0 && pipe(said) == 0);
    for (size_t i = 0; i < RACERS; i++) {
        racers[i] = fork();
        require(racers[i] >= 0);
        if (racers[i] == 0) {
            close(start[1]);
            race(start[0], said[1]);
            _exit(0);
        }
    }
    close(start[0]);
    close(start[1]);
    for (size_t i = 0; i < RACERS; i++) {
        require(read(said[0], &error, sizeof error) == (ssize_t)sizeof error);
        winners += error == 0;
        losers += error == -EADDRINUSE;
    }
    check_int(winners + losers, RACERS);
    check(winners <= 1); /* none if each had one that another wanted */
    for (size_t i = 0; winners && i < GMS_SOCKETS_MAX; i++)
        check_int(connect_to(path_of(i)), 0);
    for (size_t i = 0; i < RACERS; i++) {
        kill(racers[i], SIGKILL);
        waitpid(racers[i], NULL, 0);
    }
    files_close(said, 2);
}

TAP_TEST(of_those_that_begin_together_one_has_them_all_or_none_has_any)
{
    int won = 0;

    for (size_t i = 0; i < RACES; i++) {
        check_race(); /* over the dead sockets of the last winner */
        won += count_files() > 0;
    }
    check(won > 0);
    for (size_t i = 0; i < GMS_SOCKETS_MAX; i++)
        unlink(path_of(i));
}
