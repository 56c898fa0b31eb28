/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs status --watch: looks whenever a mount has an event, and at an interval. */
#include "cli/cli.h"
#include "cli/mount_events.h"
#include "cli/status.h"
#include "cli/store_file.h"
#include "cli/ui.h"

#include "base/array.h"
#include "base/child.h"
#include "base/scope.h"
#include "base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define MOUNTINFO      "/proc/self/mountinfo"
#define QUIET_MS       100 /* least time between two looks, with any number of events */
#define DEFAULT_ROWS   24u
#define FIRST_WATCHERS 2u /* poll entries: signals, mounts */

/* A wait for the events of a mount. */
struct watcher {
    uint64_t mount;
    struct child *child; /* NULL after it ended with the daemon */
    int fd;              /* -1 after its end */
    bool seen;
};

struct watch {
    struct status_look *look;
    uint64_t interval_ms;
    bool as_json;
    bool on_terminal;
    int signals, mountinfo;
    struct watcher *watchers;
    size_t watcher_count, watcher_room;
    char *last_text; /* --json: last printed text */
    json_t *lines;   /* plain: {path: line} of the last look */
};

/* ---- watchers ------------------------------------------------------------------------------ */

static void watch_start(struct watch *watch, const struct mount *mount)
{
    if (ARRAY_RESERVE(watch->watchers, watch->watcher_room, watch->watcher_count + 1) != 0)
        cli_out_of_memory();
    struct watcher *next = &watch->watchers[watch->watcher_count];
    *next = (struct watcher){.mount = mount->id, .seen = true};
    if (mount_events_start(mount->path, &next->child, &next->fd) == 0)
        watch->watcher_count++;
}

/* Starts a watcher for each mount of the look, and ends the others. A mount without a watcher (no
 * process) is still looked at after each interval. */
static void watch_match(struct watch *watch)
{
    const struct mounts *mounts = &watch->look->mounts;
    size_t kept = 0;

    for (size_t i = 0; i < watch->watcher_count; i++)
        watch->watchers[i].seen = false;
    for (size_t i = 0; i < mounts->count; i++) {
        bool known = false;
        for (size_t j = 0; j < watch->watcher_count; j++)
            if (watch->watchers[j].mount == mounts->list[i].id)
                known = watch->watchers[j].seen = true;
        if (!known)
            watch_start(watch, &mounts->list[i]);
    }
    for (size_t i = 0; i < watch->watcher_count; i++) {
        if (watch->watchers[i].seen)
            watch->watchers[kept++] = watch->watchers[i];
        else
            mount_events_end(&watch->watchers[i].child, &watch->watchers[i].fd);
    }
    watch->watcher_count = kept;
}

static void watch_drain(struct watcher *watcher)
{
    char bytes[1024];
    ssize_t got;

    do
        got = read(watcher->fd, bytes, sizeof(bytes));
    while (got > 0 || (got < 0 && errno == EINTR));
    if (got == 0)
        mount_events_end(&watcher->child, &watcher->fd);
}

/* ---- output -------------------------------------------------------------------------------- */

static unsigned watch_rows(void)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row == 0)
        return DEFAULT_ROWS;
    return size.ws_row;
}

/* Paints from the top left; each line erases the rest of its row, and lines that do not fit are
 * cut. */
static void watch_paint(const char *text)
{
    unsigned rows = watch_rows();

    fputs("\033[?7l\033[H", stdout);
    for (unsigned row = 0; *text && row < rows; row++) {
        size_t length = strcspn(text, "\n");
        printf("%s%.*s\033[K", row ? "\r\n" : "", (int)length, text);
        text += length;
        text += *text == '\n';
    }
    fputs("\033[J\033[?7h", stdout);
    fflush(stdout);
}

static void watch_show_screen(struct watch *watch)
{
    char *text = NULL;
    size_t size;
    FILE *to = cli_need(open_memstream(&text, &size));

    if (watch->look->mounts.count == 0)
        fputs("no gmsfs mount is there\n", to);
    status_print(watch->look, to, ui_width(STDOUT_FILENO));
    if (fclose(to) == EOF)
        cli_out_of_memory();
    watch_paint(text);
    free(text);
}

static void watch_show_json(struct watch *watch)
{
    json_auto_t *array = status_make_json(watch->look);
    char *text = cli_need(json_dumps(array, JSON_COMPACT | ui_json_flags()));

    if (!watch->last_text || strcmp(watch->last_text, text) != 0) {
        puts(text);
        fflush(stdout);
    }
    free(watch->last_text);
    watch->last_text = text;
}

static json_t *watch_unknown_line(const json_t *look, const char *subject)
{
    return json_sprintf("%s: %s (%s)", subject, json_get_text(look, "error"),
                        json_get_text(look, "errno"));
}

static json_t *watch_mount_line(const json_t *look)
{
    const char *health = json_get_text(look, "health");
    char subject[64];

    if (!json_object_get(look, "error") || strcmp(health, "dead") == 0)
        return json_string(health);
    snprintf(subject, sizeof(subject), "%s%s", health,
             json_is_object(json_object_get(look, "device")) ? "  stores unknown" : "");
    return watch_unknown_line(look, subject);
}

