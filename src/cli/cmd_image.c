/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs image - a store whole, whatever its metadata means: save, load, ls */
#include "cli/image_commands.h"

#include "mover/work.h"

#include <stddef.h>
#include <string.h>

static const char usage[] =
    "Usage: gmsfs image save [OPTION...] STORE DIR\n"
    "       gmsfs image load [OPTION...] STORE DIR\n"
    "       gmsfs image ls [OPTION...] DIR\n"
    "\n"
    "save holds the reader's lock and writes all of a store into a directory: its layout as it "
    "is,\n"
    "and the bytes of every allocation with their sums. It is an image once all is on disk; until\n"
    "then, and when it is interrupted, it is an unfinished one, which --resume goes on with.\n"
    "load takes the writer's lock and replaces what a store had by an image, with the same\n"
    "layout_hash; on any error, a byte that is wrong, or Ctrl-C, nothing is committed. A store "
    "that\n"
    "is not there is made, and removed again then.\n"
    "ls lists what an image holds, and what an unfinished one holds already.\n"
    "\n"
    "save:\n"
    "      --force            into a directory that is not empty: an image in it is replaced, and\n"
    "                         what is not of an image is left alone\n"
    "      --resume           go on with the unfinished image in DIR: what is there and right "
    "stays\n"
    "      --file-size SIZE   files of at most this size (default 4G)\n"
    "load:\n"
    "      --realign          load into a mount of another granularity; the hash becomes another\n"
    "ls:\n"
    "      --entries          list the metadata entries, not the allocations\n"
    "      --after N          go on behind rank (or entry) N\n"
    "      --limit N          so many of them\n"
    "      --check            read all bytes and compare their sums\n"
    "      --json             the same as JSON\n"
    "all:\n"
    "      --threads N        threads that copy, 1 to 256 (default: one for each CPU, at most 16;\n"
    "                         with a GPU at most 12)\n"
    "      --direct WHEN      read and write the data past the page cache (O_DIRECT): always,\n"
    "                         never, or auto (default: auto, which writes so, and reads so what\n"
    "                         the cache can neither hold nor has)\n"
    "      --timeout S        give up when the lock is not free within S seconds; 0: at once\n"
    "                         (default: wait for it)\n"
    "  -q, --quiet            print errors only\n"
    "      --help             this text\n"
    "\n"
    "Exit status: 0 done; 1 failure, or (ls) unfinished or damaged; 2 usage; 3 the lock was not\n"
    "free in time; 4 done, but that could not be reported; 128 + N stopped by signal N.\n";

/* Options, each for some of the verbs. */
enum {
    FOR_SAVE = 1,
    FOR_LOAD = 2,
    FOR_LS = 4,
    FOR_STORE = FOR_SAVE | FOR_LOAD,
    FOR_ALL = FOR_STORE | FOR_LS,
};

static const struct option options[] = {{"after", required_argument, NULL, 'a'},
                                        {"check", no_argument, NULL, 'c'},
                                        {"direct", required_argument, NULL, 'd'},
                                        {"entries", no_argument, NULL, 'e'},
                                        {"file-size", required_argument, NULL, 's'},
                                        {"force", no_argument, NULL, 'f'},
                                        {"json", no_argument, NULL, 'j'},
                                        {"limit", required_argument, NULL, 'l'},
                                        {"realign", no_argument, NULL, 'g'},
                                        {"resume", no_argument, NULL, 'r'},
                                        {"threads", required_argument, NULL, 't'},
                                        {"timeout", required_argument, NULL, 'w'},
                                        {"quiet", no_argument, NULL, 'q'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};

static const struct image_verb {
    const char *name;
    unsigned bit;
    int operands; /* after it */
    int (*run)(const struct image_request *request);
} verbs[] = {
    {"save", FOR_SAVE, 2, image_save},
    {"load", FOR_LOAD, 2, image_load},
    {"ls", FOR_LS, 1, image_ls},
};

static const struct image_verb *image_find_verb(const char *name)
{
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

/* The verbs that an option is for. */
static unsigned image_option_for(int option)
{
    switch (option) {
    case 's':
    case 'f':
    case 'r':
        return FOR_SAVE;
    case 'g':
        return FOR_LOAD;
    case 'w':
        return FOR_STORE;
    case 'a':
    case 'c':
    case 'e':
    case 'j':
    case 'l':
        return FOR_LS;
    default:
        return FOR_ALL;
    }
}

static int image_set_value(struct image_request *request, int option)
{
    int status = CLI_OK;

    if (option == 's') {
        status = cli_parse_size("--file-size", optarg, &request->file_bytes);
    } else if (option == 't') {
        status = cli_parse_count("--threads", optarg, 1, WORK_MAX_THREADS, &request->threads);
    } else if (option == 'w') {
        status = cli_parse_timeout("--timeout", optarg, &request->timeout_ms);
    } else if (option == 'd') {
        status = cli_parse_direct(optarg, &request->direct);
    } else if (option == 'l') {
        status = cli_parse_count("--limit", optarg, 1, INT64_MAX, &request->most);
    } else if (option == 'a') {
        status = cli_parse_count("--after", optarg, 0, INT64_MAX, &request->first);
        request->first++;
    }
    return status;
}

static void image_set_flag(struct image_request *request, int option)
{
    request->check |= option == 'c';
    request->entries |= option == 'e';
    request->force |= option == 'f';
    request->as_json |= option == 'j';
    request->realign |= option == 'g';
    request->resume |= option == 'r';
    request->quiet |= option == 'q';
}

static const char *image_option_name(int option)
{
    size_t i = 0;

    while (options[i].name && options[i].val != option)
        i++;
    return options[i].name;
}

static int image_parse_words(int argc, char **argv, unsigned wanted, int last,
                             struct image_request *request, const struct image_verb **verb)
{
    *verb = optind < argc ? image_find_verb(argv[optind]) : NULL;
    if (!*verb)
        return cli_usage_error("one of save, load and ls is needed");
    if (!(wanted & (*verb)->bit))
        return cli_usage_error("--%s does not go with %s", image_option_name(last), (*verb)->name);
    if (argc - optind - 1 != (*verb)->operands)
        return cli_usage_error("%s after '%s'",
                               (*verb)->operands == 2 ? "a STORE and a DIR are needed"
                                                      : "one DIR is needed",
                               (*verb)->name);
    if (request->force && request->resume)
        return cli_usage_error("--force begins anew, and --resume goes on: not both");
    if ((*verb)->operands == 2)
        request->store = argv[optind + 1];
    request->path = argv[optind + (*verb)->operands];
    return CLI_OK;
}

static int image_run(int argc, char **argv)
{
    struct image_request request = {.timeout_ms = CLI_FOREVER, .most = UINT64_MAX};
    unsigned wanted = FOR_ALL;
    const struct image_verb *verb;
    int option, last = 0, status = CLI_OK;

    while (status == CLI_OK && (option = cli_getopt(argc, argv, ":qh", options)) != -1) {
        if (option == 'h')
            return cli_help();
        if (option == '?')
            return CLI_USAGE;
        if (image_option_for(option) != FOR_ALL)
            last = option;
        wanted &= image_option_for(option);
        image_set_flag(&request, option);
        status = image_set_value(&request, option);
    }
    if (status == CLI_OK)
        status = image_parse_words(argc, argv, wanted, last, &request, &verb);
    return status == CLI_OK ? verb->run(&request) : status;
}

const struct cli_command cmd_image = {
    .name = "image",
    .summary = "save all of a store into a directory, load or list it",
    .usage = usage,
    .run = image_run,
};
