/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions that are refused: the answers behind Triton's texts, bad clients, contents of no store,
 * and two users on one machine. Some tests need root to become other users.
 */
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <gmsfs_graph.h>

#include "regions_fixture.h"

#define ANNA 65531u
#define BEN  65532u

/* ---- the answers behind Triton's texts ------------------------------------------------------ */

TAP_TEST(what_cannot_be_registered_says_why)
{
    auto_regions *regions = open_regions();
    struct gmsfs_region_request wish;
    char name[301];
    auto_fd fd = make_object(4096);

    check_int(register_fd(regions, "r", fd, 0, 4097), -EINVAL);
    check_int(reason, GMSFS_REGION_BAD_RANGE);
    check_int(register_fd(regions, "r", fd, 4096, 1), -EINVAL);
    check_int(reason, GMSFS_REGION_BAD_RANGE);
    check_int(register_fd(regions, "r", fd, UINT64_MAX, 2), -EINVAL);
    check_int(reason, GMSFS_REGION_BAD_RANGE);
    check_int(register_fd(regions, "r", fd, 0, 0), -EINVAL);
    check_int(reason, GMSFS_REGION_NO_SIZE);
    check_int(register_fd(regions, "", fd, 0, 1), -EINVAL);
    check_int(reason, GMSFS_REGION_BAD_NAME);
    memset(name, 'n', 300);
    name[300] = '\0';
    check_int(register_fd(regions, name, fd, 0, 1), -ENAMETOOLONG);
    check_int(reason, GMSFS_REGION_BAD_NAME);
    wish = wish_of("r", fd, 0, 1);
    wish.key = "///";
    check_int(gmsfs_region_register(regions, &wish, &reason), -EINVAL);
    check_int(reason, GMSFS_REGION_BAD_KEY);
    wish.key = "//triton_python_backend_shm_region_1";
    check_int(gmsfs_region_register(regions, &wish, &reason), -EINVAL);
    check_int(reason, GMSFS_REGION_RESERVED_KEY);
    check_int(register_fd(regions, "r", fd, 0, 1), 0);
    check_int(reason, GMSFS_REGION_FINE);
    check_int(register_fd(regions, "r", fd, 0, 1), -EEXIST);
    check_int(reason, GMSFS_REGION_EXISTS);
    wish = cuda_wish("r");
    check_int(gmsfs_region_register(regions, &wish, &reason), -EEXIST);
    check_int(reason, GMSFS_REGION_EXISTS);
    wish = cuda_wish("s");
    wish.raw_handle_bytes = 63;
    check_int(gmsfs_region_register(regions, &wish, &reason), -EINVAL);
    check_int(reason, GMSFS_REGION_BAD_HANDLE);
}

TAP_TEST(what_is_unknown_says_so)
{
    auto_regions *regions = open_regions();
    struct gmsfs_region_info info;
    gmsfs_region_t *region;
    auto_fd fd = make_object(4096);

    require(register_fd(regions, "r", fd, 0, 1) == 0);
    check_int(gmsfs_region_get(regions, SELF, GMSFS_REGION_SYSTEM, "none", &info), -ENOENT);
    check_int(gmsfs_region_get(regions, SELF, GMSFS_REGION_CUDA, "r", &info), -ENOENT);
    check_int(gmsfs_region_get(regions, SELF, GMSFS_REGION_SYSTEM, "r", &info), 0);
    check_int(gmsfs_region_open(regions, SELF, "none", &region, &reason), -ENOENT);
    check_int(reason, GMSFS_REGION_UNKNOWN);
    check_int(gmsfs_region_unregister(regions, SELF, GMSFS_REGION_CUDA, "r"), -ENOENT);
    check_int(gmsfs_region_unregister(regions, SELF, GMSFS_REGION_SYSTEM, "r"), 0);
    check_int(gmsfs_region_unregister(regions, SELF, GMSFS_REGION_SYSTEM, "r"), -ENOENT);
}

TAP_TEST(an_access_outside_says_where)
{
    const struct gmsfs_region_info info = {.byte_size = 64};

    check_int(gmsfs_region_check(&info, 0, 64, &reason), 0);
    check_int(reason, GMSFS_REGION_FINE);
    check_int(gmsfs_region_check(&info, 64, 0, &reason), -ERANGE);
    check_int(reason, GMSFS_REGION_BAD_OFFSET);
    check_int(gmsfs_region_check(&info, 32, UINT64_MAX - 31, &reason), -ERANGE);
    check_int(reason, GMSFS_REGION_OVERFLOW);
    check_int(gmsfs_region_check(&info, 32, 33, &reason), -ERANGE);
    check_int(reason, GMSFS_REGION_BAD_END);
}

