/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/ends.h"

#include "base/log.h"
#include "base/thread.h"
#include "triton/opener_message.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define STACK_BYTES (256u << 10)

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};

/* What was ignored before (nohup) stays ignored: sigwait(3) would take it all the same. */
static void list_ends(sigset_t *ends)
{
    struct sigaction action;

    sigemptyset(ends);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(ends, numbers[i]);
    }
}

void ends_block(void)
{
    sigset_t ends;

    list_ends(&ends);
    sigprocmask(SIG_BLOCK, &ends, NULL);
}

static void *await_end(void *argument)
{
    struct opener_reply stop = {.id = OPENER_STOP};
    sigset_t ends;
    int number;

    list_ends(&ends);
    if (sigwait(&ends, &number) != 0)
        return NULL;
    opener_send((int)(intptr_t)argument, &stop, OPENER_REPLY_BYTES(0), NULL, 0);
    sleep(ENDS_GRACE_S);
    log_error("triton: the mount does not answer, and what was asked of it is left undone");
    _exit(EXIT_FAILURE);
}

int ends_start(int opener)
{
    return thread_start(NULL, STACK_BYTES, await_end, (void *)(intptr_t)opener);
}
