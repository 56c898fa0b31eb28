/* SPDX-License-Identifier: Apache-2.0 */
/*
 * near - the processors that are near a device
 *
 * For threads that copy to and from a GPU: memory that they touch first lies on their own NUMA
 * node, and a copy from another node crosses the link between the sockets. Source of facts: sysfs.
 * Any thread. Does nothing on machines with one node or without this information.
 */
#ifndef GMSFS_BASE_NEAR_H
#define GMSFS_BASE_NEAR_H

#include <sched.h>

#define NEAR_SYSFS "/sys"

/* Finds the processors of the device's node. sysfs: NEAR_SYSFS, or a tree like it. pci_id:
 * "0000:3D:00.0", as the driver writes it. 0; -ENODATA: sysfs names no node; another negative
 * errno: it cannot be read. */
int near_find(const char *sysfs, const char *pci_id, cpu_set_t *cpus);

/* Counts the processors in `cpus` that the calling thread may run on. */
unsigned near_count(const cpu_set_t *cpus);

/* Restricts the calling thread to the processors in `cpus` that it may run on; does nothing if
 * there are none. */
void near_stay(const cpu_set_t *cpus);

#endif
