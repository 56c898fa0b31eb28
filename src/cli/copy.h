/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy - the parts of `gmsfs copy`
 *
 * For cmd_copy.c, which has the options, copy.c, which has the steps, and copy_bytes.c: hold the
 * source - open the targets - take their locks and memory - fill - entries - commit.
 */
#ifndef GMSFS_CLI_COPY_H
#define GMSFS_CLI_COPY_H

#include "cli/cli.h"
#include "cli/reader.h"
#include "cli/reader_manifest.h"
#include "cli/target.h"

struct copy_request {
    const char *from;
    const char *const *to;
    size_t count; /* of `to` */
    uint64_t timeout_ms;
    uint64_t threads; /* 0: choose the best number */
    bool quiet, realign, immutable;
};

struct copy {
    const struct copy_request *request;
    struct reader reader; /* of the store that is copied */
    struct reader_manifest made;
    struct image_layout layout;
    struct target *targets;
    struct target *all[GMSFS_GROUP_MAX]; /* each of `targets` */
    bool *by_host;                       /* of each: no copy engine of a GPU reached its GPU */
    bool is_committed;
    uint64_t copied_us; /* from the first byte read to the last in a store */
};

/* Makes the memory of all targets, and fills it. CLI_OK, CLI_FAILURE, or 128 + the signal that
 * came. */
int copy_bytes(struct copy *copy);

/* Returns the exit status, after printing the result or the error. */
int copy_store(const struct copy_request *request);

#endif
