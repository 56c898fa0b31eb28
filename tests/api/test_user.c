/* SPDX-License-Identifier: Apache-2.0 */
/* A reader of another user, without write permission on the store. Needs root to become one. */
#include <fcntl.h>
#include <grp.h>
#include <sys/wait.h>

#include "api.h"

#define OTHER_ID 65534

/* Runs in a child. Returns 0, or the step that failed. */
static int read_as_other(void)
{
    struct gmsfs_mapping *list = NULL;
    gmsfs_t *reader = NULL;
    char path[64];
    size_t count = 0;
    int fd = -1;

    if (setgroups(0, NULL) || setgid(OTHER_ID) || setuid(OTHER_ID))
        return 1;
    if (gmsfs_open(getenv("GMSFS_TEST_STORE"), &reader))
        return 2;
    if (gmsfs_connect(reader, GMSFS_MODE_RW, 0) != -EACCES)
        return 3;
    if (gmsfs_connect(reader, GMSFS_MODE_RW_OR_RO, WAIT_MS) ||
        gmsfs_granted_lock(reader) != GMSFS_MODE_RO)
        return 4;
    if (gmsfs_attach_all(reader, GMSFS_ACCESS_READ, &list, &count) || count != 1 ||
        *(unsigned char *)list[0].ptr != 5)
        return 5;
    if (gmsfs_descriptor_of(reader, list[0].ptr, &fd))
        return 6;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (open(path, O_RDWR | O_CLOEXEC) >= 0 || errno != EACCES || ftruncate(fd, 0) == 0)
        return 7;
    if (gmsfs_unmap_all_vas(reader, 0) || gmsfs_remap_all_vas(reader, WAIT_MS, 1))
        return 8;
    close(fd);
    free(list);
    gmsfs_close(reader);
    return 0;
}

TAP_TEST(other_user_reads_and_cannot_write)
{
    int status = -1;
    pid_t child;

    if (geteuid() != 0)
        return;
    publish(10, "t", 5);
    fflush(stdout);
    child = fork();
    if (child == 0)
        _exit(read_as_other());
    check(waitpid(child, &status, 0) == child);
    check_int(WEXITSTATUS(status), 0);
    check(WIFEXITED(status));
}
