/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/signals.h"

#include <signal.h>
#include <stddef.h>

void signals_block_others(void)
{
    static const int kept[] = {SIGSEGV, SIGBUS,  SIGILL,  SIGFPE,  SIGTRAP, SIGSYS,
                               SIGABRT, SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGCHLD};
    sigset_t blocked;

    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        sigdelset(&blocked, kept[i]);
    sigprocmask(SIG_SETMASK, &blocked, NULL);
}
