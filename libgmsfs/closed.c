/* SPDX-License-Identifier: Apache-2.0 */
/* What was closed is kept for a while, so that a program that uses it all the same is told. */
#include "internal.h"

void *gfs_closed_keep(struct gfs_closed *closed, void *object)
{
    unsigned place = atomic_fetch_add(&closed->count, 1) % GFS_CLOSED;

    return atomic_exchange(&closed->objects[place], object);
}
