/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complaints - so many lines of the log a minute, whatever storm of one kind there is
 *
 * A minute begins with its first complaint. How many were left out is told with the next minute's
 * first one, or at the end.
 *
 * Threads: all functions from any thread, but init and end.
 */
#ifndef GMSFS_VMM_COMPLAINTS_H
#define GMSFS_VMM_COMPLAINTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define COMPLAINTS_A_MINUTE 10u

struct complaints {
    const char *device, *what; /* "events", for the line about those left out */
    pthread_mutex_t mutex;
    uint64_t since_ms; /* the minute's beginning; 0: none yet */
    unsigned logged, left_out;
};

/* `device` begins each line of ours, as in "device cuda". Both texts live as long. */
void complaints_init(struct complaints *complaints, const char *device, const char *what);
/* May this one be logged? If so, what was left out before is told first. */
bool complaints_may_log(struct complaints *complaints);
void complaints_end(struct complaints *complaints);

#endif
