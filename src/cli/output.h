/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output - a command's output, and whether it arrived
 *
 * For main.c; and for the commands that change something, which call output_set_done(). A closed
 * pipe (SIGPIPE) and a file at its size limit (SIGXFSZ) are errors like a full disk: they do not
 * end a command in the middle of its work. The exit status of lost output is decided once, at the
 * end. For one thread.
 */
#ifndef GMSFS_CLI_OUTPUT_H
#define GMSFS_CLI_OUTPUT_H

/* Replaces standard output by a stream that remembers its first write error. Call once, before any
 * output. */
void output_begin(void);

/* Notes that the command's change is permanent: committed, saved. From here on lost output is
 * CLI_UNREPORTED in place of CLI_FAILURE. */
void output_set_done(void);

/* Writes buffered output and returns the exit status: `status`, unless that is CLI_OK and output
 * was lost; then prints the cause on standard error. */
int output_end(int status);

/* Returns the exit status of a command that cannot go on, and so reports no more. */
int output_get_failure(void);

/* Restores the signals as this process found them; in a child, before exec. */
void output_restore_signals(void);

#endif