/* ---- bad clients --------------------------------------------------------------------------- */

TAP_TEST(an_object_that_shrinks_is_an_error_and_no_signal)
{
    auto_regions *regions = open_regions();
    gmsfs_region_t *region = NULL;
    struct stat stat;
    char bytes[64];
    void *ptr;
    auto_fd fd = make_object(8192);

    require(register_fd(regions, "r", fd, 4096, 64) == 0);
    require(gmsfs_region_open(regions, SELF, "r", &region, NULL) == 0);
    require(ftruncate(fd, 4100) == 0);
    check_int(gmsfs_region_read(region, 0, bytes, 4, &reason), 0);
    check_int(gmsfs_region_read(region, 0, bytes, 64, &reason), -ENODATA);
    check_int(reason, GMSFS_REGION_SHRUNK);
    check_int(gmsfs_region_write(region, 0, bytes, 64, &reason), -ENODATA);
    check_int(reason, GMSFS_REGION_SHRUNK);
    check(fstat(fd, &stat) == 0 && stat.st_size == 4100); /* it did not grow again either */
    check_int(gmsfs_region_map(region, GMSFS_ACCESS_READ, &ptr), -ENODATA);
    gmsfs_region_close(region);
}

TAP_TEST(what_is_no_memory_is_not_taken)
{
    auto_regions *regions = open_regions();
    char path[] = "/var/tmp/gmsfs_regions_XXXXXX";
    int pipes[2], directory = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int file = mkstemp(path), object = make_object(4096), written;
    char link[64];

    snprintf(link, sizeof link, "/proc/self/fd/%d", object);
    written = open(link, O_WRONLY | O_CLOEXEC);
    require(pipe(pipes) == 0 && directory >= 0 && file >= 0 && written >= 0);
    unlink(path);
    require(ftruncate(file, 4096) == 0);
    int wrong[] = {pipes[0], directory, written, file};
    for (size_t i = 0; i < 4; i++) {
        if (i == 3 && fcntl(file, F_GET_SEALS) >= 0)
            continue; /* /var/tmp is in memory here */
        check_int(register_fd(regions, "r", wrong[i], 0, 1), -EINVAL);
        check_int(reason, GMSFS_REGION_BAD_OBJECT);
    }
    check_int(register_fd(regions, "r", object, 0, 1), 0); /* and the next one is */
    close(pipes[0]);
    close(pipes[1]);
    for (size_t i = 1; i < 4; i++)
        close(wrong[i]);
    close(object);
}

/* A file of the mount itself: closing it sends a request to the process that would wait for it. */
TAP_TEST(a_file_of_the_mount_is_no_object)
{
    auto_regions *regions = open_regions();
    int object = make_object(4096), file;
    char path[4200];

    snprintf(path, sizeof path, "%s/ctl", store_path());
    file = open(path, O_RDONLY | O_CLOEXEC);
    require(file >= 0);
    for (int i = 0; i < 20; i++) {
        check_int(register_fd(regions, "r", file, 0, 1), -EINVAL);
        check_int(reason, GMSFS_REGION_BAD_OBJECT);
    }
    close(file);
    for (int i = 0; i < 100 && register_fd(regions, "r", object, 0, 1) != 0; i++)
        usleep(10000); /* the last one is still being closed */
    struct gmsfs_region_info info;
    check_int(gmsfs_region_get(regions, SELF, GMSFS_REGION_ANY, "r", &info), 0);
    close(object);
}

/* ---- stores -------------------------------------------------------------------------------- */

