/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs fence - closes weights and kv_cache while the device is checkpointed
 *
 * The fence is the daemon's, and outlives the command: only its token ends it, which --status
 * prints again.
 */
#include "base/hex.h"
#include "cli/cli.h"
#include "cli/daemon_ask.h"
#include "cli/daemon_explain.h"
#include "cli/mounts.h"
#include "cli/output.h"
#include "cli/ui.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char usage[] =
    "Usage: gmsfs fence [-q] MOUNT\n"
    "       gmsfs fence [-q] --abort TOKEN MOUNT\n"
    "       gmsfs fence [-q] --complete TOKEN MOUNT\n"
    "       gmsfs fence --status MOUNT\n"
    "\n"
    "Prepares a mount for a checkpoint of the processes that use its device: from then on the\n"
    "stores weights and kv_cache grant no sessions, and no bytes of weights are discarded. It "
    "needs\n"
    "weights committed, kv_cache empty, and both without sessions. Prints the token, without "
    "which\n"
    "the fence cannot be ended; the fence stays up after the command has ended.\n";

static const char ending[] =
    "For users with write permission on both stores, and root; only they see the token.\n"
    "\n"
    "Exit status: 0 done; 1 failure; 2 usage; 4 done, but that could not be reported (--status\n"
    "prints the token).\n";

struct fence {
    enum gmsfs_fds_op op;
    uint8_t token[GMSFS_TOKEN_BYTES];
    const char *path;
    bool quiet;
};

/* ---- tokens: UUIDs, as GMS writes them ------------------------------------------------------ */

static void fence_parse(const char *option, const char *text, uint8_t token[GMSFS_TOKEN_BYTES])
{
    char digits[GMSFS_TOKEN_TEXT_BYTES], again[HEX_UUID_TEXT_BYTES];
    size_t used = 0;

    for (const char *at = text; *at && used < sizeof(digits) - 1; at++) {
        if (*at != '-')
            digits[used++] = *at;
    }
    digits[used] = '\0';
    if (gmsfs_token_parse(digits, token) == 0) {
        hex_format_uuid(token, again);
        if (strcasecmp(again, text) == 0)
            return;
    }
    cli_usage_error("%s: '%s' is no token: 'gmsfs fence --status MOUNT' prints it", option, text);
}

/* ---- errors --------------------------------------------------------------------------------- */

/* Explains why the stores cannot be fenced. */
static void fence_explain_obstacle(const char *path, const struct gmsfs_fds_fence *answer)
{
    static const char *const ways_out[] = {
        [GMSFS_FDS_OBSTACLE_WEIGHTS_IN_USE] = "'gmsfs status' names the processes; let them end, "
                                              "or revoke them by the store's file 'abort'",
        [GMSFS_FDS_OBSTACLE_KV_CACHE_IN_USE] = "'gmsfs status' names the processes; let them end, "
                                               "or revoke them by the store's file 'abort'",
        [GMSFS_FDS_OBSTACLE_WEIGHTS_UNCOMMITTED] = "'gmsfs load' or an engine fills it",
        [GMSFS_FDS_OBSTACLE_KV_CACHE_COMMITTED] =
            "'rmdir kv_cache' in it discards its contents, and 'mkdir kv_cache' makes it again",
        [GMSFS_FDS_OBSTACLE_WEIGHTS_EMPTY] = "'gmsfs load' or an engine fills it",
        [GMSFS_FDS_OBSTACLE_KV_CACHE_SEALED] =
            "'rmdir kv_cache' in it discards its contents, and 'mkdir kv_cache' makes it again",
    };
    bool is_known = answer->obstacle < sizeof(ways_out) / sizeof(ways_out[0]);

    cli_error("%s: %.*s%s%s", path, (int)sizeof(answer->why), answer->why, is_known ? "; " : "",
              is_known ? ways_out[answer->obstacle] : "");
}

