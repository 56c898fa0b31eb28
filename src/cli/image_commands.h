/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_commands - the parts of `gmsfs image`
 *
 * For cmd_image.c and the image_*.c of its verbs. The steps of a save: lock and map - plan - an
 * unfinished manifest - data, noted piece by piece - the finished manifest. The steps of a load:
 * manifest and layout - check - lock - (if no committed layout could be rolled back to: check all
 * bytes) - clear and allocate - copy and check - entries - commit. Each step prints its error and
 * returns an exit status.
 */
#ifndef GMSFS_CLI_IMAGE_COMMANDS_H
#define GMSFS_CLI_IMAGE_COMMANDS_H

#include "cli/cli.h"
#include "cli/progress.h"
#include "image/image.h"
#include "mover/staging.h"

#include <stdbool.h>
#include <stdint.h>

/* The options of the command line. */
struct image_request {
    const char *store;
    const char *path; /* DIR */
    uint64_t timeout_ms;
    uint64_t threads;    /* 0: choose the best number */
    uint64_t file_bytes; /* 0: not given */
    enum direct_use direct;
    bool quiet;
    bool force, resume; /* save */
    const char *id;     /* load: of the contents that are wanted; NULL: any */
    bool realign;       /* load, as the next */
    bool immutable;     /* commits a layout that never changes again */
    bool as_json, entries, check;
    uint64_t first; /* ls: first rank or entry */
    uint64_t most;  /* ls: most ranks or entries */
};

/*
 * image_progress.c: runs image_check() with its progress on standard error, until a signal is
 * noted; verb: "checking". CLI_OK, CLI_FAILURE, or 128 + the signal.
 */
int image_check_shown(const struct image_check *check, const char *verb, bool quiet,
                      uint64_t *passed_ms);

int image_save(const struct image_request *request);
int image_load(const struct image_request *request);
int image_ls(const struct image_request *request);

#endif
