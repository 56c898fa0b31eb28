/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs pull - a committed store of other nodes into a store, whole or not at all */
#include "base/digest.h"
#include "base/failure.h"
#include "base/scope.h"
#include "base/size.h"
#include "cli/image_load.h"
#include "cli/signals.h"
#include "cli/store_contents.h"
#include "cli/store_file.h"
#include "cli/store_make.h"
#include "cli/ui.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PATIENCE_MS 60000u
#define MAX_LIST_BYTES      ((size_t)1 << 20)
#define MAX_URLS            4096u

static const char usage[] =
    "Usage: gmsfs pull [OPTION...] STORE URL...\n"
    "\n"
    "Loads a committed store of other nodes into a store, and makes the store if it is missing. A\n"
    "URL is the address of a store below a web server on its mount (gmsfs web), such as\n"
    "http://node7:8080/gpu0/weights/, and stands for all addresses of its host; @FILE has a URL "
    "on\n"
    "each line. Pieces of 16M, each checked by its sum, come from the nodes that have the "
    "contents\n"
    "and answer fastest; other nodes replace a node that is slow, dead, full or wrong. A\n"
    "store that has the contents already is left as it is. On any error, or Ctrl-C, nothing is\n"
    "committed.\n";

static const char ending[] =
    "Exit status: 0 committed, or there already; 1 failure; 2 usage; 3 lock or memory were not\n"
    "free in time; 4 committed, but that could not be reported; 128 + N stopped by signal N.\n";

struct pull {
    struct image_request request;
    const char *id_text;    /* NULL: not given */
    const char *cert, *key; /* NULL: not given */
    bool is_insecure;
    uint8_t id[DIGEST_BYTES];
    char **urls;
    size_t url_count;
};

/* ---- addresses ------------------------------------------------------------------------------ */

static int pull_add_url(struct pull *pull, const char *url, size_t bytes)
{
    char **grown;

    if (pull->url_count >= MAX_URLS) {
        cli_error("more than %u URLs", MAX_URLS);
        return CLI_FAILURE;
    }
    grown = reallocarray(pull->urls, pull->url_count + 1, sizeof(*grown));
    if (!grown)
        return cli_out_of_memory();
    pull->urls = grown;
    pull->urls[pull->url_count] = strndup(url, bytes);
    return pull->urls[pull->url_count++] ? CLI_OK : cli_out_of_memory();
}

/* Takes the URLs of a file, one a line; empty lines and lines that begin with '#' are left out. */
static int pull_add_file(struct pull *pull, const char *path)
{
    SCOPED_FREE uint8_t *text = NULL;
    int status = CLI_OK;
    size_t bytes;
    int error = store_read_bytes(path, MAX_LIST_BYTES, &text, &bytes);

    if (error) {
        cli_error("%s: cannot read: %s", path,
                  error == -ENOMEM ? "it has more than 1M" : strerror(-error));
        return CLI_FAILURE;
    }
    for (const char *line = (const char *)text; status == CLI_OK && *line;) {
        size_t all = strcspn(line, "\n"), used = strcspn(line, " \t\r\n");

        if (used > 0 && *line != '#')
            status = pull_add_url(pull, line, used);
        line += all + (line[all] == '\n');
    }
    return status;
}

static int pull_add_operands(struct pull *pull, char **operands, size_t count)
{
    int status = CLI_OK;

    for (size_t i = 0; status == CLI_OK && i < count; i++)
        status = operands[i][0] == '@' ? pull_add_file(pull, operands[i] + 1)
                                       : pull_add_url(pull, operands[i], strlen(operands[i]));
    if (status == CLI_OK && pull->url_count == 0) {
        cli_error("%s: it has no URL", operands[0] + 1);
        status = CLI_FAILURE;
    }
    return status;
}

/* ---- contents ------------------------------------------------------------------------------- */