static json_t *watch_store_line(const json_t *store)
{
    char bytes[SIZE_TEXT_BYTES], state[STATUS_STATE_BYTES];

    if (json_object_get(store, "error"))
        return watch_unknown_line(store, "unknown");
    SCOPED_FREE char *holders = status_format_holders(store);
    return json_sprintf("%s  %s  allocations %" PRIu64 "  entries %" PRIu64 "  generation %" PRIu64
                        "  %s",
                        status_format_state(store, state, sizeof(state)),
                        size_format(json_get_number(store, "bytes"), bytes),
                        json_get_number(store, "allocations"), json_get_number(store, "entries"),
                        json_get_number(store, "generation"), *holders ? holders : "-");
}

/* Makes {path: line} of every mount and store. */
static json_t *watch_make_lines(const struct watch *watch)
{
    json_t *lines = json_object(), *store;
    size_t j;

    for (size_t i = 0; i < watch->look->mounts.count; i++) {
        const json_t *look = watch->look->looks[i];
        const char *mount = json_get_text(look, "mount");
        json_object_set_new(lines, mount, watch_mount_line(look));
        json_array_foreach (json_object_get(look, "stores"), j, store) {
            char path[2 * PATH_MAX];
            snprintf(path, sizeof(path), "%s/%s", mount, json_get_text(store, "name"));
            json_object_set_new(lines, path, watch_store_line(store));
        }
    }
    return lines;
}

static void watch_print_line(const char *path, const char *line)
{
    char stamp[CLOCK_TEXT_BYTES];

    clock_format_utc(clock_wall_ms() / 1000, stamp);
    ui_line(stdout, "%s  %s  %s", stamp, path, line);
}

static void watch_show_lines(struct watch *watch)
{
    json_t *lines = watch_make_lines(watch), *line;
    const char *path;

    json_object_foreach (lines, path, line) {
        if (!json_equal(line, json_object_get(watch->lines, path)))
            watch_print_line(path, json_string_value(line));
    }
    json_object_foreach (watch->lines, path, line) {
        if (!json_object_get(lines, path))
            watch_print_line(path, "gone");
    }
    fflush(stdout);
    json_decref(watch->lines);
    watch->lines = lines;
}

static void watch_show(struct watch *watch)
{
    if (watch->as_json)
        watch_show_json(watch);
    else if (watch->on_terminal)
        watch_show_screen(watch);
    else
        watch_show_lines(watch);
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* Signals that were ignored before (nohup) stay ignored. */
static int watch_open_signals(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction before;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (sigaction(ends[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaddset(&set, ends[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* True after a signal that ends the watch. */
static bool watch_read_signals(const struct watch *watch)
{
    struct signalfd_siginfo info;

    while (read(watch->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        if (info.ssi_signo != SIGWINCH)
            return true;
    return false;
}

/* Waits until a mount may have changed. True after a signal that ends the watch. */
static bool watch_wait(struct watch *watch)
{
    SCOPED_FREE struct pollfd *polls =
        cli_need(calloc(FIRST_WATCHERS + watch->watcher_count, sizeof(*polls)));
    struct pollfd signals = {.fd = watch->signals, .events = POLLIN};

    /* Takes many events at once as one change, and keeps the loop from spinning. */
    if (poll(&signals, 1, QUIET_MS) > 0 && watch_read_signals(watch))
        return true;
    polls[0] = signals;
    polls[1] = (struct pollfd){.fd = watch->mountinfo, .events = POLLPRI};
    for (size_t i = 0; i < watch->watcher_count; i++)
        polls[FIRST_WATCHERS + i] = (struct pollfd){.fd = watch->watchers[i].fd, .events = POLLIN};
    poll(polls, FIRST_WATCHERS + watch->watcher_count, (int)watch->interval_ms);
    for (size_t i = 0; i < watch->watcher_count; i++)
        if (polls[FIRST_WATCHERS + i].revents)
            watch_drain(&watch->watchers[i]);
    return watch_read_signals(watch);
}

/* ---- the whole ----------------------------------------------------------------------------- */

int status_watch(struct status_look *look, uint64_t interval_ms, bool as_json)
{
    struct watch watch = {.look = look,
                          .interval_ms = interval_ms < INT_MAX ? interval_ms : INT_MAX,
                          .as_json = as_json,
                          .on_terminal = !as_json && isatty(STDOUT_FILENO)};
    bool enough = false;
    int status = CLI_OK;

    watch.signals = watch_open_signals();
    watch.mountinfo = open(MOUNTINFO, O_RDONLY | O_CLOEXEC);
    if (watch.on_terminal)
        fputs("\033[2J", stdout);
    while (!enough && status == CLI_OK && !ferror(stdout)) {
        status = status_look(look);
        if (status == CLI_OK) {
            watch_show(&watch);
            watch_match(&watch);
        }
        status_look_free(look);
        enough = status != CLI_OK || watch_wait(&watch);
    }
    if (watch.on_terminal)
        putchar('\n');
    for (size_t i = 0; i < watch.watcher_count; i++)
        mount_events_end(&watch.watchers[i].child, &watch.watchers[i].fd);
    free(watch.watchers);
    free(watch.last_text);
    json_decref(watch.lines);
    close(watch.signals);
    close(watch.mountinfo);
    return status;
}
