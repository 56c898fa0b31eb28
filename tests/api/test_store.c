/* SPDX-License-Identifier: Apache-2.0 */
/* A handle follows its store over renames, to its removal, and by reopen to another. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"

static char here[4096], there[4096];

/* Makes two stores besides the test's own. */
static void make_stores(void)
{
    snprintf(here, sizeof here, "%s.api-a", store_path());
    snprintf(there, sizeof there, "%s.api-b", store_path());
    rmdir(here);
    rmdir(there);
    require(mkdir(here, 0755) == 0);
    require(mkdir(there, 0755) == 0);
}

static void remove_stores(void)
{
    check_int(rmdir(here), 0);
    check_int(rmdir(there), 0);
}

static void fill_store(const char *path, int fill)
{
    gmsfs_t *store = NULL;
    void *ptr = NULL;

    require(gmsfs_open(path, &store) == 0);
    check_int(gmsfs_connect(store, GMSFS_MODE_RW, WAIT_MS), 0);
    if (check_int(gmsfs_create_mapping(store, 64, "t", NULL, &ptr), 0))
        memset(ptr, fill, 64);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    gmsfs_close(store);
}

TAP_TEST(handle_follows_the_store_and_reopen_the_name)
{
    struct gmsfs_mapping *list = NULL;
    gmsfs_t *reader = NULL;
    char moved[4200];
    size_t count = 0;

    make_stores();
    fill_store(here, 1);
    fill_store(there, 2);
    require(gmsfs_open(here, &reader) == 0);
    check_int(gmsfs_connect(reader, GMSFS_MODE_RO, WAIT_MS), 0);
    snprintf(moved, sizeof moved, "%s.old", here);
    check_int(rename(here, moved), 0);
    check_int(rename(there, here), 0);
    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, &list, &count), 0);
    require(count == 1);
    check_int(*(unsigned char *)list[0].ptr, 1);
    check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    check_int(gmsfs_reopen(reader), 0);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 1), -ESTALE);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 0), 0);
    check_int(*(unsigned char *)list[0].ptr, 2);
    free(list);
    gmsfs_close(reader);
    check_int(rename(here, there), 0);
    check_int(rename(moved, here), 0);
    remove_stores();
}

/* A mount may refuse to remove a store that a program has open; if it removes it, that program gets
 * an error, and never sees the next store of that name. */
TAP_TEST(open_store_cannot_be_removed_or_is_stale)
{
    struct gmsfs_handle_info *list = NULL;
    struct gmsfs_info info;
    gmsfs_t *handle = NULL;
    size_t count = 0;

    make_stores();
    require(gmsfs_open(here, &handle) == 0);
    if (rmdir(here) < 0) {
        check_int(errno, EBUSY);
        check_int(gmsfs_connect(handle, GMSFS_MODE_RW, 0), 0);
    } else {
        check_int(gmsfs_connect(handle, GMSFS_MODE_RW, 0), -ESTALE);
        check_int(gmsfs_get_info(handle, &info), -ESTALE);
        check_int(gmsfs_list_handles(handle, NULL, &list, &count), -ESTALE);
        check_int(gmsfs_reopen(handle), -ENOENT);
        check_int(mkdir(here, 0755), 0);
        check_int(gmsfs_connect(handle, GMSFS_MODE_RW, 0), -ESTALE);
        check_int(gmsfs_reopen(handle), 0);
        check_int(gmsfs_connect(handle, GMSFS_MODE_RW, 0), 0);
    }
    gmsfs_close(handle);
    remove_stores();
}

/* sun_path holds 107 bytes; a store's path may be longer. */
TAP_TEST(long_paths_reach_the_socket)
{
    char link[600], path[700];
    gmsfs_t *store = NULL;
    void *ptr = NULL;

    snprintf(link, sizeof link, "/tmp/%0200d", (int)getpid());
    make_stores();
    *strrchr(here, '/') = 0;
    check_int(symlink(here, link), 0);
    here[strlen(here)] = '/';
    snprintf(path, sizeof path, "%s/%s", link, strrchr(here, '/') + 1);
    require(gmsfs_open(path, &store) == 0);
    check_int(gmsfs_connect(store, GMSFS_MODE_RW, WAIT_MS), 0);
    check_int(gmsfs_create_mapping(store, 10, NULL, NULL, &ptr), 0);
    gmsfs_close(store);
    unlink(link);
    remove_stores();
}

#define STREAMS 3

/* Counts the used numbers of standard streams. */
static int count_streams(void)
{
    int count = 0;

    for (int fd = 0; fd < STREAMS; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* A program without standard streams would print into a file that has their number. */
TAP_TEST(no_file_of_a_store_is_in_the_place_of_a_standard_stream)
{
    int kept[STREAMS], opened = -1, connected = -1, exported = -1, reopened = -1, fd = -1;
    gmsfs_t *store = NULL;
    uint64_t slot = 0;

    make_stores();
    for (int i = 0; i < STREAMS; i++)
        require((kept[i] = fcntl(i, F_DUPFD_CLOEXEC, STREAMS)) >= 0);
    for (int i = 0; i < STREAMS; i++)
        close(i);
    if (gmsfs_open(here, &store) == 0)
        opened = count_streams();
    if (gmsfs_connect(store, GMSFS_MODE_RW, WAIT_MS) == 0)
        connected = count_streams();
    if (gmsfs_allocate_handle(store, 64, "t", NULL, &slot) == 0 &&
        gmsfs_export_handle(store, slot, GMSFS_ACCESS_WRITE, &fd) == 0)
        exported = count_streams();
    if (gmsfs_commit(store, 0, NULL) == 0 && gmsfs_reopen(store) == 0)
        reopened = count_streams();
    for (int i = 0; i < STREAMS; i++) {
        dup2(kept[i], i);
        close(kept[i]);
    }
    check_int(opened, 0);
    check_int(connected, 0);
    check_int(exported, 0);
    check_int(reopened, 0);
    check(fd >= STREAMS);
    close(fd);
    gmsfs_close(store);
    remove_stores();
}
