/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/daemon_explain.h"

#include "cli/cli.h"

#include <errno.h>
#include <string.h>

int daemon_explain(const char *path, int error)
{
    switch (error) {
    case -EPIPE:
    case -ECONNRESET:
        cli_error("%s: the daemon is gone: the mount was unmounted, or its daemon died; 'gmsfs "
                  "status' tells",
                  path);
        break;
    case -ENAMETOOLONG:
        cli_error(
            "%s: the path is too long for a socket's address, and there is no /proc, by which "
            "longer ones are reached; mount it, or mount at a shorter path",
            path);
        break;
    default:
        cli_error("%s: the daemon cannot be asked: %s; 'gmsfs status' shows whether it lives", path,
                  strerror(-error));
    }
    return CLI_FAILURE;
}
