/* SPDX-License-Identifier: Apache-2.0 */
/* Processors near a device, from a tree like sysfs. */
#include "base/near.h"

#include "tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char root[] = "/tmp/gmsfs-near.XXXXXX";

/* A file of the tree, with its directories. */
static void put(const char *path, const char *text)
{
    char command[512];

    snprintf(command, sizeof command,
             "mkdir -p \"$(dirname '%s/%s')\" && printf '%%s' '%s' >'%s/%s'", root, path, text,
             root, path);
    require(system(command) == 0);
}

static void begin(const char *node, const char *cpulist)
{
    snprintf(root, sizeof root, "/tmp/gmsfs-near.XXXXXX");
    require(mkdtemp(root) != NULL);
    if (node)
        put("bus/pci/devices/0000:3d:00.0/numa_node", node);
    if (cpulist)
        put("devices/system/node/node1/cpulist", cpulist);
}

static void end(void)
{
    char command[64];

    snprintf(command, sizeof command, "rm -r '%s'", root);
    check_int(system(command), 0);
}

static int find(const char *node, const char *cpulist, const char *pci_id, cpu_set_t *cpus)
{
    int r;

    begin(node, cpulist);
    r = near_find(root, pci_id, cpus);
    end();
    return r;
}

TAP_TEST(processors_of_the_node_are_found_by_the_pci_id_as_the_driver_writes_it)
{
    static const char *const ids[] = {"0000:3D:00.0", "00000000:3D:00.0", "0000:3d:00.0"};
    cpu_set_t cpus;

    for (size_t i = 0; i < 3; i++) {
        check_int(find("1\n", "4-7,12,20-21\n", ids[i], &cpus), 0);
        check_int(CPU_COUNT(&cpus), 7);
        check(CPU_ISSET(4, &cpus) && CPU_ISSET(7, &cpus) && CPU_ISSET(12, &cpus));
        check(!CPU_ISSET(3, &cpus) && !CPU_ISSET(8, &cpus));
    }
}

TAP_TEST(a_device_without_a_node_is_near_nothing)
{
    cpu_set_t cpus;

    check_int(find("-1\n", "0-3\n", "0000:3D:00.0", &cpus), -ENODATA);
    check_int(find(NULL, "0-3\n", "0000:3D:00.0", &cpus), -ENOENT);
    check_int(find("1\n", NULL, "0000:3D:00.0", &cpus), -ENOENT);
    check_int(find("1\n", "0-3\n", "no such device", &cpus), -ENOENT);
}

TAP_TEST(malformed_lists_of_processors_are_refused)
{
    static const char *const lists[] = {
        "\n", "", "x", "1-", "3,,4", "0-3;", "99999999999999999999"};
    cpu_set_t cpus;

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        check(find("1\n", lists[i], "0000:3D:00.0", &cpus) < 0);
}

TAP_TEST(a_thread_stays_where_it_may_run)
{
    cpu_set_t allowed, now, nowhere;

    require(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    CPU_ZERO(&nowhere);
    CPU_SET(CPU_SETSIZE - 1, &nowhere);
    near_stay(&nowhere);
    require(sched_getaffinity(0, sizeof now, &now) == 0);
    check(CPU_EQUAL(&now, &allowed));
    near_stay(&allowed);
    require(sched_getaffinity(0, sizeof now, &now) == 0);
    check(CPU_EQUAL(&now, &allowed));
}
