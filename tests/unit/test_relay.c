/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of the trace never hold up the keeper, however busy syslog is. */
#include "daemon/relay.h"
#include "tap.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINES 5000u

TAP_TEST(lines_of_the_trace_are_dropped_where_syslog_takes_none)
{
    char line[2048];
    unsigned taken = 0;
    int ends[2], saved = dup(STDERR_FILENO);
    struct relay relay;

    check_int(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    require(relay_open(&relay) == 0);
    relay_leave_terminal(&relay);
    relay.trace_fd = ends[0];
    alarm(20); /* ends the test with a signal if the relay waits */
    for (unsigned i = 0; i < LINES; i++) {
        dprintf(STDERR_FILENO, "<7>[r%u] a step\n", i);
        relay_drain(&relay);
    }
    alarm(0);
    while (recv(ends[1], line, sizeof line, MSG_DONTWAIT) > 0)
        taken++;
    check(taken > 0);
    check_int((int)(taken + relay.lost), (int)LINES);

    dprintf(STDERR_FILENO, "<7>[r1] later\n");
    relay_drain(&relay);
    check_int((int)relay.lost, 0);
    ssize_t bytes = recv(ends[1], line, sizeof line - 1, MSG_DONTWAIT);
    require(bytes > 0);
    line[bytes] = '\0';
    check(strncmp(line, "<31>", 4) == 0 && strstr(line, " gmsfs["));
    check(strstr(line, "lines of the trace were left out"));
    bytes = recv(ends[1], line, sizeof line - 1, MSG_DONTWAIT);
    require(bytes > 0);
    line[bytes] = '\0';
    check(strstr(line, "]: [r1] later"));
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    relay_close(&relay);
}