TAP_TEST(what_is_not_in_a_store_is_no_region)
{
    auto_regions *regions = open_regions();
    char key[512], path[4200];
    struct gmsfs_region_request wish = wish_of("w", -1, 0, 10);
    auto_fd fd = make_object(4096);

    snprintf(path, sizeof path, "%s/fresh", mount_path);
    require(mkdir(path, 0755) == 0);
    wish.key = "fresh/a000000";
    check_int(gmsfs_region_register(regions, &wish, &reason), -ENODATA);
    check_int(reason, GMSFS_REGION_UNCOMMITTED);
    require(rmdir(path) == 0);
    check_int(gmsfs_region_register(regions, &wish, &reason), -ENOENT);
    check_int(reason, GMSFS_REGION_NO_OBJECT);
    publish(1000, "t", 7);
    snprintf(key, sizeof key, "%s/none", strrchr(store_path(), '/') + 1);
    wish.key = key;
    check_int(gmsfs_region_register(regions, &wish, &reason), -ENOENT);
    check_int(reason, GMSFS_REGION_NO_OBJECT);
    wish = store_wish(key, sizeof key);
    wish.fd = fd;
    check_int(gmsfs_region_register(regions, &wish, &reason), -EINVAL);
    check_int(reason, GMSFS_REGION_BAD_OBJECT);
}

TAP_TEST(the_directory_of_regions_is_no_store)
{
    gmsfs_regions_t *regions = open_regions(), *other = NULL;
    gmsfs_graph_pool_t *pool = NULL;
    gmsfs_t *handle = NULL;
    char path[4200];

    snprintf(path, sizeof path, "%s/regions", mount_path);
    check_int(gmsfs_open(path, &handle), -ENOTTY);
    check_int(gmsfs_graph_open(path, 0, &pool), -ENOTTY);
    check(mkdir(path, 0755) < 0 && errno == EEXIST);
    check_int(gmsfs_regions_open(path, &other), -ENOTTY);
    check_int(gmsfs_regions_open(store_path(), &other), -ENOTTY);
    check_int(gmsfs_regions_open("/dev/shm", &other), -ENOTTY);
    check_int(gmsfs_regions_open("/no such directory", &other), -ENOENT);
    gmsfs_regions_close(regions);
}

/* ---- two users ----------------------------------------------------------------------------- */

/* Runs in a child, as this user. Returns 0, or the line that failed. */
static int as_user(uint32_t uid, int (*run)(gmsfs_regions_t *regions))
{
    int status = -1;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        gmsfs_regions_t *regions = NULL;

        if (setgroups(0, NULL) || setgid(uid) || setuid(uid) ||
            gmsfs_regions_open(mount_path, &regions))
            _exit(99);
        _exit(run(regions));
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

#define MUST(condition)   \
    do {                  \
        if (!(condition)) \
            return step;  \
        step++;           \
    } while (0)

static int register_mine(gmsfs_regions_t *regions)
{
    int fd = make_object(4096), step = 1;

    MUST(register_fd(regions, "mine", fd, 0, 64) == 0);
    MUST(register_fd(regions, "too", fd, 0, 64) == 0);
    return 0;
}

/* Runs as Ben, while Anna has regions. */
static int meddle(gmsfs_regions_t *regions)
{
    struct gmsfs_region_info info, *list = NULL;
    struct gmsfs_region_request wish;
    gmsfs_region_t *region;
    char path[4200];
    size_t count = 9;
    uint64_t gone = 9;
    int fd = make_object(4096), step = 1;

    MUST(gmsfs_region_get(regions, SELF, GMSFS_REGION_ANY, "mine", &info) == -ENOENT);
    MUST(gmsfs_region_list(regions, SELF, GMSFS_REGION_ANY, &list, &count) == 0 && count == 0);
    MUST(gmsfs_region_unregister_all(regions, SELF, GMSFS_REGION_ANY, &gone) == 0 && gone == 0);
    MUST(gmsfs_region_get(regions, ANNA, GMSFS_REGION_ANY, "mine", &info) == -EPERM);
    MUST(gmsfs_region_list(regions, ANNA, GMSFS_REGION_ANY, &list, &count) == -EPERM);
    MUST(gmsfs_region_unregister(regions, ANNA, GMSFS_REGION_ANY, "mine") == -EPERM);
    MUST(gmsfs_region_unregister(regions, ANNA, GMSFS_REGION_ANY, "none") == -EPERM);
    MUST(gmsfs_region_unregister_all(regions, ANNA, GMSFS_REGION_ANY, &gone) == -EPERM);
    MUST(gmsfs_region_open(regions, ANNA, "mine", &region, &reason) == -EPERM);
    MUST(gmsfs_region_open(regions, ANNA, "none", &region, &reason) == -EPERM);
    wish = wish_of("hers", fd, 0, 1);
    wish.uid = ANNA;
    MUST(gmsfs_region_register(regions, &wish, &reason) == -EPERM);
    MUST(reason == GMSFS_REGION_NOT_OWNER);
    snprintf(path, sizeof path, "%s/regions/%u/mine", mount_path, ANNA);
    MUST(open(path, O_RDONLY | O_CLOEXEC) < 0 && errno == EACCES);
    MUST(unlink(path) < 0 && errno == EACCES);
    snprintf(path, sizeof path, "%s/regions", mount_path);
    MUST(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) < 0 && errno == EACCES);
    MUST(register_fd(regions, "mine", fd, 0, 1) == 0); /* each user has names of its own */
    snprintf(path, sizeof path, "%s/regions/%u/mine", mount_path, BEN);
    MUST(open(path, O_RDONLY | O_CLOEXEC) >= 0);
    MUST(gmsfs_region_unregister_all(regions, SELF, GMSFS_REGION_ANY, &gone) == 0 && gone == 1);
    return 0;
}

