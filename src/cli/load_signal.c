/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/load.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t deferred_now;
static volatile sig_atomic_t noted;

static void load_on_signal(int number)
{
    static const char text[] = "\ngmsfs load: stopped by a signal; nothing was committed\n";
    ssize_t ignored;

    noted = number;
    if (deferred_now)
        return;
    ignored = write(STDERR_FILENO, text, sizeof(text) - 1);
    (void)ignored;
    _exit(CLI_SIGNALED + number);
}

void load_signals_install(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = load_on_signal}, before;

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        /* nohup(1) and the like stay in force. */
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}

void load_signals_defer(bool deferred)
{
    deferred_now = deferred;
}

int load_signals_get(void)
{
    return noted;
}
