/* SPDX-License-Identifier: Apache-2.0 */
#include "source/hub_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *hub_setting(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

bool hub_is_set(const char *name)
{
    static const char *const words_for_no[] = {"0", "false", "no", "off"};
    const char *value = hub_setting(name);

    for (size_t i = 0; value && i < sizeof(words_for_no) / sizeof(words_for_no[0]); i++)
        if (strcasecmp(value, words_for_no[i]) == 0)
            return false;
    return value != NULL;
}

char *hub_in_home(const char *below)
{
    const char *home = hub_setting("HF_HOME"), *cache = hub_setting("XDG_CACHE_HOME");
    char *path = NULL;
    int written;

    if (home)
        written = asprintf(&path, "%s/%s", home, below);
    else if (cache)
        written = asprintf(&path, "%s/huggingface/%s", cache, below);
    else
        written = asprintf(&path, "%s/.cache/huggingface/%s",
                           hub_setting("HOME") ? getenv("HOME") : "", below);
    return written < 0 ? NULL : path;
}

void hub_read_line(const char *path, char *line, size_t room)
{
    FILE *file = fopen(path, "re");

    line[0] = '\0';
    if (!file)
        return;
    if (!fgets(line, (int)room, file))
        line[0] = '\0';
    fclose(file);
    line[strcspn(line, " \t\r\n")] = '\0';
}
