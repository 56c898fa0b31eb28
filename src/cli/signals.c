/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/signals.h"

#include "cli/cli.h"

#include <signal.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static volatile sig_atomic_t deferred_now;
static volatile sig_atomic_t noted;
static const char *words_before, *words_behind; /* of the message */
static void (*undo_all)(void);

void signals_undo(void)
{
    if (undo_all)
        undo_all();
}

static void signals_on(int number)
{
    const char *words[] = {words_before, "stopped by a signal (", sigdescr_np(number), ")",
                           words_behind};
    struct iovec pieces[sizeof(words) / sizeof(words[0])];

    noted = number;
    if (deferred_now)
        return;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        pieces[i] = (struct iovec){(char *)words[i], strlen(words[i])};
    ssize_t ignored = writev(STDERR_FILENO, pieces, sizeof(words) / sizeof(words[0]));
    (void)ignored;
    signals_undo();
    _exit(CLI_SIGNALED + number);
}

void signals_install(const char *before_signal, const char *behind_signal)
{
    static const int numbers[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = signals_on}, before;

    words_before = before_signal;
    words_behind = behind_signal;
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
