/* SPDX-License-Identifier: Apache-2.0 */
/* scratch - memory whose contents are worth no copy */
#include "service/move.h"

#include <string.h>

/* GMSFS_GRAPH_TAG of libgmsfs: chunks of a graph pool say so by it. */
#define GRAPH_TAG "gmsfs.graph"

bool service_is_scratch(const struct core_store *store)
{
    size_t count = store->fixed ? layout_count_allocations(store->fixed) : 0;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(layout_at_rank(store->fixed, i)->tag, GRAPH_TAG) != 0)
            return false;
    }
    return count > 0;
}
