/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ends - the signals that end the front end
 *
 * For triton.c. A thread waits for them: the opener may itself be waiting for a mount that does not
 * answer, and is then left behind after a while.
 */
#ifndef GMSFS_TRITON_ENDS_H
#define GMSFS_TRITON_ENDS_H

#define ENDS_GRACE_S 10u /* more than the server takes for what has begun */

/* Before any process or thread is started: none of them is ended by these signals. */
void ends_block(void);
/* From here on the first of them tells the server at the other end of `opener` to end. If this
 * process has not ended by then as well, it does. 0 or a negative errno */
int ends_start(int opener);

#endif
