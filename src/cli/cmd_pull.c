/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs pull - a committed store of other nodes into a store, whole or not at all */
#include "cli/pull.h"

#include "cli/signals.h"
#include "cli/store_contents.h"
#include "cli/store_make.h"

static const char usage[] =
    "Usage: gmsfs pull [OPTION...] STORE URL...\n"
    "       gmsfs pull --group [OPTION...] STORE=URL...\n"
    "\n"
    "Loads a committed store of other nodes into a store, and makes the store if it is missing.\n"
    "A URL is the address of a store below a web server on its mount (gmsfs web), such as\n"
    "http://node7:8080/gpu0/weights/, and stands for all addresses of its host; @FILE has a URL\n"
    "on each line. Pieces of 16M, each checked by its sum, come from the nodes that have the\n"
    "contents and answer fastest; other nodes replace a node that is slow, dead, full or wrong.\n"
    "A store that has the contents already is left as it is. On any error, or Ctrl-C, nothing is\n"
    "committed.\n"
    "With --group several stores, the ranks of a model, all of them or none: they are locked\n"
    "together, with all their memory, and committed with one group id. A STORE may be named\n"
    "several times, for several URLs.\n";

static const char ending[] =
    "Exit status: 0 committed, or there already; 1 failure; 2 usage; 3 lock or memory were not\n"
    "free in time; 4 committed, but that could not be reported; 128 + N stopped by signal N.\n";

static int pull_do(struct pull *pull, char **operands, int count)
{
    struct image_load load = {.request = &pull->request, .contents = pull->id};
    struct source_peers *peers = NULL;
    int status = CLI_OK;

    pull->request.store = operands[0];
    for (int i = 1; status == CLI_OK && i < count; i++)
        status = pull_add_operand(pull, operands[i]);
    if (status != CLI_OK)
        return status;
    if (pull->id_text && store_is_known_to_have(pull->request.store, pull->id))
        return store_say_has_contents(pull->request.store, pull->id, pull->request.immutable,
                                      pull->request.quiet);
    signals_install("\ngmsfs pull: ", "; nothing was committed\n");
    signals_set_undo(store_make_undo_all);
    status = pull_open(pull, &load.image, &peers);
    if (status == CLI_OK) {
        pull_print_contents(pull, &load.image);
        if (!store_is_known_to_have(pull->request.store, pull->id))
            source_peers_take_turn(peers, load.image.manifest.stored_bytes);
        status = image_load_opened(&load);
        source_peers_tell_barred(peers);
    }
    image_close(&load.image);
    return status;
}

/* ---- options -------------------------------------------------------------------------------- */

static const struct cli_option options[] = {
    {"--group", 0, NULL, cli_take_flag, offsetof(struct pull, is_group),
     "each operand is STORE=URL or STORE=@FILE"},
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

    cli_parse(argc, argv, &pull);
    if (pull.id_text)
        (void)pieces_parse_id(pull.id_text, pull.id); /* store_take_id() has checked it */
    if (!pull.cert != !pull.key)
        cli_usage_error("--tls-cert and --tls-key go together");
    if (pull.is_group && pull.id_text)
        cli_usage_error("--id is of one store, so not for --group");
    if (!pull.is_group && argc - optind < 2)
        cli_usage_error("%s", cmd_pull.needs);
    int status = pull.is_group ? pull_group(&pull, argv + optind, (size_t)(argc - optind))
                               : pull_do(&pull, argv + optind, argc - optind);
    pull_free_urls(&pull);
    return status;
}

const struct cli_command cmd_pull = {
    .name = "pull",
    .summary = "load a store of other nodes into a store",
    .usage = usage,
    .options = options,
    .ending = ending,
    .least = 1,
    .needs = "a STORE and the URL of one on another node are needed",
    .run = pull_run,
};
