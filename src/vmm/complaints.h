/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complaints - a bound on the lines of the log a minute, for messages of one kind
 *
 * A minute begins with its first complaint. The number of complaints left out is logged with the
 * next minute's first one, or at the end.
 *
 * Threads: all functions from any thread, except init and end.
 */
#ifndef GMSFS_VMM_COMPLAINTS_H
#define GMSFS_VMM_COMPLAINTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define COMPLAINTS_A_MINUTE 10u

struct complaints {
    const char *device, *kind; /* kind: in messages, as "events" */
    pthread_mutex_t mutex;
    uint64_t since_ms; /* the minute's beginning; 0: none yet */
    unsigned logged, left_out;
};

/* `device` begins each line, as in "device cuda". Both texts live as long. */
void complaints_init(struct complaints *complaints, const char *device, const char *kind);
/* Returns true if this complaint may be logged; logs the number of those left out before. */
bool complaints_may_log(struct complaints *complaints);
void complaints_end(struct complaints *complaints);

#endif
