/* SPDX-License-Identifier: Apache-2.0 */
/* own_fault - the faults of a program that is its own client: lack of memory, where it is armed */
#ifndef GMSFS_TESTS_FAULT_OWN_FAULT_H
#define GMSFS_TESTS_FAULT_OWN_FAULT_H

#include "fault.h"

#include "../unit/tap.h"

#include <errno.h>

static struct fault_control *control;

/* Only the first call of a program chooses the counting. */
static void begin_faults(enum fault_counting counting, enum fault_point point)
{
    if (!control)
        control = fault_start(counting);
    require(control != NULL);
    control->processes = FAULT_COMMAND;
    control->point = point;
    control->error = ENOMEM;
}

static void arm(int after)
{
    control->fired = false;
    control->after = after;
    control->armed = true;
}

#endif
