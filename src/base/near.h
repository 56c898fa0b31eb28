/* SPDX-License-Identifier: Apache-2.0 */
/*
 * near - the processors that are near a device
 *
 * For threads that copy to and from a GPU: memory that they touch first lies on the node that they
 * run on, and a copy from another node crosses the link between the sockets. Source of facts:
 * sysfs. Any thread. Where the machine has one node, or does not tell, there is nothing to do.
 */
#ifndef GMSFS_BASE_NEAR_H
#define GMSFS_BASE_NEAR_H

#include <sched.h>

#define NEAR_SYSFS "/sys"

/* sysfs: NEAR_SYSFS, or a tree like it. pci_id: "0000:3D:00.0", as the driver writes it. 0, or
 * -ENODATA: sysfs does not name a node; another negative errno: it cannot be read. */
int near_find(const char *sysfs, const char *pci_id, cpu_set_t *cpus);

/* Of `cpus`, how many the calling thread may run on. */
unsigned near_count(const cpu_set_t *cpus);

/* The calling thread runs on those of `cpus` that it may run on; where there are none, as before.
 */
void near_stay(const cpu_set_t *cpus);

#endif
