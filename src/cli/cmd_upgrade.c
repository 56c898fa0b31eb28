/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs upgrade - replaces the worker of a mount by the installed gmsfs */
#include "base/failure.h"
#include "cli/cli.h"
#include "cli/daemon_ask.h"
#include "cli/mount_look.h"
#include "cli/mounts.h"
#include "cli/output.h"
#include "cli/store_file.h"
#include "cli/ui.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_S     60 /* the keeper bounds each of its steps by seconds */
#define ASK_AGAIN_MS 10

static const char usage[] =
    "Usage: gmsfs upgrade MOUNT...\n"
    "\n"
    "Replaces the worker of each mount by the gmsfs that is now installed at the daemon's path.\n"
    "Clients keep locks, open files and memory, and see a pause of some milliseconds. A gmsfs\n"
    "that cannot take over the mount's state is refused beforehand; if the new worker does not\n"
    "serve, the old one comes back. For root and the mounting user.\n"
    "\n"
    "The keeper, the process behind the worker, stays the old one: 'gmsfs mount --takeover'\n"
    "replaces it too.\n";

static const char ending[] =
    "Exit status: 0 the installed one serves each of them; 1 failure, and the old one serves;\n"
    "2 usage; 4 done, but that could not be reported.\n";

struct upgrade_answer {
    struct gmsfs_fds_header header;
    char text[1024];
};

/* Asks the keeper. 0; or a negative errno, with the keeper's text if any. -ECONNRESET: no answer.
 */
static int upgrade_ask_once(const char *path, struct upgrade_answer *answer)
{
    const struct gmsfs_fds_request request = {.version = GMSFS_ABI_VERSION,
                                              .op = GMSFS_FDS_UPGRADE};
    const struct timeval limit = {.tv_sec = ANSWER_S};
    int fd = daemon_connect(path);
    ssize_t got = -1;

    memset(answer, 0, sizeof(*answer));
    if (fd < 0)
        return fd;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0 &&
        send(fd, &request, sizeof(request), MSG_NOSIGNAL) >= 0)
        got = recv(fd, answer, sizeof(*answer) - 1, 0);
    int error = got < 0 ? -errno : 0;
    close(fd);
    if (error)
        return error == -EAGAIN ? -ETIMEDOUT : error == -EPIPE ? -ECONNRESET : error;
    return got < (ssize_t)sizeof(answer->header) ? -ECONNRESET : answer->header.error;
}

/* Asks again if the connection breaks, because a worker ended before it had passed the request on.
 */
static int upgrade_ask(const char *path, struct upgrade_answer *answer)
{
    uint64_t start_ms = clock_now_ms();
    int error = upgrade_ask_once(path, answer);

    while (error == -ECONNRESET && cli_left_ms(start_ms, ANSWER_S * 1000) > 0) {
        clock_pause_ms(ASK_AGAIN_MS);
        error = upgrade_ask_once(path, answer);
    }
    return error;
}

static const char *upgrade_explain(int error, const struct upgrade_answer *answer)
{
    if (*answer->text)
        return answer->text;
    if (error == -EINVAL)
        return "its daemon is older than this command; unmount it, and mount it again";
    if (error == -EPERM)
        return "only root and the user who mounted it may: run this as one of them";
    if (error == -ENOTCONN || error == -ECONNABORTED || error == -ECONNREFUSED)
        return "its daemon has ended; clear it away with 'gmsfs umount -l' and mount again";
    if (error == -ECONNRESET)
        return "its workers end before they can pass the request to the keeper";
    return failure_reason(error);
}

/* Warns about a silent mount, as the request would wait in the kernel without a message. */
static void upgrade_warn_if_silent(const char *path, const struct mount *mount)
{
    json_auto_t *look = mount_look_one(mount);

    if (strcmp(json_get_text(look, "health"), "silent") == 0)
        cli_error("%s: does not answer, and is waited for; if its worker hangs, kill that with "
                  "SIGKILL: another one takes over, and nothing is lost",
                  path);
}

static int upgrade_mount(char *path)
{
    struct upgrade_answer answer;
    SCOPED_MOUNTS struct mounts mounts = {0};
    const struct mount *mount;

    if (mounts_open_at(path, &mounts, &mount) != CLI_OK)
        return CLI_FAILURE;
    upgrade_warn_if_silent(path, mount);
    int error = upgrade_ask(mount->path, &answer);
    if (error)
        cli_error("%s: not upgraded: %s", path, upgrade_explain(error, &answer));
    else
        ui_line(stdout, "%s: %s goes on", path, answer.text);
    return error ? CLI_FAILURE : CLI_OK;
}

static int upgrade_run(int argc, char **argv)
{
    int status = CLI_OK;

    cli_parse(argc, argv, NULL);
    for (int i = optind; i < argc; i++)
        if (upgrade_mount(argv[i]) != CLI_OK)
            status = CLI_FAILURE;
    if (status == CLI_OK)
        output_set_done();
    return status;
}

const struct cli_command cmd_upgrade = {
    .name = "upgrade",
    .summary = "replace the worker of a mount by the installed gmsfs",
    .usage = usage,
    .ending = ending,
    .least = 1,
    .needs = "a MOUNT is needed",
    .run = upgrade_run,
};
