/* SPDX-License-Identifier: Apache-2.0 */
/*
 * busy - tells helpers when the loop serves requests, so that they contend less for malloc's lock
 *
 * The lock is not fair: a helper that frees thousands of blocks in a row has taken it again before
 * the waiting loop is awake, which delays a request of 0.1 ms to 2 ms. Any thread; a process has
 * one loop.
 */
#ifndef GMSFS_BASE_BUSY_H
#define GMSFS_BASE_BUSY_H

/* Marks the begin and the end of a turn of the loop. */
void busy_begin(void);
void busy_end(void);

/* Lets the calling thread wait for the loop during the next `ms` milliseconds. 0, as at first: it
 * does not wait. */
void busy_give_way_for(unsigned ms);
/* Waits until the loop is not busy, some 2 ms at most. */
void busy_let_pass(void);

#endif
