/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that clients sent are closed by a thread that may wait; tests/31-bad-fds.bats shows
 * the cost, with files that never answer the close. */
#include "daemon/foreign.h"
#include "tap.h"

#include <poll.h>
#include <unistd.h>

/* Sends one end of a pipe to be closed; returns the other, which shows the close. */
static int send_away(uint32_t uid)
{
    int ends[2];

    require(pipe(ends) == 0 && foreign_may_take(NULL, uid));
    foreign_close(NULL, uid, ends[1]);
    return ends[0];
}

static bool is_closed(int other_end)
{
    struct pollfd end = {.fd = other_end, .events = POLLIN};

    return poll(&end, 1, 5000) == 1 && (end.revents & POLLHUP);
}

TAP_TEST(a_descriptor_that_is_sent_away_is_closed)
{
    auto_fd end = send_away(7);

    check(is_closed(end));
}

TAP_TEST(places_are_free_again_when_it_is_done)
{
    for (unsigned i = 0; i < 4 * FOREIGN_MAX_CLOSING; i++) {
        int end = send_away(i % 2);

        require(is_closed(end));
        close(end);
        for (unsigned tries = 0; tries < 1000 && !foreign_may_take(NULL, (i + 1) % 2); tries++)
            usleep(1000); /* the thread reports it after the close */
    }
    check(foreign_may_take(NULL, 0) && foreign_may_take(NULL, 1));
}
