/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job - work for a helper thread, and its completion on the loop's thread
 *
 * The daemon's helpers and its loop carry jobs. Embedded in the object of the work.
 */
#ifndef GMSFS_BASE_JOB_H
#define GMSFS_BASE_JOB_H

struct job {
    void (*run)(struct job *job);  /* on a helper thread */
    void (*done)(struct job *job); /* then on the loop's thread */
    struct job *next;              /* list link of its carrier */
    unsigned long long request;    /* the request that it works for, for its carrier; 0 if none */
};

#endif
