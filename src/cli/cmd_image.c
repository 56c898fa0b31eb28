/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs image - a whole store, with any kind of metadata: save, load, ls */
#include "cli/image_commands.h"

#include "cli/store_contents.h"
#include "mover/work.h"

#include <stddef.h>
#include <string.h>

static const char usage[] =
    "Usage: gmsfs image save [OPTION...] STORE DIR\n"
    "       gmsfs image load [OPTION...] STORE DIR\n"
    "       gmsfs image ls [OPTION...] DIR\n"
    "\n"
    "save holds the reader's lock and writes a whole store into a directory: its layout as it is,\n"
    "and the bytes of every allocation with their sums. The directory is an image once all is on\n"
    "disk; until then, and after an interruption, it is an unfinished one, which --resume "
    "finishes.\n"
    "load takes the writer's lock and replaces the contents of a store by an image, with the same\n"
    "layout_hash; on any error, a wrong byte, or Ctrl-C, nothing is committed. It makes a missing\n"
    "store, and removes that again after a failure.\n"
    "ls lists the contents of an image, also of an unfinished one.\n";

static const char ending[] =
    "Exit status: 0 done; 1 failure, or (ls) unfinished or damaged; 2 usage; 3 the lock was not\n"
    "free in time; 4 done, but that could not be reported; 128 + N stopped by signal N.\n";

static const struct image_verb {
    const char *name;
    int operands; /* after it */
    int (*run)(const struct image_request *request);
} verbs[] = {
    {"save", 2, image_save},
    {"load", 2, image_load},
    {"ls", 1, image_ls},
};

static const struct image_verb *image_find_verb(const char *name)
{
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static void image_take_after(const char *name, const char *text, void *at)
{
    cli_take_number(name, text, at);
    ++*(uint64_t *)at;
}

static void image_take_limit(const char *name, const char *text, void *at)
{
    cli_parse_count(name, text, 1, INT64_MAX, at);
}

static const struct cli_option options[] = {
    {.help = "save:"},
    {"--force", 0, NULL, cli_take_flag, offsetof(struct image_request, force),
     "into a directory that is not empty: an image in it is replaced, and\n"
     "other files are left alone"},
    {"--resume", 0, NULL, cli_take_flag, offsetof(struct image_request, resume),
     "finish the unfinished image in DIR: pieces with right sums stay"},
    {"--file-size", 0, "SIZE", cli_take_size, offsetof(struct image_request, file_bytes),
     "files of at most this size (default 4G)"},
    {.help = "load:"},
    {"--id", 0, "ID", store_take_id, offsetof(struct image_request, id),
     "refuse an image of other contents (gmsfs sum --id)"},
    {"--immutable", 0, NULL, cli_take_flag, offsetof(struct image_request, immutable),
     "the layout never changes again, as for gmsfs load"},
    {"--realign", 0, NULL, cli_take_flag, offsetof(struct image_request, realign),
     "load into a mount of another granularity; changes the hash"},
    {.help = "ls:"},
    {"--entries", 0, NULL, cli_take_flag, offsetof(struct image_request, entries),
     "list the metadata entries, not the allocations"},
    {"--after", 0, "N", image_take_after, offsetof(struct image_request, first),
     "begin after rank (or entry) N"},
    {"--limit", 0, "N", image_take_limit, offsetof(struct image_request, most),
     "at most N of them"},
    {"--check", 0, NULL, cli_take_flag, offsetof(struct image_request, check),
     "read all bytes and compare their sums"},
    {"--json", 0, NULL, cli_take_flag, offsetof(struct image_request, as_json), "the same as JSON"},
    {.help = "all:"},
    {"--threads", 0, "N", cli_take_threads, offsetof(struct image_request, threads),
     "threads that copy, 1 to 256 (default: one for each CPU, at most 16;\n"
     "with a GPU at most 12)"},
    {"--direct", 0, "WHEN", cli_take_direct, offsetof(struct image_request, direct),
     "read and write the data past the page cache (O_DIRECT): always,\n"
     "never, or auto (default: auto, which writes so, and reads so files\n"
     "the cache can neither hold nor has)"},
    CLI_LOCK_TIMEOUT(struct image_request, timeout_ms),
    CLI_QUIET(struct image_request, quiet),
    {0},
};

/* Finds a given option that is not for this verb, by the headings of the table. NULL: none. */
static const char *image_find_foreign(const struct image_verb *verb)
{
    bool is_for = true;

    for (const struct cli_option *option = options; option->help; option++) {
        if (!option->name)
            is_for = strcmp(option->help, "all:") == 0 ||
                     strncmp(option->help, verb->name, strlen(verb->name)) == 0;
        else if (cli_was_given(option) &&
                 (!is_for || (verb->run == image_ls && option->take == cli_take_timeout)))
            return option->name;
    }
    return NULL;
}

static const struct image_verb *image_parse_words(int argc, char **argv,
                                                  struct image_request *request)
{
    const struct image_verb *verb = optind < argc ? image_find_verb(argv[optind]) : NULL;

    if (!verb)
        cli_usage_error("one of save, load and ls is needed");
    const char *foreign = image_find_foreign(verb);
    if (foreign)
        cli_usage_error("%s does not go with %s", foreign, verb->name);
    if (argc - optind - 1 != verb->operands)
        cli_usage_error("%s after '%s'",
                        verb->operands == 2 ? "a STORE and a DIR are needed" : "one DIR is needed",
                        verb->name);
    if (request->force && request->resume)
        cli_usage_error("--force replaces an image, and --resume finishes one: give one of them");
    if (verb->operands == 2)
        request->store = argv[optind + 1];
    request->path = argv[optind + verb->operands];
    return verb;
}

static int image_run(int argc, char **argv)
{
    struct image_request request = {.timeout_ms = CLI_FOREVER, .most = UINT64_MAX};

    cli_parse(argc, argv, &request);
    return image_parse_words(argc, argv, &request)->run(&request);
}

const struct cli_command cmd_image = {
    .name = "image",
    .summary = "save all of a store into a directory, load or list it",
    .usage = usage,
    .options = options,
    .ending = ending,
    .run = image_run,
};
