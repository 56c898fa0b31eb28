/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity - finds the user of a client
 *
 * For the opener, which decides rights by it, and for the server, which counts connections by it.
 * The user comes from the kernel (a unix socket's peer; the socket at the other end of a loopback
 * connection, in this network namespace), or from a token in a file that the front end's own user
 * wrote. Never from anything else that a client sends. Single-threaded.
 */
#ifndef GMSFS_TRITON_IDENTITY_H
#define GMSFS_TRITON_IDENTITY_H

#include "base/failure.h"

#include <stdint.h>

#define IDENTITY_NOBODY          UINT32_MAX
#define IDENTITY_MIN_TOKEN_BYTES 16u

/* Returns IDENTITY_NOBODY if the kernel does not know the user. */
uint32_t identity_of_socket(int fd);

struct identity_tokens; /* lines `TOKEN UID` */

/* Reads a file that must belong to the caller and be readable by the caller alone. 0 or a negative
 * errno */
int identity_read_tokens(const char *path, struct identity_tokens **tokens,
                         struct failure *failure);
void identity_free_tokens(struct identity_tokens *tokens); /* NULL is fine */
/* Returns the token's user, in the same time for every token; IDENTITY_NOBODY if it is unknown. */
uint32_t identity_of_token(const struct identity_tokens *tokens, const char *token);

#endif
