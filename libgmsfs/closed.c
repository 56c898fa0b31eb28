/* SPDX-License-Identifier: Apache-2.0 */
/* Closed objects stay for a while, so that a program that still uses one gets an error. */
#include "internal.h"

void *gfs_closed_keep(struct gfs_closed *closed, void *object)
{
    unsigned place = atomic_fetch_add(&closed->count, 1) % GFS_CLOSED;

    return atomic_exchange(&closed->objects[place], object);
}