TAP_TEST(a_user_cannot_see_open_or_unregister_anothers_regions)
{
    auto_regions *regions = NULL;
    struct gmsfs_region_info *list = NULL;
    size_t count = 0;

    if (geteuid() != 0)
        return;
    regions = open_regions();
    check_int(as_user(ANNA, register_mine), 0);
    check_int(as_user(BEN, meddle), 0);
    check_int(gmsfs_region_list(regions, ANNA, GMSFS_REGION_ANY, &list, &count), 0);
    check_int(count, 2); /* they outlive the process that registered them */
    gmsfs_region_list_free(list);
    check_int(gmsfs_region_unregister_all(regions, ANNA, GMSFS_REGION_ANY, NULL), 0);
}

static int use_mine(gmsfs_regions_t *regions)
{
    gmsfs_region_t *region = NULL;
    char byte = 0;
    int step = 1;

    MUST(gmsfs_region_open(regions, SELF, "given", &region, &reason) == 0);
    MUST(gmsfs_region_info(region)->uid == BEN);
    MUST(gmsfs_region_read(region, 0, &byte, 1, &reason) == 0 && byte == 'x');
    gmsfs_region_close(region);
    MUST(gmsfs_region_unregister(regions, SELF, GMSFS_REGION_ANY, "given") == 0);
    return 0;
}

TAP_TEST(root_registers_for_others)
{
    auto_regions *regions = NULL;
    struct gmsfs_region_request wish;
    gmsfs_region_t *region = NULL;
    auto_fd fd = -1;

    if (geteuid() != 0)
        return;
    regions = open_regions();
    fd = make_object(4096);
    require(pwrite(fd, "x", 1, 0) == 1);
    wish = wish_of("given", fd, 0, 1);
    wish.uid = BEN;
    check_int(gmsfs_region_register(regions, &wish, &reason), 0);
    check_int(gmsfs_region_open(regions, BEN, "given", &region, &reason), 0);
    gmsfs_region_close(region);
    check_int(as_user(BEN, use_mine), 0);
    wish.fd = -1; /* it opens nothing for others */
    check_int(gmsfs_region_register(regions, &wish, &reason), -EINVAL);
    check_int(reason, GMSFS_REGION_BAD_OBJECT);
}

/* A store that its group may read: root says which groups the other user has. */
TAP_TEST(an_allocation_is_registered_for_who_may_read_its_store)
{
    auto_regions *regions = NULL;
    struct gmsfs_region_request wish;
    uint32_t group = 65500;
    char key[512];

    if (geteuid() != 0)
        return;
    regions = open_regions();
    publish(1000, "t", 7);
    require(chown(store_path(), 0, group) == 0 && chmod(store_path(), 0750) == 0);
    wish = store_wish(key, sizeof key);
    wish.uid = BEN;
    check_int(gmsfs_region_register(regions, &wish, &reason), -EACCES);
    check_int(reason, GMSFS_REGION_NO_OBJECT);
    wish.groups = &group;
    wish.group_count = 1;
    check_int(gmsfs_region_register(regions, &wish, &reason), 0);
    check_int(gmsfs_region_unregister(regions, BEN, GMSFS_REGION_ANY, "w"), 0);
    require(chown(store_path(), 0, 0) == 0 && chmod(store_path(), 0755) == 0);
}
