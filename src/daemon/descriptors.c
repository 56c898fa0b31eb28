/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/descriptors.h"

#include "base/number.h"
#include "service/bounds.h"

#define OWN 64u

struct descriptors descriptors_divide(uint64_t limit)
{
    return (struct descriptors){
        .limit = limit,
        .own = number_smaller(limit / 8, OWN),
        .connections = number_smaller(limit / 8, SERVICE_MAX_CONNECTIONS),
        .watches = number_smaller(limit / 4, SERVICE_MAX_WATCHES),
        .regions = number_smaller(limit / 8, CORE_MAX_REGIONS),
    };
}

bool descriptors_admit(const struct descriptors *descriptors, int fd, uint64_t watched)
{
    uint64_t others = descriptors->connections + descriptors->watches;
    uint64_t left_over = descriptors->own + (watched < others ? others - watched : 0);

    return (uint64_t)fd < descriptors->limit - left_over;
}
