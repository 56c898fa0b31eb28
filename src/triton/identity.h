/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity - which user a client is
 *
 * For the opener, which goes by it, and for the server, which counts connections by it. By what the
 * kernel says of a connection (a unix socket's peer; the socket at the other end of a loopback
 * connection, in this network namespace), or by a token from a file that whoever runs the front end
 * has written. Never by what else a client sends. Single-threaded.
 */
#ifndef GMSFS_TRITON_IDENTITY_H
#define GMSFS_TRITON_IDENTITY_H

#include "base/failure.h"

#include <stdint.h>
#include <sys/types.h>

#define IDENTITY_NOBODY          UINT32_MAX
#define IDENTITY_MIN_TOKEN_BYTES 16u

/* IDENTITY_NOBODY where the kernel does not tell. */
uint32_t identity_of_socket(int fd);

struct identity_tokens; /* lines `TOKEN UID` */

/* The file must be the caller's own, and nobody else's to read. 0 or a negative errno */
int identity_read_tokens(const char *path, struct identity_tokens **tokens,
                         struct failure *failure);
void identity_free_tokens(struct identity_tokens *tokens); /* NULL is fine */
/* Takes the same time whichever it is. IDENTITY_NOBODY: it is none */
uint32_t identity_of_token(const struct identity_tokens *tokens, const char *token);

#endif
