/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opener - the process beside the serving one: it has the rights, and checks them
 *
 * It finds the user at the other end of a connection, opens shared-memory objects as that user, has
 * CUDA memory opened by a process of that user (cuda_helpers.h), and asks the mount for the user's
 * regions. Of the bytes that a client sends it reads only names and keys, in messages of fixed
 * form. One thread; it blocks where the mount does, and the server answers requests that need no
 * mount meanwhile.
 */
#ifndef GMSFS_TRITON_OPENER_H
#define GMSFS_TRITON_OPENER_H

#include "triton/drains.h"
#include "triton/identity.h"
#include "triton/registry.h"

#include <stdbool.h>

struct opener_options {
    struct registry *registry;
    const struct identity_tokens *tokens; /* NULL: none */
    bool serves_all;   /* as root: serves every user with the user's own regions */
    uint64_t drain_ms; /* how long a region may be used after it was unregistered; DRAINS_FOREVER */
};

/* Serves until the other end of `socket` is closed. 0 or a negative errno */
int opener_serve(const struct opener_options *options, int socket);

#endif
