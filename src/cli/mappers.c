/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mappers.h"

#include "base/file_io.h"
#include "base/size.h"
#include "cli/ui.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 64
#define COMM_BYTES 32

/* Counts the lines that map files of a mount. */
static uint64_t count_line(const void *context, const char *line)
{
    const struct mount *mount = context;
    uint64_t from, to;
    unsigned major, minor;

    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*x %x:%x", &from, &to, &major, &minor) != 4)
        return 0;
    return ((uint64_t)major << 32 | minor) == mount->device ? to - from : 0;
}

static uint64_t count_mapped(mappers_count *count, const void *context, pid_t pid)
{
    char path[PATH_BYTES], *line = NULL;
    uint64_t bytes = 0;
    size_t room = 0;

    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    SCOPED_FILE FILE *maps = fopen(path, "re");
    while (maps && getline(&line, &room, maps) > 0)
        bytes += count(context, line);
    free(line);
    return bytes;
}

static void read_comm(pid_t pid, char comm[COMM_BYTES])
{
    char path[PATH_BYTES];

    comm[0] = '\0';
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    SCOPED_FILE FILE *file = fopen(path, "re");
    if (!file || !fgets(comm, COMM_BYTES, file))
        return;
    comm[strcspn(comm, "\n")] = '\0';
}

void mappers_list(mappers_count *count, const void *context, mappers_take *take, void *to)
{
    SCOPED_DIR DIR *processes = opendir("/proc");
    struct dirent *entry;

    while (processes && (entry = readdir(processes))) {
        pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
        uint64_t bytes = pid ? count_mapped(count, context, pid) : 0;
        if (bytes)
            take(to, pid, bytes);
    }
}

static void add_row(void *table, pid_t pid, uint64_t mapped_bytes)
{
    char number[24], bytes[40], size[SIZE_TEXT_BYTES + 2], comm[COMM_BYTES];

    read_comm(pid, comm);
    snprintf(number, sizeof(number), "pid %d", (int)pid);
    snprintf(bytes, sizeof(bytes), "maps %" PRIu64 " bytes", mapped_bytes);
    size_format(mapped_bytes, size);
    ui_table_add(table, (const char *[]){number, bytes, size, comm});
}

void mappers_print(const struct mount *mount, FILE *to)
{
    struct ui_table table;

    ui_table_begin(&table, "lrll");
    mappers_list(count_line, mount, add_row, &table);
    ui_table_end(&table, to, 2);
}
