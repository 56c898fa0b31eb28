/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that messages to a service manager arrive, and that a busy one is not waited for. */
#include "daemon/notify.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tap.h"

static int manager;

static void begin(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[64];

    snprintf(name, sizeof name, "@gmsfs-test-notify-%d", (int)getpid());
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    require(bind(manager, (struct sockaddr *)&address,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))) == 0);
    setenv("NOTIFY_SOCKET", name, 1);
}

static void check_hears(const char *wanted)
{
    char text[64] = "";

    check(recv(manager, text, sizeof text - 1, 0) > 0);
    check_str(text, wanted);
}

/* Sent by several processes, because each may have a limited number in flight; returns the number
 * of messages. */
static unsigned fill_manager(void)
{
    unsigned messages = 0, before;

    do {
        int fd = notify_connect();
        before = messages;
        while (notify_send_to(fd, "OTHER=1", -1) == 0)
            messages++;
        close(fd);
    } while (messages > before);
    return messages;
}

TAP_TEST(messages_that_a_busy_manager_refuses_are_sent_later)
{
    begin();
    unsigned others = fill_manager();

    check(others > 0);
    notify_send("READY=1");
    check(notify_next_ms() >= 0);
    notify_resend();
    check(notify_next_ms() >= 0);
    for (; others > 0; others--)
        check_hears("OTHER=1");
    notify_resend();
    check_int(notify_next_ms(), -1);
    check_hears("READY=1");
    notify_resend();
    notify_send("STOPPING=1");
    check_int(notify_next_ms(), -1);
    check_hears("STOPPING=1");
    close(manager);
}
