/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job - a piece of work for a helper thread, and what is done with it afterwards
 *
 * Made by whoever has the work, carried by the daemon's helpers and its loop. Embedded in what the
 * work is about.
 */
#ifndef GMSFS_BASE_JOB_H
#define GMSFS_BASE_JOB_H

struct job {
    void (*run)(struct job *job);  /* on a helper thread */
    void (*done)(struct job *job); /* then on the loop's thread */
    struct job *next;              /* of whoever carries it */
    unsigned long long request;    /* likewise: for which it is done; 0: none in particular */
};

#endif
