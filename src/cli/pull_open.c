/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of a pull, and their contents as an image. */
#include "cli/pull.h"

#include "base/failure.h"
#include "base/size.h"
#include "cli/ui.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEFAULT_PATIENCE_MS 60000u

/* ---- nodes ---------------------------------------------------------------------------------- */

/* A bar of progress may stand on the line. */
static void tell(void *context, const char *node, const char *why, enum source_peers_event event)
{
    const struct pull *pull = context;

    if (pull->request.quiet && event != SOURCE_PEERS_BARRED)
        return;
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    if (event == SOURCE_PEERS_BARRED)
        cli_error("%s: no longer used: %s", node, why);
    else
        ui_line(stderr, event == SOURCE_PEERS_AWAITED ? "%s: %s" : "%s: %s; it is asked again",
                node, why);
}

/* ---- contents ------------------------------------------------------------------------------- */

/* Reads the texts of the contents, and bars nodes that send wrong ones. */
static int read_texts(struct pull *pull, struct source_peers *peers, struct image *image,
                      struct failure *failure)
{
    int error = source_peers_find(peers, pull->id, failure);

    while (!error) {
        struct source_peers_texts texts = {0};
        const char *why;

        error = source_peers_read(peers, PIECES_MAX_TEXT_BYTES, IMAGE_MAX_LAYOUT_BYTES, &texts,
                                  failure);
        if (error)
            break;
        error =
            image_pieces_open(pull->id, texts.pieces, texts.pieces_bytes, (uint8_t *)texts.layout,
                              texts.layout_bytes, &image->manifest, &image->layout, &why);
        free(texts.pieces);
        if (error != -EPROTO)
            break;
        source_peers_bar(peers, texts.node, why);
        image_layout_close(&image->layout);
        image_manifest_free(&image->manifest);
        error = 0;
    }
    return error == -ENOMEM ? failure_no_memory(failure) : error;
}

/* Makes the source of the bytes, which owns the peers then. Messages name it by the id: it is no
 * single node's, and an address may have a password. */
static void make_source(const struct pull *pull, struct image *image, struct source_peers *peers)
{
    size_t count = image->manifest.allocation_count;
    char id[DIGEST_TEXT_BYTES];

    image->dir.path = cli_format("contents %s", digest_text(pull->id, id));
    image->files = cli_need(calloc(count + 1, sizeof(*image->files)));
    image->dir.source = cli_need(source_peers_source(peers, image->manifest.file_sizes, count));
    for (size_t i = 0; i < count; i++)
        image->files[i] = i;
}

int pull_open(struct pull *pull, struct image *image, struct source_peers **peers)
{
    const struct source_peers_wish wish = {.urls = (const char *const *)pull->urls,
                                           .url_count = pull->url_count,
                                           .id = pull->id_text ? pull->id : NULL,
                                           .cert = pull->cert,
                                           .key = pull->key,
                                           .is_insecure = pull->is_insecure,
                                           .tell = tell,
                                           .context = pull,
                                           .patience_ms = pull->request.timeout_ms == CLI_FOREVER
                                                              ? DEFAULT_PATIENCE_MS
                                                              : pull->request.timeout_ms};
    struct failure failure;

    image->dir.fd = -1;
    if (source_peers_open(&wish, peers, &failure) != 0)
        return cli_failure(&failure);
    if (read_texts(pull, *peers, image, &failure) == 0) {
        make_source(pull, image, *peers);
        return CLI_OK;
    }
    source_peers_close(*peers);
    *peers = NULL;
    return cli_failure(&failure);
}

void pull_print_contents(const struct pull *pull, const struct image *image)
{
    char id[DIGEST_TEXT_BYTES], size[SIZE_TEXT_BYTES];

    if (!pull->request.quiet)
        ui_line(stderr, "contents %s: %s in %zu allocations", digest_text(pull->id, id),
                size_format(image->manifest.stored_bytes, size), image->manifest.allocation_count);
}
