/* SPDX-License-Identifier: Apache-2.0 */
/*
 * container - finds the structure that contains a member
 *
 * Pure. For callbacks: they get the member that was registered (a watch, a timeout, a job), and
 * need the whole structure.
 */
#ifndef GMSFS_BASE_CONTAINER_H
#define GMSFS_BASE_CONTAINER_H

#include <stddef.h>

/* CONTAINER_OF(timeout, struct worker, health): the worker that has `timeout` as its `health`. */
#define CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#endif
