/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <errno.h>
#include <string.h>

static const struct {
    const char *name;
    int error;
} points[FAULT_POINTS] = {
    [FAULT_NONE] = {"any", ENOMEM},
#define POINT(name, error) [FAULT_##name] = {#name, error},
#include "points.h"
#undef POINT
    [FAULT_json] = {"json", ENOMEM},
};

const char *fault_point_name(enum fault_point point)
{
    return points[point].name;
}

int fault_point_errno(enum fault_point point)
{
    return points[point].error;
}

enum fault_point fault_point_parse(const char *name)
{
    for (enum fault_point point = FAULT_NONE + 1; point < FAULT_POINTS; point++)
        if (strcmp(points[point].name, name) == 0)
            return point;
    return FAULT_NONE;
}
