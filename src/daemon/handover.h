/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handover - all parts of a mount, for a process that continues it
 *
 * Goes to a program that the keeper executes as its next worker (`gmsfs upgrade`), which inherits
 * the descriptors, and to another keeper (`gmsfs mount --takeover`), which receives them on a
 * socket. The rest is text, which names each descriptor by its number in the sending process:
 * entries "KEY NUMBER VALUE", each ended by NUL; NUMBER is "-" if there is no descriptor.
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

#define HANDOVER_VERSION       1u
#define HANDOVER_MAX_ARGUMENTS 64u

enum handover_fd { /* single descriptors; -1 if none */
    HANDOVER_FUSE,
    HANDOVER_LISTENER,
    HANDOVER_AUDIT,
    HANDOVER_LEDGER,
    HANDOVER_GMS_MEMORY,
    HANDOVER_CONTROL, /* the channels of a worker */
    HANDOVER_KEEP,
    HANDOVER_BACKINGS, /* the table of files registered with the kernel (backings.h) */
    HANDOVER_TRACE,
    HANDOVER_FDS,
};

struct handover {
    char abi[ABI_TEXT_BYTES]; /* of the sender */
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
/* Free `text` with handover_text_free. -ENOMEM */
int handover_encode(const struct handover *handover, struct handover_text *text);
void handover_text_free(struct handover_text *text);
/* `fds`: the received descriptors, in the order of the text; NULL if they have kept their numbers.
 * They become close-on-exec and belong to *handover; on failure they are closed. -EPROTO,
 * -EPROTONOSUPPORT, -ENOMEM, with the reason in `failure`. */
int handover_decode(const char *bytes, size_t size, const int *fds, size_t count,
                    struct handover *handover, struct failure *failure);
/* Counts the descriptors that the text names. */
size_t handover_count_fds(const char *bytes, size_t size);
/* Closes all its descriptors. */
void handover_close(struct handover *handover);

#endif
