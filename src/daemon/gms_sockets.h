/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gms_sockets - the sockets where GMS clients look for the mount's stores
 *
 * One for each domain and protocol, at the names where the clients look. For the keeper: it binds
 * them before it mounts, so that an unusable directory fails the mount, has the worker accept, and
 * at the end removes the sockets that are still its own. Never accepts, never reads.
 */
#ifndef GMSFS_DAEMON_GMS_SOCKETS_H
#define GMSFS_DAEMON_GMS_SOCKETS_H

#include "rpc/rpc.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

#define GMS_SOCKETS_MAX        4u
#define GMS_SOCKETS_PATH_BYTES sizeof(((struct sockaddr_un *)NULL)->sun_path)

struct gms_socket {
    enum rpc_domain domain;
    enum message_protocol protocol;
    int fd; /* listening, non-blocking */
    char path[GMS_SOCKETS_PATH_BYTES];
    dev_t device; /* of the bound file, to check that `path` is still the same */
    ino_t inode;
};

struct gms_sockets {
    size_t count;
    struct gms_socket items[GMS_SOCKETS_MAX];
};

struct gms_sockets_options {
    const char *dir; /* absolute */
    uint8_t uuid[16];
    uint32_t ordinal;
    mode_t mode;
    const char *mountpoint; /* for messages */
};

/* Opens all of them or none. A negative errno on failure; the log has the path, the cause and the
 * way out. The process must have one thread, because the umask changes for a moment. */
int gms_sockets_open(const struct gms_sockets_options *options, struct gms_sockets *sockets);
/* Removes the files that are still these sockets, and closes. */
void gms_sockets_close(struct gms_sockets *sockets);
/* Closes, in a process that has inherited them. */
void gms_sockets_forget(struct gms_sockets *sockets);

#endif
