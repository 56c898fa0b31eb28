/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals - SIGINT, SIGQUIT, SIGTERM and SIGHUP of a command that has something to undo
 *
 * For commands that load, save or drain. Until signals_defer(true) they end the process at once
 * with 128 + their number, because a wait cannot be left otherwise; afterwards they are only noted,
 * and the command checks signals_get(). Signals that were ignored before (nohup) stay ignored.
 */
#ifndef GMSFS_CLI_SIGNALS_H
#define GMSFS_CLI_SIGNALS_H

#include <stdbool.h>

/* Installs the handlers. When a signal ends the process, stderr gets "stopped by a signal (NAME)"
 * between these two constants. */
void signals_install(const char *before_signal, const char *behind_signal);
/* Sets a function to call before a signal or want of memory ends the process; an
 * async-signal-safe function. NULL: none. */
void signals_set_undo(void (*undo)(void));
void signals_undo(void); /* calls the function */
void signals_defer(bool deferred);
int signals_get(void); /* returns the noted signal, or 0 */

#endif
