/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure - why something could not be done, in one line, on its way to whoever prints it
 *
 * Pure. For the parts that say what is wrong and print nothing: their functions return a negative
 * errno, and where a `struct failure` is filled in, it names the object, the cause and the way out.
 * Names of strangers stand in it as they are; who prints it makes them harmless.
 */
#ifndef GMSFS_BASE_FAILURE_H
#define GMSFS_BASE_FAILURE_H

#define FAILURE_BYTES 4096u

struct failure {
    char text[FAILURE_BYTES];
};

/* Returns `error`, so that a failure is one statement. */
int failure_set(struct failure *failure, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What strerror says, and the way out where a limit of this process is the cause. error: negative.
 */
const char *failure_reason(int error);

/* The same of work that is shared among threads, of which one may not have started (-EAGAIN). */
const char *failure_thread_reason(int error);

/* malloc has failed; returns -ENOMEM. */
int failure_no_memory(struct failure *failure);

#endif
