/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the client's end of `.fds`, against a socket of the test's own. */
#include "ask/ask.h"

#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SENT 4u
#define NONE -7

/* Sends one byte and SENT descriptors. */
static void send_descriptors(int fd)
{
    char control[CMSG_SPACE(SENT * sizeof(int))] = {0};
    int fds[SENT];
    char byte = 'x';
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);

    for (size_t i = 0; i < SENT; i++)
        fds[i] = fd;
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(rights), fds, sizeof fds);
    check_int(sendmsg(fd, &message, 0), 1);
}

static int find_next_number(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    close(fd);
    return fd;
}

static void check_received(size_t room)
{
    int pair[2], fds[SENT + 2], next;
    size_t count = room;
    char byte;

    for (size_t i = 0; i < SENT + 2; i++)
        fds[i] = NONE;
    check_int(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    next = find_next_number();
    send_descriptors(pair[0]);
    check_int(ask_receive(pair[1], &byte, 1, fds, &count), room < SENT ? -EMFILE : 1);
    check_int(count, room < SENT ? room : SENT);
    for (size_t i = 0; i < SENT + 2; i++) {
        check(i < count ? fds[i] >= 0 : fds[i] == NONE);
        if (fds[i] >= 0)
            close(fds[i]);
    }
    check_int(find_next_number(), next);
    close(pair[0]);
    close(pair[1]);
}

TAP_TEST(no_more_descriptors_come_than_there_is_room_for)
{
    for (size_t room = 0; room <= SENT + 1; room++)
        check_received(room);
}

TAP_TEST(without_a_message_there_is_nothing_and_behind_the_last_the_end)
{
    size_t count = 1;
    int pair[2], fd;
    char byte;

    check_int(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    check_int(ask_receive(pair[1], &byte, 1, &fd, &count), -EAGAIN);
    check_int(count, 0);
    close(pair[0]);
    count = 1;
    check_int(ask_receive(pair[1], &byte, 1, &fd, &count), -ECONNRESET);
    check_int(count, 0);
    close(pair[1]);
}

/* ---- closing ------------------------------------------------------------------------------- */

/* Opens `count` descriptors with numbers in a row. */
static void open_row(int *fds, size_t count, int first)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    for (size_t i = 0; i < count; i++)
        check_int(fds[i] = fcntl(null, F_DUPFD_CLOEXEC, first), first + (int)i);
    close(null);
}

#define FIRST 200
#define COUNT 8

TAP_TEST(the_named_descriptors_are_closed_and_no_other)
{
    static const int given[] = {FIRST, FIRST + 1, -1, FIRST + 3, FIRST + 6, FIRST + 5, NONE};
    int fds[COUNT];

    open_row(fds, COUNT, FIRST);
    ask_close(given, 0);
    check(fcntl(FIRST, F_GETFD) >= 0);
    ask_close(given, sizeof given / sizeof given[0]);
    for (int fd = FIRST; fd < FIRST + COUNT; fd++)
        check_int(fcntl(fd, F_GETFD) >= 0, fd == FIRST + 2 || fd == FIRST + 4 || fd == FIRST + 7);
    for (int fd = FIRST; fd < FIRST + COUNT; fd++)
        close(fd);
}
