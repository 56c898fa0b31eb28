/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opener - the process beside the one that serves clients: it has the rights, and decides by them
 *
 * It finds out who is at the other end of a connection, opens shared-memory objects as that user,
 * has CUDA memory opened by a process of that user's (cuda_helpers.h), and asks the mount for its
 * regions. It reads no byte that a client has sent but names and keys in
 * messages of fixed form. One thread; it blocks where the mount does, and the server does not wait
 * for it to answer what needs no mount.
 */
#ifndef GMSFS_TRITON_OPENER_H
#define GMSFS_TRITON_OPENER_H

#include "triton/drains.h"
#include "triton/identity.h"
#include "triton/registry.h"

#include <stdbool.h>

struct opener_options {
    struct registry *registry;
    const struct identity_tokens *tokens; /* NULL: there are none */
    bool serves_all;                      /* root's: for every user, each with his own */
    uint64_t drain_ms; /* how long one that is unregistered may be used; DRAINS_FOREVER */
};

/* Serves until the other end of `socket` is closed. 0 or a negative errno */
int opener_serve(const struct opener_options *options, int socket);

#endif
