/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handover - all that a mount consists of, on its way to a process that goes on with it
 *
 * To a program that the keeper executes as its next worker (`gmsfs upgrade`), which inherits the
 * descriptors, and to another keeper (`gmsfs mount --takeover`), which receives them by a socket.
 * The rest is text, which names each descriptor by its number in the process that hands over:
 * entries "KEY NUMBER VALUE", each ended by a zero; NUMBER is "-" where there is none.
 */
#ifndef GMSFS_DAEMON_HANDOVER_H
#define GMSFS_DAEMON_HANDOVER_H

#include "base/failure.h"
#include "daemon/abi.h"
#include "daemon/gms_sockets.h"
#include "daemon/holdings.h"
#include "daemon/mountinfo.h"
#include "daemon/options.h"
#include "journal/journal.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define HANDOVER_VERSION       1u
#define HANDOVER_MAX_ARGUMENTS 64u

enum handover_fd { /* those of which there is one, or none: -1 */
    HANDOVER_FUSE,
    HANDOVER_LISTENER,
    HANDOVER_AUDIT,
    HANDOVER_LEDGER,
    HANDOVER_GMS_MEMORY,
    HANDOVER_CONTROL, /* to a worker: its channels */
    HANDOVER_KEEP,
    HANDOVER_FDS,
};

struct handover {
    char abi[ABI_TEXT_BYTES]; /* of who wrote what is handed over */
    char mountpoint[PATH_MAX];
    char gms_dir[OPTIONS_PATH_BYTES];
    bool allow_other, is_detached;
    int argc; /* of `gmsfs mount`, as it was called */
    char *argv[HANDOVER_MAX_ARGUMENTS + 1];
    int fds[HANDOVER_FDS];
    struct mountinfo mount;
    struct gms_sockets gms;
    struct journal_files journal;
    struct holdings holdings;
};

struct handover_text {
    char *bytes;
    size_t size;
    int *fds; /* in the order of the text */
    size_t count;
};

void handover_init(struct handover *handover); /* empty */
/* -ENOMEM. `text` is freed by handover_text_free. */
int handover_encode(const struct handover *handover, struct handover_text *text);
void handover_text_free(struct handover_text *text);
/* `fds`: those that have come, in the order of the text; NULL: they have kept their numbers. They
 * are close-on-exec then, and those of *handover, on failure closed. -EPROTO, -EPROTONOSUPPORT,
 * -ENOMEM: as `failure` says */
int handover_decode(const char *bytes, size_t size, const int *fds, size_t count,
                    struct handover *handover, struct failure *failure);
/* How many descriptors belong to the text. */
size_t handover_count_fds(const char *bytes, size_t size);
/* Closes what it has. */
void handover_close(struct handover *handover);

#endif
