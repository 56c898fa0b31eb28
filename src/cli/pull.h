/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pull - the parts of `gmsfs pull`
 *
 * For cmd_pull.c, which has the options, pull_urls.c, pull_open.c and pull_group.c. The steps of a
 * pull: find the nodes and read the texts of the contents, then load the nodes' allocations as the
 * files of an image are loaded (image_load.h). Each step prints its error and returns an
 * exit status.
 */
#ifndef GMSFS_CLI_PULL_H
#define GMSFS_CLI_PULL_H

#include "base/digest.h"
#include "cli/image_load.h"
#include "source/source_peers.h"

struct pull {
    struct image_request request; /* its `store` is filled */
    const char *id_text;          /* NULL: not given */
    const char *cert, *key;       /* NULL: not given */
    bool is_insecure, is_group;
    uint8_t id[DIGEST_BYTES]; /* given, or of the first answer */
    char **urls;
    size_t url_count;
};

/* pull_urls.c: adds a URL, or (@FILE) those of a file. */
int pull_add_operand(struct pull *pull, const char *operand);
void pull_free_urls(struct pull *pull);

/* pull_open.c: finds nodes with the contents, and opens these as an image, which image_close()
 * closes in any case. *peers belongs to the image, and is NULL after a failure. */
int pull_open(struct pull *pull, struct image *image, struct source_peers **peers);
void pull_print_contents(const struct pull *pull, const struct image *image);

/* pull_group.c: pulls the operands STORE=URL, all or none; a STORE with several URLs has several
 * operands. `asked` has the options. */
int pull_group(const struct pull *asked, char **operands, size_t count);

#endif
