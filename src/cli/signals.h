/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals - SIGINT, SIGQUIT, SIGTERM and SIGHUP of a command that has something to clear away
 *
 * For commands that load, save or drain. Until signals_defer(true) they end the process at once
 * with 128 + their number, for a wait cannot be left otherwise; afterwards they are only noted, and
 * the command looks with signals_get(). What was ignored before (nohup) stays ignored.
 */
#ifndef GMSFS_CLI_SIGNALS_H
#define GMSFS_CLI_SIGNALS_H

#include <stdbool.h>

/* What is said on stderr when they end the process: "stopped by a signal (...)", which one it was,
 * between these two constants. */
void signals_install(const char *before_signal, const char *behind_signal);
/* Called before they end the process at once, on its main thread; async-signal-safe. NULL:
 * nothing. */
void signals_set_undo(void (*undo)(void));
void signals_defer(bool deferred);
int signals_get(void); /* the signal noted, or 0 */

#endif
