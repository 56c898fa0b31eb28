/* SPDX-License-Identifier: Apache-2.0 */
/* bound_table - a row for each bound outside of the state (bounds.h) */
#include "service/cost.h"

#include <errno.h>

const struct bound_row service_bounds[SERVICE_BOUND_COUNT] = {
    [SERVICE_BOUND_DIRECTORIES] = {"directories", SERVICE_MAX_DIRECTORIES, -ENFILE, 1024, true},
    [SERVICE_BOUND_TEXTS] = {"texts", SERVICE_MAX_TEXT_BYTES, -ENOMEM, 1, true},
    [SERVICE_BOUND_LAYOUTS] = {"layouts", SERVICE_MAX_LAYOUT_BYTES, -ENOMEM, 0, true},
    [SERVICE_BOUND_CONNECTIONS] = {"connections", SERVICE_MAX_CONNECTIONS, -ENFILE, 4096, true},
    [SERVICE_BOUND_WATCHES] = {"processes", SERVICE_MAX_WATCHES, -ENFILE, 512, false},
    [SERVICE_BOUND_TRANSFERS] = {"transfers", SERVICE_MAX_TRANSFERS, -ENOMEM, 1024, false},
    [SERVICE_BOUND_QUEUED] = {"queued bytes", SERVICE_MAX_QUEUED_BYTES, 0, 1, false},
    [SERVICE_BOUND_SPOOLS] = {"spools", SERVICE_SPOOLS, -ENOMEM, 0, false},
    [SERVICE_BOUND_FRAMES] = {"frames", SERVICE_MAX_FRAME_BYTES, -ENOMEM, 1, false},
    [SERVICE_BOUND_NOTES] = {"notes", SERVICE_MAX_NOTED_BYTES, -ENOSPC, 1, false},
    [SERVICE_BOUND_REQUESTS] = {"requests", SERVICE_MAX_REQUESTS, -ENOMEM, 0, true},
    [SERVICE_BOUND_AHEAD] = {"request bytes", SERVICE_MAX_AHEAD_BYTES, -ENOMEM, 1, true},
    [SERVICE_BOUND_ALLOCS] = {"allocs", SERVICE_MAX_ALLOC_BYTES, -ENOMEM, 1, false},
    [SERVICE_BOUND_SUMS] = {"sums", SERVICE_MAX_SUM_BYTES, -ENOMEM, 1, false},
};
