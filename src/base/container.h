/* SPDX-License-Identifier: Apache-2.0 */
/*
 * container - the structure that a member lies in
 *
 * Pure. For callbacks, which get the member that they were registered with (a watch, a timeout, a
 * job) and work on the whole.
 */
#ifndef GMSFS_BASE_CONTAINER_H
#define GMSFS_BASE_CONTAINER_H

#include <stddef.h>

/* CONTAINER_OF(timeout, struct worker, health): the worker whose member `health` this is. */
#define CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#endif
