/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals - blocks the signals that must not end the daemon's processes
 *
 * Only SIGTERM and SIGINT, sent to the keeper, end a mount. Any other signal, sent by mistake, must
 * not take the memory of every model with it.
 */
#ifndef GMSFS_DAEMON_SIGNALS_H
#define GMSFS_DAEMON_SIGNALS_H

/* Blocks every signal that would end this process, except SIGKILL and the signals that its own
 * faults raise. Stopping and continuing (SIGTSTP, SIGCONT) stay as they are. */
void signals_block_others(void);

#endif
