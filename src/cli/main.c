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

static int main_version(int argc, char **argv);
static int main_help(int argc, char **argv);

static const struct cli_option version_options[] = {
    {"--json", 0, NULL, NULL, 0, /* read by main_version() */
     "as JSON, with the format numbers that two builds have to share, so that one\n"
     "can take over from the other"},
    {0},
};

static const struct cli_command cmd_version = {
    .name = "version",
    .summary = "print the version; --json: with its format numbers",
    .usage = "Usage: gmsfs version [--json]\n"
             "\n"
             "Prints the version.\n",
    .options = version_options,
    .run = main_version,
};

static const struct cli_command cmd_help = {
    .name = "help",
    .summary = "print this text, or the help of a command",
    .usage = "Usage: gmsfs help [COMMAND]\n"
             "\n"
             "Lists the commands, or prints the help of one.\n",
    .run = main_help,
};

static const struct cli_command *const commands[] = {
    &cmd_mount,         &cmd_umount,  &cmd_status,  &cmd_top,      &cmd_load,     &cmd_save,
    &cmd_copy,          &cmd_verify,  &cmd_drain,   &cmd_fence,    &cmd_sum,      &cmd_image,
    &cmd_pull,          &cmd_ls,      &cmd_run,     &cmd_wait,     &cmd_metadata, &cmd_triton,
    &cmd_clear_suspect, &cmd_promote, &cmd_demote,  &cmd_governor, &cmd_web,      &cmd_upgrade,
    &cmd_log,           &cmd_journal, &cmd_version, &cmd_help,
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct cli_command *main_find(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int main_list(FILE *to)
{
    fputs("Usage: gmsfs COMMAND [ARGUMENT...]\n"
          "\n"
          "Keeps the memory of a device (a GPU, or this machine's) in files that processes share.\n"
          "\n"
          "Commands:\n",
          to);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-13s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n"
          "'gmsfs COMMAND --help' tells more; so do gmsfs(1), gmsfs-mount(8) and gmsfs(5).\n",
          to);
    return to == stdout ? CLI_OK : CLI_USAGE;
}

static int main_version(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        cli_help();
    if (argc == 1) {
        puts("gmsfs " GMSFS_VERSION);
        return CLI_OK;
    }
    int status = daemon_version_main(argc, argv);
    if (status == CLI_USAGE)
        cli_usage_error("'%s': only --json is possible", argv[argc > 2 ? 2 : 1]);
    return status;
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
        cli_usage_error("'%s' is no command; 'gmsfs help' lists them", name);
    snprintf(word, sizeof(word), "%s", command->name);
    arguments[0] = word;
    return main_run(command, 2, arguments);
}

static int main_help(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--help") == 0)
        cli_help();
    if (argc > 1 && argv[1][0] == '-')
        cli_usage_error("unknown option '%s'", argv[1]);
    if (argc > 2)
        cli_usage_error("one COMMAND at most is needed");
    cli_set_command(NULL);
    return argc > 1 ? main_help_of(argv[1]) : main_list(stdout);
}

static int main_dispatch(int argc, char **argv)
{
    if (argc < 2)
        return main_list(stderr);
    const struct cli_command *command = main_find(argv[1]);
    if (command)
        return main_run(command, argc - 1, argv + 1);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
        return main_version(1, argv);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return main_list(stdout);
    if (strcmp(argv[1], COPIER_COMMAND) == 0) /* called by a worker, not by users */
        return copier_main(argc, argv, backends_find_copier);
    if (strcmp(argv[1], TRITON_CUDA_COMMAND) == 0) /* called by gmsfs triton, not by users */
        return triton_cuda_main();
    if (daemon_is_mount_helper(argc, argv))
        return daemon_mount_main(argc, argv);
    cli_usage_error("'%s' is no command; 'gmsfs help' lists them", argv[1]);
}

/* Opens closed standard streams: else the next opened file, perhaps a store's `ctl`, would take
 * their number, and messages would go there. */
static bool main_open_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    if (!main_open_streams())
        return cli_error("cannot open /dev/null in place of a closed standard stream: %s",
                         strerror(errno));
    output_begin();
    return output_end(main_dispatch(argc, argv));
}
