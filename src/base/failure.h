/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure - the reason of a failure in one line, on its way to the caller that prints it
 *
 * Pure. For the parts that report errors and print nothing: their functions return a negative
 * errno, and a `struct failure` names the object, the cause and the way out. It may have untrusted
 * names as they are; the caller that prints it makes them harmless (clean.h).
 */
#ifndef GMSFS_BASE_FAILURE_H
#define GMSFS_BASE_FAILURE_H

#define FAILURE_BYTES 4096u

struct failure {
    char text[FAILURE_BYTES];
};

/* Sets the text and returns `error`, so that a failure is one statement. */
int failure_set(struct failure *failure, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the text of strerror, with the way out if a limit of this process may be the cause, as of
 * its files and its memory. error: negative. */
const char *failure_reason(int error);

/* The same for work on several threads, of which one may not have started (-EAGAIN). */
const char *failure_thread_reason(int error);

/* Sets the text for a failed malloc; returns -ENOMEM. */
int failure_no_memory(struct failure *failure);

#endif
