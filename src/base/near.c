/* SPDX-License-Identifier: Apache-2.0 */
#include "base/near.h"

#include "base/file_io.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEAR_PATH_BYTES 256
#define NEAR_LIST_BYTES 4096 /* sysfs returns at most a page */

/* Reads one line without its newline. */
static int near_read(const char *path, char *text, int room)
{
    SCOPED_FILE FILE *file = fopen(path, "re");

    if (!file)
        return -errno;
    if (!fgets(text, room, file))
        return -ENODATA;
    text[strcspn(text, "\n")] = '\0';
    return 0;
}

/* Parses "0-3,8,10-11". */
static int near_parse(const char *list, cpu_set_t *cpus)
{
    char *end;

    CPU_ZERO(cpus);
    while (isdigit((unsigned char)*list)) {
        unsigned long first = strtoul(list, &end, 10), last = first;

        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
            CPU_SET(cpu, cpus);
        list = *end == ',' ? end + 1 : end;
    }
    return *list || CPU_COUNT(cpus) == 0 ? -ENODATA : 0;
}

/* Spells an id as sysfs does: in lower case, with a domain of four digits; some drivers write
 * eight. */
static void near_spell(const char *pci_id, char *name, size_t room)
{
    size_t skip =
        strlen(pci_id) > strlen("0000:00:00.0") && strncmp(pci_id, "0000", 4) == 0 ? 4 : 0;

    snprintf(name, room, "%s", pci_id + skip);
    for (char *at = name; *at; at++)
        *at = (char)tolower((unsigned char)*at);
}

int near_find(const char *sysfs, const char *pci_id, cpu_set_t *cpus)
{
    char path[NEAR_PATH_BYTES], name[32], text[NEAR_LIST_BYTES];

    near_spell(pci_id, name, sizeof(name));
    snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/numa_node", sysfs, name);
    int error = near_read(path, text, sizeof(text));
    if (error)
        return error;
    if (!isdigit((unsigned char)*text))
        /* -1: the firmware names no node */
        return -ENODATA;
    snprintf(path, sizeof(path), "%s/devices/system/node/node%.8s/cpulist", sysfs, text);
    error = near_read(path, text, sizeof(text));
    return error ? error : near_parse(text, cpus);
}

static bool near_narrow(const cpu_set_t *cpus, cpu_set_t *both)
{
    cpu_set_t allowed;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        return false;
    CPU_AND(both, &allowed, cpus);
    return CPU_COUNT(both) > 0;
}

unsigned near_count(const cpu_set_t *cpus)
{
    cpu_set_t both;

    return near_narrow(cpus, &both) ? (unsigned)CPU_COUNT(&both) : 0;
}

void near_stay(const cpu_set_t *cpus)
{
    cpu_set_t both;

    if (near_narrow(cpus, &both))
        sched_setaffinity(0, sizeof(both), &both);
}
