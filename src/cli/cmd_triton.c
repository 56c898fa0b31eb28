/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs triton - serves clients of NVIDIA Triton: their shared-memory regions, over HTTP and gRPC
 */
#include "cli/cli.h"
#include "cli/ui.h"
#include "triton/triton.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: gmsfs triton [OPTION...] MOUNT\n"
    "\n"
    "Serves clients of NVIDIA Triton: the system shared memory that they register becomes regions\n"
    "of the mount, regions/UID/NAME. In the foreground, until a signal ends it; regions stay. Run "
    "by a\n"
    "user it serves that user alone, run by root every user, each with its own regions.\n";

static const char ending[] =
    "Exit status: 0 ended by SIGTERM, SIGINT or SIGHUP; 1 failure; 2 usage.\n";

#define NOWHERE "none"

static void say(const char *text)
{
    ui_line(stdout, "gmsfs triton: %s", text);
    fflush(stdout);
}

/* One more address of a kind. */
static void take_address(const char *name, const char *text, void *at)
{
    struct triton_options *values = at;
    bool is_http = strcmp(name, "--http") == 0;
    size_t *count = is_http ? &values->http_count : &values->grpc_count;

    if (*count == TRITON_MAX_ADDRESSES)
        cli_usage_error("%s can be given %u times", name, TRITON_MAX_ADDRESSES);
    (is_http ? values->http : values->grpc)[(*count)++] = text;
}

/* Applies the default to a missing option; 'none' means no address. */
static void settle_addresses(const char *option, const char *usual, const char **list,
                             size_t *count)
{
    if (*count == 0)
        list[(*count)++] = usual;
    for (size_t i = 0; i < *count; i++) {
        if (strcmp(list[i], NOWHERE) != 0)
            continue;
        if (*count > 1)
            cli_usage_error("%s none stands alone", option);
        *count = 0;
    }
}

static const struct cli_option options[] = {
    {"--http", 0, "ADDRESS:PORT", take_address, 0,
     "where HTTP is served (default: 127.0.0.1:8000); 'none': nowhere"},
    {"--grpc", 0, "ADDRESS:PORT", take_address, 0,
     "where gRPC is served (default: 127.0.0.1:8001), or unix:PATH; 'none'\n"
     "Both may be given several times. Port 0: one that is free"},
    {"--token-file", 0, "FILE", cli_take_text, offsetof(struct triton_options, token_file),
     "lines TOKEN UID: a request with TOKEN as gmsfs-session is that user's.\n"
     "Needed where an address is not of the loopback"},
    {"--drain-timeout", 0, "S", cli_take_timeout, offsetof(struct triton_options, drain_ms),
     "how long requests may go on using a region that was unregistered\n"
     "(default: as long as they do)"},
    {"--test-models", 0, NULL, cli_take_flag, offsetof(struct triton_options, has_test_models),
     "serve the models simple and add_sub_large: sum and difference of two\n"
     "INT32 tensors, for a first try"},
    {"--test-delay", 0, "S", cli_take_timeout, offsetof(struct triton_options, delay_ms),
     "let each of their inferences take S seconds"},
    {0},
};

static int triton_command(int argc, char **argv)
{
    struct triton_options values = {.on_serving = say, .drain_ms = UINT64_MAX};
    struct failure failure;

    cli_parse(argc, argv, &values);
    settle_addresses("--http", "127.0.0.1:8000", values.http, &values.http_count);
    settle_addresses("--grpc", "127.0.0.1:8001", values.grpc, &values.grpc_count);
    if (values.http_count + values.grpc_count == 0)
        cli_usage_error("with --http none and --grpc none there is nothing to serve");
    if (argc - optind != 1)
        cli_usage_error("a MOUNT is needed");
    values.mount = argv[optind];
    return triton_run(&values, &failure) == 0 ? CLI_OK : cli_failure(&failure);
}

const struct cli_command cmd_triton = {
    .name = "triton",
    .summary = "serve regions of shared memory to clients of NVIDIA Triton",
    .usage = usage,
    .options = options,
    .ending = ending,
    .run = triton_command,
};
