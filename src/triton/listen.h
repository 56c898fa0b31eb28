/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen - the addresses on which clients connect
 *
 * For triton.c, before the process drops its rights.
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
    char text[LISTEN_TEXT_BYTES]; /* the bound address, with the port chosen for port 0 */
};

/*
 * Binds "ADDRESS:PORT", "[ADDRESS]:PORT", or "unix:PATH" if that is allowed. A name may stand for
 * several addresses; all of them that this machine has are bound. is_shared: every user may connect
 * to the unix socket, not the caller alone. 0 or a negative errno; in both cases the caller owns
 * the *count sockets made so far.
 */
int listen_open(const char *address, bool allows_unix, bool is_shared,
                struct listen_socket *sockets, size_t room, size_t *count, struct failure *failure);
/* Closes the socket, and removes the name of a unix socket. */
void listen_close(struct listen_socket *listening);

#endif
