/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen - the addresses that clients come to
 *
 * For triton.c, before any right is given up.
 */
#ifndef GMSFS_TRITON_LISTEN_H
#define GMSFS_TRITON_LISTEN_H

#include "base/failure.h"

#include <stdbool.h>
#include <stddef.h>

#define LISTEN_TEXT_BYTES 160u

struct listen_socket {
    int fd;
    bool is_unix, is_loopback;
    char text[LISTEN_TEXT_BYTES]; /* as it came to be: with the port that was chosen for port 0 */
};

/*
 * "ADDRESS:PORT", "[ADDRESS]:PORT", or "unix:PATH" if that is allowed. A name may stand for several
 * addresses; all of them that this machine has are bound. is_shared: the unix socket is for every
 * user, not for the caller's alone. 0 or a negative errno; sockets that were made are the caller's
 * in both cases, *count of them.
 */
int listen_open(const char *address, bool allows_unix, bool is_shared,
                struct listen_socket *sockets, size_t room, size_t *count, struct failure *failure);
/* Closes it, and removes a unix socket's name. */
void listen_close(struct listen_socket *listening);

#endif