static int fence_explain(const struct fence *fence, int error, const struct gmsfs_fds_fence *answer)
{
    const char *path = fence->path;

    if (answer->obstacle) {
        fence_explain_obstacle(path, answer);
        return CLI_FAILURE;
    }
    switch (error) {
    case -EACCES:
        return cli_error(
            "%s: %sonly users with write permission on both weights and kv_cache can fence "
            "them and end the fence; their owners can allow it with chmod or chown",
            path, answer->is_up ? "it is fenced; " : "");
    case -EINVAL:
        return cli_error("%s: its fence has another token, which 'gmsfs fence --status %s' prints",
                         path, path);
    case -ESTALE:
        return cli_error("%s: the fence of this token is over, or was ended the other way; "
                         "'gmsfs fence --status %s' shows whether there is another",
                         path, path);
    case -ENOENT:
        return cli_error("%s: it has no store weights to checkpoint", path);
    case -ENODEV:
        return cli_error("%s: the mount is drained, and holds nothing; 'gmsfs drain --undo %s' "
                         "lets it serve again",
                         path, path);
    case -EOPNOTSUPP:
        return cli_error("%s: its daemon is older than this command, and has no fence; mount again",
                         path);
    default:
        return daemon_explain(path, error);
    }
}

/* ---- the command ---------------------------------------------------------------------------- */

static void fence_report(const struct fence *fence, const struct gmsfs_fds_fence *answer)
{
    char token[HEX_UUID_TEXT_BYTES];

    hex_format_uuid(answer->token, token);
    if (fence->op == GMSFS_FDS_FENCE_STATUS) {
        ui_line(stdout, "%s%s", answer->is_up ? "fenced " : "serving", answer->is_up ? token : "");
    } else if (fence->op == GMSFS_FDS_FENCE) {
        ui_line(stdout, "%s", token);
        if (!fence->quiet)
            ui_line(stderr,
                    "%s is fenced: weights and kv_cache grant no sessions until 'gmsfs fence "
                    "--complete TOKEN %s', or --abort",
                    fence->path, fence->path);
    } else if (!fence->quiet) {
        ui_line(stdout, "%s serves", fence->path);
    }
}

static int fence_mount(struct fence *fence)
{
    struct gmsfs_fds_fence answer;
    int error = daemon_ask_fence(fence->path, fence->op, fence->token, &answer);

    if (error)
        return fence_explain(fence, error, &answer);
    if (fence->op != GMSFS_FDS_FENCE_STATUS)
        output_set_done();
    fence_report(fence, &answer);
    return CLI_OK;
}

static void fence_take(const char *name, const char *text, void *at)
{
    struct fence *fence = at;

    if (fence->op != GMSFS_FDS_FENCE)
        cli_usage_error("--abort, --complete and --status go alone");
    fence->op = strcmp(name, "--abort") == 0      ? GMSFS_FDS_FENCE_ABORT
                : strcmp(name, "--complete") == 0 ? GMSFS_FDS_FENCE_COMPLETE
                                                  : GMSFS_FDS_FENCE_STATUS;
    if (text)
        fence_parse(name, text, fence->token);
}

static const struct cli_option options[] = {
    {"--abort", 0, "TOKEN", fence_take, 0, "end the fence without a checkpoint"},
    {"--complete", 0, "TOKEN", fence_take, 0, "end the fence after the checkpoint was restored"},
    {"--status", 0, NULL, fence_take, 0, "print 'fenced TOKEN' or 'serving'"},
    {"--quiet", 'q', NULL, cli_take_flag, offsetof(struct fence, quiet),
     "print the token and errors only"},
    {0},
};

static int fence_run(int argc, char **argv)
{
    struct fence fence = {.op = GMSFS_FDS_FENCE};
    SCOPED_MOUNTS struct mounts mounts = {0};
    const struct mount *mount;

    cli_parse(argc, argv, &fence);
    if (mounts_open_at(argv[optind], &mounts, &mount) != CLI_OK)
        return CLI_FAILURE;
    fence.path = mount->path;
    return fence_mount(&fence);
}

const struct cli_command cmd_fence = {
    .name = "fence",
    .summary = "close two stores while the device is checkpointed",
    .usage = usage,
    .options = options,
    .ending = ending,
    .least = 1,
    .most = 1,
    .needs = "one MOUNT is needed",
    .run = fence_run,
};
