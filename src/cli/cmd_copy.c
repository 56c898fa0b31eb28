/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs copy - a committed store to others of this machine, all or none */
#include "cli/copy.h"

#include "cli/signals.h"
#include "cli/store_make.h"

#include <stddef.h>
#include <string.h>

static const char usage[] =
    "Usage: gmsfs copy [OPTION...] STORE STORE...\n"
    "\n"
    "Copies a committed store, the first, to all the others, on any mounts of this machine: the\n"
    "same allocations, metadata and layout_hash. From GPU to GPU the copy engines move the bytes\n"
    "where they have peer access (NVLink), to several GPUs in a chain; everywhere else they go\n"
    "through the host's memory. It holds the reader's lock of the first store, and replaces the\n"
    "contents of the others, all of them or none: on any error or Ctrl-C nothing is committed.\n"
    "It makes missing stores, and removes them again after a failure.\n";

static const char ending[] = "Exit status: 0 committed; 1 failure; 2 usage; 3 the locks were not "
                             "free in time; 4 committed,\n"
                             "but that could not be reported; 128 + N stopped by signal N.\n";

static const struct cli_option options[] = {
    {"--realign", 0, NULL, cli_take_flag, offsetof(struct copy_request, realign),
     "copy to a mount of another granularity; changes the hash there"},
    {"--immutable", 0, NULL, cli_take_flag, offsetof(struct copy_request, immutable),
     "the layout of the copies never changes again, as for gmsfs load"},
    {"--threads", 0, "N", cli_take_threads, offsetof(struct copy_request, threads),
     "threads that copy where copy engines cannot, 1 to 256 (default: one for\n"
     "each CPU, at most 16; with a GPU at most 12)"},
    CLI_LOCK_TIMEOUT(struct copy_request, timeout_ms),
    CLI_QUIET(struct copy_request, quiet),
    {0},
};

/* Ends the process for a path given twice, before a store is made. Other paths of one store are
 * found by its id, later. */
static void copy_check_operands(char **stores, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(stores[i], stores[j]) == 0)
                cli_usage_error("%s: is given twice; name each STORE once", stores[i]);
}

static int copy_run(int argc, char **argv)
{
    struct copy_request request = {.timeout_ms = CLI_FOREVER};

    cli_parse(argc, argv, &request);
    request.from = argv[optind];
    request.to = (const char *const *)argv + optind + 1;
    request.count = (size_t)(argc - optind - 1);
    if (request.count > GMSFS_GROUP_MAX)
        cli_usage_error("%zu stores are given; one copy fills at most %u", request.count,
                        GMSFS_GROUP_MAX);
    copy_check_operands(argv + optind, (size_t)(argc - optind));
    signals_install("\ngmsfs copy: ", "; nothing was committed\n");
    signals_set_undo(store_make_undo_all);
    return copy_store(&request);
}

const struct cli_command cmd_copy = {
    .name = "copy",
    .summary = "copy a store to others of this machine",
    .usage = usage,
    .options = options,
    .ending = ending,
    .least = 2,
    .needs = "a STORE to copy, and the STOREs that get it, are needed",
    .run = copy_run,
};
