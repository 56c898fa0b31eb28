/* SPDX-License-Identifier: Apache-2.0 */
/* yield - reads whether a writer waits for a store that this server's answers hold */
#include "web/web.h"

#include <inttypes.h>
#include <string.h>

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
