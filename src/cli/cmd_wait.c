/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs wait - until a store is in one of some states, or on its device; looks, never locks */
#include "base/file_io.h"
#include "cli/cli.h"
#include "cli/store_explain.h"
#include "cli/store_file.h"
#include "cli/store_open.h"
#include "cli/store_place.h"
#include "cli/store_state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "Usage: gmsfs wait [--timeout S] STORE STATE[,STATE...]\n"
    "       gmsfs wait [--timeout S] STORE resident\n"
    "\n"
    "Waits until the store is in one of the states" STORE_STATE_WORDS ".\n"
    "Takes no lock. It may miss a state that passes very quickly: name the states that can follow\n"
    "it too, as in 'gmsfs wait STORE COMMITTED,RO'.\n"
    "resident is no state of the lock: the committed bytes are on the device (gmsfs promote).\n";

static const char ending[] =
    "Exit status: 0 it is in one of the states, or resident; 1 failure, as when the store is\n"
    "removed; 2 usage; 3 not so in the time given.\n";

#define STATE_BYTES 64

/* A bit for each state of the list. */
static unsigned wait_parse(const char *list)
{
    SCOPED_FREE char *copy = cli_need(strdup(list));
    char *rest = copy, *word;
    unsigned states = 0;
    enum gmsfs_state state;

    while ((word = strsep(&rest, ","))) {
        if (store_state_parse(word, &state) != 0)
            cli_usage_error(
                "'%s' is no state: there are" STORE_STATE_WORDS "; and, alone, resident", word);
        states |= 1u << state;
    }
    return states;
}

/* Negative errno, or 0 with the state. */
static int wait_read(int fd, enum gmsfs_state *state)
{
    char text[STATE_BYTES];
    int error = store_read_again(fd, text, sizeof(text));

    if (error)
        return error;
    text[strcspn(text, "\n")] = '\0';
    return store_state_parse(text, state) ? -EPROTO : 0;
}

static int wait_for(const char *path, int fd, unsigned states, uint64_t timeout_ms)
{
    struct pollfd change = {.fd = fd, .events = POLLPRI};
    uint64_t start_ms = clock_now_ms(), left_ms;
    enum gmsfs_state state;
    int error;

    for (;;) {
        error = wait_read(fd, &state);

        /* ESTALE comes as ENOENT where the kernel sends an open again. */
        if (error == -ESTALE || error == -ENOENT)
            return cli_error("%s: the store was removed", path);
        if (error)
            return store_explain(path, "read the state", error);
        if (states & 1u << state)
            return CLI_OK;
        left_ms = cli_left_ms(start_ms, timeout_ms);
        if (left_ms == 0) {
            cli_error("%s: still %s", path, store_state_name(state));
            return CLI_TIMEOUT;
        }
        error = poll(&change, 1, left_ms > INT_MAX ? INT_MAX : (int)left_ms);
        if (error < 0 && errno != EINTR)
            return store_explain(path, "wait for the state", -errno);
    }
}

static int wait_store(const char *path, unsigned states, uint64_t timeout_ms)
{
    SCOPED_FREE char *file = store_file_path(path, "state");
    SCOPED_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC);

    return fd < 0 ? store_explain(path, "read the state", -errno)
                  : wait_for(path, fd, states, timeout_ms);
}

static const struct cli_option options[] = {
    {"--timeout", 0, "S", cli_take_timeout, 0,
     "give up after S seconds; 0: only look (default: wait)"},
    {0},
};

static int wait_run(int argc, char **argv)
{
    uint64_t timeout_ms = CLI_FOREVER;
    unsigned states = 0; /* for `resident` */

    cli_parse(argc, argv, &timeout_ms);
    const char *path = argv[optind];
    if (strcmp(argv[optind + 1], "resident") != 0)
        states = wait_parse(argv[optind + 1]);
    if (store_check(path) != CLI_OK)
        return CLI_FAILURE;
    return states ? wait_store(path, states, timeout_ms)
                  : store_place_wait(AT_FDCWD, path, "device", false, timeout_ms);
}

const struct cli_command cmd_wait = {
    .name = "wait",
    .summary = "wait until a store is in a state, or on its device",
    .usage = usage,
    .options = options,
    .ending = ending,
    .least = 2,
    .most = 2,
    .needs = "a STORE and a STATE are needed",
    .run = wait_run,
};
