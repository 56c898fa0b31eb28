/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs top - the mounts of this machine on a terminal; looks, never locks, never hangs */
#include "cli/cli.h"
#include "cli/top_screen.h"
#include "cli/top_view.h"

#include "base/failure.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_DELAY_MS 1000u
#define LEAST_DELAY_MS   100u
#define CLOCK_MS         1000 /* the first line has the time */
#define DRAW_MS          50u  /* least time between two pictures that no key asked for */
#define MOST_POLLS       512u

static const char usage[] =
    "Usage: gmsfs top [-d SECONDS] [MOUNT...]\n"
    "\n"
    "Shows the gmsfs mounts of this machine, or those named, on a terminal until 'q': memory by\n"
    "tiers, stores, the holders and waiters of the chosen store, moves, events. Keys sort,\n"
    "filter, and, after a question, revoke, promote, demote and drain. Takes no lock. For pipes\n"
    "and files there is 'gmsfs status --watch'.\n";

static const char ending[] =
    "Exit status: 0 after 'q'; 1 failure, such as no terminal; 2 usage. A signal ends it.\n"
    "\n"
    "Keys:\n";

struct top_command {
    uint64_t delay_ms;
    struct top *top;
    struct top_mounts *mounts;
    struct top_deeds deeds;
    uint64_t drawn_ms;
    bool is_changed, is_over;
};

static void top_show(struct top_command *command)
{
    unsigned rows, columns;

    top_screen_get_size(&rows, &columns);
    const struct screen *screen = top_draw(command->top, rows, columns, clock_wall_ms());
    if (screen)
        top_screen_show(screen);
    command->drawn_ms = clock_now_ms();
    command->is_changed = false;
}

/* True if a key was pressed. */
static bool top_take_keys(struct top_command *command)
{
    bool any = false;
    unsigned key;

    while (!command->is_over && (key = top_screen_read_key())) {
        struct top_order order = top_press(command->top, key);

        any = true;
        if (order.deed == TOP_QUIT)
            command->is_over = true;
        else if (order.deed == TOP_REDRAW)
            top_screen_redraw();
        else if (order.deed != TOP_NOTHING)
            top_deeds_start(&command->deeds, command->top, &order);
    }
    return any;
}

/* Waits for a key, a signal, or news. The terminal's end is the end of this, too. */
static void top_wait(struct top_command *command)
{
    struct pollfd polls[MOST_POLLS] = {{.fd = STDIN_FILENO, .events = POLLIN}};
    size_t count = 1 + top_deeds_poll(&command->deeds, polls + 1);
    int left_ms = top_mounts_left_ms(command->mounts);

    count += top_mounts_poll(command->mounts, polls + count, MOST_POLLS - count);
    left_ms = left_ms > CLOCK_MS ? CLOCK_MS : left_ms;
    if (command->is_changed && left_ms > (int)DRAW_MS)
        left_ms = DRAW_MS;
    poll(polls, count, left_ms);
    if (polls[0].revents & (POLLHUP | POLLERR | POLLNVAL))
        command->is_over = true;
}

static void top_loop(struct top_command *command)
{
    while (!command->is_over) {
        bool now = top_screen_went_on();

        command->is_changed |= top_mounts_turn(command->mounts);
        command->is_changed |= top_mounts_take(command->mounts);
        if (top_deeds_take(&command->deeds, command->top)) {
            top_mounts_hurry(command->mounts);
            now = true;
        }
        now |= top_take_keys(command);
        if (now || cli_left_ms(command->drawn_ms, command->is_changed ? DRAW_MS : CLOCK_MS) == 0)
            top_show(command);
        if (!command->is_over)
            top_wait(command);
    }
}

static int top_go(struct top_command *command, char **paths, size_t count)
{
    struct failure failure;
    int status = top_mounts_open(&command->mounts, command->top, paths, count, command->delay_ms);

    if (status != CLI_OK)
        return status;
    if (top_screen_open(&failure) != 0)
        return cli_failure(&failure);
    top_loop(command);
    top_screen_close();
    return CLI_OK;
}

/* ---- the command --------------------------------------------------------------------------- */

static void top_take_delay(const char *name, const char *text, void *at)
{
    uint64_t *delay_ms = at;

    cli_take_timeout(name, text, delay_ms);
    if (*delay_ms < LEAST_DELAY_MS)
        cli_usage_error("%s '%s': 0.1 seconds are the least", name, text);
}

static const struct cli_option options[] = {
    {"--delay", 'd', "SECONDS", top_take_delay, offsetof(struct top_command, delay_ms),
     "look at each mount after SECONDS (default 1), or later where a look\n"
     "takes long: a fifth of the time at most goes into looks"},
    {0},
};

static void top_print_keys(void)
{
    for (const struct top_help *help = top_get_help(); help->keys; help++)
        printf("  %-12s %s\n", help->keys, help->text);
}

/* Takes the characters of the locale, and their widths, for names are UTF-8; of another locale only
 * ASCII is sure. */
static void set_characters(void)
{
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C");
}

static int top_run(int argc, char **argv)
{
    struct top_command command = {.delay_ms = DEFAULT_DELAY_MS};

    cli_parse(argc, argv, &command);
    set_characters();
    command.top = cli_need(top_new());
    int status = top_go(&command, argv + optind, (size_t)(argc - optind));
    top_deeds_close(&command.deeds);
    top_mounts_close(command.mounts);
    top_free(command.top);
    return status;
}

const struct cli_command cmd_top = {
    .name = "top",
    .summary = "show mounts and stores on a terminal, with keys that act",
    .usage = usage,
    .options = options,
    .ending = ending,
    .help = top_print_keys,
    .run = top_run,
};
