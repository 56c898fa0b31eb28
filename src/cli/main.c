/* SPDX-License-Identifier: Apache-2.0 */
/* The gmsfs command: finds the command that was named, and runs it. */
#include "cli/cli.h"
#include "cli/output.h"
#include "copier/copier.h"
#include "daemon/daemon.h"
#include "triton/triton.h"
#include "vmm/backends.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* `gmsfs mount` has its own options, help and messages. */
static const struct cli_command cmd_mount = {
    .name = "mount",
    .summary = "mount a device's memory at a directory",
    .usage = "", /* its own */
    .run = daemon_mount_main,
};

static const struct cli_command *const commands[] = {
    &cmd_mount,    &cmd_umount,   &cmd_status, &cmd_load,          &cmd_save,    &cmd_verify,
    &cmd_drain,    &cmd_fence,    &cmd_sum,    &cmd_image,         &cmd_ls,      &cmd_run,
    &cmd_wait,     &cmd_metadata, &cmd_triton, &cmd_clear_suspect, &cmd_promote, &cmd_demote,
    &cmd_governor, &cmd_upgrade,
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct cli_command *main_find(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int main_help(FILE *to)
{
    fputs("Usage: gmsfs COMMAND [ARGUMENT...]\n"
          "\n"
          "Keeps the memory of a device (a GPU, or this machine's) in files that processes share.\n"
          "\n"
          "Commands:\n",
          to);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-13s %s\n", commands[i]->name, commands[i]->summary);
    fputs("  version       print the version; --json: and those of what builds share\n"
          "  help          print this, or the help of a command\n"
          "\n"
          "'gmsfs COMMAND --help' tells more; so do gmsfs(1), gmsfs-mount(8) and gmsfs(5).\n",
          to);
    return to == stdout ? CLI_OK : CLI_USAGE;
}

static int main_version(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "version") == 0)
        return daemon_version_main(argc - 1, argv + 1);
    puts("gmsfs " GMSFS_VERSION);
    return CLI_OK;
}

static int main_run(const struct cli_command *command, int argc, char **argv)
{
    cli_set_command(command);
    return command->run(argc, argv);
}

static int main_help_of(const char *name)
{
    const struct cli_command *command = main_find(name);
    char help[] = "--help", *arguments[] = {NULL, help, NULL};
    char word[32];

    if (!command)
        return cli_usage_error("'%s' is no command; 'gmsfs help' lists them", name);
    snprintf(word, sizeof(word), "%s", command->name);
    arguments[0] = word;
    return main_run(command, 2, arguments);
}

static int main_dispatch(int argc, char **argv)
{
    const struct cli_command *command;

    if (argc < 2)
        return main_help(stderr);
    command = main_find(argv[1]);
    if (command)
        return main_run(command, argc - 1, argv + 1);
    if (strcmp(argv[1], "version") == 0 || strcmp(argv[1], "--version") == 0 ||
        strcmp(argv[1], "-V") == 0)
        return main_version(argc, argv);
    if (strcmp(argv[1], "help") == 0 && argc > 2 && argv[2][0] != '-')
        return main_help_of(argv[2]);
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0)
        return main_help(stdout);
    if (strcmp(argv[1], COPIER_COMMAND) == 0) /* by a worker: no command of the user's */
        return copier_main(argc, argv, backends_find_copier);
    if (strcmp(argv[1], TRITON_CUDA_COMMAND) == 0) /* by gmsfs triton: none of the user's either */
        return triton_cuda_main();
    if (daemon_is_mount_helper(argc, argv))
        return daemon_mount_main(argc, argv);
    return cli_usage_error("'%s' is no command; 'gmsfs help' lists them", argv[1]);
}

/* A standard stream that is closed would be the next file that is opened, as a store's `ctl`, and
 * messages would go there. */
static bool main_open_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    if (!main_open_streams()) {
        cli_error("cannot open /dev/null in the place of a standard stream that is closed: %s",
                  strerror(errno));
        return CLI_FAILURE;
    }
    output_begin();
    return output_end(main_dispatch(argc, argv));
}
