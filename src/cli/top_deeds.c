/* SPDX-License-Identifier: Apache-2.0 */
/* The deeds of `gmsfs top`: other commands, run in a child; and a revocation by the tree. */
#include "cli/cli.h"
#include "cli/daemon_explain.h"
#include "cli/store_explain.h"
#include "cli/store_file.h"
#include "cli/top_view.h"
#include "cli/ui.h"

#include "base/child.h"
#include "base/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DONE       '\1' /* behind the words of a deed that succeeded */
#define MOST_WORDS 8

/* ---- in the child -------------------------------------------------------------------------- */

static int revoke_explain(const char *path, const char *session, int error)
{
    if (error == -EPERM || error == -EACCES)
        return daemon_explain_rights(path, "revoke a session of it");
    if (error == -ENOENT)
        return cli_error("%s: session %s has ended already", path, session);
    return store_explain(path, "revoke a session", error);
}

static int revoke_session(const char *path, const char *session)
{
    SCOPED_FREE char *file = store_file_path(path, "abort");
    char order[64];
    int fd = file ? open(file, O_WRONLY | O_CLOEXEC) : -1, error = 0;
    int bytes = snprintf(order, sizeof(order), "revoke %s\n", session);

    if (fd < 0 || write(fd, order, (size_t)bytes) != bytes)
        error = -errno;
    if (fd >= 0)
        close(fd);
    if (error)
        return revoke_explain(path, session, error);
    ui_line(stdout, "%s: %s is revoked", path, session);
    return CLI_OK;
}

/* Runs a command as the shell would. */
static int run(const struct cli_command *command, const char *const *words)
{
    char *argv[MOST_WORDS + 1];
    int argc = 0;

    for (; argc < MOST_WORDS && words[argc]; argc++)
        argv[argc] = (char *)words[argc];
    argv[argc] = NULL;
    optind = 0; /* getopt begins anew */
    cli_set_command(command);
    return command->run(argc, argv);
}

static int drain(const char *path, const char *place)
{
    int status = place ? run(&cmd_drain, (const char *[]){"drain", "-q", "--then", "demote", "--to",
                                                          place, path, NULL})
                       : run(&cmd_drain, (const char *[]){"drain", "-q", path, NULL});

    if (status == CLI_OK)
        ui_line(stdout, place ? "%s: drained, and demoted to %s" : "%s: drained", path, place);
    return status;
}

static int carry_out(const struct top_order *order, const char *path)
{
    switch (order->deed) {
    case TOP_REVOKE:
        return revoke_session(path, order->session);
    case TOP_PROMOTE:
        return run(&cmd_promote, (const char *[]){"promote", "--async", path, NULL});
    case TOP_DEMOTE:
        return run(&cmd_demote,
                   (const char *[]){"demote", "--async", "--to", order->place, path, NULL});
    case TOP_DRAIN:
        return drain(path, order->place);
    case TOP_UNDRAIN:
        return run(&cmd_drain, (const char *[]){"drain", "--undo", path, NULL});
    default:
        return CLI_FAILURE;
    }
}

static void deed_child(const void *context, int to)
{
    const struct top_order *order = context;
    SCOPED_FREE char *path = store_file_path(order->mount, order->store);
    const char done = DONE;

    if (dup2(to, STDOUT_FILENO) < 0 || dup2(to, STDERR_FILENO) < 0)
        return;
    int status = carry_out(order, path);
    fflush(stdout);
    if (status == CLI_OK)
        file_write(to, &done, 1);
}

/* ---- in the parent ------------------------------------------------------------------------- */

void top_deeds_start(struct top_deeds *deeds, struct top *top, const struct top_order *order)
{
    struct top_deed_run *free_run = NULL;
    char text[128];

    for (size_t i = 0; i < TOP_DEEDS; i++)
        if (!deeds->runs[i].child)
            free_run = &deeds->runs[i];
    if (!free_run) {
        top_set_message(top, "other deeds are under way; wait until one of them has ended", true);
        return;
    }
    *free_run = (struct top_deed_run){0};
    int error = child_start(&free_run->child, deed_child, order, &free_run->fd);
    if (error) {
        snprintf(text, sizeof(text), "no process can be started: %s", strerror(-error));
        top_set_message(top, text, true);
        return;
    }
    fcntl(free_run->fd, F_SETFL, O_NONBLOCK);
}

size_t top_deeds_poll(const struct top_deeds *deeds, struct pollfd *polls)
{
    size_t count = 0;

    for (size_t i = 0; i < TOP_DEEDS; i++)
        if (deeds->runs[i].child)
            polls[count++] = (struct pollfd){.fd = deeds->runs[i].fd, .events = POLLIN};
    return count;
}

/* Shows the last line of the words. */
static void show_words(struct top *top, char *words)
{
    size_t bytes = strlen(words);
    bool is_done = bytes > 0 && words[bytes - 1] == DONE;

    while (bytes > 0 && (words[bytes - 1] == DONE || words[bytes - 1] == '\n'))
        words[--bytes] = '\0';
    char *last = strrchr(words, '\n');
    last = last ? last + 1 : words;
    top_set_message(top, *last ? last : "the deed was ended from outside", !is_done);
}

/* Reads all bytes that have come. True at the end. */
static bool gather(struct top_deed_run *deed)
{
    ssize_t got;

    do {
        if (deed->used == sizeof(deed->text) - 1) /* only the end is shown */
            deed->used = 0;
        got = read(deed->fd, deed->text + deed->used, sizeof(deed->text) - 1 - deed->used);
        if (got > 0)
            deed->used += (size_t)got;
        deed->text[deed->used] = '\0';
    } while (got > 0 || (got < 0 && errno == EINTR));
    return got == 0 || errno != EAGAIN;
}

static void end_deed(struct top_deed_run *deed)
{
    close(deed->fd);
    child_end(deed->child);
    deed->child = NULL;
}

bool top_deeds_take(struct top_deeds *deeds, struct top *top)
{
    bool any = false;

    for (size_t i = 0; i < TOP_DEEDS; i++) {
        struct top_deed_run *deed = &deeds->runs[i];
        if (!deed->child || !gather(deed))
            continue;
        show_words(top, deed->text);
        end_deed(deed);
        any = true;
    }
    return any;
}

void top_deeds_close(struct top_deeds *deeds)
{
    for (size_t i = 0; i < TOP_DEEDS; i++)
        if (deeds->runs[i].child)
            end_deed(&deeds->runs[i]);
}
