/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/signals.h"

#include "cli/cli.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t deferred_now;
static volatile sig_atomic_t noted;
static const char *last_words;
static void (*undo_all)(void);

static void signals_on(int number)
{
    ssize_t ignored;

    noted = number;
    if (deferred_now)
        return;
    ignored = write(STDERR_FILENO, last_words, strlen(last_words));
    (void)ignored;
    if (undo_all)
        undo_all();
    _exit(CLI_SIGNALED + number);
}

void signals_install(const char *text)
{
    static const int numbers[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = signals_on}, before;

    last_words = text;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        /* nohup(1) and the like stay in force. */
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}

void signals_set_undo(void (*undo)(void))
{
    undo_all = undo;
}

void signals_defer(bool deferred)
{
    deferred_now = deferred;
}

int signals_get(void)
{
    return noted;
}
