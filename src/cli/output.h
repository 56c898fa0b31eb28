/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output - what a command prints, and whether it arrived
 *
 * For main.c; and for the commands that change something, which say here when that is done. A
 * reader that has gone (SIGPIPE) and a file that may not grow (SIGXFSZ) are errors like a full
 * disk: no command ends by them in the midst of its work. What could not be said is decided once,
 * at the end. Not for several threads.
 */
#ifndef GMSFS_CLI_OUTPUT_H
#define GMSFS_CLI_OUTPUT_H

/* Once, before anything is printed: standard output is from now on a stream that remembers why it
 * could not be written. */
void output_begin(void);

/* What the command is there to change is changed for good: committed, saved. From here on a report
 * that does not arrive is no failure of the command, but CLI_UNREPORTED. */
void output_set_done(void);

/* Writes what is left. Returns the exit status: `status` unless that is CLI_OK and the answer, or
 * the report, did not arrive. That is then told on standard error. */
int output_end(int status);

/* In a child process, before it becomes another program: signals are as they were found. */
void output_restore_signals(void);

#endif
