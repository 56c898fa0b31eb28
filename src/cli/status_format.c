/* SPDX-License-Identifier: Apache-2.0 */
/* States, holders and failures as text, for tables and lines */
#include "cli/status.h"

#include "cli/cli.h"
#include "cli/mount_look.h"
#include "cli/store_file.h"
#include "cli/ui.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STATUS_MAX_HOLDERS 16u

static bool status_same_holder(const json_t *a, const json_t *b)
{
    return a && b && json_get_number(a, "pid") == json_get_number(b, "pid") &&
           strcmp(json_get_text(a, "mode"), json_get_text(b, "mode")) == 0 &&
           strcmp(json_get_text(a, "status"), json_get_text(b, "status")) == 0 &&
           strcmp(json_get_text(a, "comm"), json_get_text(b, "comm")) == 0;
}

/* The pid is 0 where the daemon cannot see it. */
static void status_print_holder(const json_t *session, size_t times, FILE *to)
{
    bool waits = strcmp(json_get_text(session, "status"), "held") != 0;

    fprintf(to, "%s%s %" PRIu64 " %s", waits ? "waiting " : "", json_get_text(session, "mode"),
            json_get_number(session, "pid"), json_get_text(session, "comm"));
    if (times > 1)
        fprintf(to, " x%zu", times);
}

/* Those of one process that follow each other are one, and not more are named than one can read:
 * `sessions` has all of them. */
char *status_format_holders(const json_t *store)
{
    const json_t *sessions = json_object_get(store, "sessions"), *session;
    size_t size, count = json_array_size(sessions), named = 0, at = 0;
    char *text = NULL;
    FILE *to = cli_need(open_memstream(&text, &size));

    while (at < count && named++ < STATUS_MAX_HOLDERS) {
        size_t first = at++;
        session = json_array_get(sessions, first);
        while (status_same_holder(session, json_array_get(sessions, at)))
            at++;
        fputs(first ? ", " : "", to);
        status_print_holder(session, at - first, to);
    }
    if (at < count)
        fprintf(to, ", and %zu more", count - at);
    if (fclose(to) == EOF)
        cli_out_of_memory();
    return text;
}

/* Where its bytes are, unless that is the device, and where they are going. */
static void status_format_place(const json_t *store, char *text, size_t room)
{
    const json_t *tiers = json_object_get(store, "residency");
    const json_t *moving = json_object_get(store, "moving");
    const char *at = json_string_value(json_array_get(tiers, 0)), *to;
    bool is_committed = json_get_flag(store, "committed");
    int bytes = 0;

    *text = '\0';
    if (is_committed && json_is_array(tiers) && !at)
        at = "none";
    if (is_committed && at && strcmp(at, "device") != 0)
        bytes = snprintf(text, room, " on %s", at);
    to = json_get_text(moving, "to");
    if (*to && bytes >= 0 && (size_t)bytes < room)
        snprintf(text + bytes, room - (size_t)bytes, " to %s %u%%", to,
                 ui_percent(json_get_number(moving, "done_bytes"),
                            json_get_number(moving, "all_bytes")));
}

char *status_format_state(const json_t *store, char *text, size_t room)
{
    char place[STATUS_STATE_BYTES];

    bool suspect = json_get_flag(store, "suspect");
    bool fenced = json_get_flag(store, "fenced");
    bool immutable = json_get_flag(store, "immutable");

    status_format_place(store, place, sizeof(place));
    snprintf(text, room, "%s%s%s%s%s", json_get_text(store, "state"), immutable ? " immutable" : "",
             place, suspect ? " SUSPECT" : "", fenced ? " FENCED" : "");
    return text;
}

/* ---- a mount that is not there --------------------------------------------------------------- */

/* Returns the way out for an error that the mount answered. */
static const char *status_way_out(const char *name)
{
    static const struct {
        const char *name, *way_out;
    } ways_out[] = {
        {"ENFILE", "its bound on open files, or this machine's, is reached; 'lsof' lists them"},
        {"EMFILE", "no more files may be open; raise 'ulimit -n', or close some"},
        {"EDQUOT", "your share of its open files is used up; close some"},
        {"ENOSPC", "one of its bounds is reached, which its file 'events' names"},
        {"ENOMEM",
         "memory is short, of this process (raise its limit, 'ulimit -v'), of a cgroup, or "
         "of this machine; end large processes"},
        {"EAGAIN", "no process could be started to look; 'ulimit -u' bounds them"},
        {"ENOENT", "it was unmounted just now, or something else is mounted over it"},
        {"ETIMEDOUT", "its daemon is stuck; its log may tell why"},
        {"ECHILD", "the process that looked was ended; look again"},
    };

    for (size_t i = 0; i < sizeof(ways_out) / sizeof(ways_out[0]); i++)
        if (strcmp(name, ways_out[i].name) == 0)
            return ways_out[i].way_out;
    return "look again, and into the log of its daemon";
}

char *status_format_unknown(const json_t *look, const char *subject)
{
    const char *name = json_get_text(look, "errno");

    return cli_format("%s: %s (%s); %s", subject, json_get_text(look, "error"), name,
                      status_way_out(name));
}

char *status_format_absent(const json_t *look, const char *path)
{
    const char *health = json_get_text(look, "health");

    if (strcmp(health, "dead") == 0)
        return cli_format("DEAD: its daemon has ended; clear it away with 'gmsfs umount -l %s'",
                          path);
    if (strcmp(health, "silent") == 0)
        return cli_format("SILENT: no answer within %u s; its daemon is stopped or stuck "
                          "(gmsfs-mount(8), PROCESSES)",
                          MOUNT_LOOK_TIMEOUT_MS / 1000);
    if (strcmp(health, "no access") == 0)
        return cli_format("NO ACCESS: another user's mount, without -o allow_other");
    return status_format_unknown(look, "UNKNOWN: cannot be looked at");
}
