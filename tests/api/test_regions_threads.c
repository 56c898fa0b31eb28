/* SPDX-License-Identifier: Apache-2.0 */
/* Regions used by several threads at once, in children of fork(2), after unregistering and
 * closing. */
#include <pthread.h>
#include <sys/wait.h>

#include "regions_fixture.h"

#define THREADS 8
#define ROUNDS  40
#define BYTES   4096u

/* ---- exactly once -------------------------------------------------------------------------- */

/* Even if the connection breaks before an answer arrives, nothing is done twice, and nothing done
 * is denied. */
TAP_TEST(each_call_says_what_it_did_round_after_round)
{
    auto_regions *regions = open_regions();
    uint64_t count = 77;
    auto_fd fd = make_object(BYTES);

    for (int i = 0; i < 300 && !tap_failed; i++) {
        check_int(register_fd(regions, "r", fd, 0, BYTES), 0);
        check_int(register_fd(regions, "r", fd, 0, BYTES), -EEXIST);
        check_int(count_references(regions, "r"), 0);
        check_int(gmsfs_region_unregister(regions, SELF, GMSFS_REGION_ANY, "r"), 0);
        check_int(gmsfs_region_unregister(regions, SELF, GMSFS_REGION_ANY, "r"), -ENOENT);
        check_int(register_fd(regions, "r", fd, 0, BYTES), 0);
        check_int(register_fd(regions, "s", fd, 0, BYTES), 0);
        check_int(gmsfs_region_unregister_all(regions, SELF, GMSFS_REGION_ANY, &count), 0);
        check_int(count, 2);
        check_int(gmsfs_region_unregister_all(regions, SELF, GMSFS_REGION_ANY, &count), 0);
        check_int(count, 0);
    }
}

/* ---- threads ------------------------------------------------------------------------------- */

struct worker {
    pthread_t thread;
    gmsfs_regions_t *regions;
    gmsfs_region_t *region;
    int number;
    int wrong; /* the line that failed; 0 if none */
};

#define EXPECT(worker, condition)             \
    do {                                      \
        if (!(condition) && !(worker)->wrong) \
            (worker)->wrong = __LINE__;       \
    } while (0)

