/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/descriptors.h"

#include "service/bounds.h"

#define OWN 64u

static uint64_t at_most(uint64_t number, uint64_t bound)
{
    return number < bound ? number : bound;
}

struct descriptors descriptors_divide(uint64_t limit)
{
    return (struct descriptors){
        .limit = limit,
        .own = at_most(limit / 8, OWN),
        .connections = at_most(limit / 8, SERVICE_MAX_CONNECTIONS),
        .watches = at_most(limit / 4, SERVICE_MAX_WATCHES),
        .regions = at_most(limit / 8, CORE_MAX_REGIONS),
    };
}

bool descriptors_admit(const struct descriptors *descriptors, int fd, uint64_t watched)
{
    uint64_t others = descriptors->connections + descriptors->watches;
    uint64_t left_over = descriptors->own + (watched < others ? others - watched : 0);

    return (uint64_t)fd < descriptors->limit - left_over;
}
