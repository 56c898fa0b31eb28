/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs triton - serves clients of NVIDIA Triton: their shared-memory regions, over HTTP and gRPC
 */
#include "cli/cli.h"
#include "cli/ui.h"
#include "triton/triton.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: gmsfs triton [OPTION...] MOUNT\n"
    "\n"
    "Serves clients of NVIDIA Triton: what they register as system shared memory are regions of "
    "the\n"
    "mount, regions/UID/NAME. In the foreground, until a signal ends it; regions stay. Run by a\n"
    "user it serves that user alone, run by root every user, each with his own regions.\n"
    "\n"
    "      --http ADDRESS:PORT   where HTTP is served (default: 127.0.0.1:8000); 'none': nowhere\n"
    "      --grpc ADDRESS:PORT   where gRPC is served (default: 127.0.0.1:8001), or unix:PATH; "
    "'none'\n"
    "                            Both may be given several times. Port 0: one that is free\n"
    "      --token-file FILE     lines TOKEN UID: who sends TOKEN as gmsfs-session is that user.\n"
    "                            Needed where an address is not of the loopback\n"
    "      --drain-timeout S     how long requests may go on using a region that was unregistered\n"
    "                            (default: as long as they do)\n"
    "      --test-models         serve the models simple and add_sub_large: sum and difference of "
    "two\n"
    "                            INT32 tensors, for a first try\n"
    "      --test-delay S        let each of their inferences take S seconds\n"
    "      --help                this text\n"
    "\n"
    "Exit status: 0 ended by SIGTERM, SIGINT or SIGHUP; 1 failure; 2 usage.\n";

#define NOWHERE "none"

static void say(const char *text)
{
    ui_line(stdout, "gmsfs triton: %s", text);
    fflush(stdout);
}

/* One more address of a kind. */
static int add_address(const char *option, const char *address, const char **list, size_t *count)
{
    if (*count == TRITON_MAX_ADDRESSES)
        return cli_usage_error("%s can be given %u times", option, TRITON_MAX_ADDRESSES);
    list[(*count)++] = address;
    return CLI_OK;
}

/* What was not said is the default; 'none' is nothing. */
static int settle_addresses(const char *option, const char *usual, const char **list, size_t *count)
{
    if (*count == 0)
        list[(*count)++] = usual;
    for (size_t i = 0; i < *count; i++) {
        if (strcmp(list[i], NOWHERE) != 0)
            continue;
        if (*count > 1)
            return cli_usage_error("%s none stands alone", option);
        *count = 0;
    }
    return CLI_OK;
}

static int triton_serve(const struct triton_options *options)
{
    struct failure failure;

    return triton_run(options, &failure) == 0 ? CLI_OK : cli_failure(&failure);
}

static int triton_take(int option, struct triton_options *options)
{
    switch (option) {
    case 'H':
        return add_address("--http", optarg, options->http, &options->http_count);
    case 'g':
        return add_address("--grpc", optarg, options->grpc, &options->grpc_count);
    case 't':
        options->token_file = optarg;
        return CLI_OK;
    case 'D':
        return cli_parse_timeout("--drain-timeout", optarg, &options->drain_ms);
    case 'm':
        options->has_test_models = true;
        return CLI_OK;
    case 'd':
        return cli_parse_timeout("--test-delay", optarg, &options->delay_ms);
    default:
        return CLI_USAGE;
    }
}

static int triton_command(int argc, char **argv)
{
    static const struct option long_options[] = {{"http", required_argument, NULL, 'H'},
                                                 {"grpc", required_argument, NULL, 'g'},
                                                 {"token-file", required_argument, NULL, 't'},
                                                 {"drain-timeout", required_argument, NULL, 'D'},
                                                 {"test-models", no_argument, NULL, 'm'},
                                                 {"test-delay", required_argument, NULL, 'd'},
                                                 {"help", no_argument, NULL, 'h'},
                                                 {NULL, 0, NULL, 0}};
    struct triton_options options = {.on_serving = say, .drain_ms = UINT64_MAX};
    int option, status = CLI_OK;

    while (status == CLI_OK && (option = cli_getopt(argc, argv, ":h", long_options)) != -1) {
        if (option == 'h')
            return cli_help();
        status = triton_take(option, &options);
    }
    if (status == CLI_OK)
        status = settle_addresses("--http", "127.0.0.1:8000", options.http, &options.http_count);
    if (status == CLI_OK)
        status = settle_addresses("--grpc", "127.0.0.1:8001", options.grpc, &options.grpc_count);
    if (status != CLI_OK)
        return status;
    if (options.http_count + options.grpc_count == 0)
        return cli_usage_error("with --http none and --grpc none there is nothing to serve");
    if (argc - optind != 1)
        return cli_usage_error("a MOUNT is needed");
    options.mount = argv[optind];
    return triton_serve(&options);
}

const struct cli_command cmd_triton = {
    .name = "triton",
    .summary = "serve regions of shared memory to clients of NVIDIA Triton",
    .usage = usage,
    .run = triton_command,
};
