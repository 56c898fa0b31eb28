/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals - which of them mean something to the daemon's processes
 *
 * A mount is ended by SIGTERM and SIGINT alone, sent to the keeper. Anything else that somebody
 * may send by mistake must not take the memory of every model with it.
 */
#ifndef GMSFS_DAEMON_SIGNALS_H
#define GMSFS_DAEMON_SIGNALS_H

/* Blocks all that would end this process, but for what its own faults raise and SIGKILL; stopping
 * and going on stay as they are. */
void signals_block_others(void);

#endif