static void run_all(struct worker *workers, void *(*run)(void *))
{
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = i;
        require(pthread_create(&workers[i].thread, NULL, run, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        check_int(workers[i].wrong, 0);
    }
}

/* Uses its own region, from the beginning to the end. */
static void use_own(struct worker *worker, int round)
{
    char name[16], byte = 0, mark = (char)(worker->number + round);
    gmsfs_region_t *region = NULL;
    int fd = make_object(BYTES);

    snprintf(name, sizeof name, "own%d", worker->number);
    EXPECT(worker, register_fd(worker->regions, name, fd, 0, BYTES) == 0);
    EXPECT(worker, gmsfs_region_open(worker->regions, SELF, name, &region, NULL) == 0);
    if (region) {
        EXPECT(worker, gmsfs_region_write(region, 7, &mark, 1, NULL) == 0);
        EXPECT(worker, pread(fd, &byte, 1, 7) == 1 && byte == mark);
        EXPECT(worker, strcmp(gmsfs_region_info(region)->name, name) == 0);
    }
    EXPECT(worker, gmsfs_region_unregister(worker->regions, SELF, GMSFS_REGION_ANY, name) == 0);
    gmsfs_region_close(region);
    close(fd);
}

/* Uses one that all want: the first thread registers it, and the first to end it does. */
static void use_common(struct worker *worker)
{
    gmsfs_region_t *region = NULL;
    struct gmsfs_region_info *list = NULL;
    size_t count = 0;
    int fd = make_object(BYTES), error = register_fd(worker->regions, "common", fd, 0, BYTES);
    char byte;

    EXPECT(worker, error == 0 || error == -EEXIST);
    error = gmsfs_region_open(worker->regions, SELF, "common", &region, NULL);
    EXPECT(worker, error == 0 || error == -ENOENT);
    if (error == 0)
        EXPECT(worker, gmsfs_region_read(region, 0, &byte, 1, NULL) == 0);
    EXPECT(worker, gmsfs_region_list(worker->regions, SELF, GMSFS_REGION_ANY, &list, &count) == 0);
    EXPECT(worker, count <= THREADS + 1);
    gmsfs_region_list_free(list);
    error = gmsfs_region_unregister(worker->regions, SELF, GMSFS_REGION_ANY, "common");
    EXPECT(worker, error == 0 || error == -ENOENT);
    gmsfs_region_close(region);
    close(fd);
}

static void *register_and_use(void *argument)
{
    struct worker *worker = argument;

    for (int round = 0; round < ROUNDS && !worker->wrong; round++) {
        use_own(worker, round);
        use_common(worker);
    }
    return NULL;
}

/* The directory of this user's regions goes with the last of them, and with it the handle's
 * descriptor at times: they are counted without the handle. */
TAP_TEST(threads_register_open_list_and_unregister_by_one_handle)
{
    struct worker workers[THREADS] = {0};
    struct gmsfs_region_info *list = NULL;
    int before = count_fds();
    gmsfs_regions_t *regions = open_regions();
    size_t count = 1;

    for (int i = 0; i < THREADS; i++)
        workers[i].regions = regions;
    run_all(workers, register_and_use);
    check_int(gmsfs_region_list(regions, SELF, GMSFS_REGION_ANY, &list, &count), 0);
    check_int(count, 0);
    gmsfs_region_list_free(list);
    gmsfs_regions_close(regions);
    check_int(count_fds(), before);
}

static void *write_and_read(void *argument)
{
    struct worker *worker = argument;
    size_t part = BYTES / THREADS, offset = part * (size_t)worker->number;
    unsigned char bytes[BYTES / THREADS], seen[BYTES / THREADS];

    for (int round = 0; round < ROUNDS * 5; round++) {
        memset(bytes, worker->number * 16 + round % 16, part);
        EXPECT(worker, gmsfs_region_write(worker->region, offset, bytes, part, NULL) == 0);
        EXPECT(worker, gmsfs_region_read(worker->region, offset, seen, part, NULL) == 0);
        EXPECT(worker, memcmp(bytes, seen, part) == 0);
    }
    return NULL;
}

TAP_TEST(threads_read_and_write_one_region_behind_its_unregistering_and_its_handles_end)
{
    struct worker workers[THREADS] = {0};
    gmsfs_regions_t *regions = open_regions();
    gmsfs_region_t *region = NULL;
    auto_fd fd = make_object(BYTES);

    require(register_fd(regions, "r", fd, 0, BYTES) == 0);
    require(gmsfs_region_open(regions, SELF, "r", &region, NULL) == 0);
    check_int(gmsfs_region_unregister(regions, SELF, GMSFS_REGION_ANY, "r"), 0);
    gmsfs_regions_close(regions);
    for (int i = 0; i < THREADS; i++)
        workers[i].region = region;
    run_all(workers, write_and_read);
    gmsfs_region_close(region);
    regions = open_regions();
    check_int(count_references(regions, "r"), -ENOENT);
    gmsfs_regions_close(regions);
}

/* ---- fork(2) ------------------------------------------------------------------------------- */

static int wait_for(pid_t child)
{
    int status;

    check(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Returns the line that failed. */
static int use_as_child(gmsfs_regions_t *regions, gmsfs_region_t *region, int fd)
{
    struct gmsfs_region_info info, *list;
    gmsfs_region_t *other;
    uint64_t ended;
    size_t count;
    char byte = 0;

    if (register_fd(regions, "child", fd, 0, BYTES) != -ECHILD ||
        gmsfs_region_open(regions, SELF, "r", &other, NULL) != -ECHILD)
        return __LINE__;
    if (gmsfs_region_unregister(regions, SELF, GMSFS_REGION_ANY, "r") != -ECHILD ||
        gmsfs_region_unregister_all(regions, SELF, GMSFS_REGION_ANY, &ended) != -ECHILD)
        return __LINE__;
    if (gmsfs_region_get(regions, SELF, GMSFS_REGION_ANY, "r", &info) != -ECHILD ||
        gmsfs_region_list(regions, SELF, GMSFS_REGION_ANY, &list, &count) != -ECHILD)
        return __LINE__;
    if (gmsfs_region_read(region, 0, &byte, 1, NULL) != 0 || byte != 'x')
        return __LINE__;
    gmsfs_region_close(region);
    gmsfs_regions_close(regions);
    return 0;
}

TAP_TEST(a_child_of_fork_cannot_use_the_handle_nor_give_its_parents_references_back)
{
    auto_regions *regions = open_regions();
    gmsfs_region_t *region = NULL;
    auto_fd fd = make_object(BYTES);
    char byte = 0;
    pid_t child;

    require(pwrite(fd, "x", 1, 0) == 1 && register_fd(regions, "r", fd, 0, BYTES) == 0);
    require(gmsfs_region_open(regions, SELF, "r", &region, NULL) == 0);
    fflush(stdout);
    child = fork();
    if (child == 0)
        _exit(use_as_child(regions, region, fd) % 256);
    check_int(wait_for(child), 0);
    check_int(count_references(regions, "r"), 1);
    check_int(gmsfs_region_unregister(regions, SELF, GMSFS_REGION_ANY, "r"), 0);
    check_int(gmsfs_region_read(region, 0, &byte, 1, NULL), 0);
    check_int(byte, 'x');
    check_int(count_references(regions, "r"), 1); /* it drains */
    gmsfs_region_close(region);
    check_int(count_references(regions, "r"), -ENOENT);
}

/* Returns the line that failed. before: open descriptors, before the library's first. */
static int keep_as_child(gmsfs_regions_t *regions, gmsfs_region_t *region, char *ptr, int before)
{
    if (ptr[0] != 'x' || fcntl(gmsfs_region_descriptor(region), F_GETFD) < 0)
        return __LINE__;
    ptr[1] = 'y';
    gmsfs_region_close(region);
    gmsfs_regions_close(regions);
    if (msync(ptr, BYTES, MS_ASYNC) == 0)
        return __LINE__;
    return count_fds() == before ? 0 : __LINE__;
}

TAP_TEST(a_child_of_fork_has_what_its_parent_opened_and_mapped_until_it_closes_that)
{
    int fd = make_object(BYTES), before = count_fds();
    auto_regions *regions = open_regions();
    gmsfs_region_t *region = NULL;
    char *ptr = NULL;
    pid_t child;

    require(pwrite(fd, "x", 1, 0) == 1 && register_fd(regions, "r", fd, 0, BYTES) == 0);
    require(gmsfs_region_open(regions, SELF, "r", &region, NULL) == 0);
    require(gmsfs_region_map(region, GMSFS_ACCESS_WRITE, (void **)&ptr) == 0 && ptr);
    fflush(stdout);
    child = fork();
    if (child == 0)
        _exit(keep_as_child(regions, region, ptr, before) != 0);
    check_int(wait_for(child), 0);
    check_int(ptr[1], 'y');
    check_int(count_references(regions, "r"), 1);
    gmsfs_region_close(region);
    check_int(gmsfs_region_unregister(regions, SELF, GMSFS_REGION_ANY, "r"), 0);
    close(fd);
}

/* ---- unregistered -------------------------------------------------------------------------- */

TAP_TEST(a_region_that_was_unregistered_is_read_written_and_mapped_until_it_is_closed)
{
    auto_regions *regions = open_regions();
    gmsfs_region_t *region = NULL, *again = NULL;
    auto_fd fd = make_object(BYTES);
    char byte = 0, *ptr = NULL;

    require(register_fd(regions, "r", fd, 0, BYTES) == 0);
    require(gmsfs_region_open(regions, SELF, "r", &region, NULL) == 0);
    check_int(gmsfs_region_unregister(regions, SELF, GMSFS_REGION_ANY, "r"), 0);
    check_int(gmsfs_region_write(region, 1, "y", 1, NULL), 0);
    check_int(gmsfs_region_map(region, GMSFS_ACCESS_WRITE, (void **)&ptr), 0);
    require(ptr != NULL);
    check_int(ptr[1], 'y');
    ptr[2] = 'z';
    check(gmsfs_region_descriptor(region) >= 0);
    check_int(pread(fd, &byte, 1, 2), 1);
    check_int(byte, 'z');
    gmsfs_region_close(region);
    check_int(gmsfs_region_open(regions, SELF, "r", &again, NULL), -ENOENT);
    check_int(gmsfs_region_unregister(regions, SELF, GMSFS_REGION_ANY, "r"), -ENOENT);
}
