/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/refuse.h"

#include "base/scope.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <unistd.h>

/* The kernel hands out a request only to a buffer with room for the largest: a write of 1 MiB and
 * its headers. */
#define REQUEST_BYTES ((1u << 20) + 4096u)
/* Bounds a flood of requests, which could keep the keeper from aborting. */
#define MOST_REQUESTS 65536u

/* Answers one request with this error (negative). A request that was answered or cancelled
 * meanwhile is ENOENT to the kernel, which is harmless. */
static void refuse_one(int fuse_fd, uint64_t unique, int error)
{
    struct fuse_out_header answer = {.len = sizeof answer, .error = error, .unique = unique};

    while (write(fuse_fd, &answer, sizeof answer) < 0 && errno == EINTR)
        continue;
}

static bool expects_answer(const struct fuse_in_header *request)
{
    return request->opcode != FUSE_FORGET && request->opcode != FUSE_BATCH_FORGET &&
           request->opcode != FUSE_INTERRUPT;
}

/* Answers the requests that the worker did not read. */
static void refuse_unread(int fuse_fd)
{
    SCOPED_FREE uint8_t *buffer = malloc(REQUEST_BYTES);

    for (unsigned i = 0; buffer && i < MOST_REQUESTS; i++) {
        ssize_t bytes = read(fuse_fd, buffer, REQUEST_BYTES);
        const struct fuse_in_header *request = (const struct fuse_in_header *)(void *)buffer;
        if (bytes < 0 && (errno == EINTR || errno == ENOENT))
            continue; /* ENOENT: it was interrupted during the read */
        if (bytes < (ssize_t)sizeof *request)
            break;
        if (expects_answer(request))
            refuse_one(fuse_fd, request->unique, -ENOTCONN);
    }
}

void refuse_all(int fuse_fd, const struct fs_ledger *ledger)
{
    for (unsigned i = 0; ledger && i < ledger->slots; i++) {
        uint64_t unique = ledger->requests[i].unique;
        if (unique)
            refuse_one(fuse_fd, unique, -ENOTCONN);
    }
    refuse_unread(fuse_fd);
}
