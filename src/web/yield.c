/* SPDX-License-Identifier: Apache-2.0 */
/* yield - reads whether a writer waits for a store that this server's answers hold */
#include "web/web.h"

#include <inttypes.h>
#include <string.h>

#define WAIT_METRIC "gmsfs_store_oldest_wait_milliseconds{store=\""

/* Reads a label's value up to its quote; a name that is too long is cut. Returns the text after it,
 * NULL where there is no quote. */
static const char *take_label(const char *text, char *name, size_t room)
{
    size_t bytes = 0;

    for (; *text && *text != '"'; text++) {
        char letter = *text;

        if (letter == '\\' && text[1])
            letter = *++text == 'n' ? '\n' : *text;
        if (bytes + 1 < room)
            name[bytes++] = letter;
    }
    name[bytes] = '\0';
    return *text ? text + 1 : NULL;
}

bool web_next_waiter(const char **at, uint64_t least_ms, char name[WEB_STORE_BYTES])
{
    const char *found, *value;
    uint64_t waited_ms;

    while ((found = strstr(*at, WAIT_METRIC))) {
        value = take_label(found + strlen(WAIT_METRIC), name, WEB_STORE_BYTES);
        *at = value ? value : found + strlen(found);
        if (value && sscanf(value, "} %" SCNu64, &waited_ms) == 1 && waited_ms >= least_ms)
            return true;
    }
    return false;
}

bool web_is_in_the_way(const char *sessions, uint32_t uid)
{
    bool has_reader = false, has_writer = false;
    char number[32], mode[16], status[16], comm[80];
    uint32_t pid, user;

    for (const char *line = sessions; line; line = strchr(line, '\n'), line += line != NULL) {
        if (sscanf(line, "%31s %15s %15s %" SCNu32 " %" SCNu32 " %79s", number, mode, status, &pid,
                   &user, comm) != 6)
            continue;
        if (strcmp(status, "waiting") == 0)
            has_writer = has_writer || strcmp(mode, "RO") != 0;
        else if (strcmp(mode, "RO") == 0 && user == uid && strcmp(comm, "nginx") == 0)
            has_reader = true;
    }
    return has_reader && has_writer;
}