/* Reads the texts of the contents, and bars nodes that send wrong ones. */
static int pull_read(struct pull *pull, struct source_peers *peers, struct image *image,
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
static int pull_make_source(const struct pull *pull, struct image *image,
                            struct source_peers *peers)
{
    size_t count = image->manifest.allocation_count;
    char id[DIGEST_TEXT_BYTES];

    if (asprintf(&image->dir.path, "contents %s", digest_text(pull->id, id)) < 0)
        image->dir.path = NULL;
    image->files = calloc(count + 1, sizeof(*image->files));
    image->dir.source = source_peers_source(peers, image->manifest.file_sizes, count);
    if (!image->dir.path || !image->files || !image->dir.source)
        return cli_out_of_memory();
    for (size_t i = 0; i < count; i++)
        image->files[i] = i;
    return CLI_OK;
}

static int pull_open(struct pull *pull, struct image *image, struct source_peers **peers)
{
    const struct source_peers_wish wish = {.urls = (const char *const *)pull->urls,
                                           .url_count = pull->url_count,
                                           .id = pull->id_text ? pull->id : NULL,
                                           .cert = pull->cert,
                                           .key = pull->key,
                                           .is_insecure = pull->is_insecure,
                                           .patience_ms = pull->request.timeout_ms == CLI_FOREVER
                                                              ? DEFAULT_PATIENCE_MS
                                                              : pull->request.timeout_ms};
    struct failure failure;

    image->dir.fd = -1;
    if (source_peers_open(&wish, peers, &failure) != 0)
        return cli_failure(&failure);
    if (pull_read(pull, *peers, image, &failure) == 0)
        return pull_make_source(pull, image, *peers);
    source_peers_close(*peers);
    *peers = NULL;
    return cli_failure(&failure);
}

static void pull_print_contents(const struct pull *pull, const struct image *image)
{
    char id[DIGEST_TEXT_BYTES], size[SIZE_TEXT_BYTES];

    if (!pull->request.quiet)
        ui_line(stderr, "contents %s: %s in %zu allocations", digest_text(pull->id, id),
                size_format(image->manifest.stored_bytes, size), image->manifest.allocation_count);
}

static void pull_tell_barred(const char *node, const char *why)
{
    cli_error("%s: no longer used: %s", node, why);
}

static int pull_do(struct pull *pull)
{
    struct image_load load = {.request = &pull->request, .contents = pull->id};
    struct source_peers *peers = NULL;
    int status;

    if (pull->id_text && store_is_known_to_have(pull->request.store, pull->id))
        return store_say_has_contents(pull->request.store, pull->id, pull->request.quiet);
    signals_install("\ngmsfs pull: ", "; nothing was committed\n");
    signals_set_undo(store_make_undo_all);
    status = pull_open(pull, &load.image, &peers);
    if (status == CLI_OK) {
        pull_print_contents(pull, &load.image);
        status = image_load_opened(&load);
        source_peers_tell_barred(peers, pull_tell_barred);
    }
    image_close(&load.image);
    return status;
}

/* ---- options -------------------------------------------------------------------------------- */

static const struct cli_option options[] = {
    {"--id", 0, "ID", store_take_id, offsetof(struct pull, id_text),
     "the contents to pull, by their id (32 hex digits, in `pieces` of a\n"
     "store); others are refused (default: what the first answer has)"},
    {"--tls-cert", 0, "FILE", cli_take_text, offsetof(struct pull, cert),
     "show nodes that ask for one this certificate, with --tls-key"},
    {"--tls-key", 0, "FILE", cli_take_text, offsetof(struct pull, key), "its key"},
    {"--insecure", 0, NULL, cli_take_flag, offsetof(struct pull, is_insecure),
     "accept http:// addresses that are not of a private network"},
    {"--immutable", 0, NULL, cli_take_flag, offsetof(struct pull, request.immutable),
     "the layout never changes again, as for gmsfs load"},
    {"--threads", 0, "N", cli_take_threads, offsetof(struct pull, request.threads),
     "pieces at the same time, each over a connection, 1 to 256 (default: 8)"},
    {"--timeout", 0, "S", cli_take_timeout, offsetof(struct pull, request.timeout_ms),
     "give up when lock and memory are not free, or no node sends the\n"
     "contents, for S seconds; 0: at once (default: wait for lock and\n"
     "memory, and 60 for a node)"},
    CLI_QUIET(struct pull, request.quiet),
    {0},
};

static int pull_run(int argc, char **argv)
{
    struct pull pull = {.request = {.timeout_ms = CLI_FOREVER, .realign = true}};
    int status = cli_parse(argc, argv, &pull);

    if (status == CLI_OK && pull.id_text)
        (void)pieces_parse_id(pull.id_text, pull.id); /* store_take_id() has checked it */
    if (status == CLI_OK && !pull.cert != !pull.key)
        status = cli_usage_error("--tls-cert and --tls-key go together");
    if (status == CLI_OK) {
        pull.request.store = argv[optind];
        status = pull_add_operands(&pull, argv + optind + 1, (size_t)(argc - optind - 1));
    }
    if (status == CLI_OK)
        status = pull_do(&pull);
    for (size_t i = 0; i < pull.url_count; i++)
        free(pull.urls[i]);
    free(pull.urls);
    return status;
}

const struct cli_command cmd_pull = {
    .name = "pull",
    .summary = "load a store of other nodes into a store",
    .usage = usage,
    .options = options,
    .ending = ending,
    .least = 2,
    .needs = "a STORE and the URL of one on another node are needed",
    .run = pull_run,
};
