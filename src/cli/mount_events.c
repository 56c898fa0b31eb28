/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mount_events.h"

#include "base/file_io.h"
#include "cli/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAST_BYTES  4096 /* of events before the start */
#define PIECE_BYTES 16384

/* Opens the file near its end. */
static int events_open(const char *mount)
{
    char *file = store_file_path(mount, "events");
    int fd = file ? open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    struct stat known;

    free(file);
    if (fd >= 0 && fstat(fd, &known) == 0 && known.st_size > LAST_BYTES)
        lseek(fd, known.st_size - LAST_BYTES, SEEK_SET);
    return fd;
}

static void events_child(const void *mount, int to)
{
    struct pollfd events = {.fd = events_open(mount), .events = POLLIN};
    char piece[PIECE_BYTES];
    ssize_t got;

    if (file_write(to, "\n", 1) != 0)
        return;
    while (events.fd >= 0) {
        while ((got = read(events.fd, piece, sizeof(piece))) > 0)
            if (file_write(to, piece, (size_t)got) != 0)
                return;
        if (got < 0 && errno != EAGAIN)
            return;
        if (poll(&events, 1, -1) < 0 || events.revents & (POLLERR | POLLNVAL))
            return;
    }
}

int mount_events_start(const char *mount, struct child **child, int *fd)
{
    int error = child_start(child, events_child, mount, fd);

    if (!error)
        fcntl(*fd, F_SETFL, O_NONBLOCK);
    return error;
}

void mount_events_end(struct child **child, int *fd)
{
    file_close_fd(fd);
    child_end(*child);
    *child = NULL;
}
